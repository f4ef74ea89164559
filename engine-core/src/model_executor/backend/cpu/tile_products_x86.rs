//! Products of tiles (AMX), and the sums of bytes' products scaled: assembly, since the compiler has no
//! stable intrinsics for tiles.
//!
//! One block is a whole product: what it leaves in tiles nobody reads.

use std::arch::asm;
use std::arch::x86_64::*;

use super::tiles_x86::{TILE_BYTES, TILE_ROWS, Tiles};

/// Rows of pairs of bfloat16 times a panel: what [`multiply_bf16`] reads and writes. Strides are in
/// bytes. A second tile of rows begins 16 rows after the first.
#[repr(C)]
pub(super) struct Bf16Tiles {
    pub(super) init: *const f32,
    pub(super) init_stride: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    pub(super) x: *const u32,
    pub(super) x_stride: usize,
    /// 16 pairs of the panel after the other.
    pub(super) weights: *const u16,
    /// Of a pair in the panel.
    pub(super) weights_stride: usize,
    /// Sixteens of pairs, at least 1.
    pub(super) steps: usize,
    /// What is asked for meanwhile, and how many lines of it in each step.
    pub(super) ahead: *const u8,
    pub(super) ahead_lines: usize,
}

/// One block of assembly; the loop's products are the variant's own.
macro_rules! bf16_block {
    ($tiles:expr, [$($load:literal),*], [$($product:literal),*], [$($store:literal),*]) => {
        asm!(
            "mov {a}, [{t} + {init}]",
            "mov {s}, [{t} + {init_stride}]",
            "mov {b}, {s}",
            "shl {b}, 4",
            "add {b}, {a}",
            $($load,)*
            "mov {a}, [{t} + {x}]",
            "mov {s}, [{t} + {x_stride}]",
            "mov {b}, {s}",
            "shl {b}, 4",
            "add {b}, {a}",
            "mov {w}, [{t} + {weights}]",
            "mov {ws}, [{t} + {weights_stride}]",
            "mov {n}, [{t} + {steps}]",
            "mov {p}, [{t} + {ahead}]",
            "2:",
            "mov {l}, [{t} + {ahead_lines}]",
            "test {l}, {l}",
            "jz 4f",
            "3:",
            "prefetcht0 [{p}]",
            "add {p}, 64",
            "dec {l}",
            "jnz 3b",
            "4:",
            $($product,)*
            "add {a}, 64",
            "add {b}, 64",
            "mov {l}, {ws}",
            "shl {l}, 4",
            "add {w}, {l}",
            "dec {n}",
            "jnz 2b",
            "mov {a}, [{t} + {c}]",
            "mov {s}, [{t} + {c_stride}]",
            "mov {b}, {s}",
            "shl {b}, 4",
            "add {b}, {a}",
            $($store,)*
            t = in(reg) $tiles,
            a = out(reg) _, b = out(reg) _, s = out(reg) _, w = out(reg) _, ws = out(reg) _,
            n = out(reg) _, p = out(reg) _, l = out(reg) _,
            init = const std::mem::offset_of!(Bf16Tiles, init),
            init_stride = const std::mem::offset_of!(Bf16Tiles, init_stride),
            c = const std::mem::offset_of!(Bf16Tiles, c),
            c_stride = const std::mem::offset_of!(Bf16Tiles, c_stride),
            x = const std::mem::offset_of!(Bf16Tiles, x),
            x_stride = const std::mem::offset_of!(Bf16Tiles, x_stride),
            weights = const std::mem::offset_of!(Bf16Tiles, weights),
            weights_stride = const std::mem::offset_of!(Bf16Tiles, weights_stride),
            steps = const std::mem::offset_of!(Bf16Tiles, steps),
            ahead = const std::mem::offset_of!(Bf16Tiles, ahead),
            ahead_lines = const std::mem::offset_of!(Bf16Tiles, ahead_lines),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// `c = init + x * weights` for `rows` rows and 32 (`wide`) or 16 columns: by 32 of the depth in
/// ascending order, whatever the number of rows.
///
/// # Safety
/// This thread's [`Tiles::of_rows`] must be of `rows`. `rows` of `init`, `c` and `x` must be valid at
/// their strides for 32 (16) columns and `steps * 16` pairs, the weights for as many pairs.
pub(super) unsafe fn multiply_bf16(_shapes: &Tiles, rows: usize, wide: bool, tiles: &Bf16Tiles) {
    let tiles = &raw const *tiles;
    // SAFETY: the caller vouches for the shapes and for what is read and written.
    unsafe {
        match (rows > TILE_ROWS, wide) {
            (true, true) => bf16_block!(
                tiles,
                [
                    "tileloadd tmm0, [{a} + {s}]",
                    "tileloadd tmm1, [{a} + {s} + 64]",
                    "tileloadd tmm2, [{b} + {s}]",
                    "tileloadd tmm3, [{b} + {s} + 64]"
                ],
                [
                    "tileloadd tmm6, [{w} + {ws}]",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{w} + {ws} + 64]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{b} + {s}]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{a} + {s} + 64], tmm1",
                    "tilestored [{b} + {s}], tmm2",
                    "tilestored [{b} + {s} + 64], tmm3"
                ]
            ),
            (false, true) => bf16_block!(
                tiles,
                [
                    "tileloadd tmm0, [{a} + {s}]",
                    "tileloadd tmm1, [{a} + {s} + 64]"
                ],
                [
                    "tileloadd tmm4, [{a} + {s}]",
                    "tileloadd tmm6, [{w} + {ws}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{w} + {ws} + 64]",
                    "tdpbf16ps tmm1, tmm4, tmm7"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{a} + {s} + 64], tmm1"
                ]
            ),
            (true, false) => bf16_block!(
                tiles,
                ["tileloadd tmm0, [{a} + {s}]", "tileloadd tmm2, [{b} + {s}]"],
                [
                    "tileloadd tmm6, [{w} + {ws}]",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{b} + {s}]",
                    "tdpbf16ps tmm2, tmm5, tmm6"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{b} + {s}], tmm2"
                ]
            ),
            (false, false) => bf16_block!(
                tiles,
                ["tileloadd tmm0, [{a} + {s}]"],
                [
                    "tileloadd tmm4, [{a} + {s}]",
                    "tileloadd tmm6, [{w} + {ws}]",
                    "tdpbf16ps tmm0, tmm4, tmm6"
                ],
                ["tilestored [{a} + {s}], tmm0"]
            ),
        }
    }
}

