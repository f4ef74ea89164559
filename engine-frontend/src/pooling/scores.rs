//! `/v1/score` as vLLM has it, and `/v1/rerank` as Jina and Cohere do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::embeddings::{PromptOptions, check_count, take_activation};
use crate::error::{ValidationError, cut_short};
use crate::openai::{Fields, UsageInfo, missing};

/// A request for scores of pairs of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// The first texts: one, or as many as the second ones.
    pub text_1: Texts,
    /// The second texts.
    pub text_2: Texts,
    /// Whether scores are probabilities; as the model says where absent.
    pub use_activation: Option<bool>,
    /// What the request says of its prompts beside their texts.
    pub prompts: PromptOptions,
}

/// Texts under one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    /// What the caller calls them.
    pub field: &'static str,
    /// The texts, at least one.
    pub texts: Vec<String>,
    /// Whether they came as a list.
    pub is_list: bool,
}

impl Texts {
    /// What the caller calls one of them.
    pub(super) fn field(&self, index: usize) -> String {
        match self.is_list {
            true => format!("{}[{index}]", self.field),
            false => self.field.to_owned(),
        }
    }

    /// Bytes of all.
    pub(super) fn num_bytes(&self) -> usize {
        self.texts.iter().map(String::len).sum()
    }

    fn take(fields: &mut Fields, names: &[&'static str]) -> Result<Option<Self>, ValidationError> {
        let mut found = None;
        for &field in names {
            let Some(value) = fields.take_value(field) else {
                continue;
            };
            if let Some(Self { field: other, .. }) = found {
                let message =
                    format!("{other} and {field} are both given: leave out one of the two");
                return Err(ValidationError::about(field, message));
            }
            let (texts, is_list) = match value {
                Value::String(text) => (vec![text], false),
                Value::Array(elements) => {
                    check_count(field, elements.len())?;
                    let text = |(i, element)| read_text(&format!("{field}[{i}]"), element);
                    let texts: Result<_, _> = elements.into_iter().enumerate().map(text).collect();
                    (texts?, true)
                }
                other => return Err(wrong_text(field, &other)),
            };
            if texts.is_empty() {
                let message = format!("{field} must hold at least one text");
                return Err(ValidationError::field(field, "[]", message));
            }
            found = Some(Self {
                field,
                texts,
                is_list,
            });
        }
        Ok(found)
    }
}

/// A text, or an object with one, as Jina and Cohere take documents.
fn read_text(field: &str, value: Value) -> Result<String, ValidationError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(mut object) if object.len() == 1 => match object.remove("text") {
            Some(Value::String(text)) => Ok(text),
            _ => Err(wrong_text(field, &Value::Object(object))),
        },
        other => Err(wrong_text(field, &other)),
    }
}

fn wrong_text(field: &str, value: &Value) -> ValidationError {
    let message = format!(
        "{field} must be a text, got {}",
        cut_short(&value.to_string())
    );
    ValidationError::field(field, value, message)
}

impl ScoreRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown or wrong, by name, or lists of different lengths.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        let mut fields = Fields::new(body)?;
        let model = fields.take("model")?;
        let text_1 = Texts::take(&mut fields, &["text_1", "queries", "data_1"])?;
        let text_1 = text_1.ok_or_else(|| missing("text_1"))?;
        let text_2 = Texts::take(&mut fields, &["text_2", "documents", "items", "data_2"])?;
        let text_2 = text_2.ok_or_else(|| missing("text_2"))?;
        let (first, second) = (text_1.texts.len(), text_2.texts.len());
        if first != 1 && first != second {
            let message = format!(
                "{} has {first} texts and {} has {second}: one against each, or as many of both, are needed",
                text_1.field, text_2.field
            );
            return Err(ValidationError::field(text_1.field, first, message));
        }
        let use_activation = take_activation(&mut fields, "activation")?;
        let prompts = PromptOptions::take(&mut fields)?;
        fields.finish()?;
        Ok(Self {
            model,
            text_1,
            text_2,
            use_activation,
            prompts,
        })
    }
}

/// A request to sort documents by how well they answer a query.
#[derive(Debug, Clone, PartialEq)]
pub struct RerankRequest {
    /// The query and its documents, as a request for scores.
    pub score: ScoreRequest,
    /// Most results; `None` is all.
    pub top_n: Option<u32>,
    /// Whether results have their documents.
    pub return_documents: bool,
}

impl RerankRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown or wrong, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        let mut fields = Fields::new(body)?;
        let model = fields.take("model")?;
        let Some(query) = fields.take_value("query") else {
            return Err(missing("query"));
        };
        let query = Texts {
            field: "query",
            texts: vec![read_text("query", query)?],
            is_list: false,
        };
        let documents = Texts::take(&mut fields, &["documents"])?;
        let documents = documents.ok_or_else(|| missing("documents"))?;
        let instead = "a document is scored as a whole, or cut by truncate_prompt_tokens";
        fields.refuse_unless("max_chunks_per_doc", instead, |_| false)?;
        fields.refuse_unless("max_tokens_per_doc", instead, |_| false)?;
        let top_n = fields.take::<u32>("top_n")?.filter(|top_n| *top_n > 0);
        let return_documents = fields.take("return_documents")?.unwrap_or(true);
        let use_activation = take_activation(&mut fields, "activation")?;
        let prompts = PromptOptions::take(&mut fields)?;
        fields.finish()?;
        Ok(Self {
            score: ScoreRequest {
                model,
                text_1: query,
                text_2: documents,
                use_activation,
                prompts,
            },
            top_n,
            return_documents,
        })
    }
}

