//! `--data-parallel-size`: two engine cores behind one server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use integration_tests::{executables, workspace};
use serde_json::{Value, json};

use super::access::start_managed;
use super::client::{Answer, Pending, start};
use super::support::{
    Server, builtin_model_with_context, chat, children, eventually, formwork, long_stream, signal,
    streamed_text,
};
use crate::batch::Batch;
use crate::support::Process;

#[path = "../../../engine-core/tests/random_checkpoint/mod.rs"]
mod random_checkpoint;

use random_checkpoint::RandomCheckpoint;

const CHAT: &str = "/v1/chat/completions";
const TWO: [&str; 4] = ["--data-parallel-size", "2", "--threads", "2"];

/// True if two cores have a processor each. Where tests must run they have.
pub(super) fn has_two_processors() -> bool {
    let has_two = std::thread::available_parallelism().is_ok_and(|count| count.get() >= 2);
    let must_run = std::env::var("CI").as_deref() == Ok("true");
    assert!(
        has_two || !must_run,
        "CI must run every case: it needs two processors"
    );
    if !has_two {
        eprintln!("skipped: this machine has one processor");
    }
    has_two
}

/// Streams of different lengths, half of them sampled, every fourth constrained.
fn questions(count: usize) -> Vec<Value> {
    let question = |i: usize| {
        let mut body = long_stream(&format!("Number {i}: tell me about stone and water."), 40);
        body["max_tokens"] = json!(40 + i % 50);
        if i % 2 == 1 {
            body["temperature"] = json!(0.9);
            body["seed"] = json!(i);
        }
        if i.is_multiple_of(4) {
            body["guided_regex"] = json!("([a-z]{5} ){30}");
            body["ignore_eos"] = json!(false);
            body["max_tokens"] = json!(400);
        }
        body
    };
    (0..count).map(question).collect()
}

/// Asks everything at once; `meanwhile` runs when every stream has begun.
fn ask_all(server: &Server, questions: &[Value], meanwhile: impl FnOnce()) -> Vec<String> {
    let mut pending: Vec<Pending> = questions.iter().map(|q| server.begin(CHAT, q)).collect();
    for stream in &mut pending {
        assert_eq!(stream.stream().peek(&mut [0]).unwrap(), 1);
    }
    meanwhile();
    let answers = pending.into_iter().map(Pending::finish);
    answers
        .map(|answer: Answer| streamed_text(&answer))
        .collect()
}

/// The values of a metric, by the engine core's number.
fn of_engines(address: &str, name: &str) -> Vec<f64> {
    let text = start(address, "GET", "/metrics", "", b"").finish().body;
    (0..)
        .map_while(|engine| {
            let label = format!("engine=\"{engine}\"}} ");
            let mut lines = text.lines().filter(|line| line.starts_with(name));
            let line = lines.find(|line| line.contains(&label))?;
            line.rsplit(' ').next()?.parse().ok()
        })
        .collect()
}

fn cores(server: &Server) -> Vec<i32> {
    let mut cores = children(server.process.0.id());
    cores.sort_unstable();
    cores
}

#[test]
fn two_cores_answer_as_one_does_and_go_on_for_each_other() {
    if !has_two_processors() {
        return;
    }
    let questions = questions(256);
    let one = Server::start(&[]);
    let expected = ask_all(&one, &questions, || ());
    drop(one);
    let two = Server::start(&TWO);
    assert_eq!(cores(&two).len(), 2);
    assert_eq!(ask_all(&two, &questions, || ()), expected);
    let tokens = of_engines(&two.address, "vllm:generation_tokens_total");
    assert!(
        tokens.len() == 2 && tokens.iter().all(|n| *n > 1000.0),
        "{tokens:?}"
    );

    // Each core dies once, in the midst of its streams.
    for (round, victim) in cores(&two).into_iter().enumerate() {
        let answers = ask_all(&two, &questions, || signal(victim, libc::SIGKILL));
        assert_eq!(answers, expected);
        eventually("there are two cores again", || {
            let restarts = of_engines(&two.address, "formwork:engine_restarts_total");
            restarts.iter().sum::<f64>() == round as f64 + 1.0 && two.is_healthy()
        });
    }
    assert_eq!(
        of_engines(&two.address, "formwork:engine_restarts_total"),
        [1.0, 1.0]
    );
    // Both work again.
    assert_eq!(ask_all(&two, &questions, || ()), expected);
}

