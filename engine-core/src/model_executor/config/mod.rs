//! `config.json` of a Hugging Face checkpoint.
//!
//! Parses what the supported families have in common; a setting that would change the result and
//! isn't implemented is refused by name.

mod encoder;
mod experts;
mod fields;
mod quantization;
mod rope;
mod settings;
mod sliding_window;

use serde_json::Value;

pub(crate) use self::encoder::ENCODERS;
pub use self::encoder::{EncoderConfig, EncoderKind};
pub use self::experts::ExpertsConfig;
use self::fields::{Fields, config_error};
pub use self::quantization::{
    AwqConfig, BitsAndBytesConfig, CompressedTensorsConfig, ConfigGroup, FourBitFloat, Fp8Config,
    GptqConfig, GptqScheme, LinearScheme, ModulePattern, PackedScheme, QuantizationConfig,
    ScaleShape,
};
use self::settings::Defaults;
use super::error::ModelError;
use super::models::check_decoder;
use super::rotary::RopeParameters;

/// What stands between the gate and its product with the other half of an MLP, or between its two matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenAct {
    /// `x / (1 + exp(-x))`
    Silu,
    /// GELU by its approximation with tanh.
    GeluTanh,
    /// GELU itself, of encoders alone.
    Gelu,
    /// `max(x, 0)`, of encoders alone.
    Relu,
}

/// The name of a decoder with a classifier becomes that of the family, whose settings it has.
fn as_decoder(architecture: String) -> (String, bool) {
    match architecture.strip_suffix("ForSequenceClassification") {
        Some(family) => (format!("{family}ForCausalLM"), true),
        None => (architecture, false),
    }
}

/// What `config.json` says about a model.
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// First entry of `architectures`, such as `LlamaForCausalLM`; that also of its family with a classifier.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of a logits row; may exceed the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// Longest sequence that the model was made for.
    pub max_position_embeddings: usize,
    /// Added to the mean square in RMS norms.
    pub rms_norm_eps: f32,
    /// Whether the LM head is the embedding table.
    pub tie_word_embeddings: bool,
    /// Whether the attention's projections have biases (families with a fixed answer ignore it).
    pub attention_bias: bool,
    /// Whether the MLP's projections have biases.
    pub mlp_bias: bool,
    /// Activation inside the MLP.
    pub hidden_act: HiddenAct,
    /// Rotary position embeddings; most models have one.
    pub ropes: Vec<RopeParameters>,
    /// `[num_hidden_layers]` which of `ropes` the layer has; `None` is no rotation.
    pub layer_ropes: Vec<Option<usize>>,
    /// `[num_hidden_layers]` tokens that each layer attends to, itself included; `None` is all.
    pub sliding_windows: Vec<Option<usize>>,
    /// Attention scores are divided by its root; the width of a head where a family has no other.
    pub query_pre_attn_scalar: f32,
    /// Bound of the attention scores, by `bound * tanh(score / bound)`.
    pub attn_logit_softcapping: Option<f32>,
    /// Bound of the logits.
    pub final_logit_softcapping: Option<f32>,
    /// Layers with a mixture of experts in place of one MLP.
    pub experts: Option<ExpertsConfig>,
    /// What an encoder has that a decoder hasn't; `None` of a decoder.
    pub encoder: Option<EncoderConfig>,
    /// True if the model ends in a classifier in place of an LM head.
    pub is_classifier: bool,
    /// How linear layers are quantized in the checkpoint; `None` where they aren't.
    pub quantization: Option<QuantizationConfig>,
}

