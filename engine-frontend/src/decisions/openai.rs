//! OpenAI's Decisions API (a public beta): `/v1/decisions`.

use serde_json::{Map, Value, json};

use super::input::{read_input, text_of};
use super::question::{
    Question, QuestionKind, QuestionOption, Questions, best, choice_confidence, expected_level,
    score_confidence,
};
use super::serving::Decided;
use crate::error::ValidationError;
use crate::openai::{Fields, check_keys, list, missing, object, parse};

/// Most questions of one request.
const MAX_QUESTIONS: usize = 400;

/// Reads a request.
///
/// # Errors
/// The first field that is missing, unknown or wrong, by name.
pub(super) fn read(body: Value) -> Result<Questions, ValidationError> {
    let mut fields = Fields::new(body)?;
    let model = fields.take("model")?;
    let input = read_input(fields.require_value("input")?)?;
    let questions = fields.require_list("questions")?;
    fields.finish()?;
    let questions = questions.into_iter().enumerate();
    let read = |(i, question)| read_question(format!("questions[{i}]"), question);
    Questions::read(model, input, questions, MAX_QUESTIONS, read)
}

/// Checks that a key has one of these values.
pub(super) fn one_of(
    field: &str,
    object: &Map<String, Value>,
    name: &str,
    values: &[&str],
) -> Result<(), ValidationError> {
    let field = format!("{field}.{name}");
    match object.get(name) {
        Some(Value::String(value)) if values.contains(&value.as_str()) => Ok(()),
        None => Err(missing(&field)),
        Some(other) => {
            let message = format!("{field} must be {}", values.join(", "));
            Err(ValidationError::field(field, other, message))
        }
    }
}

fn read_question(field: String, question: Value) -> Result<Question, ValidationError> {
    const KINDS: [&str; 3] = ["predicate", "choice", "score"];
    let mut question = object(&field, question)?;
    question.retain(|_, value| !value.is_null());
    one_of(&field, &question, "type", &KINDS)?;
    let (kind, options_key) = match question.get("type").and_then(Value::as_str) {
        Some("choice") => (QuestionKind::Choice, "choices"),
        Some("score") => (QuestionKind::Score, "levels"),
        _ => (QuestionKind::Predicate, ""),
    };
    let known = ["type", "name", "instructions", options_key];
    check_keys(
        &field,
        &question,
        &known[..4 - usize::from(options_key.is_empty())],
    )?;
    let name: Option<String> = (question.remove("name"))
        .map(|name| parse(&format!("{field}.name"), name))
        .transpose()?;
    let instructions_field = format!("{field}.instructions");
    let instructions = question.remove("instructions");
    let instructions = instructions.ok_or_else(|| missing(&instructions_field))?;
    let instructions = text_of(&instructions_field, instructions)?;
    let options = match kind {
        QuestionKind::Predicate => yes_and_no(&field, None, None),
        QuestionKind::Choice | QuestionKind::Score => {
            let list_field = format!("{field}.{options_key}");
            let entries = question
                .remove(options_key)
                .ok_or_else(|| missing(&list_field))?;
            let entries = list(&list_field, entries)?;
            Question::check_number(&list_field, entries.len(), 2)?;
            let entries = entries.into_iter().enumerate();
            entries
                .map(|(i, entry)| read_option(&format!("{list_field}[{i}]"), kind, entry))
                .collect::<Result<_, _>>()?
        }
    };
    Question::new(name.into(), field, kind, instructions, options)
}

/// The options of a predicate, with when they are right.
pub(super) fn yes_and_no(
    field: &str,
    yes: Option<String>,
    no: Option<String>,
) -> Vec<QuestionOption> {
    let option =
        |value: &str, description| QuestionOption::new(field.to_owned(), value.into(), description);
    vec![option("yes", yes), option("no", no)]
}

fn read_option(
    field: &str,
    kind: QuestionKind,
    entry: Value,
) -> Result<QuestionOption, ValidationError> {
    let mut entry = object(field, entry)?;
    let name = if kind == QuestionKind::Choice {
        "value"
    } else {
        "label"
    };
    check_keys(field, &entry, &[name, "description"])?;
    let value_field = format!("{field}.{name}");
    let value = match entry.remove(name) {
        Some(value @ Value::String(_)) => value,
        Some(value @ Value::Bool(_)) if kind == QuestionKind::Choice => value,
        None | Some(Value::Null) => return Err(missing(&value_field)),
        Some(other) => {
            let what = match kind {
                QuestionKind::Choice => "a string, true or false",
                _ => "a string",
            };
            let message = format!("{value_field} must be {what}");
            return Err(ValidationError::field(value_field, other, message));
        }
    };
    let description = entry.remove("description").unwrap_or_default();
    let description: Option<String> = parse(&format!("{field}.description"), description)?;
    Ok(QuestionOption::new(value_field, value, description))
}

/// The tokens that were used.
pub(super) fn usage(decided: &Decided) -> Value {
    json!({
        "input_tokens": decided.input_tokens,
        "input_tokens_details": {
            "cached_tokens": decided.cached_tokens, "cache_write_tokens": 0,
        },
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": decided.input_tokens,
    })
}

