//! How numbers stand in a panel: a matrix `[depth, width]` whose rows are read one after the
//! other, 16 columns at a time.

use half::{bf16, f16};

use super::buffer::Element;
use super::simd::Simd;

/// A number format of weights and KV cache, and its layout in a panel.
pub(crate) trait Format: Send + Sync + 'static {
    /// What is stored.
    type Element: Element;

    /// Whether the KV cache keeps a scale for each head of each token: what is stored is then the
    /// value divided by it.
    const SCALED: bool = false;

    /// Whether rows stand in pairs of bfloat16.
    const IS_BF16: bool = false;

    /// Rounds to the format.
    fn from_f32(value: f32) -> Self::Element;

    /// Widens; exact.
    fn to_f32(value: Self::Element) -> f32;

    /// Elements of a panel. Rows stand one after the other, unless a format says otherwise.
    fn panel_len(depth: usize, width: usize) -> usize {
        depth * width
    }

    /// Where row `row` and column `col` of a panel stands.
    #[inline(always)]
    fn index(row: usize, col: usize, width: usize) -> usize {
        row * width + col
    }

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
    unsafe fn load_row<S: Simd>(panel: *const f32, row: usize, col: usize, width: usize) -> S::V {
        // SAFETY: the caller vouches for the row.
        unsafe { S::load(panel.add(row * width + col)) }
    }
}

/// bfloat16, two rows interleaved: a 32-bit word holds the same column of both. Widening such a
/// word takes a shift and a mask; it is also what processors with bfloat16 products read.
pub(crate) struct Bf16;

impl Format for Bf16 {
    type Element = u16;

    const IS_BF16: bool = true;

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
    unsafe fn load_row<S: Simd>(panel: *const u16, row: usize, col: usize, width: usize) -> S::V {
        // SAFETY: a panel of odd depth is padded to the next row.
        unsafe { S::load_bf16_pairs(panel.add(row * width + col * 2)).0 }
    }
}

/// Half precision, row by row: widened to f32 for the product, which loses nothing.
pub(crate) struct F16;

impl Format for F16 {
    type Element = u16;

    #[inline(always)]
    fn from_f32(value: f32) -> u16 {
        f16::from_f32(value).to_bits()
    }
    #[inline(always)]
    fn to_f32(value: u16) -> f32 {
        f16::from_bits(value).to_f32()
    }
    #[inline(always)]
    unsafe fn load_rows<S: Simd>(
        panel: *const u16,
        row: usize,
        col: usize,
        width: usize,
    ) -> (S::V, S::V) {
        // SAFETY: the caller vouches for both rows.
        unsafe {
            let first = panel.add(row * width + col);
            (S::load_f16(first), S::load_f16(first.add(width)))
        }
    }
    #[inline(always)]
    unsafe fn load_row<S: Simd>(panel: *const u16, row: usize, col: usize, width: usize) -> S::V {
        // SAFETY: the caller vouches for the row.
        unsafe { S::load_f16(panel.add(row * width + col)) }
    }
}

/// Whole numbers in `-127..=127`, row by row: keys and values divided by a scale of their own.
pub(crate) struct Int8;

impl Format for Int8 {
    type Element = i8;

    const SCALED: bool = true;

    #[inline(always)]
    fn from_f32(value: f32) -> i8 {
        value.round_ties_even().clamp(-127.0, 127.0) as i8
    }
    #[inline(always)]
    fn to_f32(value: i8) -> f32 {
        f32::from(value)
    }
    #[inline(always)]
    unsafe fn load_rows<S: Simd>(
        panel: *const i8,
        row: usize,
        col: usize,
        width: usize,
    ) -> (S::V, S::V) {
        // SAFETY: the caller vouches for both rows.
        unsafe {
            let first = panel.add(row * width + col);
            (S::load_i8(first), S::load_i8(first.add(width)))
        }
    }
    #[inline(always)]
    unsafe fn load_row<S: Simd>(panel: *const i8, row: usize, col: usize, width: usize) -> S::V {
        // SAFETY: the caller vouches for the row.
        unsafe { S::load_i8(panel.add(row * width + col)) }
    }
}
