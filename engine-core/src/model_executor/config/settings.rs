//! What differs between families in `config.json`: what a silent file means, and which settings a
//! family has at all.

use serde_json::Value;

use super::fields::Fields;
use crate::model_executor::error::ModelError;

/// What a file that leaves a field out means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) tie_word_embeddings: bool,
    /// Whether `sliding_window` counts where `use_sliding_window` is absent.
    pub(super) use_sliding_window: bool,
    pub(super) head_dim: Option<usize>,
    pub(super) rms_norm_eps: f64,
    pub(super) rope_theta: f64,
    pub(super) attn_logit_softcapping: Option<f32>,
    pub(super) final_logit_softcapping: Option<f32>,
}

impl Defaults {
    pub(super) fn of(architecture: &str) -> Self {
        let base = Self {
            tie_word_embeddings: false,
            use_sliding_window: true,
            head_dim: None,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
        };
        match architecture {
            "Gemma2ForCausalLM" => Self {
                tie_word_embeddings: true,
                head_dim: Some(256),
                attn_logit_softcapping: Some(50.0),
                final_logit_softcapping: Some(30.0),
                ..base
            },
            "Gemma3ForCausalLM" => Self {
                tie_word_embeddings: true,
                head_dim: Some(256),
                rope_theta: 1e6,
                ..base
            },
            "MixtralForCausalLM" => Self {
                rms_norm_eps: 1e-5,
                rope_theta: 1e6,
                ..base
            },
            "Phi3ForCausalLM" => Self {
                rms_norm_eps: 1e-5,
                ..base
            },
            "Qwen3MoeForCausalLM" => Self {
                use_sliding_window: false,
                ..base
            },
            "SmolLM3ForCausalLM" => Self {
                tie_word_embeddings: true,
                use_sliding_window: false,
                rope_theta: 2e6,
                ..base
            },
            _ => base,
        }
    }
}

/// A setting that changes what is computed.
struct Setting {
    name: &'static str,
    /// The value, `null` apart, at which it changes nothing.
    neutral: Neutral,
    /// Beginnings of the architectures that have it; the others refuse any other value.
    families: &'static [&'static str],
}

enum Neutral {
    Null,
    False,
    Number(f64),
    EmptyList,
}

impl Neutral {
    fn is(&self, value: &Value) -> bool {
        match self {
            Self::Null => false,
            Self::False => value == &Value::Bool(false),
            Self::Number(number) => value.as_f64() == Some(*number),
            Self::EmptyList => value.as_array().is_some_and(Vec::is_empty),
        }
    }

    fn spelling(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::False => "false".to_owned(),
            Self::Number(number) => number.to_string(),
            Self::EmptyList => "[]".to_owned(),
        }
    }
}

/// Settings that not every family has. One that no family here has stands with an empty list.
const SETTINGS: [Setting; 28] = {
    const fn setting(
        name: &'static str,
        neutral: Neutral,
        families: &'static [&'static str],
    ) -> Setting {
        Setting {
            name,
            neutral,
            families,
        }
    }
    const ONE: Neutral = Neutral::Number(1.0);
    const ZERO: Neutral = Neutral::Number(0.0);
    const GEMMA: &[&str] = &["Gemma2", "Gemma3"];
    const MOE: &[&str] = &["Mixtral", "Qwen3Moe"];
    [
        setting(
            "attention_bias",
            Neutral::False,
            &["Llama", "Qwen", "SmolLM3", "Gemma"],
        ),
        setting("mlp_bias", Neutral::False, &["Llama", "SmolLM3"]),
        setting("attn_logit_softcapping", Neutral::Null, &["Gemma2"]),
        setting("final_logit_softcapping", Neutral::Null, GEMMA),
        setting("query_pre_attn_scalar", Neutral::Null, GEMMA),
        setting("rope_local_base_freq", Neutral::Null, &["Gemma3"]),
        setting("sliding_window_pattern", Neutral::Null, &["Gemma3"]),
        setting("use_bidirectional_attention", Neutral::False, &[]),
        setting("partial_rotary_factor", ONE, &["Phi3"]),
        setting("no_rope_layers", Neutral::EmptyList, &["SmolLM3"]),
        setting("no_rope_layer_interval", Neutral::Null, &["SmolLM3"]),
        setting("num_local_experts", ZERO, MOE),
        setting("num_experts", ZERO, MOE),
        setting("num_experts_per_tok", ZERO, MOE),
        setting("moe_intermediate_size", Neutral::Null, &["Qwen3Moe"]),
        setting("decoder_sparse_step", ONE, &["Qwen3Moe"]),
        setting("mlp_only_layers", Neutral::EmptyList, &["Qwen3Moe"]),
        setting("norm_topk_prob", Neutral::False, &["Qwen3Moe"]),
        setting("n_shared_experts", ZERO, &[]),
        setting("shared_expert_intermediate_size", ZERO, &[]),
        setting("embedding_multiplier", ONE, &[]),
        setting("residual_multiplier", ONE, &[]),
        setting("attention_multiplier", Neutral::Null, &[]),
        setting("logits_scaling", ONE, &[]),
        setting("logit_scale", ONE, &[]),
        setting("clip_qkv", Neutral::Null, &[]),
        setting("use_qk_norm", Neutral::False, &[]),
        setting("dual_chunk_attention_config", Neutral::Null, &[]),
    ]
};

