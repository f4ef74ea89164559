//! Sixteen lanes of f32, on whatever the processor has.
//!
//! Kernels are written once over [`Simd`] and compiled once per [`SimdLevel`]; [`dispatch!`] makes
//! the function that chooses. Each lane sees the same operations in the same order at every level
//! with fused multiply-add, so results don't depend on the level.

pub(crate) use super::simd_level::SimdLevel;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen lanes of f32.
///
/// # Safety
/// The methods of an implementation may be called only on a processor that has its level.
/// Pointers must be valid for the lanes named.
pub(crate) trait Simd {
    /// The lanes.
    type V: Copy;

    /// All lanes `value`.
    unsafe fn splat(value: f32) -> Self::V;
    /// 16 values from `from`, of any alignment.
    unsafe fn load(from: *const f32) -> Self::V;
    /// 16 values to `to`, of any alignment.
    unsafe fn store(to: *mut f32, v: Self::V);
    /// 16 values to `to`, which is aligned to 64, past the caches where the level can do that: other threads
    /// see them after [`Self::end_streaming`].
    #[inline(always)]
    unsafe fn stream(to: *mut f32, v: Self::V)
    where
        Self: Sized,
    {
        // SAFETY: the caller vouches for the level and the values.
        unsafe { Self::store(to, v) }
    }
    /// Ends what [`Self::stream`] began.
    #[inline(always)]
    unsafe fn end_streaming()
    where
        Self: Sized,
    {
    }
    /// 16 signed bytes from `from`, widened.
    unsafe fn load_i8(from: *const i8) -> Self::V;
    /// 32 bfloat16 from `from`, alternating: those at even and those at odd places.
    unsafe fn load_bf16_pairs(from: *const u16) -> (Self::V, Self::V);
    /// 16 half-precision values from `from`, widened.
    unsafe fn load_f16(from: *const u16) -> Self::V;
    /// `a * b + c`
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// The larger; `b` where one is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` where one is NaN.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// The magnitude.
    unsafe fn abs(a: Self::V) -> Self::V;
    /// The largest lane.
    unsafe fn max_lane(a: Self::V) -> f32;
    /// The sum of lanes that are whole numbers with a sum below 2^24: exact in whatever order. NaN
    /// where one is.
    #[inline(always)]
    unsafe fn sum_whole(a: Self::V) -> f32
    where
        Self: Sized,
    {
        // SAFETY: the caller vouches for the level.
        unsafe { sum::<Self>(a) }
    }
    /// To the nearest whole number, ties to even.
    unsafe fn round(a: Self::V) -> Self::V;
    /// Asks for the cache line at `from`, which may lie anywhere.
    unsafe fn prefetch(from: *const u8);
    /// The same, no nearer than the second cache where that can be said.
    #[inline(always)]
    unsafe fn prefetch_far(from: *const u8)
    where
        Self: Sized,
    {
        // SAFETY: the caller vouches for the level.
        unsafe { Self::prefetch(from) }
    }
    /// 16 whole numbers in `-128..=127` to `to`; others become any byte.
    unsafe fn store_i8(to: *mut i8, v: Self::V);
    /// `2^a` for whole `a` in `-126..=127`.
    unsafe fn exp2_whole(a: Self::V) -> Self::V;
}

/// `e^x` with a relative error of about 1e-7; below -87 it is about 1e-38.
///
/// Range reduction by ln 2 in two parts, then the polynomial of Cephes' `expf`.
///
/// # Safety
/// The processor must have the level of `S`.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    const COEFFICIENTS: [f32; 6] = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_6e-1,
        0.5,
    ];
    // SAFETY: the caller vouches for the level.
    unsafe {
        // In this order of arguments a NaN stays one.
        let x = S::max(S::splat(-87.0), S::min(S::splat(88.0), x));
        let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        let r = S::fma(n, S::splat(-0.693_359_4), x);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        let mut p = S::splat(COEFFICIENTS[0]);
        for coefficient in &COEFFICIENTS[1..] {
            p = S::fma(p, r, S::splat(*coefficient));
        }
        let p = S::fma(p, S::mul(r, r), S::add(r, S::splat(1.0)));
        S::mul(p, S::exp2_whole(n))
    }
}

