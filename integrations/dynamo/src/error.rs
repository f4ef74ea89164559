//! Errors of the engine in Dynamo's terms.

use dynamo_backend_common::{BackendError, DynamoError, ErrorType};
use engine_frontend::{GenerateError, RequestErrorCode, ValidationError};

/// A text about our own API's fields with Dynamo's names: without the object that has the sampling parameters.
pub(crate) fn in_dynamos_words(text: &str) -> String {
    text.replace("sampling_params.", "")
}

/// An error of one type. Clients may read its message.
pub fn error(error_type: ErrorType, message: impl Into<String>) -> DynamoError {
    let message = message.into();
    DynamoError::builder()
        .error_type(error_type)
        .public_message(message.clone())
        .message(message)
        .build()
}

/// The client's fault: HTTP 400 in Dynamo's frontend.
pub fn invalid(message: impl Into<String>) -> DynamoError {
    error(ErrorType::Backend(BackendError::InvalidArgument), message)
}

/// A request that asks for something that this engine doesn't do.
pub fn not_supported(field: &str, instead: &str) -> DynamoError {
    invalid(format!("{field} is not supported: {instead}"))
}

/// A field that is wrong, by the name that Dynamo has for it.
pub fn of_validation(problem: &ValidationError) -> DynamoError {
    invalid(in_dynamos_words(&problem.to_string()))
}

/// Why a request has no answer. Dynamo sends those again elsewhere that this worker had no room for, or that it lost
/// with its core.
pub fn of_generate(problem: &GenerateError) -> DynamoError {
    let error_type = match problem {
        GenerateError::Validation(problem) => return of_validation(problem),
        GenerateError::Request(problem) => match problem.code {
            RequestErrorCode::ValidationError | RequestErrorCode::GrammarRefused => {
                return invalid(in_dynamos_words(&problem.message));
            }
            RequestErrorCode::QueueOverflow => ErrorType::WorkerOverloaded,
            RequestErrorCode::ShuttingDown => ErrorType::WorkerUnavailable,
            RequestErrorCode::InternalError => ErrorType::Backend(BackendError::Unknown),
        },
        GenerateError::EngineDead(_) => ErrorType::Backend(BackendError::EngineShutdown),
    };
    error(error_type, problem.to_string())
}