impl HfConfig {
    /// Parses `config.json`.
    ///
    /// # Errors
    /// [`ModelError::File`] where it isn't a JSON object, [`ModelError::UnknownArchitecture`],
    /// [`ModelError::Config`] where a field is missing, out of range, or asks for something that isn't implemented.
    pub fn parse(json: &[u8]) -> Result<Self, ModelError> {
        let root: Value = serde_json::from_slice(json).map_err(|error| ModelError::File {
            file: "config.json".to_owned(),
            problem: format!("not JSON: {error}"),
        })?;
        let Value::Object(root) = root else {
            return Err(ModelError::File {
                file: "config.json".to_owned(),
                problem: "must be a JSON object".to_owned(),
            });
        };
        let fields = Fields {
            root: &root,
            path: "",
        };
        let architecture = fields.architecture()?;
        if let Some(kind) = EncoderKind::of(&architecture) {
            return fields.encoder(architecture, kind);
        }
        let named = architecture.clone();
        let (architecture, is_classifier) = as_decoder(architecture);
        check_decoder(&architecture, &named)?;
        fields.refuse_unsupported(&architecture)?;
        let defaults = Defaults::of(&architecture);
        let hidden_size = fields.positive("hidden_size")?;
        let num_attention_heads = fields.positive("num_attention_heads")?;
        let num_hidden_layers = fields.num_hidden_layers()?;
        let num_key_value_heads = fields
            .optional_positive("num_key_value_heads")?
            .unwrap_or(num_attention_heads);
        if num_attention_heads % num_key_value_heads != 0 {
            return Err(config_error(
                "num_key_value_heads",
                format!(
                    "{num_key_value_heads} must divide num_attention_heads ({num_attention_heads})"
                ),
            ));
        }
        let head_dim = match fields.optional_positive("head_dim")?.or(defaults.head_dim) {
            Some(head_dim) => head_dim,
            None if hidden_size % num_attention_heads == 0 => hidden_size / num_attention_heads,
            None => {
                return Err(config_error(
                    "num_attention_heads",
                    format!(
                        "{num_attention_heads} must divide hidden_size ({hidden_size}) where head_dim is not given"
                    ),
                ));
            }
        };
        if head_dim % 2 != 0 {
            return Err(config_error("head_dim", format!("{head_dim} must be even")));
        }
        let max_position_embeddings = fields.positive("max_position_embeddings")?;
        let sliding_windows = fields.sliding_windows(&architecture, num_hidden_layers)?;
        let (ropes, layer_ropes) = fields.ropes(
            &architecture,
            max_position_embeddings,
            head_dim,
            &sliding_windows,
        )?;
        let intermediate_size = fields.positive("intermediate_size")?;
        Ok(Self {
            hidden_act: fields.hidden_act(&architecture)?,
            ropes,
            layer_ropes,
            sliding_windows,
            hidden_size,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            vocab_size: fields.positive("vocab_size")?,
            max_position_embeddings,
            rms_norm_eps: fields
                .positive_float("rms_norm_eps")?
                .unwrap_or(defaults.rms_norm_eps) as f32,
            tie_word_embeddings: match fields.get("tie_word_embeddings") {
                None => defaults.tie_word_embeddings,
                Some(_) => fields.flag("tie_word_embeddings")?,
            },
            attention_bias: fields.flag("attention_bias")?,
            mlp_bias: fields.flag("mlp_bias")?,
            query_pre_attn_scalar: fields
                .positive_float("query_pre_attn_scalar")?
                .unwrap_or(head_dim as f64) as f32,
            attn_logit_softcapping: fields
                .softcapping("attn_logit_softcapping", defaults.attn_logit_softcapping)?,
            final_logit_softcapping: fields
                .softcapping("final_logit_softcapping", defaults.final_logit_softcapping)?,
            experts: fields.experts(&architecture, intermediate_size, num_hidden_layers)?,
            quantization: QuantizationConfig::parse(&fields)?,
            encoder: None,
            is_classifier,
            intermediate_size,
            architecture,
        })
    }
}