/// Where the memory holds no whole context, each further core found another length than the first and was refused.
#[test]
fn a_length_that_the_memory_limits_is_that_of_all_cores_and_of_those_that_replace_them() {
    if !has_two_processors() {
        return;
    }
    // 46 GB of keys and values, of which half of what is free may be taken.
    let model = builtin_model_with_context(20_000_000);
    let model = model.path().to_str().unwrap();
    for flags in [&TWO[..], &[]] {
        let server = Server::start(&[&["--model", model], flags].concat());
        let body = chat("Tell me about stone.", 8);
        let expected = server.post(CHAT, &body);
        assert_eq!(expected.status, 200);
        for (round, victim) in cores(&server).into_iter().enumerate() {
            signal(victim, libc::SIGKILL);
            eventually("there is another core", || {
                let restarts = of_engines(&server.address, "formwork:engine_restarts_total");
                restarts.iter().sum::<f64>() == round as f64 + 1.0 && server.is_healthy()
            });
            let answer = server.post(CHAT, &body).json();
            assert_eq!(answer["choices"], expected.json()["choices"]);
        }
    }
}

/// A core that can't be started again leaves what it had to the other, which serves on until it is gone too.
#[test]
fn a_core_that_is_gone_for_good_is_done_without() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("core");
    let core = executables().join("formwork-engine-core");
    let (here, core) = (folder.path().display(), core.display());
    let twice = format!(
        "#!/bin/sh\nmkdir {here}/1 2>/dev/null || mkdir {here}/2 || exit 1\nexec {core} \"$@\"\n"
    );
    fs::write(&script, twice).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    command
        .args(TWO)
        .args(["--no-sandbox", "--max-restarts", "2"]);
    let mut server = Server::spawn(command.arg("--engine-core").arg(&script));
    let questions = questions(32);
    let expected = ask_all(&server, &questions, || ());
    let victim = cores(&server)[0];
    let answers = ask_all(&server, &questions, || signal(victim, libc::SIGKILL));
    assert_eq!(answers, expected);
    eventually("it is given up", || {
        let gone = of_engines(&server.address, "formwork:engine_gone");
        gone.iter().sum::<f64>() == 1.0
    });
    let health = server.get("/health");
    let told = "engine cores that are gone for good: 1 of 2\n";
    assert_eq!((health.status, health.body.as_str()), (200, told));
    assert_eq!(cores(&server).len(), 1);
    assert_eq!(ask_all(&server, &questions, || ()), expected);

    // The last one's end is the server's.
    signal(cores(&server)[0], libc::SIGKILL);
    assert_eq!(server.process.0.wait().unwrap().code(), Some(1));
}

/// The poison kills the core that it came to, the other one that it moves to, and is found there.
#[test]
#[cfg(debug_assertions)]
fn a_request_that_kills_cores_fails_alone() {
    if !has_two_processors() {
        return;
    }
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    command.args(TWO).env("POISON_REQUEST_ID", "the-poison");
    let server = Server::spawn(&mut command);
    let questions = questions(32);
    let expected = ask_all(&server, &questions, || ());
    let mut poisoned = None;
    let answers = ask_all(&server, &questions, || {
        let headers = "Content-Type: application/json\r\nX-Request-Id: the-poison\r\n";
        let body = chat("Tell me about poison.", 8).to_string();
        let address = &server.address;
        poisoned = Some(start(address, "POST", CHAT, headers, body.as_bytes()));
    });
    assert_eq!(poisoned.unwrap().finish().status, 500);
    assert_eq!(answers, expected);
    let restarts: f64 = of_engines(&server.address, "formwork:engine_restarts_total")
        .iter()
        .sum();
    assert!((1.0..=9.0).contains(&restarts), "{restarts}");
    assert!(server.is_healthy());
}

