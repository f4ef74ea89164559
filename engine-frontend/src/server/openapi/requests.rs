//! What requests may say.

use serde_json::{Map, Value, json};

use super::component;
use crate::openai::{INCLUDES, REASONING_EFFORTS};

const MAX_U32: u32 = u32::MAX;

const VERBOSITIES: [&str; 3] = ["low", "medium", "high"];

/// The fields of a chat request that `/formwork/v1/check` has: all that constrain an answer.
const CHECKED: &[&str] = &[
    "model",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_json_object",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_whitespace_pattern",
    "guided_decoding_backend",
    "grammar",
    "json_schema",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
];

/// The components that requests are made of.
pub(super) fn schemas() -> Map<String, Value> {
    let chat = chat();
    let mut completion = common();
    completion.extend(completion_fields());
    let mut responses = common();
    for name in [
        "max_tokens",
        "n_predict",
        "n",
        "prompt_logprobs",
        "return_token_ids",
        "include_trace",
    ] {
        responses.remove(name);
    }
    responses.remove("response_format");
    responses.extend(responses_fields());
    let mut check = Map::new();
    for name in CHECKED {
        check.extend(
            chat.get_key_value(*name)
                .map(|(name, field)| (name.clone(), field.clone())),
        );
    }
    check.extend(fields(json!({"text": {"type": "string"}})));
    let mut tokenize = chat.clone();
    tokenize.extend(fields(json!({
        "prompt": {"type": "string"}, "return_token_strs": {"type": "boolean"},
    })));
    Map::from_iter([
        request(
            "BatchChatCompletionRequest",
            &["messages"],
            batch(chat.clone()),
        ),
        request("ChatCompletionRequest", &["messages"], chat),
        request("CompletionRequest", &["prompt"], completion),
        request("ResponsesRequest", &["input"], responses),
        request("CheckRequest", &[], check),
        request("TokenizeRequest", &[], tokenize),
        request(
            "DetokenizeRequest",
            &["tokens"],
            fields(
                json!({"model": {"type": "string"}, "tokens": {"type": "array", "items": count()}}),
            ),
        ),
        ("StructuredOutputs".to_owned(), structured_outputs()),
        ("ResponseFormat".to_owned(), response_format()),
        ("Tool".to_owned(), tool()),
        ("ChatMessageParam".to_owned(), chat_message()),
    ])
}

/// The fields of a chat request.
pub(super) fn chat() -> Map<String, Value> {
    let mut chat = common();
    chat.extend(chat_fields());
    chat
}

/// The fields of a request of several conversations: those of a chat request, but for what is of one.
fn batch(mut chat: Map<String, Value>) -> Map<String, Value> {
    for name in [
        "tools",
        "tool_strictness",
        "parallel_tool_calls",
        "prompt_logprobs",
        "stream_options",
        "stream_interval",
    ] {
        chat.remove(name);
    }
    let conversation = json!({
        "type": "array", "minItems": 1, "items": component("ChatMessageParam"),
    });
    chat.extend(fields(json!({
        "messages": {"type": "array", "minItems": 1, "maxItems": 1024, "items": conversation},
        "n": {"const": 1}, "stream": {"const": false}, "tool_choice": {"const": "none"},
    })));
    chat
}

/// A request: unknown fields are refused, and `null` is as good as nothing.
pub(super) fn request(
    name: &str,
    required: &[&str],
    fields: Map<String, Value>,
) -> (String, Value) {
    let fields: Map<String, Value> = fields
        .into_iter()
        .map(|(name, schema)| match required.contains(&name.as_str()) {
            true => (name, schema),
            false => (name, json!({"anyOf": [schema, {"type": "null"}]})),
        })
        .collect();
    let schema = json!({
        "type": "object", "required": required, "properties": fields,
        "additionalProperties": false,
    });
    (name.to_owned(), schema)
}

pub(super) fn fields(fields: Value) -> Map<String, Value> {
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MAX_U32})
}

/// What completions and chat completions have in common.
pub(super) fn common() -> Map<String, Value> {
    let mut common = sampling();
    common.extend(sampling_of_tokens());
    common.extend(shared());
    common
}

