//! [`Simd`] and [`IntegerSimd`] by the vector instructions of 64-bit ARM.

use std::arch::aarch64::*;
use std::arch::asm;

use super::integer::IntegerSimd;
use super::simd::{LANES, Simd};

/// Four 128-bit registers.
pub(crate) struct Neon;

/// Calls an operation on each of the four registers.
#[inline(always)]
fn each<T: Copy, U>(a: [T; 4], operation: impl Fn(T) -> U) -> [U; 4] {
    [
        operation(a[0]),
        operation(a[1]),
        operation(a[2]),
        operation(a[3]),
    ]
}

/// The same of two operands.
#[inline(always)]
fn both<T: Copy, U>(a: [T; 4], b: [T; 4], operation: impl Fn(T, T) -> U) -> [U; 4] {
    std::array::from_fn(|part| operation(a[part], b[part]))
}

// SAFETY in both implementations: every such processor has NEON; the traits' callers vouch that the
// pointers are valid for the lanes read or written, and for dot products where they call `dot`.

#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all, above"
)]
impl Simd for Neon {
    type V = [float32x4_t; 4];

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::V {
        unsafe { [vdupq_n_f32(value); 4] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::V {
        each([0, 4, 8, 12], |at| unsafe { vld1q_f32(from.add(at)) })
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::V) {
        for (part, v) in v.into_iter().enumerate() {
            unsafe { vst1q_f32(to.add(4 * part), v) };
        }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::V {
        unsafe {
            let bytes = vld1q_s8(from);
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            let words = [
                vmovl_s16(vget_low_s16(low)),
                vmovl_high_s16(low),
                vmovl_s16(vget_low_s16(high)),
                vmovl_high_s16(high),
            ];
            each(words, |words| vcvtq_f32_s32(words))
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::V {
        const { assert!(LANES == 16) };
        each([0, 4, 8, 12], |at| unsafe {
            widen_f16(vld1_u16(from.add(at)))
        })
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(from: *const u16) -> (Self::V, Self::V) {
        unsafe {
            let words = each([0, 8, 16, 24], |at| {
                vreinterpretq_u32_u16(vld1q_u16(from.add(at)))
            });
            let upper = vdupq_n_u32(0xffff_0000);
            (
                each(words, |words| {
                    vreinterpretq_f32_u32(vshlq_n_u32::<16>(words))
                }),
                each(words, |words| {
                    vreinterpretq_f32_u32(vandq_u32(words, upper))
                }),
            )
        }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|part| unsafe { vfmaq_f32(c[part], a[part], b[part]) })
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        both(a, b, |a, b| unsafe { vaddq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
        both(a, b, |a, b| unsafe { vsubq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
        both(a, b, |a, b| unsafe { vmulq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
        both(a, b, |a, b| unsafe { vdivq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        // Not `vmaxq`, of which one NaN makes a NaN whichever it is.
        both(a, b, |a, b| unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) })
    }
    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        both(a, b, |a, b| unsafe { vbslq_f32(vcltq_f32(a, b), a, b) })
    }
    #[inline(always)]
    unsafe fn abs(a: Self::V) -> Self::V {
        each(a, |a| unsafe { vabsq_f32(a) })
    }
    #[inline(always)]
    unsafe fn max_lane(a: Self::V) -> f32 {
        unsafe {
            let pairs = [vmaxnmq_f32(a[0], a[1]), vmaxnmq_f32(a[2], a[3])];
            vmaxnmvq_f32(vmaxnmq_f32(pairs[0], pairs[1]))
        }
    }
    #[inline(always)]
    unsafe fn round(a: Self::V) -> Self::V {
        each(a, |a| unsafe { vrndnq_f32(a) })
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: a prefetch may lie anywhere and changes nothing.
        unsafe {
            asm!("prfm pldl1keep, [{from}]", from = in(reg) from,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, v: Self::V) {
        unsafe {
            let words = each(v, |v| vmovn_s32(vcvtq_s32_f32(v)));
            let low = vmovn_s16(vcombine_s16(words[0], words[1]));
            let high = vmovn_s16(vcombine_s16(words[2], words[3]));
            vst1q_s8(to, vcombine_s8(low, high));
        }
    }
    #[inline(always)]
    unsafe fn exp2_whole(a: Self::V) -> Self::V {
        each(a, |a| unsafe {
            let exponent = vaddq_s32(vcvtq_s32_f32(a), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
        })
    }
}

/// `sums + products of four bytes`, by lane. The intrinsic isn't stable.
///
/// # Safety
/// The processor must have dot products.
#[inline(always)]
unsafe fn sdot(sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: registers only; the caller vouches for the instruction.
    unsafe {
        asm!(".arch_extension dotprod", "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Four half-precision numbers, widened. The type isn't stable.
#[inline(always)]
fn widen_f16(halves: uint16x4_t) -> float32x4_t {
    let widened: float32x4_t;
    // SAFETY: registers only; every such processor has the instruction.
    unsafe {
        asm!("fcvtl {widened:v}.4s, {halves:v}.4h",
            widened = out(vreg) widened, halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags));
    }
    widened
}

/// By dot products of signed bytes, which [`super::simd::SimdLevel::NeonDot`] has.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all, above"
)]
impl IntegerSimd for Neon {
    type Sums = [int32x4_t; 4];
    type Bytes = [int8x16_t; 4];
    type Plane = [uint8x16_t; 4];
    type Factors = int8x16_t;

    const BYTES_LESS: i32 = 128;
    const SIGNED_MORE: i32 = 0;

    #[inline(always)]
    unsafe fn splat_sums(value: i32) -> Self::Sums {
        unsafe { [vdupq_n_s32(value); 4] }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::Bytes {
        unsafe {
            let upper = vdupq_n_u8(128);
            let bytes = Self::load_plane(from);
            each(bytes, |bytes| vreinterpretq_s8_u8(veorq_u8(bytes, upper)))
        }
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> (Self::Bytes, Self::Bytes) {
        unsafe {
            let (bytes, mask) = (Self::load_plane(from), vdupq_n_u8(15));
            (
                each(bytes, |bytes| vreinterpretq_s8_u8(vandq_u8(bytes, mask))),
                each(bytes, |bytes| vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes))),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_signed(from: *const i8) -> Self::Bytes {
        each([0, 16, 32, 48], |at| unsafe { vld1q_s8(from.add(at)) })
    }
    #[inline(always)]
    unsafe fn load_nibbles_as_f32(from: *const u8) -> (Self::V, Self::V) {
        unsafe {
            let bytes = vld1q_u8(from);
            let widen = |bytes: uint8x16_t| {
                let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
                let words = [
                    vmovl_u16(vget_low_u16(low)),
                    vmovl_high_u16(low),
                    vmovl_u16(vget_low_u16(high)),
                    vmovl_high_u16(high),
                ];
                each(words, |words| vcvtq_f32_u32(words))
            };
            (
                widen(vandq_u8(bytes, vdupq_n_u8(15))),
                widen(vshrq_n_u8::<4>(bytes)),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_plane(from: *const u8) -> Self::Plane {
        each([0, 16, 32, 48], |at| unsafe { vld1q_u8(from.add(at)) })
    }
    #[inline(always)]
    unsafe fn with_upper(
        lower: Self::Bytes,
        plane: Self::Plane,
        shift: u32,
        mask: u8,
    ) -> Self::Bytes {
        unsafe {
            let (right, mask) = (vdupq_n_s8(-(shift as i8)), vdupq_n_u8(mask));
            let upper = each(plane, |plane| {
                vshlq_n_u8::<4>(vandq_u8(vshlq_u8(plane, right), mask))
            });
            both(
                lower,
                each(upper, |upper| vreinterpretq_s8_u8(upper)),
                |lower, upper| vorrq_s8(lower, upper),
            )
        }
    }
    #[inline(always)]
    unsafe fn splat_factors(from: *const i8) -> Self::Factors {
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, bytes: Self::Bytes, factors: Self::Factors) -> Self::Sums {
        std::array::from_fn(|part| unsafe { sdot(sums[part], bytes[part], factors) })
    }
    #[inline(always)]
    unsafe fn sums_to_f32(sums: Self::Sums) -> Self::V {
        each(sums, |sums| unsafe { vcvtq_f32_s32(sums) })
    }
}
