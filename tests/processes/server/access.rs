//! Keys, their scopes and limits, the management port and the audit log.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::client::{Answer, Pending, send, start};
use super::support::{Server, chat, eventually, formwork, long_stream};

const CHAT: &str = "/v1/chat/completions";
const JSON: &str = "Content-Type: application/json\r\n";

/// A request with a key and a JSON body; an empty key is none.
fn ask(address: &str, key: &str, method: &str, path: &str, body: &str) -> Pending {
    let mut headers = JSON.to_owned();
    if !key.is_empty() {
        headers.push_str(&format!("Authorization: Bearer {key}\r\n"));
    }
    start(address, method, path, &headers, body.as_bytes())
}

fn status(server: &Server, key: &str, method: &str, path: &str) -> u16 {
    let body = if method == "POST" { "{}" } else { "" };
    ask(&server.address, key, method, path, body)
        .finish()
        .status
}

/// A line for a key of this text, as `formwork api-key` writes it, with further fields.
fn key_line(name: &str, key: &str, scopes: &str, more: &Value) -> String {
    let mut command = formwork();
    command.args(["api-key", "new", "--from-stdin", "--name", name]);
    let mut child = command
        .args(["--scopes", scopes])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(key.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut line: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (field, value) in more.as_object().into_iter().flatten() {
        line[field] = value.clone();
    }
    format!("{line}\n")
}

const ALICE: &str = "alice-0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef";
const CAROL: &str = "carol-0123456789abcdef";

/// Writes a file of keys that only its owner may write to, whatever the umask.
fn write_keys(path: &Path, lines: impl AsRef<[u8]>) {
    std::fs::write(path, lines).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn start_with_keys(keys: &Path, flags: &[&str]) -> Server {
    let keys = keys.to_str().unwrap();
    Server::start(&[&["--api-keys", keys], flags].concat())
}

#[test]
fn every_route_but_the_probes_asks_for_a_key() {
    let server = Server::start(&["--api-key", "one", "--api-key", "two"]);
    for path in ["/health", "/ping", "/version"] {
        assert_eq!(status(&server, "", "GET", path), 200, "{path}");
    }
    for (method, path, with_key) in [
        ("GET", "/metrics", 200),
        ("GET", "/load", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/v1/models", 200),
        ("POST", "/tokenize", 400),
        ("POST", "/detokenize", 400),
        ("POST", CHAT, 400),
        ("POST", "/v1/chat/completions/batch", 400),
        ("POST", "/inference/v1/generate", 400),
        ("GET", "/is_paused", 200),
        ("GET", "/nothing", 404),
        ("DELETE", "/metrics", 405),
        ("OPTIONS", "/v1/models", 405),
        ("GET", "/health/", 404),
    ] {
        let answer = ask(&server.address, "", method, path, "").finish();
        assert_eq!(answer.status, 401, "{method} {path}");
        assert_eq!(answer.error()["type"], "AuthenticationError");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        assert_eq!(status(&server, "three", method, path), 401);
        for key in ["one", "two"] {
            assert_eq!(
                status(&server, key, method, path),
                with_key,
                "{method} {path}"
            );
        }
    }
}

#[test]
fn a_refused_request_is_answered_before_its_body() {
    let server = Server::start(&["--api-key", "one"]);
    for path in ["/tokenize", CHAT, "/nothing"] {
        // A body that never comes.
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 30000000\r\n\r\n{{");
        let answer = send(&server.address, request.as_bytes()).finish();
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.headers["connection"], "close", "{path}");
    }
    // Without a body the connection serves on.
    let twice = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
    let mut connection = send(&server.address, twice.as_bytes());
    assert_eq!(connection.status(), 401);
    let mut rest = String::new();
    while !rest.contains("HTTP/1.1 401") {
        rest = connection.line();
        assert!(!rest.is_empty(), "the connection was closed");
    }
}

#[test]
fn open_routes_ask_as_vllm_does() {
    let server = Server::start(&["--api-key", "one", "--open-routes"]);
    for (method, path, expected) in [
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("POST", "/tokenize", 400),
        ("GET", "/nothing", 404),
        ("OPTIONS", "/v1/models", 405),
        ("GET", "/v1/models", 401),
        ("POST", "/pause", 401),
    ] {
        assert_eq!(status(&server, "", method, path), expected, "{path}");
    }
    assert_eq!(status(&server, "one", "GET", "/v1/models"), 200);
}

#[test]
fn without_keys_there_is_no_administration() {
    for path in ["/pause", "/resume", "/reset_prefix_cache"] {
        let answer = Server::shared().post(path, &json!({}));
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[test]
fn keys_of_a_file_have_scopes_and_limits_and_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let limits = json!({"requests_per_minute": 3, "max_concurrent_requests": 1});
    let alice = key_line("alice", ALICE, "inference", &limits);
    let bob = key_line("bob", BOB, "metrics,admin", &Value::Null);
    write_keys(&path, format!("# keys\n{alice}{bob}"));
    let log = folder.path().join("log");
    let server = start_with_keys(&path, &["--log-file", log.to_str().unwrap()]);

    for (key, method, path, expected) in [
        (BOB, "GET", "/metrics", 200),
        (BOB, "GET", "/v1/models", 403),
        (BOB, "POST", "/tokenize", 403),
        (BOB, "POST", "/inference/v1/generate", 403),
        (BOB, "GET", "/is_paused", 200),
        (ALICE, "GET", "/metrics", 403),
        (ALICE, "POST", "/tokenize", 403),
        (ALICE, "POST", "/pause", 403),
        (CAROL, "GET", "/v1/models", 401),
    ] {
        assert_eq!(status(&server, key, method, path), expected, "{key} {path}");
    }

    // One request at a time, until its stream ends.
    let body = long_stream("Tell me everything.", 1000).to_string();
    let mut stream = ask(&server.address, ALICE, "POST", CHAT, &body);
    assert_eq!(stream.status(), 200);
    let second = ask(&server.address, ALICE, "GET", "/v1/models", "").finish();
    assert_eq!(second.status, 429);
    assert_eq!(second.headers["retry-after"], "1");
    let error = second.error();
    assert_eq!(error["type"], "RateLimitError");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("max_concurrent_requests")
    );
    drop(stream);
    eventually("the stream's place is free", || {
        status(&server, ALICE, "GET", "/v1/models") == 200
    });
    // Three may begin in a minute, however slow this machine is.
    let refused = (0..100)
        .map(|_| ask(&server.address, ALICE, "GET", "/v1/models", "").finish())
        .find(|answer| answer.status == 429)
        .unwrap();
    let seconds: u64 = refused.headers["retry-after"].parse().unwrap();
    assert!((1..=20).contains(&seconds), "{seconds}");

    // A broken file changes nothing but the log.
    let reload = || server.process.signal(libc::SIGHUP);
    write_keys(&path, "{\"name\": \"x\"}\n");
    reload();
    let logged = |what: &str| std::fs::read_to_string(&log).unwrap().contains(what);
    eventually("the fault is logged", || {
        logged("line 1: missing field `hash`")
    });
    assert_eq!(status(&server, BOB, "GET", "/metrics"), 200);

    let carol = key_line("carol", CAROL, "inference", &Value::Null);
    write_keys(&path, alice + &carol);
    reload();
    eventually("the new key is known", || {
        status(&server, CAROL, "GET", "/v1/models") == 200
    });
    assert_eq!(status(&server, BOB, "GET", "/metrics"), 401);
}

#[test]
fn tokens_are_counted_when_a_request_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let limits = json!({"tokens_per_minute": 10});
    write_keys(&path, key_line("alice", ALICE, "inference", &limits));
    let server = start_with_keys(&path, &[]);
    let mut body = chat("Hello", 20);
    body["ignore_eos"] = json!(true);
    let answer = ask(&server.address, ALICE, "POST", CHAT, &body.to_string()).finish();
    assert_eq!(answer.status, 200);
    let total = answer.json()["usage"]["total_tokens"].as_u64().unwrap();
    let refused = ask(&server.address, ALICE, "GET", "/v1/models", "").finish();
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused.headers["retry-after"].parse().unwrap();
    // Ten tokens a minute pay the debt; a minute may have begun.
    let debt = (total - 10) * 6;
    assert!((debt - 60..=debt).contains(&seconds), "{total}: {seconds}");
}

#[test]
fn a_file_of_keys_that_cannot_be_used_keeps_the_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    write_keys(&path, "secret-key\n");
    let output = formwork()
        .args(["serve", "--host", "127.0.0.1", "--port", "0", "--api-keys"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("line 1: it must be a JSON object"),
        "{error}"
    );
    assert!(!error.contains("secret-key"), "{error}");
}

/// Cached tokens of a prompt that fills some blocks.
fn cached_tokens(server: &Server, key: &str, salt: Option<&str>) -> u64 {
    let mut body = json!({"prompt": "word ".repeat(100), "max_tokens": 1});
    if let Some(salt) = salt {
        body["cache_salt"] = json!(salt);
    }
    let body = body.to_string();
    let answer = ask(&server.address, key, "POST", "/v1/completions", &body).finish();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap()
}

#[test]
fn keys_share_no_cached_prefix_unless_told_to() {
    let flags = [
        "--enable-prompt-tokens-details",
        "--api-key",
        "one",
        "--api-key",
        "two",
    ];
    let server = Server::start(&flags);
    assert_eq!(cached_tokens(&server, "one", None), 0);
    assert!(cached_tokens(&server, "one", None) > 0);
    assert_eq!(cached_tokens(&server, "two", None), 0);
    assert_eq!(cached_tokens(&server, "one", Some("s")), 0);
    assert!(cached_tokens(&server, "one", Some("s")) > 0);
    assert_eq!(cached_tokens(&server, "two", Some("s")), 0);
    assert!(cached_tokens(&server, "two", None) > 0);
    let server = Server::start(&[&flags[..], &["--shared-prefix-cache"]].concat());
    assert_eq!(cached_tokens(&server, "one", None), 0);
    assert!(cached_tokens(&server, "two", None) > 0);
}

/// Starts a server with a management port; returns that port's address too.
pub(super) fn start_managed(folder: &Path, flags: &[&str]) -> (Server, String) {
    let log = folder.join("log");
    let more = [
        "--management-port",
        "0",
        "--log-file",
        log.to_str().unwrap(),
    ];
    let server = Server::start(&[&more, flags].concat());
    let log = std::fs::read_to_string(&log).unwrap();
    let address = log.rsplit("management at http://").next().unwrap();
    let address = address.lines().next().unwrap().to_owned();
    (server, address)
}

fn on(address: &str, key: &str, method: &str, path: &str) -> Answer {
    ask(address, key, method, path, "").finish()
}

#[test]
fn a_management_port_has_what_is_not_for_clients() {
    let folder = tempfile::tempdir().unwrap();
    let (server, management) = start_managed(folder.path(), &["--api-key", "one"]);
    for (path, key) in [("/metrics", ""), ("/load", ""), ("/is_paused", "one")] {
        assert_eq!(status(&server, "one", "GET", path), 404, "{path}");
        assert_eq!(on(&management, key, "GET", path).status, 200, "{path}");
    }
    assert_eq!(on(&management, "one", "GET", "/v1/models").status, 404);
    for address in [&server.address, &management] {
        assert_eq!(on(address, "", "GET", "/health").status, 200);
    }
    // Of a web page on this machine nothing is taken.
    let origin = "Origin: https://a.example\r\n";
    let page = start(&management, "POST", "/pause", origin, b"").finish();
    assert_eq!(page.status, 403);

    // There is a key for it, so that other users of this machine can't pause the server.
    assert_eq!(on(&management, "", "POST", "/pause").status, 401);

    let wrong = on(&management, "one", "POST", "/pause?mode=now");
    assert_eq!(wrong.status, 400);
    assert_eq!(
        on(&management, "one", "POST", "/pause?mode=keep").status,
        200
    );
    let paused = on(&management, "one", "GET", "/is_paused").json();
    assert_eq!(paused, json!({"is_paused": true}));
    for address in [&server.address, &management] {
        assert_eq!(on(address, "", "GET", "/health").status, 503);
    }
    // A request waits until the engine goes on.
    let body = chat("Hi", 2).to_string();
    let waiting = ask(&server.address, "one", "POST", CHAT, &body);
    assert_eq!(on(&management, "one", "POST", "/resume").status, 200);
    assert_eq!(waiting.finish().status, 200);
    assert!(server.is_healthy());
    eventually("the cache is empty", || {
        on(&management, "one", "POST", "/reset_prefix_cache").status == 200
    });
}

#[test]
fn beyond_this_machine_administration_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let alice = key_line("alice", ALICE, "inference", &Value::Null);
    let bob = key_line("bob", BOB, "admin", &Value::Null);
    write_keys(&path, alice + &bob);
    let flags = ["--management-host", "0.0.0.0"];
    let keys = ["--api-keys", path.to_str().unwrap()];
    let (_server, management) = start_managed(folder.path(), &[flags, keys].concat());
    let management = management.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(on(&management, "", "GET", "/metrics").status, 200);
    assert_eq!(on(&management, "", "POST", "/resume").status, 401);
    assert_eq!(on(&management, ALICE, "POST", "/resume").status, 403);
    assert_eq!(on(&management, BOB, "POST", "/resume").status, 200);
    // At a loopback address it is open where no key is for it.
    write_keys(&path, key_line("alice", ALICE, "inference", &Value::Null));
    let (_server, management) = start_managed(folder.path(), &keys);
    assert_eq!(on(&management, "", "POST", "/resume").status, 200);
    let (_server, management) = start_managed(folder.path(), &flags);
    let management = management.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(on(&management, "", "POST", "/resume").status, 404);
}

#[test]
fn the_audit_log_has_a_line_for_each_request_and_no_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let flags = ["--audit-log", path.to_str().unwrap(), "--api-key", "one"];
    let mut server = Server::start(&flags);
    let body = chat("a-secret-question", 3).to_string();
    let answer = ask(&server.address, "one", "POST", CHAT, &body).finish();
    let usage = answer.json()["usage"].take();
    assert_eq!(status(&server, "", "GET", "/metrics"), 401);
    assert!(server.is_healthy());
    // A client that goes before the end.
    let body = long_stream("Tell me everything.", 1000).to_string();
    let mut stream = ask(&server.address, "one", "POST", CHAT, &body);
    assert_eq!(stream.status(), 200);
    drop(stream);
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("secret"), "{text}");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    eventually("three lines", || lines().len() == 3);
    let lines = lines();
    let first = &lines[0];
    assert_eq!(first["key"], "--api-key 1");
    assert_eq!(first["client"], "127.0.0.1");
    assert_eq!(
        (&first["method"], &first["route"]),
        (&json!("POST"), &json!(CHAT))
    );
    assert_eq!(first["status"], 200);
    for tokens in ["prompt_tokens", "completion_tokens"] {
        assert_eq!(first[tokens], usage[tokens]);
    }
    assert_eq!(lines[1]["key"], Value::Null);
    assert_eq!(
        (&lines[1]["status"], &lines[1]["prompt_tokens"]),
        (&json!(401), &json!(0))
    );
    assert!(lines[2]["completion_tokens"].as_u64().unwrap() > 0);
    // The last lines are written before the process ends.
    assert_eq!(status(&server, "one", "GET", "/v1/models"), 200);
    server.process.signal(libc::SIGTERM);
    assert!(server.process.wait().success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.lines().last().unwrap().contains("/v1/models"),
        "{text}"
    );
}

