//! Models: from a checkpoint to logits.
//!
//! [`load_model`] reads a Hugging Face checkpoint onto a backend; [`LoadedModel::into_model`]
//! allocates the KV cache and all step buffers, once it is known how large they may be. What the
//! runner then sees of any model on any backend is [`CausalLm`].
//!
//! Knows nothing of requests' lives: no scheduler, no sampler, no tokenizer.

mod backend;
mod checkpoint;
mod compute_pool;
mod config;
mod error;
mod forward_input;
mod gguf;
mod mapped;
mod models;
mod quantization;
mod quantized_linear;
mod quantized_tensor;
mod rotary;
mod stored_tensor;
mod weights;
mod wide_quantization;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use checkpoint::CheckpointFiles;
pub use compute_pool::{ComputePool, PoolError};
pub use config::{
    AwqConfig, BitsAndBytesConfig, CompressedTensorsConfig, ConfigGroup, EncoderConfig,
    EncoderKind, ExpertsConfig, FourBitFloat, Fp8Config, GptqConfig, GptqScheme, HfConfig,
    HiddenAct, LinearScheme, ModulePattern, PackedScheme, QuantizationConfig, ScaleShape,
};
pub use error::ModelError;
pub use gguf::GgufModel;
pub use models::supported_architectures;
pub use rotary::{RopeParameters, RopeScaling, RotaryTable};

use protocol::{BackendKind, Dtype, KvCacheDtype, ModelSource, Quantization};

/// One flat batch: tokens of several requests, prefill chunks and decode tokens together.
#[derive(Debug, Clone, Copy)]
pub struct ForwardInput<'a> {
    /// `[num_tokens]` token ids.
    pub input_ids: &'a [u32],
    /// `[num_tokens]` position of each token in its sequence.
    pub positions: &'a [u32],
    /// `[num_tokens]` where the token's keys and values are written:
    /// `block_id * block_size + offset`.
    pub slot_mapping: &'a [u32],
    /// `[num_shared_rows]` rows whose keys and values are also those of a later request that begins with the same
    /// tokens.
    pub shared_rows: &'a [u32],
    /// `[num_shared_rows]` the slots of that request to which they are written as well.
    pub shared_slots: &'a [u32],
    /// `[num_reqs + 1]` first row of each request, and the number of rows.
    pub query_start_loc: &'a [u32],
    /// `[num_reqs]` tokens in the KV cache after this step.
    pub seq_lens: &'a [u32],
    /// `[num_reqs, block_table_stride]` block ids of each request in order of position.
    pub block_tables: &'a [u32],
    /// Width of a row of `block_tables`.
    pub block_table_stride: usize,
    /// `[num_tokens]` the type of each token, of encoders that have types; may be empty where all are 0.
    pub token_type_ids: &'a [u32],
    /// Rows whose hidden states are kept, ascending: sampled positions and those with prompt
    /// logprobs. The others end with their keys and values in the last layer.
    pub logits_indices: &'a [u32],
}

/// Most `shared_rows` of a batch: backends have room for them from the start.
pub(crate) const MAX_SHARED_ROWS: usize = 4096;

/// A grammar's mask in words: bit `t % 32` of word `t / 32` is token `t`, 1 for allowed.
#[derive(Debug, Clone, Copy)]
pub struct Bitmask<'a> {
    /// `[ceil(num_tokens / 32)]`
    pub words: &'a [u32],
    /// What no other words of this process have or will have, where they are kept: a device knows by it
    /// that it has them already.
    pub number: Option<u64>,
}

impl<'a> From<&'a [u32]> for Bitmask<'a> {
    /// Words that are made for one step.
    fn from(words: &'a [u32]) -> Self {
        Self {
            words,
            number: None,
        }
    }
}

