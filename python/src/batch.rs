//! Many matchers in one call, without the GIL.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::matcher::GrammarMatcher;
use crate::memory::bitmask_of;

/// Writes the masks of many matchers, as `GrammarMatcher.fill_next_token_bitmask` does, without the GIL.
///
/// Args:
///     matchers: one for each row.
///     bitmask: `[rows, words]` of int32 on the CPU.
///     indices: the row of each matcher, different ones; by default 0, 1, 2 and so on.
///
/// Returns:
///     For each matcher False where every token is allowed.
///
/// Raises:
///     TypeError, ValueError, IndexError: a wrong argument; nothing was written.
///     MatcherError: a limit; rows before that matcher's are written.
#[pyfunction]
#[pyo3(signature = (matchers, bitmask, indices=None))]
pub(crate) fn fill_next_token_bitmask_batch(
    py: Python<'_>,
    matchers: Vec<Py<GrammarMatcher>>,
    bitmask: &Bound<'_, PyAny>,
    indices: Option<Vec<usize>>,
) -> PyResult<Vec<bool>> {
    let matrix = bitmask_of(bitmask, true)?;
    let indices = indices.unwrap_or_else(|| (0..matchers.len()).collect());
    if indices.len() != matchers.len() {
        return Err(PyValueError::new_err(format!(
            "indices has {} rows for {} matchers: it must have one for each",
            indices.len(),
            matchers.len()
        )));
    }
    let mut sorted = indices.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(PyValueError::new_err(format!(
            "indices names row {} twice",
            pair[0]
        )));
    }
    for (matcher, &index) in matchers.iter().zip(&indices) {
        matcher.get().check_process()?;
        matcher.get().check_row(&matrix, index)?;
    }
    let matchers: Vec<&GrammarMatcher> = matchers.iter().map(Py::get).collect();
    let fill = || {
        let rows = matchers.iter().zip(&indices);
        rows.map(|(matcher, &index)| matcher.fill_detached(matrix, index))
            .collect::<Result<Vec<bool>, _>>()
    };
    py.detach(fill)
        .map_err(|unfilled| unfilled.into_exception(py))
}

/// Accepts a token by each matcher, as `GrammarMatcher.accept_token` does.
///
/// Raises:
///     ValueError: not as many tokens as matchers; nothing was accepted.
///     IndexError, MatcherError: at one matcher; those before it have accepted theirs.
#[pyfunction]
pub(crate) fn accept_token_batch(
    py: Python<'_>,
    matchers: Vec<Py<GrammarMatcher>>,
    token_ids: Vec<i64>,
) -> PyResult<Vec<bool>> {
    if matchers.len() != token_ids.len() {
        return Err(PyValueError::new_err(format!(
            "token_ids has {} for {} matchers: it must have one for each",
            token_ids.len(),
            matchers.len()
        )));
    }
    let each = matchers.iter().zip(token_ids);
    each.map(|(matcher, token_id)| matcher.get().accept_token(py, token_id))
        .collect()
}
