//! The first frames on a connection: who is there, which version, what the core can do.
//!
//! Both sides send a [`Hello`] before they read the other's, so that both know both versions and
//! refuse a mismatch with the same words. Then the frontend sends [`EngineHandshakeMetadata`], and
//! the core any number of [`EngineCoreStartupMessage::LoadProgress`] and one
//! [`EngineCoreStartupMessage::Ready`] or [`EngineCoreStartupMessage::Failure`].
//!
//! [`startup_handshake`] is the core's side, up to the metadata; `wait_for_engine_startup` is
//! the frontend's, up to [`EngineCoreReadyResponse`].

mod engine_core;
#[cfg(feature = "tokio")]
mod frontend;

use std::fmt;

use serde::{Deserialize, Serialize};

use thiserror::Error;

pub use engine_core::startup_handshake;
#[cfg(feature = "tokio")]
pub use frontend::wait_for_engine_startup;

use crate::config::EngineConfig;
use crate::pooling_params::PoolerInfo;
use crate::transport::TransportError;

/// Version of the messages of this crate: raised with every change of a type in it.
pub const PROTOCOL_VERSION: u32 = 15;

/// Version of this build, as in `Cargo.toml`.
pub const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who is there: the first frame in each direction.
///
/// Versions that differ in everything else must still understand this frame, or they couldn't say
/// that they differ: its two fields, their order and their encoding never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol_version: u32,
    /// [`BUILD_VERSION`] of the sender.
    pub build_version: String,
}

impl Hello {
    /// This build's.
    pub fn current() -> Self {
        Self {
            protocol_version: PROTOCOL_VERSION,
            build_version: BUILD_VERSION.to_owned(),
        }
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (protocol {})",
            self.build_version, self.protocol_version
        )
    }
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
    /// Hash of the model's weights, as far as a look at them tells (`tokenizer::weights_fingerprint`, hex). `None` for
    /// the built-in model, and where the files can't be looked at.
    pub weights_fingerprint: Option<String>,
    /// Longest sequence, prompt and output together.
    pub max_model_len: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks, the null block included.
    pub num_blocks: u32,
    /// Bytes of keys and values.
    pub kv_cache_bytes: u64,
    /// Effective number format, `float32`, `bfloat16` or `float16`.
    pub dtype: String,
    /// Compute threads.
    pub num_threads: u32,
    /// The scheduler's limits in force.
    pub max_num_seqs: u32,
    /// See `max_num_seqs`.
    pub max_num_batched_tokens: u32,
    /// Most requests that wait beside those; `None` is no limit.
    pub max_num_queued_reqs: Option<u32>,
    /// Most logprobs per token; -1 is no limit.
    pub max_logprobs: i32,
    /// What the model makes of a prompt beside text.
    pub pooler: PoolerInfo,
}

/// Why the core could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupFailure {
    /// For people: what was wrong and what would be right.
    pub message: String,
}

/// One frame from the core between the handshake's metadata and its first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EngineCoreStartupMessage {
    /// The model is being loaded.
    LoadProgress(LoadProgress),
    /// Requests may come.
    Ready(EngineCoreReadyResponse),
    /// The core ends; no frame follows.
    Failure(StartupFailure),
}

/// Why two processes don't work together.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// They come from different builds. The other side reports the same.
    #[error(
        "frontend {frontend} and engine core {engine_core} don't match: use the two executables of one release"
    )]
    VersionMismatch {
        /// The frontend's version.
        frontend: Hello,
        /// The core's version.
        engine_core: Hello,
    },
    /// The other side went away.
    #[error("connection closed by the other side before its {expected}")]
    Closed {
        /// The message that was due.
        expected: &'static str,
    },
    /// The socket failed, or what came is no such message, or nothing came.
    #[error("handshake failed at {expected}: {error}")]
    Transport {
        /// The message that was due.
        expected: &'static str,
        /// What happened.
        error: TransportError,
    },
    /// The core says that it can't start.
    #[error("engine core can't start: {}", .0.message)]
    StartupFailure(StartupFailure),
}

/// Refuses versions that differ.
fn check_versions(frontend: Hello, engine_core: Hello) -> Result<(), HandshakeError> {
    if frontend == engine_core {
        Ok(())
    } else {
        Err(HandshakeError::VersionMismatch {
            frontend,
            engine_core,
        })
    }
}

/// What a read brought, where the end of the connection is an error too.
fn received<T>(
    expected: &'static str,
    result: Result<Option<T>, TransportError>,
) -> Result<T, HandshakeError> {
    match result {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(HandshakeError::Closed { expected }),
        Err(error) => Err(HandshakeError::Transport { expected, error }),
    }
}

/// How a write went.
fn sent(expected: &'static str, result: Result<(), TransportError>) -> Result<(), HandshakeError> {
    result.map_err(|error| HandshakeError::Transport { expected, error })
}