/// What the runner sees of any model on any backend.
pub trait CausalLm: Send {
    /// Runs the layers over a batch. Ends at the normed hidden states of `logits_indices`, which
    /// stay inside until the next call.
    ///
    /// # Errors
    /// [`ModelError::Input`] where the batch contradicts itself or exceeds the limits given to
    /// [`LoadedModel::into_model`]; the KV cache is then unchanged.
    fn forward(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError>;

    /// Logits `[rows.len(), vocab_size]` of the last batch; `rows` index its `logits_indices`.
    ///
    /// # Errors
    /// [`ModelError::Input`] where `rows` or the length of `logits` is wrong.
    fn compute_logits(&mut self, rows: Range<usize>, logits: &mut [f32]) -> Result<(), ModelError>;

    /// The same of any rows, in their order: the head's weights are read once for all of them.
    ///
    /// `bitmasks` are the grammars' of the first rows; bit `i % 32` of word `i / 32` is token `i`, 1
    /// for allowed. A model may set the logits of other tokens to -inf, where that is done before they
    /// leave their device; whoever samples masks them in any case.
    ///
    /// # Errors
    /// As there.
    fn compute_logits_of(
        &mut self,
        rows: &[usize],
        bitmasks: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let _ = bitmasks;
        let vocab_size = self.vocab_size();
        for (&row, logits) in rows.iter().zip(logits.chunks_mut(vocab_size)) {
            self.compute_logits(row..row.saturating_add(1), logits)?;
        }
        Ok(())
    }

    /// The token with the largest logit of each row, the lower id among equals, of those below `num_tokens`
    /// that the row's bitmask allows: what greedy decoding asks for, without logits having to be written. A
    /// row gets `None` where it has none, or a logit that is not finite: then its logits tell more. Returns `false`,
    /// and leaves `token_ids`, where a model has no way that is cheaper than logits.
    ///
    /// # Errors
    /// [`ModelError::Input`] where `rows` are wrong or a bitmask is shorter than `num_tokens`.
    fn compute_argmax(
        &mut self,
        _rows: &[usize],
        _bitmasks: &[Option<Bitmask<'_>>],
        _num_tokens: usize,
        _token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        Ok(false)
    }

    /// The largest of each [`LOGITS_PER_MAXIMUM`] logits that the last call of
    /// [`Self::compute_logits_of`] wrote, `[rows, ceil(vocab_size / LOGITS_PER_MAXIMUM)]`, where the model
    /// noted them while it had the logits at hand. Where a logit is NaN one of its row's is, and then none
    /// of that row tells anything.
    fn logits_maxima(&self) -> Option<&[f32]> {
        None
    }

    /// Logits of some rows for chosen token ids: `few` are rows with their tokens, `logits` those of all of them, one after the
    /// other. On our own backends they are bit-identical to the same entries of [`Self::compute_logits`]. Costs a share of the
    /// head's work by their number.
    ///
    /// # Errors
    /// [`ModelError::Input`] where a row, a token id or the length of `logits` is wrong.
    fn compute_logits_for(
        &mut self,
        few: &[(usize, &[u32])],
        logits: &mut [f32],
    ) -> Result<(), ModelError>;

    /// The normed hidden state `[hidden_size]` of a row of the last batch; `row` indexes its `logits_indices`.
    ///
    /// # Errors
    /// [`ModelError::Input`] where `row` or the length of `hidden` is wrong.
    fn hidden_state(&mut self, _row: usize, _hidden: &mut [f32]) -> Result<(), ModelError> {
        Err(ModelError::Input {
            field: "pooling_params",
            problem: "this model tells no hidden states".to_owned(),
        })
    }

    /// The logits `[num_labels]` that the model's classifier makes of a pooled hidden state.
    ///
    /// # Errors
    /// [`ModelError::Input`] where the model has no classifier or the length of `pooled` is wrong.
    fn classify(&self, _pooled: &[f32]) -> Result<Vec<f32>, ModelError> {
        Err(ModelError::Input {
            field: "pooling_params.task",
            problem: "this model has no classifier".to_owned(),
        })
    }

    /// Width of a logits row; may exceed the tokenizer's vocabulary.
    fn vocab_size(&self) -> usize;

    /// Width of the hidden states.
    fn hidden_size(&self) -> usize;
}

/// Logits of which [`CausalLm::logits_maxima`] has the largest.
pub const LOGITS_PER_MAXIMUM: usize = 32;

/// Bytes of weights below which quantizing them takes no time that anyone would notice.
pub const WEIGHT_CACHE_BYTES: u64 = 64 << 20;

/// How a model is loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Number format of weights and, where that has none of its own, KV cache.
    pub dtype: Dtype,
    /// Number format of keys and values.
    pub kv_cache_dtype: KvCacheDtype,
    /// Format of the matrices: as `dtype` says, or quantized while loading.
    pub quantization: Quantization,
    /// Where the weights have at least so many bytes, quantized matrices are kept in a file beside
    /// them; `None` is never. [`WEIGHT_CACHE_BYTES`] is a good choice.
    pub weight_cache: Option<u64>,
    /// Where packed weights lie that other processes have too; `None` is in this process's own memory. Of the
    /// CPU backend alone.
    pub shared_weights: Option<SharedWeightsFile>,
    /// What executes the model.
    pub backend: BackendKind,
    /// Bytes of the host's memory that there are for weights; `None` is not known, and loads what the system lets it.
    pub available_bytes: Option<u64>,
    /// Raised by one at every layer of every step.
    pub heartbeat: Arc<AtomicU64>,
}

/// A file in memory (`memfd_create`, sealable) that holds the packed weights of one model, or of one and its draft
/// model, for several processes.
#[derive(Debug, Clone)]
pub struct SharedWeightsFile {
    /// Empty, or written and sealed by a process that loaded the same models with the same options.
    pub file: Arc<File>,
    /// Whether this process fills it where it isn't sealed. No two may at the same time.
    pub may_write: bool,
    /// Whether no other model follows this one into the file: it is sealed behind it.
    pub is_last: bool,
}

/// Memory of a device that isn't the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceMemory {
    /// Bytes that nobody has taken.
    pub(crate) free_bytes: u64,
    /// Bytes in all.
    pub(crate) total_bytes: u64,
}

