//! [`IntegerSimd`] by the vector instructions of x86-64.

use std::arch::x86_64::*;

use super::integer::IntegerSimd;
use super::simd_x86::{Avx2, Avx512};

// SAFETY in both implementations: the trait's callers vouch that the processor has the
// instructions and that the pointers are valid for the lanes read.

/// By VNNI, which [`super::simd::SimdLevel::Avx512Vnni`] has beside AVX-512.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all, above"
)]
impl IntegerSimd for Avx512 {
    type Sums = __m512i;
    type Bytes = __m512i;
    type Plane = __m512i;
    type Factors = __m512i;

    const SIGNED_MORE: i32 = 128;

    #[inline(always)]
    unsafe fn splat_sums(value: i32) -> Self::Sums {
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::Bytes {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Bytes, Self::Bytes) {
        unsafe {
            let (bytes, mask) = (Self::load_bytes(from), _mm512_set1_epi8(15));
            (
                _mm512_and_si512(bytes, mask),
                _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_signed(from: *const i8) -> Self::Bytes {
        unsafe { _mm512_xor_si512(Self::load_bytes(from.cast()), _mm512_set1_epi8(-128)) }
    }
    #[inline(always)]
    unsafe fn load_nibbles_as_f32(from: *const u8) -> (Self::V, Self::V) {
        unsafe {
            let words = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let lower = _mm512_and_si512(words, _mm512_set1_epi32(15));
            (
                _mm512_cvtepi32_ps(lower),
                _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(words)),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_plane(from: *const u8) -> Self::Plane {
        unsafe { Self::load_bytes(from) }
    }
    #[inline(always)]
    unsafe fn with_upper(
        lower: Self::Bytes,
        plane: Self::Plane,
        shift: u32,
        mask: u8,
    ) -> Self::Bytes {
        unsafe {
            // Bits that come from the neighbouring byte are cut off by the mask.
            let shifted = _mm512_srl_epi16(plane, _mm_cvtsi32_si128(shift as i32));
            let bits = _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8));
            _mm512_or_si512(lower, _mm512_slli_epi16::<4>(bits))
        }
    }
    #[inline(always)]
    unsafe fn splat_factors(from: *const i8) -> Self::Factors {
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, bytes: Self::Bytes, factors: Self::Factors) -> Self::Sums {
        unsafe { _mm512_dpbusd_epi32(sums, bytes, factors) }
    }
    #[inline(always)]
    unsafe fn sums_to_f32(sums: Self::Sums) -> Self::V {
        unsafe { _mm512_cvtepi32_ps(sums) }
    }
}

/// By 16-bit products: those of bytes saturate. Bytes at even and at odd places are apart.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all, above"
)]
impl IntegerSimd for Avx2 {
    type Sums = (__m256i, __m256i);
    type Bytes = [(__m256i, __m256i); 2];
    type Plane = [__m256i; 2];
    type Factors = (__m256i, __m256i);

    const SIGNED_MORE: i32 = 0;

    #[inline(always)]
    unsafe fn splat_sums(value: i32) -> Self::Sums {
        unsafe { (_mm256_set1_epi32(value), _mm256_set1_epi32(value)) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::Bytes {
        #[inline(always)]
        unsafe fn half(bytes: __m256i) -> (__m256i, __m256i) {
            unsafe {
                (
                    _mm256_and_si256(bytes, _mm256_set1_epi16(255)),
                    _mm256_srli_epi16::<8>(bytes),
                )
            }
        }
        unsafe {
            [
                half(_mm256_loadu_si256(from.cast())),
                half(_mm256_loadu_si256(from.add(32).cast())),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Bytes, Self::Bytes) {
        #[inline(always)]
        unsafe fn half(bytes: __m256i) -> [(__m256i, __m256i); 2] {
            unsafe {
                let mask = _mm256_set1_epi16(15);
                let upper = _mm256_srli_epi16::<4>(bytes);
                [
                    (
                        _mm256_and_si256(bytes, mask),
                        _mm256_and_si256(_mm256_srli_epi16::<8>(bytes), mask),
                    ),
                    (
                        _mm256_and_si256(upper, mask),
                        _mm256_srli_epi16::<12>(bytes),
                    ),
                ]
            }
        }
        unsafe {
            let first = half(_mm256_loadu_si256(from.cast()));
            let second = half(_mm256_loadu_si256(from.add(32).cast()));
            ([first[0], second[0]], [first[1], second[1]])
        }
    }
    #[inline(always)]
    unsafe fn load_signed(from: *const i8) -> Self::Bytes {
        #[inline(always)]
        unsafe fn half(bytes: __m256i) -> (__m256i, __m256i) {
            unsafe {
                (
                    _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)),
                    _mm256_srai_epi16::<8>(bytes),
                )
            }
        }
        unsafe {
            [
                half(_mm256_loadu_si256(from.cast())),
                half(_mm256_loadu_si256(from.add(32).cast())),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_nibbles_as_f32(from: *const u8) -> (Self::V, Self::V) {
        unsafe {
            let first = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let second = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8).cast()));
            let mask = _mm256_set1_epi32(15);
            (
                (
                    _mm256_cvtepi32_ps(_mm256_and_si256(first, mask)),
                    _mm256_cvtepi32_ps(_mm256_and_si256(second, mask)),
                ),
                (
                    _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(first)),
                    _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(second)),
                ),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_plane(from: *const u8) -> Self::Plane {
        unsafe {
            [
                _mm256_loadu_si256(from.cast()),
                _mm256_loadu_si256(from.add(32).cast()),
            ]
        }
    }
    #[inline(always)]
    unsafe fn with_upper(
        lower: Self::Bytes,
        plane: Self::Plane,
        shift: u32,
        mask: u8,
    ) -> Self::Bytes {
        #[inline(always)]
        unsafe fn half(
            lower: (__m256i, __m256i),
            plane: __m256i,
            shift: u32,
            mask: u8,
        ) -> (__m256i, __m256i) {
            unsafe {
                let mask = _mm256_set1_epi16(i16::from(mask));
                let upper = |shift: u32| {
                    let shifted = _mm256_srl_epi16(plane, _mm_cvtsi32_si128(shift as i32));
                    _mm256_slli_epi16::<4>(_mm256_and_si256(shifted, mask))
                };
                (
                    _mm256_or_si256(lower.0, upper(shift)),
                    _mm256_or_si256(lower.1, upper(shift + 8)),
                )
            }
        }
        unsafe {
            [
                half(lower[0], plane[0], shift, mask),
                half(lower[1], plane[1], shift, mask),
            ]
        }
    }
    #[inline(always)]
    unsafe fn splat_factors(from: *const i8) -> Self::Factors {
        unsafe {
            let bytes = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
            (
                _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)),
                _mm256_srai_epi16::<8>(bytes),
            )
        }
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, bytes: Self::Bytes, factors: Self::Factors) -> Self::Sums {
        #[inline(always)]
        unsafe fn half(
            sums: __m256i,
            bytes: (__m256i, __m256i),
            factors: (__m256i, __m256i),
        ) -> __m256i {
            unsafe {
                let even = _mm256_madd_epi16(bytes.0, factors.0);
                let odd = _mm256_madd_epi16(bytes.1, factors.1);
                _mm256_add_epi32(sums, _mm256_add_epi32(even, odd))
            }
        }
        unsafe {
            (
                half(sums.0, bytes[0], factors),
                half(sums.1, bytes[1], factors),
            )
        }
    }
    #[inline(always)]
    unsafe fn sums_to_f32(sums: Self::Sums) -> Self::V {
        unsafe { (_mm256_cvtepi32_ps(sums.0), _mm256_cvtepi32_ps(sums.1)) }
    }
}
