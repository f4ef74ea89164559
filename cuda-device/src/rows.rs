//! Operations that treat each value, or each row, on its own.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::launch::Arguments;
use crate::matrix::{Matrix, WeightFormat};
use crate::scratch::Room;

/// The activation of a gated MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// `x / (1 + exp(-x))`
    Silu,
    /// GELU by its approximation with tanh.
    GeluTanh,
}

/// Threads of blocks whose threads treat a value each.
pub(crate) const THREADS: u32 = 256;

/// Most rows of a launch whose grid has the rows in its second dimension.
pub(crate) const MAX_GRID_ROWS: usize = 65_535;

impl Device {
    /// `out[i] = table[ids[i]] * scale`, of `ids` `[rows]` u32; NaN where an id is not a row of the table.
    pub fn embed(
        &self,
        table: &Matrix,
        ids: &Buffer,
        rows: usize,
        scale: f32,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "embed";
        table.buffer.require(self, NAME, "the table", 0, 0)?;
        ids.require_rows(self, NAME, "ids", rows, 1)?;
        out.require_rows(self, NAME, "out", rows, table.in_features())?;
        let kernel = match table.format() {
            WeightFormat::F32 => "embed_f32",
            WeightFormat::Bf16 => "embed_bf16",
        };
        let arguments = Arguments::new()
            .buffer(&table.buffer)
            .u32(to_u32(NAME, "the table", table.out_features())?)
            .u32(to_u32(NAME, "the stride", table.stride())?)
            .buffer(ids)
            .f32(scale)
            .buffer(out)
            .u32(to_u32(NAME, "the width", table.in_features())?);
        let grid = [to_u32(NAME, "rows", rows)?, 1, 1];
        self.launch(kernel, grid, THREADS, 0, arguments)
    }

    /// `to[i] = from[indices[i]]` of rows of `width`, for `indices` `[rows]` u32 below `from_rows`; NaN for others.
    pub fn gather_rows(
        &self,
        from: &Buffer,
        from_rows: usize,
        width: usize,
        indices: &Buffer,
        rows: usize,
        to: &mut Buffer,
    ) -> Result<(), DeviceError> {
        to.require_rows(self, "gather_rows", "to", rows, width)?;
        self.gather(from, from_rows, width, indices, rows, to.address())
    }

    /// `x[i] = x[indices[i]]`, whatever the order of the indices.
    pub fn gather_rows_in_place(
        &self,
        x: &mut Buffer,
        x_rows: usize,
        width: usize,
        indices: &Buffer,
        rows: usize,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "gather_rows_in_place";
        x.require_rows(self, NAME, "x", rows.max(x_rows), width)?;
        let mut scratch = self.scratch();
        let bytes = rows * width * 4;
        let room = scratch.room(self, Room::Gathered, bytes)?;
        self.gather(x, x_rows, width, indices, rows, room)?;
        self.copy_raw(room, x.address(), bytes)
    }

    fn gather(
        &self,
        from: &Buffer,
        from_rows: usize,
        width: usize,
        indices: &Buffer,
        rows: usize,
        to: u64,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "gather_rows";
        from.require_rows(self, NAME, "from", from_rows, width)?;
        indices.require_rows(self, NAME, "indices", rows, 1)?;
        let width = to_u32(NAME, "the width", width)?;
        let arguments = Arguments::new()
            .buffer(from)
            .u32(to_u32(NAME, "from_rows", from_rows)?)
            .buffer(indices)
            .address(to)
            .u32(width);
        let parts = width.div_ceil(4 * THREADS);
        let grid = [to_u32(NAME, "rows", rows)?, parts, 1];
        self.launch(NAME, grid, THREADS, 0, arguments)
    }

    /// `out = act(gate) * up` of `[gate | up]` in rows of `2 * width`.
    pub fn act_and_mul(
        &self,
        act: Act,
        gate_up: &Buffer,
        rows: usize,
        width: usize,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "act_and_mul";
        gate_up.require_rows(self, NAME, "gate_up", rows, width.saturating_mul(2))?;
        out.require_rows(self, NAME, "out", rows, width)?;
        self.in_row_pieces(rows, |first, count| {
            let arguments = Arguments::new()
                .buffer_at(gate_up, first * width * 8)
                .buffer_at(out, first * width * 4)
                .u32(to_u32(NAME, "the width", width)?)
                .u32(u32::from(act == Act::GeluTanh));
            let grid = [(width as u32).div_ceil(THREADS), count, 1];
            self.launch(NAME, grid, THREADS, 0, arguments)
        })
    }

    /// `values = bound * tanh(values / bound)` of `[count]` f32.
    pub fn softcap(
        &self,
        values: &mut Buffer,
        count: usize,
        bound: f32,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "softcap";
        values.require_rows(self, NAME, "values", count, 1)?;
        let blocks = to_u32(NAME, "values", count.div_ceil(THREADS as usize))?;
        let arguments = Arguments::new().buffer(values).u64(count as u64).f32(bound);
        self.launch(NAME, [blocks, 1, 1], THREADS, 0, arguments)
    }

    /// Rows `[rows, width]` from byte `offset` of `x` on, rounded to bfloat16 `[rows, stride]` at `to`.
    pub(crate) fn round_rows(
        &self,
        x: &Buffer,
        offset: usize,
        rows: usize,
        (width, stride): (usize, usize),
        to: u64,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "round_rows";
        self.in_row_pieces(rows, |first, count| {
            let arguments = Arguments::new()
                .buffer_at(x, offset + first * width * 4)
                .u32(to_u32(NAME, "the width", width)?)
                .u32(to_u32(NAME, "the stride", stride)?)
                .address(to + (first * stride * 2) as u64);
            let grid = [(stride as u32 / 2).div_ceil(THREADS), count, 1];
            self.launch(NAME, grid, THREADS, 0, arguments)
        })
    }

    /// Calls `launch` with the first row and the number of pieces of rows that fit a grid.
    pub(crate) fn in_row_pieces(
        &self,
        rows: usize,
        launch: impl Fn(usize, u32) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for first in (0..rows).step_by(MAX_GRID_ROWS) {
            launch(first, (rows - first).min(MAX_GRID_ROWS) as u32)?;
        }
        Ok(())
    }
}

/// Fails for a width that no kernel can count, or that is 0.
pub(crate) fn ensure_width(operation: &'static str, width: usize) -> Result<u32, DeviceError> {
    ensure(width > 0, operation, || "the width is 0".to_owned())?;
    to_u32(operation, "the width", width)
}
