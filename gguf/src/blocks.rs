//! From the bytes of one block to its values.
//!
//! Layouts as ggml's `block_*` structures have them; scales are half precision. Of a block of 32
//! in 4 or 5 bits, the low nibbles are its first half and the high ones its second.

mod k_blocks;

use half::f16;

pub use self::k_blocks::{K_BLOCK_LEN, KBlock};
use crate::tensor_type::{MAX_BLOCK_LEN, TensorType};

/// The half-precision number at a byte of a block.
#[inline(always)]
fn f16_at(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// Both nibbles of 16 bytes: the low ones, then the high ones.
#[inline(always)]
fn nibbles(bytes: &[u8], each: &mut [u8; 32]) {
    for (index, byte) in bytes.iter().enumerate() {
        each[index] = byte & 15;
        each[index + 16] = byte >> 4;
    }
}

/// The integers of a block of 5 bits whose upper bits stand at `at` and the others after them.
#[inline(always)]
fn five_bits(block: &[u8], at: usize) -> [u8; 32] {
    let mut each = [0; 32];
    let upper = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    nibbles(&block[at + 4..], &mut each);
    for (index, value) in each.iter_mut().enumerate() {
        *value |= ((upper >> index & 1) as u8) << 4;
    }
    each
}

impl TensorType {
    /// Writes the values of one block of a quantized format.
    ///
    /// # Panics
    /// Where `block` has another length than [`Self::block`] says, or the format is none of
    /// blocks (floats, unsupported).
    #[inline]
    pub fn dequantize_block(self, block: &[u8], values: &mut [f32; MAX_BLOCK_LEN]) {
        dequantize(self, block, values);
    }

    /// The integers and the scale of one block of [`Self::Q8_0`], [`Self::Q4_0`] or
    /// [`Self::Q5_0`]: values are exactly their products. `None` for other formats.
    #[inline]
    pub fn symmetric_block(self, block: &[u8]) -> Option<(f16, [i8; 32])> {
        symmetric(self, block)
    }
}

#[inline]
fn symmetric(format: TensorType, block: &[u8]) -> Option<(f16, [i8; 32])> {
    let mut stored = [0; 32];
    let zero = match format {
        TensorType::Q8_0 => {
            let values = std::array::from_fn(|index| block[2 + index] as i8);
            return Some((f16_at(block, 0), values));
        }
        TensorType::Q4_0 => {
            nibbles(&block[2..18], &mut stored);
            8
        }
        TensorType::Q5_0 => {
            stored = five_bits(block, 2);
            16
        }
        _ => return None,
    };
    Some((f16_at(block, 0), stored.map(|value| value as i8 - zero)))
}

#[inline]
fn dequantize(format: TensorType, block: &[u8], values: &mut [f32; MAX_BLOCK_LEN]) {
    match format {
        TensorType::Q8_0 | TensorType::Q4_0 | TensorType::Q5_0 => {
            if let Some((scale, integers)) = symmetric(format, block) {
                let scale = scale.to_f32();
                for (value, integer) in values.iter_mut().zip(integers) {
                    *value = scale * f32::from(integer);
                }
            }
        }
        TensorType::Q4_1 | TensorType::Q5_1 => {
            let (scale, least) = (f16_at(block, 0).to_f32(), f16_at(block, 2).to_f32());
            let mut stored = [0; 32];
            match format {
                TensorType::Q4_1 => nibbles(&block[4..20], &mut stored),
                _ => stored = five_bits(block, 4),
            }
            for (value, stored) in values.iter_mut().zip(stored) {
                *value = scale * f32::from(stored) + least;
            }
        }
        TensorType::Q4K | TensorType::Q5K | TensorType::Q6K => {
            if let Some(block) = KBlock::read(format, block) {
                block.dequantize(format, values);
            }
        }
        TensorType::F32 | TensorType::F16 | TensorType::BF16 | TensorType::Unsupported(_) => {
            unreachable!("{format} has no blocks")
        }
    }
}
