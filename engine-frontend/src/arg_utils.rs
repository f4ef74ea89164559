//! The engine's command-line flags, shared by every executable that starts an engine.

mod data_parallel;
mod flag_names;
mod human_readable;
mod prefix_cache;
mod scheduler;
mod speculative;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use protocol::{
    BackendKind, CacheConfig, Dtype, EngineConfig, KvCacheDtype, LogprobsMode, ModelConfig,
    ModelSource, Quantization, SpeculativeConfig,
};

pub use self::flag_names::with_flag_names;
pub use self::human_readable::human_readable_int;
pub use self::prefix_cache::PrefixCachingHashArg;
use crate::engine_core_client::MAX_SHUTDOWN_TIMEOUT;
use crate::error::ValidationError;
use crate::json_problem::json_problem;
use crate::kv_events::KVEventsConfig;
use crate::openai::DefaultSamplingParams;
use crate::pooler_config::{
    ConvertArg, HfOverrides, PoolerConfig, PoolerFlags, PoolerOverride, RunnerArg,
};
use crate::structured_outputs::{BackendOptions, ReasoningParser, StructuredOutputsArgs};

/// Flags of the core's process, its model execution, its cache and its scheduler. A core that was
/// started by hand has its own, so they are refused rather than ignored.
const DECIDED_BY_THE_CORE: [&str; 32] = [
    "dtype",
    "quantization",
    "no_weight_cache",
    "device",
    "backend",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "enable_prefix_caching",
    "no_enable_prefix_caching",
    "prefix_caching_hash_algo",
    "kv_events_config",
    "enable_chunked_prefill",
    "no_enable_chunked_prefill",
    "block_size",
    "num_blocks_override",
    "kv_cache_memory_bytes",
    "kv_cache_dtype",
    "watermark",
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "scheduling_policy",
    "max_logprobs",
    "logprobs_mode",
    "data_parallel_size",
    "threads",
    "no_pin_threads",
    "shutdown_timeout",
    "engine_core",
    "speculative_config",
];

