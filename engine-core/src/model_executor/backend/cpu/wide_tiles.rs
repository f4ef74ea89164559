//! Products of rows with wide groups of weights by tiles (AMX): 32 rows by a panel's 32 columns.
//!
//! Tiles add up the products of a whole group, which are whole numbers and exact. The sums are scaled and
//! added up as [`super::wide_multiply`] does it, in the same order, so both give the same bits and each
//! number of rows may go the way that is faster.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::panels::{PANEL_WIDTH, Part};
use super::simd::LANES;
use super::tiles_x86::{TILE_ROWS, Tiles};
use super::wide::{HEADERS_AHEAD, SCALES, STEP, TILE, UNIT, UNITS, WideLayout, WideMatrix};
use super::wide_products_x86::{ByteTiles, ScaledSums, multiply_bytes_asking, multiply_bytes_deep};
use super::wide_rows::WideRowGroup;
use crate::model_executor::wide_quantization::{FACTOR_GROUP, WIDE_GROUP, WideFormat};

/// Fewest rows for which tiles are faster than vectors.
pub(super) const LEAST_ROWS: usize = 7;

/// Rows of a block: two tiles.
const MOST_ROWS: usize = 2 * TILE_ROWS;

/// Groups whose weights stay in the first cache while rows pass.
const CHUNK: usize = 2;

/// Blocks of rows that still wait for memory: each asks for its share of what follows.
const MOST_BLOCKS: usize = 8;

/// Bytes of a unit as tiles read it.
const UNIT_BYTES: usize = UNIT * PANEL_WIDTH;

/// Bytes ahead of what is unpacked for few rows.
const DISTANCE: usize = 3072;

/// Lines of a unit of 4 bits.
const LINES: usize = UNIT * PANEL_WIDTH / 2 / 64;

/// Of these as many are asked for while tiles multiply, so that memory doesn't rest meanwhile, and the others
/// while values are unpacked.
const LINES_BY_TILES: usize = 6;

/// A group's weights as tiles read them: signed, as with 8 bits.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Unpacked([i8; WIDE_GROUP * PANEL_WIDTH]);

/// Sums of a block in a group, as [`ScaledSums`] has them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums([[[i32; LANES]; MOST_ROWS]; 2]);

/// Sums of a block so far.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Totals([[f32; PANEL_WIDTH]; MOST_ROWS]);

/// The product for all rows of `part` and 32 columns; `groups` are those of a panel of `matrix` from the
/// first of `part` on, `headers` theirs.
///
/// # Safety
/// The processor must have tiles. `part` and `groups` must be valid as
/// [`PanelKernel::multiply`](super::panels::PanelKernel::multiply) asks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn multiply<L: WideLayout>(
    matrix: &WideMatrix<L>,
    groups: *const u8,
    headers: *const u8,
    part: &Part<WideRowGroup>,
) {
    if part.rows <= MOST_ROWS {
        // SAFETY: passed on to the caller.
        return unsafe { multiply_few(matrix, groups, headers, part) };
    }
    let (whole, rest) = (part.rows / MOST_ROWS, part.rows % MOST_ROWS);
    let num_blocks = part.rows.div_ceil(MOST_ROWS);
    let mut unpacked = [const { MaybeUninit::<Unpacked>::uninit() }; CHUNK];
    let mut sums = MaybeUninit::<[Sums; CHUNK]>::uninit();
    // SAFETY: the caller vouches for the processor, the rows and the groups; what is unpacked is written
    // before it is read, as are sums. The depth is walked in chunks, the sums going on where they stopped:
    // those of some rows are added up in ascending groups.
    unsafe {
        for first in (0..part.depth).step_by(CHUNK) {
            let count = (part.depth - first).min(CHUNK);
            let from = groups.add(first * L::GROUP_BYTES);
            let headers = headers.add(first * L::HEADER);
            let units = |index: usize| matrix.units(part.first + first + index);
            let (weights, weights_stride) = match L::FORMAT {
                WideFormat::Wide8 => (from.cast::<i8>(), L::GROUP_BYTES),
                WideFormat::Wide4 => {
                    for (index, to) in unpacked.iter_mut().enumerate().take(count) {
                        let from = from.add(index * L::GROUP_BYTES);
                        let header = headers.add(index * L::HEADER);
                        let to = to.as_mut_ptr().cast();
                        unpack::<L, 0>(from, header, units(index), to, from);
                    }
                    (unpacked.as_ptr().cast(), size_of::<Unpacked>())
                }
            };
            // What follows is asked for in as many shares as there are blocks. Where many pass, products
            // take longer than memory.
            let lines = match num_blocks {
                ..=MOST_BLOCKS => (L::GROUP_BYTES / 64).div_ceil(UNITS * num_blocks.max(1)),
                _ => 0,
            };
            let mut multiply_block = |shapes: &Tiles, block: usize, rows: usize| {
                let row = block * MOST_ROWS;
                let x = part.x.add(row * part.x_stride + first);
                let c = part.c.add(row * part.c_stride);
                let share = block * count * UNITS * lines * 64;
                let mut ahead = from.wrapping_add(count * L::GROUP_BYTES + share);
                for index in 0..count {
                    let units = units(index);
                    let tiles = ByteTiles {
                        x: (&raw const (*x.add(index)).values).cast(),
                        x_stride: part.x_stride * size_of::<WideRowGroup>(),
                        weights: weights.add(index * weights_stride),
                        steps: units,
                        sums: sums.as_mut_ptr().cast::<Sums>().add(index).cast(),
                        ahead,
                        ahead_lines: lines,
                    };
                    multiply_bytes_deep(shapes, rows, &tiles);
                    ahead = ahead.wrapping_add(units * lines * 64);
                }
                let (init, init_stride) = match first {
                    0 => (part.init.add(row * part.init_stride), part.init_stride),
                    _ => (c.cast_const(), part.c_stride),
                };
                let scaled = ScaledSums {
                    sums: sums.as_ptr().cast(),
                    scales: headers.cast(),
                    scales_stride: L::HEADER,
                    x_scale: &raw const (*x).scale,
                    x_stride: part.x_stride * size_of::<WideRowGroup>(),
                    x_group: size_of::<WideRowGroup>(),
                    init,
                    init_stride: init_stride * size_of::<f32>(),
                    c,
                    c_stride: part.c_stride * size_of::<f32>(),
                    rows,
                };
                match count {
                    CHUNK => scaled.add::<CHUNK>(),
                    _ => scaled.add::<1>(),
                }
            };
            if whole > 0 {
                let shapes = Tiles::of_rows(MOST_ROWS);
                (0..whole).for_each(|block| multiply_block(&shapes, block, MOST_ROWS));
            }
            if rest > 0 {
                multiply_block(&Tiles::of_rows(rest), whole, rest);
            }
        }
        if part.depth == 0 {
            copy_init(part);
        }
    }
}

