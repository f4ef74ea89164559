//! Products of quantized rows with quantized weights by tiles (AMX): 16 rows by 16 columns.
//!
//! A tile's product is that of one group, 32 values deep: sums of whole numbers, which are exact. They
//! are scaled and added up as [`super::quantized`] does it, in the same order, so both give the same
//! bits and each number of rows may go the way that is faster.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::panels::{PANEL_WIDTH, Part};
use super::quantized::{Layout, SCALES, STEP};
use super::quantized_rows::ActivationGroup;
use super::simd::LANES;
use super::tile_products_x86::{add_scaled, multiply_bytes};
use super::tiles_x86::{TILE_ROWS, Tiles};
use crate::model_executor::quantization::{GROUP, QuantizedFormat};

/// Fewest rows for which tiles are faster than vectors.
pub(super) const LEAST_ROWS: usize = 32;

/// Groups whose weights are unpacked at a time: they stay in the first cache while rows pass.
const CHUNK: usize = 16;

/// Blocks of rows that still wait for memory: each asks for its share of what follows.
const MOST_BLOCKS: usize = 6;

/// A group's weights as tiles read them: signed, and the halves of the panel apart.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Unpacked {
    values: [[i8; GROUP * LANES]; 2],
    scales: [[f32; LANES]; 2],
}

/// Sums of a tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums([[i32; LANES]; TILE_ROWS]);

/// Sums that wait to be scaled: reading them at once would wait for what writes them.
const WAITING: usize = 2;

/// The product for all rows of `part` and 32 columns; `groups` are those of the panel.
///
/// # Safety
/// The processor must have tiles. `part` and `groups` must be valid as
/// [`PanelKernel::multiply`](super::panels::PanelKernel::multiply) asks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn multiply<L: Layout>(groups: *const u8, part: &Part<ActivationGroup>) {
    let (whole, rest) = (part.rows / TILE_ROWS, part.rows % TILE_ROWS);
    let num_blocks = part.rows.div_ceil(TILE_ROWS);
    let mut unpacked = [const { MaybeUninit::<Unpacked>::uninit() }; CHUNK];
    // SAFETY: the caller vouches for the processor, the rows and the groups; what is unpacked is
    // written before it is read. The depth is walked in chunks, the sums going on where they stopped.
    unsafe {
        let shapes = Tiles::for_bytes(rest);
        let mut first = 0;
        while first < part.depth || first == 0 {
            let count = (part.depth - first).min(CHUNK);
            let from = groups.add(first * L::GROUP_BYTES);
            for (index, to) in unpacked.iter_mut().enumerate().take(count) {
                unpack::<L>(from.add(index * L::GROUP_BYTES), to.as_mut_ptr());
            }
            let weights = unpacked.as_ptr().cast::<Unpacked>();
            let (init, init_stride) = match first {
                0 => (part.init, part.init_stride),
                _ => (part.c.cast_const(), part.c_stride),
            };
            // What follows is asked for in as many shares as there are products.
            let bytes = count * L::GROUP_BYTES;
            let lines = match num_blocks {
                ..=MOST_BLOCKS => (L::GROUP_BYTES / 64).div_ceil(2 * num_blocks),
                _ => 0,
            };
            for block in 0..num_blocks {
                let row = block * TILE_ROWS;
                let rows = RowsOfTile {
                    x: part.x.add(row * part.x_stride + first).cast(),
                    x_stride: part.x_stride * size_of::<ActivationGroup>(),
                    init: init.add(row * init_stride),
                    init_stride,
                    c: part.c.add(row * part.c_stride),
                    c_stride: part.c_stride,
                    ahead: from.wrapping_add(bytes + block * 2 * count * lines * 64),
                    ahead_lines: lines,
                };
                macro_rules! multiply_rows {
                    ($rows:expr, [$($n:literal),*]) => {
                        match $rows {
                            $($n => rows.multiply::<$n>(&shapes, weights, count),)*
                            _ => rows.multiply::<TILE_ROWS>(&shapes, weights, count),
                        }
                    };
                }
                let here = if block < whole { TILE_ROWS } else { rest };
                multiply_rows!(here, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
            }
            first += CHUNK;
        }
    }
}

