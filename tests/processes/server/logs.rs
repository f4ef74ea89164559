//! What the log says of requests, of throughput and of the start.

use std::path::Path;

use serde_json::{Value, json};

use super::client::start;
use super::support::{Server, chat, eventually, formwork, long_stream};

const CHAT: &str = "/v1/chat/completions";

fn lines(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.collect()
}

fn messages(log: &Path, prefix: &str) -> Vec<String> {
    let lines = lines(log);
    let texts = lines.iter().filter_map(|line| line["message"].as_str());
    let texts = texts.filter(|text| text.starts_with(prefix));
    texts.map(str::to_owned).collect()
}

#[test]
fn a_requests_line_says_who_how_much_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::start(&[
        "--enable-log-requests",
        "--log-format",
        "json",
        "--log-file",
        log.to_str().unwrap(),
        "--api-key",
        "one",
    ]);
    let ask = |body: &Value| {
        let headers = "Content-Type: application/json\r\nAuthorization: Bearer one\r\n";
        start(
            &server.address,
            "POST",
            CHAT,
            headers,
            body.to_string().as_bytes(),
        )
    };
    let answer = ask(&chat("a-secret-question", 3)).finish();
    let usage = answer.json()["usage"].take();
    let wrong = json!({"messages": [{"role": "user", "content": "secret"}], "temperature": -5});
    assert_eq!(ask(&wrong).finish().status, 400);
    let mut stream = ask(&long_stream("Tell me a secret.", 1000));
    assert_eq!(stream.status(), 200);
    drop(stream);
    let requests = || -> Vec<Value> {
        let lines = lines(&log).into_iter();
        lines.filter(|line| line["message"] == "request").collect()
    };
    eventually("three lines", || requests().len() == 3);
    let requests = requests();
    let [first, refused, gone] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    for (field, value) in [
        ("client", json!("127.0.0.1")),
        ("key", json!("--api-key 1")),
        ("handler", json!(CHAT)),
        ("status", json!(200)),
        ("prompt_tokens", usage["prompt_tokens"].clone()),
        ("completion_tokens", usage["completion_tokens"].clone()),
        ("finish_reason", json!("length")),
        ("error", Value::Null),
    ] {
        assert_eq!(first[field], value, "{field}: {first}");
    }
    assert!(first["duration"].is_f64(), "{first}");
    assert_eq!(refused["status"], 400);
    assert_eq!(refused["error"], "BadRequestError (temperature)");
    assert_eq!(refused["finish_reason"], Value::Null);
    assert_eq!(
        (&gone["status"], &gone["finish_reason"]),
        (&json!(200), &json!("abort"))
    );
    assert!(gone["completion_tokens"].as_u64().unwrap() > 0, "{gone}");
}

/// One request, and then none: its line comes all the same, and no other.
#[test]
fn a_throughput_line_follows_a_request_though_none_comes_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::start(&["--log-format", "json", "--log-file", log.to_str().unwrap()]);
    assert_eq!(server.post(CHAT, &chat("Hi", 5)).status, 200);
    let throughput = || messages(&log, "Engine 000: ");
    eventually("the line comes", || !throughput().is_empty());
    let said = throughput();
    let line = said.last().unwrap();
    assert!(
        line.contains("Running: 0 reqs, Waiting: 0 reqs, KV cache usage: 0.0%"),
        "{line}"
    );
    let rate = |name: &str| -> f64 {
        let (_, rest) = line.split_once(name).unwrap();
        let (rate, _) = rest.split_once(" tokens/s").unwrap();
        rate.parse().unwrap()
    };
    assert!(rate("Avg prompt throughput: ") > 0.0, "{line}");
    assert!(rate("Avg generation throughput: ") > 0.0, "{line}");
}

/// The engine's own requests at the start leave JSON's grammar, and nothing in any count.
#[test]
fn the_first_request_finds_a_warm_engine() {
    let server = Server::start(&[]);
    for name in ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"] {
        assert_eq!(server.metric(name), 0.0, "{name}");
    }
    let mut body = chat("Hi", 40);
    body["response_format"] = json!({"type": "json_object"});
    assert_eq!(server.post(CHAT, &body).status, 200);
    let count = |name: &str| server.metric(&format!("formwork:structured_output_{name}_total"));
    assert_eq!((count("cache_hits"), count("cache_misses")), (1.0, 0.0));
    assert_eq!(server.metric("vllm:kv_cache_usage_perc"), 0.0);
    assert_eq!(server.metric("vllm:prefix_cache_hits_total"), 0.0);
}

#[test]
fn a_cache_that_is_only_reserved_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
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
    command.args(["--kv-cache-memory-bytes", "16777216"]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let _server = Server::spawn(&mut command);
    let says = || std::fs::read_to_string(&log).unwrap();
    let expected = "--kv-cache-memory-bytes (reserved; memory is taken as it fills)";
    eventually("the summary is there", || says().contains(expected));
}
