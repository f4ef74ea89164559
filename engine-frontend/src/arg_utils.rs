//! The engine's command-line flags, shared by every executable that starts an engine.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use protocol::{
    BackendKind, CacheConfig, Dtype, EngineConfig, LogprobsMode, ModelConfig, ModelSource,
    SchedulerConfig, SchedulingPolicy,
};

/// What to run and with which limits: vLLM's flags, as far as they apply here.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Hugging Face model folder; the built-in model where absent
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Number format of the weights
    #[arg(long, value_enum, default_value_t = DtypeArg::Auto)]
    pub dtype: DtypeArg,
    /// What executes the model
    #[arg(long, value_enum, default_value_t = BackendArg::Cpu)]
    pub backend: BackendArg,
    /// Longest sequence, prompt and output together; what the model was made for where absent
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_model_len: Option<u32>,
    /// Most requests that run at the same time
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_num_seqs: u32,
    /// Most tokens of one step, over all requests
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_num_batched_tokens: u32,
    /// Most tokens of one prompt per step while others run; 0 is off
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub long_prefill_token_threshold: u32,
    /// Share the KV blocks of equal prefixes (the default)
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_enable_prefix_caching")]
    pub enable_prefix_caching: bool,
    /// Don't share the KV blocks of equal prefixes
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "enable_prefix_caching")]
    pub no_enable_prefix_caching: bool,
    /// Compute long prompts in pieces (the default)
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_enable_chunked_prefill")]
    pub enable_chunked_prefill: bool,
    /// Compute every prompt in one step
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "enable_chunked_prefill")]
    pub no_enable_chunked_prefill: bool,
    /// Tokens per KV block
    #[arg(long, value_name = "TOKENS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub block_size: u32,
    /// KV blocks, instead of as many as the memory holds
    #[arg(long, alias = "num-gpu-blocks-override", value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub num_blocks_override: Option<u32>,
    /// Memory for keys and values in bytes; chosen from what is free where absent
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub kv_cache_memory_bytes: Option<u64>,
    /// Which waiting request is next
    #[arg(long, value_enum, default_value_t = PolicyArg::Fcfs)]
    pub scheduling_policy: PolicyArg,
    /// Most logprobs per token that a request may ask for; -1 is no limit
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1..))]
    pub max_logprobs: i32,
    /// What logprobs are: before or after penalties and filters, normalised or not
    #[arg(long, value_enum, default_value_t = LogprobsModeArg::RawLogprobs)]
    pub logprobs_mode: LogprobsModeArg,
    /// Compute threads; one per available core where absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Seed for requests that bring none of their own
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Seconds that requests in flight may take to finish when the core gets SIGTERM; 0 aborts
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub shutdown_timeout: f64,
    /// The engine core's executable; the one beside this executable where absent
    #[arg(long, value_name = "PATH")]
    pub engine_core: Option<PathBuf>,
    /// Use a core that was started by hand and listens at this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "engine_core")]
    pub engine_core_address: Option<String>,
    /// Where default sampling parameters come from
    #[arg(long, value_enum, default_value_t = GenerationConfigArg::Auto)]
    pub generation_config: GenerationConfigArg,
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            model: None,
            dtype: DtypeArg::Auto,
            backend: BackendArg::Cpu,
            max_model_len: None,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            long_prefill_token_threshold: 0,
            enable_prefix_caching: false,
            no_enable_prefix_caching: false,
            enable_chunked_prefill: false,
            no_enable_chunked_prefill: false,
            block_size: 16,
            num_blocks_override: None,
            kv_cache_memory_bytes: None,
            scheduling_policy: PolicyArg::Fcfs,
            max_logprobs: 20,
            logprobs_mode: LogprobsModeArg::RawLogprobs,
            threads: None,
            seed: None,
            shutdown_timeout: 0.0,
            engine_core: None,
            engine_core_address: None,
            generation_config: GenerationConfigArg::Auto,
        }
    }
}

impl EngineArgs {
    /// Arguments for a model folder, everything else at its default.
    pub fn for_model(model: impl AsRef<Path>) -> Self {
        Self {
            model: Some(model.as_ref().to_owned()),
            ..Self::default()
        }
    }

