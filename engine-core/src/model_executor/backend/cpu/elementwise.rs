//! Kernels that work on each value by itself: the activations of MLPs, and soft caps.
//!
//! Their parts are functions that are always inlined: a closure that isn't would be compiled without
//! the level's instructions.

use super::activation::{Activation, for_each_row};
use super::buffer::SharedMut;
use super::panels::PANEL_WIDTH;
use super::simd::{self, LANES, Simd, SimdLevel, dispatch};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;
use crate::model_executor::error::ModelError;

/// Values of a tile of [`softcap`].
const VALUES_PER_TILE: usize = 8192;

/// `x / (1 + exp(-factor))`: SiLU where `factor` is `x`.
#[inline(always)]
unsafe fn times_sigmoid<S: Simd>(x: S::V, factor: S::V) -> S::V {
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        let e = simd::exp::<S>(S::sub(S::splat(0.0), factor));
        S::div(x, S::add(e, S::splat(1.0)))
    }
}

/// GELU by its approximation with tanh, `x / 2 * (1 + tanh(u))` with
/// `u = sqrt(2 / pi) * (x + 0.044715 * x^3)`, which is `x / (1 + exp(-2 * u))`.
#[inline(always)]
unsafe fn gelu_tanh<S: Simd>(x: S::V) -> S::V {
    const TWICE_ROOT: f32 = 1.595_769_2;
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        let cubic = S::fma(S::mul(x, x), S::splat(0.044_715), S::splat(1.0));
        times_sigmoid::<S>(x, S::mul(S::mul(x, S::splat(TWICE_ROOT)), cubic))
    }
}

/// GELU itself, `x * P(-x)` with the normal distribution's `P`: `max(x, 0) - |x| * P(|x|)` with the tail
/// `P(a) = erfc(a / sqrt(2)) / 2` by Abramowitz and Stegun 7.1.26, whose absolute error is below 1.5e-7.
#[inline(always)]
unsafe fn gelu<S: Simd>(x: S::V) -> S::V {
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        let zero = S::splat(0.0);
        let magnitude = S::max(x, S::sub(zero, x));
        let scaled = S::mul(magnitude, S::splat(std::f32::consts::FRAC_1_SQRT_2));
        let one = S::splat(1.0);
        let t = S::div(one, S::fma(scaled, S::splat(0.327_591_1), one));
        let mut sum = S::splat(1.061_405_4);
        for coefficient in [-1.453_152_1, 1.421_413_8, -0.284_496_72, 0.254_829_6] {
            sum = S::fma(sum, t, S::splat(coefficient));
        }
        let e = simd::exp::<S>(S::sub(zero, S::mul(scaled, scaled)));
        let tail = S::mul(S::mul(S::mul(sum, t), e), S::splat(0.5));
        S::sub(S::max(x, zero), S::mul(magnitude, tail))
    }
}

/// `act(x)`
#[inline(always)]
unsafe fn activated<S: Simd>(act: HiddenAct, x: S::V) -> S::V {
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        match act {
            HiddenAct::Silu => times_sigmoid::<S>(x, x),
            HiddenAct::GeluTanh => gelu_tanh::<S>(x),
            HiddenAct::Gelu => gelu::<S>(x),
            HiddenAct::Relu => S::max(x, S::splat(0.0)),
        }
    }
}

/// `x = act(x)` over `width` values.
#[inline(always)]
unsafe fn activate_body<S: Simd>(act: HiddenAct, x: *mut f32, width: usize) {
    // SAFETY: all accesses lie within `width` values, for which the caller vouches.
    unsafe {
        let (whole, rest) = (width - width % LANES, width % LANES);
        for i in (0..whole).step_by(LANES) {
            S::store(x.add(i), activated::<S>(act, S::load(x.add(i))));
        }
        if rest > 0 {
            let last = simd::load_first::<S>(x.add(whole), rest);
            simd::store_first::<S>(x.add(whole), activated::<S>(act, last), rest);
        }
    }
}

