//! Decisions: what questions say, and what their answers look like, in both APIs.

use serde_json::{Map, Value, json};

use super::answers::answer;
use super::component;
use super::descriptions::Description;
use super::requests::{count, fields, request};

/// The components of both routes.
pub(super) fn schemas() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let probability = json!({"type": "number", "minimum": 0, "maximum": 1});
    let by_name = json!({"type": "object", "additionalProperties": probability});
    let decision = fields(json!({
        "model": text,
        "input": {"anyOf": [text, {"type": "array", "items": component("DecisionItem")}]},
        "safety_identifier": text,
        "questions": {
            "type": "array", "minItems": 1, "maxItems": 400, "items": component("DecisionQuestion"),
        },
    }));
    let system_one = fields(json!({
        "model": text,
        "state": {"type": ["string", "object", "array"]},
        "questions": {
            "type": "object", "minProperties": 1, "maxProperties": 200,
            "additionalProperties": component("SystemOneQuestion"),
        },
    }));
    Map::from_iter([
        request("DecisionRequest", &["input", "questions"], decision),
        request("SystemOneRequest", &["state", "questions"], system_one),
        ("DecisionItem".to_owned(), item(&text)),
        ("DecisionPart".to_owned(), part(&text)),
        ("DecisionQuestion".to_owned(), question(&text)),
        ("SystemOneQuestion".to_owned(), system_one_question()),
        answer(
            "DecisionResponse",
            &["model", "answers", "usage"],
            &[json!({
                "model": text,
                "answers": {"type": "array", "items": component("DecisionAnswer")},
                "usage": component("DecisionUsage"),
            })],
        ),
        answer(
            "DecisionAnswer",
            &["type", "name"],
            &[json!({
                "type": {"enum": ["predicate", "choice", "score", "refusal"]},
                "name": {"type": ["string", "null"]},
                "probability": probability,
                "choice": {"type": ["string", "boolean"]},
                "score": {"type": "number"},
                "confidence": probability,
                "probabilities": {"type": "array", "items": {
                    "type": "object", "required": ["value", "probability"],
                    "properties": {
                        "value": {"type": ["string", "boolean", "integer"]},
                        "label": text, "probability": probability,
                    },
                }},
            })],
        ),
        answer(
            "DecisionUsage",
            &["input_tokens", "output_tokens", "total_tokens"],
            &[json!({
                "input_tokens": count(), "output_tokens": {"const": 0}, "total_tokens": count(),
                "input_tokens_details": {"type": "object", "properties": {
                    "cached_tokens": count(), "cache_write_tokens": {"const": 0},
                }},
                "output_tokens_details": {
                    "type": "object", "properties": {"reasoning_tokens": {"const": 0}},
                },
            })],
        ),
        answer(
            "SystemOneResponse",
            &["model", "answers", "usage"],
            &[json!({
                "model": text,
                "answers": {
                    "type": "object", "additionalProperties": component("SystemOneAnswer"),
                },
                "usage": {
                    "type": "object", "required": ["input_tokens", "output_tokens"],
                    "properties": {"input_tokens": count(), "output_tokens": {"const": 0}},
                },
            })],
        ),
        answer(
            "SystemOneAnswer",
            &["type"],
            &[json!({
                "type": {"enum": ["noul", "choice", "score", "refusal"]},
                "noul": probability, "choice": text, "score": {"type": "number"},
                "confidence": probability, "probabilities": by_name,
                "legend": {"type": "object"},
            })],
        ),
    ])
}

fn item(text: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"enum": [
                "message", "function_call", "function_call_output", "custom_tool_call",
                "custom_tool_call_output", "reasoning",
            ]},
            "role": {"enum": ["user", "developer", "system", "assistant"]},
            "content": text_or_parts(text), "output": text_or_parts(text),
            "call_id": text, "name": text, "arguments": text, "input": text,
        },
    })
}

fn part(text: &Value) -> Value {
    json!({
        "type": "object", "required": ["type"],
        "properties": {
            "type": {"enum": ["input_text", "output_text", "input_json", "refusal"]},
            "text": text, "data": {"type": ["object", "array"]}, "refusal": text,
            "prompt_cache_breakpoint": {"type": "object"},
        },
    })
}

fn text_or_parts(text: &Value) -> Value {
    json!({"anyOf": [text, {"type": "array", "items": component("DecisionPart")}]})
}

fn question(text: &Value) -> Value {
    let option = |name: &str, value: Value| {
        json!({
            "type": "array", "minItems": 2, "maxItems": 255,
            "items": {
                "type": "object", "required": [name], "additionalProperties": false,
                "properties": {name: value, "description": text},
            },
        })
    };
    json!({
        "type": "object", "required": ["type", "instructions"], "additionalProperties": false,
        "properties": {
            "type": {"enum": ["predicate", "choice", "score"]},
            "name": text, "instructions": text_or_parts(text),
            "choices": option("value", json!({"type": ["string", "boolean"]})),
            "levels": option("label", text.clone()),
        },
    })
}

