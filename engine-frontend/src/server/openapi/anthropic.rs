//! The Messages API: what its requests say, and what its answers look like.

use serde_json::{Map, Value, json};

use super::answers::{answer, limit, location};
use super::component;
use super::descriptions::Description;
use super::requests::{count, fields, request, sampling_of_tokens};

/// Fields of chat requests that a Messages request has as they are, beside those that say how to sample.
const OF_CHAT: &[&str] = &[
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "stream",
    "stream_interval",
    "priority",
    "request_id",
    "cache_salt",
    "include_warnings",
    "structured_outputs",
    "metadata",
    "service_tier",
    "tool_strictness",
    "documents",
    "chat_template_kwargs",
    "chat_template",
];

/// The components of both routes; `chat` are the fields of chat requests.
pub(super) fn schemas(chat: &Map<String, Value>) -> Map<String, Value> {
    let mut messages: Map<String, Value> = OF_CHAT
        .iter()
        .filter_map(|name| chat.get_key_value(*name))
        .map(|(name, field)| (name.clone(), field.clone()))
        .collect();
    messages.extend(sampling_of_tokens());
    for name in ["prompt_logprobs", "logprob_token_ids"] {
        messages.remove(name);
    }
    messages.extend(own_fields());
    let text = json!({"type": "string"});
    Map::from_iter([
        request(
            "AnthropicMessagesRequest",
            &["messages", "max_tokens"],
            messages.clone(),
        ),
        request("AnthropicCountTokensRequest", &["messages"], messages),
        ("AnthropicMessage".to_owned(), message()),
        ("AnthropicContentBlockParam".to_owned(), block_param()),
        ("AnthropicTool".to_owned(), tool()),
        answer(
            "AnthropicMessagesResponse",
            &[
                "id",
                "type",
                "role",
                "model",
                "content",
                "stop_reason",
                "stop_sequence",
                "usage",
            ],
            &[json!({
                "id": text, "type": {"const": "message"}, "role": {"const": "assistant"},
                "model": text,
                "content": {"type": "array", "items": component("AnthropicContentBlock")},
                "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
                "stop_sequence": {"type": ["string", "null"]},
                "usage": component("AnthropicUsage"),
                "structured_output_complete": {"const": false},
                "structured_output_completed_by_budget": {"const": true},
                "structured_output_repetition_closed": {"const": true},
                "warnings": {"type": "array", "items": text},
            })],
        ),
        answer(
            "AnthropicContentBlock",
            &["type"],
            &[json!({
                "type": {"enum": ["text", "thinking", "tool_use"]},
                "text": text, "thinking": text, "signature": text,
                "id": text, "name": text, "input": {"type": "object"},
            })],
        ),
        answer(
            "AnthropicUsage",
            &["input_tokens", "output_tokens"],
            &[json!({
                "input_tokens": count(), "output_tokens": count(),
                "cache_creation_input_tokens": count(), "cache_read_input_tokens": count(),
                "output_tokens_details": {
                    "type": "object", "properties": {"thinking_tokens": count()},
                },
            })],
        ),
        answer(
            "AnthropicCountTokensResponse",
            &["input_tokens"],
            &[json!({"input_tokens": count()})],
        ),
        answer(
            "AnthropicErrorResponse",
            &["type", "error", "request_id"],
            &[json!({
                "type": {"const": "error"},
                "error": {
                    "type": "object", "required": ["type", "message"],
                    "properties": {
                        "type": text, "message": text,
                        "details": {
                            "type": "object",
                            "properties": {
                                "error_code": text, "unsupported": {"type": "array", "items": text},
                            },
                        },
                        "location": location(), "limit": limit(),
                    },
                    "additionalProperties": false,
                },
                "request_id": text,
            })],
        ),
    ])
}

/// The fields that chat requests don't have, or have otherwise.
fn own_fields() -> Map<String, Value> {
    let schema = json!({
        "type": "object", "required": ["type", "schema"], "additionalProperties": false,
        "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}},
    });
    fields(json!({
        "messages": {"type": "array", "minItems": 1, "items": component("AnthropicMessage")},
        "system": content(),
        "stop_sequences": {"type": "array", "items": {"type": "string"}, "maxItems": 128},
        "tools": {"type": "array", "items": component("AnthropicTool")},
        "tool_choice": {
            "type": "object", "required": ["type"],
            "properties": {
                "type": {"enum": ["auto", "any", "tool", "none"]}, "name": {"type": "string"},
                "disable_parallel_tool_use": {"type": "boolean"},
            },
            "additionalProperties": false,
        },
        "thinking": {
            "type": "object", "required": ["type"],
            "properties": {
                "type": {"enum": ["enabled", "adaptive", "disabled"]}, "budget_tokens": count(),
                "display": {"enum": ["summarized", "omitted"]},
            },
            "additionalProperties": false,
        },
        "output_config": {
            "type": "object",
            "properties": {
                "effort": {"enum": ["low", "medium", "high", "xhigh", "max"]}, "format": schema,
            },
            "additionalProperties": false,
        },
        "output_format": schema,
        "cache_control": {"type": "object"},
        "mcp_servers": {"const": []},
        "context_management": {
            "type": "object", "additionalProperties": false,
            "properties": {"edits": {
                "type": "array",
                "items": {"const": {"type": "clear_thinking_20251015", "keep": "all"}},
            }},
        },
        "speed": {"const": "standard"},
    }))
}

/// A string, or blocks.
fn content() -> Value {
    let blocks = json!({"type": "array", "items": component("AnthropicContentBlockParam")});
    json!({"anyOf": [{"type": "string"}, blocks]})
}