dispatch! {
    /// The activation of one row; see `activate_body`.
    ///
    /// # Safety
    /// `x` must be valid for `width` values.
    unsafe fn activate_row(act: HiddenAct, x: *mut f32, width: usize) = activate_body
}

/// `x = act(x)`, by row.
pub(crate) fn activate(
    pool: &ComputePool,
    level: SimdLevel,
    act: HiddenAct,
    x: &mut Activation,
) -> Result<(), ModelError> {
    let (rows, width, stride) = (x.rows(), x.width(), x.stride());
    let x = SharedMut::new(x.as_mut_slice());
    for_each_row(pool, rows, width, &|row, _| {
        // SAFETY: each row belongs to one call and holds `width` values.
        unsafe { activate_row(level, act, x.ptr(row * stride, width), width) };
    })?;
    Ok(())
}

/// `act(gate) * up`
#[inline(always)]
unsafe fn gated<S: Simd>(act: HiddenAct, gate: S::V, up: S::V) -> S::V {
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        match act {
            HiddenAct::Silu => times_sigmoid::<S>(S::mul(gate, up), gate),
            _ => S::mul(activated::<S>(act, gate), up),
        }
    }
}

/// `out = act(gate) * up` over `width` values.
#[inline(always)]
unsafe fn act_and_mul_body<S: Simd>(
    act: HiddenAct,
    gate: *const f32,
    up: *const f32,
    width: usize,
    out: *mut f32,
) {
    // SAFETY: all accesses lie within `width` values, for which the caller vouches.
    unsafe {
        let (whole, rest) = (width - width % LANES, width % LANES);
        for i in (0..whole).step_by(LANES) {
            let (gate, up) = (S::load(gate.add(i)), S::load(up.add(i)));
            S::store(out.add(i), gated::<S>(act, gate, up));
        }
        if rest > 0 {
            let gate = simd::load_first::<S>(gate.add(whole), rest);
            let up = simd::load_first::<S>(up.add(whole), rest);
            simd::store_first::<S>(out.add(whole), gated::<S>(act, gate, up), rest);
        }
    }
}

dispatch! {
    /// The activation of one row; see `act_and_mul_body`.
    ///
    /// # Safety
    /// `gate`, `up` and `out` must be valid for `width` values.
    unsafe fn act_and_mul_row(
        act: HiddenAct, gate: *const f32, up: *const f32, width: usize, out: *mut f32,
    ) = act_and_mul_body
}

/// `out = act(gate) * up` of `rows` rows `[gate | up]` of 32 values each.
#[inline(always)]
unsafe fn act_and_mul_panels_body<S: Simd>(
    act: HiddenAct,
    gate_up: *const f32,
    rows: usize,
    out: *mut f32,
    out_stride: usize,
) {
    // SAFETY: all accesses lie within what the caller vouches for.
    unsafe {
        for row in 0..rows {
            let (from, to) = (
                gate_up.add(row * 2 * PANEL_WIDTH),
                out.add(row * out_stride),
            );
            for i in (0..PANEL_WIDTH).step_by(LANES) {
                let (gate, up) = (S::load(from.add(i)), S::load(from.add(PANEL_WIDTH + i)));
                S::store(to.add(i), gated::<S>(act, gate, up));
            }
        }
    }
}

dispatch! {
    /// The activation of a panel's outputs; see `act_and_mul_panels_body`.
    ///
    /// # Safety
    /// `gate_up` must be valid for 64 values of each row, `out` for 32 at its stride.
    pub(crate) unsafe fn act_and_mul_panels(
        act: HiddenAct, gate_up: *const f32, rows: usize, out: *mut f32, out_stride: usize,
    ) = act_and_mul_panels_body
}

