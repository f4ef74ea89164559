//! What an API answers, written question by question: as JSON values the options of a long request take many times
//! their bytes.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::question::{Question, Questions};
use super::serving::Decided;
use crate::error::ValidationError;

/// How an API puts questions, and tells what came of them.
#[derive(Debug, Clone, Copy)]
pub struct DecisionApi {
    /// Reads a request's body.
    pub read: fn(Value) -> Result<Questions, ValidationError>,
    /// What came of one question: the probabilities of its options, or none.
    pub(super) tell_answer: fn(&Question, Option<&[f64]>) -> Value,
    /// Whether answers stand under the questions' names, else in a list.
    pub(super) answers_by_name: bool,
    /// The tokens that were used.
    pub(super) usage: fn(&Decided) -> Value,
}

impl DecisionApi {
    /// The answer to questions, from a model of this name.
    pub fn response(
        self,
        questions: Arc<Questions>,
        decided: Decided,
        model: String,
    ) -> DecisionResponse {
        DecisionResponse {
            api: self,
            questions,
            decided,
            model,
        }
    }
}

/// The answer to a request, in an API's words.
#[derive(Debug)]
pub struct DecisionResponse {
    api: DecisionApi,
    questions: Arc<Questions>,
    decided: Decided,
    model: String,
}

impl Serialize for DecisionResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut response = serializer.serialize_map(Some(3))?;
        response.serialize_entry("model", &self.model)?;
        response.serialize_entry("answers", &Answers(self))?;
        response.serialize_entry("usage", &(self.api.usage)(&self.decided))?;
        response.end()
    }
}

/// The answers alone.
struct Answers<'a>(&'a DecisionResponse);

impl Serialize for Answers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let DecisionResponse {
            api,
            questions,
            decided,
            ..
        } = self.0;
        let questions = questions.questions.iter().zip(&decided.probabilities);
        let answers = questions.map(|(question, probabilities)| {
            let answer = (api.tell_answer)(question, probabilities.as_deref());
            (question.name.as_str().unwrap_or_default(), answer)
        });
        match api.answers_by_name {
            true => serializer.collect_map(answers),
            false => serializer.collect_seq(answers.map(|(_, answer)| answer)),
        }
    }
}
