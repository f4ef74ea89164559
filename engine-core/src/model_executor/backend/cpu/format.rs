//! How numbers stand in a panel: a matrix `[depth, width]` whose rows are read one after the
//! other, 16 columns at a time.

use half::bf16;

use super::buffer::Element;
use super::simd::{LANES, Simd};

/// A number format of weights and KV cache, and its layout in a panel.
pub(crate) trait Format: Send + Sync + 'static {
    /// What is stored.
    type Element: Element;

    /// Rounds to the format.
    fn from_f32(value: f32) -> Self::Element;

    /// Widens; exact.
    fn to_f32(value: Self::Element) -> f32;

    /// Elements of a panel.
    fn panel_len(depth: usize, width: usize) -> usize;

    /// Where row `row` and column `col` of a panel stands.
    fn index(row: usize, col: usize, width: usize) -> usize;

    /// Columns `col..col + 16` of the rows `row` and `row + 1`, `row` being even. Where the
    /// panel ends after `row`, use [`Self::load_row`].
    ///
    /// # Safety
    /// As for [`Simd`]; the panel must hold these rows and columns.
    unsafe fn load_rows<S: Simd>(
        panel: *const Self::Element,
        row: usize,
        col: usize,
        width: usize,
    ) -> (S::V, S::V);

    /// Columns `col..col + 16` of row `row`, which is even.
    ///
    /// # Safety
    /// As for [`Self::load_rows`].
    unsafe fn load_row<S: Simd>(
        panel: *const Self::Element,
        row: usize,
        col: usize,
        width: usize,
    ) -> S::V;
}

/// Plain f32, row by row.
pub(crate) struct F32;

impl Format for F32 {
    type Element = f32;

    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn to_f32(value: f32) -> f32 {
        value
    }
    fn panel_len(depth: usize, width: usize) -> usize {
        depth * width
    }
    #[inline(always)]
    fn index(row: usize, col: usize, width: usize) -> usize {
        row * width + col
    }
    #[inline(always)]
    unsafe fn load_rows<S: Simd>(
        panel: *const f32,
        row: usize,
        col: usize,
        width: usize,
    ) -> (S::V, S::V) {
        // SAFETY: the caller vouches for both rows.
        unsafe {
            let first = panel.add(row * width + col);
            (S::load(first), S::load(first.add(width)))
        }
    }
    #[inline(always)]
    unsafe fn load_row<S: Simd>(
        panel: *const f32,
        row: usize,
        col: usize,
        width: usize,
    ) -> S::V {
        // SAFETY: the caller vouches for the row.
        unsafe { S::load(panel.add(row * width + col)) }
    }
}

/// bfloat16, two rows interleaved: a 32-bit word holds the same column of both. Widening such a
/// word takes a shift and a mask; it is also what processors with bfloat16 products read.
pub(crate) struct Bf16;

impl Format for Bf16 {
    type Element = u16;

    #[inline(always)]
    fn from_f32(value: f32) -> u16 {
        bf16::from_f32(value).to_bits()
    }
    #[inline(always)]
    fn to_f32(value: u16) -> f32 {
        bf16::from_bits(value).to_f32()
    }
    fn panel_len(depth: usize, width: usize) -> usize {
        depth.next_multiple_of(2) * width
    }
    #[inline(always)]
    fn index(row: usize, col: usize, width: usize) -> usize {
        (row / 2 * width + col) * 2 + row % 2
    }
    #[inline(always)]
    unsafe fn load_rows<S: Simd>(
        panel: *const u16,
        row: usize,
        col: usize,
        width: usize,
    ) -> (S::V, S::V) {
        // SAFETY: the caller vouches for both rows, which are 16 words from here on.
        unsafe { S::load_bf16_pairs(panel.add(row * width + col * 2)) }
    }
    #[inline(always)]
    unsafe fn load_row<S: Simd>(
        panel: *const u16,
        row: usize,
        col: usize,
        width: usize,
    ) -> S::V {
        // SAFETY: a panel of odd depth is padded to the next row.
        unsafe { S::load_bf16_pairs(panel.add(row * width + col * 2)).0 }
    }
}

