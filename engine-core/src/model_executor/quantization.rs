//! Quantized weights as files have them: groups of 32 values along a row with one scale, as GGUF's Q8_0
//! and Q4_0. What is quantized here has wider ones ([`super::wide_quantization`]).

use half::f16;

/// Values that share a scale.
pub(crate) const GROUP: usize = 32;

/// A quantized number format. Values are `scale * (stored - zero)`, `stored` being
/// unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuantizedFormat {
    /// 8 bits per value, `-127..=127` (`-128` where a file has it), and a 16-bit scale.
    Q8_0,
    /// 4 bits per value, `-8..=7`, and a 16-bit scale.
    Q4_0,
}

impl QuantizedFormat {
    /// What is stored for 0.
    pub(crate) const fn zero(self) -> u8 {
        match self {
            Self::Q8_0 => 128,
            Self::Q4_0 => 8,
        }
    }

    /// What it is called in files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// The group nearest to `values`.
    pub(crate) fn quantize(self, values: &[f32; GROUP]) -> Group {
        match self {
            Self::Q8_0 => quantize_q8_0(values),
            Self::Q4_0 => quantize_q4_0(values),
        }
    }
}

/// A format of GGUF files with blocks of 256 values, whose groups have scales of their own. Kept as it
/// is, and never made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KFormat {
    /// 6 bits per value, groups of 16 with a scale.
    Q6K,
    /// 5 bits per value, groups of 32 with scale and minimum.
    Q5K,
    /// 4 bits per value, groups of 32 with scale and minimum.
    Q4K,
}

impl KFormat {
    /// The type of tensors in it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Q6K => "q6_k",
            Self::Q5K => "q5_k",
            Self::Q4K => "q4_k",
        }
    }

    pub(crate) const fn tensor_type(self) -> gguf::TensorType {
        match self {
            Self::Q6K => gguf::TensorType::Q6K,
            Self::Q5K => gguf::TensorType::Q5K,
            Self::Q4K => gguf::TensorType::Q4K,
        }
    }
}

/// 32 values with their scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Group {
    /// What a step of 1 is worth.
    pub(crate) scale: f16,
    /// `-128..=127`, or `-8..=7`.
    pub(crate) values: [i8; GROUP],
}

impl Group {
    /// Value `index` of the group.
    pub(crate) fn to_f32(self, index: usize) -> f32 {
        self.scale.to_f32() * f32::from(self.values[index])
    }
}

/// Symmetric: the largest magnitude becomes 127.
fn quantize_q8_0(values: &[f32; GROUP]) -> Group {
    let largest = values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let scale = f16::from_f32(largest / 127.0);
    Group {
        scale,
        values: rounded(values, scale, -127.0, 127.0),
    }
}

/// The largest magnitude becomes -8 or a little more, whichever of some scales has the least
/// squared error. A scale of either sign is tried, since there is no +8.
fn quantize_q4_0(values: &[f32; GROUP]) -> Group {
    let extreme = values.iter().fold(
        0.0f32,
        |most, v| if v.abs() > most.abs() { *v } else { most },
    );
    let mut best = Group {
        scale: f16::ZERO,
        values: [0; GROUP],
    };
    if extreme == 0.0 {
        return best;
    }
    let mut least_error = f32::INFINITY;
    for divisor in [-8.0, -8.5, -7.5, -7.0, 7.0, 7.5] {
        let scale = f16::from_f32(extreme / divisor);
        let group = Group {
            scale,
            values: rounded(values, scale, -8.0, 7.0),
        };
        let scale = scale.to_f32();
        let mut error = 0.0;
        for (value, quantized) in values.iter().zip(&group.values) {
            let difference = value - scale * f32::from(*quantized);
            error += difference * difference;
        }
        if error < least_error {
            (best, least_error) = (group, error);
        }
    }
    best
}

fn rounded(values: &[f32; GROUP], scale: f16, least: f32, most: f32) -> [i8; GROUP] {
    let scale = scale.to_f32();
    // A scale too small for 16 bits is 0, and so is then the group.
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut result = [0; GROUP];
    for (result, value) in result.iter_mut().zip(values) {
        // Adding and taking away 1.5 * 2^23 rounds to a whole number, ties to even, by plain
        // arithmetic that any processor does for several values at once.
        const ROUND: f32 = 12_582_912.0;
        let whole = (value * inverse).clamp(least, most) + ROUND - ROUND;
        *result = whole as i8;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(step: f32) -> [f32; GROUP] {
        std::array::from_fn(|i| (i as f32 * step).sin() * 0.3)
    }

    #[test]
    fn errors_are_at_most_half_a_step() {
        for step in [0.1, 0.7, 1.3] {
            let values = wave(step);
            let group = QuantizedFormat::Q8_0.quantize(&values);
            for (index, value) in values.iter().enumerate() {
                let error = (group.to_f32(index) - value).abs();
                // The scale itself is rounded to 11 bits.
                assert!(error <= group.scale.to_f32() * 0.57, "{step}: {error}");
            }
            let group = QuantizedFormat::Q4_0.quantize(&values);
            let squares: f32 = (0..GROUP)
                .map(|i| (group.to_f32(i) - values[i]).powi(2))
                .sum();
            let step_of_7 = 0.3 / 7.0;
            assert!((squares / GROUP as f32).sqrt() < step_of_7 * 0.4, "{step}");
            assert!(group.values.iter().all(|q| (-8..=7).contains(q)));
        }
    }

    #[test]
    fn what_a_format_can_hold_is_held_exactly() {
        let scale = f16::from_f32(0.0625);
        let exact = |format: QuantizedFormat, value: fn(usize) -> i8| {
            let values = std::array::from_fn(|i| scale.to_f32() * f32::from(value(i)));
            let group = format.quantize(&values);
            (0..GROUP).for_each(|i| assert_eq!(group.to_f32(i), values[i], "{format:?} {i}"));
        };
        exact(QuantizedFormat::Q8_0, |i| (i as i8 - 16) * 7 - 15);
        exact(QuantizedFormat::Q4_0, |i| i as i8 / 2 - 8);
    }

    #[test]
    fn nothing_and_nearly_nothing_are_zero() {
        for format in [QuantizedFormat::Q8_0, QuantizedFormat::Q4_0] {
            for value in [0.0, 1e-12, -1e-12] {
                let group = format.quantize(&[value; GROUP]);
                (0..GROUP).for_each(|i| assert_eq!(group.to_f32(i), 0.0, "{format:?} {value}"));
            }
        }
    }
}
