use clap::{CommandFactory, Parser};
use protocol::{
    JumpForward, ParallelConfig, PrefixCachingHashAlgo, SchedulerConfig, SchedulingPolicy,
    StructuredOutputsConfig,
};

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
    let mut config = EngineConfig::default();
    // On a processor.
    config.scheduler_config.max_num_batched_tokens = 512;
    assert_eq!(EngineArgs::default().engine_config(), config);
}

#[test]
fn every_flag_reaches_the_configuration() {
    let config = parse(&[
        "--model=m",
        "--dtype=float32",
        "--quantization=q4_0",
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
        "--gpu-memory-utilization=0.5",
        "--kv-cache-dtype=q8",
        "--scheduling-policy=priority",
        "--max-logprobs=-1",
        "--logprobs-mode=processed_logits",
        "--threads=2",
        "--no-pin-threads",
        "--no-weight-cache",
        "--watermark=0.25",
        "--max-num-queued-reqs=7",
        "--max-num-queued-tokens=8",
        "--shutdown-timeout=3",
        r#"--structured-outputs-config={"jump_forward": "off", "disable_any_whitespace": true}"#,
        r#"--speculative-config={"method": "ngram", "num_speculative_tokens": 5}"#,
    ])
    .unwrap()
    .engine_config();
    let expected = EngineConfig {
        model_config: ModelConfig {
            model: ModelSource::Path("m".into()),
            runner: protocol::RunnerType::Generate,
            dtype: Dtype::Float32,
            quantization: protocol::Quantization::Q4_0,
            weight_cache: false,
            backend: BackendKind::Candle,
            max_model_len: Some(128),
            num_threads: Some(2),
            pin_threads: false,
            logprobs_mode: LogprobsMode::ProcessedLogits,
            max_logprobs: -1,
        },
        cache_config: CacheConfig {
            block_size: 32,
            num_blocks_override: Some(99),
            num_blocks_of_first: None,
            kv_cache_memory_bytes: Some(1000),
            gpu_memory_utilization: 0.5,
            cache_dtype: protocol::KvCacheDtype::Q8,
            enable_prefix_caching: false,
            prefix_caching_hash_algo: PrefixCachingHashAlgo::Blake3,
            enable_kv_cache_events: false,
        },
        parallel_config: ParallelConfig::default(),
        scheduler_config: SchedulerConfig {
            max_num_batched_tokens: 64,
            max_num_seqs: 3,
            long_prefill_token_threshold: 5,
            enable_chunked_prefill: false,
            policy: SchedulingPolicy::Priority,
            watermark: 0.25,
            max_num_queued_reqs: Some(7),
            max_num_queued_tokens: Some(8),
            ..SchedulerConfig::default()
        },
        shutdown_timeout_seconds: 3.0,
        structured_outputs_config: StructuredOutputsConfig {
            jump_forward: JumpForward::Off,
            ..StructuredOutputsConfig::default()
        },
        speculative_config: Some(SpeculativeConfig {
            num_speculative_tokens: 5,
            ..SpeculativeConfig::default()
        }),
    };
    assert_eq!(config, expected);
}

#[test]
fn a_device_is_named_as_in_torch() {
    let backend = |flags: &[&str]| {
        let args = parse(flags).map_err(|error| error.to_string())?;
        Ok::<_, String>(args.engine_config().model_config.backend)
    };
    assert_eq!(backend(&["--device=cpu"]), Ok(BackendKind::Cpu));
    assert_eq!(backend(&["--device=cuda"]), Ok(BackendKind::Cuda(0)));
    assert_eq!(backend(&["--device", "cuda:3"]), Ok(BackendKind::Cuda(3)));
    let refused = |flags: &[&str]| backend(flags).unwrap_err();
    assert!(refused(&["--device=cuda:x"]).contains("cuda:N, such as cuda:0"));
    assert!(refused(&["--device=gpu"]).contains("must be cpu, cuda or cuda:N"));
    assert!(refused(&["--device=cuda", "--backend=candle"]).contains("cannot be used with"));
    assert!(refused(&["--gpu-memory-utilization=1.5"]).contains("at most 1"));
    assert!(refused(&["--gpu-memory-utilization=0"]).contains("more than 0"));
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
        &["--quantization=q5_0"],
        &["--kv-cache-dtype=q4"],
        &["--max-model-len=0"],
        &["--num-blocks-override=1"],
        &["--max-logprobs=-2"],
        &["--engine-core=a", "--engine-core-address=b"],
        &["--watermark=1"],
        &["--watermark=nan"],
        &["--watermark", "-0.1"],
        &["--max-num-queued-reqs=0"],
        &["--max-num-queued-tokens=0"],
        &["--threads=0"],
        &["--threads=1025"],
        &["--max-num-seqs=65537"],
        &["--max-num-batched-tokens=0"],
        &["--max-num-batched-tokens=1048577"],
        &["--block-size=0"],
        &["--block-size=8"],
        &["--block-size=24"],
        &["--block-size=x"],
    ] {
        assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
    }
}

