//! What attention gathers of a context, or of a part of it: by row the weighted sum of values, the sum of
//! weights and the largest score.

use super::attention_tile::Context;
use super::format::Format;
use super::online_softmax::{merge_row, weighted_means};
use super::simd::{LANES, SimdLevel};
use crate::model_executor::backend::AttentionShape;

/// What rows have gathered of their context, in memory of someone else.
#[derive(Clone, Copy)]
pub(crate) struct SoftmaxSums {
    /// Weighted sums of values `[rows, value_width]`.
    pub(super) values: *mut f32,
    /// Sums of weights `[rows, 16]`, by lane.
    pub(super) weights: *mut f32,
    /// Running maxima `[rows]`.
    pub(super) maxima: *mut f32,
    pub(super) value_width: usize,
}

/// Where the parts of [`SoftmaxSums`] stand.
#[derive(Clone, Copy)]
pub(crate) struct SumsLayout {
    rows: usize,
    value_width: usize,
}

impl SumsLayout {
    /// Values of memory, whole lines, so that threads don't share one.
    pub(crate) fn len(self) -> usize {
        (self.rows * (self.value_width + LANES + 1)).next_multiple_of(LANES)
    }

    /// Sums in the memory from `start` on.
    pub(crate) fn at(self, start: *mut f32) -> SoftmaxSums {
        let weights = start.wrapping_add(self.rows * self.value_width);
        SoftmaxSums {
            values: start,
            weights,
            maxima: weights.wrapping_add(self.rows * LANES),
            value_width: self.value_width,
        }
    }
}

impl SoftmaxSums {
    /// The memory that sums of `rows` rows take.
    pub(crate) fn layout(shape: AttentionShape, rows: usize) -> SumsLayout {
        SumsLayout {
            rows,
            value_width: shape.head_dim.next_multiple_of(LANES),
        }
    }

    /// Nothing gathered.
    ///
    /// # Safety
    /// The memory must be this thread's, for `rows` rows.
    pub(super) unsafe fn clear(self, rows: usize) {
        // SAFETY: the caller vouches for the rows.
        unsafe {
            std::ptr::write_bytes(self.values, 0, rows * self.value_width);
            std::ptr::write_bytes(self.weights, 0, rows * LANES);
            std::slice::from_raw_parts_mut(self.maxima, rows).fill(f32::NEG_INFINITY);
        }
    }

    /// Adds what `part` has gathered of the positions that follow.
    ///
    /// # Safety
    /// The processor must have `level`; both must be this thread's, for `rows` rows.
    pub(crate) unsafe fn add(self, level: SimdLevel, rows: usize, part: Self) {
        for row in 0..rows {
            // SAFETY: the caller vouches for the rows.
            unsafe {
                merge_row(
                    level,
                    self.maxima.add(row),
                    self.weights.add(row * LANES),
                    self.values.add(row * self.value_width),
                    part.maxima.add(row),
                    part.weights.add(row * LANES),
                    part.values.add(row * self.value_width),
                    self.value_width,
                );
            }
        }
    }

    /// Writes the weighted means of a tile's values.
    ///
    /// # Safety
    /// The processor must have `level`. The sums must be this thread's, and `out` valid for the tile's rows
    /// of `group * head_dim` values.
    pub(crate) unsafe fn finish<F: Format>(
        self,
        level: SimdLevel,
        context: &Context<'_, F>,
        out: *mut f32,
        out_stride: usize,
    ) {
        let (group, head_dim) = (context.shape.group(), context.shape.head_dim);
        for token in 0..context.tile.num_tokens {
            let first = token * group;
            // SAFETY: the caller vouches for sums and outputs.
            unsafe {
                weighted_means(
                    level,
                    self.weights.add(first * LANES),
                    self.values.add(first * self.value_width),
                    self.value_width,
                    group,
                    out.add(token * out_stride),
                    head_dim,
                );
            }
        }
    }
}
