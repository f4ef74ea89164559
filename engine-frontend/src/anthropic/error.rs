//! The API's error body.

use serde::{Deserialize, Serialize};

use crate::error::ErrorDetails;
use crate::openai::ErrorInfo;

/// The field by which a request asks the server to keep its conversation.
pub(super) const THREAD: &str = "thread";

/// `{"type": "error", "error": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnthropicErrorResponse {
    /// `error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What went wrong.
    pub error: AnthropicError,
    /// The request's id, as in the header `request-id`.
    pub request_id: String,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnthropicError {
    /// Kind, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub error_type: String,
    /// For people. Names the field at fault.
    pub message: String,
    /// For programs, where they can do without what was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<AnthropicErrorDetails>,
    /// `location` and `limit`, where a constraint is at fault.
    #[serde(flatten)]
    pub problem: Box<ErrorDetails>,
}

/// What a program can do without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnthropicErrorDetails {
    /// `thread_unsupported_request`: the `anthropic` package sends the whole conversation then.
    pub error_code: String,
    /// The fields that are not supported.
    pub unsupported: Vec<String>,
}

impl AnthropicErrorResponse {
    /// An error of the server in this API's words.
    pub fn new(error: &ErrorInfo, request_id: &str) -> Self {
        let error_type = match error.code {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        Self {
            kind: "error".to_owned(),
            error: AnthropicError {
                error_type: error_type.to_owned(),
                message: error.message.clone(),
                details: (error.param.as_deref() == Some(THREAD)).then(|| AnthropicErrorDetails {
                    error_code: "thread_unsupported_request".to_owned(),
                    unsupported: vec![THREAD.to_owned()],
                }),
                problem: error.details.clone(),
            },
            request_id: request_id.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::openai::ErrorResponse;

    #[test]
    fn every_status_has_its_kind() {
        for (code, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (405, "invalid_request_error"),
            (408, "invalid_request_error"),
            (413, "request_too_large"),
            (415, "invalid_request_error"),
            (429, "rate_limit_error"),
            (431, "invalid_request_error"),
            (500, "api_error"),
            (503, "overloaded_error"),
            (504, "timeout_error"),
        ] {
            let error = ErrorResponse::new(code, "no", Some("x".to_owned())).error;
            assert_eq!(
                serde_json::to_value(AnthropicErrorResponse::new(&error, "1")).unwrap(),
                json!({"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "1"})
            );
        }
        let error = ErrorResponse::new(400, "no", Some(THREAD.to_owned())).error;
        assert_eq!(
            serde_json::to_value(AnthropicErrorResponse::new(&error, "1")).unwrap()["error"],
            json!({
                "type": "invalid_request_error", "message": "no",
                "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
            })
        );
    }
}
