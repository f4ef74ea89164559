//! Requests that become far more than was sent: answers with logprobs for each token, tools in a prompt, conversations
//! that share a large field, prompts that are told once for each answer.

use serde_json::{Map, Value, json};

use super::random::Random;
use super::values::{schema, text};

/// What it is, the route and the body. `number` picks the kind, so that each run has all of them.
pub(super) fn costly(number: u64, random: &mut Random) -> (String, &'static str, Value) {
    match number % 10 {
        0 | 1 => response_with_logprobs(number.is_multiple_of(2), random),
        kind @ 2..=7 => with_tools(kind, random),
        8 => conversations(random),
        _ => echoes(random),
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
            ("/v1/chat/completions", body)
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
