//! From the bytes of one block to its values.
//!
//! Layouts as ggml's `block_*` structures have them; scales are half precision. Of a block of 32
//! in 4 or 5 bits, the low nibbles are its first half and the high ones its second.

use half::f16;

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

/// See [`TensorType::symmetric_block`].
#[inline]
pub(crate) fn symmetric(format: TensorType, block: &[u8]) -> Option<(f16, [i8; 32])> {
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

/// See [`TensorType::dequantize_block`].
#[inline]
pub(crate) fn dequantize(format: TensorType, block: &[u8], values: &mut [f32; MAX_BLOCK_LEN]) {
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
        TensorType::Q4K => q4_k(block, values),
        TensorType::Q5K => q5_k(block, values),
        TensorType::Q6K => q6_k(block, values),
        TensorType::F32 | TensorType::F16 | TensorType::BF16 | TensorType::Unsupported(_) => {
            unreachable!("{format} has no blocks")
        }
    }
}

/// Scale and minimum of group `group` (of 8), 6 bits each in 12 bytes: the first four groups have
/// theirs in the low bits of bytes 0 to 7, the others in bytes 8 to 11 and the top bits of those.
#[inline(always)]
fn scale_and_minimum(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        (
            packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
            packed[group + 4] >> 4 | packed[group] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(minimum))
}

/// `d, dmin: f16`, 12 bytes of scales and minimums, 128 bytes of nibbles: 32 bytes hold one group
/// in their low and the next in their high nibbles.
fn q4_k(block: &[u8], values: &mut [f32; MAX_BLOCK_LEN]) {
    let (d, d_min) = (f16_at(block, 0).to_f32(), f16_at(block, 2).to_f32());
    let (packed, stored) = (&block[4..16], &block[16..144]);
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(packed, group);
        let (scale, minimum) = (d * scale, d_min * minimum);
        let bytes = &stored[group / 2 * 32..][..32];
        for (value, byte) in values.iter_mut().zip(bytes) {
            let nibble = byte >> (group % 2 * 4) & 15;
            *value = scale * f32::from(nibble) - minimum;
        }
    }
}

/// As [`q4_k`], with 32 bytes before the nibbles: bit `group` of byte `i` is the fifth bit of value
/// `i` of the group.
fn q5_k(block: &[u8], values: &mut [f32; MAX_BLOCK_LEN]) {
    let (d, d_min) = (f16_at(block, 0).to_f32(), f16_at(block, 2).to_f32());
    let (packed, upper, stored) = (&block[4..16], &block[16..48], &block[48..176]);
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(packed, group);
        let (scale, minimum) = (d * scale, d_min * minimum);
        let bytes = stored[group / 2 * 32..][..32].iter().zip(upper);
        for (value, (byte, upper)) in values.iter_mut().zip(bytes) {
            let integer = byte >> (group % 2 * 4) & 15 | (upper >> group & 1) << 4;
            *value = scale * f32::from(integer) - minimum;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of upper pairs of bits, 16 scales of 8 bits, `d: f16`. Each
/// half of the block is 4 rows of 32: rows 0 and 1 are the low nibbles of its 64 bytes, rows 2 and
/// 3 the high ones; a byte of the upper bits holds those of one column of all 4 rows.
fn q6_k(block: &[u8], values: &mut [f32; MAX_BLOCK_LEN]) {
    let (lower, upper, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = f16_at(block, 208).to_f32();
    for (row, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (half, row) = (row / 4, row % 4);
        let lower = &lower[half * 64 + row % 2 * 32..][..32];
        let upper = &upper[half * 32..][..32];
        for (col, value) in values.iter_mut().enumerate() {
            let low = lower[col] >> (row / 2 * 4) & 15;
            let high = upper[col] >> (row * 2) & 3;
            let integer = (low | high << 4) as i8 - 32;
            let scale = scales[half * 8 + row * 2 + col / 16] as i8;
            *value = d * f32::from(scale) * f32::from(integer);
        }
    }
}
