//! Activations in groups of 8-bit values, as products with quantized weights read them.

use super::buffer::Element;
use super::simd::{self, LANES, Simd, dispatch};
use crate::model_executor::quantization::GROUP;

/// 32 values of a row: `scale * values`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ActivationGroup {
    /// The largest magnitude over 127; NaN where a value is not finite.
    pub(crate) scale: f32,
    /// Minus the weights' zero times the sum of `values`: where the sum of products begins.
    pub(crate) offset: i32,
    /// The sums of both halves of `values`.
    pub(crate) halves: [i16; 2],
    /// `-127..=127`, ties to even.
    pub(crate) values: [i8; GROUP],
}

// SAFETY: any bits are a value of each field, and there is no padding; it is aligned to 4.
unsafe impl Element for ActivationGroup {}

/// Groups of a row of `width` values; the last is filled with zeros.
pub(crate) fn num_groups(width: usize) -> usize {
    width.div_ceil(GROUP)
}

/// 16 values of a row of `width` from `from` on; 0 beyond its end.
#[inline(always)]
unsafe fn load_padded<S: Simd>(x: *const f32, from: usize, width: usize) -> S::V {
    // SAFETY: the caller vouches for `width` values and the level.
    unsafe {
        match width.saturating_sub(from) {
            0 => S::splat(0.0),
            rest if rest < LANES => simd::load_first::<S>(x.add(from), rest),
            _ => S::load(x.add(from)),
        }
    }
}

#[inline(always)]
unsafe fn quantize_body<S: Simd>(
    x: *const f32,
    width: usize,
    zero: i32,
    out: *mut ActivationGroup,
) {
    // SAFETY: the caller vouches for `width` values and their groups.
    unsafe {
        for first in (0..width).step_by(GROUP) {
            let a = load_padded::<S>(x, first, width);
            let b = load_padded::<S>(x, first + LANES, width);
            let largest = S::max_lane(S::max(S::abs(a), S::abs(b)));
            // Below that the quotient would overflow; the values count as 0.
            let inverse = S::splat(if largest > 1e-30 {
                127.0 / largest
            } else {
                0.0
            });
            let (a, b) = (S::round(S::mul(a, inverse)), S::round(S::mul(b, inverse)));
            // Exact: at most 32 times 127. NaN where a value was not finite.
            let halves = [S::sum_whole(a), S::sum_whole(b)];
            let sum = halves[0] + halves[1];
            let group = &mut *out.add(first / GROUP);
            group.scale = if sum.is_nan() {
                f32::NAN
            } else {
                largest / 127.0
            };
            group.offset = -zero * sum as i32;
            group.halves = halves.map(|sum| sum as i16);
            S::store_i8(group.values.as_mut_ptr(), a);
            S::store_i8(group.values.as_mut_ptr().add(LANES), b);
        }
    }
}

dispatch! {
    /// Quantizes one row for weights whose zero is stored as `zero`, or with 0 for such as have none.
    ///
    /// # Safety
    /// `x` must be valid for `width` values, `out` for their groups.
    pub(crate) unsafe fn quantize_row(
        x: *const f32, width: usize, zero: i32, out: *mut ActivationGroup,
    ) = quantize_body
}