/// What to run and with which limits: vLLM's flags, as far as they apply here.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Hugging Face model folder, GGUF file, or name on the Hub: org/name, org/name@revision,
    /// org/name:file.gguf. The built-in model where absent
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The name on the Hub that [`fetch_model`](crate::fetch_model) found `model` by.
    #[arg(skip)]
    pub hub_name: Option<String>,
    /// What the model is for: text, or embeddings and scores
    #[arg(long, value_enum, default_value_t)]
    pub runner: RunnerArg,
    /// Make a model that generates text one of embeddings or scores
    #[arg(long, value_enum, default_value_t)]
    pub convert: ConvertArg,
    /// How hidden states are pooled, where the model's folder doesn't say, as a JSON object:
    /// pooling_type (LAST, CLS or MEAN), use_activation
    #[arg(long, alias = "override-pooler-config", value_name = "JSON", value_parser = PoolerOverride::from_json)]
    pub pooler_config: Option<PoolerOverride>,
    /// Fields in place of config.json's, as a JSON object: architectures, classifier_from_token,
    /// is_original_qwen3_reranker, is_matryoshka, matryoshka_dimensions
    #[arg(long, value_name = "JSON", value_parser = HfOverrides::from_json)]
    pub hf_overrides: Option<HfOverrides>,
    /// Number format of the weights
    #[arg(long, value_enum, default_value_t = DtypeArg::Auto)]
    pub dtype: DtypeArg,
    /// Quantize the weights while loading
    #[arg(long, value_enum, default_value_t = QuantizationArg::None)]
    pub quantization: QuantizationArg,
    /// Quantize the weights at each start, rather than keep them in a file beside the model
    #[arg(long)]
    pub no_weight_cache: bool,
    /// Where the model runs: cpu, cuda (experimental: a GPU of NVIDIA's), or cuda:N for the GPU of
    /// that number
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "cpu",
        conflicts_with = "backend"
    )]
    pub device: DeviceArg,
    /// What executes the model on the processor
    #[arg(long, value_enum, default_value_t = BackendArg::Cpu)]
    pub backend: BackendArg,
    /// Share of the GPU's memory that the engine may take, weights included
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = gpu_memory_utilization)]
    pub gpu_memory_utilization: f64,
    /// Longest sequence, prompt and output together; what the model was made for where absent
    #[arg(long, value_name = "TOKENS", value_parser = human_readable_int(1_u32..))]
    pub max_model_len: Option<u32>,
    /// Most requests that run at the same time; 256 where absent, or --max-num-batched-tokens
    /// where that is less
    #[arg(long, value_name = "N", value_parser = human_readable_int(1_u32..=65_536))]
    pub max_num_seqs: Option<u32>,
    /// Most tokens of one step, over all requests; where absent 2048, on processors 512, which several cores share out
    #[arg(long, value_name = "TOKENS", value_parser = human_readable_int(1_u32..=1_048_576))]
    pub max_num_batched_tokens: Option<u32>,
    /// Most tokens of one prompt per step while others run; 0 is off
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = human_readable_int(0_u32..))]
    pub long_prefill_token_threshold: u32,
    /// Share the KV blocks of equal prefixes (the default)
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_enable_prefix_caching")]
    pub enable_prefix_caching: bool,
    /// Don't share the KV blocks of equal prefixes
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "enable_prefix_caching")]
    pub no_enable_prefix_caching: bool,
    /// How KV blocks are named in the prefix cache and in KV events: blake3, or sha256_cbor, which is equal to
    /// vLLM's for the same PYTHONHASHSEED
    #[arg(long, value_name = "NAME", default_value = "blake3", value_parser = prefix_cache::prefix_caching_hash_algo)]
    pub prefix_caching_hash_algo: PrefixCachingHashArg,
    /// Publish which KV blocks are cached and forgotten, by ZeroMQ, as a JSON object:
    /// enable_kv_cache_events, publisher (zmq or null), endpoint, replay_endpoint, buffer_steps, hwm,
    /// max_queue_size, topic. What is published tells prompts: keep it within a network that may know them
    #[arg(long, value_name = "JSON", value_parser = KVEventsConfig::from_json)]
    pub kv_events_config: Option<KVEventsConfig>,
    /// Compute long prompts in pieces (the default)
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_enable_chunked_prefill")]
    pub enable_chunked_prefill: bool,
    /// Compute every prompt in one step
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "enable_chunked_prefill")]
    pub no_enable_chunked_prefill: bool,
    /// Tokens per KV block, a multiple of 16
    #[arg(long, value_name = "TOKENS", default_value_t = 16, value_parser = block_size)]
    pub block_size: u32,
    /// KV blocks, instead of as many as the memory holds
    #[arg(long, alias = "num-gpu-blocks-override", value_name = "N", value_parser = human_readable_int(2_u32..))]
    pub num_blocks_override: Option<u32>,
    /// Memory for keys and values in bytes; chosen from what is free where absent
    #[arg(long, value_name = "BYTES", value_parser = human_readable_int(1_u64..))]
    pub kv_cache_memory_bytes: Option<u64>,
    /// Number format of keys and values
    #[arg(long, value_enum, default_value_t = KvCacheDtypeArg::Auto)]
    pub kv_cache_dtype: KvCacheDtypeArg,
    /// Share of the KV blocks that stays free when a request is admitted, 0 to less than 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true, value_parser = watermark)]
    pub watermark: f64,
    /// Most requests that wait, beyond those that one of the next steps begins; one more is refused.
    /// Where absent a server has 4096, and others no limit
    #[arg(long, value_name = "N", value_parser = human_readable_int(1_u32..))]
    pub max_num_queued_reqs: Option<u32>,
    /// Most prompt tokens of waiting requests; a request beyond is refused. No limit where absent
    #[arg(long, value_name = "TOKENS", value_parser = human_readable_int(1_u64..))]
    pub max_num_queued_tokens: Option<u64>,
    /// Which waiting request is next
    #[arg(long, value_enum, default_value_t = PolicyArg::Fcfs)]
    pub scheduling_policy: PolicyArg,
    /// Most logprobs per token that a request may ask for; -1 is no limit
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1..))]
    pub max_logprobs: i32,
    /// What logprobs are: before or after penalties and filters, normalised or not
    #[arg(long, value_enum, default_value_t = LogprobsModeArg::RawLogprobs)]
    pub logprobs_mode: LogprobsModeArg,
    /// Engine cores that serve the model behind this one frontend, each with its share of the
    /// processors or a GPU of its own. They share the memory of the weights on the processor; limits on
    /// requests, tokens and the KV cache are each core's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = human_readable_int(1_u32..=1024))]
    pub data_parallel_size: u32,
    /// Compute threads, of all engine cores together; one per available processor where absent
    #[arg(long, value_name = "N", value_parser = human_readable_int(1_u32..=1024))]
    pub threads: Option<u32>,
    /// Let the system move compute threads between cores also where there is one for each core
    #[arg(long)]
    pub no_pin_threads: bool,
    /// Seed of requests that bring none of their own: a server gives each the same, a batch each line
    /// one of its own made from it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Seconds that requests in flight may take to finish when the core gets SIGTERM; 0 aborts
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = shutdown_timeout)]
    pub shutdown_timeout: f64,
    /// The engine core's executable; the one beside this executable where absent
    #[arg(long, value_name = "PATH")]
    pub engine_core: Option<PathBuf>,
    /// Don't confine the server and its engine core. They can then read and write whatever their user
    /// can, open network connections and start programs, should a model or a request find a hole in
    /// them. Of a batch the core alone is confined
    #[arg(long)]
    pub no_sandbox: bool,
    /// Use a core that was started by hand and listens at this address; flags that such a core
    /// decides itself are refused
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = DECIDED_BY_THE_CORE)]
    pub engine_core_address: Option<String>,
    /// Constraints on the output and thinking, as a JSON object: backend, whitespace,
    /// disable_any_whitespace, disable_additional_properties, enable_in_reasoning,
    /// reasoning_parser, thinking_markers, and for the core compile_threads,
    /// max_num_queued_grammars, cache_bytes, enable_sparse_head, jump_forward
    #[arg(long, value_name = "JSON", value_parser = structured_outputs_config)]
    pub structured_outputs_config: Option<StructuredOutputsArgs>,
    /// The older name of the backend in --structured-outputs-config: auto, xgrammar, guidance,
    /// outlines, lm-format-enforcer or formwork. One engine serves them all
    #[arg(long, value_name = "NAME", value_parser = guided_decoding_backend)]
    pub guided_decoding_backend: Option<String>,
    /// Drafts, as a JSON object: method (ngram or draft_model), model (as --model),
    /// num_speculative_tokens, num_speculative_tokens_per_batch_size, draft_sample_method (greedy or
    /// probabilistic), prompt_lookup_min, prompt_lookup_max. Off where absent
    #[arg(long, value_name = "JSON", value_parser = speculative::speculative_config)]
    pub speculative_config: Option<SpeculativeConfig>,
    /// Where default sampling parameters come from
    #[arg(long, value_enum, default_value_t = GenerationConfigArg::Auto)]
    pub generation_config: GenerationConfigArg,
    /// Default sampling parameters that win over these, as a JSON object: temperature, top_p,
    /// top_k, min_p, repetition_penalty, max_new_tokens
    #[arg(long, value_name = "JSON", value_parser = override_generation_config)]
    pub override_generation_config: Option<DefaultSamplingParams>,
    /// Chat template instead of the model's: a Jinja file, or the template itself
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<String>,
    /// The older name of reasoning_parser in --structured-outputs-config
    #[arg(long, value_name = "NAME", value_parser = reasoning_parser)]
    pub reasoning_parser: Option<ReasoningParser>,
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            model: None,
            hub_name: None,
            runner: RunnerArg::Auto,
            convert: ConvertArg::Auto,
            pooler_config: None,
            hf_overrides: None,
            dtype: DtypeArg::Auto,
            quantization: QuantizationArg::None,
            no_weight_cache: false,
            device: DeviceArg::Cpu,
            backend: BackendArg::Cpu,
            gpu_memory_utilization: 0.9,
            max_model_len: None,
            max_num_seqs: None,
            max_num_batched_tokens: None,
            long_prefill_token_threshold: 0,
            enable_prefix_caching: false,
            no_enable_prefix_caching: false,
            prefix_caching_hash_algo: PrefixCachingHashArg::Blake3,
            kv_events_config: None,
            enable_chunked_prefill: false,
            no_enable_chunked_prefill: false,
            block_size: 16,
            num_blocks_override: None,
            kv_cache_memory_bytes: None,
            kv_cache_dtype: KvCacheDtypeArg::Auto,
            watermark: 0.0,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            scheduling_policy: PolicyArg::Fcfs,
            max_logprobs: 20,
            logprobs_mode: LogprobsModeArg::RawLogprobs,
            data_parallel_size: 1,
            threads: None,
            no_pin_threads: false,
            seed: None,
            shutdown_timeout: 0.0,
            engine_core: None,
            no_sandbox: false,
            engine_core_address: None,
            structured_outputs_config: None,
            guided_decoding_backend: None,
            speculative_config: None,
            generation_config: GenerationConfigArg::Auto,
            override_generation_config: None,
            chat_template: None,
            reasoning_parser: None,
        }
    }
}

