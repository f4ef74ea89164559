//! The model families, one file each, and what they share.

mod attention;
mod classifier;
mod decoder;
mod encoder;
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

use protocol::{BackendKind, Dtype, Quantization};

use super::backend::candle::CandleBackend;
use super::backend::cpu::{Bf16, CpuBackend, F32, Int8, SharedWeights, WeightCache, is_complete};
use super::backend::cuda::CudaBackend;
use super::checkpoint::{Checkpoint, CheckpointFiles, RawTensor};
use super::config::HfConfig;
use super::error::ModelError;
use super::weights::StoredDtype;
use super::{
    CausalLm, ComputePool, DeviceMemory, KvCacheFormat, LoadOptions, LoadProgress, LoadedModel,
    ModelDtype, ModelLimits,
};

pub(crate) use registry::check_decoder;
pub use registry::supported_architectures;

/// Weights on a backend, whichever family and backend that is.
pub(crate) trait LoadedWeights: Send {
    /// Bytes of keys and values that one block takes over all layers.
    fn kv_cache_bytes_per_block(&self, block_size: usize) -> usize;

    /// The memory of the device that they are on; `None` where it is the host's.
    fn device_memory(&self) -> Result<Option<DeviceMemory>, ModelError>;

    /// Bytes that steps of `max_num_batched_tokens` tokens take beside keys and values, about.
    fn step_bytes(&self, max_num_batched_tokens: usize) -> u64;

    /// True if logits of tokens can be asked for.
    fn has_lm_head(&self) -> bool;

    /// Labels of the model's classifier; 0 where it has none.
    fn num_labels(&self) -> usize;

    /// Allocates cache and step buffers.
    fn into_model(self: Box<Self>, limits: &ModelLimits) -> Result<Box<dyn CausalLm>, ModelError>;
}

/// What a model without a classifier says when one is asked for.
fn no_classifier() -> ModelError {
    ModelError::Input {
        field: "pooling_params.task",
        problem: "classify is not there: this model has no classifier; embed is".to_owned(),
    }
}

/// The embedding of words.
fn embedding<'a>(
    checkpoint: &'a Checkpoint,
    config: &HfConfig,
) -> Result<Option<RawTensor<'a>>, ModelError> {
    if config.encoder.is_some() {
        let prefix = encoder::prefix_of(checkpoint);
        return checkpoint.find(&format!("{prefix}{}", encoder::WORD_EMBEDDINGS));
    }
    match checkpoint.find(decoder::EMBED_TOKENS)? {
        None => checkpoint.find(decoder::HEADLESS_EMBED_TOKENS),
        found => Ok(found),
    }
}

