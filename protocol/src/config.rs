//! The core's configuration, as the frontend hands it over.
//!
//! A core that is started by hand takes the same as JSON, where every field may be left out.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::pooling_params::RunnerType;
use crate::sampling_params::LogprobsMode;

/// Everything that a core needs to start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Which model, and how it is executed.
    pub model_config: ModelConfig,
    /// The KV cache.
    pub cache_config: CacheConfig,
    /// The other cores that serve the same model.
    pub parallel_config: ParallelConfig,
    /// The scheduler's limits.
    pub scheduler_config: SchedulerConfig,
    /// Structured output.
    pub structured_outputs_config: StructuredOutputsConfig,
    /// Drafts that are verified in one pass; `None` is off.
    pub speculative_config: Option<SpeculativeConfig>,
    /// Seconds that requests in flight may take to finish after SIGTERM; 0 aborts them at once.
    pub shutdown_timeout_seconds: f64,
}

/// Which model, and how it is executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Where the model comes from.
    pub model: ModelSource,
    /// What is made of its hidden states.
    pub runner: RunnerType,
    /// Weights and activations.
    pub dtype: Dtype,
    /// Quantization of the weights while loading.
    pub quantization: Quantization,
    /// Whether weights that are quantized while loading are kept in a file beside the model.
    pub weight_cache: bool,
    /// What executes it.
    pub backend: BackendKind,
    /// Longest sequence, prompt and output together; `None` is what the model was made for.
    pub max_model_len: Option<u32>,
    /// Compute threads; `None` is one per core that this process may use.
    pub num_threads: Option<u32>,
    /// Whether each compute thread stays on a core of its own where there is one for each.
    pub pin_threads: bool,
    /// What logprobs are.
    pub logprobs_mode: LogprobsMode,
    /// Most logprobs per token that a request may ask for; -1 is no limit.
    pub max_logprobs: i32,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            model: ModelSource::BuiltIn,
            runner: RunnerType::Generate,
            dtype: Dtype::Auto,
            quantization: Quantization::None,
            weight_cache: true,
            backend: BackendKind::Cpu,
            max_model_len: None,
            num_threads: None,
            pin_threads: true,
            logprobs_mode: LogprobsMode::RawLogprobs,
            max_logprobs: 20,
        }
    }
}

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSource {
    /// The model that comes with Formwork.
    BuiltIn,
    /// A Hugging Face folder, or a GGUF file.
    Path(PathBuf),
}

/// Number format of weights and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// What the checkpoint has.
    #[default]
    Auto,
    /// 32-bit weights and activations.
    Float32,
    /// bfloat16 weights; the backend may accumulate in 32 bits.
    BFloat16,
    /// Half-precision weights; the backend may accumulate in 32 bits.
    Float16,
}

/// Quantized formats of weights, by the names of GGUF's that they stand beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    /// As the dtype says.
    #[default]
    None,
    /// 8 bits per weight, a scale for every 256.
    Q8_0,
    /// 4 bits per weight, a factor for every 32 and a scale for every 256; embedding and LM head as
    /// [`Self::Q8_0`].
    Q4_0,
}

impl Quantization {
    /// `none`, `q8_0` or `q4_0`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }
}

/// What executes the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// Formwork's own kernels on the processor.
    #[default]
    Cpu,
    /// candle tensors: the reference.
    Candle,
    /// Formwork's own kernels on the CUDA device of this number.
    Cuda(u32),
    /// The CUDA kernels on a simulator of threads and warps: slow, and only in builds for tests.
    CudaSimulator,
}

/// Number format of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvCacheDtype {
    /// The model's.
    #[default]
    Auto,
    /// bfloat16.
    Bf16,
    /// 8 bits, with a scale for each head of each token.
    Q8,
}

/// Cores on one machine that serve one model behind one frontend: data parallelism, as vLLM calls it.
///
/// A core takes its share of the machine: of the processors, where `num_threads` says nothing else, and
/// of the memory that is free for keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParallelConfig {
    /// Number of cores, at least 1.
    pub data_parallel_size: u32,
    /// Number of this core, `0..data_parallel_size`.
    pub data_parallel_rank: u32,
}

impl Default for ParallelConfig {
    fn default() -> Self {
        Self {
            data_parallel_size: 1,
            data_parallel_rank: 0,
        }
    }
}

/// The KV cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Tokens per block.
    pub block_size: u32,
    /// Blocks, block 0 (the null block) included; `None` is as many as `kv_cache_memory_bytes` hold.
    pub num_blocks_override: Option<u32>,
    /// Memory for keys and values in bytes; `None` is chosen from the free memory.
    pub kv_cache_memory_bytes: Option<u64>,
    /// Blocks of the core that this one stands beside or in for, whatever the two before say: it has as many, or fewer
    /// where less memory is free. `None` for a first core.
    pub num_blocks_of_first: Option<u32>,
    /// Share of a GPU's memory that the core may take, `0..=1`; of no meaning on the processor.
    pub gpu_memory_utilization: f64,
    /// Number format of keys and values.
    pub cache_dtype: KvCacheDtype,
    /// Whether requests share the blocks of equal prefixes.
    pub enable_prefix_caching: bool,
    /// How full blocks are named in the prefix cache.
    pub prefix_caching_hash_algo: PrefixCachingHashAlgo,
    /// Whether the core reports which blocks it stores and forgets: `kv_cache_events` of its outputs.
    pub enable_kv_cache_events: bool,
}