#[test]
fn pauses_and_aborts_reach_both() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (server, management) = start_managed(folder.path(), &TWO);
    let on = |method, path| start(&management, method, path, "", b"").finish();
    let running = || of_engines(&management, "vllm:num_requests_running");
    let all_run = || running().iter().sum::<f64>() == 8.0 && running().iter().all(|n| *n > 0.0);
    let endless: Vec<Value> = (0..8)
        .map(|i| long_stream(&format!("Question {i}"), 1900))
        .collect();
    let ask = || endless.iter().map(|body| server.begin(CHAT, body));
    let streams: Vec<Pending> = ask().collect();
    eventually("both have some", all_run);
    // Whose clients leave is aborted in both.
    drop(streams);
    eventually("both are idle", || running() == [0.0, 0.0]);

    let streams: Vec<Pending> = ask().collect();
    eventually("both have some", all_run);
    assert_eq!(on("POST", "/pause?mode=abort").status, 200);
    for stream in streams {
        let events = stream.finish().events();
        assert_eq!(
            events.last().unwrap()["choices"][0]["finish_reason"],
            "abort"
        );
    }
    assert!(!server.is_healthy());
    assert_eq!(on("GET", "/is_paused").body, r#"{"is_paused":true}"#);
    // A core in the place of one that dies meanwhile is paused as well.
    for (round, victim) in cores(&server).into_iter().enumerate() {
        signal(victim, libc::SIGKILL);
        eventually("another one is there", || {
            let restarts = of_engines(&management, "formwork:engine_restarts_total");
            restarts.iter().sum::<f64>() == round as f64 + 1.0
        });
    }
    let mut waiting: Vec<Pending> = (0..4).map(|_| server.begin(CHAT, &chat("Hi", 2))).collect();
    for answer in &mut waiting {
        let patience = Some(Duration::from_millis(200));
        answer.stream().set_read_timeout(patience).unwrap();
        assert!(answer.stream().peek(&mut [0]).is_err(), "it is answered");
        answer.stream().set_read_timeout(None).unwrap();
    }
    assert_eq!(on("GET", "/is_paused").body, r#"{"is_paused":true}"#);
    assert_eq!(on("POST", "/reset_prefix_cache").status, 200);
    assert_eq!(on("POST", "/resume").status, 200);
    for answer in waiting {
        assert_eq!(answer.finish().status, 200);
    }
    eventually("it is healthy", || server.is_healthy());
}

#[test]
fn a_pause_ends_what_a_core_had_that_is_gone() {
    for flags in [&[][..], &TWO] {
        if !flags.is_empty() && !has_two_processors() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (server, management) = start_managed(folder.path(), flags);
        let on = |path| start(&management, "POST", path, "", b"").finish().status;
        let running = || of_engines(&management, "vllm:num_requests_running");
        let ask = |i| server.begin(CHAT, &long_stream(&format!("Question {i}"), 1900));
        let streams: Vec<Pending> = (0..8).map(ask).collect();
        eventually("all run", || running().iter().sum::<f64>() == 8.0);
        signal(cores(&server)[0], libc::SIGKILL);
        assert_eq!(on("/pause?mode=abort"), 200);
        for stream in streams {
            let events = stream.finish().events();
            let last = events.last().unwrap();
            assert_eq!(last["choices"][0]["finish_reason"], "abort", "{last}");
        }
        assert_eq!(on("/resume"), 200);
        assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    }
}

/// One that hangs has few requests as soon as their clients leave, and is no place for the next ones.
#[test]
fn a_core_that_stands_still_gets_nothing_while_another_works() {
    if !has_two_processors() {
        return;
    }
    let server = Server::start(&TWO);
    let stopped = cores(&server)[0];
    let restarts = || of_engines(&server.address, "formwork:engine_restarts_total");
    signal(stopped, libc::SIGSTOP);
    // Clients that wait for half a second: whoever came to it leaves in vain.
    let question = |i: usize| chat(&format!("Question number {i} is about stone and water."), 2);
    let mut num_in_a_row = 0;
    let mut number = 0;
    eventually("it is known to stand still", || {
        number += 1;
        let mut pending = server.begin(CHAT, &question(number));
        let patience = Some(Duration::from_millis(500));
        pending.stream().set_read_timeout(patience).unwrap();
        let is_answered = pending.stream().peek(&mut [0]).is_ok();
        num_in_a_row = if is_answered { num_in_a_row + 1 } else { 0 };
        num_in_a_row == 20
    });
    for i in 1_000..1_020 {
        assert_eq!(server.post(CHAT, &question(i)).status, 200);
    }
    assert_eq!(restarts(), [0.0, 0.0], "nobody waited for another core");
    signal(stopped, libc::SIGCONT);
    eventually("it has requests again", || {
        number += 1;
        server.post(CHAT, &question(number));
        let tokens = of_engines(&server.address, "vllm:generation_tokens_total");
        tokens[0] > 0.0
    });
}

/// What it had goes to the other one, and nobody who asks for the server's health hears of it.
#[test]
fn a_core_that_hangs_is_replaced_while_the_server_is_healthy() {
    if !has_two_processors() {
        return;
    }
    let server = Server::start(&[&TWO[..], &["--health-stall-seconds", "2"]].concat());
    let hanging = cores(&server)[0];
    let running = || of_engines(&server.address, "vllm:num_requests_running");
    let begin = |i: usize| server.begin(CHAT, &long_stream(&format!("Question {i}"), 1900));
    let streams: Vec<Pending> = (0..8).map(begin).collect();
    eventually("both have some", || running().iter().all(|n| *n > 0.0));
    signal(hanging, libc::SIGSTOP);
    eventually("another one is there", || {
        assert!(server.is_healthy());
        let restarts = of_engines(&server.address, "formwork:engine_restarts_total");
        restarts == [1.0, 0.0]
    });
    for stream in streams {
        let events = stream.finish().events();
        let last = &events.last().unwrap()["choices"][0];
        assert_eq!(last["finish_reason"], "length");
    }
}

/// Of one name and one tokenizer, as two folders `model` have that were trained apart.
#[test]
#[cfg(target_os = "linux")]
fn a_core_by_hand_with_other_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| folder.path().join(name).join("model"));
    for (seed, path) in [(1, &first), (2, &second)] {
        fs::create_dir_all(path).unwrap();
        model(path, 64, 2, seed);
    }
    let address = folder.path().join("core.sock");
    let mut core = integration_tests::formwork_engine_core();
    core.arg("--model")
        .arg(&first)
        .arg("--listen")
        .arg(&address);
    let _core = Process::spawn(&mut core);
    eventually("the core listens", || address.exists());
    let ask = |model: &Path| {
        let mut batch = integration_tests::formwork_batch();
        batch.args(["--prompt", "a", "--max-tokens", "2", "--model"]);
        batch.arg(model).arg("--engine-core-address").arg(&address);
        batch.output().unwrap()
    };
    let output = ask(&second);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the engine core runs a model \"model\" with the weights"),
        "{said}"
    );
    assert!(ask(&first).status.success());
}

