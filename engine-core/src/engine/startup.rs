//! From a configuration to an engine: load the model, size the KV cache, join the parts.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::{
    CacheConfig, EngineConfig, EngineCoreReadyResponse, LoadProgress, ModelConfig, ModelSource,
};
use tokenizer::Tokenizer;

use crate::core::block_hash::BlockHasher;
use crate::core::sched::scheduler::Scheduler;
use crate::engine::heartbeat::Heartbeat;
use crate::engine::memory::available_memory_bytes;
use crate::model_executor::{ComputePool, LoadOptions, load_model};
use crate::sample::VocabSizes;
use crate::worker::{Executor, ModelRunner, ModelRunnerConfig};

/// Share of the memory that is free after loading which the KV cache may take by default.
const KV_CACHE_MEMORY_SHARE: f64 = 0.5;

/// Why a configuration can't be served.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
}