/// Writes a group's values as signed bytes, and its scales as f32.
///
/// # Safety
/// The processor must have AVX-512. `group` must be a group of layout `L`, `to` valid for writing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn unpack<L: Layout>(group: *const u8, to: *mut Unpacked) {
    // SAFETY: the caller vouches for the group and for what is written.
    unsafe {
        let values = (&raw mut (*to).values).cast::<i8>();
        let half = GROUP * LANES;
        for step in 0..L::GROUP_BYTES / (2 * STEP) {
            for vec in 0..2 {
                let bytes = _mm512_loadu_si512(group.add(SCALES + (2 * step + vec) * STEP).cast());
                let to = values.add(vec * half + step * STEP);
                match L::FORMAT {
                    QuantizedFormat::Q8_0 => {
                        // Less 128.
                        let signed = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
                        _mm512_store_si512(to.cast(), signed);
                    }
                    QuantizedFormat::Q4_0 => {
                        let (mask, zero) = (_mm512_set1_epi8(15), _mm512_set1_epi8(8));
                        let lower = _mm512_and_si512(bytes, mask);
                        let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask);
                        _mm512_store_si512(to.cast(), _mm512_sub_epi8(lower, zero));
                        let to = to.add(half / 2);
                        _mm512_store_si512(to.cast(), _mm512_sub_epi8(upper, zero));
                    }
                }
            }
        }
        for vec in 0..2 {
            let scales = _mm256_loadu_si256(group.add(2 * vec * LANES).cast());
            let to = (&raw mut (*to).scales[vec]).cast();
            _mm512_store_ps(to, _mm512_cvtph_ps(scales));
        }
    }
}

/// The rows of a tile and a chunk of the depth. Strides of `x` are in bytes.
struct RowsOfTile {
    x: *const u8,
    x_stride: usize,
    init: *const f32,
    init_stride: usize,
    c: *mut f32,
    c_stride: usize,
    /// What is asked for meanwhile, and how many lines of it with each product.
    ahead: *const u8,
    ahead_lines: usize,
}

impl RowsOfTile {
    /// `c = init + x * weights`, one half of the panel after the other.
    ///
    /// # Safety
    /// The processor must have tiles, and this thread's must be in `shapes`. All must be valid for
    /// `ROWS` rows, 32 columns and `count` groups.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn multiply<const ROWS: usize>(
        &self,
        shapes: &Tiles,
        weights: *const Unpacked,
        count: usize,
    ) {
        let mut waiting = [const { MaybeUninit::<Sums>::uninit() }; 2 * WAITING];
        let waiting = waiting.as_mut_ptr().cast::<Sums>();
        let mut ahead = self.ahead;
        // SAFETY: the caller vouches for rows, columns and groups; sums are scaled after they were
        // written. What is asked for ahead may lie anywhere.
        unsafe {
            for half in 0..2 {
                let col = half * LANES;
                let mut totals = [_mm512_setzero_ps(); ROWS];
                for (row, total) in totals.iter_mut().enumerate() {
                    *total = _mm512_loadu_ps(self.init.add(row * self.init_stride + col));
                }
                for step in 0..count + WAITING {
                    if step < count {
                        multiply_bytes::<ROWS>(
                            shapes,
                            self.values(step),
                            self.x_stride,
                            (&raw const (*weights.add(step)).values[half]).cast(),
                            waiting.add(step % (2 * WAITING)).cast(),
                        );
                        for _ in 0..self.ahead_lines {
                            _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                            ahead = ahead.wrapping_add(64);
                        }
                    }
                    if step >= WAITING {
                        let group = step - WAITING;
                        let sums = waiting.add(group % (2 * WAITING)).cast::<i32>();
                        let scales = &raw const (*weights.add(group)).scales[half];
                        let scales = _mm512_load_ps(scales.cast());
                        let x = self.x.add(group * size_of::<ActivationGroup>());
                        let x_scales = &raw const (*x.cast::<ActivationGroup>()).scale;
                        add_scaled(&mut totals, sums, scales, x_scales, self.x_stride);
                    }
                }
                for (row, total) in totals.iter().enumerate() {
                    _mm512_storeu_ps(self.c.add(row * self.c_stride + col), *total);
                }
            }
        }
    }

    /// The values of the first row's group.
    #[inline(always)]
    fn values(&self, group: usize) -> *const i8 {
        let offset = std::mem::offset_of!(ActivationGroup, values);
        let group = group * size_of::<ActivationGroup>();
        self.x.wrapping_add(group + offset).cast()
    }
}

const _: () = assert!(size_of::<Unpacked>() == GROUP * PANEL_WIDTH + 4 * PANEL_WIDTH);
