//! From stored rows to panels: what the packing of all formats shares.

use super::buffer::{Buffer, Element, SharedMut};
use super::panels::PANEL_WIDTH;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::mapped::Advice;
use crate::model_executor::weights::StoredTensor;

/// Stored bytes that are packed before their pages are given back: what loading takes beside the
/// weights.
const BYTES_AT_A_TIME: usize = 32 << 20;

/// Makes panels of `panel_len` elements, zeros but for what `fill(panel, elements)` writes, for
/// stacked tensors.
///
/// Reads the tensors' pages ahead and gives them back, so that a file is never in this process's
/// memory as a whole.
pub(crate) fn pack_panels<T: Element>(
    pool: &ComputePool,
    parts: &[StoredTensor<'_>],
    panel_len: usize,
    fill: &(dyn Fn(usize, &mut [T]) + Sync),
) -> Result<Buffer<T>, ModelError> {
    pack_panels_and_headers(pool, parts, panel_len, 0, &|panel, elements, _| {
        fill(panel, elements);
    })
}

/// Writes a panel and its header.
type Fill<'a, T> = dyn Fn(usize, &mut [T], &mut [T]) + Sync + 'a;

/// The same with a header of `header_len` elements for each panel, `fill(panel, elements, header)`; all
/// headers follow all panels.
pub(crate) fn pack_panels_and_headers<T: Element>(
    pool: &ComputePool,
    parts: &[StoredTensor<'_>],
    panel_len: usize,
    header_len: usize,
    fill: &Fill<'_, T>,
) -> Result<Buffer<T>, ModelError> {
    let rows: usize = parts.iter().map(StoredTensor::rows).sum();
    let bytes: usize = parts.iter().map(StoredTensor::num_bytes).sum();
    let num_panels = rows.div_ceil(PANEL_WIDTH);
    let mut panels = Buffer::zeroed("weights", num_panels * (panel_len + header_len))?;
    let panel_bytes = (bytes / num_panels.max(1)).max(1);
    let panels_at_a_time = (BYTES_AT_A_TIME / panel_bytes).max(1);
    let advise = |first: usize, advice: Advice| {
        let mut rows = first * PANEL_WIDTH..(first + panels_at_a_time) * PANEL_WIDTH;
        for part in parts {
            part.advise(rows.clone(), advice);
            rows.start = rows.start.saturating_sub(part.rows());
            rows.end = rows.end.saturating_sub(part.rows());
        }
    };
    let to = SharedMut::new(&mut panels);
    advise(0, Advice::WillNeed);
    for first in (0..num_panels).step_by(panels_at_a_time) {
        advise(first + panels_at_a_time, Advice::WillNeed);
        let count = (num_panels - first).min(panels_at_a_time);
        pool.run(count, &|tile, _| {
            let panel = first + tile;
            let header = num_panels * panel_len + panel * header_len;
            // SAFETY: each panel and its header belong to one tile, and no two overlap.
            let (elements, header) = unsafe {
                let elements = to.ptr(panel * panel_len, panel_len);
                let header = to.ptr(header, header_len);
                (
                    std::slice::from_raw_parts_mut(elements, panel_len),
                    std::slice::from_raw_parts_mut(header, header_len),
                )
            };
            fill(panel, elements, header);
        })?;
        advise(first, Advice::DontNeed);
    }
    Ok(panels)
}

/// Calls `each(column of the panel, tensor, its row)` for the rows that a panel holds of stacked
/// tensors.
pub(crate) fn for_each_row_of_panel<'a, 'b>(
    parts: &'b [StoredTensor<'a>],
    panel: usize,
    mut each: impl FnMut(usize, &'b StoredTensor<'a>, usize),
) {
    for col in 0..PANEL_WIDTH {
        let mut row = panel * PANEL_WIDTH + col;
        for part in parts {
            if row < part.rows() {
                each(col, part, row);
                break;
            }
            row -= part.rows();
        }
    }
}

/// A bias for whole panels; zeros where there is none.
pub(crate) fn padded_bias(
    out_features: usize,
    bias: Option<&[f32]>,
) -> Result<Buffer<f32>, ModelError> {
    let Some(bias) = bias else {
        return Buffer::zeroed("biases", 0);
    };
    let mut padded = Buffer::zeroed("biases", out_features.next_multiple_of(PANEL_WIDTH))?;
    padded[..bias.len()].copy_from_slice(bias);
    Ok(padded)
}

/// Words that are taken of a row at a time: at least half a line of the first cache.
const LINE: usize = 16;

/// Puts the words of `WORD` bytes of up to 32 rows side by side: `to[w][col] = rows[col][w]`.
///
/// A line of each row at a time: rows are often a power of two apart, and lines at such distances
/// compete for the same places of the cache.
pub(crate) fn interleave_words<const WORD: usize>(rows: &[&[u8]], to: &mut [u8]) {
    let to: &mut [[u8; WORD]] = to.as_chunks_mut().0;
    let mut lines = [[[0; WORD]; LINE]; PANEL_WIDTH];
    for (block, to) in to.chunks_mut(LINE * PANEL_WIDTH).enumerate() {
        for (line, row) in lines.iter_mut().zip(rows) {
            let words = row.as_chunks().0.get(block * LINE..).unwrap_or(&[]);
            match words.first_chunk() {
                Some(whole) => *line = *whole,
                None => line[..words.len()].copy_from_slice(words),
            }
        }
        for (word, to) in to.as_chunks_mut::<PANEL_WIDTH>().0.iter_mut().enumerate() {
            for (to, line) in to.iter_mut().zip(&lines) {
                *to = line[word % LINE];
            }
        }
    }
}