impl EngineArgs {
    /// Arguments for a model's folder or GGUF file, everything else at its default.
    pub fn for_model(model: impl AsRef<Path>) -> Self {
        Self {
            model: Some(model.as_ref().to_owned()),
            ..Self::default()
        }
    }

    /// What can be told of flags together, before anything is loaded.
    ///
    /// # Errors
    /// The backend is given twice, settings for a core that has its own, more cores than the machine has room for,
    /// or KV events that can't be.
    pub fn verify(&self) -> Result<(), ValidationError> {
        self.verify_data_parallel_size()?;
        self.verify_prefix_cache()?;
        const FLAG: &str = "--structured-outputs-config";
        let Some(config) = &self.structured_outputs_config else {
            return Ok(());
        };
        if config.backend.is_some() && self.guided_decoding_backend.is_some() {
            let message = format!("{FLAG} and --guided-decoding-backend both name a backend");
            return Err(ValidationError::new(message));
        }
        if let Some(field) = config.core_fields().first()
            && self.engine_core_address.is_some()
        {
            let message = format!(
                "{FLAG}: {field} is decided by the core, and --engine-core-address names one that \
                 runs already; leave it out"
            );
            return Err(ValidationError::new(message));
        }
        Ok(())
    }

    /// The engine's settings for constraints and thinking.
    pub fn structured_outputs(&self) -> StructuredOutputsArgs {
        let mut args = self.structured_outputs_config.clone().unwrap_or_default();
        if let Some(backend) = &self.guided_decoding_backend {
            args.backend = Some(backend.clone());
        }
        if let Some(parser) = &self.reasoning_parser {
            args.reasoning_parser = parser.clone();
        }
        args
    }

