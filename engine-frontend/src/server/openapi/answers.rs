//! What answers look like.

use serde_json::{Map, Value, json};

use super::component;

/// The components that answers are made of.
pub(super) fn schemas() -> Map<String, Value> {
    let ids = json!({"type": "array", "items": {"type": "integer"}});
    let text = json!({"type": "string"});
    let count = json!({"type": "integer", "minimum": 0});
    let head = |object: &str, choice: &str| {
        json!({
            "id": text, "object": {"const": object}, "created": count, "model": text,
            "choices": {"type": "array", "items": component(choice)},
            "usage": component("Usage"), "system_fingerprint": text,
        })
    };
    let choice = json!({
        "index": count,
        "finish_reason": {"enum": ["stop", "length", "tool_calls", "abort", "error", "repetition"]},
        "stop_reason": {"type": ["string", "integer", "null"]},
        "structured_output_complete": {"type": "boolean"},
        "structured_output_completed_by_budget": {"const": true},
        "structured_output_repetition_closed": {"const": true},
        "token_ids": ids,
        "trace": {"type": "array", "items": component("TracedToken")},
    });
    let probability = json!({"type": "number", "minimum": 0, "maximum": 1.00001});
    let prompt_logprobs = json!({"type": "array", "items": {"type": ["object", "null"]}});
    Map::from_iter([
        answer(
            "ChatCompletionResponse",
            &["id", "object", "created", "model", "choices", "usage"],
            &[
                head("chat.completion", "ChatCompletionChoice"),
                json!({"prompt_token_ids": ids, "prompt_logprobs": prompt_logprobs}),
            ],
        ),
        answer(
            "ChatCompletionChoice",
            &[
                "index",
                "message",
                "logprobs",
                "finish_reason",
                "stop_reason",
            ],
            &[
                choice.clone(),
                json!({
                    "message": component("ChatMessage"),
                    "logprobs": or_null(component("ChatLogprobs")),
                }),
            ],
        ),
        answer(
            "ChatMessage",
            &["role", "content"],
            &[json!({
                "role": text, "content": {"type": ["string", "null"]},
                "reasoning_content": text,
                "tool_calls": {"type": "array", "items": component("ToolCall"), "minItems": 1},
            })],
        ),
        answer(
            "ToolCall",
            &["id", "type", "function"],
            &[json!({
                "id": text, "type": {"const": "function"},
                "function": {
                    "type": "object", "required": ["name", "arguments"],
                    "properties": {"name": text, "arguments": text},
                },
            })],
        ),
        answer(
            "ChatLogprobs",
            &["content"],
            &[json!({"content": {"type": "array", "items": component("TokenLogprob")}})],
        ),
        answer(
            "TokenLogprob",
            &["token", "logprob", "bytes"],
            &[json!({
                "token": text, "logprob": {"type": "number"},
                "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
                "top_logprobs": {"type": "array", "items": component("TokenLogprob")},
            })],
        ),
        answer(
            "TracedToken",
            &[
                "token_id",
                "token",
                "bytes",
                "probability",
                "masked_probability",
                "num_allowed",
                "is_constrained",
                "is_forced",
                "step_ms",
                "top",
            ],
            &[json!({
                "token_id": count, "token": text,
                "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
                "probability": or_null(probability.clone()), "masked_probability": probability,
                "num_allowed": count,
                "is_constrained": {"type": "boolean"}, "is_forced": {"type": "boolean"},
                "step_ms": {"type": "number", "minimum": 0},
                "top": {
                    "type": "array", "maxItems": 10, "items": component("TracedAlternative"),
                },
            })],
        ),
        answer(
            "TracedAlternative",
            &["token_id", "token", "probability", "is_allowed"],
            &[json!({
                "token_id": count, "token": text, "probability": probability,
                "is_allowed": {"type": "boolean"},
            })],
        ),
        answer(
            "CompletionResponse",
            &["id", "object", "created", "model", "choices", "usage"],
            &[head("text_completion", "CompletionChoice")],
        ),
        answer(
            "CompletionChoice",
            &["index", "text", "logprobs", "finish_reason", "stop_reason"],
            &[
                choice,
                json!({
                    "text": text, "logprobs": or_null(component("CompletionLogprobs")),
                    "prompt_token_ids": ids, "prompt_logprobs": prompt_logprobs,
                }),
            ],
        ),
        answer(
            "CompletionLogprobs",
            &["text_offset", "token_logprobs", "tokens", "top_logprobs"],
            &[json!({
                "text_offset": {"type": "array", "items": count},
                "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
                "tokens": {"type": "array", "items": text},
                "top_logprobs": {"type": "array", "items": {"type": ["object", "null"]}},
            })],
        ),
        answer(
            "Usage",
            &["prompt_tokens", "completion_tokens", "total_tokens"],
            &[json!({
                "prompt_tokens": count, "completion_tokens": count, "total_tokens": count,
                "prompt_tokens_details": {
                    "type": "object", "properties": {"cached_tokens": count},
                },
                "completion_tokens_details": {
                    "type": "object", "properties": {"reasoning_tokens": count},
                },
            })],
        ),
        ("Response".to_owned(), response(&text, &count)),
        answer(
            "ModelList",
            &["object", "data"],
            &[json!({
                "object": {"const": "list"}, "data": {"type": "array", "items": component("Model")},
            })],
        ),
        answer(
            "Model",
            &["id", "object", "created", "owned_by", "max_model_len"],
            &[json!({
                "id": text, "object": {"const": "model"}, "created": count, "owned_by": text,
                "root": text, "parent": {"type": "null"}, "max_model_len": count,
                "permission": {"type": "array"},
            })],
        ),
        answer(
            "TokenizeResponse",
            &["count", "max_model_len", "tokens", "token_strs"],
            &[json!({
                "count": count, "max_model_len": count, "tokens": ids,
                "token_strs": or_null(json!({"type": "array", "items": text})),
            })],
        ),
        answer(
            "CheckResponse",
            &[
                "enforced",
                "kind",
                "warnings",
                "error",
                "keywords",
                "num_states",
                "bytes",
                "compile_ms",
                "shortest",
                "sample",
                "text",
            ],
            &[json!({
                "enforced": {"type": "boolean"},
                "kind": {"enum": [
                    "json", "json_object", "regex", "choice", "grammar", "structural_tag", "tools",
                ]},
                "warnings": {"type": "array", "items": text},
                "error": or_null(component("CheckError")),
                "keywords": {"type": "array", "items": text},
                "num_states": count, "bytes": count,
                "compile_ms": {"type": "number", "minimum": 0},
                "shortest": {"type": ["string", "null"]}, "sample": {"type": ["string", "null"]},
                "text": or_null(component("TextFit")),
            })],
        ),
        answer(
            "CheckError",
            &["message", "pointer", "line", "column"],
            &[json!({
                "message": text, "pointer": {"type": ["string", "null"]},
                "line": {"type": ["integer", "null"]}, "column": {"type": ["integer", "null"]},
            })],
        ),
        answer(
            "TextFit",
            &[
                "is_complete",
                "is_prefix",
                "accepted_bytes",
                "accepted_chars",
                "expected",
            ],
            &[json!({
                "is_complete": {"type": "boolean"}, "is_prefix": {"type": "boolean"},
                "accepted_bytes": count, "accepted_chars": count,
                "expected": {"type": "array", "maxItems": 20, "items": text},
            })],
        ),
        answer(
            "DetokenizeResponse",
            &["prompt"],
            &[json!({"prompt": text})],
        ),
        answer("Load", &["server_load"], &[json!({"server_load": count})]),
        answer("Version", &["version"], &[json!({"version": text})]),
        answer(
            "ErrorResponse",
            &["error"],
            &[json!({"error": {
                "type": "object", "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": text, "type": text, "param": {"type": ["string", "null"]},
                    "code": {"type": "integer"},
                    "location": location(), "limit": limit(),
                },
                "additionalProperties": false,
            }})],
        ),
    ])
}