/// How to sample.
fn sampling() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let flag = json!({"type": "boolean"});
    let ids = json!({"type": "array", "items": count()});
    fields(json!({
        "model": text,
        "n": {"type": "integer", "minimum": 1, "maximum": 16384},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "top_k": {"type": "integer", "minimum": -1, "maximum": MAX_U32},
        "min_p": {"type": "number", "minimum": 0, "maximum": 1},
        "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
        "seed": {"type": "integer", "minimum": i64::MIN, "maximum": u64::MAX},
        "stop": {"anyOf": [text, {"type": "array", "items": text, "maxItems": 128}]},
        "stop_token_ids": ids,
        "include_stop_str_in_output": flag,
        "ignore_eos": flag,
        "max_tokens": count(),
        "min_tokens": count(),
        "skip_special_tokens": flag,
        "spaces_between_special_tokens": flag,
    }))
}

/// How to sample, and from what.
pub(super) fn sampling_of_tokens() -> Map<String, Value> {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let ids = json!({"type": "array", "items": count()});
    fields(json!({
        "logit_bias": {
            "type": "object", "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number"},
        },
        "allowed_token_ids": ids,
        "bad_words": texts,
        "prompt_logprobs": {"type": "integer", "minimum": -1, "maximum": 20},
        "logprob_token_ids": ids,
        "repetition_detection": {
            "type": "object",
            "properties": {
                "max_pattern_size": count(), "min_pattern_size": count(), "min_count": count(),
            },
            "required": ["max_pattern_size"],
            "additionalProperties": false,
        },
        "thinking_token_budget": {"type": "integer", "minimum": -1, "maximum": MAX_U32},
        "truncate_prompt_tokens": {"type": "integer", "minimum": -1, "maximum": MAX_U32},
        "truncation_side": {"enum": ["left", "right"]},
    }))
}

/// What both have in common beside sampling.
fn shared() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let flag = json!({"type": "boolean"});
    let mut common = fields(json!({
        "stream": flag,
        "stream_options": {
            "type": "object",
            "properties": {
                "include_usage": flag, "continuous_usage_stats": flag, "include_obfuscation": flag,
            },
            "additionalProperties": false,
        },
        "stream_interval": {"type": "integer", "minimum": 1, "maximum": MAX_U32},
        "priority": {"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX},
        "request_id": {"type": "string", "pattern": "^[ -~]{1,128}$"},
        "cache_salt": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[^@/\\\\\\u0000]*$"},
        "include_warnings": flag,
        "return_token_ids": flag,
        "return_tokens_as_token_ids": flag,
        "include_trace": flag,
        "add_special_tokens": flag,
        "response_format": component("ResponseFormat"),
        "structured_outputs": component("StructuredOutputs"),
        "guided_json": schema_or_text(),
        "guided_json_object": {"const": true},
        "guided_regex": text,
        "guided_choice": {"type": "array", "items": text, "minItems": 1},
        "guided_grammar": text,
        "guided_whitespace_pattern": text,
        "guided_decoding_backend": text,
        // As llama.cpp has them.
        "grammar": text,
        "json_schema": schema_or_text(),
        "n_predict": {"type": "integer", "minimum": -1, "maximum": MAX_U32},
        "cache_prompt": flag,
        "id_slot": {"type": "integer"},
        // Asking for nothing, or who asks.
        "use_beam_search": {"const": false},
        "length_penalty": {"const": 1.0},
        "best_of": {"const": 1},
        "return_weight_versions": {"const": false},
        "store": flag,
        "vllm_xargs": {"const": {}},
        "session_id": {"const": ""},
        "lora": {"const": []},
        "lora_request": {"const": []},
        "user": {},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "service_tier": {},
        "safety_identifier": {},
        "prompt_cache_key": {},
        "prompt_cache_retention": {},
    }));
    // A macro reads no longer list than that.
    let options = json!({"type": "object"});
    common.insert("prompt_cache_options".to_owned(), options);
    common
}

