//! The API's error body.

use protocol::RequestErrorCode;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorDetails, GenerateError, ValidationError, cut_short, cut_short_to};

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
    /// `location` and `limit`, where a constraint is at fault.
    #[serde(flatten)]
    pub details: Box<ErrorDetails>,
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
                details: Box::default(),
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
                let (param, details) = match error {
                    GenerateError::Validation(error) => {
                        (error.parameter.clone(), error.details.clone())
                    }
                    GenerateError::Request(error) => (error.field.clone(), None),
                    GenerateError::EngineDead(_) => (None, None),
                };
                let mut response = ErrorResponse::new(error.status_code(), message, param);
                response.error.details = details.unwrap_or_default();
                response
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::RequestError;
    use serde_json::json;

    use super::*;
    use crate::error::ErrorLocation;

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
        // What the core found.
        for (code, status) in [
            (RequestErrorCode::ValidationError, 400),
            (RequestErrorCode::QueueOverflow, 503),
        ] {
            let error = RequestError {
                field: Some("response_format".to_owned()),
                ..RequestError::new(code, "no")
            };
            let body = ServingError::from(GenerateError::Request(error)).to_response();
            assert_eq!(body.error.code, status);
            assert_eq!(body.error.param.as_deref(), Some("response_format"));
        }
        let location = ErrorLocation::LineColumn { line: 1, column: 5 };
        let error = ValidationError {
            details: Some(Box::new(ErrorDetails {
                location: Some(location),
                limit: None,
            })),
            ..ValidationError::about("guided_regex", "no")
        };
        assert_eq!(
            serde_json::to_value(ServingError::from(error).to_response()).unwrap(),
            json!({"error": {
                "message": "guided_regex: no", "type": "BadRequestError", "param": "guided_regex",
                "code": 400, "location": {"line": 1, "column": 5},
            }})
        );
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