/// What came of a question.
pub(super) fn tell_answer(question: &Question, probabilities: Option<&[f64]>) -> Value {
    let Some(probabilities) = probabilities else {
        return json!({"type": "refusal", "name": question.name});
    };
    let name = &question.name;
    let options = question.options.iter().zip(probabilities);
    match question.kind {
        QuestionKind::Predicate => {
            json!({"type": "predicate", "name": name, "probability": probabilities[0]})
        }
        QuestionKind::Choice => {
            let of_all: Vec<Value> = options
                .map(|(option, p)| json!({"value": option.value, "probability": p}))
                .collect();
            json!({
                "type": "choice", "name": name,
                "choice": question.options[best(probabilities)].value,
                "confidence": choice_confidence(probabilities),
                "probabilities": of_all,
            })
        }
        QuestionKind::Score => {
            let of_all: Vec<Value> = (options.enumerate())
                .map(|(level, (option, p))| {
                    json!({"value": level, "label": option.value, "probability": p})
                })
                .collect();
            json!({
                "type": "score", "name": name,
                "score": expected_level(probabilities),
                "confidence": score_confidence(probabilities),
                "probabilities": of_all,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decisions::OPENAI;

    fn body(question: &Value) -> Value {
        json!({"model": "m", "input": "text", "questions": [question]})
    }

    fn refused(question: &Value) -> (String, String) {
        let error = read(body(question)).unwrap_err();
        (
            error.parameter.clone().unwrap_or_default(),
            error.to_string(),
        )
    }

    #[test]
    fn what_is_wrong_with_a_question_is_named() {
        for (question, field) in [
            (json!(7), "questions[0]"),
            (json!({"instructions": "x"}), "questions[0].type"),
            (
                json!({"type": "rank", "instructions": "x"}),
                "questions[0].type",
            ),
            (json!({"type": "predicate"}), "questions[0].instructions"),
            (
                json!({"type": "predicate", "instructions": 1}),
                "questions[0].instructions",
            ),
            (
                json!({"type": "predicate", "instructions": "x", "choices": []}),
                "questions[0].choices",
            ),
            (
                json!({"type": "choice", "instructions": "x"}),
                "questions[0].choices",
            ),
            (
                json!({"type": "choice", "instructions": "x", "choices": []}),
                "questions[0].choices",
            ),
            (
                json!({"type": "choice", "instructions": "x", "choices": [{"value": 1}, {"value": "a"}]}),
                "questions[0].choices[0].value",
            ),
            (
                json!({"type": "choice", "instructions": "x", "choices": [{"value": "a"}, {"value": "a"}]}),
                "questions[0].choices[1].value",
            ),
            (
                json!({"type": "score", "instructions": "x", "levels": [{"label": true}, {"label": "a"}]}),
                "questions[0].levels[0].label",
            ),
            (
                json!({"type": "score", "instructions": "x", "levels": [{"label": "a"}, {"value": "b"}]}),
                "questions[0].levels[1].value",
            ),
            (
                json!({"type": "score", "instructions": "x", "levels": [{"label": "a"}, {"label": "b", "description": 1}]}),
                "questions[0].levels[1].description",
            ),
        ] {
            assert_eq!(refused(&question).0, field, "{question}");
        }
        let (_, message) = refused(
            &json!({"type": "choice", "instructions": "x", "choices": [{"value": 7}, {"value": "a"}]}),
        );
        assert!(
            message.contains("a string, true or false") && message.contains('7'),
            "{message}"
        );
        let ask = |num_questions: usize, num_options: usize| {
            let options = (0..num_options).map(|i| json!({"value": format!("{i}")}));
            let options: Vec<Value> = options.collect();
            let question = json!({"type": "choice", "instructions": [{"type": "input_text", "text": "x"}], "choices": options});
            read(json!({"input": "a", "questions": vec![question; num_questions]}))
        };
        assert_eq!(ask(400, 2).unwrap().num_questions(), 400);
        assert_eq!(ask(200, 255).unwrap().questions[199].instructions, "x");
        for (num_questions, num_options, says) in [
            (401, 2, "1 to 400 entries, got 401"),
            (
                201,
                255,
                "questions up to questions[200] have 51255 options together: at most 51000",
            ),
        ] {
            let error = ask(num_questions, num_options).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some("questions"));
            assert!(error.message.contains(says), "{}", error.message);
        }
        let error = read(json!({"input": "a", "questions": []})).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("questions"));
        let error = read(json!({"input": "a", "questions": [], "temperature": 1})).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("temperature"));
    }

    #[test]
    fn every_kind_is_told_in_its_own_words() {
        let questions = read(json!({"input": "text", "safety_identifier": "someone", "prompt_cache_options": {"mode": "explicit"}, "questions": [
            {"type": "predicate", "name": "p", "instructions": "x"},
            {"type": "choice", "instructions": "x", "choices": [{"value": "a"}, {"value": true, "description": "d"}]},
            {"type": "score", "instructions": "x", "levels": [{"label": "low"}, {"label": "high"}]},
            {"type": "predicate", "name": "r", "instructions": "x"},
        ]}))
        .unwrap();
        let decided = Decided {
            probabilities: vec![
                Some(vec![0.75, 0.25]),
                Some(vec![0.25, 0.75]),
                Some(vec![0.5, 0.5]),
                None,
            ],
            input_tokens: 40,
            cached_tokens: 16,
        };
        let told = OPENAI.response(Arc::new(questions), decided, "m".to_owned());
        let told = serde_json::to_value(told).unwrap();
        assert_eq!(
            told["answers"],
            json!([
                {"type": "predicate", "name": "p", "probability": 0.75},
                {"type": "choice", "name": null, "choice": true, "confidence": 0.5, "probabilities": [
                    {"value": "a", "probability": 0.25}, {"value": true, "probability": 0.75},
                ]},
                {"type": "score", "name": null, "score": 0.5, "confidence": 0.0, "probabilities": [
                    {"value": 0, "label": "low", "probability": 0.5},
                    {"value": 1, "label": "high", "probability": 0.5},
                ]},
                {"type": "refusal", "name": "r"},
            ])
        );
        assert_eq!(told["usage"]["input_tokens_details"]["cached_tokens"], 16);
        assert_eq!(
            (&told["usage"]["total_tokens"], &told["model"]),
            (&json!(40), &json!("m"))
        );
    }
}