/// One block of assembly: sums, rows and weights are in these tiles.
macro_rules! bytes_block {
    ($x:expr, $x_stride:expr, $weights:expr, $sums:expr, $c:literal, $a:literal, $b:literal) => {
        asm!(
            concat!("tilezero ", $c),
            concat!("tileloadd ", $b, ", [{w} + {line}]"),
            concat!("tileloadd ", $a, ", [{x} + {s}]"),
            concat!("tdpbssd ", $c, ", ", $a, ", ", $b),
            concat!("tilestored [{c} + {line}], ", $c),
            x = in(reg) $x,
            s = in(reg) $x_stride,
            w = in(reg) $weights,
            c = in(reg) $sums,
            line = in(reg) TILE_BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags),
        )
    };
}

/// Sums over 32 products of bytes for `ROWS` rows and 16 columns: `sums[row][col]`, 64 bytes a row.
///
/// # Safety
/// This thread's tiles must be those of [`Tiles::for_bytes`], with `ROWS` as the rest where it is
/// below 16. `x` must be valid for `ROWS` rows of 32 bytes, `x_stride` bytes apart, `weights` for 8
/// rows of 64 bytes, four of each column, and `sums` for `ROWS` rows.
#[inline(always)]
pub(super) unsafe fn multiply_bytes<const ROWS: usize>(
    _shapes: &Tiles,
    x: *const i8,
    x_stride: usize,
    weights: *const i8,
    sums: *mut i32,
) {
    // SAFETY: the caller vouches for the shapes and for what is read and written.
    unsafe {
        if ROWS == TILE_ROWS {
            bytes_block!(x, x_stride, weights, sums, "tmm0", "tmm1", "tmm2");
        } else {
            bytes_block!(x, x_stride, weights, sums, "tmm3", "tmm4", "tmm2");
        }
    }
}

/// One row of [`add_scaled`]. By assembly, since the compiler would have all products of scales first,
/// more than there are registers for.
macro_rules! scaled_row {
    ($totals:ident, $row:literal, $quad:ident, $address:literal, $stride:ident, $thrice:ident,
        $scales:ident, $sums:ident) => {
        if let Some(total) = $totals.get_mut($row) {
            asm!(
                concat!("vmulps zmm30, {scales}, dword ptr [", $address, "]{{1to16}}"),
                "vcvtdq2ps zmm31, zmmword ptr [{sums} + {row}]",
                "vfmadd231ps {total}, zmm31, zmm30",
                // Not all addresses need all of them.
                "/* {q} {s} {s3} */",
                total = inout(zmm_reg) *total,
                scales = in(zmm_reg) $scales,
                q = in(reg) $quad,
                s = in(reg) $stride,
                s3 = in(reg) $thrice,
                sums = in(reg) $sums,
                row = const $row * TILE_BYTES,
                out("zmm30") _,
                out("zmm31") _,
                options(readonly, nostack, preserves_flags),
            );
        }
    };
}

/// `totals[row] += sums[row] * (scales * x_scale of the row)`, the sums as f32.
///
/// # Safety
/// The processor must have AVX-512. `sums` must be valid for a tile of `ROWS` rows, `x_scales` for a
/// value of each of them, `x_stride` bytes apart.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn add_scaled<const ROWS: usize>(
    totals: &mut [__m512; ROWS],
    sums: *const i32,
    scales: __m512,
    x_scales: *const f32,
    x_stride: usize,
) {
    let quad = |index: usize| x_scales.wrapping_byte_add(index * 4 * x_stride);
    let (a, b, c, d) = (quad(0), quad(1), quad(2), quad(3));
    let thrice = 3 * x_stride;
    macro_rules! rows {
        ($([$row:literal, $quad:ident, $address:literal]),*) => {
            $(scaled_row!(totals, $row, $quad, $address, x_stride, thrice, scales, sums);)*
        };
    }
    // SAFETY: the caller vouches for the processor and for what is read.
    unsafe {
        rows!(
            [0, a, "{q}"],
            [1, a, "{q} + {s}"],
            [2, a, "{q} + 2*{s}"],
            [3, a, "{q} + {s3}"],
            [4, b, "{q}"],
            [5, b, "{q} + {s}"],
            [6, b, "{q} + 2*{s}"],
            [7, b, "{q} + {s3}"],
            [8, c, "{q}"],
            [9, c, "{q} + {s}"],
            [10, c, "{q} + 2*{s}"],
            [11, c, "{q} + {s3}"],
            [12, d, "{q}"],
            [13, d, "{q} + {s}"],
            [14, d, "{q} + 2*{s}"],
            [15, d, "{q} + {s3}"]
        );
    }
}
