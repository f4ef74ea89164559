//! The first half of a gated MLP: `act(gate) * up` of `[gate | up] = x * matrix^T + bias`.
//!
//! Gates and their factors are kept nowhere: the panel of some gates and that of their factors go one after
//! the other. Where the next matrix reads wide groups, the results are quantized while they are in the cache,
//! and never written as f32: 15 MB of weights pass between two layers, so that what a layer writes has
//! left the caches when the next one writes there again, and each line is read before it is written.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::buffer::{Buffer, SharedMut};
use super::elementwise::act_and_mul_panels;
use super::panels::{
    MOST_ROWS, PANEL_WIDTH, PanelKernel, Rows, Tiling, WORK_PER_TILE, multiply_panel,
};
use super::simd::{LANES, SimdLevel};
use super::wide_rows::{WideRowGroup, num_wide_groups, quantize_wide_row};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;
use crate::model_executor::error::ModelError;
use crate::model_executor::wide_quantization::WIDE_GROUP;

/// Whether a matrix is halves of whole panels.
pub(crate) fn is_gateable(out_features: usize) -> bool {
    out_features.is_multiple_of(2 * PANEL_WIDTH)
}

/// A matrix of gates and their factors, and what is multiplied with it.
pub(crate) struct Gated<'a, K: PanelKernel> {
    kernel: &'a K,
    level: SimdLevel,
    x: &'a Rows<'a, K::Input>,
    act: HiddenAct,
    /// Panels of gates.
    num_panels: usize,
}

impl<'a, K: PanelKernel> Gated<'a, K> {
    /// Panics where the rows are too short or the matrix isn't [gateable](is_gateable).
    pub(crate) fn new(
        kernel: &'a K,
        level: SimdLevel,
        x: &'a Rows<'a, K::Input>,
        act: HiddenAct,
    ) -> Self {
        x.check(kernel.depth());
        assert!(is_gateable(kernel.out_features()), "halves of panels");
        Self {
            kernel,
            level,
            x,
            act,
            num_panels: kernel.out_features() / (2 * PANEL_WIDTH),
        }
    }

    fn tiling(&self, pool: &ComputePool) -> Tiling {
        let tiling = Tiling::of(
            self.kernel,
            self.num_panels,
            pool.num_threads(),
            self.x.count,
        );
        assert!(tiling.rows_per_block <= MOST_ROWS, "rows of a block");
        tiling
    }

    /// `out = act(gate) * up`, rows at a stride.
    pub(crate) fn multiply(
        &self,
        pool: &ComputePool,
        out: &mut [f32],
        out_stride: usize,
    ) -> Result<(), ModelError> {
        let mut tiling = self.tiling(pool);
        tiling.panels_per_tile = tiling.panels_per_tile.div_ceil(2);
        let to = SharedMut::new(out);
        pool.run(tiling.num_tiles(), &|tile, _| {
            let (rows, panels) = tiling.tile(tile, self.x.count);
            for panel in panels {
                let col = panel * PANEL_WIDTH;
                for row in rows.clone() {
                    // SAFETY: only checks the bounds of what is written below.
                    let _ = unsafe { to.ptr(row * out_stride + col, PANEL_WIDTH) };
                }
                // SAFETY: 32 values of each row of `out` belong to this tile and lie within it, as
                // just checked.
                unsafe {
                    let to = to.ptr(rows.start * out_stride + col, PANEL_WIDTH);
                    self.multiply_panel(panel, rows.clone(), to, out_stride);
                }
            }
        })?;
        Ok(())
    }

    /// The same in wide groups: `out` is `[rows, groups]`.
    pub(crate) fn multiply_to_groups(
        &self,
        pool: &ComputePool,
        scratch: &mut GroupScratch,
        out: &mut [WideRowGroup],
    ) -> Result<(), ModelError> {
        let stride = num_wide_groups(self.num_panels * PANEL_WIDTH);
        assert!(out.len() >= self.x.count * stride, "groups of all rows");
        let tiling = self.tiling(pool);
        let work = self.kernel.work_per_output() * 2 * PANEL_WIDTH * self.num_panels * self.x.count;
        let items = stride * tiling.row_blocks;
        let pieces = Pieces::of(items, pool.num_threads().min(work / WORK_PER_TILE).max(1));
        let GroupScratch {
            threads,
            split,
            done,
        } = scratch;
        assert!(pieces.num_split() <= done.len(), "scratch of fewer threads");
        done.iter_mut().for_each(|done| *done.get_mut() = 0);
        let (threads, split) = (SharedMut::new(threads), SharedMut::new(split));
        let (out, done) = (SharedMut::new(out), &*done);

        pool.run(pieces.count(), &|index, thread| {
            let piece = pieces.get(index);
            // Blocks of rows follow one another, so that the panels are read from memory once.
            let (group, block) = (
                piece.item / tiling.row_blocks,
                piece.item % tiling.row_blocks,
            );
            let first_row = block * tiling.rows_per_block;
            let rows = first_row..self.x.count.min(first_row + tiling.rows_per_block);
            let first_panel = group * PANELS_OF_GROUP;
            let num_panels = PANELS_OF_GROUP.min(self.num_panels - first_panel);
            // SAFETY: a thread has its own scratch memory, and an item that several work on has its own.
            let values = unsafe {
                match piece.split {
                    None => threads.ptr(thread * SCRATCH, SCRATCH),
                    Some(split_item) => split.ptr(split_item * SCRATCH, SCRATCH),
                }
            };
            let part = match piece.split {
                None => 0..num_panels,
                Some(_) => pieces.part_of(piece.part, num_panels),
            };
            for panel in part {
                // SAFETY: the scratch memory has room for 256 rows of 256 values; these columns are
                // this piece's alone.
                unsafe {
                    let to = values.add(panel * PANEL_WIDTH);
                    self.multiply_panel(first_panel + panel, rows.clone(), to, SCRATCH_STRIDE);
                }
            }
            if let Some(split_item) = piece.split
                && done[split_item].fetch_add(1, Ordering::AcqRel) + 1 < pieces.num_threads
            {
                // Another thread still works on this group; the last one quantizes it.
                return;
            }
            for (index, row) in rows.enumerate() {
                // SAFETY: all panels of the group are there; the group of each row is this item's alone.
                unsafe {
                    let to = out.ptr(row * stride + group, 1);
                    let from = values.add(index * SCRATCH_STRIDE);
                    quantize_wide_row(self.level, from, num_panels * PANEL_WIDTH, to);
                }
            }
        })?;
        Ok(())
    }

