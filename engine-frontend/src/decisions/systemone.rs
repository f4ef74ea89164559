//! TypeSafe's System One API: `/v1/systemone`.

use serde_json::{Map, Value, json};

use super::openai::yes_and_no;
use super::question::{
    Question, QuestionKind, QuestionOption, Questions, best, choice_confidence, expected_level,
    score_confidence,
};
use super::serving::Decided;
use crate::error::{ValidationError, cut_short};
use crate::openai::{Fields, check_keys, list, missing, object};

/// Most questions of one request.
const MAX_QUESTIONS: usize = 200;

/// Reads a request.
///
/// # Errors
/// The first field that is missing, unknown or wrong, by name.
pub(super) fn read(body: Value) -> Result<Questions, ValidationError> {
    let mut fields = Fields::new(body)?;
    let model = fields.take("model")?;
    let input = text_of("state", fields.require_value("state")?)?;
    let questions = fields.require_object("questions")?;
    fields.finish()?;
    let read = |(name, question)| read_question(name, question);
    Questions::read(model, input, questions.into_iter(), MAX_QUESTIONS, read)
}

/// A text, or an object or a list as JSON.
fn text_of(field: &str, value: Value) -> Result<String, ValidationError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(_) | Value::Array(_) => Ok(value.to_string()),
        other => {
            let message = format!("{field} must be a string, an object or a list");
            Err(ValidationError::field(field, other, message))
        }
    }
}

/// The same of what may be absent.
fn optional_text(field: &str, value: Option<Value>) -> Result<Option<String>, ValidationError> {
    let value = value.filter(|value| !value.is_null());
    value.map(|value| text_of(field, value)).transpose()
}

fn read_question(name: String, question: Value) -> Result<Question, ValidationError> {
    let field = format!("questions.{}", cut_short(&name));
    let mut question = object(&field, question)?;
    question.retain(|_, value| !value.is_null());
    check_keys(&field, &question, &["type", "instructions", "criteria"])?;
    let kind = match question.get("type").and_then(Value::as_str) {
        Some("noul") => QuestionKind::Predicate,
        Some("choice") => QuestionKind::Choice,
        Some("score") => QuestionKind::Score,
        _ => {
            let kind = question.remove("type").unwrap_or_default();
            let field = format!("{field}.type");
            let message = format!("{field} must be noul, choice or score");
            return Err(ValidationError::field(field, kind, message));
        }
    };
    let instructions = format!("{field}.instructions");
    let instructions = optional_text(&instructions, question.remove("instructions"))?;
    let criteria_field = format!("{field}.criteria");
    let options = match (kind, question.remove("criteria")) {
        (QuestionKind::Predicate, None) => yes_and_no(&field, None, None),
        (QuestionKind::Predicate, Some(criteria)) => {
            let mut criteria = object(&criteria_field, criteria)?;
            check_keys(&criteria_field, &criteria, &["true", "false"])?;
            let mut of =
                |key: &str| optional_text(&format!("{criteria_field}.{key}"), criteria.remove(key));
            yes_and_no(&field, of("true")?, of("false")?)
        }
        (_, None) => return Err(missing(&criteria_field)),
        (QuestionKind::Choice, Some(criteria)) => {
            let criteria = object(&criteria_field, criteria)?;
            Question::check_number(&criteria_field, criteria.len(), 1)?;
            let option = |(key, description): (String, Value)| {
                let field = format!("{criteria_field}.{}", cut_short(&key));
                let description = optional_text(&field, Some(description))?;
                Ok(QuestionOption::new(field, key.into(), description))
            };
            criteria.into_iter().map(option).collect::<Result<_, _>>()?
        }
        (QuestionKind::Score, Some(criteria)) => {
            let criteria = list(&criteria_field, criteria)?;
            Question::check_number(&criteria_field, criteria.len(), 1)?;
            let option = |(level, description): (usize, Value)| {
                let field = format!("{criteria_field}[{level}]");
                let value = level.to_string().into();
                let description = text_of(&field, description)?;
                Ok(QuestionOption::new(field, value, Some(description)))
            };
            let levels = criteria.into_iter().enumerate();
            levels.map(option).collect::<Result<_, _>>()?
        }
    };
    let instructions = instructions.unwrap_or_default();
    Question::new(name.into(), field, kind, instructions, options)
}

/// The tokens that were used.
pub(super) fn usage(decided: &Decided) -> Value {
    json!({"input_tokens": decided.input_tokens, "output_tokens": 0})
}

