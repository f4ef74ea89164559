//! The product of rows with a packed matrix, whatever its format: how it is cut into tiles.
//!
//! A packed matrix `[out_features, in_features]` is a row of panels, each `in_features` deep and
//! 32 outputs wide: 32 outputs are computed at once, one lane each, so that no sum runs across
//! lanes and every output is one chain of multiply-adds whatever the number of rows. One row
//! streams each panel once from memory; with more rows a panel comes from the cache again.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::buffer::SharedMut;
use super::elementwise::{largest_of_panels, stream_rows};
use super::experts::ExpertRows;
use super::simd::{LANES, Simd, SimdLevel};
use crate::model_executor::LOGITS_PER_MAXIMUM;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// Outputs of a panel.
pub(crate) const PANEL_WIDTH: usize = 2 * LANES;

// A panel of the LM head is what a maximum of logits is noted of.
const _: () = assert!(PANEL_WIDTH == LOGITS_PER_MAXIMUM);

/// Most rows of a block, whatever the kernel.
pub(super) const MOST_ROWS: usize = 256;

/// Panels that stay in the caches while blocks of rows pass.
pub(super) const PANEL_BLOCK: usize = 8;

/// Multiply-adds below which a tile is not worth a thread.
pub(super) const WORK_PER_TILE: usize = 16 * 1024;

/// A packed matrix in the hands of the kernel that multiplies with it.
pub(crate) trait PanelKernel: Sync {
    /// What a row of activations is made of.
    type Input: Sync;

    /// Outputs.
    fn out_features(&self) -> usize;

    /// Elements of `Input` in a row.
    fn depth(&self) -> usize;

    /// What an output costs, in the time of a multiply-add of f32.
    fn work_per_output(&self) -> usize;

    /// Elements of `Input` whose part of a panel stays in the first cache while so many rows pass.
    fn depth_block(&self, rows: usize) -> usize;

    /// Most rows whose activations stay in the second cache while panels pass.
    fn row_block(&self) -> usize {
        96
    }

    /// Rows that pass at once, where there are as many.
    fn row_step(&self) -> usize {
        1
    }

    /// `[out_features]`, padded to whole panels; empty where there is none.
    fn bias(&self) -> &[f32];

    /// `c[r, ..] = init[r, ..] + x[r, depth] * panel[depth, col..]` by one chain of multiply-adds
    /// per element in ascending depth, 32 columns wide or (not `wide`) 16.
    ///
    /// # Safety
    /// `part` must be valid for its rows of `Input` and of results at their strides; `panel`,
    /// `col` and `depth` must lie within the matrix.
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<Self::Input>);
}

/// The biases of the panel or half a panel that begins with output `col`. Where there are none they are zeros
/// that stay in the cache: a matrix is read once a layer, so that its own come from memory.
fn bias_from<K: PanelKernel>(kernel: &K, col: usize) -> *const f32 {
    static ZEROS: [f32; PANEL_WIDTH] = [0.0; PANEL_WIDTH];
    match kernel.bias() {
        [] => ZEROS.as_ptr(),
        bias => bias[col..].as_ptr(),
    }
}

/// Rows and a range of the depth, and where the results go. `init` may be `c`.
#[derive(Debug)]
pub(crate) struct Part<I> {
    pub(crate) rows: usize,
    /// First and number of elements of the depth.
    pub(crate) first: usize,
    pub(crate) depth: usize,
    /// The rows from the depth's beginning on.
    pub(crate) x: *const I,
    pub(crate) x_stride: usize,
    pub(crate) init: *const f32,
    pub(crate) init_stride: usize,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
}