fn completion_fields() -> Map<String, Value> {
    fields(json!({
        "prompt": {"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1024},
            {"type": "array", "items": count(), "minItems": 1},
            {
                "type": "array", "minItems": 1, "maxItems": 1024,
                "items": {"type": "array", "items": count(), "minItems": 1},
            },
        ]},
        "echo": {"type": "boolean"},
        "suffix": {"const": ""},
        "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    }))
}

fn chat_fields() -> Map<String, Value> {
    let flag = json!({"type": "boolean"});
    let object = json!({"type": "object"});
    let mut chat = fields(json!({
        "functions": {"const": []},
        "function_call": {"enum": ["none", "auto"]},
        "messages": {
            "type": "array", "minItems": 1, "items": component("ChatMessageParam"),
        },
        "logprobs": flag,
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
        "max_completion_tokens": count(),
        "include_reasoning": flag,
        "reasoning_effort": {"enum": REASONING_EFFORTS},
        "add_generation_prompt": flag,
        "continue_final_message": flag,
        "documents": {"type": "array", "items": object},
        "chat_template_kwargs": object,
        "chat_template": {"type": "string"},
        "echo": {"const": false},
        "return_prompt_text": {"const": false},
        "modalities": {"const": ["text"]},
        "verbosity": {"enum": VERBOSITIES},
        "prediction": object,
    }));
    let choice = json!({"anyOf": [
        {"enum": ["none", "auto", "required"]},
        {
            "type": "object", "required": ["type", "function"],
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}},
                },
            },
        },
        {
            "type": "object", "required": ["type", "allowed_tools"],
            "properties": {
                "type": {"const": "allowed_tools"},
                "allowed_tools": allowed_tools(json!({
                    "type": "object", "required": ["type", "function"],
                    "properties": {
                        "type": {"const": "function"},
                        "function": {
                            "type": "object", "required": ["name"],
                            "properties": {"name": {"type": "string"}},
                        },
                    },
                })),
            },
        },
    ]});
    chat.extend(fields(json!({
        "tools": {"type": "array", "items": component("Tool")},
        "tool_choice": choice,
        "parallel_tool_calls": flag,
        "tool_strictness": tool_strictness(),
    })));
    chat
}

/// A choice between some of the tools, each spelled like this.
fn allowed_tools(tool: Value) -> Value {
    json!({
        "type": "object", "required": ["mode", "tools"],
        "properties": {
            "mode": {"enum": ["auto", "required"]},
            "tools": {"type": "array", "minItems": 1, "items": tool},
        },
    })
}

fn responses_fields() -> Map<String, Value> {
    let object = json!({"type": "object"});
    let flag = json!({"type": "boolean"});
    let mut includes = INCLUDES.to_vec();
    includes.push("message.output_text.logprobs");
    let function = json!({
        "type": "object", "required": ["type", "name"],
        "properties": {
            "type": {"const": "function"}, "name": {"type": "string"},
            "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]},
            "strict": {"type": ["boolean", "null"]},
        },
    });
    let format = json!({"anyOf": [
        {
            "type": "object", "required": ["type"], "additionalProperties": false,
            "properties": {"type": {"enum": ["text", "json_object"]}},
        },
        {
            "type": "object", "required": ["type", "schema"], "additionalProperties": false,
            "properties": {
                "type": {"enum": ["json_object", "json_schema"]}, "schema": schema_or_text(),
            },
        },
        {
            "type": "object", "required": ["type", "schema"], "additionalProperties": false,
            "properties": {
                "type": {"const": "json_schema"}, "name": {"type": "string"},
                "description": {"type": "string"}, "schema": object, "strict": {"type": "boolean"},
            },
        },
    ]});
    fields(json!({
        "input": {"anyOf": [
            {"type": "string"}, {"type": "array", "minItems": 1, "items": object},
        ]},
        "instructions": {"type": "string"},
        "text": {
            "type": "object", "additionalProperties": false,
            "properties": {"format": format, "verbosity": {"enum": VERBOSITIES}},
        },
        "tools": {"type": "array", "items": function},
        "tool_choice": {"anyOf": [
            {"enum": ["none", "auto", "required"]},
            {
                "type": "object", "required": ["type", "name"],
                "properties": {"type": {"const": "function"}, "name": {"type": "string"}},
            },
            {"allOf": [
                {
                    "type": "object", "required": ["type"],
                    "properties": {"type": {"const": "allowed_tools"}},
                },
                allowed_tools(json!({
                    "type": "object", "required": ["type", "name"],
                    "properties": {"type": {"const": "function"}, "name": {"type": "string"}},
                })),
            ]},
        ]},
        "parallel_tool_calls": {"type": "boolean"},
        "tool_strictness": tool_strictness(),
        "max_output_tokens": count(),
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
        "include": {"type": "array", "items": {"enum": includes}},
        "reasoning": {
            "type": "object",
            "properties": {
                "effort": {"anyOf": [{"enum": REASONING_EFFORTS}, {"type": "null"}]},
                "summary": {"enum": ["auto", "concise", "detailed", "none", null]},
            },
        },
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "user": {"type": "string"},
        "background": {"const": false},
        "truncation": {"const": "disabled"},
        "max_tool_calls": count(),
        "client_metadata": object,
        "stream_options": {
            "type": "object", "additionalProperties": false,
            "properties": {"include_obfuscation": flag, "include_usage": flag},
        },
        "documents": {"type": "array", "items": object},
        "chat_template_kwargs": object,
    }))
}

