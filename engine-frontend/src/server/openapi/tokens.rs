//! Token ids in, token ids out: what a request says, and what its answer looks like.

use serde_json::{Map, Value, json};

use super::answers::{answer, or_null};
use super::component;
use super::descriptions::Description;
use super::requests::{common, count, fields, request};

/// Fields of completions that a request has as they are.
const OF_REQUEST: &[&str] = &[
    "model",
    "request_id",
    "stream",
    "stream_options",
    "cache_salt",
    "priority",
    "return_token_ids",
];

/// Fields of completions that `sampling_params` has as they are.
const OF_SAMPLING: &[&str] = &[
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "prompt_logprobs",
    "logprob_token_ids",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stream_interval",
    "structured_outputs",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "thinking_token_budget",
    "repetition_detection",
];

/// The components of the route.
pub(super) fn schemas() -> Map<String, Value> {
    let common = common();
    let some = |names: &[&str]| -> Map<String, Value> {
        let entries = names.iter().filter_map(|name| common.get_key_value(*name));
        entries
            .map(|(name, field)| (name.clone(), field.clone()))
            .collect()
    };
    let ids = json!({"type": "array", "items": count()});
    let flag = json!({"type": "boolean"});
    let mut sampling = some(OF_SAMPLING);
    sampling.extend(fields(json!({
        "logprobs": {"type": "integer", "minimum": -1, "maximum": 20},
        "detokenize": flag, "flat_logprobs": flag, "extra_args": {"const": {}},
    })));
    let mut generate = some(OF_REQUEST);
    generate.extend(fields(json!({
        "token_ids": {"type": "array", "items": count(), "minItems": 1},
        "sampling_params": component("SamplingParams"),
        "output_mode": {"const": "tokens"},
        "reasoning_ended": {"const": true},
    })));
    let required = ["token_ids", "sampling_params"];
    let logprob = json!({
        "token_id": count(), "logprob": {"type": "number"}, "rank": {"type": ["integer", "null"]},
    });
    Map::from_iter([
        request("GenerateRequest", &required, generate),
        request("SamplingParams", &[], sampling),
        answer(
            "GenerateResponse",
            &[
                "request_id",
                "model",
                "created",
                "choices",
                "usage",
                "prompt_logprobs",
            ],
            &[json!({
                "request_id": {"type": "string"}, "model": {"type": "string"}, "created": count(),
                "choices": {"type": "array", "items": component("GenerateChoice")},
                "usage": component("Usage"), "prompt_token_ids": ids,
                "prompt_logprobs": or_null(
                    json!({"type": "array", "items": {"type": ["object", "null"]}}),
                ),
            })],
        ),
        answer(
            "GenerateChoice",
            &[
                "index",
                "token_ids",
                "logprobs",
                "finish_reason",
                "stop_reason",
            ],
            &[json!({
                "index": count(), "token_ids": ids, "logprobs": or_null(component("GenerateLogprobs")),
                "finish_reason": {"enum": ["stop", "length", "abort", "error", "repetition"]},
                "stop_reason": {"type": ["string", "integer", "null"]},
                "structured_output_complete": flag,
                "structured_output_completed_by_budget": {"const": true},
                "structured_output_repetition_closed": {"const": true},
            })],
        ),
        answer(
            "GenerateLogprobs",
            &["content"],
            &[json!({"content": {"type": "array", "items": component("GenerateLogprob")}})],
        ),
        answer(
            "GenerateLogprob",
            &["token_id", "logprob", "rank", "top_logprobs"],
            &[
                logprob.clone(),
                json!({"top_logprobs": {"type": "array", "items": {
                    "type": "object", "required": ["token_id", "logprob", "rank"], "properties": logprob,
                }}}),
            ],
        ),
    ])
}

/// A sentence for each field that no other API has, or has otherwise.
pub(super) const DESCRIPTIONS: &[Description] = &[
    (
        "GenerateRequest.token_ids",
        "What the answers continue, as the model's token ids.",
    ),
    ("sampling_params", "How to sample. {} is all defaults."),
    (
        "output_mode",
        "tokens only: /detokenize makes text of them.",
    ),
    (
        "reasoning_ended",
        "true: a constraint holds from the first token. Without it the engine finds out from the prompt where \
         thinking stands.",
    ),
    (
        "SamplingParams.max_tokens",
        "Most tokens of the answer. A constrained answer is led to its end within them. Default: as many as the \
         context leaves.",
    ),
    (
        "SamplingParams.logprobs",
        "Adds the logprobs of the answer's tokens, and of the most probable ones: this many together with the \
         token itself. -1: all.",
    ),
    (
        "detokenize",
        "Accepted without effect: the answer has no text. Stop texts are looked for in any case.",
    ),
    (
        "flat_logprobs",
        "Accepted without effect: logprobs have one form.",
    ),
    ("extra_args", "There are no extensions: empty only."),
    ("GenerateResponse.request_id", "The answer's own name."),
    (
        "GenerateResponse.prompt_logprobs",
        "The logprobs of the prompt's tokens.",
    ),
    ("rank", "The token's place among all, from 1, where known."),
    (
        "GenerateLogprob.top_logprobs",
        "The token itself first, then the most probable others.",
    ),
];