/// The same for one block of rows: what takes longest is the memory, so values are asked for while others
/// are read, in the order in which they lie and little ahead, and sums stay in the first cache.
///
/// # Safety
/// As [`multiply`], with at most 32 rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn multiply_few<L: WideLayout>(
    matrix: &WideMatrix<L>,
    groups: *const u8,
    headers: *const u8,
    part: &Part<WideRowGroup>,
) {
    let mut unpacked = MaybeUninit::<Unpacked>::uninit();
    let mut sums = MaybeUninit::<[Sums; 2]>::uninit();
    let sums = sums.as_mut_ptr();
    let mut totals = MaybeUninit::<Totals>::uninit();
    let totals = totals.as_mut_ptr().cast::<f32>();
    // SAFETY: the caller vouches for the processor, the rows and the groups; what is unpacked, sums and
    // totals are written before they are read. What is asked for ahead may lie anywhere.
    unsafe {
        if part.rows == 0 || part.depth == 0 {
            return copy_init(part);
        }
        // Results have left the caches since they were last written.
        for row in 0..part.rows {
            prefetch_for_write(part.c.add(row * part.c_stride), PANEL_WIDTH);
        }
        let sums_of = |index: usize| sums.cast::<Sums>().add(index % 2);
        let header_of = |index: usize| headers.add(index * L::HEADER);
        // Sums of two groups take turns.
        let scale = |index: usize| {
            let (init, init_stride) = match index {
                0 => (part.init, part.init_stride),
                _ => (totals.cast_const(), PANEL_WIDTH),
            };
            let (c, c_stride) = match index + 1 == part.depth {
                true => (part.c, part.c_stride),
                false => (totals, PANEL_WIDTH),
            };
            let scaled = ScaledSums {
                sums: sums_of(index).cast_const().cast(),
                scales: header_of(index).cast(),
                scales_stride: L::HEADER,
                x_scale: &raw const (*part.x.add(index)).scale,
                x_stride: part.x_stride * size_of::<WideRowGroup>(),
                x_group: size_of::<WideRowGroup>(),
                init,
                init_stride: init_stride * size_of::<f32>(),
                c,
                c_stride: c_stride * size_of::<f32>(),
                rows: part.rows,
            };
            scaled.add::<1>();
        };
        let shapes = Tiles::of_rows(part.rows);
        for index in 0..part.depth {
            let group = groups.add(index * L::GROUP_BYTES);
            let header = header_of(index);
            for line in (0..L::HEADER).step_by(64) {
                let ahead = header.wrapping_add(HEADERS_AHEAD * L::HEADER + line);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            }
            let units = matrix.units(part.first + index);
            let mut tiles = ByteTiles {
                x: (&raw const (*part.x.add(index)).values).cast(),
                x_stride: part.x_stride * size_of::<WideRowGroup>(),
                weights: group.cast(),
                steps: units,
                sums: sums_of(index).cast(),
                ahead: group,
                ahead_lines: 0,
            };
            match L::FORMAT {
                WideFormat::Wide8 => multiply_bytes_asking(&shapes, part.rows, &tiles),
                WideFormat::Wide4 => {
                    const BY_UNPACKING: usize = LINES - LINES_BY_TILES;
                    let ahead = group.wrapping_add(DISTANCE);
                    let to = unpacked.as_mut_ptr().cast();
                    unpack::<L, BY_UNPACKING>(group, header, units, to, ahead);
                    tiles.weights = unpacked.as_ptr().cast();
                    tiles.ahead = ahead.wrapping_add(units * BY_UNPACKING * 64);
                    tiles.ahead_lines = LINES_BY_TILES;
                    multiply_bytes_deep(&shapes, part.rows, &tiles);
                }
            }
            // The sums of the group before, which are there by now: scaling doesn't wait for tiles.
            if index > 0 {
                scale(index - 1);
            }
        }
        scale(part.depth - 1);
    }
}