impl<I> Part<I> {
    /// What the sums of `ROWS` rows from `row` on begin with, `VECS * 16` columns each.
    ///
    /// # Safety
    /// The processor must have the level of `S`; the part must have the rows and columns.
    #[inline(always)]
    pub(crate) unsafe fn initial_sums<S: Simd, const ROWS: usize, const VECS: usize>(
        &self,
        row: usize,
    ) -> [[S::V; VECS]; ROWS] {
        // SAFETY: the caller vouches for the level, the rows and the columns.
        unsafe {
            let init = self.init.add(row * self.init_stride);
            let mut all = [[S::splat(0.0); VECS]; ROWS];
            for (row, sums) in all.iter_mut().enumerate() {
                for (vec, sum) in sums.iter_mut().enumerate() {
                    *sum = S::load(init.add(row * self.init_stride + vec * LANES));
                }
            }
            all
        }
    }

    /// Writes the sums of the rows from `row` on.
    ///
    /// # Safety
    /// As for [`Self::initial_sums`].
    #[inline(always)]
    pub(crate) unsafe fn store_sums<S: Simd, const ROWS: usize, const VECS: usize>(
        &self,
        row: usize,
        all: &[[S::V; VECS]; ROWS],
    ) {
        // SAFETY: the caller vouches for the level, the rows and the columns.
        unsafe {
            let c = self.c.add(row * self.c_stride);
            for (row, sums) in all.iter().enumerate() {
                for (vec, sum) in sums.iter().enumerate() {
                    S::store(c.add(row * self.c_stride + vec * LANES), *sum);
                }
            }
        }
    }
}

/// Rows at a stride.
#[derive(Debug)]
pub(crate) struct Rows<'a, I> {
    pub(crate) data: &'a [I],
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

impl<I> Rows<'_, I> {
    /// Panics where the rows don't hold `width` values each: kernels rely on it.
    pub(crate) fn check(&self, width: usize) {
        let needed = match self.count {
            0 => 0,
            count => (count - 1) * self.stride + width,
        };
        assert!(
            self.data.len() >= needed && self.stride >= width,
            "rows too short"
        );
    }
}

/// How a product of some rows is cut into tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiling {
    num_panels: usize,
    pub(super) row_blocks: usize,
    /// Of a block, but the last may have less: 100 rows are 50 and 50, not 96 and 4.
    pub(super) rows_per_block: usize,
    pub(super) panels_per_tile: usize,
}

impl Tiling {
    pub(super) fn of<K: PanelKernel>(
        kernel: &K,
        num_panels: usize,
        num_threads: usize,
        rows: usize,
    ) -> Self {
        let rows_per_block = rows
            .div_ceil(rows.div_ceil(kernel.row_block()).max(1))
            .next_multiple_of(kernel.row_step())
            .max(1);
        let row_blocks = rows.div_ceil(rows_per_block);
        let work_per_panel = (kernel.work_per_output() * PANEL_WIDTH * rows_per_block).max(1);
        // As many as make a tile worthwhile; as many as can share a block of rows, if that leaves
        // enough tiles to share out evenly.
        let shared = (num_panels * row_blocks / (8 * num_threads)).clamp(1, PANEL_BLOCK);
        Self {
            num_panels,
            row_blocks,
            rows_per_block,
            panels_per_tile: (WORK_PER_TILE / work_per_panel).max(shared),
        }
    }

    pub(super) fn num_tiles(&self) -> usize {
        self.num_panels.div_ceil(self.panels_per_tile) * self.row_blocks
    }

    /// Rows and panels of a tile of the product of `rows` rows.
    pub(super) fn tile(&self, tile: usize, rows: usize) -> (Range<usize>, Range<usize>) {
        // Blocks of rows follow one another, so that the panels are read from memory once.
        let first_row = tile % self.row_blocks * self.rows_per_block;
        let first_panel = tile / self.row_blocks * self.panels_per_tile;
        (
            first_row..rows.min(first_row + self.rows_per_block),
            first_panel..self.num_panels.min(first_panel + self.panels_per_tile),
        )
    }
}

