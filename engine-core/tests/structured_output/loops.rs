//! Strings that repeat themselves.

use protocol::{FinishReason, RepetitionDetection, SamplingParams, StructuredOutputsConstraint};
use serde_json::Value;

use crate::engine::{Answer, Engine, Setup};
use crate::{greedy, json};

/// How often a string may repeat a token.
const MAX_REPEATS: usize = 64;

const NOTE: &str = r#"{
    "type": "object",
    "properties": {"text": {"type": "string"}, "stars": {"enum": [1, 2, 3]}},
    "required": ["text", "stars"],
    "additionalProperties": false
}"#;

/// The answer to a request whose model writes `instructions` wherever it may.
fn looping(
    engine: &mut Engine,
    constraint: Option<StructuredOutputsConstraint>,
    change: impl FnOnce(&mut SamplingParams),
) -> Answer {
    let token = engine.tokenizer.encode("instructions", false).unwrap();
    assert_eq!(token.len(), 1);
    let mut params = greedy(400);
    params.logit_bias = vec![(token[0], 100.0)].into();
    change(&mut params);
    let request = engine.request("a", "Write a note.", constraint, params);
    engine.run(&[request]).remove("a").unwrap()
}

#[test]
fn a_string_that_repeats_itself_is_closed_and_the_answer_goes_on() {
    let mut texts = Vec::new();
    for num_speculative_tokens in [0, 4] {
        let mut engine = Engine::new(&Setup {
            num_speculative_tokens,
            ..Setup::default()
        });
        let answer = looping(&mut engine, json(NOTE), |_| {});
        assert_eq!(answer.error, None);
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop));
        assert_eq!(answer.complete, Some(true));
        assert!(answer.repetition_closed && !answer.completed_by_budget);
        let text = engine.text(&answer);
        let note: Value = serde_json::from_str(&text).unwrap();
        let written = note["text"]
            .as_str()
            .unwrap()
            .matches("instructions")
            .count();
        assert_eq!(written, MAX_REPEATS, "{text}");
        assert!(note["stars"].is_i64(), "{text}");
        texts.push(text);
    }
    assert_eq!(texts[0], texts[1], "whatever is drafted");
}

#[test]
fn who_says_what_a_repetition_is_gets_that() {
    let mut engine = Engine::new(&Setup::default());
    let with = |engine: &mut Engine, max_pattern_size, min_count| {
        looping(engine, json(NOTE), |params| {
            params.repetition_detection = Some(RepetitionDetection {
                max_pattern_size,
                min_pattern_size: 0,
                min_count,
            });
        })
    };
    // Off: the limit of tokens ends it.
    let answer = with(&mut engine, 0, 0);
    assert_eq!(answer.complete, Some(true));
    assert!(!answer.repetition_closed && answer.completed_by_budget);
    assert!(engine.text(&answer).matches("instructions").count() > 2 * MAX_REPEATS);
    // As vLLM has it.
    let answer = with(&mut engine, 2, 5);
    assert_eq!(answer.finish_reason, Some(FinishReason::Repetition));
    assert_eq!(answer.complete, Some(false));
    assert!(!answer.repetition_closed);
}

/// Equal values are no loop, and free text ends as it does without a constraint.
#[test]
fn what_repeats_outside_of_strings_goes_on() {
    let mut engine = Engine::new(&Setup::default());
    let items = |item: &str| {
        format!(r#"{{"type": "array", "items": {item}, "minItems": 90, "maxItems": 90}}"#)
    };
    for item in [
        r#"{"const": 0}"#,
        r#"{"const": "instructions"}"#,
        r#"{"type": "null"}"#,
    ] {
        let answer = looping(&mut engine, json(&items(item)), |_| {});
        assert!(!answer.repetition_closed, "{item}");
        let list: Value = serde_json::from_str(&engine.text(&answer)).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 90);
    }
    let tag = r#"{"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<"],
        "tags": [{"begin": "<", "content": {"type": "regex", "pattern": "[a-z]{8}"}, "end": ">"}]}}"#;
    let tag = StructuredOutputsConstraint::StructuralTag(tag.to_owned());
    let answer = looping(&mut engine, Some(tag), |_| {});
    assert!(!answer.repetition_closed);
    assert_eq!(answer.token_ids.len(), 400);
}
