//! Products of rows in wide groups with a [`GroupedMatrix`].

use std::ops::Range;

use super::grouped::{GroupedMatrix, HEADER, SCALES, WIDE_GROUP_BYTES};
use super::integer::IntegerSimd;
use super::integer_product::{IntegerProduct, multiply_rows};
use super::panels::{PanelKernel, Part};
use super::prefetch::{Prefetch, RowBlock};
use super::simd::{LANES, SimdLevel};
use super::wide::{HEADERS_AHEAD, STEP};
use super::wide_rows::{WideRowGroup, num_wide_groups};
use crate::model_executor::wide_quantization::{FACTOR_GROUP, WIDE_GROUP};

/// Depth that the sums of activations are kept for.
const PART: usize = FACTOR_GROUP;

/// Bytes of 32 outputs in a part.
const PART_BYTES: usize = WIDE_GROUP_BYTES / (WIDE_GROUP / PART);

/// Products with a matrix.
pub(crate) struct GroupedKernel<'a> {
    pub(crate) matrix: &'a GroupedMatrix,
    pub(crate) level: SimdLevel,
}

impl PanelKernel for GroupedKernel<'_> {
    type Input = WideRowGroup;

    fn out_features(&self) -> usize {
        self.matrix.out_features()
    }
    fn depth(&self) -> usize {
        num_wide_groups(self.matrix.in_features())
    }
    fn work_per_output(&self) -> usize {
        // A quarter of what f32 takes, where there are instructions for bytes.
        self.matrix.in_features() / 2
    }
    fn depth_block(&self, _rows: usize) -> usize {
        16 * 1024 / WIDE_GROUP_BYTES
    }
    fn row_block(&self) -> usize {
        96
    }
    fn bias(&self) -> &[f32] {
        self.matrix.bias()
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<WideRowGroup>) {
        let product = Headed {
            matrix: self.matrix,
            headers: self.matrix.headers(panel, part.first).as_ptr(),
        };
        let values = self.matrix.values(panel, part.first).as_ptr();
        // SAFETY: the caller vouches for rows, results, columns and groups.
        unsafe { multiply_rows(&product, self.level, values, col, wide, part) }
    }
}

/// The product with a part of a panel.
struct Headed<'a> {
    matrix: &'a GroupedMatrix,
    /// Of the groups that are multiplied.
    headers: *const u8,
}