/// `out[r, ..] = x[r, ..] * matrix^T + bias`, results `out_features` wide at `out_stride`.
pub(crate) fn multiply<K: PanelKernel>(
    kernel: &K,
    pool: &ComputePool,
    x: &Rows<'_, K::Input>,
    out: &mut [f32],
    out_stride: usize,
) -> Result<(), ModelError> {
    x.check(kernel.depth());
    let num_panels = kernel.out_features().div_ceil(PANEL_WIDTH);
    let tiling = Tiling::of(kernel, num_panels, pool.num_threads(), x.count);
    let to = SharedMut::new(out);
    pool.run(tiling.num_tiles(), &|tile, _| {
        multiply_tile(kernel, tiling, tile, x, 0..x.count, to, out_stride);
    })?;
    Ok(())
}

/// The same, and while they are in the caches the largest of the results of each panel, `[rows,
/// ceil(out_features / PANEL_WIDTH)]`. Where one of them is NaN or infinite some of the row's are NaN.
pub(crate) fn multiply_with_maxima<K: PanelKernel>(
    kernel: &K,
    level: SimdLevel,
    pool: &ComputePool,
    x: &Rows<'_, K::Input>,
    out: &mut [f32],
    out_stride: usize,
    maxima: SharedMut<'_, f32>,
) -> Result<(), ModelError> {
    x.check(kernel.depth());
    let num_panels = kernel.out_features().div_ceil(PANEL_WIDTH);
    let tiling = Tiling::of(kernel, num_panels, pool.num_threads(), x.count);
    let streams = size_of_val(out) >= STREAMED_BYTES;
    let to = SharedMut::new(out);
    pool.run(tiling.num_tiles(), &|tile, _| {
        let (rows, panels) = tiling.tile(tile, x.count);
        let whole = panels.start..panels.end.min(kernel.out_features() / PANEL_WIDTH);
        let first_col = panels.start * PANEL_WIDTH;
        let cols = kernel.out_features().min(panels.end * PANEL_WIDTH) - first_col;
        // `results` are those of a row in this tile.
        let note_maxima = |row: usize, results: *const f32| {
            // SAFETY: these maxima are this tile's alone, and `ptr` checks the bounds; the results are
            // `cols` values that were just written.
            unsafe {
                let to_maxima = maxima.ptr(row * num_panels + whole.start, whole.len());
                largest_of_panels(level, results, whole.len(), to_maxima);
                if whole.end < panels.end {
                    let before = whole.len() * PANEL_WIDTH;
                    let rest = std::slice::from_raw_parts(results.add(before), cols - before);
                    *maxima.ptr(row * num_panels + whole.end, 1) = largest_or_nan(rest);
                }
            }
        };
        if streams && rows.len() <= GATHERED_ROWS && panels.len() <= PANEL_BLOCK {
            let mut results = MaybeUninit::<Gathered>::uninit();
            let results = results.as_mut_ptr().cast::<f32>();
            // SAFETY: `x` holds the rows, the matrix the panels and their biases, `results` the tile's
            // results, which are written before they are read; `cols` values of each row of `out` belong
            // to this tile and lie within it, as `ptr` checks of all.
            unsafe {
                for (index, panel) in panels.clone().enumerate() {
                    let cols = (cols - index * PANEL_WIDTH).min(PANEL_WIDTH);
                    let to = results.add(index * PANEL_WIDTH);
                    multiply_panel(kernel, x, rows.clone(), panel, cols, to, GATHERED_STRIDE);
                }
                for (index, row) in rows.clone().enumerate() {
                    note_maxima(row, results.add(index * GATHERED_STRIDE));
                }
                let len = (rows.len() - 1) * out_stride + cols;
                let to = to.ptr(rows.start * out_stride + first_col, len);
                let stride = GATHERED_STRIDE;
                stream_rows(level, results, stride, rows.len(), cols, to, out_stride);
            }
            return;
        }
        multiply_tile(kernel, tiling, tile, x, 0..x.count, to, out_stride);
        for row in rows {
            // SAFETY: these results are this tile's alone. `ptr` checks the bounds.
            note_maxima(row, unsafe { to.ptr(row * out_stride + first_col, cols) });
        }
    })?;
    Ok(())
}

