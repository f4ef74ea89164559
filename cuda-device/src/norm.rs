//! RMS norms.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, to_u32};
use crate::launch::Arguments;
use crate::rows::{THREADS, ensure_width};
use crate::vector::Vector;

impl Device {
    /// `out = x / rms(x) * weight` by row of `[rows, weight.width()]`, with `rms(x) = sqrt(mean(x²) + eps)`.
    pub fn rms_norm(
        &self,
        x: &Buffer,
        rows: usize,
        weight: &Vector,
        eps: f32,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        self.norm(x, rows, weight, eps, out)
    }

    /// `x = x / rms(x) * weight` by row.
    pub fn rms_norm_in_place(
        &self,
        x: &mut Buffer,
        rows: usize,
        weight: &Vector,
        eps: f32,
    ) -> Result<(), DeviceError> {
        self.norm(x, rows, weight, eps, x)
    }

    fn norm(
        &self,
        x: &Buffer,
        rows: usize,
        weight: &Vector,
        eps: f32,
        out: &Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "rms_norm";
        let width = ensure_width(NAME, weight.width())?;
        weight.buffer.require(self, NAME, "the weight", 0, 0)?;
        x.require_rows(self, NAME, "x", rows, weight.width())?;
        out.require_rows(self, NAME, "out", rows, weight.width())?;
        let arguments = Arguments::new()
            .buffer(x)
            .buffer(&weight.buffer)
            .f32(eps)
            .buffer(out)
            .u32(width);
        let grid = [to_u32(NAME, "rows", rows)?, 1, 1];
        self.launch(NAME, grid, THREADS, 0, arguments)
    }

    /// `residual += delta`, then `out = rms_norm(residual)`, all `[rows, weight.width()]`.
    pub fn add_rms_norm(
        &self,
        residual: &mut Buffer,
        delta: &Buffer,
        rows: usize,
        weight: &Vector,
        eps: f32,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "add_rms_norm";
        let width = ensure_width(NAME, weight.width())?;
        weight.buffer.require(self, NAME, "the weight", 0, 0)?;
        residual.require_rows(self, NAME, "residual", rows, weight.width())?;
        delta.require_rows(self, NAME, "delta", rows, weight.width())?;
        out.require_rows(self, NAME, "out", rows, weight.width())?;
        let arguments = Arguments::new()
            .buffer(residual)
            .buffer(delta)
            .buffer(&weight.buffer)
            .f32(eps)
            .buffer(out)
            .u32(width);
        let grid = [to_u32(NAME, "rows", rows)?, 1, 1];
        self.launch(NAME, grid, THREADS, 0, arguments)
    }
}