/// Asks for `len` values that will be written.
///
/// # Safety
/// The processor must have tiles: then it has the instruction, too. The values may lie anywhere.
#[inline(always)]
unsafe fn prefetch_for_write(values: *const f32, len: usize) {
    for at in (0..len).step_by(LANES) {
        // SAFETY: the instruction changes nothing but what is in the caches.
        unsafe {
            asm!(
                "prefetchw [{}]",
                in(reg) values.wrapping_add(at),
                options(nostack, preserves_flags),
            );
        }
    }
}

/// `c = init`: sums over nothing.
///
/// # Safety
/// Both must be valid for the rows of `part` and 32 columns.
unsafe fn copy_init(part: &Part<WideRowGroup>) {
    for row in 0..part.rows {
        // SAFETY: the caller vouches for both; they may be the same.
        unsafe {
            let from = part.init.add(row * part.init_stride);
            std::ptr::copy(from, part.c.add(row * part.c_stride), PANEL_WIDTH);
        }
    }
}

/// Writes a group's values times their factors as signed bytes, in the order of 8 bits. With each unit it
/// asks for `ASKED` lines from `ahead` on, at most one with each line that it reads. These are in their order,
/// which weights are not read in.
///
/// # Safety
/// The processor must have AVX-512. `group` must be a group of `units` units of layout `L`, which has 4
/// bits, and `header` its header; `to` must be valid for writing as many.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn unpack<L: WideLayout, const ASKED: usize>(
    group: *const u8,
    header: *const u8,
    units: usize,
    to: *mut i8,
    ahead: *const u8,
) {
    /// Bytes of half a part with a factor of its own, of all columns.
    const HALF: usize = FACTOR_GROUP / 2 * PANEL_WIDTH;
    /// By what the values of 16 columns are multiplied, four bytes of each being two 16-bit lanes, and 8
    /// times that by byte.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    fn spread(factors: __m512i) -> (__m512i, __m512i) {
        let lanes = _mm512_or_si512(factors, _mm512_slli_epi32::<16>(factors));
        // At most 15 * 8, so that nothing runs into the next byte.
        let lower = _mm512_slli_epi16::<3>(lanes);
        (lanes, _mm512_or_si512(lower, _mm512_slli_epi16::<8>(lower)))
    }
    // SAFETY: the caller vouches for the group and for what is written.
    unsafe {
        let mask = _mm512_set1_epi8(15);
        for unit in 0..units {
            for vec in 0..2 {
                let at = header.add(SCALES + unit * PANEL_WIDTH + vec * LANES);
                let words = _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast()));
                let factors = [_mm512_and_si512(words, mask), _mm512_srli_epi32::<4>(words)];
                for (half, factors) in factors.into_iter().enumerate() {
                    let (by, zero) = spread(factors);
                    let part = 2 * unit + half;
                    let from = group.add(part * HALF + vec * STEP);
                    let to = to.add((2 * unit + vec) * TILE + half * TILE / 2);
                    for step in 0..HALF / (2 * STEP) {
                        let line = (2 * vec + half) * (LINES / 4) + step;
                        if line < ASKED {
                            let ahead = ahead.wrapping_add((unit * ASKED + line) * 64);
                            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                        }
                        let bytes = _mm512_loadu_si512(from.add(step * 2 * STEP).cast());
                        let upper = _mm512_srli_epi16::<4>(bytes);
                        let to = to.add(step * STEP);
                        for (half, bytes) in [bytes, upper].into_iter().enumerate() {
                            // At most 15 * 15 for each byte of a lane, so that nothing runs into the
                            // upper one.
                            let bytes = _mm512_and_si512(bytes, mask);
                            let bytes = _mm512_sub_epi8(_mm512_mullo_epi16(bytes, by), zero);
                            _mm512_store_si512(to.add(half * TILE / 4).cast(), bytes);
                        }
                    }
                }
            }
        }
    }
}

const _: () = assert!(size_of::<Unpacked>() == UNITS * UNIT_BYTES);
const _: () = assert!(size_of::<Sums>() == 2 * ScaledSums::SECOND_COLUMNS);
const _: () = assert!(CHUNK == 2);
const _: () = assert!(LINES_BY_TILES < LINES && LINES.is_multiple_of(4));
