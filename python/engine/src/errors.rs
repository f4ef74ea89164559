//! Exceptions, with what they know as attributes.

use engine_frontend::{GenerateError, RequestErrorCode, StartupError};
use pyo3::create_exception;
use pyo3::exceptions::{PyFileNotFoundError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::arguments::with_argument_names;

create_exception!(
    formwork,
    ValidationError,
    PyValueError,
    "An argument or a request that is wrong in itself.\n\n\
     Attributes, None where they don't apply: parameter (the field at fault), value (its value as text, cut short)."
);
create_exception!(
    formwork,
    EngineDeadError,
    PyRuntimeError,
    "The engine core is gone, by a crash or by shutdown(). Every later request ends with this: make another LLM."
);

/// The exception of a wrong argument or request.
pub(crate) fn validation_error(py: Python<'_>, error: &engine_frontend::ValidationError) -> PyErr {
    let exception = ValidationError::new_err(with_argument_names(&error.to_string()));
    let value = exception.value(py);
    let set = || -> PyResult<()> {
        value.setattr("parameter", &error.parameter)?;
        value.setattr("value", &error.value)
    };
    set().err().unwrap_or(exception)
}

/// The exception of a request without an answer.
pub(crate) fn generate_error(py: Python<'_>, error: &GenerateError) -> PyErr {
    match error {
        GenerateError::Validation(error) => validation_error(py, error),
        GenerateError::EngineDead(_) => EngineDeadError::new_err(error.to_string()),
        GenerateError::Request(request) => match request.code {
            RequestErrorCode::ValidationError | RequestErrorCode::GrammarRefused => {
                validation_error(
                    py,
                    &engine_frontend::ValidationError::new(error.to_string()),
                )
            }
            _ => PyRuntimeError::new_err(error.to_string()),
        },
    }
}

/// The exception of an engine that doesn't start.
pub(crate) fn startup_error(py: Python<'_>, error: &StartupError) -> PyErr {
    let message = with_argument_names(&error.to_string());
    match error {
        StartupError::Flags(error) => validation_error(py, error),
        StartupError::NoModel { .. } | StartupError::NotOnTheHub { .. } => {
            PyFileNotFoundError::new_err(message)
        }
        _ => PyRuntimeError::new_err(message),
    }
}
