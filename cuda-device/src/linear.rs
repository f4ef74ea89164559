//! Products of activations and weights.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::launch::Arguments;
use crate::matrix::{Matrix, WeightFormat};
use crate::rows::{MAX_GRID_ROWS, THREADS};
use crate::scratch::Room;

/// Outputs of a block of `linear_f32`, a warp each.
pub(crate) const F32_OUTPUTS: u32 = 8;
/// Rows that it treats at once.
pub(crate) const F32_ROWS: usize = 8;
/// Outputs of a block of the kernels for few rows and bfloat16.
pub(crate) const BF16_OUTPUTS: u32 = 16;

/// Warps that should share a product with few rows, so that a large GPU's memory is kept busy: about 8 on each of its
/// multiprocessors, with 8 KB of loads each.
const WANTED_WARPS: usize = 1024;
/// Least `k` of a slice: a warp's loads of one are all under way at once.
const MIN_SLICE: usize = 256;
/// Most warps of a block.
const MAX_WARPS: usize = 8;

/// `k` of a slice of a bfloat16 weight `[out_features, stride]`, by its shape alone: the chain of sums depends on it.
pub(crate) fn slice_len(out_features: usize, stride: usize) -> usize {
    let tiles = out_features.div_ceil(BF16_OUTPUTS as usize).max(1);
    let slices = WANTED_WARPS.div_ceil(tiles);
    let len = stride.div_ceil(slices).max(MIN_SLICE);
    len.next_multiple_of(32)
}

/// Slices of a bfloat16 weight.
fn stride_slices(matrix: &Matrix) -> usize {
    let stride = matrix.stride();
    stride.div_ceil(slice_len(matrix.out_features(), stride))
}

/// Threads of a block of the kernels for few rows.
pub(crate) fn few_threads(slice: usize, stride: usize) -> u32 {
    32 * stride.div_ceil(slice).min(MAX_WARPS) as u32
}

/// A kernel for many rows and bfloat16.
struct RowTile {
    kernel: &'static str,
    /// Rows of a block.
    rows: usize,
    /// Outputs of a block.
    outputs: usize,
    threads: u32,
    /// Steps in shared memory, of 128 bytes for each row and output.
    stages: usize,
    /// Blocks that fill a large GPU.
    wanted_blocks: usize,
}

impl RowTile {
    /// Blocks of a product, if no block's slices are spread over others.
    fn blocks(&self, rows: usize, outputs: usize) -> usize {
        rows.div_ceil(self.rows) * outputs.div_ceil(self.outputs)
    }

    /// Slices of a block, of `slices`: sums of slices that are spread are written and read again, so they are only
    /// where more than half of the GPU would be idle otherwise.
    fn block_slices(&self, blocks: usize, slices: usize) -> usize {
        if 2 * blocks > self.wanted_blocks {
            return slices;
        }
        slices.div_ceil(self.wanted_blocks.div_ceil(blocks.max(1)))
    }
}

/// The kernels by the rows that they are for, ascending.
const ROW_TILES: [RowTile; 3] = [
    RowTile {
        kernel: "linear_bf16_tile_32",
        rows: 32,
        outputs: 64,
        threads: 128,
        stages: 4,
        wanted_blocks: 4 * MULTIPROCESSORS,
    },
    RowTile {
        kernel: "linear_bf16_tile_64",
        rows: 64,
        outputs: 128,
        threads: 128,
        stages: 3,
        wanted_blocks: 2 * MULTIPROCESSORS,
    },
    RowTile {
        kernel: "linear_bf16_tile_128",
        rows: 128,
        outputs: 128,
        threads: 256,
        stages: 3,
        wanted_blocks: MULTIPROCESSORS,
    },
];

/// Multiprocessors of a large GPU.
const MULTIPROCESSORS: usize = 132;

/// The kernel for a product of many rows. The results don't depend on the choice.
fn row_tile(rows: usize, outputs: usize) -> Option<&'static RowTile> {
    let [small, middle, large] = &ROW_TILES;
    match rows {
        ..=FEW_ROWS => None,
        _ if rows <= small.rows => Some(small),
        _ if rows <= middle.rows => Some(middle),
        // Large tiles where these are enough for all multiprocessors.
        _ if large.blocks(rows, outputs) >= large.wanted_blocks => Some(large),
        _ => Some(middle),
    }
}

/// Rows of a block of the kernels for few rows.
const FEW_ROWS: usize = 8;
/// Most rows that a product rounds itself: each block does so again, in place of a launch before it.
const MAX_DIRECT_ROWS: usize = 4;

impl Device {
    /// `out[rows, out_features] = x[rows, in_features] * matrix^T + bias`.
    pub fn linear(
        &self,
        x: &Buffer,
        rows: usize,
        matrix: &Matrix,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        self.linear_at(x, 0, rows, matrix, out)
    }