    /// The configuration that the core gets.
    pub fn engine_config(&self) -> EngineConfig {
        EngineConfig {
            model_config: ModelConfig {
                model: match &self.model {
                    Some(path) => ModelSource::Path(path.clone()),
                    None => ModelSource::BuiltIn,
                },
                dtype: match self.dtype {
                    DtypeArg::Auto => Dtype::Auto,
                    DtypeArg::Float32 => Dtype::Float32,
                    DtypeArg::Bfloat16 => Dtype::BFloat16,
                },
                backend: match self.backend {
                    BackendArg::Cpu => BackendKind::Cpu,
                    BackendArg::Candle => BackendKind::Candle,
                },
                max_model_len: self.max_model_len,
                num_threads: self.threads,
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
                enable_prefix_caching: !self.no_enable_prefix_caching,
            },
            scheduler_config: SchedulerConfig {
                max_num_batched_tokens: self.max_num_batched_tokens,
                max_num_seqs: self.max_num_seqs,
                long_prefill_token_threshold: self.long_prefill_token_threshold,
                enable_chunked_prefill: !self.no_enable_chunked_prefill,
                policy: match self.scheduling_policy {
                    PolicyArg::Fcfs => SchedulingPolicy::Fcfs,
                    PolicyArg::Priority => SchedulingPolicy::Priority,
                },
                ..SchedulerConfig::default()
            },
            shutdown_timeout_seconds: self.shutdown_timeout,
        }
    }
}

/// `--dtype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DtypeArg {
    /// What the checkpoint has (16-bit floats as bfloat16)
    Auto,
    /// 32-bit weights and activations
    Float32,
    /// bfloat16 weights
    Bfloat16,
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
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn parse(args: &[&str]) -> Result<EngineArgs, clap::Error> {
        Cli::try_parse_from([&["x"], args].concat()).map(|cli| cli.engine)
    }

    #[test]
    fn the_command_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_flags_is_the_default_of_every_layer() {
        assert_eq!(parse(&[]).unwrap(), EngineArgs::default());
        assert_eq!(
            EngineArgs::default().engine_config(),
            EngineConfig::default()
        );
    }

    #[test]
    fn every_flag_reaches_the_configuration() {
        let config = parse(&[
            "--model=m",
            "--dtype=float32",
            "--backend=candle",
            "--max-model-len=128",
            "--max-num-seqs=3",
            "--max-num-batched-tokens=64",
            "--long-prefill-token-threshold=5",
            "--no-enable-prefix-caching",
            "--no-enable-chunked-prefill",
            "--block-size=32",
            "--num-gpu-blocks-override=99",
            "--kv-cache-memory-bytes=1000",
            "--scheduling-policy=priority",
            "--max-logprobs=-1",
            "--logprobs-mode=processed_logits",
            "--threads=2",
            "--shutdown-timeout=3",
        ])
        .unwrap()
        .engine_config();
        let expected = EngineConfig {
            model_config: ModelConfig {
                model: ModelSource::Path("m".into()),
                dtype: Dtype::Float32,
                backend: BackendKind::Candle,
                max_model_len: Some(128),
                num_threads: Some(2),
                logprobs_mode: LogprobsMode::ProcessedLogits,
                max_logprobs: -1,
            },
            cache_config: CacheConfig {
                block_size: 32,
                num_blocks_override: Some(99),
                kv_cache_memory_bytes: Some(1000),
                enable_prefix_caching: false,
            },
            scheduler_config: SchedulerConfig {
                max_num_batched_tokens: 64,
                max_num_seqs: 3,
                long_prefill_token_threshold: 5,
                enable_chunked_prefill: false,
                policy: SchedulingPolicy::Priority,
                ..SchedulerConfig::default()
            },
            shutdown_timeout_seconds: 3.0,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn the_last_of_a_flag_and_its_opposite_wins() {
        let on = parse(&["--no-enable-prefix-caching", "--enable-prefix-caching"]).unwrap();
        assert!(on.engine_config().cache_config.enable_prefix_caching);
        let off = parse(&["--enable-prefix-caching", "--no-enable-prefix-caching"]).unwrap();
        assert!(!off.engine_config().cache_config.enable_prefix_caching);
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for args in [
            &["--max-num-seqs=0"][..],
            &["--dtype=int3"],
            &["--max-model-len=0"],
            &["--num-blocks-override=1"],
            &["--max-logprobs=-2"],
            &["--engine-core=a", "--engine-core-address=b"],
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
    }
}
