//! Keys with names, scopes and limits, and what clients without one may ask: findings 1, 10 and 17.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::server::client::{Answer, start};
use crate::server::support::{Server, eventually, formwork};

const COMPLETIONS: &str = "/v1/completions";

/// Long enough for `formwork api-key`.
const ALICE: &str = "alice-alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob-bob";
const SCRAPER: &str = "scraper-scraper-scraper";

/// A request with this key, or without one.
fn ask(address: &str, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Answer {
    let mut headers = String::new();
    if let Some(key) = key {
        headers.push_str(&format!("Authorization: Bearer {key}\r\n"));
    }
    if body.is_some() {
        headers.push_str("Content-Type: application/json\r\n");
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    start(address, method, path, &headers, body.as_bytes()).finish()
}

fn serve(flags: &[&str]) -> Command {
    let mut command = formwork();
    command.args([
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--threads",
        "1",
    ]);
    command.args(flags);
    command
}

/// The line of a key, as `formwork api-key new` writes it.
fn line(name: &str, key: &str, scopes: &str) -> Value {
    let mut command = formwork();
    command.args([
        "api-key",
        "new",
        "--from-stdin",
        "--name",
        name,
        "--scopes",
        scopes,
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(key.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(!line.contains(key), "the file has the hash alone: {line}");
    serde_json::from_str(&line).unwrap()
}

fn write(path: &Path, lines: &[Value]) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
}

fn completion() -> Value {
    json!({"prompt": "Hi", "max_tokens": 1})
}

/// With keys, what costs memory or tells something asks for one.
#[test]
fn without_a_key_only_probes_are_answered() {
    let server = Server::start(&["--api-key", ALICE]);
    let status = |method: &str, path: &str, key: Option<&str>, body: Option<Value>| {
        ask(&server.address, method, path, key, body.as_ref()).status
    };
    let posts = [
        (COMPLETIONS, completion()),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}),
        ),
        (
            "/v1/responses",
            json!({"input": "Hi", "max_output_tokens": 1}),
        ),
        ("/tokenize", json!({"prompt": "Hi"})),
        ("/detokenize", json!({"tokens": [1]})),
    ];
    for (path, body) in posts {
        assert_eq!(
            status("POST", path, None, Some(body.clone())),
            401,
            "{path}"
        );
        assert_eq!(
            status("POST", path, Some("wrong"), Some(body.clone())),
            401,
            "{path}"
        );
        assert_eq!(status("POST", path, Some(ALICE), Some(body)), 200, "{path}");
    }
    for path in ["/v1/models", "/metrics", "/load", "/openapi.json"] {
        assert_eq!(status("GET", path, None, None), 401, "{path}");
        assert_eq!(status("GET", path, Some(ALICE), None), 200, "{path}");
    }
    for path in ["/health", "/ping", "/version"] {
        assert_eq!(status("GET", path, None, None), 200, "{path}");
    }
}

/// vLLM's habit is there for who asks for it.
#[test]
fn open_routes_are_open_only_where_asked_for() {
    let server = Server::start(&["--api-key", ALICE, "--open-routes"]);
    let status = |method: &str, path: &str, body: Option<&Value>| {
        ask(&server.address, method, path, None, body).status
    };
    assert_eq!(status("GET", "/metrics", None), 200);
    assert_eq!(
        status("POST", "/tokenize", Some(&json!({"prompt": "Hi"}))),
        200
    );
    assert_eq!(status("POST", COMPLETIONS, Some(&completion())), 401);
}

#[test]
fn keys_of_a_file_have_scopes_and_limits_and_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let mut alice = line("alice", ALICE, "inference");
    alice["requests_per_minute"] = json!(3);
    let scraper = line("scraper", SCRAPER, "metrics");
    write(&path, &[alice.clone(), scraper]);
    let server = Server::spawn(&mut serve(&["--api-keys", path.to_str().unwrap()]));
    let status = |key: &str, method: &str, path: &str, body: Option<&Value>| {
        ask(&server.address, method, path, Some(key), body).status
    };
    assert_eq!(status(SCRAPER, "GET", "/metrics", None), 200);
    assert_eq!(
        status(SCRAPER, "POST", COMPLETIONS, Some(&completion())),
        403
    );
    assert_eq!(status(ALICE, "GET", "/metrics", None), 403);
    assert_eq!(
        status(ALICE, "POST", "/tokenize", Some(&json!({"prompt": "Hi"}))),
        403
    );
    for _ in 0..3 {
        assert_eq!(status(ALICE, "POST", COMPLETIONS, Some(&completion())), 200);
    }
    let refused = ask(
        &server.address,
        "POST",
        COMPLETIONS,
        Some(ALICE),
        Some(&completion()),
    );
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    // A key that is no longer there is none, once the file was read again.
    write(&path, &[line("bob", BOB, "inference,metrics")]);
    assert_eq!(status(BOB, "GET", "/metrics", None), 401);
    server.process.signal(libc::SIGHUP);
    eventually("the file is read again", || {
        status(BOB, "GET", "/metrics", None) == 200
    });
    assert_eq!(status(SCRAPER, "GET", "/metrics", None), 401);
    // A file that can't be used changes nothing.
    std::fs::write(&path, "{\"name\": \"mallory\"").unwrap();
    server.process.signal(libc::SIGHUP);
    assert_eq!(status(BOB, "POST", COMPLETIONS, Some(&completion())), 200);
    assert!(ask(&server.address, "GET", "/health", None, None).status == 200);
}