    /// [`Self::linear`] of the rows of `x` from `first_row` on; `out` has theirs alone.
    pub fn linear_at(
        &self,
        x: &Buffer,
        first_row: usize,
        rows: usize,
        matrix: &Matrix,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        let outputs = matrix.out_features();
        self.product("linear", x, (first_row, rows), matrix, (None, outputs), out)
    }

    /// Outputs of one row of `x` that the entries `range` of `ids`, a list of u32, name, to the same entries of `out`; equal
    /// bit for bit to those of [`Self::linear`], NaN where an id is no output.
    pub fn head_for(
        &self,
        x: &Buffer,
        row: usize,
        ids: &Buffer,
        range: Range<usize>,
        matrix: &Matrix,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        ids.require_rows(self, "head_for", "ids", range.end, 1)?;
        let outputs = (Some((ids, range.start)), range.len());
        self.product("head_for", x, (row, 1), matrix, outputs, out)
    }

    fn product(
        &self,
        name: &'static str,
        x: &Buffer,
        (first_row, rows): (usize, usize),
        matrix: &Matrix,
        (ids, outputs): (Option<(&Buffer, usize)>, usize),
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        let width = matrix.in_features();
        let all_rows = first_row.saturating_add(rows);
        matrix.buffer.require(self, name, "the matrix", 0, 0)?;
        x.require_rows(self, name, "x", all_rows, width)?;
        let first = ids.map_or(0, |(_, first)| first);
        let to = rows.saturating_mul(outputs).saturating_add(first);
        out.require_rows(self, name, "out", to, 1)?;
        if rows == 0 || outputs == 0 {
            return Ok(());
        }
        let offset = first_row * width * 4;
        let out_features = to_u32(name, "outputs", matrix.out_features())?;
        let num_outputs = to_u32(name, "outputs", outputs)?;
        let num_rows = to_u32(name, "rows", rows)?;
        match matrix.format() {
            WeightFormat::F32 => {
                let arguments = Arguments::new()
                    .buffer_at(x, offset)
                    .u32(num_rows)
                    .buffer(&matrix.buffer)
                    .u32(out_features)
                    .u32(to_u32(name, "the width", width)?)
                    .optional(matrix.bias.as_ref())
                    .optional_at(ids)
                    .u32(num_outputs)
                    .buffer_at(out, 4 * first);
                let tiles = rows.div_ceil(F32_ROWS) as u32;
                let grid = [num_outputs.div_ceil(F32_OUTPUTS), tiles, 1];
                self.launch("linear_f32", grid, 32 * F32_OUTPUTS, 0, arguments)
            }
            WeightFormat::Bf16 => match (row_tile(rows, outputs), ids) {
                (Some(tile), None) => {
                    let slices = stride_slices(matrix);
                    let blocks = tile.blocks(rows, outputs);
                    let block_slices = tile.block_slices(blocks, slices);
                    self.tiled((tile, block_slices), (x, offset), rows, matrix, out)
                }
                _ => self.few((x, offset), rows, matrix, (ids, num_outputs), out),
            },
        }
    }

    /// [`Self::linear`] by one of the kernels for many rows, whatever the rows, with so many slices to a block: for tests.
    #[doc(hidden)]
    pub fn linear_by_tile(
        &self,
        x: &Buffer,
        rows: usize,
        matrix: &Matrix,
        (tile, block_slices): (usize, usize),
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "linear_by_tile";
        x.require_rows(self, NAME, "x", rows, matrix.in_features())?;
        out.require_rows(self, NAME, "out", rows, matrix.out_features())?;
        let tile = ROW_TILES
            .get(tile)
            .filter(|_| matrix.format() == WeightFormat::Bf16);
        match tile {
            Some(tile) if rows > 0 => {
                self.tiled((tile, block_slices.max(1)), (x, 0), rows, matrix, out)
            }
            _ => ensure(false, NAME, || "there is no such kernel".to_owned()),
        }
    }

