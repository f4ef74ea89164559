//! The model families, one file each, and what they share.

mod attention;
mod decoder;
mod gemma2;
mod gemma3;
mod layers;
mod llama;
mod mistral;
mod mixtral;
mod mlp;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod registry;
mod smollm3;

use std::sync::Arc;

use protocol::{BackendKind, Dtype};

use super::backend::candle::CandleBackend;
use super::backend::cpu::{Bf16, CpuBackend, F32};
use super::checkpoint::{Checkpoint, CheckpointFiles};
use super::config::HfConfig;
use super::error::ModelError;
use super::weights::StoredDtype;
use super::{
    CausalLm, ComputePool, LoadOptions, LoadProgress, LoadedModel, ModelDtype, ModelLimits,
};

pub use registry::supported_architectures;

/// Weights on a backend, whichever family and backend that is.
pub(crate) trait LoadedWeights: Send {
    /// Bytes of keys and values that one block takes over all layers.
    fn kv_cache_bytes_per_block(&self, block_size: usize) -> usize;

    /// Allocates cache and step buffers.
    fn into_model(self: Box<Self>, limits: &ModelLimits) -> Result<Box<dyn CausalLm>, ModelError>;
}

/// Chooses dtype and backend and loads the family's weights.
pub(crate) fn load(
    name: &str,
    config: HfConfig,
    files: &CheckpointFiles,
    options: &LoadOptions,
    pool: Arc<ComputePool>,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedModel, ModelError> {
    registry::check(&config.architecture)?;
    let checkpoint = Checkpoint::open(files, &config)?;
    let dtype = match options.dtype {
        Dtype::Float32 => ModelDtype::Float32,
        Dtype::BFloat16 => ModelDtype::BFloat16,
        Dtype::Auto => match checkpoint
            .find(decoder::EMBED_TOKENS)?
            .map(|tensor| tensor.dtype)
        {
            None | Some(StoredDtype::F32) => ModelDtype::Float32,
            Some(_) => ModelDtype::BFloat16,
        },
    };
    let (quantization, heartbeat) = (options.quantization, Arc::clone(&options.heartbeat));
    let weights = match options.backend {
        BackendKind::Cpu if dtype == ModelDtype::BFloat16 => {
            let backend = CpuBackend::<Bf16>::new(pool, dtype);
            registry::load(
                &config,
                &checkpoint,
                backend,
                quantization,
                heartbeat,
                progress,
            )?
        }
        BackendKind::Cpu => {
            let backend = CpuBackend::<F32>::new(pool, dtype);
            registry::load(
                &config,
                &checkpoint,
                backend,
                quantization,
                heartbeat,
                progress,
            )?
        }
        BackendKind::Candle => {
            let backend = CandleBackend::new(dtype)?;
            registry::load(
                &config,
                &checkpoint,
                backend,
                quantization,
                heartbeat,
                progress,
            )?
        }
    };
    Ok(LoadedModel {
        name: name.to_owned(),
        config,
        dtype,
        quantization,
        quantized_format: checkpoint.quantized_format(),
        weights,
    })
}