impl Fields<'_> {
    /// Refuses what would change the result and isn't part of the family.
    pub(super) fn refuse_unsupported(&self, architecture: &str) -> Result<(), ModelError> {
        for setting in &SETTINGS {
            let has_it = setting
                .families
                .iter()
                .any(|family| architecture.starts_with(family));
            if let Some(value) = self.get(setting.name)
                && !has_it
                && !setting.neutral.is(value)
            {
                let right = format!("{} in {architecture}", setting.neutral.spelling());
                return Err(self.wrong(setting.name, value, &right));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::parse;
    use super::*;
    use crate::model_executor::config::HiddenAct;

    fn with(architecture: &str, name: &str, value: Value) -> Result<(), String> {
        let mut config = json!({"architectures": [architecture]});
        config[name] = value;
        parse(config).map(|_| ())
    }

    #[test]
    fn what_a_family_lacks_is_refused_unless_it_changes_nothing() {
        for (name, neutral, other) in [
            ("attention_bias", json!(false), json!(true)),
            ("attn_logit_softcapping", json!(null), json!(50.0)),
            ("query_pre_attn_scalar", json!(null), json!(256)),
            ("use_bidirectional_attention", json!(false), json!(true)),
            ("no_rope_layers", json!([]), json!([1, 1, 0, 1])),
            ("num_local_experts", json!(0), json!(8)),
            ("mlp_only_layers", json!([]), json!([1])),
            ("embedding_multiplier", json!(1.0), json!(12.0)),
            ("clip_qkv", json!(null), json!(8)),
        ] {
            with("MistralForCausalLM", name, neutral).unwrap();
            let message = with("MistralForCausalLM", name, other.clone()).unwrap_err();
            for part in [name, &other.to_string(), "MistralForCausalLM"] {
                assert!(message.contains(part), "{name}: {message}");
            }
        }
    }

    #[test]
    fn what_a_family_has_is_read() {
        let gemma2 = |changes: Value| {
            let mut config = json!({"architectures": ["Gemma2ForCausalLM"], "sliding_window": 8});
            for (name, value) in changes.as_object().unwrap() {
                config[name] = value.clone();
            }
            parse(config)
        };
        let silent = gemma2(json!({})).unwrap();
        assert!(silent.tie_word_embeddings);
        assert_eq!(
            (silent.head_dim, silent.hidden_act),
            (256, HiddenAct::GeluTanh)
        );
        assert_eq!(silent.query_pre_attn_scalar, 256.0);
        assert_eq!(
            (
                silent.attn_logit_softcapping,
                silent.final_logit_softcapping
            ),
            (Some(50.0), Some(30.0))
        );
        let spoken = gemma2(json!({"head_dim": 24, "query_pre_attn_scalar": 30,
            "attn_logit_softcapping": null, "final_logit_softcapping": 20.0,
            "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}))
        .unwrap();
        assert_eq!((spoken.head_dim, spoken.query_pre_attn_scalar), (24, 30.0));
        assert_eq!(
            (
                spoken.attn_logit_softcapping,
                spoken.final_logit_softcapping
            ),
            (None, Some(20.0))
        );
        let message = gemma2(json!({"hidden_activation": "gelu"})).unwrap_err();
        assert!(message.contains("gelu_pytorch_tanh"), "{message}");
    }
}
