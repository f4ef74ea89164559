//! `tool_strictness`: requests with a tool whose schema can't be enforced. And sets of tools whose schemas all can.

use serde_json::{Value, json};

use super::client::Answer;
use super::support::{Server, formwork};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// A schema that the frontend's check refuses.
fn wrong() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(a)\\1"}}})
}

/// A schema that takes the core too long.
fn dear() -> Value {
    let looks_ahead: String = ('a'..='n').map(|c| format!("(?=.*{c}{c}x)")).collect();
    let pattern = format!("^{looks_ahead}.*$");
    json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}},
           "required": ["a"]})
}

fn good() -> Value {
    json!({"type": "object", "properties": {"city": {"enum": ["Ulm", "Zug"]}},
           "required": ["city"], "additionalProperties": false})
}

/// A request to a route with tools of these schemas, whose names are `f0`, `f1` and so on.
fn body(route: &str, schemas: &[Value], forced: bool) -> Value {
    let tools = schemas.iter().enumerate().map(|(i, schema)| {
        let name = format!("f{i}");
        match route {
            CHAT => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
            RESPONSES => json!({"type": "function", "name": name, "parameters": schema}),
            _ => json!({"name": name, "input_schema": schema}),
        }
    });
    let tools: Vec<Value> = tools.collect();
    let messages = json!([{"role": "user", "content": "Call a tool."}]);
    let choice = match (route, forced) {
        (MESSAGES, true) => json!({"type": "any"}),
        (MESSAGES, false) => json!({"type": "auto"}),
        (_, true) => json!("required"),
        (_, false) => json!("auto"),
    };
    let mut body = json!({"tools": tools, "tool_choice": choice, "temperature": 0});
    match route {
        RESPONSES => {
            body["input"] = messages;
            body["max_output_tokens"] = json!(60);
        }
        _ => {
            body["messages"] = messages;
            body["max_tokens"] = json!(60);
        }
    }
    body
}

/// The message of an error of any of the routes.
fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_tool_that_can_not_be_enforced_is_left_out_where_the_request_says_so() {
    let server = Server::shared();
    for (route, schema) in [
        (CHAT, "function.parameters"),
        (RESPONSES, "parameters"),
        (MESSAGES, "input_schema"),
    ] {
        for bad in [wrong(), dear()] {
            let mut body = body(route, &[good(), bad], true);
            for strictness in [Value::Null, json!("refuse")] {
                body["tool_strictness"] = strictness;
                let refused = server.post(route, &body);
                assert_eq!(refused.status, 400, "{refused:?}");
                let message = message(&refused);
                assert!(
                    message.starts_with(&format!("tools[1].{schema}: ")),
                    "{message}"
                );
            }
            body["tool_strictness"] = json!("skip");
            for stream in [false, true] {
                body["stream"] = json!(stream);
                let answer = server.post(route, &body);
                assert_eq!(answer.status, 200, "{answer:?}");
                let warnings = &answer.headers["x-formwork-warnings"];
                let told = "tools[1]: the tool f1 is left out, its schema can't be enforced: ";
                let why = warnings
                    .strip_prefix(told)
                    .unwrap_or_else(|| panic!("{warnings}"));
                assert!(
                    why.starts_with("schema, at `#/properties/a/pattern`: ")
                        || why.starts_with("the grammar needs more than "),
                    "{why}"
                );
                assert!(answer.body.contains("\"name\":\"f0\""), "{answer:?}");
                assert!(!answer.body.contains("\"name\":\"f1\",\"a"), "{answer:?}");
            }
        }
    }
}

