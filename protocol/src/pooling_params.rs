//! What is made of a prompt's hidden states, where no text is asked for.

use serde::{Deserialize, Serialize};

/// Whether a model generates text, or vectors and scores are made of its hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunnerType {
    /// Text.
    #[default]
    Generate,
    /// Vectors and scores: an LM head isn't needed.
    Pooling,
}

/// What a core's model can make of a prompt beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolerInfo {
    /// What the core takes: requests for text, or for vectors and scores.
    pub runner: RunnerType,
    /// Width of the hidden states, and of embeddings.
    pub hidden_size: u32,
    /// Labels of the model's classifier; 0 where it has none.
    pub num_labels: u32,
    /// Types of tokens that the model tells apart.
    pub num_token_types: u32,
    /// True if it tells probabilities of tokens.
    pub has_lm_head: bool,
}

/// Asks for one vector of a prompt in place of text. vLLM's name; the kind of pooling, which vLLM has in a
/// configuration of its core, travels along, since the frontend reads the model's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolingParams {
    /// What the vector is.
    pub task: PoolingTask,
    /// Which hidden states it is made of.
    pub pooling_type: PoolingType,
    /// Whether an embedding is scaled to length 1, and a classifier's logits become probabilities: by a sigmoid
    /// where there is one, else by a softmax.
    pub use_activation: bool,
    /// Entries of an embedding that are kept, the first ones, before it is scaled; `None` is all.
    pub dimensions: Option<u32>,
    /// First position of the second text, whose tokens have the type 1; those before it have 0. `None` is one text.
    /// For encoders with token types.
    pub compressed_token_type_ids: Option<u32>,
}

/// What a pooled vector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolingTask {
    /// `[hidden_size]` or `[dimensions]` the pooled hidden state.
    #[default]
    Embed,
    /// `[num_labels]` what the model's classifier makes of it.
    Classify,
}

/// Which of a prompt's hidden states a vector is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PoolingType {
    /// That of the last token.
    #[default]
    Last,
    /// That of the first token.
    Cls,
    /// The mean of all.
    Mean,
}
