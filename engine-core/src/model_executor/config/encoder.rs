//! `config.json` of the encoders: BERT, RoBERTa and what is built like them.

use serde_json::Value;

use super::fields::{Fields, config_error};
use super::{HfConfig, HiddenAct, QuantizationConfig};
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::{RopeParameters, RopeScaling};

/// How an encoder is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderKind {
    /// Learned positions from 0 on.
    Bert,
    /// BERT whose positions begin behind that of the padding token.
    Roberta,
    /// Rotary positions, a gated MLP, no biases.
    NomicBert,
}

/// The encoders that can be loaded, by the entry of `architectures`.
pub(crate) const ENCODERS: [(&str, EncoderKind); 7] = [
    ("BertForSequenceClassification", EncoderKind::Bert),
    ("BertModel", EncoderKind::Bert),
    ("NomicBertModel", EncoderKind::NomicBert),
    ("RobertaForSequenceClassification", EncoderKind::Roberta),
    ("RobertaModel", EncoderKind::Roberta),
    ("XLMRobertaForSequenceClassification", EncoderKind::Roberta),
    ("XLMRobertaModel", EncoderKind::Roberta),
];

impl EncoderKind {
    /// The kind that an entry of `architectures` names.
    pub(super) fn of(architecture: &str) -> Option<Self> {
        let found = ENCODERS.iter().find(|(name, _)| *name == architecture);
        found.map(|(_, kind)| *kind)
    }
}

/// What an encoder has that a decoder hasn't.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EncoderConfig {
    /// How it is built.
    pub kind: EncoderKind,
    /// Added to the variance in the norms.
    pub layer_norm_eps: f32,
    /// Types of tokens; token types at or above it can't be asked for.
    pub type_vocab_size: usize,
    /// Place of a text's first token in the table of positions.
    pub first_position: usize,
}