#[test]
fn the_prompt_has_no_tool_that_is_left_out() {
    let server = Server::shared();
    let count = |schemas: &[Value]| {
        let mut body = body(MESSAGES, schemas, false);
        body["tool_strictness"] = json!("skip");
        let counted = server.post("/v1/messages/count_tokens", &body).json();
        let answer = server.post(MESSAGES, &body).json();
        assert_eq!(answer["usage"]["input_tokens"], counted["input_tokens"]);
        counted["input_tokens"].as_u64().unwrap()
    };
    let one = count(&[good()]);
    assert_eq!(count(&[good(), wrong(), dear()]), one);
    assert!(count(&[good(), good()]) > one);
    // None is left.
    let without = count(&[wrong(), dear()]);
    assert!(without < one, "{without} {one}");
}

#[test]
fn a_call_that_is_asked_for_is_not_left_out() {
    let server = Server::shared();
    for bad in [wrong(), dear()] {
        let mut body = body(MESSAGES, std::slice::from_ref(&bad), true);
        body["tool_strictness"] = json!("skip");
        let refused = server.post(MESSAGES, &body);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(message(&refused).starts_with("tools[0].input_schema: "));
        body["tools"] =
            json!([{"name": "f0", "input_schema": bad}, {"name": "g", "input_schema": good()}]);
        body["tool_choice"] = json!({"type": "tool", "name": "f0"});
        assert_eq!(server.post(MESSAGES, &body).status, 400);
        body["tool_choice"] = json!({"type": "tool", "name": "g"});
        // Nothing has to be left out then.
        let answer = server.post(MESSAGES, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            !answer.headers.contains_key("x-formwork-warnings"),
            "{answer:?}"
        );
    }
    let mut body = body(CHAT, &[good()], false);
    body["tool_strictness"] = json!("relax");
    let error = server.post(CHAT, &body).error();
    assert_eq!(error["param"], "tool_strictness");
}

/// Tools as agents have them, their schemas as zod makes them: look-aheads, `maxLength` 65536, formats beside
/// patterns, references.
fn agent_tools() -> Vec<Value> {
    serde_json::from_str(include_str!("../../data/agent_tools.json")).unwrap()
}

#[test]
fn every_tool_of_an_agent_is_enforced_as_it_is() {
    let server = Server::shared();
    for tool in agent_tools() {
        let function = json!({"name": tool["name"], "parameters": tool["input_schema"]});
        let body = json!({
            "tools": [{"type": "function", "function": function}], "tool_choice": "required",
        });
        let report = server.post("/formwork/v1/check", &body).json();
        assert_eq!(report["error"], Value::Null, "{}", tool["name"]);
        assert_eq!(report["enforced"], true);
        assert_eq!(report["warnings"], json!([]), "{}", tool["name"]);
    }
}

#[test]
fn a_hundred_and_twenty_eight_tools_of_agents_compile_together() {
    // The built-in model's context is too small for a prompt with all of them.
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    command.args(["--threads", "1", "--trust-request-chat-template"]);
    // Greedy text depends on how a processor rounds. With AVX512-BF16 the built-in model repeats itself until the limit
    // ends the call, and such a call is left out of the answer.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        command.env("FORMWORK_CPU_LEVEL", "avx2");
    }
    let server = Server::spawn(&mut command);
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                    {% endfor %}<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let tools = agent_tools();
    let tools: Vec<Value> = (0..128)
        .map(|i| {
            let mut tool = tools[i % tools.len()].clone();
            tool["name"] = json!(format!("{}_{i}", tool["name"].as_str().unwrap()));
            // So that no two schemas are the same.
            tool["input_schema"]["properties"][format!("option_{i}")] = json!({"type": "boolean"});
            tool
        })
        .collect();
    for choice in [json!({"type": "auto"}), json!({"type": "any"})] {
        let body = json!({
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400, "temperature": 0,
            "chat_template": template, "tools": tools, "tool_choice": choice,
        });
        let answer = server.post(MESSAGES, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            !answer.headers.contains_key("x-formwork-warnings"),
            "{:?}",
            answer.headers
        );
        if choice["type"] == "any" {
            let answer = answer.json();
            let call = answer["content"].as_array().unwrap().last().unwrap();
            assert_eq!(call["type"], "tool_use", "{answer}");
            assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
        }
    }
}