fn message() -> Value {
    json!({
        "type": "object", "required": ["role", "content"],
        "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": content()},
        "additionalProperties": false,
    })
}

fn block_param() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object", "required": ["type"],
        "properties": {
            "type": {"enum": ["text", "tool_use", "tool_result", "thinking", "redacted_thinking"]},
            "text": text, "thinking": text, "signature": text, "data": text,
            "id": text, "name": text, "input": {"type": "object"},
            "tool_use_id": text, "content": {"type": ["string", "array"]},
            "is_error": {"type": "boolean"}, "cache_control": {"type": "object"},
        },
    })
}

fn tool() -> Value {
    json!({
        "type": "object", "required": ["name", "input_schema"],
        "properties": {
            "type": {"const": "custom"}, "name": {"type": "string"},
            "description": {"type": ["string", "null"]}, "input_schema": {"type": "object"},
            "strict": {"type": ["boolean", "null"]}, "cache_control": {"type": ["object", "null"]},
        },
    })
}

/// A sentence for each field that no other API has, or has otherwise.
pub(super) const DESCRIPTIONS: &[Description] = &[
    (
        "system",
        "A system message before the others: a text, or blocks of text.",
    ),
    (
        "stop_sequences",
        "Texts at which the answer ends: at most 1 KiB each, 16 KiB together. They are cut off.",
    ),
    ("AnthropicMessage.role", "Who says it."),
    (
        "AnthropicMessage.content",
        "Text, or a list of content blocks. An answer continues a last message of the assistant.",
    ),
    (
        "AnthropicMessagesRequest.tool_choice",
        "auto: the model decides. any: at least one call. tool: one call of the tool of this name. none: no \
         call. Default: auto where there are tools.",
    ),
    (
        "AnthropicCountTokensRequest.tool_choice",
        "none leaves the tools out of the prompt.",
    ),
    (
        "disable_parallel_tool_use",
        "Allows one call in an answer. Default false.",
    ),
    (
        "AnthropicMessagesRequest.thinking",
        "Whether the model thinks before it answers. Without it the chat template decides.",
    ),
    (
        "AnthropicCountTokensRequest.thinking",
        "Whether the model thinks before it answers.",
    ),
    (
        "budget_tokens",
        "Most tokens of thinking; then the answer begins.",
    ),
    (
        "display",
        "omitted: the answer has the thinking without its text. summarized: no effect, it comes whole.",
    ),
    (
        "output_config",
        "The shape of the answer, and how much the model thinks.",
    ),
    ("output_config.format", "The schema of the answer."),
    ("output_format", "As output_config.format, which is newer."),
    ("cache_control", "No effect: every prefix is cached."),
    ("mcp_servers", "The server has no tools: empty only."),
    (
        "context_management",
        "The context is never cut: only what keeps all of it.",
    ),
    ("edits", "No effect: they keep all thinking."),
    ("speed", "standard only."),
    ("AnthropicTool.name", "The tool's name."),
    ("input_schema", "The schema of the tool's input."),
    ("thinking", "What the model thought."),
    (
        "AnthropicContentBlock.signature",
        "BLAKE3 hash of the thinking, in hexadecimal digits.",
    ),
    ("signature", "No effect: nobody checks it."),
    (
        "AnthropicContentBlockParam.data",
        "Thinking that only another server can read. No effect, with a warning.",
    ),
    (
        "AnthropicContentBlockParam.id",
        "The call's name, as the answer had it.",
    ),
    (
        "AnthropicContentBlock.id",
        "The call's name, for the block with its result.",
    ),
    (
        "AnthropicContentBlockParam.name",
        "The tool that was called.",
    ),
    ("AnthropicContentBlock.name", "The tool to call."),
    (
        "AnthropicContentBlockParam.input",
        "The arguments of the call.",
    ),
    (
        "AnthropicContentBlock.input",
        "The arguments: valid under the tool's schema, exactly as the model wrote them.",
    ),
    ("tool_use_id", "The call that this is the result of."),
    (
        "AnthropicContentBlockParam.content",
        "The result: text, or a list of blocks of text.",
    ),
    (
        "is_error",
        "true: the call failed. The model sees `Error: ` before the result.",
    ),
    (
        "AnthropicMessagesResponse.content",
        "What the model said: text, thinking, calls.",
    ),
    (
        "AnthropicMessagesResponse.stop_reason",
        "Why the answer ended. end_turn: by itself. max_tokens: at max_tokens or the context's end. \
         stop_sequence: at one of stop_sequences. tool_use: with calls.",
    ),
    (
        "stop_sequence",
        "The one of stop_sequences that ended the answer.",
    ),
    (
        "AnthropicMessagesResponse.structured_output_complete",
        "Present where the text was cut off: it is no whole text of the constraint.",
    ),
    (
        "AnthropicUsage.input_tokens",
        "Tokens of the prompt, without those of cache_read_input_tokens.",
    ),
    (
        "AnthropicCountTokensResponse.input_tokens",
        "Tokens of the prompt, system text and tools included.",
    ),
    ("output_tokens", "Tokens of the answer."),
    ("cache_creation_input_tokens", "0: nobody pays for caching."),
    (
        "cache_read_input_tokens",
        "Tokens of the prompt that the cache of prompts had, with --enable-prompt-tokens-details; else 0.",
    ),
    ("output_tokens_details", "Details of the answer's tokens."),
    ("thinking_tokens", "Tokens of thinking."),
    (
        "details",
        "For programs, where they can do without what was refused.",
    ),
    (
        "error_code",
        "thread_unsupported_request: the whole conversation must be in messages.",
    ),
    ("unsupported", "The fields that are not supported."),
    (
        "AnthropicErrorResponse.request_id",
        "The request's id, as in the header request-id.",
    ),
];
