//! The norm of encoders: mean and variance of each row.

use super::activation::{Activation, for_each_row};
use super::buffer::SharedMut;
use super::simd::{self, LANES, Simd, SimdLevel, dispatch};
use crate::model_executor::backend::LayerNorm;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// `x = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over `width` values. The variance is summed of
/// differences, in a pass of its own: that of squares loses what a large mean drowns.
#[inline(always)]
unsafe fn layer_norm_body<S: Simd>(
    x: *mut f32,
    weight: *const f32,
    bias: *const f32,
    width: usize,
    eps: f32,
) {
    // SAFETY: all accesses lie within `width` values, for which the caller vouches.
    unsafe {
        let (whole, rest) = (width - width % LANES, width % LANES);
        let mut sums = S::splat(0.0);
        for i in (0..whole).step_by(LANES) {
            sums = S::add(sums, S::load(x.add(i)));
        }
        let mut sum = simd::sum::<S>(sums);
        for i in whole..width {
            sum += *x.add(i);
        }
        let mean = sum / width as f32;
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(LANES) {
            let v = S::sub(S::load(x.add(i)), S::splat(mean));
            squares = S::fma(v, v, squares);
        }
        let mut sum = simd::sum::<S>(squares);
        for i in whole..width {
            let v = *x.add(i) - mean;
            sum += v * v;
        }
        let scale = 1.0 / (sum / width as f32 + eps).sqrt();
        for i in (0..whole).step_by(LANES) {
            let v = S::mul(S::sub(S::load(x.add(i)), S::splat(mean)), S::splat(scale));
            let v = S::fma(v, S::load(weight.add(i)), S::load(bias.add(i)));
            S::store(x.add(i), v);
        }
        if rest > 0 {
            let v = simd::load_first::<S>(x.add(whole), rest);
            let v = S::mul(S::sub(v, S::splat(mean)), S::splat(scale));
            let weight = simd::load_first::<S>(weight.add(whole), rest);
            let bias = simd::load_first::<S>(bias.add(whole), rest);
            simd::store_first::<S>(x.add(whole), S::fma(v, weight, bias), rest);
        }
    }
}

dispatch! {
    /// Layer norm of one row; see `layer_norm_body`.
    ///
    /// # Safety
    /// `x`, `weight` and `bias` must be valid for `width` values.
    unsafe fn layer_norm_row(
        x: *mut f32, weight: *const f32, bias: *const f32, width: usize, eps: f32,
    ) = layer_norm_body
}

/// `x = layer_norm(x)`, by row.
pub(crate) fn layer_norm(
    pool: &ComputePool,
    level: SimdLevel,
    x: &mut Activation,
    norm: &LayerNorm<Vec<f32>>,
) -> Result<(), ModelError> {
    let (rows, width, stride) = (x.rows(), x.width(), x.stride());
    let LayerNorm { weight, bias, eps } = norm;
    assert!(
        weight.len() == width && bias.len() == width,
        "widths differ"
    );
    let x = SharedMut::new(x.as_mut_slice());
    for_each_row(pool, rows, width, &|row, _| {
        // SAFETY: each row belongs to one call; all three hold `width` values.
        unsafe {
            let x = x.ptr(row * stride, width);
            layer_norm_row(level, x, weight.as_ptr(), bias.as_ptr(), width, *eps);
        }
    })?;
    Ok(())
}