/// Every element of `c` is one chain of multiply-adds in ascending groups, whatever `ROWS` and `VECS` are. The
/// products inside a group less those with its zero are a whole number below 2^24, which f32 has exactly.
impl IntegerProduct for Headed<'_> {
    type Input = WideRowGroup;

    const DEPTH_BYTES: usize = WIDE_GROUP_BYTES;
    const ROWS_AVX512: usize = 6;
    const ROWS_NEON: usize = 2;

    #[inline(always)]
    unsafe fn multiply<S: IntegerSimd, const ROWS: usize, const VECS: usize>(
        &self,
        values: *const u8,
        col: usize,
        part: &Part<WideRowGroup>,
        block: RowBlock,
    ) {
        let (row, mut prefetch) = (block.first, block.prefetch);
        let (in_features, group) = (self.matrix.in_features(), self.matrix.group());
        let (parts_per_group, groups) = (group / PART, WIDE_GROUP / group);
        // SAFETY: all accesses lie within what the caller of `multiply_rows` vouches for.
        unsafe {
            let x = part.x.add(row * part.x_stride);
            let mut totals = part.initial_sums::<S, ROWS, VECS>(row);
            for index in 0..part.depth {
                let rest = in_features - (part.first + index) * WIDE_GROUP;
                // Units are whole, so a panel has what a last part lacks.
                let num_parts = rest.min(WIDE_GROUP).div_ceil(PART);
                let x = |row: usize| x.add(row * part.x_stride + index);
                for first in (0..num_parts).step_by(parts_per_group) {
                    let header = self
                        .headers
                        .add((index * groups + first / parts_per_group) * HEADER);
                    for line in (0..HEADER).step_by(64) {
                        S::prefetch(header.wrapping_add(HEADERS_AHEAD * HEADER + line));
                    }
                    let parts = first..num_parts.min(first + parts_per_group);
                    let weights = values.add(index * WIDE_GROUP_BYTES);
                    // Here and not within their loops, of which there are so two.
                    let (sums, x_sums) = match prefetch.is_by_line() {
                        true => sums_of_parts::<S, ROWS, VECS, true>(
                            weights,
                            col,
                            parts,
                            &x,
                            &mut prefetch,
                        ),
                        false => sums_of_parts::<S, ROWS, VECS, false>(
                            weights,
                            col,
                            parts,
                            &x,
                            &mut prefetch,
                        ),
                    };
                    for vec in 0..VECS {
                        let col = col + vec * LANES;
                        let scale = S::load_f16(header.add(2 * col).cast());
                        // 0..=15, so a signed byte has it.
                        let zero = S::load_i8(header.add(SCALES + col).cast());
                        for (row, totals) in totals.iter_mut().enumerate() {
                            let less = S::splat(-x_sums[row] as f32);
                            let sum = S::fma(zero, less, S::sums_to_f32(sums[row][vec]));
                            let scale = S::mul(scale, S::splat((*x(row)).scale));
                            totals[vec] = S::fma(sum, scale, totals[vec]);
                        }
                    }
                }
            }
            part.store_sums::<S, ROWS, VECS>(row, &totals);
        }
    }
}

/// The sums over the products of some parts of 32 of a wide group's depth, and over each row's values in
/// them. With `BY_LINE` the lines that follow are asked for one by one.
///
/// # Safety
/// As [`IntegerProduct::multiply`]: `weights` must hold the parts, `x` be valid for all rows.
#[inline(always)]
unsafe fn sums_of_parts<
    S: IntegerSimd,
    const ROWS: usize,
    const VECS: usize,
    const BY_LINE: bool,
>(
    weights: *const u8,
    col: usize,
    parts: Range<usize>,
    x: &impl Fn(usize) -> *const WideRowGroup,
    prefetch: &mut Prefetch,
) -> ([[S::Sums; VECS]; ROWS], [i32; ROWS]) {
    // SAFETY: the caller vouches for the level, the parts and the rows.
    unsafe {
        let mut sums = [[S::splat_sums(0); VECS]; ROWS];
        let mut x_sums = [0i32; ROWS];
        for part in parts {
            let values = weights.add(part * PART_BYTES);
            if !BY_LINE {
                prefetch.step::<S>(values, PART_BYTES);
            }
            for (row, sum) in x_sums.iter_mut().enumerate() {
                *sum += i32::from((*x(row)).part_sums[part]);
            }
            for four in 0..PART / 8 {
                let at = values.add(four * 2 * STEP + col * 4);
                let mut bytes = [S::load_nibbles(at); VECS];
                for (vec, bytes) in bytes.iter_mut().enumerate().skip(1) {
                    *bytes = S::load_nibbles(at.add(vec * STEP));
                }
                if BY_LINE {
                    for vec in 0..VECS {
                        Prefetch::line::<S>(at.add(vec * STEP));
                    }
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = (&raw const (*x(row)).values).cast::<i8>().add(part * PART);
                    let lower = S::splat_factors(x.add(4 * four));
                    for (sum, bytes) in sums.iter_mut().zip(bytes) {
                        *sum = S::dot(*sum, bytes.0, lower);
                    }
                    let upper = S::splat_factors(x.add(4 * four + PART / 2));
                    for (sum, bytes) in sums.iter_mut().zip(bytes) {
                        *sum = S::dot(*sum, bytes.1, upper);
                    }
                }
            }
        }
        (sums, x_sums)
    }
}
