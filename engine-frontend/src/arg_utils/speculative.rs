//! `--speculative-config`: vLLM's fields, as far as they apply here.

use std::path::{Path, PathBuf};

use protocol::{DraftSampleMethod, ModelSource, SpeculativeConfig, SpeculativeMethod};
use serde::Deserialize;

use super::EngineArgs;
use crate::json_problem::json_problem;

/// The fields as they are written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    method: Option<String>,
    model: Option<String>,
    num_speculative_tokens: Option<u32>,
    num_speculative_tokens_per_batch_size: Option<Vec<(u32, u32, u32)>>,
    draft_sample_method: Option<DraftSampleMethod>,
    prompt_lookup_min: Option<u32>,
    prompt_lookup_max: Option<u32>,
}

/// Reads the flag. As in vLLM, a `model` without a `method` is a draft model.
pub(super) fn speculative_config(text: &str) -> Result<SpeculativeConfig, String> {
    let fields: Fields = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    let method = match (fields.method.as_deref(), &fields.model) {
        (Some("ngram"), Some(model)) => {
            return Err(format!(
                "model is {model:?}, and method is ngram, which needs no model: leave one of them out"
            ));
        }
        (Some("ngram") | None, None) => SpeculativeMethod::Ngram,
        (Some("draft_model"), _) | (None, Some(_)) => SpeculativeMethod::DraftModel,
        (Some(other), _) => {
            return Err(format!(
                "method must be \"ngram\" or \"draft_model\", got {other:?}"
            ));
        }
    };
    let default = SpeculativeConfig::default();
    let config = SpeculativeConfig {
        method,
        model: match fields.model {
            Some(model) => ModelSource::Path(model.into()),
            None => ModelSource::BuiltIn,
        },
        num_speculative_tokens: fields
            .num_speculative_tokens
            .unwrap_or(default.num_speculative_tokens),
        num_speculative_tokens_per_batch_size: fields
            .num_speculative_tokens_per_batch_size
            .unwrap_or_default(),
        draft_sample_method: fields.draft_sample_method.unwrap_or_default(),
        prompt_lookup_min: fields
            .prompt_lookup_min
            .unwrap_or(default.prompt_lookup_min),
        prompt_lookup_max: fields
            .prompt_lookup_max
            .unwrap_or(default.prompt_lookup_max),
    };
    check(&config)?;
    Ok(config)
}

/// What the core would refuse too, said before it is started.
fn check(config: &SpeculativeConfig) -> Result<(), String> {
    let SpeculativeConfig {
        num_speculative_tokens,
        prompt_lookup_min,
        prompt_lookup_max,
        ..
    } = *config;
    let most = SpeculativeConfig::MAX_NUM_SPECULATIVE_TOKENS;
    if !(1..=most).contains(&num_speculative_tokens) {
        return Err(format!(
            "num_speculative_tokens must be between 1 and {most}, got {num_speculative_tokens}"
        ));
    }
    if prompt_lookup_min == 0 || prompt_lookup_min > prompt_lookup_max {
        return Err(format!(
            "prompt_lookup_min must be between 1 and prompt_lookup_max ({prompt_lookup_max}), got \
             {prompt_lookup_min}"
        ));
    }
    Ok(())
}

impl EngineArgs {
    /// The folder, file or name of the draft model, where one is named.
    pub fn draft_model(&self) -> Option<&Path> {
        match &self.speculative_config.as_ref()?.model {
            ModelSource::Path(path) => Some(path),
            ModelSource::BuiltIn => None,
        }
    }

    /// The same flags with a draft model that is on this machine.
    pub(crate) fn with_draft_model(mut self, path: PathBuf) -> Self {
        if let Some(config) = &mut self.speculative_config {
            config.model = ModelSource::Path(path);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_without_a_method_is_a_draft_model() {
        let of = |text: &str| speculative_config(text).unwrap();
        let expected = SpeculativeConfig {
            method: SpeculativeMethod::DraftModel,
            model: ModelSource::Path("org/small".into()),
            num_speculative_tokens: 3,
            num_speculative_tokens_per_batch_size: vec![(1, 4, 3), (5, 64, 0)],
            draft_sample_method: DraftSampleMethod::Greedy,
            ..SpeculativeConfig::default()
        };
        let rest = r#""num_speculative_tokens": 3, "draft_sample_method": "greedy",
            "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 0]]"#;
        assert_eq!(
            of(&format!(r#"{{"model": "org/small", {rest}}}"#)),
            expected
        );
        let named = format!(r#"{{"method": "draft_model", "model": "org/small", {rest}}}"#);
        assert_eq!(of(&named), expected);
        let built_in = of(r#"{"method": "draft_model"}"#);
        assert_eq!(built_in.method, SpeculativeMethod::DraftModel);
        assert_eq!(built_in.model, ModelSource::BuiltIn);
        assert_eq!(of("{}"), SpeculativeConfig::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str| speculative_config(text).unwrap_err();
        for (text, message) in [
            (
                r#"{"method": "eagle"}"#,
                r#"method must be "ngram" or "draft_model", got "eagle""#,
            ),
            (
                r#"{"method": "ngram", "model": "m"}"#,
                r#"model is "m", and method is ngram, which needs no model: leave one of them out"#,
            ),
            (
                r#"{"num_speculative_tokens": 32}"#,
                "num_speculative_tokens must be between 1 and 31, got 32",
            ),
        ] {
            assert_eq!(refused(text), message);
        }
        let unknown = refused(r#"{"draft_tensor_parallel_size": 1}"#);
        assert!(unknown.contains("draft_tensor_parallel_size"), "{unknown}");
        assert!(unknown.contains("prompt_lookup_max"), "{unknown}");
        let sampled = refused(r#"{"draft_sample_method": "typical"}"#);
        assert!(sampled.contains("typical"), "{sampled}");
        assert!(sampled.contains("probabilistic"), "{sampled}");
    }
}
