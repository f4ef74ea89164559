//! Weights that are quantized here: wide groups of 256 values along a row.
//!
//! Files keep the groups that they have ([`super::quantization`]). A wide group's sums of products are
//! scaled an eighth as often, which is most of what such a product costs, and it has fewer scales to read.

use half::f16;

/// Values that share a scale.
pub(crate) const WIDE_GROUP: usize = 256;

/// Values that share a factor.
pub(crate) const FACTOR_GROUP: usize = 32;

/// Factors of a group.
pub(crate) const NUM_FACTORS: usize = WIDE_GROUP / FACTOR_GROUP;

/// A format of wide groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WideFormat {
    /// 8 bits per value, `-127..=127`, and a 16-bit scale.
    Wide8,
    /// 4 bits per value, `-8..=7`, a whole factor `1..=15` for every 32 of them, and a 16-bit scale.
    /// Values times their factors fit a signed byte.
    Wide4,
}

impl WideFormat {
    /// The group nearest to `values`.
    pub(crate) fn quantize(self, values: &[f32; WIDE_GROUP]) -> WideGroup {
        match self {
            Self::Wide8 => quantize_8(values),
            Self::Wide4 => quantize_4(values),
        }
    }

    /// What it is called in files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wide8 => "wide_8",
            Self::Wide4 => "wide_4",
        }
    }
}

/// 256 values with their scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WideGroup {
    /// What a step of 1 is worth.
    pub(crate) scale: f16,
    /// By what the values of each 32 are multiplied; 1 with 8 bits.
    pub(crate) factors: [u8; NUM_FACTORS],
    /// `-127..=127`, or `-8..=7`.
    pub(crate) values: [i8; WIDE_GROUP],
}

impl WideGroup {
    /// Nothing.
    const ZERO: Self = Self {
        scale: f16::ZERO,
        factors: [1; NUM_FACTORS],
        values: [0; WIDE_GROUP],
    };

    /// Value `index` of the group.
    pub(crate) fn to_f32(self, index: usize) -> f32 {
        let factor = i32::from(self.factors[index / FACTOR_GROUP]);
        self.scale.to_f32() * (factor * i32::from(self.values[index])) as f32
    }
}

/// Symmetric: the largest magnitude becomes 127.
fn quantize_8(values: &[f32; WIDE_GROUP]) -> WideGroup {
    let largest = values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let mut group = WideGroup {
        scale: f16::from_f32(largest / 127.0),
        ..WideGroup::ZERO
    };
    let inverse = inverse(group.scale.to_f32());
    for (to, value) in group.values.iter_mut().zip(values) {
        *to = rounded(value * inverse, -127.0, 127.0) as i8;
    }
    group
}

/// The part with the widest values gets the factor 15; of those around what a part needs, it gets the one
/// with the least squared error. What is cut off costs less than a coarser step, so most are below what
/// a part needs. The scale is then the one that suits the integers best.
fn quantize_4(values: &[f32; WIDE_GROUP]) -> WideGroup {
    const MOST: f32 = 15.0;
    let (parts, _) = values.as_chunks::<FACTOR_GROUP>();
    let mut needed = [0.0f32; NUM_FACTORS];
    for (needed, part) in needed.iter_mut().zip(parts) {
        let (least, most) = (part.iter()).fold((0.0f32, 0.0f32), |(least, most), value| {
            (least.min(*value), most.max(*value))
        });
        *needed = (most / 7.0).max(least / -8.0);
    }
    let step = needed.iter().fold(0.0f32, |most, needed| most.max(*needed)) / MOST;
    let mut group = WideGroup::ZERO;
    // Sums of products with the values, and of squares, of the whole numbers.
    let (mut products, mut squares) = (0.0f32, 0.0f32);
    for (index, (part, needed)) in parts.iter().zip(needed).enumerate() {
        let nearest = (needed * inverse(step)).round();
        let mut least_error = f32::INFINITY;
        for less in [0.0, 1.0, 2.0, 3.0] {
            let factor = (nearest - less).clamp(1.0, MOST);
            let step = step * factor;
            let inverse = inverse(step);
            let mut error = 0.0;
            let mut wholes = [0.0; FACTOR_GROUP];
            for (whole, value) in wholes.iter_mut().zip(part) {
                *whole = rounded(value * inverse, -8.0, 7.0);
                error += (value - step * *whole).powi(2);
            }
            if error < least_error {
                least_error = error;
                group.factors[index] = factor as u8;
                let to = group.values[index * FACTOR_GROUP..].iter_mut();
                to.zip(wholes).for_each(|(to, whole)| *to = whole as i8);
            }
        }
        let factor = f32::from(group.factors[index]);
        let wholes = &group.values[index * FACTOR_GROUP..][..FACTOR_GROUP];
        for (whole, value) in wholes.iter().zip(part) {
            let whole = factor * f32::from(*whole);
            // Of values over their step, so that neither sum leaves what f32 holds.
            products += whole * (value * inverse(step));
            squares += whole * whole;
        }
    }
    if squares > 0.0 {
        group.scale = f16::from_f32(step * (products / squares));
    }
    group
}

