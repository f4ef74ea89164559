//! Structured output in a whole engine, on the built-in model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod budget;
mod constraints;
mod draft_model;
mod engine;
mod hostile;
mod identity;
mod isolation;
mod loops;
mod memory;
mod reasoning;
mod waiting;

#[path = "../quantized_checkpoint/mod.rs"]
mod quantized_checkpoint;
#[path = "../random_checkpoint/mod.rs"]
mod random_checkpoint;

use protocol::{EngineCoreRequest, SamplingParams, StructuredOutputsConstraint};

use crate::engine::Engine;

/// A car, as the classic example has it.
const CAR: &str = r#"{
    "type": "object",
    "properties": {
        "brand": {"type": "string", "maxLength": 30},
        "model": {"type": "string", "maxLength": 30},
        "car_type": {"enum": ["sedan", "SUV", "Truck", "Coupe"]}
    },
    "required": ["brand", "model", "car_type"],
    "additionalProperties": false
}"#;

const CHARACTER: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer"},
        "armor": {"enum": ["leather", "chainmail", "plate"]},
        "weapon": {"enum": ["sword", "axe", "bow"]},
        "strength": {"type": "integer"}
    },
    "required": ["name", "age", "armor", "weapon", "strength"],
    "additionalProperties": false
}"#;

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        seed: Some(0),
        max_tokens: Some(max_tokens),
        ..SamplingParams::default()
    }
}

fn seeded(seed: u64, max_tokens: u32) -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        seed: Some(seed),
        max_tokens: Some(max_tokens),
        ..SamplingParams::default()
    }
}

fn regex(pattern: &str) -> Option<StructuredOutputsConstraint> {
    Some(StructuredOutputsConstraint::Regex(pattern.to_owned()))
}

fn json(schema: &str) -> Option<StructuredOutputsConstraint> {
    Some(StructuredOutputsConstraint::Json(schema.to_owned()))
}

fn choice(choices: &[&str]) -> Option<StructuredOutputsConstraint> {
    let choices = choices.iter().map(|choice| (*choice).to_owned()).collect();
    Some(StructuredOutputsConstraint::Choice(choices))
}

/// Requests of every kind, greedy and seeded; with a common prefix, so that some find it cached.
fn mixed_requests(engine: &Engine) -> Vec<EngineCoreRequest> {
    let about = "Describe the most iconic car of the 1990s, then a knight of the old times. ";
    let thinking = |mut request: EngineCoreRequest, ended| {
        request.sampling_params.thinking_tokens = Some(engine.thinking_tokens());
        request.reasoning_ended = ended;
        request
    };
    let penalised = SamplingParams {
        repetition_penalty: 1.3,
        frequency_penalty: 0.4,
        top_p: 0.9,
        top_k: 40,
        min_tokens: 12,
        ..seeded(9, 90)
    };
    let ask = |id: &str, what: &str, constraint, params| {
        engine.request(id, &format!("{about}{what}"), constraint, params)
    };
    vec![
        ask("car-greedy", "JSON.", json(CAR), greedy(120)),
        ask("car-seeded", "JSON.", json(CAR), seeded(3, 120)),
        ask("knight", "JSON.", json(CHARACTER), seeded(4, 200)),
        ask("tight", "JSON.", json(CHARACTER), seeded(5, 48)),
        ask("penalised", "JSON.", json(CHARACTER), penalised.clone()),
        ask(
            "any-object",
            "JSON.",
            Some(StructuredOutputsConstraint::JsonObject),
            seeded(6, 60),
        ),
        ask(
            "mail",
            "Mail.",
            regex(r"\w{3,12}@\w{3,8}\.com"),
            seeded(7, 40),
        ),
        ask(
            "mood",
            "Mood?",
            choice(&["positive", "negative", "neutral"]),
            greedy(16),
        ),
        ask("free", "Go on.", None, seeded(8, 40)),
        ask("free-penalised", "Go on.", None, penalised),
        ask("free-greedy", "Go on and on.", None, greedy(60)),
        thinking(
            ask("thinks", "3 + 4?", regex("[0-9]{1,3}"), seeded(10, 80)),
            Some(false),
        ),
        thinking(
            ask("may-think", "3 + 4?", regex("[0-9]{1,3}"), seeded(11, 80)),
            None,
        ),
        thinking(
            ask("thought", "3 + 4?", regex("[0-9]{1,3}"), greedy(80)),
            Some(true),
        ),
    ]
}
