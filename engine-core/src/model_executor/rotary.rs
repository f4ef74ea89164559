//! Rotary position embedding: the angles, and how checkpoints stretch them to longer contexts.
//!
//! Pairs are `(i, i + rotated / 2)` ("rotate half") of the first `rotated` dimensions of a head, in
//! most families all of them.

use std::sync::OnceLock;

/// Rotary settings of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// Base of the geometric row of frequencies.
    pub theta: f64,
    /// Share of a head's dimensions that is rotated.
    pub partial_rotary_factor: f64,
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
    /// LongRoPE (Ding et al., 2024): each pair divided by a factor of its own. A model that serves
    /// sequences beyond the original length takes the long factors for all of them, so that a
    /// cached key stays right while its sequence grows.
    LongRope {
        /// `[rotated / 2]` factors up to the original length.
        short_factor: Vec<f64>,
        /// `[rotated / 2]` factors beyond it.
        long_factor: Vec<f64>,
        /// Context before the stretch.
        original_max_position_embeddings: usize,
        /// What cosines and sines are multiplied with.
        attention_factor: f64,
    },
}

impl RopeParameters {
    /// Dimensions of a head that are rotated.
    pub fn rotated_dims(&self, head_dim: usize) -> usize {
        (head_dim as f64 * self.partial_rotary_factor) as usize
    }

    /// `[rotated / 2]` angle per position of each pair, in a model that serves sequences of up to
    /// `max_model_len`.
    pub fn inverse_frequencies(&self, head_dim: usize, max_model_len: usize) -> Vec<f32> {
        let rotated = self.rotated_dims(head_dim);
        (0..rotated / 2)
            .map(|pair| {
                let frequency = self.theta.powf(-((2 * pair) as f64) / rotated as f64);
                self.scaling.scale(frequency, pair, max_model_len) as f32
            })
            .collect()
    }

