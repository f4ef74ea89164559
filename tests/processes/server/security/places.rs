//! Requests that each route takes, with one place of them, at any depth, replaced by many small values.

use serde_json::{Value, json};

use super::corpus::{Case, request};

/// A request of each kind that is served as it stands.
pub(super) fn whole_requests() -> Vec<(&'static str, Value)> {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false, "$defs": {"k": {}}, "properties": {
            "a": {"const": 1, "description": "d", "title": "t", "default": 0, "examples": [1]},
            "b": {"type": "string", "pattern": "^a$"},
            "c": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 2},
            "d": {"anyOf": [{"type": "null"}, {"enum": ["x"]}]},
        },
    });
    let function = json!({"name": "f", "description": "d", "parameters": schema});
    let mut of_responses = function.clone();
    of_responses["type"] = json!("function");
    let tool = json!({"type": "function", "function": function});
    let of_messages = json!({"name": "f", "description": "d", "input_schema": schema});
    let call = json!({"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}});
    let user = json!({"role": "user", "content": [{"type": "text", "text": "Hi"}]});
    let chat = json!([
        {"role": "system", "content": "s"}, user,
        {"role": "assistant", "content": "c", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]);
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "b"}]}]},
    ]);
    let items = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let tag = json!({"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "a"}, {"type": "regex", "pattern": "a"},
        {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</a>"},
    ]}});
    let allowed = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]});
    vec![
        (
            "/v1/chat/completions",
            json!({
                "messages": chat, "max_tokens": 100, "tools": [tool], "stream_options": null, "stop": ["q"],
                "tool_choice": {"type": "function", "function": {"name": "f"}}, "logit_bias": {"1": 1},
            }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": [user], "max_tokens": 100, "response_format": format, "metadata": {"a": "b"},
                "chat_template_kwargs": {"a": 1}, "documents": [{"title": "t", "text": "x"}],
            }),
        ),
        (
            "/v1/chat/completions/batch",
            json!({"messages": [[user], [user]], "max_tokens": 100, "response_format": format}),
        ),
        (
            "/v1/completions",
            json!({"prompt": ["a", "b"], "max_tokens": 200, "structured_outputs": {"structural_tag": tag}}),
        ),
        (
            "/v1/completions",
            json!({
                "prompt": "a", "max_tokens": 20, "structured_outputs": {"choice": ["a", "b"]}, "bad_words": ["q"],
                "stop_token_ids": [1], "cache_salt": "s", "user": "u", "logprobs": 1,
            }),
        ),
        (
            "/v1/responses",
            json!({
                "input": items, "max_output_tokens": 4, "tools": [of_responses], "tool_choice": allowed,
                "reasoning": {"effort": "low"}, "metadata": {"a": "b"}, "include": ["message.output_text.logprobs"],
            }),
        ),
        (
            "/v1/responses",
            json!({
                "input": "a", "max_output_tokens": 100, "instructions": "i",
                "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
            }),
        ),
        (
            "/v1/messages",
            json!({
                "model": "formwork-builtin", "messages": messages, "max_tokens": 100, "tools": [of_messages], "stop_sequences": ["q"],
                "tool_choice": {"type": "tool", "name": "f"}, "metadata": {"user_id": "a"},
                "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            }),
        ),
        (
            "/v1/messages/count_tokens",
            json!({"model": "formwork-builtin", "messages": messages, "tools": [of_messages], "system": "s"}),
        ),
        (
            "/v1/decisions",
            json!({
                "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
                "questions": [
                    {"type": "choice", "name": "q", "instructions": "Q", "choices": [{"value": "a"}, {"value": "b"}]},
                    {"type": "score", "instructions": "Q", "levels": [{"label": "1"}, {"label": "2", "description": "d"}]},
                    {"type": "predicate", "instructions": [{"type": "input_text", "text": "Is it?"}]},
                ],
            }),
        ),
        (
            "/v1/systemone",
            json!({"state": {"a": 1}, "questions": {
                "q": {"type": "noul", "instructions": "x", "criteria": {"true": "t", "false": null}},
                "r": {"type": "choice", "instructions": "x", "criteria": {"a": "b", "c": null}},
                "s": {"type": "score", "criteria": ["a", "b"]},
            }}),
        ),
        (
            "/inference/v1/generate",
            json!({"token_ids": [1], "sampling_params": {
                "max_tokens": 100, "structured_outputs": {"json": schema}, "stop": ["q"], "bad_words": ["q"],
            }}),
        ),
        (
            "/formwork/v1/check",
            json!({"tools": [tool], "tool_choice": "required", "text": "a"}),
        ),
        (
            "/formwork/v1/check",
            json!({"structured_outputs": {"json": schema}, "text": "{}"}),
        ),
        (
            "/tokenize",
            json!({
                "messages": [user], "tools": [tool], "chat_template_kwargs": {"a": 1},
                "documents": [{"title": "t", "text": "x"}],
            }),
        ),
        ("/detokenize", json!({"tokens": [5, 6]})),
    ]
}

/// Small values by what they are, and their JSON.
type Many = (&'static str, fn() -> String);

/// What stands in the place: numbers, texts, keys, lists, objects. Each is as many as a body may have.
const MANY: [Many; 5] = [
    ("zeros", || list("0", 550_000)),
    ("texts", || list("\"\"", 605_000)),
    ("keys", || {
        let pairs: Vec<String> = (0..190_000).map(|i| format!("\"{i:x}\":0")).collect();
        format!("{{{}}}", pairs.join(","))
    }),
    ("lists", || list("[0]", 240_000)),
    ("objects", || list("{\"\":0}", 122_000)),
];

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// How many cases there are.
pub(super) fn num_places() -> u64 {
    let requests = whole_requests();
    let pointers = requests.iter().map(|(_, body)| pointers(body).len());
    (pointers.sum::<usize>() * MANY.len()) as u64
}

/// The case with this number, far from the one before it.
pub(super) fn place_case(number: u64, key: &str) -> Case {
    // A prime, so that all come up.
    const STEP: u64 = 7_919;
    let place = usize::try_from(number * STEP % num_places()).unwrap();
    let (name, many) = MANY[place % MANY.len()];
    let mut left = place / MANY.len();
    for (path, mut body) in whole_requests() {
        let pointers = pointers(&body);
        if left >= pointers.len() {
            left -= pointers.len();
            continue;
        }
        let pointer = &pointers[left];
        *body.pointer_mut(pointer).unwrap() = json!("@@@");
        let body = body.to_string().replacen("\"@@@\"", &many(), 1);
        let label = format!("{path} {pointer} {name}");
        return request(label, "POST", path, "", key, body.as_bytes());
    }
    unreachable!("{place} is one of the places")
}

/// All places in a value, as JSON pointers, but itself.
fn pointers(value: &Value) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.replace('/', "~1"), v)).collect(),
        Value::Array(list) => (list.iter().enumerate())
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    let within = children.into_iter().flat_map(|(key, value)| {
        let deeper = pointers(value).into_iter().map({
            let key = key.clone();
            move |pointer| format!("/{key}{pointer}")
        });
        std::iter::once(format!("/{key}")).chain(deeper.collect::<Vec<_>>())
    });
    within.collect()
}