    /// What the model does; `None` where it generates text.
    ///
    /// # Errors
    /// Flags that contradict the model, or a file of its folder that can't be read.
    pub fn pooler(&self) -> Result<Option<PoolerConfig>, ValidationError> {
        PoolerConfig::resolve(PoolerFlags {
            model: self.model.as_deref(),
            runner: self.runner,
            convert: self.convert,
            hf_overrides: self.hf_overrides.as_ref(),
            pooler_config: self.pooler_config,
            chat_template: self.chat_template.as_deref(),
        })
    }

    /// The configuration that the core gets; of several, the first.
    pub fn engine_config(&self) -> EngineConfig {
        // What is wrong with it was said before.
        let pooler = self.pooler().ok().flatten();
        EngineConfig {
            model_config: ModelConfig {
                model: match &self.model {
                    Some(path) => ModelSource::Path(path.clone()),
                    None => ModelSource::BuiltIn,
                },
                runner: PoolerConfig::runner(pooler.as_ref()),
                dtype: match self.dtype {
                    DtypeArg::Auto => Dtype::Auto,
                    DtypeArg::Float32 => Dtype::Float32,
                    DtypeArg::Bfloat16 => Dtype::BFloat16,
                    DtypeArg::Float16 => Dtype::Float16,
                },
                quantization: match self.quantization {
                    QuantizationArg::None => Quantization::None,
                    QuantizationArg::Q8_0 => Quantization::Q8_0,
                    QuantizationArg::Q4_0 => Quantization::Q4_0,
                },
                weight_cache: !self.no_weight_cache,
                backend: match (self.device, self.backend) {
                    (DeviceArg::Cuda(ordinal), _) => BackendKind::Cuda(ordinal),
                    (DeviceArg::CudaSimulator, _) => BackendKind::CudaSimulator,
                    (DeviceArg::Cpu, BackendArg::Cpu) => BackendKind::Cpu,
                    (DeviceArg::Cpu, BackendArg::Candle) => BackendKind::Candle,
                },
                max_model_len: (self.max_model_len).or_else(|| pooler?.max_seq_length),
                num_threads: self.threads_of_each(),
                pin_threads: !self.no_pin_threads,
                logprobs_mode: match self.logprobs_mode {
                    LogprobsModeArg::RawLogprobs => LogprobsMode::RawLogprobs,
                    LogprobsModeArg::RawLogits => LogprobsMode::RawLogits,
                    LogprobsModeArg::ProcessedLogprobs => LogprobsMode::ProcessedLogprobs,
                    LogprobsModeArg::ProcessedLogits => LogprobsMode::ProcessedLogits,
                },
                max_logprobs: self.max_logprobs,
            },
            cache_config: CacheConfig {
                block_size: self.block_size,
                num_blocks_override: self.num_blocks_override,
                kv_cache_memory_bytes: self.kv_cache_memory_bytes,
                num_blocks_of_first: None,
                gpu_memory_utilization: self.gpu_memory_utilization,
                cache_dtype: match self.kv_cache_dtype {
                    KvCacheDtypeArg::Auto => KvCacheDtype::Auto,
                    KvCacheDtypeArg::Bf16 => KvCacheDtype::Bf16,
                    KvCacheDtypeArg::Q8 => KvCacheDtype::Q8,
                },
                enable_prefix_caching: !self.no_enable_prefix_caching,
                prefix_caching_hash_algo: self.hash_algo(),
                enable_kv_cache_events: self.kv_events().is_some(),
            },
            parallel_config: self.parallel_config(),
            scheduler_config: self.scheduler_config(),
            structured_outputs_config: self.structured_outputs().core_config(),
            speculative_config: self.speculative_config.clone(),
            shutdown_timeout_seconds: self.shutdown_timeout,
        }
    }
}

