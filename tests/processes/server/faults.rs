//! What happens when something dies, hangs, leaves or is full.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;

use serde_json::{Value, json};

use super::client::{Answer, Pending, send, start};
use super::support::{
    Server, chat, children, eventually, formwork, long_stream, signal, streamed_text,
};

const CHAT: &str = "/v1/chat/completions";

/// What is asked in the tests below, of different lengths.
fn questions() -> Vec<Value> {
    let topics = [
        "stone", "water", "wood", "glass", "steel", "sand", "clay", "rope",
    ];
    let question = |(i, topic): (usize, &&str)| {
        let tokens = 60 + 20 * u32::try_from(i).unwrap();
        long_stream(&format!("Tell me about {topic}."), tokens)
    };
    let mut questions: Vec<Value> = topics.iter().enumerate().map(question).collect();
    // Constrained ones are replayed as well.
    for question in questions.iter_mut().step_by(2) {
        question["guided_regex"] = json!("([a-z]{5} ){50}");
        question["max_tokens"] = json!(2000);
        question["ignore_eos"] = json!(false);
    }
    questions
}

/// Asks everything at once; `meanwhile` runs when every stream has begun.
fn ask_all(server: &Server, meanwhile: impl FnOnce()) -> Vec<Answer> {
    let mut pending: Vec<_> = questions().iter().map(|q| server.begin(CHAT, q)).collect();
    // The status lines are read again with the answers.
    for stream in &mut pending {
        let mut byte = [0];
        assert_eq!(stream.stream().peek(&mut byte).unwrap(), 1);
    }
    meanwhile();
    pending.into_iter().map(|stream| stream.finish()).collect()
}

fn texts(answers: &[Answer]) -> Vec<String> {
    answers.iter().map(streamed_text).collect()
}

#[test]
fn streams_go_on_when_the_core_is_killed() {
    let server = Server::start(&[]);
    let undisturbed = texts(&ask_all(&server, || ()));
    let first = server.core();
    let answers = ask_all(&server, || signal(first, libc::SIGKILL));
    assert_eq!(texts(&answers), undisturbed);
    for (i, answer) in answers.iter().enumerate() {
        let last = &answer.events().pop().unwrap()["choices"][0];
        if i % 2 == 0 {
            assert_eq!(last["structured_output_complete"], true, "{last}");
        } else {
            assert_eq!(last["finish_reason"], "length");
        }
    }
    assert_ne!(server.core(), first);
    assert!(server.is_healthy());
    assert_eq!(server.metric("formwork:engine_restarts_total"), 1.0);
}

/// The next core has the draft model again, and the texts are those of a server without one.
#[test]
fn streams_with_a_draft_model_go_on_when_the_core_is_killed() {
    let undisturbed = texts(&ask_all(Server::shared(), || ()));
    let server = Server::start(&[
        "--speculative-config",
        r#"{"method": "draft_model", "num_speculative_tokens": 4}"#,
    ]);
    let first = server.core();
    let answers = ask_all(&server, || signal(first, libc::SIGKILL));
    assert_eq!(texts(&answers), undisturbed);
    assert_ne!(server.core(), first);
    assert_eq!(server.metric("formwork:engine_restarts_total"), 1.0);
    let drafted = server.metric("vllm:spec_decode_num_draft_tokens_total");
    assert!(drafted > 100.0, "{drafted}");
    assert_eq!(
        server.metric("vllm:spec_decode_num_accepted_tokens_total"),
        drafted
    );
}