    /// Cosines and sines of every position below `max_model_len`.
    pub fn table(&self, head_dim: usize, max_model_len: usize) -> RotaryTable {
        let attention_factor = match self.scaling {
            RopeScaling::LongRope {
                attention_factor, ..
            } => attention_factor,
            _ => 1.0,
        };
        let num_pieces = max_model_len.div_ceil(PIECE_POSITIONS);
        RotaryTable {
            frequencies: self.inverse_frequencies(head_dim, max_model_len),
            attention_factor,
            pieces: (0..num_pieces).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl RopeScaling {
    fn scale(&self, frequency: f64, pair: usize, max_model_len: usize) -> f64 {
        match *self {
            Self::Default => frequency,
            Self::LongRope {
                ref short_factor,
                ref long_factor,
                original_max_position_embeddings,
                ..
            } => {
                let factors = if max_model_len > original_max_position_embeddings {
                    long_factor
                } else {
                    short_factor
                };
                frequency / factors.get(pair).copied().unwrap_or(1.0)
            }
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

/// Positions whose angles are computed at once, where a sequence first comes to one of them: 0.3 ms for
/// 64 pairs.
const PIECE_POSITIONS: usize = 256;

/// Cosines and sines by position. A model may serve a million positions, of which most are never
/// reached, so a piece takes memory (`8 * half` bytes per position) when one of its positions is.
#[derive(Debug, Clone)]
pub struct RotaryTable {
    /// `[half]` angle per position of each pair of a head.
    frequencies: Vec<f32>,
    /// What cosines and sines are multiplied with.
    attention_factor: f64,
    /// By `position / PIECE_POSITIONS`: `[PIECE_POSITIONS, 2, half]`, cosines before sines.
    pieces: Box<[OnceLock<Box<[f32]>>]>,
}

impl RotaryTable {
    /// Pairs of a head, at most `head_dim / 2`.
    pub fn half(&self) -> usize {
        self.frequencies.len()
    }

    /// `[half]` cosines and `[half]` sines of a position.
    ///
    /// # Panics
    /// Where the position isn't below the table's `max_model_len`, rounded up to whole pieces:
    /// `ForwardInput::validate` sees to it.
    pub fn angles(&self, position: usize) -> (&[f32], &[f32]) {
        let (piece, row) = (position / PIECE_POSITIONS, position % PIECE_POSITIONS);
        let angles = self.pieces[piece].get_or_init(|| self.compute(piece * PIECE_POSITIONS));
        let row = row * 2 * self.half();
        angles[row..row + 2 * self.half()].split_at(self.half())
    }

    /// A piece that begins at a position.
    fn compute(&self, first: usize) -> Box<[f32]> {
        let half = self.half();
        let mut angles = vec![0.0; PIECE_POSITIONS * 2 * half];
        for (position, row) in (first..).zip(angles.chunks_exact_mut((2 * half).max(1))) {
            let (cosines, sines) = row.split_at_mut(half);
            for ((cosine, sine), frequency) in cosines.iter_mut().zip(sines).zip(&self.frequencies)
            {
                // The angle is rounded to f32, since the models were trained with such angles.
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                *cosine = (cos * self.attention_factor) as f32;
                *sine = (sin * self.attention_factor) as f32;
            }
        }
        angles.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_frequencies_are_a_geometric_row() {
        let rope = RopeParameters {
            theta: 10_000.0,
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Default,
        };
        let frequencies = rope.inverse_frequencies(8, 512);
        for (found, expected) in frequencies.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((found - expected).abs() < 1e-7, "{frequencies:?}");
        }
    }

    #[test]
    fn linear_divides_all() {
        let plain = RopeParameters {
            theta: 10_000.0,
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Default,
        };
        let linear = RopeParameters {
            scaling: RopeScaling::Linear { factor: 4.0 },
            ..plain.clone()
        };
        let pairs = plain
            .inverse_frequencies(16, 512)
            .into_iter()
            .zip(linear.inverse_frequencies(16, 512));
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
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Default,
        };
        let llama3 = RopeParameters {
            theta: 500_000.0,
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_embeddings: 8192,
            },
        };
        let (plain, scaled) = (
            plain.inverse_frequencies(128, 512),
            llama3.inverse_frequencies(128, 512),
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
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Default,
        };
        let table = rope.table(4, 3);
        assert_eq!(table.half(), 2);
        assert_eq!(table.angles(0), (&[1.0, 1.0][..], &[0.0, 0.0][..]));
        let (cos, sin) = table.angles(2);
        assert!((cos[1] - 0.2_f32.cos()).abs() < 1e-7);
        assert!((sin[0] - 2.0_f32.sin()).abs() < 1e-7);
    }

    #[test]
    fn angles_take_memory_where_a_sequence_has_come_to_them() {
        let rope = RopeParameters {
            theta: 1e7,
            partial_rotary_factor: 1.0,
            scaling: RopeScaling::Default,
        };
        let table = rope.table(128, 1_010_000);
        let held = || {
            table
                .pieces
                .iter()
                .filter(|piece| piece.get().is_some())
                .count()
        };
        assert_eq!(held(), 0);
        let last = 1_009_999;
        let frequencies = rope.inverse_frequencies(128, 1_010_000);
        for position in [0, 255, 256, 700_001, last] {
            let (cos, sin) = table.angles(position);
            for (pair, frequency) in frequencies.iter().enumerate() {
                let angle = f64::from(position as f32 * frequency);
                assert_eq!(cos[pair], angle.cos() as f32, "{position} {pair}");
                assert_eq!(sin[pair], angle.sin() as f32, "{position} {pair}");
            }
        }
        assert_eq!(held(), 4);
    }

    #[test]
    fn longrope_divides_each_pair_by_the_factors_of_the_served_length() {
        let rope = RopeParameters {
            theta: 100.0,
            partial_rotary_factor: 0.5,
            scaling: RopeScaling::LongRope {
                short_factor: vec![1.0, 2.0],
                long_factor: vec![4.0, 8.0],
                original_max_position_embeddings: 16,
                attention_factor: 1.5,
            },
        };
        assert_eq!(rope.inverse_frequencies(8, 16), [1.0, 0.05]);
        assert_eq!(rope.inverse_frequencies(8, 17), [0.25, 0.0125]);
        let table = rope.table(8, 3);
        assert_eq!(table.half(), 2);
        assert!((table.angles(1).0[0] - 1.5 * 1.0_f32.cos()).abs() < 1e-6);
        assert!((table.angles(2).1[1] - 1.5 * 0.1_f32.sin()).abs() < 1e-6);
    }
}