    /// A product of few rows with a bfloat16 weight, of checked sizes.
    fn few(
        &self,
        (x, offset): (&Buffer, usize),
        rows: usize,
        matrix: &Matrix,
        (ids, num_outputs): (Option<(&Buffer, usize)>, u32),
        out: &Buffer,
    ) -> Result<(), DeviceError> {
        let (width, stride) = (matrix.in_features(), matrix.stride());
        let is_direct = rows <= MAX_DIRECT_ROWS && width == stride;
        let mut scratch = self.scratch();
        let (kernel, rows_at) = if is_direct {
            ("linear_bf16_direct", x.address() + offset as u64)
        } else {
            let rounded = scratch.room(self, Room::Rounded, rows * stride * 2)?;
            self.round_rows(x, offset, rows, (width, stride), rounded)?;
            ("linear_bf16_few", rounded)
        };
        let slice = slice_len(matrix.out_features(), stride);
        let arguments = Arguments::new()
            .address(rows_at)
            .u32(rows as u32)
            .buffer(&matrix.buffer)
            .u32(matrix.out_features() as u32)
            .u32(stride as u32)
            .optional(matrix.bias.as_ref())
            .optional_at(ids)
            .u32(num_outputs)
            .buffer_at(out, 4 * ids.map_or(0, |(_, first)| first))
            .u32(slice as u32);
        let tiles = rows.div_ceil(FEW_ROWS) as u32;
        let grid = [num_outputs.div_ceil(BF16_OUTPUTS), tiles, 1];
        self.launch(kernel, grid, few_threads(slice, stride), 0, arguments)
    }

    /// A product of many rows with a bfloat16 weight, of checked sizes.
    fn tiled(
        &self,
        (tile, block_slices): (&RowTile, usize),
        (x, offset): (&Buffer, usize),
        rows: usize,
        matrix: &Matrix,
        out: &Buffer,
    ) -> Result<(), DeviceError> {
        let (outputs, stride) = (matrix.out_features(), matrix.stride());
        let slice = slice_len(outputs, stride);
        let slices = stride.div_ceil(slice);
        let row_tiles = rows.div_ceil(tile.rows);
        let groups = slices.div_ceil(block_slices);

        let mut scratch = self.scratch();
        let rounded = scratch.room(self, Room::Rounded, rows * stride * 2)?;
        self.round_rows(x, offset, rows, (matrix.in_features(), stride), rounded)?;
        let partial_bytes = if groups > 1 {
            slices * rows * outputs * 4
        } else {
            0
        };
        let partial = scratch.room(self, Room::Parts, partial_bytes)?;
        let arguments = Arguments::new()
            .address(rounded)
            .u32(rows as u32)
            .buffer(&matrix.buffer)
            .u32(outputs as u32)
            .u32(stride as u32)
            .optional(matrix.bias.as_ref())
            .buffer(out)
            .u32(slice as u32)
            .u32(block_slices as u32)
            .address(partial);
        let grid = [
            row_tiles as u32,
            outputs.div_ceil(tile.outputs) as u32,
            groups as u32,
        ];
        let shared = tile.stages * (tile.rows + tile.outputs) * 128;
        self.launch(tile.kernel, grid, tile.threads, shared as u32, arguments)?;
        if groups == 1 {
            return Ok(());
        }
        let arguments = Arguments::new()
            .address(partial)
            .u32(slices as u32)
            .optional(matrix.bias.as_ref())
            .buffer(out)
            .u32(outputs as u32);
        ensure(rows <= MAX_GRID_ROWS, "linear", || {
            format!("{rows} rows at once")
        })?;
        let grid = [(outputs as u32).div_ceil(THREADS), rows as u32, 1];
        self.launch("sum_slices", grid, THREADS, 0, arguments)
    }
}

/// Fails unless `matrix` holds the same number of rows for each of `num_experts`; that number.
pub(crate) fn outputs_of_expert(
    operation: &'static str,
    matrix: &Matrix,
    num_experts: usize,
) -> Result<usize, DeviceError> {
    let all = matrix.out_features();
    let divides = num_experts > 0 && all.is_multiple_of(num_experts);
    ensure(divides, operation, || {
        format!("{all} outputs can't be those of {num_experts} experts")
    })?;
    Ok(all / num_experts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_depend_on_the_shape() {
        assert_eq!(slice_len(151_936, 896), 896);
        assert_eq!(slice_len(896, 4864), 256);
        assert_eq!(slice_len(4096, 4096), 1024);
        assert_eq!(few_threads(1024, 4096), 128);
        assert_eq!(few_threads(256, 64), 32);
    }

    #[test]
    fn tiles_fill_the_device() {
        let kernel = |rows, outputs| row_tile(rows, outputs).map(|tile| (tile.rows, tile.outputs));
        assert_eq!(kernel(8, 4096), None);
        assert_eq!(kernel(9, 4096), Some((32, 64)));
        assert_eq!(kernel(64, 4096), Some((64, 128)));
        assert_eq!(kernel(256, 4096), Some((64, 128)));
        assert_eq!(kernel(2048, 4096), Some((128, 128)));
        let tile = &ROW_TILES[1];
        assert_eq!(tile.block_slices(tile.blocks(256, 4096), 4), 2);
        assert_eq!(tile.block_slices(tile.blocks(128, 4096), 4), 1);
        assert_eq!(tile.block_slices(1000, 4), 4);
    }
}
