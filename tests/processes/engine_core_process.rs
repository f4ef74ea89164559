//! A core that a frontend started: how it begins, works and ends.

use std::path::PathBuf;
use std::time::Duration;

use protocol::{
    BUILD_VERSION, EngineConfig, EngineCoreMessage, EngineCoreRequest, EngineCoreRequestType,
    EngineCoreStartupMessage, EngineHandshakeMetadata, FinishReason, Hello, ModelSource,
    PROTOCOL_VERSION, RequestErrorCode, SamplingParams, UtilityRequest, UtilityResult,
};

use crate::support::{Client, Process, greedy, launch, launch_unconfigured, small_config};

#[test]
fn it_generates_and_says_what_it_runs() {
    let (mut process, mut client, ready) = launch(small_config());
    assert_eq!(ready.model_name, "formwork-builtin");
    assert_eq!(ready.num_blocks, 256);
    assert_eq!(ready.block_size, 16);
    assert_eq!(ready.num_threads, 2);
    client.add("one", greedy(5));
    let (token_ids, reason, last) = client.finish("one");
    assert_eq!(token_ids.len(), 5);
    assert_eq!(reason, FinishReason::Length);
    assert_eq!(last.error, None);

    client.send(&EngineCoreRequestType::Shutdown { drain_seconds: 0.0 });
    assert!(process.wait().success());
}

#[test]
fn tokens_that_were_generated_before_are_not_generated_again() {
    let (_process, mut client, _) = launch(small_config());
    client.add("whole", greedy(12));
    let (whole, _, _) = client.finish("whole");
    client.send(&EngineCoreRequestType::Add(Box::new(EngineCoreRequest {
        request_id: "resumed".to_owned(),
        prompt_token_ids: (100..110).collect(),
        output_token_ids: whole[..7].to_vec(),
        sampling_params: greedy(12),
        ..EngineCoreRequest::default()
    })));
    let (rest, _, _) = client.finish("resumed");
    assert_eq!(rest, whole[7..]);
}

#[test]
fn another_version_is_turned_away() {
    let (mut process, stream) = launch_unconfigured();
    let (reader, writer) = stream.split();
    let mut client = Client { reader, writer };
    let other = Hello {
        protocol_version: PROTOCOL_VERSION + 7,
        build_version: BUILD_VERSION.to_owned(),
    };
    assert_eq!(client.greet(&other), Hello::current());
    assert!(client.message().is_none(), "the core closes the connection");
    assert_eq!(process.wait().code(), Some(1));
}

#[test]
fn the_core_says_both_versions_of_a_mismatch_in_its_log() {
    let address = protocol::transport::PrivateAddress::new().unwrap();
    let listener = protocol::transport::Listener::bind(address.path()).unwrap();
    let mut command = integration_tests::formwork_engine_core();
    let command = command
        .arg("--connect")
        .arg(address.path())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let (reader, mut writer) = listener.accept().unwrap().split();
    let other = Hello {
        protocol_version: PROTOCOL_VERSION,
        build_version: "9.9.9".to_owned(),
    };
    writer.write(&other).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(reader);
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains(&other.to_string()), "{log}");
    assert!(log.contains(&Hello::current().to_string()), "{log}");
}

/// The message with which the core refuses `model`.
fn startup_failure(model: PathBuf) -> String {
    let mut config = small_config();
    config.model_config.model = ModelSource::Path(model);
    refusal(config)
}

/// The message with which the core refuses to start.
fn refusal(config: EngineConfig) -> String {
    let (mut process, stream) = launch_unconfigured();
    let (reader, writer) = stream.split();
    let mut client = Client { reader, writer };
    client.greet(&Hello::current());
    client
        .writer
        .write(&EngineHandshakeMetadata {
            config: Some(config),
        })
        .unwrap();
    let EngineCoreStartupMessage::Failure(failure) = client.startup_message() else {
        panic!("it started");
    };
    assert_eq!(process.wait().code(), Some(1));
    failure.message
}