/// An answer has no fields but these.
pub(super) fn answer(name: &str, required: &[&str], parts: &[Value]) -> (String, Value) {
    let parts = parts.iter().filter_map(Value::as_object).flatten();
    let properties: Map<String, Value> = parts.map(|(k, v)| (k.clone(), v.clone())).collect();
    let schema = json!({
        "type": "object", "required": required, "properties": properties,
        "additionalProperties": false,
    });
    (name.to_owned(), schema)
}

pub(super) fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// The answer of `/v1/responses`.
fn response(text: &Value, count: &Value) -> Value {
    let item = json!({
        "type": "object", "required": ["id", "type", "status"],
        "properties": {
            "id": text, "type": {"enum": ["message", "function_call", "reasoning"]},
            "status": {"enum": ["completed", "incomplete", "in_progress"]},
        },
    });
    json!({
        "type": "object",
        "required": [
            "id", "object", "created_at", "status", "model", "output", "parallel_tool_calls",
            "tool_choice", "tools", "usage", "error", "incomplete_details",
        ],
        "properties": {
            "id": text, "object": {"const": "response"}, "created_at": count,
            "status": {"enum": ["completed", "incomplete", "failed", "in_progress"]},
            "model": text, "output": {"type": "array", "items": item},
            "parallel_tool_calls": {"type": "boolean"}, "tools": {"type": "array"},
            "usage": {"type": ["object", "null"]}, "error": {"type": ["object", "null"]},
            "incomplete_details": {"type": ["object", "null"]},
            "structured_output_completed_by_budget": {"const": true},
            "structured_output_repetition_closed": {"const": true},
            "metadata": {"type": "object"},
            "temperature": {"type": "number"}, "top_p": {"type": "number"},
        },
    })
}

/// Where a constraint is at fault.
pub(super) fn location() -> Value {
    let number = json!({"type": "integer", "minimum": 1});
    json!({"anyOf": [
        {
            "type": "object", "required": ["pointer"],
            "properties": {"pointer": {"type": "string"}},
            "additionalProperties": false,
        },
        {
            "type": "object", "required": ["line", "column"],
            "properties": {"line": number, "column": number},
            "additionalProperties": false,
        },
    ]})
}

/// The limit that a constraint meets.
pub(super) fn limit() -> Value {
    json!({
        "type": "object", "required": ["name", "value"],
        "properties": {
            "name": {"type": "string"}, "value": {"type": "integer", "minimum": 0},
        },
        "additionalProperties": false,
    })
}
