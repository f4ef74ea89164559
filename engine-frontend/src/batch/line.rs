//! One line of the input, and one of the output.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::{InputLine, MAX_LINE_BYTES};
use crate::error::cut_short;
use crate::json_problem::json_problem;
use crate::unique_json::{self, UniqueJsonError};

/// A request of the batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRequestInput {
    /// The caller's name for it.
    pub custom_id: String,
    /// What kind of request the body is.
    pub url: BatchUrl,
    /// The request as the API takes it.
    pub body: Value,
}

/// The endpoints that a batch can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchUrl {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/score`, or `/score`
    Score,
    /// `/v1/rerank`, or `/v2/rerank` and `/rerank`
    Rerank,
}

/// A line that isn't a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The line's `custom_id`, where it has one.
    pub custom_id: Option<String>,
    /// For programs.
    pub code: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

/// A line's object, or what is wrong with it.
fn object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let problem = |error| format!("the line is not a JSON object: {}", json_problem(&error));
    match unique_json::from_slice(bytes) {
        Ok((value, _)) => serde_json::from_value(value).map_err(problem),
        Err(UniqueJsonError::Syntax { error, .. }) => Err(problem(error)),
        Err(UniqueJsonError::DuplicateKey { key, .. }) => Err(format!(
            "the line has the key {:?} twice in an object: give it once",
            cut_short(&key)
        )),
        Err(UniqueJsonError::TooLarge(mebibytes)) => Err(format!(
            "the line's JSON values would take more than {mebibytes} MiB of memory: give fewer"
        )),
    }
}

impl BatchRequestInput {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &InputLine) -> Result<Self, BadLine> {
        let bad = |custom_id: Option<String>, code, message: String| BadLine {
            custom_id,
            code,
            message,
        };
        let Some(bytes) = &line.bytes else {
            let message = format!("the line is longer than {MAX_LINE_BYTES} bytes");
            return Err(bad(None, "line_too_long", message));
        };
        let mut fields = object(bytes).map_err(|message| bad(None, "invalid_json", message))?;
        let custom_id = match fields.remove("custom_id") {
            Some(Value::String(custom_id)) => custom_id,
            other => {
                let message = match other {
                    None => "custom_id is missing: every line needs a string to tell it by".into(),
                    Some(value) => format!(
                        "custom_id must be a string, got {}",
                        cut_short(&value.to_string())
                    ),
                };
                return Err(bad(None, "invalid_line", message));
            }
        };
        let parts = read_fields(fields);
        let (url, body) =
            parts.map_err(|message| bad(Some(custom_id.clone()), "invalid_line", message))?;
        Ok(Self {
            custom_id,
            url,
            body,
        })
    }

    /// The `custom_id` of a line as its result has it: `None` where [`parse`](Self::parse) finds
    /// none.
    pub(super) fn custom_id_of(line: &InputLine) -> Option<String> {
        match Self::parse(line) {
            Ok(request) => Some(request.custom_id),
            Err(bad) => bad.custom_id,
        }
    }
}

fn read_fields(mut fields: Map<String, Value>) -> Result<(BatchUrl, Value), String> {
    match fields.remove("method") {
        Some(Value::String(method)) if method == "POST" => {}
        other => return Err(wrong("method", other.as_ref(), "\"POST\"")),
    }
    let url = fields.remove("url");
    let url = match url.as_ref().and_then(Value::as_str) {
        Some("/v1/completions") => BatchUrl::Completions,
        Some("/v1/chat/completions") => BatchUrl::ChatCompletions,
        Some("/v1/embeddings") => BatchUrl::Embeddings,
        Some("/v1/score" | "/score") => BatchUrl::Score,
        Some("/v1/rerank" | "/v2/rerank" | "/rerank") => BatchUrl::Rerank,
        _ => {
            let right = "\"/v1/completions\", \"/v1/chat/completions\", \"/v1/embeddings\", \"/v1/score\" or \"/v1/rerank\"";
            return Err(wrong("url", url.as_ref(), right));
        }
    };
    let body = match fields.remove("body") {
        Some(body @ Value::Object(_)) => body,
        other => return Err(wrong("body", other.as_ref(), "a JSON object")),
    };
    match fields.keys().next() {
        Some(name) => Err(format!(
            "unknown field {:?}: a line has custom_id, method, url and body",
            cut_short(name)
        )),
        None => Ok((url, body)),
    }
}

fn wrong(name: &str, value: Option<&Value>, right: &str) -> String {
    match value {
        None => format!("{name} is missing: it must be {right}"),
        Some(value) => format!(
            "{name} must be {right}, got {}",
            cut_short(&value.to_string())
        ),
    }
}

/// What an error says that has no message.
pub(super) const AN_ERROR: &str = "an error";

/// One line of the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRequestOutput {
    /// `batch_req_` and the input line's number.
    pub id: String,
    /// The input line's, where it has one.
    pub custom_id: Option<String>,
    /// The API's answer, an error of the API included; `None` where the line isn't a request.
    pub response: Option<BatchResponseData>,
    /// Why the line isn't a request.
    pub error: Option<BatchLineError>,
}