impl Fields<'_> {
    /// Reads an encoder's settings. Nomic's files have GPT-2's names for some of them.
    pub(super) fn encoder(
        &self,
        architecture: String,
        kind: EncoderKind,
    ) -> Result<HfConfig, ModelError> {
        let positive = |name: &str, other: &str| match self.optional_positive(other)? {
            Some(value) if kind == EncoderKind::NomicBert => Ok(value),
            _ => self.positive(name),
        };
        let hidden_size = positive("hidden_size", "n_embd")?;
        let num_attention_heads = positive("num_attention_heads", "n_head")?;
        let num_hidden_layers = match self.get("n_layer") {
            Some(_) if kind == EncoderKind::NomicBert => positive("num_hidden_layers", "n_layer")?,
            _ => self.num_hidden_layers()?,
        };
        if hidden_size % num_attention_heads != 0 {
            return Err(config_error(
                "num_attention_heads",
                format!("{num_attention_heads} must divide hidden_size ({hidden_size})"),
            ));
        }
        let head_dim = hidden_size / num_attention_heads;
        if head_dim % 2 != 0 {
            return Err(config_error("head_dim", format!("{head_dim} must be even")));
        }
        let places = positive("max_position_embeddings", "n_positions")?;
        // Beyond it the rotation would have to be stretched, which isn't implemented.
        let places = match self.optional_positive("max_trained_positions")? {
            Some(trained) if kind == EncoderKind::NomicBert => places.min(trained),
            _ => places,
        };
        let first_position = match kind {
            EncoderKind::Roberta => match self.get("pad_token_id") {
                None => 2,
                Some(value) => value
                    .as_u64()
                    .and_then(|padding| usize::try_from(padding).ok()?.checked_add(1))
                    .filter(|first| *first < places)
                    .ok_or_else(|| {
                        let right = format!("a token id below max_position_embeddings ({places})");
                        self.wrong("pad_token_id", value, &right)
                    })?,
            },
            EncoderKind::Bert | EncoderKind::NomicBert => 0,
        };
        self.refuse_other_encoders(kind)?;
        let eps = match self.positive_float("layer_norm_epsilon")? {
            Some(eps) if kind == EncoderKind::NomicBert => Some(eps),
            _ => self.positive_float("layer_norm_eps")?,
        };
        let is_rotary = kind == EncoderKind::NomicBert;
        let ropes = match is_rotary {
            true => vec![self.encoder_rope()?],
            false => Vec::new(),
        };
        Ok(HfConfig {
            is_classifier: architecture.ends_with("ForSequenceClassification"),
            architecture,
            hidden_size,
            intermediate_size: positive("intermediate_size", "n_inner")?,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: num_attention_heads,
            head_dim,
            vocab_size: self.positive("vocab_size")?,
            max_position_embeddings: places - first_position,
            rms_norm_eps: 0.0,
            tie_word_embeddings: true,
            attention_bias: !is_rotary,
            mlp_bias: !is_rotary,
            hidden_act: self.encoder_act(kind)?,
            layer_ropes: vec![is_rotary.then_some(0); num_hidden_layers],
            ropes,
            sliding_windows: vec![None; num_hidden_layers],
            query_pre_attn_scalar: head_dim as f32,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            experts: None,
            quantization: QuantizationConfig::parse(self)?,
            encoder: Some(EncoderConfig {
                kind,
                layer_norm_eps: eps.unwrap_or(1e-12) as f32,
                type_vocab_size: match self.get("type_vocab_size") {
                    Some(Value::Number(number)) if number.as_u64() == Some(0) => 0,
                    _ => self.optional_positive("type_vocab_size")?.unwrap_or(2),
                },
                first_position,
            }),
        })
    }

    /// Refuses settings that would change the result.
    fn refuse_other_encoders(&self, kind: EncoderKind) -> Result<(), ModelError> {
        if let Some(value) = self.get("position_embedding_type")
            && value != "absolute"
            && kind != EncoderKind::NomicBert
        {
            return Err(self.wrong("position_embedding_type", value, "\"absolute\""));
        }
        let nomic: &[&str] = match kind {
            EncoderKind::NomicBert => &[
                "qkv_proj_bias",
                "mlp_fc1_bias",
                "mlp_fc2_bias",
                "prenorm",
                "use_rms_norm",
                "parallel_block",
                "rotary_emb_interleaved",
            ],
            EncoderKind::Bert | EncoderKind::Roberta => &["is_decoder"],
        };
        for name in nomic {
            if self.flag(name)? {
                return Err(self.wrong(name, &Value::Bool(true), "false in an encoder"));
            }
        }
        for name in ["num_experts", "n_shared_experts"] {
            if let Some(value) = self.get(name).filter(|value| value.as_u64() != Some(0)) {
                return Err(self.wrong(name, value, "0 in an encoder"));
            }
        }
        if let Some(value) = self.get("rotary_emb_fraction")
            && value.as_f64() != Some(1.0)
        {
            return Err(self.wrong("rotary_emb_fraction", value, "1.0"));
        }
        Ok(())
    }

    fn encoder_rope(&self) -> Result<RopeParameters, ModelError> {
        let theta = match self.get("rope_parameters").and_then(Value::as_object) {
            Some(root) => Fields {
                root,
                path: "rope_parameters.",
            }
            .positive_float("rope_theta")?,
            None => self.positive_float("rotary_emb_base")?,
        };
        Ok(RopeParameters {
            theta: theta.unwrap_or(1000.0),
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Default,
        })
    }

    fn encoder_act(&self, kind: EncoderKind) -> Result<HiddenAct, ModelError> {
        if kind == EncoderKind::NomicBert {
            let name = match self.get("activation_function") {
                Some(_) => "activation_function",
                None => "hidden_act",
            };
            return match self.get(name) {
                Some(value) if value != "swiglu" && value != "silu" => {
                    Err(self.wrong(name, value, "\"swiglu\""))
                }
                _ => Ok(HiddenAct::Silu),
            };
        }
        match self.get("hidden_act") {
            None => Ok(HiddenAct::Gelu),
            Some(value) => match value.as_str() {
                Some("gelu") => Ok(HiddenAct::Gelu),
                Some("gelu_new" | "gelu_pytorch_tanh") => Ok(HiddenAct::GeluTanh),
                Some("relu") => Ok(HiddenAct::Relu),
                Some("silu" | "swish") => Ok(HiddenAct::Silu),
                _ => Err(self.wrong(
                    "hidden_act",
                    value,
                    "\"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"relu\" or \"silu\"",
                )),
            },
        }
    }
}