impl Fields<'_> {
    fn architecture(&self) -> Result<String, ModelError> {
        let first = self
            .get("architectures")
            .and_then(|list| list.get(0))
            .and_then(Value::as_str);
        first.map(str::to_owned).ok_or_else(|| {
            config_error(
                "architectures",
                "missing; a list with the model's class is needed, such as [\"LlamaForCausalLM\"]",
            )
        })
    }

    /// Gemma has a field of its own for it; its `hidden_act` is a leftover that names another.
    fn hidden_act(&self, architecture: &str) -> Result<HiddenAct, ModelError> {
        let (name, right, act) = if architecture.starts_with("Gemma") {
            (
                "hidden_activation",
                "gelu_pytorch_tanh",
                HiddenAct::GeluTanh,
            )
        } else {
            ("hidden_act", "silu", HiddenAct::Silu)
        };
        match self.get(name) {
            Some(value) if value != right => {
                Err(self.wrong(name, value, &format!("\"{right}\" in {architecture}")))
            }
            _ => Ok(act),
        }
    }

    /// A bound of scores or logits: off by `null`, and `absent` where the file doesn't say.
    fn softcapping(&self, name: &str, absent: Option<f32>) -> Result<Option<f32>, ModelError> {
        if !self.root.contains_key(name) {
            return Ok(absent);
        }
        Ok(self.positive_float(name)?.map(|bound| bound as f32))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model_executor::rotary::RopeScaling;

    fn base() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100,
            "max_position_embeddings": 512,
        })
    }

    pub(super) fn parse(changes: Value) -> Result<HfConfig, String> {
        let mut config = base();
        for (name, value) in changes.as_object().unwrap() {
            config[name] = value.clone();
        }
        HfConfig::parse(config.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn fills_in_what_a_config_may_leave_out() {
        let config = parse(json!({})).unwrap();
        assert_eq!(config.num_key_value_heads, 4);
        assert_eq!(config.head_dim, 16);
        assert_eq!(config.rms_norm_eps, 1e-6);
        assert_eq!(
            config.ropes,
            [RopeParameters {
                theta: 10_000.0,
                partial_rotary_factor: 1.0,
                scaling: RopeScaling::Default
            }]
        );
        assert_eq!(config.layer_ropes, [Some(0); 4]);
        assert_eq!(config.sliding_windows, [None; 4]);
        assert!(!config.tie_word_embeddings && !config.attention_bias && !config.mlp_bias);
    }

    /// Whatever else they say.
    #[test]
    fn models_that_are_not_there_are_refused_by_their_name() {
        for name in [
            "BertForMaskedLM",
            "MPNetModel",
            "MPNetForSequenceClassification",
            "ModernBertModel",
        ] {
            let message = parse(json!({"architectures": [name], "hidden_act": "gelu"}));
            let message = message.unwrap_err();
            let start =
                format!("config.json: architectures: {name} is not supported; supported are ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains("LlamaForCausalLM") && message.contains("BertModel"));
        }
    }

    #[test]
    fn far_more_layers_than_any_model_has_are_read() {
        let deepest = parse(json!({"num_hidden_layers": 65_536})).unwrap();
        assert_eq!(deepest.layer_ropes.len(), 65_536);
    }

    #[test]
    fn refusals_name_the_field_the_value_and_what_is_right() {
        for (changes, parts) in [
            (json!({"hidden_size": "big"}), ["hidden_size", "\"big\""]),
            (json!({"hidden_size": null}), ["hidden_size", "missing"]),
            (
                json!({"num_hidden_layers": 1 << 28}),
                ["num_hidden_layers: 268435456", "from 1 to 2^16"],
            ),
            (
                json!({"num_hidden_layers": 65_537}),
                ["num_hidden_layers: 65537", "from 1 to 2^16"],
            ),
            (
                json!({"num_key_value_heads": 3}),
                ["num_key_value_heads", "must divide"],
            ),
            (json!({"hidden_act": "gelu"}), ["hidden_act", "\"silu\""]),
            (
                json!({"quantization_config": {"quant_method": "aqlm"}}),
                ["quantization_config.quant_method", "aqlm"],
            ),
            (
                json!({"rope_scaling": {"rope_type": "yarn", "factor": 2}}),
                ["rope_scaling.rope_type", "yarn"],
            ),
            (
                json!({"rope_scaling": {"rope_type": "linear"}}),
                ["rope_scaling.factor", "missing"],
            ),
            (
                json!({"partial_rotary_factor": 0.5}),
                ["partial_rotary_factor", "0.5"],
            ),
            (
                json!({"layer_types": ["full_attention"]}),
                ["layer_types", "list of 4"],
            ),
            (
                json!({"layer_types": vec!["sliding_attention"; 4]}),
                ["sliding_window", "missing"],
            ),
            (json!({"head_dim": 15}), ["head_dim", "even"]),
            (json!({"architectures": []}), ["architectures", "missing"]),
            (
                json!({"tie_word_embeddings": 1}),
                ["tie_word_embeddings", "true or false"],
            ),
        ] {
            let message = parse(changes.clone()).unwrap_err();
            for part in parts {
                assert!(message.contains(part), "{changes}: {message}");
            }
        }
        assert!(
            HfConfig::parse(b"{")
                .unwrap_err()
                .to_string()
                .contains("not JSON")
        );
        assert!(
            HfConfig::parse(b"[]")
                .unwrap_err()
                .to_string()
                .contains("JSON object")
        );
    }
}