/// Rows of `a` times a panel: `c[r, ..] = init[r, ..] + sum over p of a[r, p] * panel[p, ..]` for
/// `ROWS` rows and `VECS * 16` columns from `col` on.
///
/// Every element of `c` is one chain of multiply-adds in ascending `p`, whatever `ROWS` and
/// `VECS` are: this is what makes a row's result the same alone and in any batch.
///
/// # Safety
/// As for [`Simd`]; `a`, `init` and `c` must be valid for `ROWS` rows of `depth` or `VECS * 16`
/// values at their strides, `panel` for `depth` rows.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel takes pointers, strides and sizes")]
pub(crate) unsafe fn multiply<S: Simd, F: Format, const ROWS: usize, const VECS: usize>(
    a: *const f32,
    a_stride: usize,
    panel: *const F::Element,
    col: usize,
    width: usize,
    depth: usize,
    init: *const f32,
    init_stride: usize,
    c: *mut f32,
    c_stride: usize,
) {
    // SAFETY: all accesses lie within what the caller vouches for.
    unsafe {
        let mut sums = [[S::splat(0.0); VECS]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (vec, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(init.add(row * init_stride + vec * LANES));
            }
        }
        let even_depth = depth & !1;
        let mut p = 0;
        while p < even_depth {
            let mut first = [S::splat(0.0); VECS];
            let mut second = [S::splat(0.0); VECS];
            for vec in 0..VECS {
                (first[vec], second[vec]) =
                    F::load_rows::<S>(panel, p, col + vec * LANES, width);
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(*a.add(row * a_stride + p));
                for (sum, b) in sums.iter_mut().zip(first) {
                    *sum = S::fma(factor, b, *sum);
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(*a.add(row * a_stride + p + 1));
                for (sum, b) in sums.iter_mut().zip(second) {
                    *sum = S::fma(factor, b, *sum);
                }
            }
            p += 2;
        }
        if depth > even_depth {
            for vec in 0..VECS {
                let b = F::load_row::<S>(panel, p, col + vec * LANES, width);
                for (row, sums) in sums.iter_mut().enumerate() {
                    sums[vec] = S::fma(S::splat(*a.add(row * a_stride + p)), b, sums[vec]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (vec, sum) in sums.iter().enumerate() {
                S::store(c.add(row * c_stride + vec * LANES), *sum);
            }
        }
    }
}

/// Most rows of one [`multiply`].
pub(crate) const MAX_ROWS: usize = 12;

/// [`multiply`] for a number of rows known at run time, in blocks that fit the registers.
///
/// # Safety
/// As for [`multiply`], for `rows` rows and 32 (`wide`) or 16 columns.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel takes pointers, strides and sizes")]
pub(crate) unsafe fn multiply_rows<S: Simd, F: Format>(
    rows: usize,
    wide: bool,
    a: *const f32,
    a_stride: usize,
    panel: *const F::Element,
    col: usize,
    width: usize,
    depth: usize,
    init: *const f32,
    init_stride: usize,
    c: *mut f32,
    c_stride: usize,
) {
    macro_rules! block {
        ($vecs:literal, $row:expr, $col:expr, $count:expr, [$($n:literal),*]) => {
            match $count {
                $($n => multiply::<S, F, $n, $vecs>(
                    a.add($row * a_stride), a_stride, panel, col + $col, width, depth,
                    init.add($row * init_stride + $col), init_stride,
                    c.add($row * c_stride + $col), c_stride,
                ),)*
                _ => unreachable!("a block has at most {} rows", MAX_ROWS),
            }
        };
    }
    let most = match (S::MANY_REGISTERS, wide && rows <= 3) {
        (true, _) => MAX_ROWS,
        (false, true) => 3,
        (false, false) => 6,
    };
    // As even as possible: 16 rows are 8 and 8, not 12 and 4.
    let num_blocks = rows.div_ceil(most);
    let mut row = 0;
    for block in 0..num_blocks {
        let count = (rows - row).div_ceil(num_blocks - block);
        // SAFETY: rows `row..row + count` are among those that the caller vouches for.
        unsafe {
            if S::MANY_REGISTERS && wide {
                block!(2, row, 0, count, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            } else if S::MANY_REGISTERS {
                block!(1, row, 0, count, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            } else if wide && rows <= 3 {
                block!(2, row, 0, count, [1, 2, 3]);
            } else {
                block!(1, row, 0, count, [1, 2, 3, 4, 5, 6]);
                if wide {
                    block!(1, row, LANES, count, [1, 2, 3, 4, 5, 6]);
                }
            }
        }
        row += count;
    }
}