#[test]
fn hostile_requests_leave_metrics_and_logs_small() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let flags = ["--enable-log-requests", "--log-file", log.to_str().unwrap()];
    let server = Server::start(&flags);
    let paths = [
        "/health",
        "/metrics",
        "/v1/models",
        "/v1/models/a",
        "/tokenize",
        CHAT,
        "/nothing",
    ];
    let methods = ["GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "HEAD"];
    for connection in 0..30 {
        let mut requests = String::new();
        for i in 0..100 {
            let path = paths[i % paths.len()];
            let made_up = format!("M{connection}X{i}");
            let method = if i % 2 == 0 {
                &made_up
            } else {
                methods[i % methods.len()]
            };
            requests.push_str(&format!(
                "{method} {path}?{made_up} HTTP/1.1\r\nHost: x\r\n"
            ));
            if i == 99 {
                requests.push_str("Connection: close\r\n");
            }
            requests.push_str("\r\n");
        }
        let mut answers = Vec::new();
        let mut sent = send(&server.address, requests.as_bytes());
        sent.stream().read_to_end(&mut answers).unwrap();
        let answers = String::from_utf8_lossy(&answers);
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 100);
    }
    let long = "M".repeat(50_000);
    start(&server.address, &long, "/health", "", b"").finish();
    let text = server.get("/metrics").body;
    assert!(text.len() < 100_000, "{} bytes", text.len());
    assert!(text.contains("method=\"other\",status=\"405\""), "{text}");
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(!log.contains("MMM") && !log.contains("M1X"), "{log}");
    assert!(log.contains("method=\"other\""), "{log}");
}