/// What the API answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchResponseData {
    /// The HTTP status.
    pub status_code: u16,
    /// The id that logs have.
    pub request_id: String,
    /// The body.
    pub body: Value,
}

/// Why a line isn't a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLineError {
    /// `invalid_json`, `invalid_line` or `line_too_long`.
    pub code: String,
    /// Names the line, what is wrong and what would be right.
    pub message: String,
    /// 1-based line of the input.
    pub line: u64,
}

impl BatchRequestOutput {
    /// The result's id for an input line: the same in every run.
    pub fn id_of(line_number: u64) -> String {
        format!("batch_req_{line_number}")
    }

    /// The result of a line that isn't a request.
    pub fn bad_line(line_number: u64, bad: BadLine) -> Self {
        Self {
            id: Self::id_of(line_number),
            custom_id: bad.custom_id,
            response: None,
            error: Some(BatchLineError {
                code: bad.code.to_owned(),
                message: format!("line {line_number}: {}", bad.message),
                line: line_number,
            }),
        }
    }

    /// The result of a request.
    pub fn response(
        line_number: u64,
        custom_id: String,
        request_id: String,
        status_code: u16,
        body: Value,
    ) -> Self {
        Self {
            id: Self::id_of(line_number),
            custom_id: Some(custom_id),
            response: Some(BatchResponseData {
                status_code,
                request_id,
                body,
            }),
            error: None,
        }
    }

    /// Why the caller didn't get what was asked for; `None` for an answer.
    pub fn error_message(&self) -> Option<&str> {
        if let Some(error) = &self.error {
            return Some(&error.message);
        }
        let response = self.response.as_ref()?;
        let message = response.body.pointer("/error/message");
        (response.status_code != 200).then(|| message.and_then(Value::as_str).unwrap_or(AN_ERROR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BatchRequestInput, BadLine> {
        BatchRequestInput::parse(&InputLine {
            number: 7,
            bytes: Some(text.as_bytes().to_vec()),
            end_offset: 0,
        })
    }

    #[test]
    fn a_request() {
        let line = r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}}"#;
        let request = parse(line).unwrap();
        assert_eq!(request.custom_id, "a");
        assert_eq!(request.url, BatchUrl::Completions);
        let chat = line.replace("/v1/", "/v1/chat/");
        assert_eq!(parse(&chat).unwrap().url, BatchUrl::ChatCompletions);
        for (name, url) in [
            ("/v1/embeddings", BatchUrl::Embeddings),
            ("/v1/score", BatchUrl::Score),
            ("/rerank", BatchUrl::Rerank),
        ] {
            let line = line.replace("/v1/completions", name);
            assert_eq!(parse(&line).unwrap().url, url);
        }
    }

    #[test]
    fn every_bad_line_says_what_is_wrong() {
        for (line, custom_id, says) in [
            ("{", None, "not a JSON object"),
            (
                "[]",
                None,
                "the line is not a JSON object: expected an object, got a list",
            ),
            (
                r#"{"custom_id": "a", "body": {"guided_regex": "a", "guided_regex": "b"}}"#,
                None,
                "the line has the key \"guided_regex\" twice",
            ),
            ("{}", None, "custom_id is missing"),
            (
                r#"{"custom_id": 5}"#,
                None,
                "custom_id must be a string, got 5",
            ),
            (r#"{"custom_id": "a"}"#, Some("a"), "method is missing"),
            (
                r#"{"custom_id": "a", "method": "GET"}"#,
                Some("a"),
                "method must be \"POST\", got \"GET\"",
            ),
            (
                r#"{"custom_id": "a", "method": "POST", "url": "/v1/images"}"#,
                Some("a"),
                "got \"/v1/images\"",
            ),
            (
                r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": 1}"#,
                Some("a"),
                "body must be a JSON object, got 1",
            ),
            (
                r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {},
                    "seed": 1}"#,
                Some("a"),
                "unknown field \"seed\"",
            ),
        ] {
            let bad = parse(line).unwrap_err();
            assert_eq!(bad.custom_id.as_deref(), custom_id, "{line}");
            assert!(bad.message.contains(says), "{}", bad.message);
            let output = BatchRequestOutput::bad_line(7, bad);
            assert_eq!(output.id, "batch_req_7");
            let error = output.error.unwrap();
            assert!(error.message.starts_with("line 7: "));
            assert_eq!(error.line, 7);
        }
    }

    #[test]
    fn output_shape() {
        let output = BatchRequestOutput::response(
            3,
            "a".to_owned(),
            "r".to_owned(),
            200,
            serde_json::json!({"x": 1}),
        );
        assert_eq!(
            serde_json::to_string(&output).unwrap(),
            r#"{"id":"batch_req_3","custom_id":"a","response":{"status_code":200,"request_id":"r","body":{"x":1}},"error":null}"#
        );
    }
}
