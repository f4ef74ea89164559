//! Outputs as the dataclasses of `formwork.outputs`.

use engine_frontend::{CompletionOutput, PositionLogprobs, RequestOutput, StopReason};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

/// The classes that outputs are made of.
struct Classes {
    request_output: Py<PyAny>,
    completion_output: Py<PyAny>,
    logprob: Py<PyAny>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    CLASSES.get_or_try_init(py, || {
        let module = py.import("formwork.outputs")?;
        Ok(Classes {
            request_output: module.getattr("RequestOutput")?.unbind(),
            completion_output: module.getattr("CompletionOutput")?.unbind(),
            logprob: module.getattr("Logprob")?.unbind(),
        })
    })
}

/// A `formwork.outputs.RequestOutput`.
pub(crate) fn request_output(py: Python<'_>, output: RequestOutput) -> PyResult<Py<PyAny>> {
    let classes = classes(py)?;
    let prompt_logprobs = match output.prompt_logprobs.as_deref() {
        Some(positions) => {
            let list = PyList::empty(py);
            for position in positions {
                match position {
                    Some(position) => list.append(logprobs_of(py, classes, position)?)?,
                    None => list.append(py.None())?,
                }
            }
            list.into_any()
        }
        None => py.None().into_bound(py),
    };
    let outputs = PyList::empty(py);
    for completion in output.outputs {
        outputs.append(completion_output(py, classes, completion)?)?;
    }
    let fields = (
        output.request_id,
        output.prompt.as_deref(),
        PyList::new(py, output.prompt_token_ids.iter())?,
        prompt_logprobs,
        outputs,
        output.finished,
        output.num_cached_tokens,
    );
    classes.request_output.call1(py, fields)
}

fn completion_output<'py>(
    py: Python<'py>,
    classes: &Classes,
    output: CompletionOutput,
) -> PyResult<Bound<'py, PyAny>> {
    let logprobs = match &output.logprobs {
        Some(positions) => {
            let list = PyList::empty(py);
            for position in positions {
                list.append(logprobs_of(py, classes, position)?)?;
            }
            list.into_any()
        }
        None => py.None().into_bound(py),
    };
    let stop_reason = match output.stop_reason {
        Some(StopReason::TokenId(id)) => id.into_pyobject(py)?.into_any(),
        Some(StopReason::String(text)) => text.into_pyobject(py)?.into_any(),
        None => py.None().into_bound(py),
    };
    let fields = (
        output.index,
        output.text,
        PyList::new(py, output.token_ids)?,
        output.cumulative_logprob,
        logprobs,
        output.finish_reason.map(|reason| reason.as_str()),
        stop_reason,
        output.structured_output_complete,
        output.structured_output_completed_by_budget,
    );
    classes.completion_output.bind(py).call1(fields)
}

/// One position's logprobs by token id, the chosen token's first.
fn logprobs_of<'py>(
    py: Python<'py>,
    classes: &Classes,
    position: &PositionLogprobs,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for token in position {
        let text = token.decoded_token();
        let fields: Bound<'_, PyTuple> =
            (f64::from(token.logprob), token.rank, &*text).into_pyobject(py)?;
        dict.set_item(token.token_id, classes.logprob.bind(py).call1(fields)?)?;
    }
    Ok(dict)
}
