//! `formwork-batch` with its core: files in, files out, whatever happens in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use integration_tests::{formwork_batch, shared};
use serde_json::{Value, json};

use crate::support::{PATIENCE, Process};

/// A batch of completions of `num_tokens` tokens each.
fn requests(count: usize, num_tokens: usize) -> String {
    let line = |index: usize| {
        json!({
            "custom_id": format!("request-{index}"),
            "method": "POST",
            "url": "/v1/completions",
            "body": {
                "prompt": format!("The record of number {index} says"),
                "max_tokens": num_tokens,
                "ignore_eos": true,
                "temperature": if index.is_multiple_of(2) { 0.0 } else { 0.9 },
                "seed": index,
            },
        })
        .to_string()
            + "\n"
    };
    (0..count).map(line).collect()
}

/// A folder with an input file.
pub(crate) struct Batch {
    folder: tempfile::TempDir,
}

impl Batch {
    pub(crate) fn new(input: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("input.jsonl"), input).unwrap();
        Self { folder }
    }

    fn input(&self) -> PathBuf {
        self.folder.path().join("input.jsonl")
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("output.jsonl")
    }

    fn command(&self) -> Command {
        let mut command = formwork_batch();
        command
            .arg("-i")
            .arg(self.input())
            .arg("-o")
            .arg(self.output());
        command.args(["--threads", "2", "--num-blocks-override", "512"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    pub(crate) fn results(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.output()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits until the output has `count` complete lines.
    fn wait_for_lines(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(self.output()).unwrap_or_default();
            if text.matches('\n').count() >= count {
                return;
            }
            assert!(Instant::now() < deadline, "the batch doesn't go on");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a result says, without what differs from run to run.
fn answer(result: &Value) -> (String, Value, Value) {
    (
        result["custom_id"].as_str().unwrap_or_default().to_owned(),
        result["response"]["status_code"].clone(),
        result["response"]["body"]["choices"].clone(),
    )
}

fn answers(results: &[Value]) -> Vec<(String, Value, Value)> {
    results.iter().map(answer).collect()
}

/// The core that `frontend` started.
fn core_of(frontend: &Process) -> i32 {
    let task = format!("/proc/{0}/task", frontend.0.id());
    let children = fs::read_dir(task)
        .unwrap()
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let children: String = children.collect();
    children
        .split_whitespace()
        .next()
        .expect("the frontend has a core")
        .parse()
        .unwrap()
}

/// Waits until process `id` is gone or waits to be collected.
fn wait_for_end(id: i32, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        match fs::read_to_string(format!("/proc/{id}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => {}
            _ => return,
        }
        assert!(Instant::now() < deadline, "process {id} doesn't end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn results_come_in_input_order_and_repeat() {
    let batch = Batch::new(&requests(30, 12));
    let output = batch.run(&["--max-num-seqs", "7"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let first = batch.results();
    assert_eq!(first.len(), 30);
    for (index, result) in first.iter().enumerate() {
        assert_eq!(result["custom_id"], format!("request-{index}"));
        assert_eq!(result["error"], Value::Null);
        assert_eq!(result["response"]["status_code"], 200);
        let body = &result["response"]["body"];
        assert_eq!(body["object"], "text_completion");
        assert_eq!(body["usage"]["completion_tokens"], 12);
        assert_eq!(body["choices"][0]["finish_reason"], "length");
    }
    // Another batch size, chunked prefill, no prefix cache, one thread; and so few blocks that
    // requests lose theirs again and again: the same answers.
    let little_and_slow = [
        "--max-num-seqs",
        "3",
        "--max-num-batched-tokens",
        "5",
        "--threads",
        "1",
    ];
    let few_blocks = [
        "--num-blocks-override",
        "8",
        "--max-model-len",
        "64",
        "--threads",
        "3",
    ];
    for (arguments, cache) in [
        (&little_and_slow[..], "--no-enable-prefix-caching"),
        (&few_blocks, "--enable-prefix-caching"),
    ] {
        let output = batch.run(&[&["--overwrite", cache], arguments].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(answers(&batch.results()), answers(&first));
    }
}

#[test]
fn a_shared_checkpoint_gives_what_transformers_gives() {
    for model in ["llama", "qwen2", "qwen3", "mistral"] {
        let Some(folder) = shared(&format!("checkpoints/{model}")) else {
            continue;
        };
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let prompts = expected["prompts"].as_array().unwrap();
        let input: String = prompts
            .iter()
            .enumerate()
            .map(|(index, prompt)| {
                let body = json!({
                    "prompt": prompt["ids"], "max_tokens": 24, "temperature": 0,
                    "ignore_eos": true, "return_token_ids": true,
                });
                let url = "/v1/completions";
                let custom_id = index.to_string();
                let line =
                    json!({"custom_id": custom_id, "method": "POST", "url": url, "body": body});
                line.to_string() + "\n"
            })
            .collect();
        let batch = Batch::new(&input);
        let folder = folder.to_str().unwrap();
        let output = batch.run(&["--model", folder, "--dtype", "float32"]);
        assert!(output.status.success(), "{}", stderr(&output));
        for (result, prompt) in batch.results().iter().zip(prompts) {
            let choice = &result["response"]["body"]["choices"][0];
            assert_eq!(choice["token_ids"], prompt["greedy"], "{model}: {result}");
        }
    }
}

#[test]
fn bad_lines_become_error_lines() {
    let good = requests(1, 3);
    let chat = |body: Value| {
        json!({"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": body})
            .to_string()
    };
    let messages = json!([{"role": "user", "content": "Hello!"}]);
    let lines = [
        good.trim().to_owned(),
        "{\"custom_id\": ".to_owned(),
        String::new(),
        "[]".to_owned(),
        json!({"custom_id": "d", "method": "GET", "url": "/v1/completions", "body": {}})
            .to_string(),
        json!({"custom_id": "e", "method": "POST", "url": "/v1/images", "body": {}}).to_string(),
        chat(json!({"messages": messages, "temperature": 9})),
        chat(json!({"messages": messages, "response_format": {"type": "jsn"}})),
        chat(json!({"messages": messages, "guided_json": {"type": "objekt"}})),
        chat(json!({"messages": messages, "stream": true})),
        chat(json!({"messages": messages, "model": "another"})),
        chat(json!({"messages": messages, "no_such_field": 1})),
        chat(json!({"messages": messages, "max_tokens": 3})),
    ];
    let batch = Batch::new(&lines.join("\n"));
    let output = batch.run(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results = batch.results();
    let described: Vec<(Value, String)> = results
        .iter()
        .map(|result| {
            let error = &result["response"]["body"]["error"]["message"];
            let error = error
                .as_str()
                .or(result["error"]["message"].as_str())
                .unwrap_or_default();
            (result["response"]["status_code"].clone(), error.to_owned())
        })
        .collect();
    assert_eq!(described.len(), 12, "{described:?}");
    assert_eq!(
        (&described[0], &described[11]),
        (&(json!(200), String::new()), &(json!(200), String::new()))
    );
    for (index, word) in [
        (1, "line 2"),
        (2, "line 4"),
        (3, "GET"),
        (4, "/v1/images"),
        (5, "temperature"),
        (6, "response_format"),
        (7, "guided_json"),
        (8, "stream"),
        (9, "another"),
        (10, "no_such_field"),
    ] {
        assert!(
            described[index].1.contains(word),
            "{index}: {:?}",
            described[index]
        );
        assert_ne!(described[index].0, 200);
    }
}

#[test]
fn parts_without_effect_are_told_of_the_first_lines() {
    let line = |index: usize| {
        let schema = json!({"type": "boolean", "nullable": true});
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let message = json!({"role": "user", "content": "Hi"});
        let body = json!({"messages": [message], "max_tokens": 8, "response_format": format});
        let url = "/v1/chat/completions";
        json!({"custom_id": format!("{index}"), "method": "POST", "url": url, "body": body})
            .to_string()
    };
    let lines: Vec<String> = (0..12).map(line).collect();
    let batch = Batch::new(&lines.join("\n"));
    let output = batch.run(&[]);
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("nullable has no effect").count(), 10, "{told}");
    assert_eq!(
        told.matches("more lines have parts without effect").count(),
        1
    );
    assert_eq!(batch.results().len(), 12);
}

#[test]
fn after_a_killed_core_the_file_can_be_resumed() {
    let batch = Batch::new(&requests(60, 60));
    let mut frontend =
        Process::spawn(
            batch
                .command()
                .args(["--max-num-seqs", "4", "--max-inflight", "8"]),
        );
    batch.wait_for_lines(3);
    let core = core_of(&frontend);
    // SAFETY: `kill` has no memory effects; the core is the frontend's child and still running.
    assert_eq!(unsafe { libc::kill(core, libc::SIGKILL) }, 0);
    let status = frontend.wait();
    assert_eq!(status.code(), Some(1));
    let mut log = String::new();
    std::io::Read::read_to_string(frontend.0.stderr.as_mut().unwrap(), &mut log).unwrap();
    assert!(
        log.contains("engine core") && log.contains("--resume"),
        "{log}"
    );

    let before = batch.results();
    assert!(before.len() >= 3 && before.len() < 60);
    let output = batch.run(&["--resume"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let resumed = batch.results();
    assert_eq!(
        resumed[..before.len()],
        before,
        "what was written stays as it is"
    );
    let whole = Batch::new(&requests(60, 60));
    assert!(whole.run(&[]).status.success());
    assert_eq!(answers(&resumed), answers(&whole.results()));
}

#[test]
fn after_a_killed_frontend_the_core_ends_and_the_file_can_be_resumed() {
    let batch = Batch::new(&requests(60, 60));
    let mut frontend = Process::spawn(batch.command().args(["--max-num-seqs", "4"]));
    batch.wait_for_lines(2);
    let core = core_of(&frontend);
    frontend.signal(libc::SIGKILL);
    frontend.wait();
    wait_for_end(core, Duration::from_secs(2));
    // Half a line, as a kill in the middle of a write leaves it.
    let mut bytes = fs::read(batch.output()).unwrap();
    bytes.extend_from_slice(b"{\"id\":\"batch_req_");
    fs::write(batch.output(), bytes).unwrap();
    let output = batch.run(&["--resume"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let ids: Vec<Value> = batch
        .results()
        .iter()
        .map(|result| result["custom_id"].clone())
        .collect();
    let expected: Vec<Value> = (0..60)
        .map(|index| json!(format!("request-{index}")))
        .collect();
    assert_eq!(ids, expected);
}

#[test]
fn sigterm_leaves_a_file_that_can_be_resumed_and_no_process() {
    let batch = Batch::new(&requests(400, 40));
    let mut frontend =
        Process::spawn(
            batch
                .command()
                .args(["--max-num-seqs", "4", "--max-inflight", "8"]),
        );
    batch.wait_for_lines(2);
    let core = core_of(&frontend);
    frontend.signal(libc::SIGTERM);
    assert_eq!(frontend.wait().code(), Some(1));
    wait_for_end(core, PATIENCE);
    let before = batch.results();
    assert!(before.len() < 400);
    assert!(
        before
            .iter()
            .all(|result| result["response"]["status_code"] == 200)
    );
    let output = batch.run(&["--resume"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(batch.results().len(), 400);
}

#[test]
fn two_batches_at_once_do_not_meet() {
    let batches = [Batch::new(&requests(20, 20)), Batch::new(&requests(20, 20))];
    let running: Vec<_> = batches
        .iter()
        .map(|batch| batch.command().spawn().unwrap())
        .collect();
    for process in running {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_eq!(
        answers(&batches[0].results()),
        answers(&batches[1].results())
    );
}

#[test]
fn standard_input_and_output_work() {
    use std::io::Write;
    let mut command = formwork_batch();
    command.args(["-i", "-", "-o", "-", "--num-blocks-override", "512"]);
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    process
        .stdin
        .take()
        .unwrap()
        .write_all(requests(3, 4).as_bytes())
        .unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
}

/// Exit code and message of a run that can't begin.
fn refusal(command: &mut Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn what_cannot_begin_says_why_and_leaves_nothing() {
    let batch = Batch::new(&requests(1, 1));
    let folder = batch.folder.path();
    let missing = folder.join("missing");
    let text = |path: &Path| path.display().to_string();
    let with = |arguments: &[&str]| {
        let mut command = batch.command();
        command.args(arguments);
        command
    };

    let (code, message) = refusal(&mut with(&["--model", &text(&missing)]));
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&text(&missing)), "{message}");
    let (code, message) = refusal(&mut with(&["--model", &text(&batch.input())]));
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&text(&batch.input())), "{message}");
    let (code, message) = refusal(&mut with(&["--model", &text(folder)]));
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains("tokenizer.json") || message.contains("config.json"),
        "{message}"
    );
    let (code, message) = refusal(&mut with(&["--engine-core", &text(&missing)]));
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&text(&missing)), "{message}");
    let (code, message) = refusal(&mut with(&["--max-model-len", "9999999"]));
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains("--max-model-len") && message.contains("9999999"),
        "{message}"
    );
    let (code, message) = refusal(&mut with(&["--no-such-flag"]));
    assert_eq!(code, Some(2), "{message}");

    let mut same = formwork_batch();
    same.arg("-i")
        .arg(batch.input())
        .arg("-o")
        .arg(batch.input());
    let (code, message) = refusal(&mut same);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("same"), "{message}");
    let mut no_input = formwork_batch();
    no_input
        .arg("-i")
        .arg(&missing)
        .arg("-o")
        .arg(batch.output());
    let (code, message) = refusal(&mut no_input);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&text(&missing)), "{message}");
    let unwritable = missing.join("output.jsonl");
    let mut no_output = formwork_batch();
    no_output
        .arg("-i")
        .arg(batch.input())
        .arg("-o")
        .arg(&unwritable);
    let (code, message) = refusal(&mut no_output);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&text(&unwritable)), "{message}");

    let left: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left, ["input.jsonl"]);
}

#[test]
fn a_core_of_another_version_is_refused_with_both_versions() {
    use protocol::transport::{Listener, PrivateAddress};
    let address = PrivateAddress::new().unwrap();
    let listener = Listener::bind(address.path()).unwrap();
    let other_core = std::thread::spawn(move || {
        let (mut reader, mut writer) = listener.accept().unwrap().split();
        let hello = protocol::Hello {
            protocol_version: 77,
            build_version: "9.9.9".to_owned(),
        };
        writer.write(&hello).unwrap();
        let _ = reader.read_within::<protocol::Hello>(PATIENCE);
    });
    let mut command = formwork_batch();
    command
        .args(["--prompt", "Hello!", "--engine-core-address"])
        .arg(address.path());
    let (code, message) = refusal(&mut command);
    other_core.join().unwrap();
    assert_eq!(code, Some(1));
    assert!(message.contains("9.9.9 (protocol 77)"), "{message}");
    assert!(
        message.contains(&protocol::Hello::current().to_string()),
        "{message}"
    );
}

/// As under systemd's `LimitFSIZE`: whoever writes beyond it gets a signal that ends a process which
/// doesn't say otherwise.
#[test]
fn a_file_that_may_not_grow_is_an_error_where_it_is_written() {
    let batch = Batch::new(&requests(60, 200));
    let command = batch.command();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    limited.stdin(Stdio::null()).stderr(Stdio::piped());
    let output = limited.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code > 0), "{told}");
    assert!(
        told.contains("output.jsonl") && told.contains("File too large"),
        "{told}"
    );
}

/// Three requests under two names, and two lines that are none.
fn a_batch_with_errors() -> Batch {
    let request = requests(1, 2);
    let input = format!("{request}{request}not json\n{}\n{request}", "{}");
    Batch::new(&input)
}

#[test]
fn failed_lines_and_names_that_come_twice_are_told() {
    let batch = a_batch_with_errors();
    let output = batch.run(&[]);
    assert_eq!(output.status.code(), Some(0));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("2 of 5 lines failed; the first: line 3: the line is not a JSON object"),
        "{told}"
    );
    assert!(
        told.contains("2 lines with a custom_id that an earlier line has, such as \"request-0\""),
        "{told}"
    );
    assert_eq!(batch.results().len(), 5);
}

#[test]
fn fail_on_error_is_the_exit_code_and_changes_no_result() {
    let batch = a_batch_with_errors();
    let output = batch.run(&["--fail-on-error"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("error: --fail-on-error: 2 of 5 lines failed"),
        "{told}"
    );
    assert_eq!(batch.results().len(), 5);
    // Going on where all is done, what failed before counts as well.
    let output = batch.run(&["--resume", "--fail-on-error"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("5 lines (5 from before), 2 errors") && told.contains("the first: line 3: "),
        "{told}"
    );
    // With all lines answered there is nothing to fail.
    let output = Batch::new(&requests(2, 2)).run(&["--fail-on-error"]);
    assert_eq!(output.status.code(), Some(0));
}
