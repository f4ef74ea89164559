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

/// The exception of a compilation that failed.
pub(crate) fn compile_error(py: Python<'_>, error: &so::CompileError) -> PyErr {
    let exception = CompileError::new_err(error.to_string());
    let value = exception.value(py);
    let set = || -> PyResult<()> {
        let problem = error.problem();
        let (mut pointer, mut line_column) = (None, None);
        match problem.place.and_then(|place| place.position) {
            Some(so::ProblemPosition::Pointer(at)) => pointer = Some(at),
            Some(so::ProblemPosition::LineColumn { line, column }) => {
                line_column = Some((line, column));
            }
            None => {}
        }
        value.setattr("kind", problem.kind)?;
        value.setattr("message", problem.message)?;
        value.setattr("pointer", pointer)?;
        value.setattr("line", line_column.map(|(line, _)| line))?;
        value.setattr("column", line_column.map(|(_, column)| column))?;
        value.setattr("offset", problem.offset)?;
        value.setattr("option", problem.option)?;
        value.setattr("limit", problem.limit.map(|(name, _)| name))?;
        value.setattr("max", problem.limit.map(|(_, max)| max))
    };
    set().err().unwrap_or(exception)
}

/// The exception of a matcher's call that failed.
pub(crate) fn matcher_error(py: Python<'_>, error: &so::MatcherError) -> PyErr {
    use so::MatcherError as E;
    let (kind, bound) = match *error {
        E::StepsExhausted { .. } => ("steps", None),
        E::BytesExhausted { .. } => ("bytes", None),
        E::ItemsExhausted { .. } => ("items", None),
        E::StatesExhausted { .. } => ("states", None),
        E::CannotCompleteWithin { needed, .. } => ("within", Some(needed.into())),
        E::RollbackTooFar { accepted, .. } => ("rollback", Some(accepted as u64)),
        E::AllowanceSpent => ("allowance", None),
        _ => ("other", None),
    };
    let (limit, max) = match error.limit() {
        Some((name, max)) => (Some(name), Some(max)),
        None => (None, bound),
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