/// The sum of the lanes, by a tree that is the same at every level.
///
/// # Safety
/// The processor must have the level of `S`.
#[inline(always)]
pub(crate) unsafe fn sum<S: Simd>(v: S::V) -> f32 {
    let mut lanes = [0.0f32; LANES];
    // SAFETY: the array holds 16 lanes; the caller vouches for the level.
    unsafe { S::store(lanes.as_mut_ptr(), v) };
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `count < 16` values from `from`, the rest 0.
///
/// # Safety
/// The processor must have the level of `S`; `from` must be valid for `count` values.
#[inline(always)]
pub(crate) unsafe fn load_first<S: Simd>(from: *const f32, count: usize) -> S::V {
    let mut lanes = [0.0f32; LANES];
    // SAFETY: `count` is below 16, and the caller vouches for `from`.
    unsafe {
        std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count.min(LANES));
        S::load(lanes.as_ptr())
    }
}

/// The first `count < 16` lanes to `to`.
///
/// # Safety
/// The processor must have the level of `S`; `to` must be valid for `count` values.
#[inline(always)]
pub(crate) unsafe fn store_first<S: Simd>(to: *mut f32, v: S::V, count: usize) {
    let mut lanes = [0.0f32; LANES];
    // SAFETY: `count` is below 16, and the caller vouches for `to`.
    unsafe {
        S::store(lanes.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count.min(LANES));
    }
}

/// Arrays and loops, for the compiler to vectorise with what the target guarantees.
pub(crate) struct Portable;

/// Fused where the target guarantees it; elsewhere the library call would be far slower.
#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

impl Simd for Portable {
    type V = [f32; LANES];

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::V {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::V {
        // SAFETY: the caller vouches for 16 values.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::V) {
        // SAFETY: the caller vouches for 16 values.
        unsafe { to.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::V {
        // SAFETY: the caller vouches for 16 values.
        unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(from: *const u16) -> (Self::V, Self::V) {
        // SAFETY: the caller vouches for 32 values.
        let values = unsafe { from.cast::<[u16; 2 * LANES]>().read_unaligned() };
        let widen = |index: usize| f32::from_bits(u32::from(values[index]) << 16);
        (
            std::array::from_fn(|lane| widen(2 * lane)),
            std::array::from_fn(|lane| widen(2 * lane + 1)),
        )
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::V {
        // SAFETY: the caller vouches for 16 values.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|bits| half::f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|lane| multiply_add(a[lane], b[lane], c[lane]))
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }
    #[inline(always)]
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }
    #[inline(always)]
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] / b[lane])
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }
    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| if a[lane] < b[lane] { a[lane] } else { b[lane] })
    }
    #[inline(always)]
    unsafe fn abs(a: Self::V) -> Self::V {
        a.map(f32::abs)
    }
    #[inline(always)]
    unsafe fn prefetch(_from: *const u8) {}
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, v: Self::V) {
        // SAFETY: the caller vouches for 16 bytes.
        unsafe { to.cast::<[i8; LANES]>().write(v.map(|v| v as i8)) }
    }
    #[inline(always)]
    unsafe fn max_lane(a: Self::V) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    unsafe fn round(a: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane].round_ties_even())
    }
    #[inline(always)]
    unsafe fn exp2_whole(a: Self::V) -> Self::V {
        std::array::from_fn(|lane| f32::from_bits(((a[lane] as i32 + 127) as u32) << 23))
    }
}

