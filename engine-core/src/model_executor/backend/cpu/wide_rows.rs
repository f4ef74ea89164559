//! Activations in wide groups of 8-bit values, as products with wide groups of weights read them.

use super::buffer::Element;
use super::simd::{LANES, Simd, dispatch};
use crate::model_executor::wide_quantization::{FACTOR_GROUP, NUM_FACTORS, WIDE_GROUP};

/// 256 values of a row: `scale * values`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct WideRowGroup {
    /// `-127..=127`, ties to even.
    pub(crate) values: [i8; WIDE_GROUP],
    /// The largest magnitude over 127; NaN where a value is not finite.
    pub(crate) scale: f32,
    /// Of `values`.
    pub(crate) sum: i32,
    /// Of each 32 of them.
    pub(crate) part_sums: [i16; NUM_FACTORS],
    /// So that the values of all groups begin with a line.
    unused: [u8; 40],
}

// SAFETY: any bits are a value of each field, and there is no padding; it is aligned to 64.
unsafe impl Element for WideRowGroup {}

const _: () = assert!(size_of::<WideRowGroup>() == WIDE_GROUP + 64);

/// Groups of a row of `width` values; the last is filled with zeros.
pub(crate) fn num_wide_groups(width: usize) -> usize {
    width.div_ceil(WIDE_GROUP)
}

#[inline(always)]
unsafe fn quantize_body<S: Simd>(x: *const f32, width: usize, out: *mut WideRowGroup) {
    // SAFETY: the caller vouches for `width` values and their groups.
    unsafe {
        for (index, first) in (0..width).step_by(WIDE_GROUP).enumerate() {
            let group = &mut *out.add(index);
            if width - first >= WIDE_GROUP {
                quantize_group::<S>(x.add(first), group);
            } else {
                let mut padded = [0.0; WIDE_GROUP];
                std::ptr::copy_nonoverlapping(x.add(first), padded.as_mut_ptr(), width - first);
                quantize_group::<S>(padded.as_ptr(), group);
            }
        }
    }
}

/// Quantizes a group.
///
/// # Safety
/// `x` must be valid for its values; the processor must have the level of `S`.
#[inline(always)]
unsafe fn quantize_group<S: Simd>(x: *const f32, group: &mut WideRowGroup) {
    // SAFETY: the caller vouches for the values and the level.
    unsafe {
        // Two, so that one needn't wait for the other.
        let mut largest = [S::splat(0.0); 2];
        for at in (0..WIDE_GROUP).step_by(2 * LANES) {
            for (half, largest) in largest.iter_mut().enumerate() {
                *largest = S::max(*largest, S::abs(S::load(x.add(at + half * LANES))));
            }
        }
        let largest = S::max_lane(S::max(largest[0], largest[1]));
        // Below that the quotient would overflow; the values count as 0.
        let inverse = S::splat(if largest > 1e-30 {
            127.0 / largest
        } else {
            0.0
        });
        let mut sum = 0.0;
        for part in 0..NUM_FACTORS {
            let at = part * FACTOR_GROUP;
            let a = S::round(S::mul(S::load(x.add(at)), inverse));
            let b = S::round(S::mul(S::load(x.add(at + LANES)), inverse));
            let values = group.values.as_mut_ptr().add(at);
            S::store_i8(values, a);
            S::store_i8(values.add(LANES), b);
            // Exact: at most 32 times 127. NaN where a value was not finite.
            let whole = S::sum_whole(S::add(a, b));
            group.part_sums[part] = whole as i16;
            sum += whole;
        }
        group.scale = if sum.is_nan() {
            f32::NAN
        } else {
            largest / 127.0
        };
        group.sum = sum as i32;
    }
}

dispatch! {
    /// Quantizes one row.
    ///
    /// # Safety
    /// `x` must be valid for `width` values, `out` for their groups.
    pub(crate) unsafe fn quantize_wide_row(
        x: *const f32, width: usize, out: *mut WideRowGroup,
    ) = quantize_body
}

const _: () = assert!(FACTOR_GROUP == 2 * LANES);
