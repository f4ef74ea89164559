//! `/v1/messages`: Anthropic's Messages API.

use serde_json::{Value, json};

use super::client::{Answer, start};
use super::support::{Server, chat, events, eventually};

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

/// A request whose answer is always the same.
fn ask(question: &str, max_tokens: u32) -> Value {
    json!({
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens, "temperature": 0,
    })
}

fn weather_tool() -> Value {
    json!({
        "name": "get_weather", "description": "Get the weather of a city",
        "input_schema": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
            "additionalProperties": false,
        },
    })
}

/// The error that an answer is, checked for its shape: its kind and message.
fn error(answer: &Answer) -> (String, String) {
    let body = answer.json();
    assert_eq!(body["type"], "error", "{answer:?}");
    assert_eq!(
        body["request_id"], answer.headers["request-id"],
        "{answer:?}"
    );
    assert_eq!(body.as_object().unwrap().len(), 3);
    // What Anthropic's API has, and where a constraint is wrong.
    let fields = body["error"].as_object().unwrap().keys();
    let ours = ["type", "message", "location"];
    assert!(
        fields.clone().eq(&ours[..2]) || fields.eq(&ours),
        "{answer:?}"
    );
    let text = |name: &str| body["error"][name].as_str().unwrap().to_owned();
    (text("type"), text("message"))
}

#[test]
fn the_answer_is_that_of_chat_completions() {
    let server = Server::shared();
    let question = "What is Formwork?";
    let chats = server
        .post("/v1/chat/completions", &chat(question, 60))
        .json();
    let mut body = ask(question, 60);
    body["request_id"] = json!("mine");
    let whole = server.post(PATH, &body).json();
    let (text, usage) = (&chats["choices"][0]["message"]["content"], &chats["usage"]);
    assert_eq!(
        whole,
        json!({
            "id": "msg_mine", "type": "message", "role": "assistant", "model": "formwork-builtin",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {
                "input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"],
                "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                "output_tokens_details": {"thinking_tokens": 0},
            },
        })
    );
    let counted = server.post(COUNT, &body).json();
    assert_eq!(counted, json!({"input_tokens": usage["prompt_tokens"]}));
    body["stream"] = json!(true);
    let events = events(&server.post(PATH, &body));
    let types: Vec<&str> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    let start = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
    ];
    assert_eq!(types[..4], start);
    assert_eq!(
        types[types.len() - 3..],
        ["content_block_stop", "message_delta", "message_stop"]
    );
    let deltas = events.iter().filter_map(|e| e["delta"]["text"].as_str());
    assert_eq!(*text, deltas.collect::<String>());
    let end = &events[events.len() - 2];
    assert_eq!(end["usage"], whole["usage"]);
    assert_eq!(end["delta"]["stop_reason"], "end_turn");
}

#[test]
fn limits_and_stop_sequences_end_answers() {
    let server = Server::shared();
    let mut body = ask("What is Formwork?", 2);
    assert_eq!(server.post(PATH, &body).json()["stop_reason"], "max_tokens");
    body["max_tokens"] = json!(60);
    body["stop_sequences"] = json!(["inference", "never"]);
    let answer = server.post(PATH, &body).json();
    assert_eq!(answer["stop_reason"], "stop_sequence");
    assert_eq!(answer["stop_sequence"], "inference");
    assert_eq!(answer["content"][0]["text"], "Formwork is an ");
}

#[test]
fn a_last_message_of_the_assistant_goes_on() {
    let server = Server::shared();
    let mut body = ask("What is Formwork?", 20);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Formwork is an"}));
    let counted = server.post(COUNT, &body).json();
    let answer = server.post(PATH, &body).json();
    body["continue_final_message"] = json!(true);
    let chats = server.post("/v1/chat/completions", &body).json();
    let text = &chats["choices"][0]["message"]["content"];
    assert_eq!(answer["content"][0]["text"], *text);
    assert_eq!(answer["usage"]["input_tokens"], counted["input_tokens"]);
    assert_eq!(chats["usage"]["prompt_tokens"], counted["input_tokens"]);
}