/// Makes `unsafe fn name(level, ...)` that runs `body::<S>(...)` compiled for that level.
///
/// With `name[F: Format](level, ...)` it is `body::<S, F>(...)`.
///
/// `body` must be `#[inline(always)]`, so that it is compiled with the level's instructions.
/// Calling the result needs what `body` needs, but for the level.
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident $([$generic:ident : $bound:path])?
        ($($arg:ident : $type:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel takes pointers, strides and sizes")]
        $vis unsafe fn $name$(<$generic: $bound>)?(
            level: $crate::model_executor::backend::cpu::simd::SimdLevel, $($arg: $type),*
        ) {
            use $crate::model_executor::backend::cpu::simd::{Portable, SimdLevel};
            #[cfg(target_arch = "aarch64")]
            use $crate::model_executor::backend::cpu::simd_neon::Neon;
            #[cfg(target_arch = "x86_64")]
            use $crate::model_executor::backend::cpu::simd_x86::{Avx2, Avx512};

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512$(<$generic: $bound>)?($($arg: $type),*) {
                // SAFETY: passed on to the caller of the outer function.
                unsafe { $body::<Avx512 $(, $generic)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2$(<$generic: $bound>)?($($arg: $type),*) {
                // SAFETY: passed on to the caller of the outer function.
                unsafe { $body::<Avx2 $(, $generic)?>($($arg),*) }
            }
            // SAFETY: passed on to the caller; the processor has every `SimdLevel` that exists.
            unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx512(_)
                    | SimdLevel::Avx512Vnni(_)
                    | SimdLevel::Avx512Bf16(_)
                    | SimdLevel::Amx(_) => {
                        avx512$(::<$generic>)?($($arg),*);
                    }
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx2(_) => avx2$(::<$generic>)?($($arg),*),
                    // The target has its instructions already.
                    #[cfg(target_arch = "aarch64")]
                    SimdLevel::Neon | SimdLevel::NeonDot(_) => {
                        $body::<Neon $(, $generic)?>($($arg),*)
                    }
                    SimdLevel::Portable => $body::<Portable $(, $generic)?>($($arg),*),
                }
            }
        }
    };
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(always)]
    unsafe fn exp_all<S: Simd>(x: *const f32, out: *mut f32) {
        // SAFETY: the test passes 16 values.
        unsafe { S::store(out, exp::<S>(S::load(x))) }
    }
    dispatch!(unsafe fn exp_at(x: *const f32, out: *mut f32) = exp_all);

    #[inline(always)]
    unsafe fn sum_all<S: Simd>(x: *const f32, out: *mut f32) {
        // SAFETY: the test passes 16 values.
        unsafe { *out = sum::<S>(S::load(x)) }
    }
    dispatch!(unsafe fn sum_at(x: *const f32, out: *mut f32) = sum_all);

    #[inline(always)]
    unsafe fn widen_all<S: Simd>(x: *const u16, out: *mut f32) {
        // SAFETY: the test passes 32 values.
        unsafe {
            let (even, odd) = S::load_bf16_pairs(x);
            S::store(out, even);
            S::store(out.add(LANES), odd);
        }
    }
    dispatch!(unsafe fn widen_at(x: *const u16, out: *mut f32) = widen_all);

    #[test]
    fn exp_is_accurate_at_every_level() {
        for level in SimdLevel::all_in_test() {
            for step in -870..=880 {
                let x = step as f32 * 0.1;
                let (input, mut out) = ([x; LANES], [0.0f32; LANES]);
                // SAFETY: the arrays hold 16 values; the level is available.
                unsafe { exp_at(level, input.as_ptr(), out.as_mut_ptr()) };
                let expected = f64::from(x).exp();
                let error = (f64::from(out[3]) - expected).abs() / expected;
                assert!(
                    error < 3e-7,
                    "{level:?} exp({x}) = {}, off by {error}",
                    out[3]
                );
            }
        }
    }

    #[test]
    fn exp_of_minus_infinity_is_nearly_nothing() {
        for level in SimdLevel::all_in_test() {
            let (input, mut out) = ([f32::NEG_INFINITY; LANES], [1.0f32; LANES]);
            // SAFETY: the arrays hold 16 values; the level is available.
            unsafe { exp_at(level, input.as_ptr(), out.as_mut_ptr()) };
            assert!(
                out.iter().all(|value| (0.0..1e-37).contains(value)),
                "{level:?} {out:?}"
            );
        }
    }

    #[test]
    fn sum_and_widening_at_every_level() {
        let values: [f32; LANES] = std::array::from_fn(|lane| 1.0 + lane as f32);
        let pairs: [u16; 32] =
            std::array::from_fn(|index| half::bf16::from_f32(index as f32).to_bits());
        for level in SimdLevel::all_in_test() {
            let (mut total, mut widened) = (0.0, [0.0f32; 32]);
            // SAFETY: the arrays hold what the kernels read and write; the level is available.
            unsafe {
                sum_at(level, values.as_ptr(), &raw mut total);
                widen_at(level, pairs.as_ptr(), widened.as_mut_ptr());
            }
            assert_eq!(total, 136.0, "{level:?}");
            let expected: [f32; 32] =
                std::array::from_fn(|index| if index < 16 { 2 * index } else { 2 * index - 31 } as f32);
            assert_eq!(widened, expected, "{level:?}");
        }
    }
}
