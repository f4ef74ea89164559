//! Products with bfloat16 matrices where the processor multiplies bfloat16 itself (AVX512-BF16).
//!
//! Activations are rounded to bfloat16 for it, to pairs of neighbours in depth. A panel holds its
//! values in such pairs already.

use std::arch::x86_64::*;

use super::dense::DenseMatrix;
use super::format::Bf16;
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::prefetch::{RowBlock, row_blocks};
use super::simd::{LANES, SimdLevel};
use super::simd_x86::Avx512;

/// Pairs in a row of `width` values; the last is filled with a zero.
pub(crate) fn num_pairs(width: usize) -> usize {
    width.div_ceil(2)
}

/// Rounds a row to pairs of bfloat16, ties to even.
///
/// # Safety
/// The processor must have [`SimdLevel::Avx512Bf16`]. `x` must be valid for `width` values, `out`
/// for their pairs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(crate) unsafe fn round_row(x: *const f32, width: usize, out: *mut u32) {
    // SAFETY: whole vectors lie within the row; the rest goes by way of one that does.
    unsafe {
        let round = |from: *const f32| -> __m256i {
            let rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from));
            std::mem::transmute::<__m256bh, __m256i>(rounded)
        };
        let whole = width - width % LANES;
        for at in (0..whole).step_by(LANES) {
            _mm256_storeu_si256(out.add(at / 2).cast(), round(x.add(at)));
        }
        if whole < width {
            let mut values = [0.0f32; LANES];
            std::ptr::copy_nonoverlapping(x.add(whole), values.as_mut_ptr(), width - whole);
            let mut pairs = [0u32; LANES / 2];
            _mm256_storeu_si256(pairs.as_mut_ptr().cast(), round(values.as_ptr()));
            let rest = num_pairs(width - whole);
            std::ptr::copy_nonoverlapping(pairs.as_ptr(), out.add(whole / 2), rest);
        }
    }
}

/// Products of pairs of bfloat16 with a matrix. Needs [`SimdLevel::Avx512Bf16`].
pub(crate) struct Bf16DotKernel<'a> {
    matrix: &'a DenseMatrix<Bf16>,
}

impl<'a> Bf16DotKernel<'a> {
    /// `None` below the level that has the instructions.
    pub(crate) fn new(matrix: &'a DenseMatrix<Bf16>, level: SimdLevel) -> Option<Self> {
        level.has_bf16_dot().then_some(Self { matrix })
    }
}

/// Most rows of one block: 24 sums, two vectors of weights and a factor are in registers.
const MAX_ROWS: usize = 12;

impl PanelKernel for Bf16DotKernel<'_> {
    type Input = u32;

    fn out_features(&self) -> usize {
        self.matrix.out_features()
    }
    fn depth(&self) -> usize {
        num_pairs(self.matrix.in_features())
    }
    fn work_per_output(&self) -> usize {
        self.matrix.in_features()
    }
    fn depth_block(&self, _rows: usize) -> usize {
        128
    }
    fn bias(&self) -> &[f32] {
        self.matrix.bias()
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<u32>) {
        let panel = &self.matrix.panel(panel)[part.first * 2 * PANEL_WIDTH + 2 * col..];
        macro_rules! multiply_block {
            ($block:ident, [$($n:literal),*]) => {
                match ($block.count, wide) {
                    $(($n, true) => multiply::<$n, 2>(panel.as_ptr(), part, $block),
                    ($n, false) => multiply::<$n, 1>(panel.as_ptr(), part, $block),)*
                    _ => unreachable!("a block has at most {MAX_ROWS} rows"),
                }
            };
        }
        let part_bytes = wide.then_some(part.depth * 4 * PANEL_WIDTH);
        for block in row_blocks(part.rows, MAX_ROWS, part_bytes) {
            // SAFETY: the rows are among those that the caller vouches for; the level was checked
            // in `new`.
            unsafe { multiply_block!(block, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]) };
        }
    }
}

/// The product for the `ROWS` rows of a block and `VECS * 16` columns: one chain of additions per
/// element in ascending pairs.
///
/// # Safety
/// As [`PanelKernel::multiply`]; `panel` must hold the depth of `part` from its first column on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn multiply<const ROWS: usize, const VECS: usize>(
    panel: *const u16,
    part: &Part<u32>,
    block: RowBlock,
) {
    let (row, mut prefetch) = (block.first, block.prefetch);
    // SAFETY: all accesses lie within what the caller vouches for; a prefetch may lie anywhere.
    unsafe {
        let as_pairs = |bits: __m512i| std::mem::transmute::<__m512i, __m512bh>(bits);
        let x = part.x.add(row * part.x_stride);
        let mut sums = part.initial_sums::<Avx512, ROWS, VECS>(row);
        for pair in 0..part.depth {
            let at = panel.add(pair * 2 * PANEL_WIDTH);
            prefetch.step::<Avx512>(at.cast(), 4 * PANEL_WIDTH);
            let mut weights = [as_pairs(_mm512_setzero_si512()); VECS];
            for (vec, weights) in weights.iter_mut().enumerate() {
                *weights = as_pairs(_mm512_loadu_si512(at.add(vec * 2 * LANES).cast()));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = *x.add(row * part.x_stride + pair);
                let factor = as_pairs(_mm512_set1_epi32(factor as i32));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbf16_ps(*sum, factor, weights);
                }
            }
        }
        part.store_sums::<Avx512, ROWS, VECS>(row, &sums);
    }
}
