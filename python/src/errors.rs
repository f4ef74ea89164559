//! Exceptions, with what they know as attributes.

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use structured_output as so;

create_exception!(
    formwork.grammar,
    CompileError,
    PyValueError,
    "A grammar that can't be compiled.\n\n\
     Attributes, None where they don't apply: kind (a short name of the cause), message, pointer (JSON \
     pointer), line and column (from 1), offset (in bytes), option, limit and max (the limit's name and \
     value)."
);
create_exception!(
    formwork.grammar,
    MatcherError,
    PyRuntimeError,
    "A matcher that can't answer: a limit was met. The matcher is as it was.\n\n\
     Attributes: kind, limit and max (None where they don't apply)."
);

const ATTRIBUTES: [&str; 9] = [
    "kind", "message", "pointer", "line", "column", "offset", "option", "limit", "max",
];

/// The exception of a compilation that failed.
pub(crate) fn compile_error(py: Python<'_>, error: &so::CompileError) -> PyErr {
    use so::CompileError as E;
    let exception = CompileError::new_err(error.to_string());
    let value = exception.value(py);
    let set = || -> PyResult<()> {
        for name in ATTRIBUTES {
            value.setattr(name, py.None())?;
        }
        let place = |message: &str, offset: usize, line: usize, column: usize| -> PyResult<()> {
            value.setattr("message", message)?;
            value.setattr("offset", offset)?;
            value.setattr("line", line)?;
            value.setattr("column", column)
        };
        let kind = match error {
            E::Regex {
                message,
                offset,
                line,
                column,
            } => {
                place(message, *offset, *line, *column)?;
                "regex"
            }
            E::JsonSyntax {
                message,
                offset,
                line,
                column,
            } => {
                place(message, *offset, *line, *column)?;
                "json_syntax"
            }
            E::Grammar {
                message,
                offset,
                line,
                column,
            } => {
                place(message, *offset, *line, *column)?;
                "grammar"
            }
            E::JsonSchema { pointer, message } => {
                value.setattr("pointer", pointer)?;
                value.setattr("message", message)?;
                "json_schema"
            }
            E::StructuralTag { pointer, message } => {
                value.setattr("pointer", pointer)?;
                value.setattr("message", message)?;
                "structural_tag"
            }
            E::InvalidOption { option, message } => {
                value.setattr("option", option)?;
                value.setattr("message", message)?;
                "option"
            }
            E::NoValue { pointer } => {
                value.setattr("pointer", pointer)?;
                "no_value"
            }
            E::LimitExceeded { limit, max, place } => {
                value.setattr("limit", limit)?;
                value.setattr("max", max)?;
                value.setattr("message", place)?;
                "limit"
            }
            E::EmptyChoice => "empty_choice",
            E::Unsatisfiable => "unsatisfiable",
            E::NotWritable => "not_writable",
            E::Cancelled => "cancelled",
            _ => "other",
        };
        if value.getattr("message")?.is_none() || kind == "limit" {
            value.setattr("message", error.to_string())?;
        }
        value.setattr("kind", kind)
    };
    set().err().unwrap_or(exception)
}

/// The exception of a matcher's call that failed.
pub(crate) fn matcher_error(py: Python<'_>, error: &so::MatcherError) -> PyErr {
    use so::MatcherError as E;
    let (kind, limit, max) = match *error {
        E::StepsExhausted { max } => ("steps", Some("max_mask_steps"), Some(max)),
        E::BytesExhausted { max } => ("bytes", Some("max_bytes"), Some(max as u64)),
        E::ItemsExhausted { max } => ("items", Some("max_items"), Some(max as u64)),
        E::StatesExhausted { max } => ("states", Some("cache_bytes"), Some(max as u64)),
        E::CannotCompleteWithin { needed, .. } => ("within", None, Some(needed.into())),
        E::RollbackTooFar { accepted, .. } => ("rollback", None, Some(accepted as u64)),
        E::AllowanceSpent => ("allowance", None, None),
        _ => ("other", None, None),
    };
    let exception = MatcherError::new_err(error.to_string());
    let value = exception.value(py);
    let set = || -> PyResult<()> {
        value.setattr("kind", kind)?;
        value.setattr("limit", limit)?;
        value.setattr("max", max)
    };
    set().err().unwrap_or(exception)
}
