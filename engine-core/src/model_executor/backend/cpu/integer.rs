//! Dot products of bytes, sixteen columns at a time, on whatever the processor has.
//!
//! Sums of such products are exact, so all levels give the same.

use super::simd::{LANES, Portable, Simd};

/// Sixteen lanes of 32-bit sums over products of two bytes, the first unsigned, the second signed.
///
/// # Safety
/// As for [`Simd`].
pub(crate) trait IntegerSimd: Simd {
    /// 16 sums.
    type Sums: Copy;
    /// Four unsigned bytes for each of 16 columns.
    type Bytes: Copy;
    /// 64 bytes that hold some bits of several [`Self::Bytes`].
    type Plane: Copy;
    /// Four signed bytes, the same for all columns.
    type Factors: Copy;

    /// What [`Self::load_bytes`] takes off each byte, where the processor multiplies signed ones.
    const BYTES_LESS: i32 = 0;
    /// What [`Self::load_signed`] adds to each byte, where the processor multiplies unsigned ones.
    const SIGNED_MORE: i32;

    /// All sums `value`.
    unsafe fn splat_sums(value: i32) -> Self::Sums;
    /// 64 bytes.
    unsafe fn load_bytes(from: *const u8) -> Self::Bytes;
    /// The lower and the upper halves of 64 bytes.
    unsafe fn load_nibbles(from: *const u8) -> (Self::Bytes, Self::Bytes);
    /// 64 signed bytes.
    unsafe fn load_signed(from: *const i8) -> Self::Bytes;
    /// The lower and the upper halves of 16 bytes, as f32.
    unsafe fn load_nibbles_as_f32(from: *const u8) -> (Self::V, Self::V);
    /// 64 bytes of bits.
    unsafe fn load_plane(from: *const u8) -> Self::Plane;
    /// `lower | (plane >> shift & mask) << 4` by byte; `shift` is below 8, `mask` below 16.
    unsafe fn with_upper(
        lower: Self::Bytes,
        plane: Self::Plane,
        shift: u32,
        mask: u8,
    ) -> Self::Bytes;
    /// 4 bytes.
    unsafe fn splat_factors(from: *const i8) -> Self::Factors;
    /// `sums + products of the four bytes`, by column.
    unsafe fn dot(sums: Self::Sums, bytes: Self::Bytes, factors: Self::Factors) -> Self::Sums;
    /// To the nearest f32.
    unsafe fn sums_to_f32(sums: Self::Sums) -> Self::V;
}

impl IntegerSimd for Portable {
    type Sums = [i32; LANES];
    type Bytes = [[u8; 4]; LANES];
    type Plane = [[u8; 4]; LANES];
    type Factors = [i8; 4];

    const SIGNED_MORE: i32 = 128;

    #[inline(always)]
    unsafe fn splat_sums(value: i32) -> Self::Sums {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::Bytes {
        // SAFETY: the caller vouches for 64 bytes.
        unsafe { from.cast::<Self::Bytes>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Bytes, Self::Bytes) {
        // SAFETY: the caller vouches for 64 bytes.
        let bytes = unsafe { Self::load_bytes(from) };
        (
            bytes.map(|column| column.map(|byte| byte & 15)),
            bytes.map(|column| column.map(|byte| byte >> 4)),
        )
    }
    #[inline(always)]
    unsafe fn load_signed(from: *const i8) -> Self::Bytes {
        // SAFETY: the caller vouches for 64 bytes.
        let bytes = unsafe { Self::load_bytes(from.cast()) };
        bytes.map(|column| column.map(|byte| byte ^ 128))
    }
    #[inline(always)]
    unsafe fn load_nibbles_as_f32(from: *const u8) -> (Self::V, Self::V) {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { from.cast::<[u8; LANES]>().read_unaligned() };
        (
            bytes.map(|byte| f32::from(byte & 15)),
            bytes.map(|byte| f32::from(byte >> 4)),
        )
    }
    #[inline(always)]
    unsafe fn load_plane(from: *const u8) -> Self::Plane {
        // SAFETY: the caller vouches for 64 bytes.
        unsafe { Self::load_bytes(from) }
    }
    #[inline(always)]
    unsafe fn with_upper(
        lower: Self::Bytes,
        plane: Self::Plane,
        shift: u32,
        mask: u8,
    ) -> Self::Bytes {
        std::array::from_fn(|lane| {
            std::array::from_fn(|byte| lower[lane][byte] | (plane[lane][byte] >> shift & mask) << 4)
        })
    }
    #[inline(always)]
    unsafe fn splat_factors(from: *const i8) -> Self::Factors {
        // SAFETY: the caller vouches for 4 bytes.
        unsafe { from.cast::<Self::Factors>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, bytes: Self::Bytes, factors: Self::Factors) -> Self::Sums {
        std::array::from_fn(|lane| {
            let products = std::iter::zip(bytes[lane], factors);
            sums[lane]
                + products
                    .map(|(b, f)| i32::from(b) * i32::from(f))
                    .sum::<i32>()
        })
    }
    #[inline(always)]
    unsafe fn sums_to_f32(sums: Self::Sums) -> Self::V {
        sums.map(|sum| sum as f32)
    }
}