/// Reads `--structured-outputs-config`.
fn structured_outputs_config(text: &str) -> Result<StructuredOutputsArgs, String> {
    StructuredOutputsArgs::from_json(text).map_err(|error| error.message)
}

/// Reads `--guided-decoding-backend`.
fn guided_decoding_backend(text: &str) -> Result<String, String> {
    BackendOptions::parse("the backend", text).map_err(|error| error.message)?;
    Ok(text.to_owned())
}

/// Reads `--reasoning-parser`.
fn reasoning_parser(text: &str) -> Result<ReasoningParser, String> {
    text.to_owned().try_into()
}

/// Reads `--override-generation-config`.
fn override_generation_config(text: &str) -> Result<DefaultSamplingParams, String> {
    serde_json::from_str(text).map_err(|error| json_problem(&error))
}

/// Reads `--shutdown-timeout`.
fn shutdown_timeout(text: &str) -> Result<f64, String> {
    number_in(text, |seconds| {
        (0.0..=MAX_SHUTDOWN_TIMEOUT).contains(&seconds)
    })
    .ok_or_else(|| {
        format!("must be a number of seconds between 0 and {MAX_SHUTDOWN_TIMEOUT} (a year)")
    })
}

/// Reads `--block-size`.
fn block_size(text: &str) -> Result<u32, String> {
    let size = text.parse().ok();
    size.filter(|size: &u32| *size > 0 && size.is_multiple_of(16))
        .ok_or_else(|| "must be a multiple of 16".to_owned())
}