/// Bytes of results from which on they are written past the caches: they would not stay in them, and each
/// line would be read from memory before it is written.
const STREAMED_BYTES: usize = if cfg!(test) { 4 << 10 } else { 1 << 20 };

/// Most rows of a tile whose results are gathered before that: lines of each row one after the other.
const GATHERED_ROWS: usize = 32;

/// From a row of what is gathered to the next.
const GATHERED_STRIDE: usize = PANEL_BLOCK * PANEL_WIDTH;

/// Results of a tile.
#[repr(C, align(64))]
struct Gathered([[f32; GATHERED_STRIDE]; GATHERED_ROWS]);

/// The largest of some values; NaN where one of them is.
fn largest_or_nan(values: &[f32]) -> f32 {
    values
        .iter()
        .fold(f32::NEG_INFINITY, |largest, &value| match value.is_nan() {
            true => value,
            // NaN stays.
            false if largest >= value || largest.is_nan() => largest,
            false => value,
        })
}

/// The same by several matrices of one shape: `kernel_of(group.expert)` for the rows of each group.
pub(crate) fn multiply_groups<K: PanelKernel>(
    kernel_of: &(dyn Fn(usize) -> K + Sync),
    groups: &[ExpertRows],
    pool: &ComputePool,
    x: &Rows<'_, K::Input>,
    out: &mut [f32],
    out_stride: usize,
) -> Result<(), ModelError> {
    let tiling_of = |group: &ExpertRows| {
        let kernel = kernel_of(group.expert);
        x.check(kernel.depth());
        let num_panels = kernel.out_features().div_ceil(PANEL_WIDTH);
        Tiling::of(&kernel, num_panels, pool.num_threads(), group.count)
    };
    let num_tiles = groups
        .iter()
        .map(|group| tiling_of(group).num_tiles())
        .sum();
    let to = SharedMut::new(out);
    pool.run(num_tiles, &|mut tile, _| {
        for group in groups {
            let tiling = tiling_of(group);
            if tile < tiling.num_tiles() {
                let rows = group.first..group.first + group.count;
                let kernel = kernel_of(group.expert);
                return multiply_tile(&kernel, tiling, tile, x, rows, to, out_stride);
            }
            tile -= tiling.num_tiles();
        }
    })?;
    Ok(())
}

/// One tile of the product of some rows of `x`, the results going to the same rows of `out`.
fn multiply_tile<K: PanelKernel>(
    kernel: &K,
    tiling: Tiling,
    tile: usize,
    x: &Rows<'_, K::Input>,
    rows: Range<usize>,
    out: SharedMut<'_, f32>,
    out_stride: usize,
) {
    assert!(rows.end <= x.count, "rows out of range");
    let (block, panels) = tiling.tile(tile, rows.len());
    let (first_row, count) = (rows.start + block.start, block.len());
    for panel in panels {
        let col = panel * PANEL_WIDTH;
        let cols = (kernel.out_features() - col).min(PANEL_WIDTH);
        for row in 0..count {
            // SAFETY: only checks the bounds of what the kernel writes below.
            let _ = unsafe { out.ptr((first_row + row) * out_stride + col, cols) };
        }
        // SAFETY: `x` holds the rows, the matrix the panel and its bias; `cols` values of each row
        // of `out` belong to this tile and lie within it, as just checked.
        unsafe {
            let to = out.ptr(first_row * out_stride + col, cols);
            let rows = first_row..first_row + count;
            multiply_panel(kernel, x, rows, panel, cols, to, out_stride);
        }
    }
}