fn system_one_question() -> Value {
    json!({
        "type": "object", "required": ["type"], "additionalProperties": false,
        "properties": {
            "type": {"enum": ["noul", "choice", "score"]},
            "instructions": {"type": ["string", "object", "array", "null"]},
            "criteria": {"type": ["object", "array", "null"]},
        },
    })
}

/// A sentence for each field that no other API has, or has otherwise.
pub(super) const DESCRIPTIONS: &[Description] = &[
    (
        "DecisionRequest.input",
        "What the questions are about: a text, or a conversation as Responses requests have it.",
    ),
    (
        "DecisionRequest.questions",
        "Questions about the input, answered one by one in their order.",
    ),
    (
        "state",
        "What the questions are about: a text, or an object or list that the model sees as JSON.",
    ),
    (
        "SystemOneRequest.questions",
        "Questions about the state, by names that the model doesn't see.",
    ),
    (
        "DecisionItem.type",
        "A message if absent; a call of a tool, or what came of one.",
    ),
    ("DecisionItem.role", "Whose message it is."),
    (
        "DecisionItem.content",
        "Of a message: text, or a list of parts of text or JSON.",
    ),
    (
        "DecisionItem.output",
        "What came of a call: text, or a list of parts of text.",
    ),
    (
        "DecisionItem.call_id",
        "Of a call and its output: by what they belong together.",
    ),
    ("DecisionItem.name", "The tool that is called."),
    (
        "DecisionItem.arguments",
        "Of a function_call: its arguments, as JSON in a string.",
    ),
    ("DecisionItem.input", "Of a custom_tool_call: its input."),
    (
        "DecisionPart.data",
        "Of a part of JSON: an object or a list, which the model sees as JSON.",
    ),
    (
        "DecisionPart.refusal",
        "Of a part that says why there is no answer: the text.",
    ),
    (
        "prompt_cache_breakpoint",
        "No effect: every prefix is cached.",
    ),
    (
        "DecisionQuestion.type",
        "predicate: whether something is so. choice: one of some values. score: a level on a scale.",
    ),
    (
        "SystemOneQuestion.type",
        "noul: whether something is so. choice: one of some names. score: a level on a scale.",
    ),
    (
        "DecisionQuestion.name",
        "What the answer is called. The model doesn't see it.",
    ),
    (
        "DecisionQuestion.instructions",
        "The question, or a statement that may be true: a text, or a list of parts of text or JSON.",
    ),
    (
        "SystemOneQuestion.instructions",
        "The question: a text, or an object or list that the model sees as JSON.",
    ),
    (
        "DecisionQuestion.choices",
        "Of a choice: 2 to 255 values, of any number of tokens.",
    ),
    (
        "choices.value",
        "What the model may answer. A string and a boolean differ.",
    ),
    ("choices.description", "When it is the right one."),
    ("levels", "Of a score: 2 to 255 levels, the lowest first."),
    ("levels.label", "What the model may answer."),
    ("levels.description", "When it is the right one."),
    (
        "criteria",
        "Of a noul: when the answer is true or false. Of a choice: when each name is right. Of a score: a list \
         of levels, the lowest first.",
    ),
    (
        "DecisionResponse.answers",
        "One answer per question, in their order.",
    ),
    (
        "SystemOneResponse.answers",
        "One answer per question, by its name.",
    ),
    (
        "DecisionAnswer.type",
        "The question's type, or refusal: the model told no probabilities.",
    ),
    (
        "SystemOneAnswer.type",
        "The question's type, or refusal: the model told no probabilities.",
    ),
    ("DecisionAnswer.name", "The question's name."),
    (
        "DecisionAnswer.probability",
        "Of a predicate: the probability that it is so.",
    ),
    ("noul", "Of a noul: the probability that it is so."),
    ("DecisionAnswer.choice", "The most probable value."),
    ("SystemOneAnswer.choice", "The most probable name."),
    ("score", "The expected level, counted from 0."),
    (
        "confidence",
        "How peaked the probabilities are, from 0 to 1.",
    ),
    (
        "probabilities",
        "The exact probability of each option under the constraint that the answer is one of them. They sum to 1.",
    ),
    (
        "probabilities.value",
        "The value, or the level's number from 0 on.",
    ),
    ("probabilities.label", "The level's label."),
    ("probabilities.probability", "Its probability."),
    ("legend", "The levels, by their numbers."),
    (
        "DecisionUsage.input_tokens",
        "Tokens of the prompts of all questions together.",
    ),
    (
        "SystemOneResponse.usage.input_tokens",
        "Tokens of the prompts of all questions together.",
    ),
    ("DecisionUsage.output_tokens", "0: nothing is generated."),
    (
        "SystemOneResponse.usage.output_tokens",
        "0: nothing is generated.",
    ),
    (
        "DecisionUsage.input_tokens_details",
        "Details of the prompts' tokens.",
    ),
    (
        "DecisionUsage.input_tokens_details.cached_tokens",
        "Tokens from the cache of prompts, with --enable-prompt-tokens-details; else 0.",
    ),
    ("cache_write_tokens", "0: nobody pays for caching."),
    (
        "DecisionUsage.output_tokens_details.reasoning_tokens",
        "0: nothing is thought.",
    ),
];
