//! What bad requests get: a status, and a body that says what is wrong and where.

use std::io::{ErrorKind, Read, Write};

use serde_json::{Value, json};

use super::client::{Answer, Pending, send, start};
use super::support::{Server, chat};

const CHAT: &str = "/v1/chat/completions";
const JSON: &str = "Content-Type: application/json\r\n";

fn refused(path: &str, body: &Value) -> Value {
    let answer = Server::shared().post(path, body);
    assert_eq!(answer.status, 400, "{body}: {answer:?}");
    answer.error()
}

#[test]
fn a_wrong_field_is_named() {
    let with = |name: &str, value: Value| {
        let mut body = chat("Hi", 4);
        body[name] = value;
        body
    };
    for (name, value) in [
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("top_p", json!(2)),
        ("n", json!(0)),
        ("max_tokens", json!(-1)),
        ("messages", json!([])),
        ("messages", json!("Hi")),
        ("top_logprobs", json!(3)),
        ("stream_options", json!(true)),
        ("tools", json!({})),
        ("tool_choice", json!("required")),
        ("temprature", json!(1)),
        ("guided_yaml", json!("a")),
        ("prompt_embeds", json!("x")),
        ("logit_bias", json!({"99999999": 1})),
    ] {
        let error = refused(CHAT, &with(name, value.clone()));
        assert_eq!(error["type"], "BadRequestError");
        assert_eq!(error["param"], name, "{value}: {error}");
    }
    let error = refused("/v1/completions", &json!({}));
    assert_eq!(error["param"], "prompt");
    let long = "word ".repeat(100_000);
    let error = refused(CHAT, &chat(&long, 4));
    assert_eq!(error["param"], "input_tokens");
    // The value at fault is cut short.
    let error = refused(CHAT, &with("temperature", json!("x".repeat(10_000))));
    assert!(error["message"].as_str().unwrap().len() < 1000);
    // A stream that can't begin is an error like any other.
    let mut body = with("stream", json!(true));
    body["top_p"] = json!(2);
    assert_eq!(refused(CHAT, &body)["param"], "top_p");
}

/// For programs, on every route: what the frontend finds and what the core finds alike.
#[test]
fn an_error_in_a_constraint_says_where_as_data() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "strnig"}}});
    let pointer = json!({"pointer": "/properties/a/type"});
    let constraints = [
        (
            json!({"regex": "a\n(a)\\1"}),
            json!({"line": 2, "column": 4}),
        ),
        (json!({"json": schema}), pointer.clone()),
        (json!({"json": "{"}), json!({"line": 1, "column": 2})),
        (
            json!({"grammar": "root ::= \"a\"\nb ::= )"}),
            json!({"line": 2, "column": 7}),
        ),
        (
            json!({"grammar": "start: \"a\"\nb: )"}),
            json!({"line": 2, "column": 4}),
        ),
        (
            json!({"structural_tag": {"type": "structural_tag", "format": {"type": "no"}}}),
            json!({"pointer": "/format/type"}),
        ),
    ];
    for (constraint, location) in constraints {
        let with = |body: Value| {
            let mut body = body;
            body["structured_outputs"] = constraint.clone();
            body
        };
        for (route, body) in [
            (CHAT, chat("Hi", 4)),
            ("/v1/completions", json!({"prompt": "a"})),
            ("/v1/responses", json!({"input": "a"})),
        ] {
            let error = refused(route, &with(body));
            assert_eq!(error["location"], location, "{route}: {error}");
        }
    }
    let mut body = chat("Hi", 4);
    body["tools"] = json!([
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "g", "parameters": schema, "strict": true}},
    ]);
    body["tool_choice"] = json!("required");
    let error = refused(CHAT, &body);
    assert_eq!(error["param"], "tools[1].function.parameters", "{error}");
    assert_eq!(error["location"], pointer, "{error}");
    let body = json!({"max_tokens": 4, "messages": [{"role": "user", "content": "a"}],
        "tools": [{"name": "g", "input_schema": schema}], "tool_choice": {"type": "any"}});
    let answer = Server::shared().post("/v1/messages", &body);
    assert_eq!(answer.status, 400, "{answer:?}");
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["location"], pointer, "{error}");
    // What the core alone can know.
    let mut body = chat("Hi", 4);
    body["structured_outputs"] = json!({"regex": "[0-9]{77}"});
    let error = refused(CHAT, &body);
    assert_eq!(
        error["limit"],
        json!({"name": "max_tokens", "value": 4}),
        "{error}"
    );
    assert_eq!(error["param"], "structured_outputs.regex");
    assert!(error.get("location").is_none(), "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("but max_tokens leaves 4: raise max_tokens, or "),
        "{error}"
    );
    let mut body = chat("Hi", 4);
    body["top_p"] = json!(2);
    let error = refused(CHAT, &body);
    assert!(
        error.get("limit").is_none() && error.get("location").is_none(),
        "{error}"
    );
}