/// Who was let in is not turned away by the next core, however little its queues hold.
#[test]
fn full_queues_turn_no_replay_away() {
    let server = Server::start(&[
        "--max-num-seqs",
        "10",
        "--max-num-queued-reqs",
        "2",
        "--structured-outputs-config",
        r#"{"max_num_queued_grammars": 1}"#,
    ]);
    let patterns: Vec<String> = (0..12)
        .map(|i| format!("([a-z]{{5}} ){{200}}{i}"))
        .collect();
    let ask = |pattern: &String, max_tokens| {
        let mut body = long_stream("Tell me about stone.", max_tokens);
        body["guided_regex"] = json!(pattern);
        body["ignore_eos"] = json!(false);
        let mut stream = server.begin(CHAT, &body);
        assert_eq!(stream.stream().peek(&mut [0]).unwrap(), 1);
        stream
    };
    // One after another, since one grammar may wait. Once they are compiled, the last answer begins long before
    // the first one ends, however slow the compilation was.
    for pattern in &patterns {
        ask(pattern, 1).finish();
    }
    let streams: Vec<_> = patterns.iter().map(|pattern| ask(pattern, 2000)).collect();
    eventually("all run or wait", || {
        server.metric("vllm:num_requests_running") == 10.0
            && server.metric("vllm:num_requests_waiting") == 2.0
    });
    signal(server.core(), libc::SIGKILL);
    for (pattern, stream) in patterns.iter().zip(streams) {
        let text = streamed_text(&stream.finish());
        let whole = regex::Regex::new(&format!("^{pattern}$")).unwrap();
        assert!(whole.is_match(&text), "{text:?} isn't {pattern}");
    }
    assert_eq!(server.metric("formwork:engine_restarts_total"), 1.0);
}

/// A request that kills every core that works on it is found and fails alone.
#[test]
#[cfg(debug_assertions)]
fn only_the_request_that_kills_the_core_fails() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    command.args(["--threads", "1", "--log-file"]).arg(&log);
    command.env("POISON_REQUEST_ID", "the-poison");
    let server = Server::spawn(&mut command);
    let undisturbed = texts(&ask_all(&server, || ()));
    let headers = "Content-Type: application/json\r\nX-Request-Id: the-poison\r\n";
    let body = chat("Tell me about poison.", 8).to_string();
    let mut poisoned = None;
    let answers = ask_all(&server, || {
        let address = &server.address;
        poisoned = Some(start(address, "POST", CHAT, headers, body.as_bytes()));
    });
    let failed = poisoned.unwrap().finish();
    assert_eq!(failed.status, 500);
    assert_eq!(failed.error()["type"], "InternalServerError");
    assert_eq!(texts(&answers), undisturbed);
    assert!(server.is_healthy());
    assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    let log = std::fs::read_to_string(&log).unwrap();
    let line = log
        .lines()
        .find(|l| l.contains("working on this request alone"));
    assert!(line.unwrap().contains("the-poison"), "{log}");
}

#[test]
fn a_core_that_hangs_is_unhealthy_and_then_replaced() {
    let server = Server::start(&["--health-stall-seconds", "1"]);
    let undisturbed = texts(&ask_all(&server, || ()));
    let mut was_unhealthy = false;
    let answers = ask_all(&server, || {
        let core = server.core();
        signal(core, libc::SIGSTOP);
        eventually("unhealthy", || !server.is_healthy());
        was_unhealthy = true;
        eventually("another core", || {
            !children(server.process.0.id()).contains(&core)
        });
    });
    assert!(was_unhealthy);
    assert_eq!(texts(&answers), undisturbed);
    eventually("healthy again", || server.is_healthy());
}

