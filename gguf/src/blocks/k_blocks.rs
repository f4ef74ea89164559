//! Blocks of 256 integers whose groups have scales of their own ("K-quants").
//!
//! Layouts as ggml's `block_q4_K`, `block_q5_K` and `block_q6_K` have them.

use half::f16;

use super::f16_at;
use crate::tensor_type::TensorType;

/// Values of a block.
pub const K_BLOCK_LEN: usize = 256;

/// The content of a block of [`TensorType::Q4K`], [`TensorType::Q5K`] or [`TensorType::Q6K`].
///
/// Value `i` is `d * scale * (integer - zero) - d_min * minimum`. Of 4 and 5 bits, scales and
/// minimums are those of group `i / 32`, and `zero` is 0. Of 6 bits, scales are those of group
/// `i / 16`, `zero` is 32, and there are no minimums.
#[derive(Debug, Clone, PartialEq)]
pub struct KBlock {
    /// What a scale of 1 is worth.
    pub d: f16,
    /// What a minimum of 1 is worth.
    pub d_min: f16,
    /// By group: `0..64` for 8 groups, or any for 16.
    pub scales: [i8; 16],
    /// By group of 32: `0..64`.
    pub minimums: [u8; 8],
    /// `0..16`, `0..32` or `0..64`.
    pub integers: [u8; K_BLOCK_LEN],
}

impl KBlock {
    /// Reads a block; `None` for other formats.
    ///
    /// # Panics
    /// Where `block` is shorter than the format's.
    pub fn read(format: TensorType, block: &[u8]) -> Option<Self> {
        Some(match format {
            TensorType::Q4K => q4_k(block),
            TensorType::Q5K => q5_k(block),
            TensorType::Q6K => q6_k(block),
            _ => return None,
        })
    }

    /// Writes its values, by the arithmetic of the format's reference implementation.
    pub(super) fn dequantize(&self, format: TensorType, values: &mut [f32; K_BLOCK_LEN]) {
        let (d, d_min) = (self.d.to_f32(), self.d_min.to_f32());
        for (index, (value, integer)) in values.iter_mut().zip(self.integers).enumerate() {
            *value = if format == TensorType::Q6K {
                d * f32::from(self.scales[index / 16]) * f32::from(integer as i8 - 32)
            } else {
                let group = index / 32;
                let minimum = d_min * f32::from(self.minimums[group]);
                d * f32::from(self.scales[group]) * f32::from(integer) - minimum
            };
        }
    }
}

/// Scales and minimums of 8 groups, 6 bits each in 12 bytes: the first four groups have theirs in
/// the low bits of bytes 0 to 7, the others in bytes 8 to 11 and the top bits of those.
fn scales_and_minimums(packed: &[u8]) -> ([i8; 16], [u8; 8]) {
    let (mut scales, mut minimums) = ([0; 16], [0; 8]);
    for group in 0..8 {
        let (scale, minimum) = if group < 4 {
            (packed[group] & 63, packed[group + 4] & 63)
        } else {
            (
                packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
                packed[group + 4] >> 4 | packed[group] >> 6 << 4,
            )
        };
        scales[group] = scale as i8;
        minimums[group] = minimum;
    }
    (scales, minimums)
}

/// Nibbles: 32 bytes hold one group in their low and the next in their high halves.
fn nibbles(stored: &[u8]) -> [u8; K_BLOCK_LEN] {
    std::array::from_fn(|index| {
        let (group, at) = (index / 32, index % 32);
        stored[group / 2 * 32 + at] >> (group % 2 * 4) & 15
    })
}

/// `d, dmin: f16`, 12 bytes of scales and minimums, 128 bytes of nibbles.
fn q4_k(block: &[u8]) -> KBlock {
    let (scales, minimums) = scales_and_minimums(&block[4..16]);
    KBlock {
        d: f16_at(block, 0),
        d_min: f16_at(block, 2),
        scales,
        minimums,
        integers: nibbles(&block[16..144]),
    }
}

/// As [`q4_k`], with 32 bytes before the nibbles: bit `group` of byte `i` is the fifth bit of value
/// `i` of the group.
fn q5_k(block: &[u8]) -> KBlock {
    let (scales, minimums) = scales_and_minimums(&block[4..16]);
    let upper = &block[16..48];
    let mut integers = nibbles(&block[48..176]);
    for (index, integer) in integers.iter_mut().enumerate() {
        *integer |= (upper[index % 32] >> (index / 32) & 1) << 4;
    }
    KBlock {
        d: f16_at(block, 0),
        d_min: f16_at(block, 2),
        scales,
        minimums,
        integers,
    }
}

/// 128 bytes of low nibbles, 64 bytes of upper pairs of bits, 16 scales of 8 bits, `d: f16`. Each
/// half of the block is 4 rows of 32: rows 0 and 1 are the low nibbles of its 64 bytes, rows 2 and
/// 3 the high ones; a byte of the upper bits holds those of one column of all 4 rows.
fn q6_k(block: &[u8]) -> KBlock {
    let (lower, upper, scales) = (&block[..128], &block[128..192], &block[192..208]);
    KBlock {
        d: f16_at(block, 208),
        d_min: f16::ZERO,
        scales: std::array::from_fn(|group| scales[group] as i8),
        minimums: [0; 8],
        integers: std::array::from_fn(|index| {
            let (half, row, col) = (index / 128, index / 32 % 4, index % 32);
            let low = lower[half * 64 + row % 2 * 32 + col] >> (row / 2 * 4) & 15;
            let high = upper[half * 32 + col] >> (row * 2) & 3;
            low | high << 4
        }),
    }
}