#[test]
fn another_model_is_not_found() {
    let mut body = chat("Hi", 4);
    body["model"] = json!("gpt-4");
    let answer = Server::shared().post(CHAT, &body);
    assert_eq!(answer.status, 404);
    let error = answer.error();
    assert_eq!(error["type"], "NotFoundError");
    assert_eq!(error["param"], "model");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("`gpt-4` does not exist")
    );
}

#[test]
fn bodies_that_are_no_json() {
    let server = Server::shared();
    let deep = "[".repeat(100_000);
    let deep_object = "{\"a\":".repeat(100_000);
    let deep_field = format!("{{\"messages\": {deep}");
    let huge_number = b"{\"max_tokens\": 1e999}";
    for body in [
        &b""[..],
        b"{",
        b"nonsense",
        b"{\"messages\": [}",
        b"[1, 2]",
        b"null",
        b"{\"messages\": \"\xff\xfe\"}",
        b"\x00\x01\x02",
        b"\xef\xbb\xbf{}",
        huge_number,
        deep.as_bytes(),
        deep_object.as_bytes(),
        deep_field.as_bytes(),
    ] {
        let answer = start(&server.address, "POST", CHAT, JSON, body).finish();
        assert_eq!(answer.status, 400, "{answer:?}");
        assert_eq!(answer.error()["type"], "BadRequestError");
    }
    let digits = "7".repeat(400);
    for number in ["1e308", "99999999999999999999999", "-5", "0.5", &digits] {
        let body = format!("{{\"prompt\": \"a\", \"max_tokens\": {number}}}");
        let answer = start(
            &server.address,
            "POST",
            "/v1/completions",
            JSON,
            body.as_bytes(),
        );
        assert_eq!(answer.finish().error()["param"], "max_tokens", "{number}");
    }
    assert!(server.is_healthy());
}

#[test]
fn a_key_that_comes_twice_is_named() {
    let server = Server::shared();
    for (body, key) in [
        (
            r#"{"prompt": "a", "guided_choice": ["a"], "guided_choice": ["b"]}"#,
            "guided_choice",
        ),
        (
            r#"{"prompt": "a", "structured_outputs": {"regex": "a", "regex": "b"}}"#,
            "regex",
        ),
    ] {
        let path = "/v1/completions";
        let answer = start(&server.address, "POST", path, JSON, body.as_bytes()).finish();
        let error = answer.error();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(400), &json!(key))
        );
    }
    // A byte order mark is passed over.
    let body = b"\xef\xbb\xbf{\"prompt\": \"a\", \"max_tokens\": 1}";
    let answer = start(&server.address, "POST", "/v1/completions", JSON, body).finish();
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn values_of_wrong_types_and_sizes() {
    let wrong = [
        "\"x\"",
        "true",
        "[]",
        "{}",
        "1e300",
        "-1e300",
        "99999999999999999999999",
    ];
    for name in [
        "temperature",
        "top_p",
        "n",
        "seed",
        "top_k",
        "max_tokens",
        "min_tokens",
    ] {
        for value in wrong {
            let body = format!("{{\"prompt\": \"a\", \"{name}\": {value}}}");
            let address = &Server::shared().address;
            let path = "/v1/completions";
            let answer = start(address, "POST", path, JSON, body.as_bytes()).finish();
            assert_eq!(answer.error()["param"], name, "{body}");
        }
    }
    assert!(Server::shared().is_healthy());
}

