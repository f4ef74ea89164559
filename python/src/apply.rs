//! Masks over logits in the host's memory.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use structured_output as so;

use crate::memory::{Element, bitmask_of, logits_of};

/// Sets logits to minus infinity whose bit is 0.
///
/// Args:
///     logits: `[width]` or `[batch, width]` of float32, float16, bfloat16 or float64 on the CPU.
///     bitmask: `[words]` or `[batch, words]` of int32 on the CPU.
///     indices: the rows to mask, of both; all by default.
///
/// Raises:
///     TypeError, ValueError: wrong type, shape or device.
///     IndexError: a row that is not there.
#[pyfunction]
#[pyo3(signature = (logits, bitmask, indices=None))]
pub(crate) fn apply_token_bitmask_inplace(
    py: Python<'_>,
    logits: &Bound<'_, PyAny>,
    bitmask: &Bound<'_, PyAny>,
    indices: Option<Vec<usize>>,
) -> PyResult<()> {
    let (logits, bitmask) = (logits_of(logits)?, bitmask_of(bitmask, false)?);
    let rows: Vec<usize> = match indices {
        Some(indices) => indices,
        None if logits.rows == bitmask.rows => (0..logits.rows).collect(),
        None => {
            return Err(PyValueError::new_err(format!(
                "logits have {} rows and bitmask {}: they must have as many, or indices must name them",
                logits.rows, bitmask.rows
            )));
        }
    };
    for &row in &rows {
        logits.check_row(row, "logits")?;
        bitmask.check_row(row, "bitmask")?;
    }
    py.detach(|| {
        for row in rows {
            // SAFETY: rows and types were checked; the caller holds both objects.
            unsafe {
                let mask = bitmask.row::<u32>(row);
                match logits.element {
                    Element::Float32 => so::apply_token_bitmask_inplace(logits.row(row), mask),
                    Element::Float64 => {
                        mask_row(logits.row::<u64>(row), mask, f64::NEG_INFINITY.to_bits())
                    }
                    Element::Float16 => mask_row(logits.row::<u16>(row), mask, 0xfc00),
                    Element::BFloat16 => mask_row(logits.row::<u16>(row), mask, 0xff80),
                    Element::Int32 => {}
                }
            }
        }
    });
    Ok(())
}

/// The same for elements by their bits.
fn mask_row<T: Copy>(logits: &mut [T], mask: &[u32], minus_infinity: T) {
    for (at, logit) in logits.iter_mut().enumerate() {
        let word = mask.get(at / so::BITS_PER_WORD).copied().unwrap_or(0);
        if word >> (at % so::BITS_PER_WORD) & 1 == 0 {
            *logit = minus_infinity;
        }
    }
}
