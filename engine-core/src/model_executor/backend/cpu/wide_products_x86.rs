//! Products of tiles of bytes (AMX) over whole wide groups, and their sums scaled: assembly, since the
//! compiler has no stable intrinsics for tiles.
//!
//! One block is a whole product: what it leaves in tiles nobody reads.

use std::arch::asm;
use std::arch::x86_64::*;

use super::prefetch::DISTANCE;
use super::simd::LANES;
use super::tiles_x86::{TILE_BYTES, TILE_ROWS, Tiles};

/// Sums of products of bytes that are to be scaled, of some groups, and where they go. Strides are in
/// bytes.
pub(super) struct ScaledSums {
    /// Of each group 16 columns of 32 rows, then the other 16.
    pub(super) sums: *const i32,
    /// Half-precision scales of the first group's columns.
    pub(super) scales: *const u16,
    /// From a group's scales to the next one's.
    pub(super) scales_stride: usize,
    /// The first row's scale in the first group.
    pub(super) x_scale: *const f32,
    pub(super) x_stride: usize,
    /// From a row's scale to that in the next group.
    pub(super) x_group: usize,
    pub(super) init: *const f32,
    pub(super) init_stride: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    pub(super) rows: usize,
}

impl ScaledSums {
    /// Bytes from the sums of some columns to those of the others.
    pub(super) const SECOND_COLUMNS: usize = 2 * TILE_ROWS * TILE_BYTES;

    /// `c = init + sums * (scales * x_scale)`, by row, for `GROUPS` groups in ascending order.
    ///
    /// # Safety
    /// The processor must have AVX-512. All must be valid for the rows, the groups and 32 columns.
    #[target_feature(enable = "avx512f,f16c")]
    pub(super) unsafe fn add<const GROUPS: usize>(&self) {
        // SAFETY: the caller vouches for rows, groups and columns.
        unsafe {
            let mut scales = [[_mm512_setzero_ps(); 2]; GROUPS];
            for (group, scales) in scales.iter_mut().enumerate() {
                let from = self.scales.byte_add(group * self.scales_stride);
                for (half, scales) in scales.iter_mut().enumerate() {
                    *scales = _mm512_cvtph_ps(_mm256_loadu_si256(from.add(half * LANES).cast()));
                }
            }
            for row in 0..self.rows {
                let x_scale = self.x_scale.byte_add(row * self.x_stride);
                let init = self.init.byte_add(row * self.init_stride);
                let c = self.c.byte_add(row * self.c_stride);
                let mut totals = [_mm512_loadu_ps(init), _mm512_loadu_ps(init.add(LANES))];
                for (group, scales) in scales.iter().enumerate() {
                    let x_scale = _mm512_set1_ps(*x_scale.byte_add(group * self.x_group));
                    for (half, total) in totals.iter_mut().enumerate() {
                        let sums = self
                            .sums
                            .byte_add((2 * group + half) * Self::SECOND_COLUMNS + row * TILE_BYTES);
                        let sums = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums.cast()));
                        *total =
                            _mm512_fmadd_ps(sums, _mm512_mul_ps(scales[half], x_scale), *total);
                    }
                }
                _mm512_storeu_ps(c, totals[0]);
                _mm512_storeu_ps(c.add(LANES), totals[1]);
            }
        }
    }
}

/// Rows of bytes times a panel: what [`multiply_bytes_deep`] reads and writes. A second tile of rows
/// begins 16 rows after the first.
#[repr(C)]
pub(super) struct ByteTiles {
    pub(super) x: *const i8,
    /// In bytes.
    pub(super) x_stride: usize,
    /// Of each 64 of the depth four of each of 16 columns after the other, then the others'.
    pub(super) weights: *const i8,
    /// 64 of the depth, at least 1.
    pub(super) steps: usize,
    /// As [`ScaledSums`] has them.
    pub(super) sums: *mut i32,
    /// What is asked for meanwhile, and how many lines of it in each step.
    pub(super) ahead: *const u8,
    pub(super) ahead_lines: usize,
}