#[test]
fn floods_at_the_defaults() {
    let server = Server::shared();
    // Who still sends when the answer comes may lose it with the connection.
    let is_refused = |mut pending: Pending, status: &str| {
        let mut start = [0; 12];
        match pending.stream().read_exact(&mut start) {
            Ok(()) => start.ends_with(status.as_bytes()),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    };
    let body = vec![b' '; 100_000_000];
    let sent = start(&server.address, "POST", CHAT, JSON, &body);
    assert!(is_refused(sent, "413"));
    let many: String = (0..300).map(|i| format!("X-{i}: y\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "y".repeat(5 << 20));
    for flood in [many, long] {
        let sent = start(&server.address, "GET", "/health", &flood, b"");
        assert!(is_refused(sent, "431"));
    }
    assert!(server.is_healthy());
}

/// What grows with the square of a request's size would take minutes here, on a thread that serves
/// all streams.
#[test]
fn long_lists_are_read_in_linear_time() {
    let with = |name: &str, list: Vec<Value>| {
        let mut body = chat("Hi", 1);
        body[name] = json!(list);
        body
    };
    let function = |i| json!({"type": "function", "function": {"name": format!("f{i}")}});
    let tools = |count| with("tools", (0..count).map(function).collect());
    assert_eq!(refused(CHAT, &tools(20_000))["param"], "tools");
    // As many as there may be: they stand in the prompt.
    assert_eq!(refused(CHAT, &tools(1_024))["param"], "input_tokens");
    let rules = (0..10_001).map(|i| format!("r{i} ::= \"w{i}\" r{}?\n", (i + 1) % 10_001));
    let grammar = format!("root ::= r0\n{}", rules.collect::<String>());
    let mut body = chat("Hi", 1);
    body["structured_outputs"] = json!({"grammar": grammar});
    let message = refused(CHAT, &body)["message"].to_string();
    assert!(message.contains("max_rules"), "{message}");
    let message = json!({"role": "user", "content": "a"});
    let messages = vec![message; 100_000];
    assert_eq!(
        refused(CHAT, &with("messages", messages))["param"],
        "messages"
    );
    let text = "word ".repeat(5_000_000);
    let error = refused(CHAT, &chat(&text, 1));
    assert_eq!(error["param"], "input_tokens");
    // Told from its beginning.
    assert!(
        error["message"].as_str().unwrap().contains("at least "),
        "{error}"
    );
}

#[test]
fn bodies_that_are_too_large() {
    let server = Server::start(&["--max-request-body-size", "100000"]);
    let body = vec![b' '; 100_001];
    let answer = start(&server.address, "POST", CHAT, JSON, &body).finish();
    assert_eq!(answer.error()["code"], 413);
    // Said to be 100 MB, and never sent.
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{JSON}Content-Length: 100000000\r\n\r\n"
    );
    assert_eq!(
        send(&server.address, head.as_bytes()).finish().error()["code"],
        413
    );
    // Without a length, and then more than said to be allowed.
    let mut chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..11 {
        chunked.extend_from_slice(b"2710\r\n");
        chunked.extend_from_slice(&[b' '; 10_000]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(send(&server.address, &chunked).status(), 413);
    assert!(server.is_healthy());
}

#[test]
fn other_kinds_of_request() {
    let server = Server::shared();
    let text = "Content-Type: text/plain\r\n";
    let answer = start(&server.address, "POST", CHAT, text, b"{}").finish();
    assert_eq!(answer.error()["code"], 415);
    let answer = start(&server.address, "POST", CHAT, "", b"{}").finish();
    let error = answer.error();
    assert_eq!(error["code"], 415);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("application/json")
    );
    let answer = server.get(CHAT);
    assert_eq!(answer.error()["code"], 405);
    assert_eq!(answer.headers["allow"], "POST");
    assert_eq!(server.get("/v1/nothing").error()["code"], 404);
}

#[test]
fn web_pages_call_only_where_they_may() {
    let server = Server::start(&["--allowed-origins", "[\"https://app.example\"]"]);
    let body = chat("Hi", 2).to_string();
    let ask = |headers: &str| {
        let headers = format!("{JSON}{headers}");
        start(&server.address, "POST", CHAT, &headers, body.as_bytes()).finish()
    };
    assert_eq!(ask("").status, 200);
    assert_eq!(ask("Origin: https://app.example\r\n").status, 200);
    let error = ask("Origin: https://evil.example\r\n").error();
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!(403), &json!("PermissionDeniedError"))
    );
    // The header Host is x: a name that was made to lead here.
    let error = ask("Sec-Fetch-Site: same-origin\r\n").error();
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("--allowed-hosts")
    );
    let keyed = Server::start(&["--api-key", "one"]);
    let headers = "Origin: https://evil.example\r\nAuthorization: Bearer one\r\n";
    let answer = start(&keyed.address, "GET", "/v1/models", headers, b"").finish();
    assert_eq!(answer.status, 200);
}

#[test]
fn an_error_quotes_the_beginning_of_a_value_alone() {
    let server = Server::shared();
    let long = "m".repeat(8 << 20);
    for body in [
        json!({"model": long, "messages": []}),
        json!({"messages": [], long.as_str(): 1}),
        json!({"messages": [], "stop": {long.as_str(): 1}}),
        json!({"messages": [], "tool_choice": long}),
    ] {
        let answer = server.post(CHAT, &body);
        assert!(
            answer.status == 404 || answer.status == 400,
            "{}",
            answer.status
        );
        assert!(answer.body.len() < 10_000, "{} bytes", answer.body.len());
    }
    let path = format!("/v1/models/{}", "m".repeat(60_000));
    assert!(server.get(&path).body.len() < 1000);
}