#[test]
fn calls_come_and_go_as_blocks() {
    let server = Server::shared();
    let mut body = ask("What is the weather in Lisbon?", 200);
    body["tools"] = json!([weather_tool()]);
    for choice in [
        json!({"type": "auto"}),
        json!({"type": "any"}),
        json!({"type": "tool", "name": "get_weather"}),
    ] {
        body["tool_choice"] = choice;
        body["stream"] = json!(false);
        let answer = server.post(PATH, &body).json();
        assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
        let call = &answer["content"][0];
        assert_eq!(call["type"], "tool_use");
        assert_eq!(call["name"], "get_weather");
        assert!(call["id"].as_str().unwrap().starts_with("toolu_"), "{call}");
        assert!(call["input"]["city"].is_string(), "{call}");
        let counted = server.post(COUNT, &body).json();
        assert_eq!(answer["usage"]["input_tokens"], counted["input_tokens"]);
        body["stream"] = json!(true);
        let events = events(&server.post(PATH, &body));
        let deltas = events
            .iter()
            .filter_map(|e| e["delta"]["partial_json"].as_str());
        let input: Value = serde_json::from_str(&deltas.collect::<String>()).unwrap();
        assert_eq!(input, call["input"]);
    }
    // Without tools in the prompt it is shorter.
    let with_tools = server.post(COUNT, &body).json()["input_tokens"]
        .as_u64()
        .unwrap();
    body["tool_choice"] = json!({"type": "none"});
    let without = server.post(COUNT, &body).json()["input_tokens"]
        .as_u64()
        .unwrap();
    assert!(without < with_tools, "{without} {with_tools}");
    body["tool_choice"] = json!({"type": "auto"});
    body["stream"] = json!(false);
    let call = server.post(PATH, &body).json()["content"].clone();
    let result = json!([{
        "type": "tool_result", "tool_use_id": call[0]["id"],
        "content": [{"type": "text", "text": "Sunny, 24 degrees."}],
    }]);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": call}));
    messages.push(json!({"role": "user", "content": result}));
    let answer = server.post(PATH, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let counted = server.post(COUNT, &body).json();
    assert_eq!(
        answer.json()["usage"]["input_tokens"],
        counted["input_tokens"]
    );
}

#[test]
fn a_call_that_the_limit_shaped_is_none() {
    let server = Server::shared();
    let mut body = ask("What is the weather in Lisbon?", 200);
    body["tools"] = json!([weather_tool()]);
    body["tool_choice"] = json!({"type": "any"});
    let whole = server.post(PATH, &body).json();
    let needed = whole["usage"]["output_tokens"].as_u64().unwrap();
    // With as many the limit might have shaped it, for all that anybody knows.
    for max_tokens in [needed - 3, needed - 1, needed, needed + 100] {
        body["max_tokens"] = json!(max_tokens);
        body["stream"] = json!(false);
        let answer = server.post(PATH, &body).json();
        let calls = answer["content"].as_array().unwrap();
        match answer["stop_reason"].as_str() {
            Some("tool_use") => {
                assert!(max_tokens > needed);
                assert_eq!(calls[0]["input"], whole["content"][0]["input"]);
            }
            reason => {
                assert!(max_tokens <= needed, "{answer}");
                assert_eq!((reason, calls.len()), (Some("max_tokens"), 0), "{answer}");
            }
        }
        body["stream"] = json!(true);
        let events = events(&server.post(PATH, &body));
        let end = &events[events.len() - 2]["delta"];
        assert_eq!(end["stop_reason"], answer["stop_reason"], "{max_tokens}");
    }
}

#[test]
fn templates_that_want_alternating_roles_get_them() {
    let template = "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}\
                    {{ raise_exception('roles must alternate') }}{% endif %}{{ m.role }}: {{ m.content }}\n\
                    {% endfor %}";
    let server = Server::start(&["--chat-template", template]);
    let mut body = ask("What is", 2);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": [{"type": "text", "text": "Formwork?"}]}));
    let answer = server.post(PATH, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let joined = server.post(COUNT, &ask("What is\nFormwork?", 2)).json();
    assert_eq!(server.post(COUNT, &body).json(), joined);
}

#[test]
fn thinking_is_a_block_of_its_own() {
    let server = Server::shared();
    let mut body = ask("2 + 3?", 200);
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 100});
    let answer = server.post(PATH, &body).json();
    let blocks = answer["content"].as_array().unwrap();
    assert_eq!(blocks[0]["type"], "thinking", "{answer}");
    assert_eq!(blocks[0]["signature"].as_str().unwrap().len(), 64);
    assert!(answer["usage"]["output_tokens_details"]["thinking_tokens"].as_u64() > Some(0));
    let thinking = blocks[0]["thinking"].as_str().unwrap();
    body["stream"] = json!(true);
    let streamed = events(&server.post(PATH, &body));
    let deltas = streamed
        .iter()
        .filter_map(|e| e["delta"]["thinking"].as_str());
    assert_eq!(deltas.collect::<String>(), thinking);
    let signed = streamed.iter().find_map(|e| e["delta"].get("signature"));
    assert_eq!(signed, Some(&blocks[0]["signature"]));
    // Without its text.
    body["thinking"]["display"] = json!("omitted");
    let streamed = events(&server.post(PATH, &body));
    assert!(
        !streamed
            .iter()
            .any(|e| e["delta"]["type"] == "thinking_delta")
    );
    assert!(
        streamed
            .iter()
            .any(|e| e["delta"].get("signature") == signed)
    );
    // Off, and sent back.
    body["thinking"] = json!({"type": "disabled"});
    body["stream"] = json!(false);
    let off = server.post(PATH, &body).json();
    assert_eq!(off["content"][0]["type"], "text", "{off}");
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": answer["content"]}));
    messages.push(json!({"role": "user", "content": "4 + 4?"}));
    let answer = server.post(PATH, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let warnings = &answer.headers["x-formwork-warnings"];
    assert!(
        warnings.starts_with("messages[1]: the model doesn't see"),
        "{warnings}"
    );
}

#[test]
fn a_format_is_enforced() {
    let server = Server::shared();
    let mut body = ask("Is this review positive or negative? I loved it.", 60);
    let schema = json!({
        "type": "object", "properties": {"kind": {"enum": ["positive", "negative"]}},
        "required": ["kind"], "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "schema": schema});
    for (name, value) in [
        ("output_config", json!({"format": format})),
        ("output_format", format.clone()),
        ("structured_outputs", json!({"json": schema})),
    ] {
        let mut body = body.clone();
        body[name] = value;
        let answer = server.post(PATH, &body).json();
        let text = answer["content"][0]["text"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(
            value["kind"] == "positive" || value["kind"] == "negative",
            "{value}"
        );
    }
    // A beginning of the answer is none of the format.
    let mut begun = body.clone();
    begun["output_config"] = json!({"format": format});
    let messages = begun["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "{\"kind\": "}));
    let (_, message) = error(&server.post(PATH, &begun));
    assert!(
        message.starts_with("output_config.format can't go with"),
        "{message}"
    );
    // What is wrong with it is told by this API's name.
    let wrong = json!({"type": "string", "pattern": "(a)\\1"});
    body["output_config"] = json!({"format": {"type": "json_schema", "schema": wrong}});
    let answer = server.post(PATH, &body);
    let (kind, message) = error(&answer);
    assert_eq!(kind, "invalid_request_error");
    assert_eq!(
        answer.json()["error"]["location"],
        json!({"pointer": "/pattern"})
    );
    assert!(
        message.starts_with("output_config.format.schema: schema, at `#"),
        "{message}"
    );
    body["output_config"] = Value::Null;
    body["tools"] = json!([weather_tool(), {
        "name": "g", "input_schema": {"type": "object", "properties": {"a": wrong}},
    }]);
    for stream in [false, true] {
        body["stream"] = json!(stream);
        let (_, message) = error(&server.post(PATH, &body));
        assert!(
            message.starts_with("tools[1].input_schema: schema, at `#"),
            "{message}"
        );
    }
}

#[test]
fn errors_have_the_shape_of_the_api_on_its_routes_alone() {
    let server = Server::start(&[
        "--api-key",
        "secret",
        "--max-request-body-size",
        "2000",
        "--enable-prompt-tokens-details",
    ]);
    let send = |headers: &str, method: &str, path: &str, body: &str| {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        start(&server.address, method, path, &headers, body.as_bytes()).finish()
    };
    let good = ask("Hi", 2).to_string();
    let key = "x-api-key: secret\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: a,b\r\n";
    let ok = send(key, "POST", PATH, &good);
    assert_eq!(ok.status, 200, "{ok:?}");
    assert!(!ok.headers["request-id"].is_empty());
    let bearer = "Authorization: Bearer secret\r\n";
    assert_eq!(send(bearer, "POST", PATH, &good).status, 200);
    let other = ask("Hi", 2)
        .to_string()
        .replacen('{', "{\"model\": \"x\", ", 1);
    let large = "x".repeat(3000);
    for (headers, method, path, body, status, kind) in [
        ("", "POST", PATH, &*good, 401, "authentication_error"),
        (
            "x-api-key: wrong\r\n",
            "POST",
            COUNT,
            &*good,
            401,
            "authentication_error",
        ),
        (key, "POST", PATH, "{", 400, "invalid_request_error"),
        (key, "POST", PATH, "{}", 400, "invalid_request_error"),
        (key, "POST", PATH, &*other, 404, "not_found_error"),
        (
            key,
            "POST",
            "/v1/messages/batches",
            &*good,
            404,
            "not_found_error",
        ),
        (key, "GET", PATH, "", 405, "invalid_request_error"),
        (key, "POST", PATH, &*large, 413, "request_too_large"),
    ] {
        let answer = send(headers, method, path, body);
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(error(&answer).0, kind, "{answer:?}");
    }
    let (_, message) = error(&send(key, "POST", PATH, "{\"messages\": []}"));
    assert_eq!(message, "messages must hold at least one message (got [])");
    // Other routes have their own.
    send(key, "POST", "/v1/chat/completions", "{}").error();
    // Tokens of the prefix cache are not counted twice.
    let long =
        json!({"messages": [{"role": "user", "content": "word ".repeat(100)}], "max_tokens": 2});
    let long = long.to_string();
    let usage = |answer: Answer| answer.json()["usage"].clone();
    let first = usage(send(key, "POST", PATH, &long));
    assert_eq!(first["cache_read_input_tokens"], 0);
    let again = usage(send(key, "POST", PATH, &long));
    let cached = again["cache_read_input_tokens"].as_u64().unwrap();
    assert!(cached > 0, "{again}");
    let counted = send(key, "POST", COUNT, &long).json()["input_tokens"]
        .as_u64()
        .unwrap();
    assert_eq!(again["input_tokens"].as_u64().unwrap() + cached, counted);
    assert_eq!(first["input_tokens"].as_u64().unwrap(), counted);
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let server = Server::start(&[]);
    let mut body = ask("Tell a story.", 2000);
    body["stream"] = json!(true);
    body["ignore_eos"] = json!(true);
    let mut pending = server.begin(PATH, &body);
    assert_eq!(pending.status(), 200);
    drop(pending);
    eventually("the request ends", || {
        server.metric("vllm:num_requests_running") == 0.0
    });
    let routes = server.get("/metrics").body;
    assert!(routes.contains("handler=\"/v1/messages\""), "{routes}");
}
