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
