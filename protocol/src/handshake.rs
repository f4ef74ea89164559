//! The first frames on a connection: who is there, which version, what the core can do.
//!
//! Both sides send a [`Hello`] first. The frontend answers with [`EngineHandshakeMetadata`], the
//! core with any number of [`LoadProgress`] and then one [`EngineCoreReadyResponse`] or one
//! [`StartupFailure`].

use serde::{Deserialize, Serialize};

use crate::config::EngineConfig;

/// Version of the messages of this crate: raised with every change of a type in it.
pub const PROTOCOL_VERSION: u32 = 1;

/// Version of this build, as in `Cargo.toml`.
pub const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol_version: u32,
    /// [`BUILD_VERSION`] of the sender.
    pub build_version: String,
}

/// What a frontend tells the core.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineHandshakeMetadata {
    /// The configuration of a core that this frontend started; `None` where the core was started
    /// by hand and has its own.
    pub config: Option<EngineConfig>,
}

/// How far the model is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProgress {
    /// Bytes of weights done.
    pub done_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

/// The core is ready: what it runs and what it can hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineCoreReadyResponse {
    /// Number that this connection's requests carry as `client_index`.
    pub client_index: u32,
    /// The model's name: its folder's, or the built-in model's.
    pub model_name: String,
    /// Width of a logits row.
    pub vocab_size: u32,
    /// Hash of the tokenizer that the core loaded (`tokenizer::Tokenizer::fingerprint`, hex).
    pub tokenizer_fingerprint: String,
    /// Longest sequence, prompt and output together.
    pub max_model_len: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks, the null block included.
    pub num_blocks: u32,
    /// Bytes of keys and values.
    pub kv_cache_bytes: u64,
    /// Effective number format, `float32` or `bfloat16`.
    pub dtype: String,
    /// Compute threads.
    pub num_threads: u32,
    /// The scheduler's limits in force.
    pub max_num_seqs: u32,
    /// See `max_num_seqs`.
    pub max_num_batched_tokens: u32,
    /// Most logprobs per token; -1 is no limit.
    pub max_logprobs: i32,
}

/// Why the core could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupFailure {
    /// For people: what was wrong and what would be right.
    pub message: String,
}