/// All cores serve one model, also where its files change meanwhile.
#[test]
#[cfg(target_os = "linux")]
fn a_core_with_another_model_is_not_started() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    model(folder.path(), 64, 2, 1);
    let path = folder.path().to_str().unwrap();
    let server = Server::start(&[&TWO[..], &["--max-restarts", "2", "--model", path]].concat());
    let body = json!({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": true});
    let texts = || -> Vec<Value> {
        let answers = (0..6).map(|_| server.post("/v1/completions", &body));
        answers
            .map(|answer| answer.json()["choices"][0]["text"].take())
            .collect()
    };
    let expected = texts();
    assert!(expected[0].is_string(), "{expected:?}");
    model(folder.path(), 64, 2, 2);
    signal(cores(&server)[0], libc::SIGKILL);
    eventually("it is given up", || {
        let gone = of_engines(&server.address, "formwork:engine_gone");
        gone.iter().sum::<f64>() == 1.0
    });
    assert_eq!(texts(), expected);
}

#[test]
fn a_batch_has_the_same_lines_with_two_cores() {
    if !has_two_processors() {
        return;
    }
    let line = |i: usize| {
        let body = json!({
            "prompt": format!("The record of number {i} says"), "max_tokens": 30, "ignore_eos": true,
            "temperature": if i.is_multiple_of(2) { 0.0 } else { 0.9 }, "seed": i, "n": 1 + i % 3,
        });
        let line = json!({
            "custom_id": format!("r{i}"), "method": "POST", "url": "/v1/completions", "body": body,
        });
        format!("{line}\n")
    };
    let input: String = (0..64).map(line).collect();
    let choices = |flags: &[&str]| -> Vec<Value> {
        let batch = Batch::new(&input);
        let output = batch.run(flags);
        assert!(output.status.success(), "{output:?}");
        let results = batch.results().into_iter();
        results
            .map(|mut result| result["response"]["body"]["choices"].take())
            .collect()
    };
    let one = choices(&[]);
    assert!(one.len() == 64 && one.iter().all(Value::is_array));
    assert_eq!(choices(&["--data-parallel-size", "2"]), one);
}

#[test]
fn more_cores_than_processors_are_refused_with_both_numbers() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let mut command = formwork();
    command.args(["serve", "--port", "0", "--data-parallel-size"]);
    let output = command.arg((processors + 1).to_string()).output().unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    let expected = format!("this process may use {processors}; it must be at most {processors}");
    assert!(told.contains(&expected), "{told}");
}