/// The largest of the 32 results of each panel. The first one is NaN where any result is NaN or infinite.
#[inline(always)]
unsafe fn largest_of_panels_body<S: Simd>(results: *const f32, panels: usize, maxima: *mut f32) {
    // SAFETY: all accesses lie within what the caller vouches for.
    unsafe {
        // Of finite numbers 0.
        let mut differences = S::splat(0.0);
        for panel in 0..panels {
            let from = results.add(panel * PANEL_WIDTH);
            let (first, second) = (S::load(from), S::load(from.add(LANES)));
            let sum = S::add(first, second);
            differences = S::add(differences, S::sub(sum, sum));
            *maxima.add(panel) = S::max_lane(S::max(first, second));
        }
        if panels > 0 && simd::sum::<S>(differences).is_nan() {
            *maxima = f32::NAN;
        }
    }
}

dispatch! {
    /// The largest results of panels; see `largest_of_panels_body`.
    ///
    /// # Safety
    /// `results` must be valid for 32 values of each panel, `maxima` for one.
    pub(crate) unsafe fn largest_of_panels(
        results: *const f32, panels: usize, maxima: *mut f32,
    ) = largest_of_panels_body
}

/// The largest of `len` results that a bitmask allows, a word for 32 of them; all where it is null. -inf
/// where there is none, NaN where any result, allowed or not, is not finite.
#[inline(always)]
unsafe fn largest_allowed_body<S: Simd>(
    results: *const f32,
    len: usize,
    words: *const u32,
    to: *mut f32,
) {
    // SAFETY: all accesses lie within what the caller vouches for.
    unsafe {
        // Of finite numbers 0.
        let mut differences = S::splat(0.0);
        let mut largest = S::splat(f32::NEG_INFINITY);
        let mut padded = [f32::NEG_INFINITY; PANEL_WIDTH];
        for panel in 0..len.div_ceil(PANEL_WIDTH) {
            let (at, count) = (
                results.add(panel * PANEL_WIDTH),
                PANEL_WIDTH.min(len - panel * PANEL_WIDTH),
            );
            // Also of a panel that is cut: its results are there.
            let (first, second) = (S::load(at), S::load(at.add(LANES)));
            let sum = S::add(first, second);
            differences = S::add(differences, S::sub(sum, sum));
            let word = match words.is_null() {
                true => u32::MAX,
                false => *words.add(panel),
            };
            let word = word & (u32::MAX >> (PANEL_WIDTH - count));
            match word {
                u32::MAX => largest = S::max(largest, S::max(first, second)),
                0 => {}
                _ => {
                    for (lane, value) in padded.iter_mut().enumerate() {
                        *value = match word >> lane & 1 {
                            1 => *at.add(lane),
                            _ => f32::NEG_INFINITY,
                        };
                    }
                    let padded = padded.as_ptr();
                    let both = S::max(S::load(padded), S::load(padded.add(LANES)));
                    largest = S::max(largest, both);
                }
            }
        }
        *to = match simd::sum::<S>(differences).is_nan() {
            true => f32::NAN,
            false => S::max_lane(largest),
        };
    }
}

dispatch! {
    /// The largest result that is allowed; see `largest_allowed_body`.
    ///
    /// # Safety
    /// `results` must be valid for `len` values, rounded up to 32, and `words`, where they aren't null, for a
    /// bit of each.
    pub(crate) unsafe fn largest_allowed(
        results: *const f32, len: usize, words: *const u32, to: *mut f32,
    ) = largest_allowed_body
}

/// Copies `rows` rows of `width` values past the caches, but for what isn't whole lines.
#[inline(always)]
unsafe fn stream_rows_body<S: Simd>(
    from: *const f32,
    from_stride: usize,
    rows: usize,
    width: usize,
    to: *mut f32,
    to_stride: usize,
) {
    // SAFETY: all accesses lie within what the caller vouches for; what is streamed is aligned.
    unsafe {
        for row in 0..rows {
            let (from, to) = (from.add(row * from_stride), to.add(row * to_stride));
            let first = to.align_offset(LANES * size_of::<f32>()).min(width);
            std::ptr::copy_nonoverlapping(from, to, first);
            let mut at = first;
            while at + LANES <= width {
                S::stream(to.add(at), S::load(from.add(at)));
                at += LANES;
            }
            std::ptr::copy_nonoverlapping(from.add(at), to.add(at), width - at);
        }
        S::end_streaming();
    }
}

