//! `exp` and `ln` from IEEE additions, multiplications and divisions alone.
//!
//! The standard library's come from the platform's C library, whose last bits differ between
//! machines, and a sampled token must not. These also vectorise, which a call cannot.

/// `x` below this gives a number (about 1e-307) that vanishes in any sum with a 1 in it.
const EXP_MIN: f64 = -708.0;
const EXP_MAX: f64 = 709.0;

/// `1 / n!` for n = 0 to 13: the Taylor polynomial of `exp`.
const INVERSE_FACTORIALS: [f64; 14] = [
    1.0,
    1.0,
    0.5,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
    1.0 / 6_227_020_800.0,
];

/// e to the power of `x`, within 2 units in the last place.
///
/// `x` is first brought into `-708..=709`, so -inf gives about 1e-307 and nothing overflows.
/// Method: `x = k ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial for `e^r`, and `2^k` by its bits.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    /// Adding this leaves the nearest integer in the low bits of the sum: 1.5 * 2^52.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// ln 2 in two parts; the first has trailing zeros, so its product with `k` is exact.
    const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

    let x = if x > EXP_MIN { x } else { EXP_MIN };
    let x = if x < EXP_MAX { x } else { EXP_MAX };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    // Estrin's scheme: a quarter of the latency of Horner's, which would be the bottleneck.
    let c = &INVERSE_FACTORIALS;
    let pair = |n: usize| c[n] + c[n + 1] * r;
    let r2 = r * r;
    let r4 = r2 * r2;
    let low = (pair(0) + pair(2) * r2) + (pair(4) + pair(6) * r2) * r4;
    let high = (pair(8) + pair(10) * r2) + pair(12) * r4;
    let power = low + high * (r4 * r4);
    let two_to_k = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    power * two_to_k
}

/// e to the power of `x <= 0`, within a millionth of itself down to e^-87, which any smaller one is taken
/// for. Half as wide as [`exp`] and a third of its operations: for sums that need only be known about.
#[inline(always)]
pub(super) fn exp_nearly(x: f32) -> f32 {
    /// The last power of 2 of it is a normal number.
    const MIN: f32 = -87.0;
    /// 1.5 * 2^23, as in [`exp`].
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = f32::from_bits(0x3f31_7200);
    const LN_2_LOW: f32 = f32::from_bits(0x35bf_be8e);

    let x = if x > MIN { x } else { MIN };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let c = |n: usize| INVERSE_FACTORIALS[n] as f32;
    let r2 = r * r;
    let low = (c(0) + r) + (c(2) + c(3) * r) * r2;
    let high = (c(4) + c(5) * r) + c(6) * r2;
    let power = low + high * (r2 * r2);
    let two_to_k = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    power * two_to_k
}

/// Natural logarithm of a positive normal number.
///
/// Method: `x = m 2^e` with `m` in `sqrt(1/2)..sqrt(2)`, and `ln m = 2 atanh((m - 1) / (m + 1))`.
pub(super) fn ln(x: f64) -> f64 {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let bits = x.to_bits();
    let exponent = bits.wrapping_sub(SQRT_HALF).cast_signed() >> 52;
    let m = f64::from_bits(bits.wrapping_sub(exponent.cast_unsigned() << 52));
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * atanh((m - 1.0) / (m + 1.0))
}

/// `-ln(1 - v)` for `0 <= v <= 1/2`, exact to the last bits however small `v` is.
pub(super) fn neg_ln_one_minus(v: f64) -> f64 {
    2.0 * atanh(v / (2.0 - v))
}

/// The series `s + s^3/3 + s^5/5 + ...`, for `|s| <= 1/3`.
fn atanh(s: f64) -> f64 {
    /// The next term is below 2^-56 of the sum at `s = 1/3`.
    const TERMS: u32 = 17;
    let square = s * s;
    let mut sum = 0.0;
    for n in (0..TERMS).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    sum * s
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_close(ours: f64, reference: f64, what: f64) {
        // Two units in the last place of ours, and one of the standard library.
        let tolerance = 7e-16 * reference.abs().max(f64::MIN_POSITIVE);
        assert!(
            (ours - reference).abs() <= tolerance,
            "at {what}: {ours} is not {reference}"
        );
    }

    #[test]
    fn known_values_are_exact() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(2.0), std::f64::consts::LN_2);
        assert_eq!(neg_ln_one_minus(0.0), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY) + 1.0, 1.0);
        assert!(exp(f64::INFINITY).is_finite());
        assert_eq!(exp_nearly(0.0), 1.0);
        assert_eq!(exp_nearly(f32::NEG_INFINITY), exp_nearly(-87.0));
    }

    proptest! {
        #[test]
        fn exp_nearly_is_that_near(x in -87.0..=0.0f32) {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_nearly(x)) - exact).abs();
            prop_assert!(error <= 1e-6 * exact, "at {}: off by {}", x, error / exact);
            prop_assert_eq!(exp_nearly(x - 87.0), exp_nearly(-87.0));
        }

        #[test]
        fn exp_is_the_standard_librarys(x in -700.0..700.0f64) {
            assert_close(exp(x), x.exp(), x);
        }

        #[test]
        fn ln_is_the_standard_librarys(exponent in -1000.0..1000.0f64, near_one in 0.5..2.0f64) {
            let x = exponent.exp2();
            assert_close(ln(x), x.ln(), x);
            let error = (ln(near_one) - near_one.ln()).abs();
            prop_assert!(error <= 2e-16, "at {}: off by {}", near_one, error);
        }

        #[test]
        fn neg_ln_one_minus_is_the_standard_librarys(exponent in 1.0..66.0f64) {
            let v = (-exponent).exp2();
            assert_close(neg_ln_one_minus(v), -(-v).ln_1p(), v);
        }
    }
}
