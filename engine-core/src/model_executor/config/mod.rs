//! `config.json` of a Hugging Face checkpoint.
//!
//! Parses what the supported families have in common; a setting that would change the result and
//! isn't implemented is refused by name.

mod fields;
mod rope;

use serde_json::Value;

use self::fields::{Fields, config_error};
use super::error::{ModelError, cut};
use super::rotary::RopeParameters;

/// What `config.json` says about a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// First entry of `architectures`, such as `LlamaForCausalLM`.
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
    /// Rotary position embedding.
    pub rope: RopeParameters,
    /// `[num_hidden_layers]` tokens that each layer attends to, itself included; `None` is all.
    pub sliding_windows: Vec<Option<usize>>,
}

impl HfConfig {
    /// Parses `config.json`.
    ///
    /// # Errors
    /// [`ModelError::File`] where it isn't a JSON object, [`ModelError::Config`] where a field is
    /// missing, out of range, or asks for something that isn't implemented.
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
        fields.refuse_unsupported()?;

        let architecture = fields.architecture()?;
        let hidden_size = fields.positive("hidden_size")?;
        let num_attention_heads = fields.positive("num_attention_heads")?;
        let num_hidden_layers = fields.positive("num_hidden_layers")?;
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
        let head_dim = match fields.optional_positive("head_dim")? {
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
        Ok(Self {
            sliding_windows: fields.sliding_windows(num_hidden_layers)?,
            rope: fields.rope()?,
            architecture,
            hidden_size,
            intermediate_size: fields.positive("intermediate_size")?,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            vocab_size: fields.positive("vocab_size")?,
            max_position_embeddings: fields.positive("max_position_embeddings")?,
            rms_norm_eps: fields.positive_float("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            tie_word_embeddings: fields.flag("tie_word_embeddings")?,
            attention_bias: fields.flag("attention_bias")?,
            mlp_bias: fields.flag("mlp_bias")?,
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

    fn refuse_unsupported(&self) -> Result<(), ModelError> {
        if let Some(value) = self.get("quantization_config") {
            let method = value
                .get("quant_method")
                .and_then(Value::as_str)
                .unwrap_or("unknown");
            return Err(config_error(
                "quantization_config",
                format!(
                    "quantized checkpoints ({}) are not supported; use one with f32, f16 or bf16 weights",
                    cut(method)
                ),
            ));
        }
        let activation = self
            .get("hidden_act")
            .or_else(|| self.get("hidden_activation"));
        if let Some(value) = activation
            && value.as_str() != Some("silu")
        {
            return Err(self.wrong("hidden_act", value, "\"silu\""));
        }
        if let Some(value) = self.get("partial_rotary_factor")
            && value.as_f64() != Some(1.0)
        {
            return Err(self.wrong("partial_rotary_factor", value, "1"));
        }
        Ok(())
    }

    /// `layer_types` where given, else the rules by which Qwen derives them.
    fn sliding_windows(&self, num_layers: usize) -> Result<Vec<Option<usize>>, ModelError> {
        // Absent means yes: Mistral has a window and no such flag.
        let used = self.get("use_sliding_window").is_none() || self.flag("use_sliding_window")?;
        let window = if used {
            self.optional_positive("sliding_window")?
        } else {
            None
        };
        if let Some(value) = self.get("layer_types") {
            return self.windows_of_layer_types(value, window, num_layers);
        }
        // Qwen: only the layers from `max_window_layers` on have a window. Others lack the field.
        let first = match self.get("max_window_layers") {
            None => 0,
            Some(value) => value
                .as_u64()
                .ok_or_else(|| self.wrong("max_window_layers", value, "a whole number"))?,
        };
        Ok((0..num_layers as u64)
            .map(|layer| window.filter(|_| layer >= first))
            .collect())
    }

    fn windows_of_layer_types(
        &self,
        value: &Value,
        window: Option<usize>,
        num_layers: usize,
    ) -> Result<Vec<Option<usize>>, ModelError> {
        let types = value
            .as_array()
            .filter(|types| types.len() == num_layers)
            .ok_or_else(|| {
                self.wrong(
                    "layer_types",
                    value,
                    &format!("a list of {num_layers} names, one per layer"),
                )
            })?;
        types
            .iter()
            .map(|layer_type| match layer_type.as_str() {
                Some("full_attention") => Ok(None),
                Some("sliding_attention") if window.is_some() => Ok(window),
                Some("sliding_attention") => Err(config_error(
                    "sliding_window",
                    "missing; layer_types has \"sliding_attention\"",
                )),
                _ => Err(self.wrong(
                    "layer_types",
                    layer_type,
                    "\"full_attention\" or \"sliding_attention\"",
                )),
            })
            .collect()
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
            config.rope,
            RopeParameters {
                theta: 10_000.0,
                scaling: RopeScaling::Default
            }
        );
        assert_eq!(config.sliding_windows, [None; 4]);
        assert!(!config.tie_word_embeddings && !config.attention_bias && !config.mlp_bias);
    }

    #[test]
    fn windows_follow_the_flag_the_first_layer_and_the_layer_types() {
        let windows = |changes| parse(changes).unwrap().sliding_windows;
        assert_eq!(windows(json!({"sliding_window": 16})), [Some(16); 4]);
        assert_eq!(
            windows(json!({"sliding_window": 16, "use_sliding_window": false})),
            [None; 4]
        );
        assert_eq!(
            windows(
                json!({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2})
            ),
            [None, None, Some(8), Some(8)]
        );
        assert_eq!(
            windows(json!({"sliding_window": 8, "layer_types":
                ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})),
            [None, Some(8), None, Some(8)]
        );
    }

    #[test]
    fn refusals_name_the_field_the_value_and_what_is_right() {
        for (changes, parts) in [
            (json!({"hidden_size": "big"}), ["hidden_size", "\"big\""]),
            (json!({"hidden_size": null}), ["hidden_size", "missing"]),
            (
                json!({"num_key_value_heads": 3}),
                ["num_key_value_heads", "must divide"],
            ),
            (json!({"hidden_act": "gelu"}), ["hidden_act", "\"silu\""]),
            (
                json!({"quantization_config": {"quant_method": "gptq"}}),
                ["quantization_config", "gptq"],
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
