//! The API's error body.

use protocol::{RequestError, RequestErrorCode};
use serde::{Deserialize, Serialize};

use crate::error::{GenerateError, ValidationError, cut_short, cut_short_to};

/// Longest message in characters: a value that it quotes is never an answer of megabytes.
const MAX_MESSAGE_CHARS: usize = 4096;

/// `{"error": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorResponse {
    /// What went wrong.
    pub error: ErrorInfo,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// For people.
    pub message: String,
    /// Kind, such as `BadRequestError`.
    #[serde(rename = "type")]
    pub error_type: String,
    /// The field at fault.
    pub param: Option<String>,
    /// The HTTP status.
    pub code: u16,
}

impl ErrorResponse {
    /// An error with this HTTP status. Message and field are cut short where a request made them long.
    pub fn new(code: u16, message: impl Into<String>, param: Option<String>) -> Self {
        let error_type = match code {
            400 => "BadRequestError",
            401 => "AuthenticationError",
            403 => "PermissionDeniedError",
            404 => "NotFoundError",
            405 => "MethodNotAllowedError",
            408 => "RequestTimeoutError",
            409 => "ConflictError",
            413 => "RequestTooLargeError",
            414 => "UriTooLongError",
            415 => "UnsupportedMediaTypeError",
            429 => "RateLimitError",
            431 => "RequestHeaderFieldsTooLargeError",
            501 => "NotImplementedError",
            503 => "ServiceUnavailable",
            504 => "GatewayTimeoutError",
            _ => "InternalServerError",
        };
        Self {
            error: ErrorInfo {
                message: cut_short_to(MAX_MESSAGE_CHARS, message.into()),
                error_type: error_type.to_owned(),
                param: param.map(|param| cut_short(&param)),
                code,
            },
        }
    }
}

/// Why a request to the API has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServingError {
    /// The request names a model that isn't served here: HTTP 404.
    #[error("The model `{}` does not exist. Valid names: {}", cut_short(model), served.join(", "))]
    ModelNotFound {
        /// The name in the request.
        model: String,
        /// The names that would do.
        served: Vec<String>,
    },
    /// Anything else.
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

impl From<ValidationError> for ServingError {
    fn from(error: ValidationError) -> Self {
        Self::Generate(error.into())
    }
}

impl ServingError {
    /// The same error with the part of the request that it is about before its words, where the request is at fault.
    pub(super) fn within(mut self, place: &str) -> Self {
        match &mut self {
            Self::Generate(GenerateError::Validation(error)) => {
                error.message = format!("{place}: {}", error.message);
            }
            Self::Generate(GenerateError::Request(error))
                if error.code == RequestErrorCode::ValidationError =>
            {
                error.message = format!("{place}: {}", error.message);
            }
            _ => {}
        }
        self
    }

    /// The body that the API answers with; its `code` is the HTTP status.
    pub fn to_response(&self) -> ErrorResponse {
        let message = self.to_string();
        match self {
            Self::ModelNotFound { .. } => {
                ErrorResponse::new(404, message, Some("model".to_owned()))
            }
            Self::Generate(error) => {
                let param = match error {
                    GenerateError::Validation(error) => error.parameter.clone(),
                    GenerateError::Request(error) => field_of(error),
                    GenerateError::EngineDead(_) => None,
                };
                ErrorResponse::new(error.status_code(), message, param)
            }
        }
    }
}

/// The field that a message of the core's begins with, where it is one of the API's. A queue that is full
/// for a field's sake begins with that one, whatever its caller calls it, and a colon.
fn field_of(error: &RequestError) -> Option<String> {
    const FIELDS: [&str; 4] = ["request_id", "max_tokens", "priority", "stop_token_ids"];
    let message = &error.message;
    if error.code == RequestErrorCode::QueueOverflow {
        let (field, _) = message.split_once(": ")?;
        return (!field.contains(' ')).then(|| field.to_owned());
    }
    let first = message.split([' ', ':']).next()?;
    FIELDS.contains(&first).then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_have_the_shape_of_the_api() {
        let error = ServingError::from(ValidationError::field("n", 0, "n must be positive"));
        assert_eq!(
            serde_json::to_value(error.to_response()).unwrap(),
            json!({"error": {
                "message": "n must be positive (got 0)",
                "type": "BadRequestError", "param": "n", "code": 400,
            }})
        );
        // What the core found: stop tokens that leave a text no other.
        let error = RequestError {
            code: RequestErrorCode::ValidationError,
            message: "stop_token_ids: name others".to_owned(),
            retryable: false,
        };
        let body = ServingError::from(GenerateError::Request(error)).to_response();
        assert_eq!(body.error.param.as_deref(), Some("stop_token_ids"));
        for (message, param) in [
            ("response_format: 8 requests wait", Some("response_format")),
            ("8 requests wait: no more are taken", None),
        ] {
            let error = RequestError {
                code: RequestErrorCode::QueueOverflow,
                message: message.to_owned(),
                retryable: true,
            };
            let body = ServingError::from(GenerateError::Request(error)).to_response();
            assert_eq!(body.error.code, 503);
            assert_eq!(body.error.param.as_deref(), param);
        }
        let long = ServingError::ModelNotFound {
            model: "x".repeat(1 << 20),
            served: vec!["a".to_owned()],
        };
        assert!(long.to_response().error.message.len() < 300);
        let long = ErrorResponse::new(400, "x".repeat(1 << 20), Some("x".repeat(1 << 20))).error;
        assert_eq!(long.message.len(), MAX_MESSAGE_CHARS + "...".len());
        assert_eq!(long.param.unwrap().len(), 200 + "...".len());
        let error = ServingError::ModelNotFound {
            model: "x".to_owned(),
            served: vec!["a".to_owned(), "b".to_owned()],
        };
        assert_eq!(
            serde_json::to_value(error.to_response()).unwrap(),
            json!({"error": {
                "message": "The model `x` does not exist. Valid names: a, b",
                "type": "NotFoundError", "param": "model", "code": 404,
            }})
        );
    }
}
