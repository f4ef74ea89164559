//! Products of activations and weights.

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

/// Warps that should share a product with few rows, so that a large GPU's memory is kept busy: 16 on each of 132
/// multiprocessors.
const WANTED_WARPS: usize = 2112;
/// Least `k` of a slice: a warp's loads for one of them are all under way at once.
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

/// Threads of a block of the kernels for few rows.
pub(crate) fn few_threads(slice: usize, stride: usize) -> u32 {
    32 * stride.div_ceil(slice).min(MAX_WARPS) as u32
}

/// A kernel for many rows and bfloat16.
struct RowTile {
    kernel: &'static str,
    /// Rows from which on it is taken. The results don't depend on it.
    min_rows: usize,
    /// Rows of a block.
    rows: usize,
    /// Outputs of a block.
    outputs: usize,
    threads: u32,
    /// Steps in shared memory, of 128 bytes for each row and output.
    stages: usize,
}

/// The kernels by the rows that they are for, ascending.
const ROW_TILES: &[RowTile] = &[
    RowTile {
        kernel: "linear_bf16_tile_32",
        min_rows: 9,
        rows: 32,
        outputs: 64,
        threads: 128,
        stages: 4,
    },
    RowTile {
        kernel: "linear_bf16_tile_64",
        min_rows: 33,
        rows: 64,
        outputs: 128,
        threads: 128,
        stages: 3,
    },
    RowTile {
        kernel: "linear_bf16_tile_128",
        min_rows: 65,
        rows: 128,
        outputs: 128,
        threads: 256,
        stages: 3,
    },
];

/// Blocks that a product of many rows should have: two for each multiprocessor of a large GPU.
const WANTED_BLOCKS: usize = 264;
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

    /// Outputs `ids` `[num_ids]` u32 of one row of `x`, equal bit for bit to those of [`Self::linear`]; NaN where an id
    /// is no output.
    pub fn head_for(
        &self,
        x: &Buffer,
        row: usize,
        ids: &Buffer,
        num_ids: usize,
        matrix: &Matrix,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        ids.require_rows(self, "head_for", "ids", num_ids, 1)?;
        self.product("head_for", x, (row, 1), matrix, (Some(ids), num_ids), out)
    }

    fn product(
        &self,
        name: &'static str,
        x: &Buffer,
        (first_row, rows): (usize, usize),
        matrix: &Matrix,
        (ids, outputs): (Option<&Buffer>, usize),
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        let width = matrix.in_features();
        let all_rows = first_row.saturating_add(rows);
        matrix.buffer.require(self, name, "the matrix", 0, 0)?;
        x.require_rows(self, name, "x", all_rows, width)?;
        out.require_rows(self, name, "out", rows, outputs)?;
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
                    .optional(ids)
                    .u32(num_outputs)
                    .buffer(out);
                let tiles = rows.div_ceil(F32_ROWS) as u32;
                let grid = [num_outputs.div_ceil(F32_OUTPUTS), tiles, 1];
                self.launch("linear_f32", grid, 32 * F32_OUTPUTS, 0, arguments)
            }
            WeightFormat::Bf16 => {
                let tile = ROW_TILES.iter().rev().find(|tile| rows >= tile.min_rows);
                match (tile, ids) {
                    (Some(tile), None) => self.tiled(tile, (x, offset), rows, matrix, out),
                    _ => self.few((x, offset), rows, matrix, (ids, num_outputs), out),
                }
            }
        }
    }

    /// A product of few rows with a bfloat16 weight, of checked sizes.
    fn few(
        &self,
        (x, offset): (&Buffer, usize),
        rows: usize,
        matrix: &Matrix,
        (ids, num_outputs): (Option<&Buffer>, u32),
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
            .optional(ids)
            .u32(num_outputs)
            .buffer(out)
            .u32(slice as u32);
        let tiles = rows.div_ceil(FEW_ROWS) as u32;
        let grid = [num_outputs.div_ceil(BF16_OUTPUTS), tiles, 1];
        self.launch(kernel, grid, few_threads(slice, stride), 0, arguments)
    }

    /// A product of many rows with a bfloat16 weight, of checked sizes.
    fn tiled(
        &self,
        tile: &RowTile,
        (x, offset): (&Buffer, usize),
        rows: usize,
        matrix: &Matrix,
        out: &Buffer,
    ) -> Result<(), DeviceError> {
        let (outputs, stride) = (matrix.out_features(), matrix.stride());
        let slice = slice_len(outputs, stride);
        let slices = stride.div_ceil(slice);
        // Slices are spread over blocks where there would be too few of these.
        let row_tiles = rows.div_ceil(tile.rows);
        let tiles = row_tiles * outputs.div_ceil(tile.outputs);
        let block_slices = slices.div_ceil(WANTED_BLOCKS.div_ceil(tiles));
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
        assert_eq!(slice_len(4096, 4096), 480);
        assert_eq!(few_threads(480, 4096), 256);
        assert_eq!(few_threads(256, 64), 32);
    }
}