/// One block of assembly; what comes before the loop, its products and the operands that only these have
/// are the variant's own.
macro_rules! bytes_block {
    ($tiles:expr, [$($start:literal),*], [$($product:literal),*], [$($store:literal),*],
        {$($operand:tt)*}) => {
        asm!(
            $($start,)*
            "mov {a}, [{t} + {x}]",
            "mov {s}, [{t} + {x_stride}]",
            "mov {b}, {s}",
            "shl {b}, 4",
            "add {b}, {a}",
            "mov {w}, [{t} + {weights}]",
            "mov {n}, [{t} + {steps}]",
            "2:",
            $($product,)*
            "add {a}, 64",
            "add {b}, 64",
            "add {w}, {step}",
            "dec {n}",
            "jnz 2b",
            "mov {a}, [{t} + {sums}]",
            "mov {s}, {line}",
            $($store,)*
            t = in(reg) $tiles,
            a = out(reg) _, b = out(reg) _, s = out(reg) _, w = out(reg) _, n = out(reg) _,
            ws = in(reg) TILE_BYTES,
            second = const TILE_ROWS * TILE_BYTES,
            line = const TILE_BYTES,
            step = const 2 * TILE_ROWS * TILE_BYTES,
            x = const std::mem::offset_of!(ByteTiles, x),
            x_stride = const std::mem::offset_of!(ByteTiles, x_stride),
            weights = const std::mem::offset_of!(ByteTiles, weights),
            steps = const std::mem::offset_of!(ByteTiles, steps),
            sums = const std::mem::offset_of!(ByteTiles, sums),
            $($operand)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// A block that asks, between its products, for the lines that lie as far ahead of the weights.
macro_rules! asking_bytes_block {
    ($tiles:expr, $start:tt, $product:tt, $store:tt) => {
        bytes_block!($tiles, $start, $product, $store, { far = const DISTANCE, })
    };
}

/// Sums as [`multiply_bytes_deep`] has them, asking for the weights that follow [`DISTANCE`] bytes ahead: a
/// quarter of a step's lines at a time, in their order.
///
/// # Safety
/// As for [`multiply_bytes_deep`].
pub(super) unsafe fn multiply_bytes_asking(_shapes: &Tiles, rows: usize, tiles: &ByteTiles) {
    let tiles = &raw const *tiles;
    // SAFETY: the caller vouches for the shapes and for what is read and written; what is asked for may lie
    // anywhere.
    unsafe {
        if rows > TILE_ROWS {
            asking_bytes_block!(
                tiles,
                [
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3"
                ],
                [
                    "tileloadd tmm6, [{w} + {ws}]",
                    ".irp at, 0, 64, 128, 192, 256, 320, 384, 448",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tdpbssd tmm0, tmm4, tmm6",
                    ".irp at, 512, 576, 640, 704, 768, 832, 896, 960",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tileloadd tmm7, [{w} + {ws} + {second}]",
                    "tdpbssd tmm1, tmm4, tmm7",
                    ".irp at, 1024, 1088, 1152, 1216, 1280, 1344, 1408, 1472",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tileloadd tmm5, [{b} + {s}]",
                    "tdpbssd tmm2, tmm5, tmm6",
                    ".irp at, 1536, 1600, 1664, 1728, 1792, 1856, 1920, 1984",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tdpbssd tmm3, tmm5, tmm7"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{a} + {s} + 2048], tmm1",
                    "tilestored [{a} + {s} + 1024], tmm2",
                    "tilestored [{a} + {s} + 3072], tmm3"
                ]
            );
        } else {
            asking_bytes_block!(
                tiles,
                ["tilezero tmm0", "tilezero tmm1"],
                [
                    "tileloadd tmm4, [{a} + {s}]",
                    ".irp at, 0, 64, 128, 192, 256, 320, 384, 448",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tileloadd tmm6, [{w} + {ws}]",
                    ".irp at, 512, 576, 640, 704, 768, 832, 896, 960",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tdpbssd tmm0, tmm4, tmm6",
                    ".irp at, 1024, 1088, 1152, 1216, 1280, 1344, 1408, 1472",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tileloadd tmm7, [{w} + {ws} + {second}]",
                    ".irp at, 1536, 1600, 1664, 1728, 1792, 1856, 1920, 1984",
                    "prefetcht0 [{w} + {far} + \\at]",
                    ".endr",
                    "tdpbssd tmm1, tmm4, tmm7"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{a} + {s} + 2048], tmm1"
                ]
            );
        }
    }
}

/// A block that asks, after each step's products, for some lines of what follows.
macro_rules! deep_bytes_block {
    ($tiles:expr, [$($start:literal),*], [$($product:literal),*], $store:tt) => {
        bytes_block!(
            $tiles,
            ["mov {p}, [{t} + {ahead}]" $(, $start)*],
            [
                $($product,)*
                "mov {l}, [{t} + {ahead_lines}]",
                "test {l}, {l}",
                "jz 4f",
                "3:",
                "prefetcht1 [{p}]",
                "add {p}, 64",
                "dec {l}",
                "jnz 3b",
                "4:"
            ],
            $store,
            {
                p = out(reg) _, l = out(reg) _,
                ahead = const std::mem::offset_of!(ByteTiles, ahead),
                ahead_lines = const std::mem::offset_of!(ByteTiles, ahead_lines),
            }
        )
    };
}

/// Sums over `steps * 64` products of bytes for `rows` rows and 32 columns.
///
/// # Safety
/// This thread's [`Tiles::of_rows`] must be of `rows`. `rows` of `x` must be valid at their stride for
/// `steps * 64` bytes, the weights for as many of 32 columns, `sums` for the tiles of the rows.
pub(super) unsafe fn multiply_bytes_deep(_shapes: &Tiles, rows: usize, tiles: &ByteTiles) {
    let tiles = &raw const *tiles;
    // SAFETY: the caller vouches for the shapes and for what is read and written.
    unsafe {
        if rows > TILE_ROWS {
            deep_bytes_block!(
                tiles,
                [
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3"
                ],
                [
                    "tileloadd tmm6, [{w} + {ws}]",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tdpbssd tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{w} + {ws} + {second}]",
                    "tdpbssd tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{b} + {s}]",
                    "tdpbssd tmm2, tmm5, tmm6",
                    "tdpbssd tmm3, tmm5, tmm7"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{a} + {s} + 2048], tmm1",
                    "tilestored [{a} + {s} + 1024], tmm2",
                    "tilestored [{a} + {s} + 3072], tmm3"
                ]
            );
        } else {
            deep_bytes_block!(
                tiles,
                ["tilezero tmm0", "tilezero tmm1"],
                [
                    "tileloadd tmm4, [{a} + {s}]",
                    "tileloadd tmm6, [{w} + {ws}]",
                    "tdpbssd tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{w} + {ws} + {second}]",
                    "tdpbssd tmm1, tmm4, tmm7"
                ],
                [
                    "tilestored [{a} + {s}], tmm0",
                    "tilestored [{a} + {s} + 2048], tmm1"
                ]
            );
        }
    }
}
