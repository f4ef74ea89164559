//! `--hf-overrides`: fields of `config.json` that a server says in its place, as far as they choose a classifier.

use serde::Deserialize;

use crate::json_problem::json_problem;

/// The fields by which vLLM is told that a generating model is a reranker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HfOverrides {
    /// The class that the model is to be; `Qwen3ForSequenceClassification` here.
    pub architectures: Option<Vec<String>>,
    /// The tokens of "no" and "yes", in this order.
    pub classifier_from_token: Option<[String; 2]>,
    /// vLLM's mark of a Qwen3-Reranker as it was published.
    #[serde(default)]
    pub is_original_qwen3_reranker: bool,
    /// Whether embeddings may be cut to fewer dimensions.
    pub is_matryoshka: Option<bool>,
    /// The numbers of dimensions that embeddings may be cut to.
    pub matryoshka_dimensions: Option<Vec<u32>>,
}

impl HfOverrides {
    /// Reads the flag.
    ///
    /// # Errors
    /// It isn't JSON, or has other fields.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| json_problem(&error))
    }
}