/// How far loading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights done.
    pub done_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

/// Number format of keys and values in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvCacheFormat {
    /// 32 bits.
    Float32,
    /// bfloat16.
    BFloat16,
    /// 8 bits, with a scale for each head of each token.
    Q8,
}

impl KvCacheFormat {
    /// What was asked for, in a model of `dtype`.
    pub(crate) fn of(asked: KvCacheDtype, dtype: ModelDtype) -> Self {
        match (asked, dtype) {
            (KvCacheDtype::Q8, _) => Self::Q8,
            (KvCacheDtype::Bf16, _)
            | (KvCacheDtype::Auto, ModelDtype::BFloat16 | ModelDtype::Float16) => Self::BFloat16,
            (KvCacheDtype::Auto, ModelDtype::Float32) => Self::Float32,
        }
    }
}

/// Number format in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelDtype {
    /// 32-bit weights.
    Float32,
    /// bfloat16 weights; sums are made in 32 bits.
    BFloat16,
    /// Half-precision weights; activations and sums have 32 bits.
    Float16,
}

impl ModelDtype {
    /// `float32`, `bfloat16` or `float16`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::BFloat16 => "bfloat16",
            Self::Float16 => "float16",
        }
    }

    /// Bits of a weight.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Self::Float32 => 32,
            Self::BFloat16 | Self::Float16 => 16,
        }
    }

    /// The nearest value of the format.
    pub(crate) fn round(self, value: f32) -> f32 {
        match self {
            Self::Float32 => value,
            Self::BFloat16 => half::bf16::from_f32(value).to_f32(),
            Self::Float16 => half::f16::from_f32(value).to_f32(),
        }
    }
}

/// The largest step and cache that a model has to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// KV blocks, the null block included.
    pub num_blocks: usize,
    /// Tokens per KV block.
    pub block_size: usize,
    /// Most tokens of one step.
    pub max_num_batched_tokens: usize,
    /// Most `logits_indices` of one step.
    pub max_num_logits_rows: usize,
    /// Most requests of one step.
    pub max_num_seqs: usize,
    /// Longest sequence.
    pub max_model_len: usize,
}

/// A model whose weights are loaded and whose KV cache is not yet allocated.
pub struct LoadedModel {
    name: String,
    config: HfConfig,
    dtype: ModelDtype,
    kv_cache_format: KvCacheFormat,
    quantization: Quantization,
    quantized_format: Option<String>,
    weights: Box<dyn models::LoadedWeights>,
}

impl LoadedModel {
    /// The folder's or file's name, or the one given with the files.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `config.json` says.
    pub fn config(&self) -> &HfConfig {
        &self.config
    }