/// The hash that names a full block, over the name of the block before it, its tokens and its salt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixCachingHashAlgo {
    /// BLAKE3, of a fixed first name: equal in every process.
    #[default]
    Blake3,
    /// SHA-256 of canonical CBOR, as vLLM's `sha256_cbor`.
    Sha256Cbor {
        /// What the first name is the hash of: vLLM's `PYTHONHASHSEED`.
        seed: String,
    },
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            num_blocks_override: None,
            num_blocks_of_first: None,
            kv_cache_memory_bytes: None,
            gpu_memory_utilization: 0.9,
            cache_dtype: KvCacheDtype::Auto,
            enable_prefix_caching: true,
            prefix_caching_hash_algo: PrefixCachingHashAlgo::default(),
            enable_kv_cache_events: false,
        }
    }
}

/// The scheduler's limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Most tokens of one step, over all requests.
    pub max_num_batched_tokens: u32,
    /// Most running requests.
    pub max_num_seqs: u32,
    /// Most tokens of one request's prefill in a step that others share; 0 is off.
    pub long_prefill_token_threshold: u32,
    /// Whether a prompt may be computed in pieces.
    pub enable_chunked_prefill: bool,
    /// Which waiting request is next.
    pub policy: SchedulingPolicy,
    /// Share of the blocks kept free on admission, `0..1`.
    pub watermark: f64,
    /// Admit a request only when its whole prompt fits.
    pub scheduler_reserve_full_isl: bool,
    /// Most waiting requests; one more is refused. `None` is no limit.
    pub max_num_queued_reqs: Option<u32>,
    /// Most prompt tokens of waiting requests; `None` is no limit.
    pub max_num_queued_tokens: Option<u64>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            max_num_batched_tokens: 2048,
            max_num_seqs: 256,
            long_prefill_token_threshold: 0,
            enable_chunked_prefill: true,
            policy: SchedulingPolicy::Fcfs,
            watermark: 0.0,
            scheduler_reserve_full_isl: true,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
        }
    }
}

/// Which waiting request is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Lowest `priority` first, then arrival.
    Priority,
}

/// How constraints are compiled and used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StructuredOutputsConfig {
    /// Threads that compile grammars; `None` is half the cores that this process may use, at least
    /// one.
    pub compile_threads: Option<u32>,
    /// Most grammars that wait for a compile thread; one more is refused.
    pub max_num_queued_grammars: u32,
    /// Bytes for compiled grammars, their states and masks; taken as they are needed. The default
    /// of 1 GiB has room for some hundred different large schemas at once: a request fails when its
    /// grammar needs a state and there is none left.
    pub cache_bytes: u64,
    /// Compute only the rows of the LM head that a mask allows, where these are few.
    pub enable_sparse_head: bool,
    /// Which tokens are appended without sampling.
    pub jump_forward: JumpForward,
}

impl Default for StructuredOutputsConfig {
    fn default() -> Self {
        Self {
            compile_threads: None,
            max_num_queued_grammars: 1024,
            cache_bytes: 256 << 20,
            enable_sparse_head: true,
            jump_forward: JumpForward::default(),
        }
    }
}

/// Which tokens are appended without sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JumpForward {
    /// None: every token is sampled.
    Off,
    /// One that is the only one its mask allows. The output is that of `off`.
    #[default]
    SingleToken,
    /// Those of a text that must come next, as the tokenizer itself would write it.
    Text,
}

/// What proposes drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeculativeMethod {
    /// Prompt lookup: what followed the last tokens where they occurred before.
    #[default]
    Ngram,
    /// A smaller model with the same vocabulary.
    DraftModel,
}

/// How a draft model chooses tokens. What the target model then says is the same with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftSampleMethod {
    /// The likeliest token, whatever the request's temperature.
    Greedy,
    /// As the request samples, with the noise that the target model's token gets: two models that agree on
    /// the probabilities then agree on the token.
    #[default]
    Probabilistic,
}

/// Drafts that are verified many tokens in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpeculativeConfig {
    /// What proposes them.
    pub method: SpeculativeMethod,
    /// The draft model, of [`SpeculativeMethod::DraftModel`].
    pub model: ModelSource,
    /// Most tokens of a draft, from 1 to [`Self::MAX_NUM_SPECULATIVE_TOKENS`].
    pub num_speculative_tokens: u32,
    /// Drafts by the number of running requests: `(first, last, num_speculative_tokens)`, ascending, the first
    /// from 1 on. Numbers that no range has get what the range before has. Empty: drafts are the same always.
    pub num_speculative_tokens_per_batch_size: Vec<(u32, u32, u32)>,
    /// How the draft model chooses tokens.
    pub draft_sample_method: DraftSampleMethod,
    /// Fewest tokens that must occur again, at least 1.
    pub prompt_lookup_min: u32,
    /// Most tokens that are looked for, at least `prompt_lookup_min`.
    pub prompt_lookup_max: u32,
}

impl SpeculativeConfig {
    /// Most tokens that a draft may have: with the one after it, its rows of logits fill no more than
    /// half of what the model runner holds at a time.
    pub const MAX_NUM_SPECULATIVE_TOKENS: u32 = 31;
}

impl Default for SpeculativeConfig {
    fn default() -> Self {
        Self {
            method: SpeculativeMethod::Ngram,
            model: ModelSource::BuiltIn,
            num_speculative_tokens: 4,
            num_speculative_tokens_per_batch_size: Vec::new(),
            draft_sample_method: DraftSampleMethod::default(),
            prompt_lookup_min: 2,
            prompt_lookup_max: 4,
        }
    }
}