#[test]
fn a_model_that_cannot_be_loaded_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let message = startup_failure(missing.clone());
    assert!(
        message.contains(&missing.display().to_string()),
        "{message}"
    );

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let message = startup_failure(file);
    assert!(message.contains("not a GGUF file"), "{message}");

    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let message = startup_failure(empty.clone());
    assert!(message.contains("config.json"), "{message}");

    std::fs::write(empty.join("config.json"), "{").unwrap();
    let message = startup_failure(empty);
    assert!(message.contains("config.json"), "{message}");
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in builtin_model::FILES {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let tokenizer = std::fs::read_to_string(folder.path().join("tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    tokenizer["added_tokens"]
        .as_array_mut()
        .unwrap()
        .push(serde_json::json!({
            "id": 70_000, "content": "<|far|>", "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false
        }));
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let message = startup_failure(folder.path().to_owned());
    // The tokenizer numbers the token by itself: the first id that the model doesn't have.
    assert!(
        message.contains("ids up to 4096") && message.contains("vocab_size is 4096"),
        "{message}"
    );
}

#[test]
fn a_cut_off_weight_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in builtin_model::FILES {
        let end = if *name == "model.safetensors" {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        std::fs::write(folder.path().join(name), &bytes[..end]).unwrap();
    }
    let message = startup_failure(folder.path().to_owned());
    assert!(message.contains("model.safetensors"), "{message}");
}

#[test]
fn the_frontends_end_is_the_cores_end() {
    let (mut process, mut client, _) = launch(small_config());
    client.add("long", greedy(1000));
    client.outputs();
    drop(client);
    assert!(process.wait().success());
}

#[test]
fn the_frontends_end_is_noticed_while_the_model_loads() {
    let (mut process, stream) = launch_unconfigured();
    let (reader, writer) = stream.split();
    let mut client = Client { reader, writer };
    client.greet(&Hello::current());
    let config = Some(small_config());
    client
        .writer
        .write(&EngineHandshakeMetadata { config })
        .unwrap();
    drop(client);
    assert!(process.wait().success());
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let (mut process, mut client, _) = launch(small_config());
    // Every answer to these is a frame of its own, and none is read.
    let call = EngineCoreRequestType::Utility(UtilityRequest {
        client_index: 0,
        call_id: 1,
        method: "no_such_method".repeat(4),
        args: "[]".to_owned(),
    });
    while client.writer.write(&call).is_ok() {}
    assert!(
        process.wait().success(),
        "an owner that is dropped is the end"
    );
}

#[test]
fn an_undecodable_frame_ends_the_connection_and_with_it_the_core() {
    let (mut process, mut client, _) = launch(small_config());
    // A frame whose body is no message of this direction.
    client.writer.write(&"x".repeat(1000)).unwrap();
    assert!(process.wait().success());
    while let Some(EngineCoreMessage::Outputs(_)) = client.message() {}
}

#[test]
fn sigterm_drains_when_there_is_time_to() {
    let mut config = small_config();
    config.shutdown_timeout_seconds = 100.0;
    let (mut process, mut client, _) = launch(config);
    client.add("running", greedy(200));
    let mut token_ids: Vec<u32> = client.outputs().remove(0).new_token_ids;
    process.signal(libc::SIGTERM);
    let (rest, reason, _) = client.finish("running");
    token_ids.extend(rest);
    assert_eq!((token_ids.len(), reason), (200, FinishReason::Length));
    assert!(process.wait().success());
    while let Some(EngineCoreMessage::Outputs(_)) = client.message() {}
}

#[test]
fn sigterm_without_time_aborts() {
    let (mut process, mut client, _) = launch(small_config());
    client.add("running", greedy(1000));
    client.outputs();
    process.signal(libc::SIGTERM);
    let (_, reason, _) = client.finish("running");
    assert_eq!(reason, FinishReason::Abort);
    assert!(process.wait().success());
    let mut dead = None;
    while let Some(message) = client.message() {
        dead = Some(message);
    }
    let Some(EngineCoreMessage::EngineDead(dead)) = dead else {
        panic!("{dead:?}");
    };
    assert!(dead.reason.contains("signal"), "{dead:?}");
}

#[test]
fn limits_beyond_the_machine_are_refused_before_anything_is_allocated() {
    let mut blocks = small_config();
    blocks.cache_config.num_blocks_override = Some(u32::MAX);
    let mut bytes = small_config();
    bytes.cache_config.num_blocks_override = None;
    bytes.cache_config.kv_cache_memory_bytes = Some(u64::MAX);
    let mut seqs = small_config();
    seqs.scheduler_config.max_num_seqs = u32::MAX;
    seqs.scheduler_config.max_num_batched_tokens = u32::MAX;
    let mut threads = small_config();
    threads.model_config.num_threads = Some(100_000);
    for (config, word) in [
        (blocks, "num_blocks_override"),
        (bytes, "kv_cache_memory_bytes"),
        (seqs, "max_num_seqs"),
        (threads, "num_threads"),
    ] {
        let message = refusal(config);
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn while_draining_new_requests_are_turned_away() {
    let (mut process, mut client, _) = launch(small_config());
    client.add("running", greedy(300));
    client.outputs();
    client.send(&EngineCoreRequestType::Shutdown {
        drain_seconds: 100.0,
    });
    client.add("late", greedy(5));
    let mut late = None;
    let mut running = None;
    while late.is_none() || running.is_none() {
        for output in client.outputs() {
            match (output.request_id.as_str(), output.finish_reason) {
                ("late", Some(reason)) => late = Some((reason, output.error)),
                ("running", Some(reason)) => running = Some(reason),
                _ => {}
            }
        }
    }
    let (reason, error) = late.unwrap();
    assert_eq!(reason, FinishReason::Abort);
    assert_eq!(error.unwrap().code, RequestErrorCode::ShuttingDown);
    assert_eq!(running, Some(FinishReason::Length));
    assert!(process.wait().success());
}

#[test]
fn a_request_that_would_break_the_core_is_refused_alone() {
    let (_process, mut client, ready) = launch(small_config());
    client.add("neighbour", greedy(50));
    let add = |prompt: Vec<u32>, params: SamplingParams| {
        EngineCoreRequestType::Add(Box::new(EngineCoreRequest {
            request_id: "bad".to_owned(),
            prompt_token_ids: prompt.into(),
            sampling_params: params,
            ..EngineCoreRequest::default()
        }))
    };
    let too_long = vec![1; ready.max_model_len as usize];
    let bad_bias = SamplingParams {
        logit_bias: vec![(u32::MAX, 1.0)].into(),
        ..greedy(1)
    };
    let bad_temperature = SamplingParams {
        temperature: f32::NAN,
        ..greedy(1)
    };
    for (message, word) in [
        (add(Vec::new(), greedy(1)), "prompt_token_ids"),
        (add(vec![ready.vocab_size], greedy(1)), "prompt_token_ids"),
        (add(too_long, greedy(1)), "prompt_token_ids"),
        (add(vec![1], bad_bias), "logit_bias"),
        (add(vec![1], bad_temperature), "temperature"),
    ] {
        client.send(&message);
        let (_, reason, last) = client.finish("bad");
        assert_eq!(reason, FinishReason::Error);
        let error = last.error.unwrap();
        assert_eq!(error.code, RequestErrorCode::ValidationError);
        assert!(error.message.contains(word), "{error:?}");
    }
    client.add("after", greedy(3));
    assert_eq!(client.finish("after").0.len(), 3);
}

#[test]
fn utilities_answer_and_unknown_ones_fail_alone() {
    let (_process, mut client, _) = launch(small_config());
    let mut call = |method: &str, args: &str| {
        client.send(&EngineCoreRequestType::Utility(UtilityRequest {
            client_index: 0,
            call_id: 7,
            method: method.to_owned(),
            args: args.to_owned(),
        }));
        loop {
            let Some(EngineCoreMessage::Outputs(outputs)) = client.message() else {
                panic!("the core is gone");
            };
            if let Some(output) = outputs.utility_output {
                assert_eq!(output.call_id, 7);
                return output.result;
            }
        }
    };
    let success = |json: &str| UtilityResult::Success(json.to_owned());
    assert_eq!(call("reset_prefix_cache", "[]"), success("true"));
    assert_eq!(call("is_scheduler_paused", "[]"), success("false"));
    assert_eq!(call("pause_scheduler", "[\"keep\"]"), success("null"));
    assert_eq!(call("is_scheduler_paused", "[]"), success("true"));
    // The loop notes it before it sleeps.
    let paused = |heartbeat| match heartbeat {
        UtilityResult::Success(state) => state.contains("\"paused\":true"),
        UtilityResult::Failure(reason) => panic!("{reason}"),
    };
    while !paused(call("heartbeat", "[]")) {}
    assert_eq!(call("resume_scheduler", "[]"), success("null"));
    assert_eq!(call("is_scheduler_paused", "[]"), success("false"));
    assert_eq!(
        call("pause_scheduler", "[\"abort\", true]"),
        success("null")
    );
    assert_eq!(call("resume_scheduler", "[]"), success("null"));
    assert_eq!(call("get_supported_tasks", "[]"), success("[\"generate\"]"));
    for (method, args) in [
        ("no_such_method", "[]"),
        ("pause_scheduler", "[\"sometimes\"]"),
        ("pause_scheduler", "[\"keep\", 1]"),
        ("pause_scheduler", "[]"),
        ("reset_prefix_cache", "[1]"),
        ("reset_prefix_cache", "{"),
    ] {
        let UtilityResult::Failure(reason) = call(method, args) else {
            panic!("{method}({args}) succeeded");
        };
        assert!(
            reason.starts_with(&format!("Call to {method} method failed: ")),
            "{reason}"
        );
    }
    let UtilityResult::Success(heartbeat) = call("heartbeat", "[]") else {
        panic!("no heartbeat");
    };
    assert!(heartbeat.contains("\"runnable\":false"), "{heartbeat}");
    assert!(heartbeat.contains("\"paused\":false"), "{heartbeat}");
}

#[test]
fn pausing_by_abort_ends_what_is_in_flight() {
    let (_process, mut client, _) = launch(small_config());
    client.add("running", greedy(1000));
    client.outputs();
    client.send(&EngineCoreRequestType::Utility(UtilityRequest {
        client_index: 0,
        call_id: 1,
        method: "pause_scheduler".to_owned(),
        args: "[\"abort\", true]".to_owned(),
    }));
    assert_eq!(client.finish("running").1, FinishReason::Abort);
}

#[test]
fn few_blocks_mean_preemptions_and_the_same_tokens() {
    let (_process, mut roomy, _) = launch(small_config());
    let mut config = small_config();
    config.cache_config.num_blocks_override = Some(9);
    config.model_config.max_model_len = Some(128);
    let (_other, mut tight, _) = launch(config);
    let ids = ["a", "b", "c", "d"];
    let mut runs = Vec::new();
    for client in [&mut roomy, &mut tight] {
        for id in ids {
            client.add(id, greedy(60));
        }
        let mut token_ids = std::collections::BTreeMap::<String, Vec<u32>>::new();
        let (mut num_finished, mut num_preempted) = (0, 0);
        while num_finished < ids.len() {
            let Some(EngineCoreMessage::Outputs(outputs)) = client.message() else {
                panic!("the core is gone");
            };
            let stats = outputs.scheduler_stats.unwrap_or_default();
            num_preempted += stats.num_preempted_reqs;
            for output in outputs.outputs {
                token_ids
                    .entry(output.request_id)
                    .or_default()
                    .extend(output.new_token_ids);
                num_finished += usize::from(output.finish_reason.is_some());
            }
        }
        runs.push((token_ids, num_preempted));
    }
    assert_eq!(runs[0].0, runs[1].0);
    assert_eq!(runs[0].1, 0);
    assert!(
        runs[1].1 > 0,
        "4 requests of 70 tokens don't fit into 8 blocks"
    );
}

#[test]
fn an_idle_core_sleeps() {
    let (process, mut client, _) = launch(small_config());
    client.add("one", greedy(3));
    client.finish("one");
    // On a busy machine the last step's threads take their time to come to rest. One that polls
    // never does.
    for _ in 0..40 {
        let before = context_switches(&process);
        std::thread::sleep(Duration::from_secs(2));
        if context_switches(&process) == before {
            return;
        }
    }
    panic!("something polls");
}

/// How often any thread of the process went to sleep.
fn context_switches(process: &Process) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.0.id())).unwrap();
    let switches = tasks.map(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    });
    switches.sum()
}