    /// 32 results of each of some rows.
    ///
    /// # Safety
    /// `out` must be valid for them at its stride.
    unsafe fn multiply_panel(
        &self,
        panel: usize,
        rows: Range<usize>,
        out: *mut f32,
        out_stride: usize,
    ) {
        let mut gate_up = [const { MaybeUninit::<f32>::uninit() }; MOST_ROWS * 2 * PANEL_WIDTH];
        let gate_up = gate_up.as_mut_ptr().cast::<f32>();
        // SAFETY: `x` holds the rows, the matrix both panels and their biases, `gate_up` 64 values of each
        // row of a block; the caller vouches for `out`.
        unsafe {
            for half in 0..2 {
                let (panel, to) = (
                    panel + half * self.num_panels,
                    gate_up.add(half * PANEL_WIDTH),
                );
                let rows = rows.clone();
                multiply_panel(
                    self.kernel,
                    self.x,
                    rows,
                    panel,
                    PANEL_WIDTH,
                    to,
                    2 * PANEL_WIDTH,
                );
            }
            act_and_mul_panels(self.level, self.act, gate_up, rows.len(), out, out_stride);
        }
    }
}

/// Panels of a wide group.
const PANELS_OF_GROUP: usize = WIDE_GROUP / PANEL_WIDTH;

/// From a row of what is quantized to the next: not a power of two, at which lines compete for places.
const SCRATCH_STRIDE: usize = WIDE_GROUP + LANES;

/// Values of a block of rows.
const SCRATCH: usize = MOST_ROWS * SCRATCH_STRIDE;

/// Where results wait to be quantized.
pub(crate) struct GroupScratch {
    /// A block of rows for each thread.
    threads: Buffer<f32>,
    /// One for each group that several threads work on.
    split: Buffer<f32>,
    /// How many of them have done their part.
    done: Vec<AtomicUsize>,
}

impl GroupScratch {
    /// Memory that is never needed is never taken.
    pub(crate) fn allocate(num_threads: usize) -> Result<Self, ModelError> {
        let num_split = num_threads.saturating_sub(1);
        Ok(Self {
            threads: Buffer::zeroed("scratch", num_threads.saturating_mul(SCRATCH))?,
            split: Buffer::zeroed("scratch", num_split.saturating_mul(SCRATCH))?,
            done: (0..num_split).map(|_| AtomicUsize::new(0)).collect(),
        })
    }
}

/// How items are shared out: each thread gets as many whole ones, and a part of each that is left.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    items: usize,
    num_threads: usize,
}

/// A whole item, or a part of one.
#[derive(Debug, PartialEq)]
struct Piece {
    item: usize,
    /// Among the items that are split, where it is one.
    split: Option<usize>,
    /// Of as many parts as there are threads.
    part: usize,
}

impl Pieces {
    fn of(items: usize, num_threads: usize) -> Self {
        Self { items, num_threads }
    }

    fn num_split(self) -> usize {
        self.items % self.num_threads
    }

    fn per_thread(self) -> usize {
        self.items / self.num_threads + self.num_split()
    }

    fn count(self) -> usize {
        self.num_threads * self.per_thread()
    }

    /// Pieces of one thread follow one another: whole ones, then parts.
    fn get(self, index: usize) -> Piece {
        let (thread, index) = (index / self.per_thread(), index % self.per_thread());
        let whole = self.items / self.num_threads;
        match index.checked_sub(whole) {
            None => Piece {
                item: thread * whole + index,
                split: None,
                part: 0,
            },
            Some(split) => Piece {
                item: self.num_threads * whole + split,
                split: Some(split),
                part: thread,
            },
        }
    }

    /// Which of `len` that are split among all threads a part has.
    fn part_of(self, part: usize, len: usize) -> Range<usize> {
        len * part / self.num_threads..len * (part + 1) / self.num_threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_items_once_and_shares_are_even() {
        const LEN: usize = 8;
        for items in 0..30 {
            for num_threads in 1..9 {
                let pieces = Pieces::of(items, num_threads);
                let mut counts = vec![0; items * LEN];
                for index in 0..pieces.count() {
                    let piece = pieces.get(index);
                    let part = match piece.split {
                        None => 0..LEN,
                        Some(split) => {
                            assert!(split < pieces.num_split());
                            pieces.part_of(piece.part, LEN)
                        }
                    };
                    part.for_each(|at| counts[piece.item * LEN + at] += 1);
                }
                assert!(counts.iter().all(|count| *count == 1), "{pieces:?}");
            }
        }
    }
}