/// Refuses weights that the host's memory can't hold, before the system ends the process for them. Those that another
/// process has put into memory that is shared take none.
fn check_memory(
    checkpoint: &Checkpoint,
    config: &HfConfig,
    dtype: ModelDtype,
    options: &LoadOptions,
) -> Result<(), ModelError> {
    let shared = options.shared_weights.as_ref();
    let is_shared = shared.is_some_and(|weights| is_complete(&weights.file));
    let available = options.available_bytes.filter(|_| !is_shared);
    let Some(available) = available else {
        return Ok(());
    };
    let (bits, format) = match options.quantization {
        Quantization::None => (dtype.bits(), dtype.as_str()),
        Quantization::Q8_0 => (8, options.quantization.as_str()),
        Quantization::Q4_0 => (4, options.quantization.as_str()),
    };
    // A folder may hold the head a second time.
    let is_used = |name: &str| !(config.tie_word_embeddings && name.ends_with("lm_head.weight"));
    let least = checkpoint.least_num_bytes(bits, is_used);
    match least > available {
        false => Ok(()),
        true => Err(ModelError::WeightsTooLarge {
            least_mib: least.div_ceil(1 << 20),
            format,
            available_mib: available >> 20,
        }),
    }
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
    let checkpoint = Checkpoint::open(files, &config)?;
    let is_cuda = matches!(
        options.backend,
        BackendKind::Cuda(_) | BackendKind::CudaSimulator
    );
    let dtype = match options.dtype {
        Dtype::Float16 if is_cuda => {
            return Err(ModelError::Limits {
                field: "dtype",
                problem: "float16 is not there on a GPU: auto, bfloat16 or float32".to_owned(),
            });
        }
        Dtype::Float16 => ModelDtype::Float16,
        Dtype::Float32 => ModelDtype::Float32,
        Dtype::BFloat16 => ModelDtype::BFloat16,
        Dtype::Auto => match embedding(&checkpoint, &config)?.map(|tensor| tensor.dtype) {
            None | Some(StoredDtype::F32) => ModelDtype::Float32,
            Some(StoredDtype::F16) if !is_cuda => ModelDtype::Float16,
            Some(_) => ModelDtype::BFloat16,
        },
    };
    if is_cuda && options.quantization != Quantization::None {
        return Err(ModelError::Limits {
            field: "quantization",
            problem: format!(
                "{} is not there on a GPU: none",
                options.quantization.as_str()
            ),
        });
    }
    if !is_cuda {
        check_memory(&checkpoint, &config, dtype, options)?;
    }
    let kv_cache_format = match (&config.encoder, dtype) {
        // An encoder's keys and values aren't kept, and its vectors are as exact as these.
        (Some(_), ModelDtype::Float16) => {
            KvCacheFormat::of(options.kv_cache_dtype, ModelDtype::Float32)
        }
        _ => KvCacheFormat::of(options.kv_cache_dtype, dtype),
    };
    let (quantization, heartbeat) = (options.quantization, Arc::clone(&options.heartbeat));
    macro_rules! load_on {
        ($backend:expr) => {
            registry::load(
                &config,
                &checkpoint,
                $backend,
                quantization,
                heartbeat,
                progress,
            )?
        };
    }
    let is_large = |least_bytes| checkpoint.num_bytes() as u64 >= least_bytes;
    let cache = Arc::new(if options.weight_cache.is_some_and(is_large) {
        WeightCache::open(
            files,
            &checkpoint,
            config.quantization.as_ref(),
            quantization,
        )
    } else {
        WeightCache::off()
    });
    let shared = Arc::new(match &options.shared_weights {
        Some(weights) => SharedWeights::open(weights, &checkpoint, config.quantization.as_ref())?,
        None => SharedWeights::off(),
    });
    macro_rules! load_on_cpu {
        ($format:ty) => {
            load_on!(CpuBackend::<$format>::new(
                pool,
                dtype,
                Arc::clone(&cache),
                Arc::clone(&shared),
            )?)
        };
    }
    let weights = match (options.backend, kv_cache_format) {
        (BackendKind::Cpu, KvCacheFormat::Float32) => load_on_cpu!(F32),
        (BackendKind::Cpu, KvCacheFormat::BFloat16) => load_on_cpu!(Bf16),
        (BackendKind::Cpu, KvCacheFormat::Q8) => load_on_cpu!(Int8),
        (BackendKind::Candle, format) => load_on!(CandleBackend::new(dtype, format)?),
        (BackendKind::Cuda(ordinal), format) => {
            load_on!(CudaBackend::on_device(ordinal, dtype, format)?)
        }
        (BackendKind::CudaSimulator, format) => load_on!(CudaBackend::on_simulator(dtype, format)?),
    };
    cache.finish();
    shared.finish();
    let method = config
        .quantization
        .as_ref()
        .map(|config| config.method().to_owned());
    let quantized_format = method.or_else(|| checkpoint.quantized_format());
    Ok(LoadedModel {
        name: name.to_owned(),
        config,
        dtype,
        kv_cache_format,
        quantization,
        quantized_format,
        weights,
    })
}