/// Finding 10: how fast an answer came told a tenant what another had asked.
#[test]
fn keys_share_no_cached_prefixes() {
    let flags = [
        "--api-key",
        ALICE,
        "--api-key",
        BOB,
        "--enable-prompt-tokens-details",
    ];
    let cached = |server: &Server, key: &str| {
        let body = json!({"prompt": "What only one tenant knows. ".repeat(40), "max_tokens": 1});
        let answer = ask(&server.address, "POST", COMPLETIONS, Some(key), Some(&body)).json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0)
    };
    let server = Server::spawn(&mut serve(&flags));
    assert_eq!(cached(&server, ALICE), 0);
    assert!(cached(&server, ALICE) > 0);
    assert_eq!(cached(&server, BOB), 0);
    assert!(cached(&server, BOB) > 0);
    let shared = Server::spawn(&mut serve(
        &[&flags[..], &["--shared-prefix-cache"]].concat(),
    ));
    assert_eq!(cached(&shared, ALICE), 0);
    assert!(cached(&shared, BOB) > 0);
}

#[test]
fn the_audit_log_says_who_asked_and_never_what() {
    let folder = tempfile::tempdir().unwrap();
    let (keys, log) = (folder.path().join("keys"), folder.path().join("audit"));
    write(&keys, &[line("alice", ALICE, "inference")]);
    let flags = [
        "--api-keys",
        keys.to_str().unwrap(),
        "--audit-log",
        log.to_str().unwrap(),
    ];
    let server = Server::spawn(&mut serve(&flags));
    let body = json!({"prompt": "the content of a prompt", "max_tokens": 2, "ignore_eos": true});
    assert_eq!(
        ask(
            &server.address,
            "POST",
            COMPLETIONS,
            Some(ALICE),
            Some(&body)
        )
        .status,
        200
    );
    assert_eq!(
        ask(&server.address, "POST", COMPLETIONS, None, Some(&body)).status,
        401
    );
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    eventually("both requests are there", || lines().len() >= 2);
    let [first, second, ..] = &lines()[..] else {
        unreachable!()
    };
    for (line, key, status, tokens) in [
        (first, json!("alice"), 200, 2),
        (second, Value::Null, 401, 0),
    ] {
        assert_eq!(
            (&line["key"], &line["status"]),
            (&key, &json!(status)),
            "{line}"
        );
        assert_eq!(line["route"], COMPLETIONS, "{line}");
        assert_eq!(line["completion_tokens"], tokens, "{line}");
        assert!(!line.to_string().contains("content of a prompt"), "{line}");
        assert!(!line.to_string().contains(ALICE), "{line}");
    }
}

#[test]
fn management_has_a_port_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let flags = [
        "--api-key",
        ALICE,
        "--management-port",
        "0",
        "--log-file",
        log.to_str().unwrap(),
    ];
    let server = Server::spawn(&mut serve(&flags));
    let text = std::fs::read_to_string(&log).unwrap();
    let address = text
        .split("management at http://")
        .nth(1)
        .expect("its address is logged");
    let address = address.split_whitespace().next().unwrap();
    let here = |method: &str, path: &str| ask(address, method, path, None, None).status;
    let there = |method: &str, path: &str, key: Option<&str>| {
        ask(&server.address, method, path, key, None).status
    };
    assert_eq!(
        (here("GET", "/metrics"), here("GET", "/health")),
        (200, 200)
    );
    assert_eq!(there("GET", "/metrics", Some(ALICE)), 404);
    assert_eq!(there("POST", "/pause", Some(ALICE)), 404);
    assert_eq!(
        ask(
            address,
            "POST",
            COMPLETIONS,
            Some(ALICE),
            Some(&completion())
        )
        .status,
        404
    );
    // A paused core says so: finding 9.
    assert_eq!(here("POST", "/pause"), 200);
    assert_eq!(there("GET", "/health", None), 503);
    assert_eq!(here("POST", "/resume"), 200);
    assert_eq!(there("GET", "/health", None), 200);
    assert_eq!(
        ask(
            &server.address,
            "POST",
            COMPLETIONS,
            Some(ALICE),
            Some(&completion())
        )
        .status,
        200
    );
    let page = start(
        address,
        "POST",
        "/pause",
        "Origin: http://evil.example\r\n",
        b"",
    )
    .finish();
    assert_eq!(page.status, 403);
}

/// Finding 17: control characters of the C1 set and of bidirectional text reached logs as they were.
#[test]
fn logs_are_one_line_each_and_plain() {
    for format in ["human", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let flags = [
            "--log-file",
            log.to_str().unwrap(),
            "--log-format",
            format,
            "--enable-log-requests",
            "--max-log-len",
            "500",
        ];
        let server = Server::spawn(&mut serve(&flags));
        let hostile = "\u{9b}31m\u{202e}\u{2066}\u{1b}[31m\u{7f}\nINFO forged";
        let mut body = completion();
        body["prompt"] = json!(hostile);
        body["model"] = json!(hostile);
        assert_eq!(server.post(COMPLETIONS, &body).status, 404);
        let read = || std::fs::read_to_string(&log).unwrap();
        eventually("the request is logged", || read().contains("forged"));
        let text = read();
        for c in ['\u{9b}', '\u{202e}', '\u{2066}', '\u{1b}', '\u{7f}'] {
            assert!(!text.contains(c), "{format}: {c:?} in {text:?}");
        }
        assert!(!text.contains("\nINFO forged"), "{format}: {text:?}");
    }
}