/// Bytes of memory that are a process's, where a page that several have counts in parts.
#[cfg(target_os = "linux")]
fn proportional_set_size(process: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.unwrap().trim().trim_end_matches("kB").trim();
    kib.parse::<u64>().unwrap() << 10
}

/// A model of random weights with the built-in model's tokenizer: 30 MB a layer with a hidden size of 1,024.
#[cfg(target_os = "linux")]
fn model(folder: &Path, hidden_size: usize, num_hidden_layers: usize, seed: u64) {
    RandomCheckpoint {
        architecture: "Qwen2ForCausalLM",
        hidden_size,
        intermediate_size: 4 * hidden_size,
        num_hidden_layers,
        num_attention_heads: 16,
        num_key_value_heads: 4,
        head_dim: 64,
        vocab_size: 4096,
        max_position_embeddings: 1024,
        tie_word_embeddings: true,
        qkv_bias: true,
        qk_norm: false,
        extra: json!({}),
        dtype: safetensors::Dtype::BF16,
        num_shards: 1,
        seed,
    }
    .write(folder)
    .unwrap();
    let tokenizer = workspace().join("builtin-model/model");
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        fs::copy(tokenizer.join(file), folder.join(file)).unwrap();
    }
}

/// Weights are there once, a draft model's too: two cores have at most 1.15 times the memory of one, and a core that
/// takes another's place has the same weights.
#[test]
#[cfg(target_os = "linux")]
fn two_cores_share_the_memory_of_their_weights() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    model(folder.path(), 1024, 14, 1);
    let path = folder.path().to_str().unwrap();
    let draft_folder = tempfile::tempdir().unwrap();
    model(draft_folder.path(), 1024, 6, 2);
    let draft_path = draft_folder.path().to_str().unwrap();
    let speculative = json!({"model": draft_path, "num_speculative_tokens": 2}).to_string();
    let common = [
        "--speculative-config",
        &speculative,
        "--kv-cache-memory-bytes",
        "67108864",
        "--max-num-batched-tokens",
        "256",
        "--model",
        path,
    ];
    let body = json!({
        "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": true, "n": 1,
    });
    // Asked often enough that each core has computed with its weights.
    let texts = |server: &Server| -> Vec<Value> {
        let pending: Vec<Pending> = (0..6)
            .map(|_| server.begin("/v1/completions", &body))
            .collect();
        let answers = pending.into_iter().map(Pending::finish);
        answers
            .map(|answer| answer.json()["choices"][0]["text"].take())
            .collect()
    };
    let memory =
        |server: &Server| -> u64 { cores(server).into_iter().map(proportional_set_size).sum() };
    let server = Server::start(&common);
    let expected = texts(&server);
    let one = memory(&server);
    drop(server);

    let server = Server::start(&[&TWO[..], &common[..]].concat());
    assert_eq!(texts(&server), expected);
    let both = memory(&server);
    assert!(both * 100 <= one * 115, "{both} bytes of two, {one} of one");
    signal(cores(&server)[0], libc::SIGKILL);
    eventually("there are two cores again", || {
        of_engines(&server.address, "formwork:engine_restarts_total")
            .iter()
            .sum::<f64>()
            == 1.0
    });
    assert_eq!(texts(&server), expected);
    let both = memory(&server);
    assert!(
        both * 100 <= one * 115,
        "{both} bytes of two after a restart, {one} of one"
    );
}
