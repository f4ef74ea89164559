//! The API's error body.

use serde::{Deserialize, Serialize};

use crate::openai::ErrorInfo;

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
            },
            request_id: request_id.to_owned(),
        }
    }
}