/// Reads `--watermark`.
fn watermark(text: &str) -> Result<f64, String> {
    number_in(text, |share| (0.0..1.0).contains(&share))
        .ok_or_else(|| "must be at least 0 and less than 1".to_owned())
}

/// Reads `--gpu-memory-utilization`.
fn gpu_memory_utilization(text: &str) -> Result<f64, String> {
    number_in(text, |share| share > 0.0 && share <= 1.0)
        .ok_or_else(|| "must be more than 0 and at most 1".to_owned())
}

/// The number in `text`, if it is one that will do. NaN is in no range.
fn number_in(text: &str, will_do: impl FnOnce(f64) -> bool) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    will_do(number).then_some(number)
}

/// `--dtype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DtypeArg {
    /// What the checkpoint has
    Auto,
    /// 32-bit weights and activations
    Float32,
    /// bfloat16 weights
    Bfloat16,
    /// Half-precision weights
    #[value(alias = "half")]
    Float16,
}

/// `--kv-cache-dtype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KvCacheDtypeArg {
    /// bfloat16; 32 bits in a float32 model, and in a float16 encoder
    Auto,
    /// bfloat16
    Bf16,
    /// 8 bits, a scale for each head of each token
    Q8,
}

/// `--quantization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuantizationArg {
    /// As --dtype says
    None,
    /// 8 bits per weight
    #[value(name = "q8_0")]
    Q8_0,
    /// 4 bits per weight; embedding and LM head have 8
    #[value(name = "q4_0")]
    Q4_0,
}

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceArg {
    /// The processor.
    Cpu,
    /// The CUDA device of this number.
    Cuda(u32),
    /// The simulator that tests of the CUDA kernels run on.
    CudaSimulator,
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("cuda:")) {
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            ("cuda-simulator", _) => Ok(Self::CudaSimulator),
            (_, Some(ordinal)) => ordinal
                .parse()
                .map(Self::Cuda)
                .map_err(|_| "a GPU is named cuda:N, such as cuda:0".to_owned()),
            (_, None) => Err("must be cpu, cuda or cuda:N".to_owned()),
        }
    }
}

/// `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// Formwork's own kernels
    Cpu,
    /// candle tensors, the reference
    Candle,
}

/// `--scheduling-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// First come, first served
    Fcfs,
    /// Lowest priority number first
    Priority,
}

/// `--logprobs-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LogprobsModeArg {
    /// Log-softmax of the model's logits
    RawLogprobs,
    /// The model's logits
    RawLogits,
    /// Log-softmax after every processor and filter
    ProcessedLogprobs,
    /// Logits after every processor and filter
    ProcessedLogits,
}

/// `--generation-config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GenerationConfigArg {
    /// The model's generation_config.json
    Auto,
    /// vLLM's defaults: temperature 1, no filters
    Vllm,
}

#[cfg(test)]
mod tests;