    /// Number format in force.
    pub fn dtype(&self) -> ModelDtype {
        self.dtype
    }

    /// Format of keys and values.
    pub fn kv_cache_format(&self) -> KvCacheFormat {
        self.kv_cache_format
    }

    /// The quantized format of most of the weights in the file, where a GGUF file has one.
    pub fn quantized_format(&self) -> Option<&str> {
        self.quantized_format.as_deref()
    }

    /// What was to be done to the matrices while loading.
    pub fn quantization(&self) -> Quantization {
        self.quantization
    }

    /// True if logits of tokens can be asked for.
    pub fn has_lm_head(&self) -> bool {
        self.weights.has_lm_head()
    }

    /// Labels of the model's classifier; 0 where it has none.
    pub fn num_labels(&self) -> usize {
        self.weights.num_labels()
    }

    /// Bytes of keys and values that one block takes over all layers.
    pub fn kv_cache_bytes_per_block(&self, block_size: usize) -> usize {
        self.weights.kv_cache_bytes_per_block(block_size)
    }

    /// Bytes of the model's device that the KV cache may take, where the model isn't in the host's memory:
    /// what `utilization` of the device leaves beside what is taken and what steps of
    /// `max_num_batched_tokens` tokens need.
    ///
    /// # Errors
    /// [`ModelError::Device`] where the device doesn't answer.
    pub fn device_memory_for_cache(
        &self,
        utilization: f64,
        max_num_batched_tokens: usize,
    ) -> Result<Option<u64>, ModelError> {
        let Some(memory) = self.weights.device_memory()? else {
            return Ok(None);
        };
        let allowed = (memory.total_bytes as f64 * utilization) as u64;
        let taken = memory.total_bytes.saturating_sub(memory.free_bytes);
        let step = self.weights.step_bytes(max_num_batched_tokens);
        Ok(Some(allowed.saturating_sub(taken).saturating_sub(step)))
    }

    /// Allocates the KV cache and every buffer of a step. No step allocates afterwards (on the
    /// CPU backend).
    ///
    /// # Errors
    /// [`ModelError::Limits`] where a limit is 0 or the backend can't serve it,
    /// [`ModelError::OutOfMemory`].
    pub fn into_model(self, limits: &ModelLimits) -> Result<Box<dyn CausalLm>, ModelError> {
        for (field, value) in [
            ("num_blocks", limits.num_blocks),
            ("block_size", limits.block_size),
            ("max_num_batched_tokens", limits.max_num_batched_tokens),
            ("max_num_logits_rows", limits.max_num_logits_rows),
            ("max_num_seqs", limits.max_num_seqs),
            ("max_model_len", limits.max_model_len),
        ] {
            if value == 0 {
                return Err(ModelError::Limits {
                    field,
                    problem: "0 must be at least 1".to_owned(),
                });
            }
        }
        self.weights.into_model(limits)
    }
}

/// Loads a model.
///
/// # Errors
/// Everything that can be wrong with a checkpoint; see [`ModelError`].
pub fn load_model(
    source: &ModelSource,
    options: &LoadOptions,
    pool: Arc<ComputePool>,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedModel, ModelError> {
    match source {
        ModelSource::Path(path) => {
            let files = CheckpointFiles::at(path)?;
            // `.` and `..` have a name only once they are resolved. A file has its own, also as a
            // link, which caches make to a name that is a hash.
            let resolved = match files {
                CheckpointFiles::Gguf(_) => path.clone(),
                _ => path.canonicalize().unwrap_or_else(|_| path.clone()),
            };
            let name = resolved
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy();
            load_model_files(&name, &files, options, pool, progress)
        }
        ModelSource::BuiltIn => {
            let files = builtin_model::FILES
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), *bytes));
            let files = CheckpointFiles::Embedded(files.collect());
            load_model_files(builtin_model::NAME, &files, options, pool, progress)
        }
    }
}

/// Loads a model from a folder, a GGUF file, or files inside the executable.
///
/// # Errors
/// As [`load_model`].
pub fn load_model_files(
    name: &str,
    files: &CheckpointFiles,
    options: &LoadOptions,
    pool: Arc<ComputePool>,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedModel, ModelError> {
    models::load(name, files.config()?, files, options, pool, progress)
}
