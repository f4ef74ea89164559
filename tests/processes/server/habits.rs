//! Clients that aren't at fault: bodies as they send them by habit are answered, and what has no effect is
//! told.

use serde_json::{Value, json};

use super::client::start;
use super::support::{Server, chat};

/// The request of Codex 0.171.0 as it came over the wire, its texts cut short, with its habits: it asks for
/// thinking it can keep, a verbosity, a search that the server may make, and a stream, and its tools stand partly
/// in a namespace.
fn codex() -> Value {
    json!({
        "model": "formwork-builtin",
        "instructions": "You are a coding agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [
                {"type": "input_text", "text": "Stay in the folder."}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "List the files."}]},
        ],
        "tools": [
            {"type": "function", "name": "shell", "description": "Runs a command.", "strict": false,
             "parameters": {"type": "object", "properties": {
                "command": {"type": "array", "items": {"type": "string"}, "maxItems": 2}},
                "required": ["command"], "additionalProperties": false}},
            {"type": "web_search", "external_web_access": false},
            {"type": "namespace", "name": "multi_agent_v1", "description": "Tools for sub-agents.", "tools": [
                {"type": "function", "name": "close_agent", "description": "Closes an agent.",
                 "strict": false, "parameters": {
                    "type": "object", "properties": {"target": {"type": "string", "maxLength": 8}},
                    "required": ["target"], "additionalProperties": false}}]},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": true,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": false,
        "stream": true,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0190c9f2-7a6e-7e2b-8f53-0b1f6d3f4c11",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "1"},
        "max_output_tokens": 200,
    })
}

#[test]
fn a_request_of_codex_is_answered_and_told_of_the_search() {
    let answer = Server::shared().post("/v1/responses", &codex());
    assert_eq!(answer.status, 200, "{}", answer.body);
    // Calls may go on until the limit.
    let is_whole = ["completed", "incomplete"]
        .iter()
        .any(|end| answer.body.contains(&format!("event: response.{end}")));
    assert!(is_whole, "{}", answer.body);
    let warnings = &answer.headers["x-formwork-warnings"];
    assert!(
        warnings.starts_with("tools[1]: web_search has no effect"),
        "{warnings}"
    );
    // A call says the namespace and the name in it.
    let mut close = codex();
    close["tools"].as_array_mut().unwrap().remove(1);
    close["stream"] = json!(false);
    close["tool_choice"] =
        json!({"type": "function", "name": "close_agent", "namespace": "multi_agent_v1"});
    let answer = Server::shared().post("/v1/responses", &close);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let output = answer.json()["output"].as_array().unwrap().clone();
    let call = output.iter().find(|item| item["type"] == "function_call");
    let call = call.unwrap();
    assert_eq!(call["name"], "close_agent");
    assert_eq!(call["namespace"], "multi_agent_v1");
    let mut forced = codex();
    forced["tool_choice"] = json!("required");
    let refused = Server::shared().post("/v1/responses", &forced);
    assert_eq!(refused.status, 400);
    assert_eq!(refused.error()["param"], "tools[1].type");
}

#[test]
fn what_other_clients_send_by_habit_is_answered() {
    let server = Server::shared();
    let habits = [
        // Open WebUI and LangChain.
        json!({"stream_options": {"include_usage": true}, "tools": [], "tool_choice": "auto"}),
        json!({"metadata": {"chat": "1"}, "store": true, "user": "ada", "service_tier": "auto"}),
        json!({"n": 3, "temperature": 0}),
        json!({"parallel_tool_calls": true, "verbosity": "low", "prediction":
               {"type": "content", "content": "a"}}),
    ];
    for habit in habits {
        let mut body = chat("Hi", 3);
        for (name, value) in habit.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{habit}: {}", answer.body);
        let choices = answer.json()["choices"].as_array().unwrap().clone();
        let texts: Vec<&Value> = choices.iter().map(|c| &c["message"]["content"]).collect();
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
    let strict = Server::start(&["--strict-requests"]);
    for (name, value) in [
        ("stream_options", json!({"include_usage": true})),
        ("store", json!(true)),
        ("tools", json!([])),
        ("n", json!(3)),
    ] {
        let mut body = chat("Hi", 3);
        body[name] = value;
        let refused = strict.post("/v1/chat/completions", &body);
        assert_eq!(refused.status, 400, "{name}: {}", refused.body);
        assert_eq!(refused.error()["param"], name);
    }
}

#[test]
fn what_the_model_does_not_see_is_told() {
    let mut body = chat("Hi", 2);
    body["messages"][0]["name"] = json!("Ada");
    body["chat_template_kwargs"] = json!({"colour": "red"});
    body["include_warnings"] = json!(true);
    let answer = Server::shared().post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let warnings = [
        "messages[0].name: the model doesn't see `name`, which the chat template doesn't write",
        "chat_template_kwargs.colour has no effect: the chat template doesn't read it",
    ];
    assert_eq!(answer.headers["x-formwork-warnings"], warnings.join("; "));
    assert_eq!(answer.json()["warnings"], json!(warnings));
}

#[test]
fn keywords_without_effect_are_told_in_the_header_and_where_asked_in_the_answer() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean", "nullable": true}},
                        "requierd": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let mut body = chat("Hi", 30);
    body["response_format"] = format;
    let answer = Server::shared().post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let header = &answer.headers["x-formwork-warnings"];
    for word in ["requierd", "nullable"] {
        assert!(header.contains(word), "{header}");
    }
    assert_eq!(answer.json().get("warnings"), None);
    body["include_warnings"] = json!(true);
    let told = Server::shared().post("/v1/chat/completions", &body).json();
    assert_eq!(told["warnings"].as_array().unwrap().len(), 2, "{told}");
    body["stream"] = json!(true);
    let stream = Server::shared().post("/v1/chat/completions", &body);
    assert_eq!(
        stream.body.matches("\"warnings\"").count(),
        1,
        "{}",
        stream.body
    );
    // Without the field nothing is told of a schema without such keywords.
    let plain = Server::shared().post("/v1/chat/completions", &chat("Hi", 2));
    assert!(!plain.headers.contains_key("x-formwork-warnings"));
}

#[test]
fn an_empty_grammar_and_an_unknown_key_are_refused_by_name() {
    let refused = |field: &str, value: Value| {
        let mut body = chat("Hi", 3);
        body[field] = value;
        let answer = Server::shared().post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 400, "{}", answer.body);
        answer.error()["message"].as_str().unwrap().to_owned()
    };
    assert!(refused("grammar", json!("")).starts_with("grammar"));
    let tool = json!({"type": "function", "function": {"name": "f", "paramters": {}}});
    assert_eq!(
        refused("tools", json!([tool])),
        "unknown field tools[0].function.paramters; did you mean `parameters`?"
    );
    assert_eq!(
        refused("n", json!(0)),
        "n must be a whole number between 1 and 16384, got 0"
    );
    assert_eq!(
        refused("reasoning_effort", json!("much")),
        "reasoning_effort must be one of none, minimal, low, medium, high, xhigh, max (got much)"
    );
}

#[test]
fn a_refusal_of_a_field_without_effect_is_a_refusal_of_its_kind_alone() {
    let headers = "Content-Type: application/json\r\n";
    let body = json!({"input": "a", "store": "yes"}).to_string();
    let address = &Server::shared().address;
    let answer = start(address, "POST", "/v1/responses", headers, body.as_bytes()).finish();
    assert_eq!(answer.error()["param"], "store");
}
