//! Requests that become far more than was sent: answers with logprobs for each token, tools in a prompt, conversations
//! that share a large field, prompts that are told once for each answer, many small values in a tool or beside a
//! constraint that takes long to begin, questions with many options.

use serde_json::{Map, Value, json};

use super::random::Random;
use super::values::{schema, text};

const CHAT: &str = "/v1/chat/completions";

/// What it is, the route and the body. `number` picks the kind, so that each run has all of them.
pub(super) fn costly(number: u64, random: &mut Random) -> (String, &'static str, Value) {
    match number % 14 {
        0 | 1 => response_with_logprobs(number.is_multiple_of(2), random),
        kind @ 2..=7 => with_tools(kind, random),
        8 => conversations(random),
        9 => echoes(random),
        12 => decisions(random),
        13 => values_in_tool(random),
        _ => values_beside_constraint(random),
    }
}

fn response_with_logprobs(stream: bool, random: &mut Random) -> (String, &'static str, Value) {
    let count = *random.one_of(&[50, 400, 1500]);
    let body = json!({
        "input": "Hi", "max_output_tokens": count, "ignore_eos": true, "stream": stream,
        "include": ["message.output_text.logprobs"], "top_logprobs": 20,
    });
    let label = format!("{count} tokens with logprobs, stream {stream}");
    (label, "/v1/responses", body)
}

/// Up to a megabyte of tools with descriptions and schemas, in the form of the route.
fn with_tools(kind: u64, random: &mut Random) -> (String, &'static str, Value) {
    let size = random.size().clamp(10_000, 1 << 20);
    let count = *random.one_of(&[1, 30, 300, 1024]);
    let parts = 1 + random.below(9);
    let description = text(random, size / count * parts / 10);
    let parameters = json!({"properties": {"a": schema(random, size / count * (10 - parts) / 10)}});
    let function = |i: usize| json!({"name": format!("f{i}"), "description": description, "parameters": parameters});
    let functions = || (0..count).map(function);
    let of_chat = |function: Value| json!({"type": "function", "function": function});
    let tools = || functions().map(of_chat).collect::<Value>();
    let label = format!("{count} tools of {size}");
    let choice = *random.one_of(&["auto", "required"]);
    let message = json!([{"role": "user", "content": "Hi"}]);
    let (path, body) = match kind {
        2 => {
            let body = json!({"messages": message, "max_tokens": 2, "tools": tools(), "tool_choice": choice});
            (CHAT, body)
        }
        3 => {
            let tools = functions().map(|mut function| {
                function["type"] = json!("function");
                function
            });
            let tools: Value = tools.collect();
            let body = json!({"input": "Hi", "max_output_tokens": 2, "tools": tools, "tool_choice": choice});
            ("/v1/responses", body)
        }
        4 | 5 => {
            let own = |f: Value| json!({"name": f["name"], "description": f["description"], "input_schema": f["parameters"]});
            let tools: Value = functions().map(own).collect();
            let body = json!({"messages": message, "max_tokens": 2, "tools": tools});
            match kind {
                4 => ("/v1/messages", body),
                _ => ("/v1/messages/count_tokens", body),
            }
        }
        6 => {
            let body = json!({"tools": tools(), "tool_choice": "required", "text": "a"});
            ("/formwork/v1/check", body)
        }
        _ => ("/tokenize", json!({"messages": message, "tools": tools()})),
    };
    (label, path, body)
}