dispatch! {
    /// Copies rows that nobody reads soon; see `stream_rows_body`.
    ///
    /// # Safety
    /// `from` and `to` must be valid for `width` values of each row at their strides, and not overlap.
    pub(crate) unsafe fn stream_rows(
        from: *const f32, from_stride: usize, rows: usize, width: usize, to: *mut f32, to_stride: usize,
    ) = stream_rows_body
}

/// `bound * tanh(x / bound)`, with `tanh(y) = 2 / (1 + exp(-2 * y)) - 1`.
#[inline(always)]
unsafe fn capped<S: Simd>(x: S::V, bound: f32) -> S::V {
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        let twice = S::mul(x, S::splat(2.0 / bound));
        let sigmoid = times_sigmoid::<S>(S::splat(2.0), twice);
        S::mul(S::sub(sigmoid, S::splat(1.0)), S::splat(bound))
    }
}

/// `x = bound * tanh(x / bound)` over `width` values.
#[inline(always)]
unsafe fn softcap_body<S: Simd>(x: *mut f32, width: usize, bound: f32) {
    // SAFETY: all accesses lie within `width` values, for which the caller vouches.
    unsafe {
        let (whole, rest) = (width - width % LANES, width % LANES);
        for i in (0..whole).step_by(LANES) {
            S::store(x.add(i), capped::<S>(S::load(x.add(i)), bound));
        }
        if rest > 0 {
            let last = simd::load_first::<S>(x.add(whole), rest);
            simd::store_first::<S>(x.add(whole), capped::<S>(last, bound), rest);
        }
    }
}

dispatch! {
    /// Bounds `width` values; see `softcap_body`.
    ///
    /// # Safety
    /// `x` must be valid for `width` values.
    pub(crate) unsafe fn softcap_row(x: *mut f32, width: usize, bound: f32) = softcap_body
}

/// `x = bound * tanh(x / bound)`
pub(crate) fn softcap(
    pool: &ComputePool,
    level: SimdLevel,
    x: &mut [f32],
    bound: f32,
) -> Result<(), ModelError> {
    let len = x.len();
    let x = SharedMut::new(x);
    pool.run(len.div_ceil(VALUES_PER_TILE), &|tile, _| {
        let first = tile * VALUES_PER_TILE;
        let count = (len - first).min(VALUES_PER_TILE);
        // SAFETY: each part belongs to one tile and lies within `x`.
        unsafe { softcap_row(level, x.ptr(first, count), count, bound) };
    })?;
    Ok(())
}

/// `out = act(gate) * up` of `[gate | up]`, by row.
pub(crate) fn act_and_mul(
    pool: &ComputePool,
    level: SimdLevel,
    act: HiddenAct,
    gate_up: &Activation,
    out: &mut Activation,
) -> Result<(), ModelError> {
    out.set_rows(gate_up.rows())?;
    let (width, stride) = (out.width(), out.stride());
    assert!(gate_up.width() == 2 * width, "widths differ");
    let to = SharedMut::new(out.as_mut_slice());
    for_each_row(pool, gate_up.rows(), 2 * width, &|row, _| {
        let (gate, up) = gate_up.row(row).split_at(width);
        // SAFETY: each row of `out` belongs to one call; all three hold `width` values.
        unsafe {
            let to = to.ptr(row * stride, width);
            act_and_mul_row(level, act, gate.as_ptr(), up.as_ptr(), width, to);
        }
    })?;
    Ok(())
}