#[test]
fn a_hostile_request_id_cannot_forge_a_log() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["human", "json"] {
        let log = folder.path().join(format);
        let log_file = log.to_str().unwrap();
        let server = Server::start(&[
            "--enable-log-requests",
            "--max-log-len",
            "1000",
            "--log-format",
            format,
            "--log-file",
            log_file,
        ]);
        let body = json!({"prompt": "\u{9b}31m\u{202e}\u{2028}\u{7f}evil", "max_tokens": 1});
        assert_eq!(server.post("/v1/completions", &body).status, 200);
        let text = std::fs::read_to_string(&log).unwrap();
        let line = text.lines().find(|line| line.contains("evil"));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        let escaped = match format {
            "json" => "\\u202e",
            _ => "\\u{202e}",
        };
        assert!(line.contains(escaped), "{line}");
        assert!(line.is_ascii(), "{line}");
    }
}

#[test]
fn each_answer_counts_for_the_limits_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let alice = json!({"requests_per_minute": 5});
    let bob = json!({"max_concurrent_requests": 3});
    let lines = [(ALICE, "alice", alice), (BOB, "bob", bob)];
    let lines = lines.map(|(key, name, limits)| key_line(name, key, "inference", &limits));
    write_keys(&path, lines.concat());
    let server = start_with_keys(&path, &[]);
    let post = |key: &str, path: &str, body: &Value| {
        ask(&server.address, key, "POST", path, &body.to_string()).finish()
    };
    let prompts = |prompts: Value, n: u32| json!({"prompt": prompts, "n": n, "max_tokens": 1});
    let completions = "/v1/completions";
    let refused = |key: &str, path: &str, body: &Value, limit: &str, num_answers: &str| {
        let answer = post(key, path, body);
        assert_eq!(answer.status, 429, "{answer:?}");
        let error = answer.error();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(limit), "{message}");
        assert!(message.contains(num_answers), "{message}");
        assert!(answer.headers.contains_key("retry-after"));
    };
    // `n` answers to each of the prompts.
    let four = prompts(json!(["a", "b"]), 2);
    let limit = "max_concurrent_requests of 3";
    refused(BOB, completions, &four, limit, "4 answers");
    let mut chat = long_stream("a", 1);
    chat["n"] = json!(9);
    refused(BOB, CHAT, &chat, limit, "9 answers");
    // Places of what was refused, and of what has ended, are free again.
    for _ in 0..3 {
        let three = prompts(json!(["a", "b", "c"]), 1);
        eventually("the places are free", || {
            post(BOB, completions, &three).status == 200
        });
    }
    let limit = "requests_per_minute of 5";
    refused(
        ALICE,
        completions,
        &prompts(json!("a"), 100),
        limit,
        "100 answers",
    );
    // It counts for nothing, its first answer neither.
    for _ in 0..5 {
        let answer = post(ALICE, completions, &prompts(json!("a"), 1));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Requests that wait in the core, as the key `two` sees them.
fn num_waiting(server: &Server) -> f64 {
    let metrics = ask(&server.address, "two", "GET", "/metrics", "").finish();
    let line = metrics
        .body
        .lines()
        .find(|line| line.starts_with("vllm:num_requests_waiting{"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_flood_of_one_key_does_not_queue_before_another_key() {
    let flags = [
        "--api-key",
        "one",
        "--api-key",
        "two",
        "--max-num-seqs",
        "4",
    ];
    let server = Server::start(&flags);
    let flood = json!({"prompt": "a", "n": 1000, "max_tokens": 400, "ignore_eos": true, "temperature": 1.0});
    let path = "/v1/completions";
    let _flood = ask(&server.address, "one", "POST", path, &flood.to_string());
    eventually("the flood waits", || num_waiting(&server) > 500.0);
    let body =
        json!({"prompt": "b", "n": 3, "max_tokens": 4, "ignore_eos": true, "temperature": 1.0});
    let answer = ask(&server.address, "two", "POST", path, &body.to_string()).finish();
    assert_eq!(answer.status, 200, "{answer:?}");
    // Four of a thousand answers at a time: it would have been behind nearly all of them.
    assert!(num_waiting(&server) > 500.0);
}