#[test]
fn the_core_ends_with_the_frontend() {
    let server = Server::start(&[]);
    let core = server.core();
    let _stream = server.begin(CHAT, &long_stream("Tell me about stone.", 500));
    signal(i32::try_from(server.process.0.id()).unwrap(), libc::SIGKILL);
    let stat = format!("/proc/{core}/stat");
    eventually("the core has ended", || {
        // Nobody waits for it here: it may stay as a zombie.
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn without_restart_the_server_ends_with_its_core() {
    let mut server = Server::start(&["--no-restart"]);
    let mut stream = server.begin(CHAT, &long_stream("Tell me about stone.", 500));
    assert_eq!(stream.status(), 200);
    signal(server.core(), libc::SIGKILL);
    let mut rest = String::new();
    stream.stream().read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("\"code\":500") && rest.contains("data: [DONE]"),
        "{rest}"
    );
    assert_eq!(server.process.wait().code(), Some(1));
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let server = Server::start(&[]);
    let aborted = || {
        let text = server.get("/metrics").body;
        let line = text
            .lines()
            .find(|l| l.starts_with("vllm:request_success_total") && l.contains("\"abort\""));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    for stream in [true, false] {
        let mut body = long_stream("Tell me about stone.", 100_000);
        body["n"] = json!(4);
        body["temperature"] = json!(1);
        body["stream"] = json!(stream);
        let mut client = server.begin(CHAT, &body);
        if stream {
            assert_eq!(client.status(), 200);
        }
        eventually("it runs", || {
            server.metric("vllm:num_requests_running") == 4.0
        });
        client.stream().shutdown(Shutdown::Both).unwrap();
        drop(client);
        let wanted = if stream { "4" } else { "8" };
        // Whoever comes next hears of what the step before did.
        eventually("it is aborted", || {
            server.post(CHAT, &chat("Hi", 2));
            aborted() == wanted
        });
    }
    assert_eq!(server.metric("vllm:num_requests_running"), 0.0);
    assert_eq!(server.metric("vllm:kv_cache_usage_perc"), 0.0);
}

#[test]
fn a_client_that_never_reads_costs_nobody_anything() {
    let server = Server::start(&["--client-timeout", "1", "--enable-server-load-tracking"]);
    // More than all buffers on the way hold.
    let body = json!({
        "prompt": "Tell me about stone.", "n": 64, "max_tokens": 100_000, "ignore_eos": true,
        "stream": true, "logprobs": 20, "return_token_ids": true,
    });
    let client = server.begin("/v1/completions", &body);
    eventually("it runs", || {
        server.metric("vllm:num_requests_running") > 0.0
    });
    assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    eventually("it is given up", || {
        server.get("/load").json()["server_load"] == 0
    });
    let text = server.get("/metrics").body;
    assert!(text.contains("finished_reason=\"abort\"} "), "{text}");
    drop(client);
}

#[test]
fn what_does_not_fit_the_queue_is_turned_away() {
    let server = Server::start(&["--max-num-seqs", "2", "--max-num-queued-reqs", "5"]);
    let body = long_stream("Tell me about stone.", 50);
    let pending: Vec<_> = (0..100).map(|_| server.begin(CHAT, &body)).collect();
    let answers: Vec<_> = pending.into_iter().map(|stream| stream.finish()).collect();
    let mut served = 0;
    for answer in answers {
        if answer.status == 200 {
            streamed_text(&answer);
            served += 1;
        } else {
            assert_eq!(answer.error()["type"], "ServiceUnavailable");
            assert_eq!(answer.status, 503);
            assert_eq!(answer.headers["retry-after"], "1");
        }
    }
    assert!((1..100).contains(&served), "{served}");
    assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    let text = server.get("/metrics").body;
    let rejected = text
        .lines()
        .find(|l| l.starts_with("vllm:admission_rejections_total{"));
    assert_eq!(
        rejected.unwrap().rsplit(' ').next().unwrap(),
        (100 - served).to_string()
    );
}

/// Clients that open connections and say nothing leave files to start another core with.
#[test]
fn silent_connections_don_t_keep_a_core_from_being_replaced() {
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    // Longer than the test: nobody is closed for being slow.
    command.args(["--threads", "1", "--client-timeout", "1000"]);
    let few = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: setrlimit is async-signal-safe, and reads a value that the closure owns.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    let server = Server::spawn(&mut command);
    let first = server.core();
    let silent: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    signal(first, libc::SIGKILL);
    eventually("another core", || {
        server.is_healthy() && server.metric("formwork:engine_restarts_total") == 1.0
    });
    assert_ne!(server.core(), first);
    assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    drop(silent);
}

/// Ten thousand clients at once against a queue of a hundred: each is served or told to come again,
/// and those who are served get all of their answer.
#[test]
fn a_crowd_is_served_or_turned_away() {
    let server = Server::start(&[
        "--max-num-queued-reqs",
        "100",
        "--max-num-seqs",
        "32",
        // They all come from one address.
        "--max-connections-per-address",
        "16384",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result.json");
    let output = formwork()
        .args(["bench", "serve", "--num-prompts", "10000"])
        .args(["--random-input-len", "8", "--random-output-len", "16"])
        .args(["--constrained-share", "0.5", "--base-url", &server.address])
        .arg("--result-json")
        .arg(&result)
        .output()
        .unwrap();
    // Being turned away is a failure to whoever measures.
    assert_eq!(output.status.code(), Some(1));
    let result = std::fs::read(&result).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    let (completed, failed) = (&result["completed"], &result["failed_by_status"]);
    let turned_away = failed["503"].as_u64().unwrap();
    assert_eq!(*failed, json!({"503": turned_away}), "{}", result["errors"]);
    assert_eq!(completed.as_u64().unwrap() + turned_away, 10_000);
    assert!(completed.as_u64().unwrap() >= 100, "{completed}");
    assert_eq!(result["constrained_invalid"], 0);
    assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    eventually("every block is free", || {
        server.metric("vllm:kv_cache_usage_perc") == 0.0
    });
}

#[test]
fn logs_on_a_full_disk_stop_nobody() {
    for to_file in [false, true] {
        let mut command = formwork();
        command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
        command.arg("--enable-log-requests");
        // The core's log goes to standard error in both.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        command.stderr(full);
        if to_file {
            command.args(["--log-file", "/dev/full", "--log-format", "json"]);
        }
        let server = Server::spawn(&mut command);
        assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
        signal(server.core(), libc::SIGKILL);
        eventually("healthy again", || {
            server.is_healthy() && server.metric("formwork:engine_restarts_total") == 1.0
        });
        assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    }
}

#[test]
fn a_server_that_ends_finishes_what_it_began() {
    let mut server = Server::start(&["--shutdown-timeout", "100", "--health-stall-seconds", "600"]);
    // A connection that has had an answer and waits.
    let mut idle = send(&server.address, b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.status(), 200);
    while !idle.line().trim_end().is_empty() {}
    let core = server.core();
    let answers = ask_all(&server, || {
        // Nothing is finished before everything was asked.
        signal(core, libc::SIGSTOP);
        signal(i32::try_from(server.process.0.id()).unwrap(), libc::SIGTERM);
        eventually("/health is 503", || server.get("/health").status == 503);
        refuses_new_work(&server, idle);
        signal(core, libc::SIGCONT);
    });
    for answer in answers {
        let last = answer.events().pop().unwrap();
        let reason = last["choices"][0]["finish_reason"].as_str().unwrap();
        assert!(reason == "length" || reason == "stop", "{last}");
    }
    assert!(server.process.wait().success());
    assert!(TcpStream::connect(&server.address).is_err());
}

/// The core dies while the server ends: the next one finishes what was begun, and ends too.
#[test]
fn a_server_that_ends_outlives_its_core() {
    let mut server = Server::start(&["--shutdown-timeout", "100", "--health-stall-seconds", "600"]);
    let undisturbed = texts(&ask_all(&server, || ()));
    let core = server.core();
    let answers = ask_all(&server, || {
        // Nothing is finished before it dies.
        signal(core, libc::SIGSTOP);
        signal(i32::try_from(server.process.0.id()).unwrap(), libc::SIGTERM);
        eventually("/health is 503", || server.get("/health").status == 503);
        signal(core, libc::SIGKILL);
    });
    assert_eq!(texts(&answers), undisturbed);
    assert!(server.process.wait().success());
}

/// What a server that ends says to new connections and on `idle`, an old one.
fn refuses_new_work(server: &Server, mut idle: Pending) {
    let body = chat("Tell me about stone.", 5).to_string();
    let again = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    idle.stream().write_all(again.as_bytes()).unwrap();
    // More than is read along with its head.
    let long = chat(&"stone ".repeat(1 << 18), 5);
    let refused = [
        idle.finish(),
        server.post(CHAT, &chat("Tell me about stone.", 5)),
        server.post("/v1/completions", &long),
        server.post("/tokenize", &json!({"prompt": "a"})),
    ];
    for answer in refused {
        assert_eq!(answer.status, 503);
        assert_eq!(answer.error()["type"], "ServiceUnavailable");
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.headers["connection"], "close");
    }
    for path in ["/metrics", "/version", "/load"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["connection"], "close");
    }
}

#[test]
fn a_server_that_ends_at_once_says_so_to_its_clients() {
    let mut server = Server::start(&[]);
    let mut stream = server.begin(CHAT, &long_stream("Tell me about stone.", 100_000));
    let mut byte = [0];
    stream.stream().peek(&mut byte).unwrap();
    signal(i32::try_from(server.process.0.id()).unwrap(), libc::SIGTERM);
    let answer = stream.finish();
    let last = answer.events().pop().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "abort", "{last}");
    assert!(server.process.wait().success());
}