fn tool_strictness() -> Value {
    json!({"enum": ["refuse", "skip"]})
}

/// A schema, or its text.
fn schema_or_text() -> Value {
    json!({"anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]})
}

fn structured_outputs() -> Value {
    let text = json!({"type": "string"});
    let flag = json!({"type": "boolean"});
    let constraint = fields(json!({
        "json": schema_or_text(),
        "json_object": {"const": true},
        "regex": text,
        "choice": {"type": "array", "items": text, "minItems": 1},
        "grammar": text,
        "structural_tag": {"anyOf": [{"type": "object"}, text]},
    }));
    let one: Vec<Value> = constraint
        .keys()
        .map(|name| json!({"required": [name]}))
        .collect();
    let mut properties = constraint;
    properties.extend(fields(json!({
        "whitespace": {"enum": ["usual", "flexible", "spaced", "compact"]},
        "whitespace_pattern": text,
        "disable_any_whitespace": flag,
        "disable_additional_properties": flag,
        "property_order": {"enum": ["schema", "any"]},
        "backend": text,
        "complete_within_max_tokens": flag,
        "enable_in_reasoning": flag,
    })));
    json!({
        "type": "object", "properties": properties, "additionalProperties": false, "anyOf": one,
    })
}

fn response_format() -> Value {
    json!({"anyOf": [
        {
            "type": "object", "required": ["type"], "additionalProperties": false,
            "properties": {"type": {"enum": ["text", "json_object"]}},
        },
        {
            "type": "object", "required": ["type", "json_schema"], "additionalProperties": false,
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {
                    "type": "object", "required": ["schema"], "additionalProperties": false,
                    "properties": {
                        "name": {"type": "string"}, "description": {"type": "string"},
                        "schema": schema_or_text(), "strict": {"type": "boolean"},
                    },
                },
            },
        },
        {
            "type": "object", "required": ["type"],
            "properties": {
                "type": {"const": "structural_tag"}, "format": {"type": "object"},
                "structures": {"type": "array"}, "triggers": {"type": "array"},
            },
        },
    ]})
}

fn tool() -> Value {
    json!({
        "type": "object", "required": ["type", "function"],
        "properties": {
            "type": {"const": "function"},
            "function": {
                "type": "object", "required": ["name"],
                "properties": {
                    "name": {"type": "string"}, "description": {"type": ["string", "null"]},
                    "parameters": {"type": ["object", "null"]},
                    "strict": {"type": ["boolean", "null"]},
                },
            },
        },
    })
}

fn chat_message() -> Value {
    let parts = json!({"type": "array", "items": {"anyOf": [
        {"type": "string"},
        {
            "type": "object", "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        },
    ]}});
    json!({
        "type": "object", "required": ["role"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
            "content": {"anyOf": [{"type": "string"}, parts, {"type": "null"}]},
            "tool_calls": {"type": "array", "items": {"type": "object"}},
            "tool_call_id": {"type": "string"},
            "name": {"type": "string"},
        },
    })
}