#[test]
fn a_small_step_has_few_requests() {
    let max_num_seqs = |args: &[&str]| {
        let config = parse(args).unwrap().engine_config();
        config.scheduler_config.max_num_seqs
    };
    assert_eq!(max_num_seqs(&["--max-num-batched-tokens=64"]), 64);
    assert_eq!(max_num_seqs(&["--max-num-batched-tokens=4096"]), 256);
    // What is asked for is left to the core to refuse.
    let both = ["--max-num-batched-tokens=64", "--max-num-seqs=100"];
    assert_eq!(max_num_seqs(&both), 100);
}

#[test]
fn shutdown_timeouts_are_finite_and_at_most_a_year() {
    for good in ["0", "0.5", "31536000"] {
        let args = parse(&["--shutdown-timeout", good]).unwrap();
        assert_eq!(args.shutdown_timeout.to_string(), good);
    }
    for bad in ["-1", "NaN", "inf", "-inf", "1e300", "31536001", "soon", ""] {
        let error = parse(&[&format!("--shutdown-timeout={bad}")]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let message = error.to_string();
        assert!(
            message.contains("--shutdown-timeout") && message.contains("between 0 and 31536000"),
            "{message}"
        );
    }
}

#[test]
fn what_a_shared_core_decides_is_refused_with_its_address() {
    for flag in [
        "--dtype=auto",
        "--quantization=none",
        "--backend=cpu",
        "--max-model-len=64",
        "--max-num-seqs=256",
        "--max-num-batched-tokens=64",
        "--long-prefill-token-threshold=0",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--enable-chunked-prefill",
        "--no-enable-chunked-prefill",
        "--block-size=16",
        "--num-blocks-override=9",
        "--kv-cache-memory-bytes=1000",
        "--watermark=0",
        "--max-num-queued-reqs=5",
        "--max-num-queued-tokens=5",
        "--scheduling-policy=fcfs",
        "--max-logprobs=20",
        "--logprobs-mode=raw_logits",
        "--threads=1",
        "--shutdown-timeout=0",
        "--engine-core=x",
        "--speculative-config={}",
    ] {
        let error = parse(&["--engine-core-address=a", flag]).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{flag}");
        let name = flag.split('=').next().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
    // What the frontend decides stays.
    for flag in ["--model=m", "--seed=1", "--generation-config=vllm"] {
        assert!(parse(&["--engine-core-address=a", flag]).is_ok(), "{flag}");
    }
}

#[test]
fn every_flag_is_the_cores_or_known_as_the_frontends() {
    let command = Cli::command();
    let others: Vec<&str> = command
        .get_arguments()
        .map(|arg| arg.get_id().as_str())
        .filter(|id| !DECIDED_BY_THE_CORE.contains(id))
        .collect();
    let frontends = [
        "model",
        // A core that was started by hand is compared with them.
        "runner",
        "convert",
        "pooler_config",
        "hf_overrides",
        "seed",
        // The server confines itself too.
        "no_sandbox",
        "engine_core_address",
        // The core's part of it is refused by `verify`.
        "structured_outputs_config",
        "guided_decoding_backend",
        "generation_config",
        "override_generation_config",
        "chat_template",
        "reasoning_parser",
    ];
    assert_eq!(others, frontends);
}

#[test]
fn backends_of_other_engines_are_accepted_under_both_flags() {
    let older = parse(&["--guided-decoding-backend=outlines-dev/outlines"]).unwrap();
    let newer = parse(&[r#"--structured-outputs-config={"backend": "xgrammar:no-fallback"}"#]);
    for args in [older, newer.unwrap()] {
        assert!(args.verify().is_ok());
        assert!(args.structured_outputs().backend.is_some());
    }
    for wrong in [
        "--guided-decoding-backend=best",
        r#"--structured-outputs-config={"backend": "best"}"#,
        r#"--structured-outputs-config={"backnd": "auto"}"#,
        r#"--speculative-config={"method": "eagle"}"#,
        r#"--speculative-config={"num_speculative_tokens": 0}"#,
        r#"--speculative-config={"num_speculative_tokens": 32}"#,
        r#"--speculative-config={"prompt_lookup_min": 3, "prompt_lookup_max": 2}"#,
    ] {
        let error = parse(&[wrong]).unwrap_err();
        let flag = wrong.split_once('=').unwrap().0;
        assert!(error.to_string().contains(flag), "{error}");
    }
}

#[test]
fn settings_that_nobody_would_heed_are_refused() {
    let config = r#"--structured-outputs-config={"backend": "auto", "compile_threads": 1}"#;
    let twice = parse(&[config, "--guided-decoding-backend=auto"]).unwrap();
    assert!(twice.verify().unwrap_err().message.contains("both name"));
    let core = parse(&[config, "--engine-core-address=a"]).unwrap();
    let error = core.verify().unwrap_err();
    assert!(
        error.message.contains("compile_threads is decided"),
        "{error}"
    );
}

#[test]
fn cores_share_out_threads_and_gpus() {
    let config = |flags: &[&str], rank| parse(flags).unwrap().engine_config_of(rank);
    let cores = ["--data-parallel-size=3", "--threads=8"];
    let second = config(&cores, 1);
    let expected = ParallelConfig {
        data_parallel_size: 3,
        data_parallel_rank: 1,
    };
    assert_eq!(second.parallel_config, expected);
    assert_eq!(second.model_config.num_threads, Some(2));
    assert_eq!(config(&cores[..1], 2).model_config.num_threads, None);
    let gpus = ["--data-parallel-size=3", "--device=cuda:4"];
    let backends = [0, 1, 2].map(|rank| config(&gpus, rank).model_config.backend);
    assert_eq!(backends, [4, 5, 6].map(BackendKind::Cuda));
    // All else is the first's.
    let mut first = config(&cores, 0);
    first.parallel_config.data_parallel_rank = 1;
    assert_eq!(second, first);
}

#[test]
fn steps_on_processors_are_small_and_have_room_for_prompts() {
    let tokens = |flags: &[&str]| {
        let config = parse(flags).unwrap().engine_config().scheduler_config;
        (config.max_num_batched_tokens, config.max_num_seqs)
    };
    assert_eq!(tokens(&[]), (512, 256));
    assert_eq!(tokens(&["--data-parallel-size=2"]), (512, 256));
    assert_eq!(tokens(&["--max-num-seqs=8"]), (512, 8));
    // Each request needs one of them, and prompts the rest.
    assert_eq!(tokens(&["--max-num-seqs=1500"]), (1756, 1500));
    assert_eq!(tokens(&["--max-num-seqs=2000"]), (2048, 2000));
    // Without chunks a prompt is in one step.
    assert_eq!(tokens(&["--no-enable-chunked-prefill"]), (2048, 256));
    assert_eq!(tokens(&["--device=cuda:0"]), (2048, 256));
    let asked = |number| format!("--max-num-batched-tokens={number}");
    assert_eq!(tokens(&[&asked(4096)]), (4096, 256));
    assert_eq!(tokens(&[&asked(100)]), (100, 100));
}

#[test]
fn more_cores_than_processors_or_threads_are_refused() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let verify = |args: EngineArgs| args.verify().map_err(|error| error.to_string());
    let cores = |data_parallel_size| EngineArgs {
        data_parallel_size,
        ..EngineArgs::default()
    };
    assert_eq!(verify(cores(1)), Ok(()));
    assert_eq!(verify(cores(processors as u32)), Ok(()));
    let too_many = processors as u32 + 1;
    assert_eq!(
        verify(cores(too_many)).unwrap_err(),
        format!(
            "--data-parallel-size: {too_many} cores need a processor each, and this process may use {processors}; it \
             must be at most {processors}"
        )
    );
    let error = verify(cores(0)).unwrap_err();
    assert!(error.ends_with("it must be at least 1"), "{error}");
    assert!(parse(&["--data-parallel-size=0"]).is_err());
    let both = ["--data-parallel-size=2", "--engine-core-address=/core.sock"];
    assert!(parse(&both).is_err());
    if processors < 2 {
        return;
    }
    let mut args = cores(2);
    args.threads = Some(1);
    assert_eq!(
        verify(args).unwrap_err(),
        "--data-parallel-size: 2 cores share out 1 compute threads (--threads), and each needs one; it must be at \
         most 1, or --threads at least 2"
    );
    let mut args = cores(2);
    args.engine_core_address = Some("/core.sock".to_owned());
    let error = verify(args).unwrap_err();
    assert!(error.contains("--engine-core-address"), "{error}");
}