/// What came of a question.
pub(super) fn tell_answer(question: &Question, probabilities: Option<&[f64]>) -> Value {
    let Some(probabilities) = probabilities else {
        return json!({"type": "refusal"});
    };
    let name = |option: &QuestionOption| option.value.as_str().unwrap_or_default().to_owned();
    let options = question.options.iter();
    let of_all = || -> Map<String, Value> {
        let options = question.options.iter().zip(probabilities);
        options
            .map(|(option, p)| (name(option), json!(p)))
            .collect()
    };
    match question.kind {
        QuestionKind::Predicate => json!({"type": "noul", "noul": probabilities[0]}),
        QuestionKind::Choice => json!({
            "type": "choice",
            "choice": question.options[best(probabilities)].value,
            "confidence": choice_confidence(probabilities),
            "probabilities": of_all(),
        }),
        QuestionKind::Score => {
            let legend: Map<String, Value> = options
                .map(|option| (name(option), json!(option.description)))
                .collect();
            json!({
                "type": "score",
                "score": expected_level(probabilities),
                "confidence": score_confidence(probabilities),
                "legend": legend,
                "probabilities": of_all(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decisions::SYSTEM_ONE;

    #[test]
    fn questions_come_and_go_by_their_names() {
        let questions = read(
            json!({"model": "m", "state": {"ticket": "late"}, "questions": {
                "urgent": {"type": "noul", "instructions": {"question": "Urgent?"},
                    "criteria": {"true": "It is late.", "false": null}},
                "team": {"type": "choice", "instructions": "Which team?",
                    "criteria": {"billing": "Money", "other": null}},
                "anger": {"type": "score", "criteria": ["Calm", {"mood": "angry"}]},
                "odd": {"type": "noul"},
            }}),
        )
        .unwrap();
        assert_eq!(questions.input, r#"{"ticket":"late"}"#);
        let prompt = questions.questions[0].prompt("");
        let asked = concat!(
            "- yes: It is late.\n- no\n\n",
            r#"Question: Is this true? {"question":"Urgent?"}"#
        );
        assert!(prompt.ends_with(asked), "{prompt}");
        let decided = Decided {
            probabilities: vec![
                Some(vec![0.75, 0.25]),
                Some(vec![0.25, 0.75]),
                Some(vec![0.5, 0.5]),
                None,
            ],
            input_tokens: 9,
            cached_tokens: 0,
        };
        let told = SYSTEM_ONE.response(Arc::new(questions), decided, "m".to_owned());
        assert_eq!(
            serde_json::to_value(told).unwrap(),
            json!({
                "model": "m",
                "answers": {
                    "urgent": {"type": "noul", "noul": 0.75},
                    "team": {"type": "choice", "choice": "other", "confidence": 0.5,
                        "probabilities": {"billing": 0.25, "other": 0.75}},
                    "anger": {"type": "score", "score": 0.5, "confidence": 0.0,
                        "legend": {"0": "Calm", "1": r#"{"mood":"angry"}"#},
                        "probabilities": {"0": 0.5, "1": 0.5}},
                    "odd": {"type": "refusal"},
                },
                "usage": {"input_tokens": 9, "output_tokens": 0},
            })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |question: Value| {
            let error = read(json!({"state": "a", "questions": {"q": question}})).unwrap_err();
            error.parameter.unwrap_or_default()
        };
        for (question, field) in [
            (json!(1), "questions.q"),
            (json!({"type": "predicate"}), "questions.q.type"),
            (
                json!({"type": "noul", "instructions": 1}),
                "questions.q.instructions",
            ),
            (
                json!({"type": "noul", "criteria": {"yes": "a"}}),
                "questions.q.criteria.yes",
            ),
            (json!({"type": "choice"}), "questions.q.criteria"),
            (
                json!({"type": "choice", "criteria": {}}),
                "questions.q.criteria",
            ),
            (
                json!({"type": "choice", "criteria": ["a"]}),
                "questions.q.criteria",
            ),
            (
                json!({"type": "choice", "criteria": {"a": 1}}),
                "questions.q.criteria.a",
            ),
            (
                json!({"type": "score", "criteria": ["a", null]}),
                "questions.q.criteria[1]",
            ),
            (json!({"type": "noul", "levels": []}), "questions.q.levels"),
        ] {
            assert_eq!(refused(question.clone()), field, "{question}");
        }
        let error = read(json!({"state": null, "questions": {}})).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("state"));
        let error = read(json!({"state": "a", "questions": {}})).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("questions"));
    }
}
