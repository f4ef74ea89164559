//! Products with bfloat16 matrices by tiles (AMX): 32 rows by 32 columns at a time.
//!
//! Panels hold their values as tiles read them: 16 pairs of neighbours in depth by 16 columns, rows
//! of a tile 128 bytes apart. Few rows go by tiles of few rows, so that a row's sums are the same
//! alone and in any company.

use super::dense::DenseMatrix;
use super::format::Bf16;
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::simd::SimdLevel;
use super::tile_products_x86::{Bf16Tiles, multiply_bf16};
use super::tiles_x86::{TILE_ROWS, Tiles};

/// Pairs in a row of a tile.
const STEP: usize = 16;

/// Pairs that a row of `width` values takes, whole steps of them filled with zeros: an odd number of
/// lines, so that the rows of a tile lie in different places of the first cache.
pub(crate) fn stride(width: usize) -> usize {
    (width.div_ceil(2 * STEP) | 1) * STEP
}

/// Products of pairs of bfloat16, as many as [`stride`] says, with a matrix. Needs
/// [`SimdLevel::Amx`].
pub(crate) struct Bf16TileKernel<'a> {
    matrix: &'a DenseMatrix<Bf16>,
}

impl<'a> Bf16TileKernel<'a> {
    /// `None` below the level that has tiles.
    pub(crate) fn new(matrix: &'a DenseMatrix<Bf16>, level: SimdLevel) -> Option<Self> {
        level.has_tiles().then_some(Self { matrix })
    }
}

/// Rows of a block: two tiles.
const MOST_ROWS: usize = 2 * TILE_ROWS;

/// Bytes of a panel that a step reads.
const STEP_BYTES: usize = STEP * PANEL_WIDTH * size_of::<u32>();

/// Bytes ahead of the only block of rows.
const DISTANCE: usize = 4096;

/// Blocks of rows that still wait for memory: each asks for its share of what follows.
const MOST_BLOCKS: usize = 8;

/// Rows from which on a part of the depth passes at a time, and that part.
const MANY_ROWS: usize = 192;
const STEPS_OF_MANY: usize = 8;

impl PanelKernel for Bf16TileKernel<'_> {
    type Input = u32;

    fn out_features(&self) -> usize {
        self.matrix.out_features()
    }
    fn depth(&self) -> usize {
        self.matrix.in_features().div_ceil(2).next_multiple_of(STEP)
    }
    fn work_per_output(&self) -> usize {
        // A sixteenth of what f32 takes, but no less than it takes to read the weights.
        self.matrix.in_features() / 4
    }
    fn depth_block(&self, _rows: usize) -> usize {
        // The kernel walks it by itself.
        self.depth().max(STEP)
    }
    fn row_block(&self) -> usize {
        // Whose activations take two thirds of the second cache.
        let row_bytes = stride(self.matrix.in_features()) * size_of::<u32>();
        ((5 << 18) / row_bytes.max(1)).clamp(MOST_ROWS, 256) / MOST_ROWS * MOST_ROWS
    }
    fn row_step(&self) -> usize {
        MOST_ROWS
    }
    fn bias(&self) -> &[f32] {
        self.matrix.bias()
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<u32>) {
        let weights = self.matrix.panel(panel);
        let pairs = weights.len() / (2 * PANEL_WIDTH);
        let (whole, end) = (pairs / STEP * STEP, part.first + part.depth);
        let steps = (end.min(whole) - part.first.min(whole)) / STEP;
        // Where many rows pass, so many steps that their weights stay in the first cache; few rows are
        // faster with sums that stay in their tiles.
        let steps_at_once = match part.rows {
            MANY_ROWS.. => STEPS_OF_MANY,
            _ => steps.max(1),
        };
        // SAFETY: the caller vouches for rows, results and columns; the level was checked in `new`.
        // The sums go on where they stopped.
        unsafe {
            for first in (0..steps).step_by(steps_at_once) {
                let at = part.first + first * STEP;
                let weights = weights[(at * PANEL_WIDTH + col) * 2..].as_ptr();
                let (init, init_stride) = match first {
                    0 => (part.init, part.init_stride),
                    _ => (part.c.cast_const(), part.c_stride),
                };
                let part = Part {
                    x: part.x.add(first * STEP),
                    init,
                    init_stride,
                    ..*part
                };
                let count = (steps - first).min(steps_at_once);
                multiply_steps(weights, count, wide, &part);
            }
            if end > whole {
                // The last pairs, and zeros after them.
                let mut last = [0u16; STEP * PANEL_WIDTH * 2];
                let rest = &weights[whole * PANEL_WIDTH * 2..];
                last[..rest.len()].copy_from_slice(rest);
                let init = match steps {
                    0 => (part.init, part.init_stride),
                    _ => (part.c.cast_const(), part.c_stride),
                };
                let part = Part {
                    x: part.x.add(steps * STEP),
                    init: init.0,
                    init_stride: init.1,
                    ..*part
                };
                multiply_steps(last[2 * col..].as_ptr(), 1, wide, &part);
            }
        }
    }
}

/// The product for all rows of `part` by so many steps of the depth.
///
/// # Safety
/// As [`PanelKernel::multiply`]; the processor must have tiles, and `weights` hold the steps.
unsafe fn multiply_steps(weights: *const u16, steps: usize, wide: bool, part: &Part<u32>) {
    let num_blocks = part.rows.div_ceil(MOST_ROWS);
    let bytes = steps * STEP_BYTES;
    let multiply_block = |shapes: &Tiles, block: usize, rows: usize| {
        // What follows the part, in as many shares as there are blocks. Where many blocks pass,
        // products take longer than memory.
        let lines = STEP_BYTES / 64;
        let (ahead, ahead_lines) = match num_blocks {
            _ if !wide => (0, 0),
            1 => (DISTANCE, lines),
            2..=MOST_BLOCKS => {
                let share = lines / num_blocks;
                (bytes + block * share * steps * 64, share)
            }
            _ => (0, 0),
        };
        let row = block * MOST_ROWS;
        // SAFETY: the rows are among those that the caller vouches for, as are the weights; what is
        // asked for ahead may lie anywhere.
        unsafe {
            let tiles = Bf16Tiles {
                init: part.init.add(row * part.init_stride),
                init_stride: part.init_stride * size_of::<f32>(),
                c: part.c.add(row * part.c_stride),
                c_stride: part.c_stride * size_of::<f32>(),
                x: part.x.add(row * part.x_stride),
                x_stride: part.x_stride * size_of::<u32>(),
                weights,
                weights_stride: PANEL_WIDTH * size_of::<u32>(),
                steps,
                ahead: weights.cast::<u8>().wrapping_add(ahead),
                ahead_lines,
            };
            multiply_bf16(shapes, rows, wide, &tiles);
        }
    };
    let (whole, rest) = (part.rows / MOST_ROWS, part.rows % MOST_ROWS);
    // SAFETY: the caller vouches for the processor; the first shapes end before the second.
    unsafe {
        if whole > 0 {
            let shapes = Tiles::of_rows(MOST_ROWS);
            (0..whole).for_each(|block| multiply_block(&shapes, block, MOST_ROWS));
        }
        if rest > 0 {
            multiply_block(&Tiles::of_rows(rest), whole, rest);
        }
    }
}