#[test]
fn a_body_without_a_key_is_refused_before_it_comes() {
    let server = Server::start(&["--api-key", "one"]);
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 30000000\r\n\r\n{{");
    assert_eq!(send(&server.address, head.as_bytes()).status(), 401);
}

/// Asks for `/health` with these headers besides the three that every request here has.
fn ask_with(server: &Server, headers: &str) -> Answer {
    start(&server.address, "GET", "/health", headers, b"").finish()
}

#[test]
fn heads_are_limited_to_the_byte_and_to_the_header() {
    const OWN: &str = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                       X-Long: \r\nContent-Length: 0\r\n\r\n";
    const OWN_HEADERS: usize = 3;
    let refused = |answer: Answer, says: &str| {
        let error = answer.error();
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!(431), &json!("RequestHeaderFieldsTooLargeError"))
        );
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    };
    let small = Server::start(&[
        "--h11-max-incomplete-event-size=8192",
        "--h11-max-header-count=10",
    ]);
    for (server, bytes, count) in [(&small, 8192, 10), (Server::shared(), 64 << 10, 256)] {
        let long = |bytes: usize| format!("X-Long: {}\r\n", "y".repeat(bytes - OWN.len()));
        assert_eq!(ask_with(server, &long(bytes - 1)).status, 200);
        assert_eq!(ask_with(server, &long(bytes)).status, 200);
        let says = format!("{} bytes, more than the limit of {bytes}", bytes + 1);
        refused(ask_with(server, &long(bytes + 1)), &says);
        let many = |count: usize| -> String {
            let others = count - OWN_HEADERS;
            (0..others).map(|i| format!("X-{i}: y\r\n")).collect()
        };
        assert_eq!(ask_with(server, &many(count)).status, 200);
        let says = format!("{} headers, more than the limit of {count}", count + 1);
        refused(ask_with(server, &many(count + 1)), &says);
        assert!(server.is_healthy());
    }
}

/// What is refused before it is a request has the form of every other error.
#[test]
fn what_is_no_head_is_refused() {
    let server = Server::shared();
    let path = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(70_000));
    let headers: String = (0..600).map(|i| format!("X-{i}: y\r\n")).collect();
    let headers = format!("GET /health HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    let long = format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(9 << 20));
    for (sent, code, kind) in [
        ("nonsense\r\n\r\n", 400, "BadRequestError"),
        (&path, 414, "UriTooLongError"),
        (&headers, 431, "RequestHeaderFieldsTooLargeError"),
        (&long, 431, "RequestHeaderFieldsTooLargeError"),
    ] {
        let answer = send(&server.address, sent.as_bytes()).finish();
        assert_eq!(answer.headers["content-type"], "application/json");
        let error = answer.error();
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!(code), &json!(kind)),
            "{error}"
        );
    }
    assert!(server.is_healthy());
}

#[test]
fn keys_guard_routes_under_a_root_path_too() {
    let server = Server::start(&["--root-path", "/llm", "--api-key", "one"]);
    let ask = |path: &str, headers: &str| {
        start(&server.address, "GET", path, headers, b"")
            .finish()
            .status
    };
    for path in ["/v1/models", "/llm/v1/models", "/metrics", "/llm/metrics"] {
        assert_eq!(ask(path, ""), 401, "{path}");
        assert_eq!(ask(path, "Authorization: Bearer one\r\n"), 200, "{path}");
    }
    for path in ["/health", "/llm/health"] {
        assert_eq!(ask(path, ""), 200, "{path}");
    }
    assert_eq!(ask("/other/v1/models", ""), 401);
}

#[test]
fn slow_clients_are_given_up_and_hold_nobody() {
    let server = Server::start(&["--client-timeout", "1"]);
    // A head that never ends.
    let mut head = send(
        &server.address,
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n",
    );
    // A body that never comes.
    let length = format!("{JSON}Content-Length: 1000\r\n");
    let body = format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\n{length}\r\n{{");
    let mut body = send(&server.address, body.as_bytes());
    assert_eq!(server.post(CHAT, &chat("Hi", 2)).status, 200);
    // One byte now and then buys no time.
    let drip = body.stream().try_clone().unwrap();
    std::thread::spawn(move || {
        let mut drip = drip;
        while drip.write_all(b" ").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    assert_eq!(body.status(), 408);
    let line = head.line();
    assert!(line.is_empty() || line.contains("408"), "{line:?}");
}

#[test]
fn a_request_that_takes_too_long_ends() {
    let server = Server::start(&["--request-timeout", "0.3"]);
    let mut body = chat("Tell me everything.", 100_000);
    body["ignore_eos"] = json!(true);
    let answer = server.post(CHAT, &body);
    assert_eq!(answer.error()["code"], 504);
    body["stream"] = json!(true);
    let answer = server.post(CHAT, &body);
    assert_eq!(answer.status, 200);
    let events = answer.events();
    assert_eq!(events.last().unwrap()["error"]["code"], 504);
}