/// `out[i] = x * matrix[features[i]] + bias` of one row, equal to the same entries of
/// [`multiply`].
pub(crate) fn multiply_chosen<K: PanelKernel>(
    kernel: &K,
    pool: &ComputePool,
    x: &Rows<'_, K::Input>,
    features: &[u32],
    out: &mut [f32],
) -> Result<(), ModelError> {
    x.check(kernel.depth());
    assert!(x.count == 1, "one row");
    assert_eq!(features.len(), out.len(), "one output per feature");
    let per_tile = (WORK_PER_TILE / (kernel.work_per_output() * LANES).max(1)).max(1);
    let to = SharedMut::new(out);
    pool.run(features.len().div_ceil(per_tile), &|tile, _| {
        let first = tile * per_tile;
        for (index, feature) in features.iter().enumerate().skip(first).take(per_tile) {
            let feature = *feature as usize;
            assert!(feature < kernel.out_features(), "feature out of range");
            let lane = feature % LANES;
            let mut lanes = [0.0f32; LANES];
            let part = Part {
                rows: 1,
                first: 0,
                depth: kernel.depth(),
                x: x.data.as_ptr(),
                x_stride: x.stride,
                init: bias_from(kernel, feature - lane),
                init_stride: 0,
                c: lanes.as_mut_ptr(),
                c_stride: LANES,
            };
            let (panel, col) = (feature / PANEL_WIDTH, feature % PANEL_WIDTH - lane);
            // SAFETY: one row of `x`, half a panel and its bias, 16 results; `out[index]` belongs
            // to this tile.
            unsafe {
                kernel.multiply(panel, col, false, &part);
                *to.ptr(index, 1) = lanes[lane];
            }
        }
    })?;
    Ok(())
}

/// Some rows times one panel, with its bias, `cols` results each.
///
/// # Safety
/// `x` must hold the rows with the matrix's whole depth and the matrix the panel; `c` must be valid for `cols`
/// values per row only, `c_stride` apart.
pub(super) unsafe fn multiply_panel<K: PanelKernel>(
    kernel: &K,
    x: &Rows<'_, K::Input>,
    rows: Range<usize>,
    panel: usize,
    cols: usize,
    c: *mut f32,
    c_stride: usize,
) {
    let part = Part {
        rows: rows.len(),
        first: 0,
        depth: kernel.depth(),
        x: x.data.as_ptr().wrapping_add(rows.start * x.stride),
        x_stride: x.stride,
        init: bias_from(kernel, panel * PANEL_WIDTH),
        init_stride: 0,
        c,
        c_stride,
    };
    // SAFETY: the caller vouches for all columns or, where a panel is cut, results go by way of
    // a buffer as wide as the panel.
    unsafe {
        if cols < PANEL_WIDTH {
            let mut results = [0.0f32; PANEL_WIDTH];
            for row in 0..part.rows {
                let row_part = Part {
                    rows: 1,
                    x: part.x.add(row * part.x_stride),
                    c: results.as_mut_ptr(),
                    ..part
                };
                kernel.multiply(panel, 0, true, &row_part);
                let to = part.c.add(row * part.c_stride);
                std::ptr::copy_nonoverlapping(results.as_ptr(), to, cols);
            }
            return;
        }
        // A few rows pass at once: then the panel needs no cache.
        let block = if part.rows > 8 {
            kernel.depth_block(part.rows)
        } else {
            part.depth
        };
        let mut first = 0;
        while first < part.depth || first == 0 {
            // The sums go on where they stopped.
            let (init, init_stride) = match first {
                0 => (part.init, part.init_stride),
                _ => (part.c.cast_const(), part.c_stride),
            };
            let depth_part = Part {
                first,
                depth: (part.depth - first).min(block),
                x: part.x.add(first),
                init,
                init_stride,
                ..part
            };
            kernel.multiply(panel, 0, true, &depth_part);
            first += block.max(1);
        }
    }
}