/// `1 / step`; what has no step is 0.
fn inverse(step: f32) -> f32 {
    // Below that the quotient would overflow; 16 bits hold nothing near it.
    if step > 1e-30 { 1.0 / step } else { 0.0 }
}

/// The nearest whole number, ties to even.
fn rounded(value: f32, least: f32, most: f32) -> f32 {
    // Adding and taking away 1.5 * 2^23 rounds by plain arithmetic that any processor does for several
    // values at once.
    const ROUND: f32 = 12_582_912.0;
    value.clamp(least, most) + ROUND - ROUND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(step: f32) -> [f32; WIDE_GROUP] {
        // Parts of different width.
        std::array::from_fn(|i| (i as f32 * step).sin() * 0.3 / (1 + i / FACTOR_GROUP) as f32)
    }

    fn error_of(format: WideFormat, values: &[f32; WIDE_GROUP]) -> f32 {
        let group = format.quantize(values);
        let errors = values.iter().enumerate();
        let squares: f32 = errors.map(|(i, v)| (group.to_f32(i) - v).powi(2)).sum();
        let total: f32 = values.iter().map(|value| value.powi(2)).sum();
        (squares / total).sqrt()
    }

    #[test]
    fn errors_are_small() {
        for step in [0.1, 0.7, 1.3] {
            let values = wave(step);
            let error = error_of(WideFormat::Wide8, &values);
            assert!(error < 0.01, "{step}: {error}");
            let error = error_of(WideFormat::Wide4, &values);
            assert!(error < 0.08, "{step}: {error}");
            let group = WideFormat::Wide4.quantize(&values);
            assert!(group.values.iter().all(|q| (-8..=7).contains(q)));
            assert!(group.factors.iter().all(|f| (1..=15).contains(f)));
        }
    }

    #[test]
    fn what_a_format_can_hold_is_held_exactly() {
        let scale = 0.0625;
        let values = std::array::from_fn(|i| scale * (i as f32 - 128.0).max(-127.0));
        let group = WideFormat::Wide8.quantize(&values);
        (0..WIDE_GROUP).for_each(|i| assert_eq!(group.to_f32(i), values[i], "{i}"));
        // Every part from -8 to 7 times a factor of its own, the first 15.
        let values = std::array::from_fn(|i| {
            let factor = 15 - 2 * (i / FACTOR_GROUP);
            scale * (factor as f32) * ((i % 16) as f32 - 8.0)
        });
        let group = WideFormat::Wide4.quantize(&values);
        (0..WIDE_GROUP).for_each(|i| assert_eq!(group.to_f32(i), values[i], "{i}"));
    }

    #[test]
    fn nothing_and_nearly_nothing_are_zero() {
        for format in [WideFormat::Wide8, WideFormat::Wide4] {
            for value in [0.0, 1e-12, -1e-12, 1e-38, -1e-44] {
                let group = format.quantize(&[value; WIDE_GROUP]);
                let zero = |i| assert_eq!(group.to_f32(i), 0.0, "{format:?} {value}");
                (0..WIDE_GROUP).for_each(zero);
            }
        }
    }
}