/// Up to 1,000 conversations that share a field of up to 64 kB.
fn conversations(random: &mut Random) -> (String, &'static str, Value) {
    let count = *random.one_of(&[30, 300, 1000]);
    let size = 1_000 << random.below(7);
    let shared = match random.below(3) {
        0 => Value::from(text(random, size)),
        1 => vec![json!(0); size / 2].into(),
        _ => {
            let pairs = (0..size / 16).map(|i| (format!("key{i}"), json!("v")));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    };
    let conversation = json!([{"role": "user", "content": "Hi"}]);
    let mut body = json!({"messages": vec![conversation; count], "max_tokens": 1});
    let field = *random.one_of(&["chat_template_kwargs", "documents"]);
    body[field] = match field {
        "documents" => json!([{"title": "a", "text": shared}]),
        _ => json!({"a": shared}),
    };
    let label = format!("{count} conversations, {field} {size}");
    (label, "/v1/chat/completions/batch", body)
}

/// A prompt that comes back with each of many answers.
fn echoes(random: &mut Random) -> (String, &'static str, Value) {
    let num_tokens = *random.one_of(&[10, 500, 2000]);
    let n = *random.one_of(&[64, 256, 2048, 16_384]);
    let prompt: Value = (0..num_tokens).map(|i| i * 7 % 4000).collect();
    let mut body = json!({
        "prompt": prompt, "echo": true, "n": n, "max_tokens": 1, "stream": random.once_in(2),
    });
    let mut label = format!("echo of {num_tokens} tokens, n {n}");
    if random.once_in(2) {
        body["logprobs"] = json!(20);
        label.push_str(", logprobs");
    }
    (label, "/v1/completions", body)
}

/// Up to 400 questions with up to 255 options each, of which one may be long.
fn decisions(random: &mut Random) -> (String, &'static str, Value) {
    let num_questions = *random.one_of(&[200, 340, 400]);
    let num_options = *random.one_of(&[20, 60, 120, 140, 254]);
    let long = *random.one_of(&[1, 200, 400, 900]);
    let (kind, list, name) =
        *random.one_of(&[("choice", "choices", "value"), ("score", "levels", "label")]);
    let short = (0..num_options).map(|i| format!("o{i}"));
    let options = short.chain([format!("q{}", "1".repeat(long))]);
    let options: Value = options.map(|option| json!({name: option})).collect();
    let question = json!({"type": kind, "instructions": "Q", list: options});
    let label = format!("{num_questions} questions of {num_options} options, {kind}, {long}");
    let body = json!({"input": "", "questions": vec![question; num_questions]});
    (label, "/v1/decisions", body)
}

/// Up to 1 MB of small values where a tool's schema should have a schema.
fn values_in_tool(random: &mut Random) -> (String, &'static str, Value) {
    let (values, label) = small_values(random);
    let parameters = json!({"type": "object", "properties": {"a": values}});
    let function = json!({"name": "f", "parameters": parameters});
    let user = json!([{"role": "user", "content": "Hi"}]);
    let (path, body) = match random.below(3) {
        0 => {
            let tool = json!({"type": "function", "function": function});
            (
                CHAT,
                json!({"messages": user, "max_tokens": 2, "tools": [tool]}),
            )
        }
        1 => {
            let tool = json!({"type": "function", "name": "f", "parameters": parameters});
            (
                "/v1/responses",
                json!({"input": "Hi", "max_output_tokens": 2, "tools": [tool]}),
            )
        }
        _ => {
            let tool = json!({"name": "f", "input_schema": parameters});
            (
                "/v1/messages",
                json!({"messages": user, "max_tokens": 2, "tools": [tool]}),
            )
        }
    };
    (format!("{label} in a tool"), path, body)
}

/// Up to 1 MB of small values, and how many.
fn small_values(random: &mut Random) -> (Vec<Value>, String) {
    let value = random
        .one_of(&[json!({"": 0}), json!({}), json!([0]), json!(0)])
        .clone();
    let size = *random.one_of(&[100_000, 600_000, 1_000_000]);
    let values = vec![value.clone(); size / (value.to_string().len() + 1)];
    let label = format!("{} values", values.len());
    (values, label)
}

/// Small values that a template or an answer has, and a constraint that takes many states to begin.
fn values_beside_constraint(random: &mut Random) -> (String, &'static str, Value) {
    let (values, label) = small_values(random);
    let regex = random.one_of(&[
        "a|z(?=.{500,1400}$)[^a]*(b.{30})+",
        "(?=.*c.{7})(?=.*d.{9})(?=.*e.{11})(?=.*f.{13})(?=.*g.{15}).{100,1400}",
        "[^a]*(b.{100})+",
    ]);
    let constraint = match random.once_in(2) {
        true => json!({"regex": regex}),
        false => {
            json!({"json": {"type": "string", "minLength": 500, "pattern": format!("^{regex}$")}})
        }
    };
    let place = *random.one_of(&[
        "variables",
        "documents",
        "a call",
        "a message",
        "input",
        "a tool",
    ]);
    let user = json!({"role": "user", "content": "Hi"});
    let conversation = |answer: Value| json!([user, answer, user]);
    let (path, mut body) = match place {
        "variables" => (
            CHAT,
            json!({"messages": [user], "chat_template_kwargs": {"x": values}}),
        ),
        "documents" => (
            CHAT,
            json!({"messages": [user], "documents": [{"x": values}]}),
        ),
        "a call" => {
            let function = json!({"name": "f", "arguments": "{}", "parsed_arguments": values});
            let call = json!({"id": "c", "type": "function", "function": function});
            let answer = json!({"role": "assistant", "content": "a", "tool_calls": [call]});
            (CHAT, json!({"messages": conversation(answer)}))
        }
        "a message" => {
            let answer = json!({"role": "assistant", "content": "a", "annotations": values});
            (CHAT, json!({"messages": conversation(answer)}))
        }
        "input" => {
            let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": {"a": values}});
            let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "a"});
            let answer = json!({"role": "assistant", "content": [call]});
            let messages = json!([user, answer, {"role": "user", "content": [result]}]);
            ("/v1/messages", json!({"messages": messages}))
        }
        _ => {
            let schema = json!({"type": "object", "default": values});
            let tool = json!({"type": "function", "name": "f", "parameters": schema});
            (
                "/v1/responses",
                json!({"input": "Hi", "tools": [tool], "tool_choice": "none"}),
            )
        }
    };
    let max_tokens = match path {
        "/v1/responses" => "max_output_tokens",
        _ => "max_tokens",
    };
    body[max_tokens] = json!(2);
    body["structured_outputs"] = constraint;
    let label = format!("{label} in {place} beside a constraint");
    (label, path, body)
}