/// The answer to a [`ScoreRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreResponse {
    /// `score-...`.
    pub id: String,
    /// `list`.
    pub object: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// A score for each pair, in their order.
    pub data: Vec<ScoreResponseData>,
    /// Tokens taken.
    pub usage: UsageInfo,
}

/// One score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreResponseData {
    /// Which pair.
    pub index: u32,
    /// `score`.
    pub object: String,
    /// How well the texts belong together.
    pub score: f32,
}

/// The answer to a [`RerankRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RerankResponse {
    /// `rerank-...`.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Tokens taken.
    pub usage: UsageInfo,
    /// The best documents first.
    pub results: Vec<RerankResult>,
}

/// A document's place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RerankResult {
    /// Which document.
    pub index: u32,
    /// The document, where asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<RerankDocument>,
    /// How well it answers the query.
    pub relevance_score: f32,
}

/// A document as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RerankDocument {
    /// Its text.
    pub text: String,
}

/// The documents of these scores, best first, of equal ones the earlier; what is no number comes last.
pub(super) fn ranked(scores: &[f32], top_n: Option<u32>) -> Vec<(usize, f32)> {
    let mut ranked: Vec<(usize, f32)> = scores.iter().copied().enumerate().collect();
    ranked.sort_by(|(_, a), (_, b)| {
        let key = |score: f32| {
            if score.is_nan() {
                f32::NEG_INFINITY
            } else {
                score
            }
        };
        key(*b).total_cmp(&key(*a))
    });
    ranked.truncate(top_n.map_or(usize::MAX, |top_n| top_n as usize));
    ranked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_against_one_one_against_many_and_many_against_many() {
        let read = |first: Value, second: Value| {
            ScoreRequest::from_json(json!({"text_1": first, "text_2": second}))
        };
        assert!(read(json!("a"), json!("b")).is_ok());
        assert!(read(json!(["a"]), json!(["b", "c"])).is_ok());
        let many = read(json!(["a", "b"]), json!(["c", {"text": "d"}])).unwrap();
        assert_eq!(many.text_2.texts, ["c", "d"]);
        assert_eq!(many.text_2.field(1), "text_2[1]");
        for (first, second, parameter, part) in [
            (
                json!(["a", "b"]),
                json!("c"),
                "text_1",
                "2 texts and text_2 has 1",
            ),
            (json!([]), json!("c"), "text_1", "at least one"),
            (json!("a"), json!(["b", 5]), "text_2[1]", "got 5"),
            (json!(7), json!("a"), "text_1", "got 7"),
        ] {
            let error = read(first, second).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some(parameter));
            assert!(error.to_string().contains(part), "{error}");
        }
        let both = json!({"text_1": "a", "queries": "b", "text_2": "c"});
        assert!(ScoreRequest::from_json(both).is_err());
        let named = json!({"queries": "a", "documents": ["b"]});
        assert_eq!(
            ScoreRequest::from_json(named).unwrap().text_2.field,
            "documents"
        );
    }

    #[test]
    fn rerank_is_read() {
        let body = json!({"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1,
            "return_documents": false});
        let request = RerankRequest::from_json(body).unwrap();
        assert_eq!(request.score.text_2.texts, ["a", "b"]);
        assert_eq!(request.top_n, Some(1));
        assert!(!request.return_documents);
        for name in ["use_activation", "activation"] {
            let request =
                RerankRequest::from_json(json!({"query": "a", "documents": ["a"], name: false}));
            assert_eq!(request.unwrap().score.use_activation, Some(false));
        }
        for (body, parameter) in [
            (json!({"documents": ["a"]}), "query"),
            (json!({"query": "a"}), "documents"),
            (json!({"query": "a", "documents": [1]}), "documents[0]"),
            (json!({"query": "a", "documents": ["a"], "top": 3}), "top"),
            (
                json!({"query": "a", "documents": ["a"], "use_activation": false, "activation": false}),
                "activation",
            ),
        ] {
            let error = RerankRequest::from_json(body).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some(parameter));
        }
    }

    #[test]
    fn the_best_come_first_and_equal_ones_in_order() {
        let scores = [0.5, f32::NAN, 0.9, 0.5];
        let places: Vec<usize> = ranked(&scores, None).into_iter().map(|(i, _)| i).collect();
        assert_eq!(places, [2, 0, 3, 1]);
        assert_eq!(ranked(&scores, Some(1)), [(2, 0.9)]);
    }
}
