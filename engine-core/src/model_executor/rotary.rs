//! Rotary position embedding: the angles, and how checkpoints stretch them to longer contexts.
//!
//! Pairs are `(i, i + head_dim / 2)` ("rotate half"), as in all supported families.

/// Rotary settings of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// Base of the geometric row of frequencies.
    pub theta: f64,
    /// Change of the frequencies for longer contexts.
    pub scaling: RopeScaling,
}

/// How the frequencies differ from `theta^(-2i / head_dim)`.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// All divided by `factor` (position interpolation).
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1's: long waves divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// The divisor of long waves.
        factor: f64,
        /// Waves longer than `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Waves shorter than `original_max_position_embeddings / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context before the stretch.
        original_max_position_embeddings: usize,
    },
}

impl RopeParameters {
    /// `[head_dim / 2]` angle per position of each pair.
    pub fn inverse_frequencies(&self, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|pair| {
                let frequency = self.theta.powf(-((2 * pair) as f64) / head_dim as f64);
                self.scaling.scale(frequency) as f32
            })
            .collect()
    }

    /// Cosines and sines of every position below `max_model_len`.
    pub fn table(&self, head_dim: usize, max_model_len: usize) -> RotaryTable {
        let frequencies = self.inverse_frequencies(head_dim);
        let mut table = RotaryTable {
            half: head_dim / 2,
            cos: Vec::with_capacity(max_model_len * frequencies.len()),
            sin: Vec::with_capacity(max_model_len * frequencies.len()),
        };
        for position in 0..max_model_len {
            for frequency in &frequencies {
                // The angle is rounded to f32, since the models were trained with such angles.
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                table.cos.push(cos as f32);
                table.sin.push(sin as f32);
            }
        }
        table
    }
}

impl RopeScaling {
    fn scale(&self, frequency: f64) -> f64 {
        match *self {
            Self::Default => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let wavelength = 2.0 * std::f64::consts::PI / frequency;
                let waves = original_max_position_embeddings as f64 / wavelength;
                // 0 for long waves, 1 for short ones.
                let kept = (waves - low_freq_factor) / (high_freq_factor - low_freq_factor);
                let kept = kept.clamp(0.0, 1.0);
                (1.0 - kept) * frequency / factor + kept * frequency
            }
        }
    }
}

/// Cosines and sines by position.
#[derive(Debug, Clone)]
pub struct RotaryTable {
    /// Pairs of a head, `head_dim / 2`.
    pub half: usize,
    /// `[max_model_len, half]`
    pub cos: Vec<f32>,
    /// `[max_model_len, half]`
    pub sin: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_frequencies_are_a_geometric_row() {
        let rope = RopeParameters {
            theta: 10_000.0,
            scaling: RopeScaling::Default,
        };
        let frequencies = rope.inverse_frequencies(8);
        for (found, expected) in frequencies.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((found - expected).abs() < 1e-7, "{frequencies:?}");
        }
    }

    #[test]
    fn linear_divides_all() {
        let plain = RopeParameters {
            theta: 10_000.0,
            scaling: RopeScaling::Default,
        };
        let linear = RopeParameters {
            scaling: RopeScaling::Linear { factor: 4.0 },
            ..plain.clone()
        };
        let pairs = plain
            .inverse_frequencies(16)
            .into_iter()
            .zip(linear.inverse_frequencies(16));
        assert!(
            pairs
                .into_iter()
                .all(|(plain, linear)| plain / 4.0 == linear)
        );
    }

    #[test]
    fn llama3_keeps_short_waves_and_divides_long_ones() {
        let plain = RopeParameters {
            theta: 500_000.0,
            scaling: RopeScaling::Default,
        };
        let llama3 = RopeParameters {
            theta: 500_000.0,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_embeddings: 8192,
            },
        };
        let (plain, scaled) = (
            plain.inverse_frequencies(128),
            llama3.inverse_frequencies(128),
        );
        assert_eq!(plain[0], scaled[0]);
        assert!((plain[63] / 8.0 - scaled[63]).abs() <= f32::EPSILON * scaled[63]);
        // Wavelength 2 pi / f between 2048 and 8192 lies on the ramp.
        let ramp = plain
            .iter()
            .position(|f| (0.0010..0.0025).contains(f))
            .unwrap();
        assert!(scaled[ramp] < plain[ramp] && scaled[ramp] > plain[ramp] / 8.0);
    }

    #[test]
    fn the_table_holds_cosine_and_sine_of_position_times_frequency() {
        let rope = RopeParameters {
            theta: 100.0,
            scaling: RopeScaling::Default,
        };
        let table = rope.table(4, 3);
        assert_eq!(table.half, 2);
        assert_eq!(table.cos[..2], [1.0, 1.0]);
        assert_eq!(table.sin[..2], [0.0, 0.0]);
        assert!((table.cos[2 * 2 + 1] - 0.2_f32.cos()).abs() < 1e-7);
        assert!((table.sin[2 * 2] - 2.0_f32.sin()).abs() < 1e-7);
    }
}
