//! Activations, and the norms of their rows.

use std::ops::Range;

use super::buffer::{Buffer, SharedMut};
use super::panels::Rows;
use super::simd::{self, LANES, Simd, SimdLevel, dispatch};
use super::wide_rows::{WideRowGroup, num_wide_groups, quantize_wide_row};
use crate::model_executor::compute_pool::{ComputePool, PoolError};
use crate::model_executor::error::ModelError;

/// `[rows, width]` of f32 at a fixed stride.
pub(crate) struct Activation {
    data: Buffer<f32>,
    /// The rows in wide groups, where whoever wrote them made these, too.
    groups: Buffer<WideRowGroup>,
    form: Form,
    rows: usize,
    max_rows: usize,
    width: usize,
    stride: usize,
}

/// In which form an activation's rows are there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Values,
    /// In wide groups, too.
    Both,
    /// In wide groups alone.
    Groups,
}

impl Activation {
    pub(crate) fn allocate(max_rows: usize, width: usize) -> Result<Self, ModelError> {
        // One line more than needed: at strides of 4 KiB all rows of a block of rows would
        // compete for the same lines of the cache.
        let stride = width.next_multiple_of(LANES) + LANES;
        let Some(len) = max_rows.checked_mul(stride) else {
            return Err(ModelError::OutOfMemory {
                what: "activations",
                bytes: usize::MAX,
            });
        };
        let groups = max_rows.saturating_mul(num_wide_groups(width));
        Ok(Self {
            data: Buffer::zeroed_rows("activations", len)?,
            // Memory that is never needed is never taken.
            groups: Buffer::zeroed_rows("quantized activations", groups)?,
            form: Form::Values,
            rows: 0,
            max_rows,
            width,
            stride,
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Sets the number of rows that the next operation writes.
    pub(crate) fn set_rows(&mut self, rows: usize) -> Result<(), ModelError> {
        if rows > self.max_rows {
            return Err(ModelError::Input {
                field: "rows",
                problem: format!("{rows} must be at most {}", self.max_rows),
            });
        }
        self.rows = rows;
        self.form = Form::Values;
        Ok(())
    }

    /// Panics where the values aren't there: operations don't read what they ask for in groups alone.
    fn check_values(&self) {
        assert!(
            self.form != Form::Groups,
            "values of an activation in groups alone"
        );
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        self.check_values();
        &self.data[row * self.stride..][..self.width]
    }

    /// The rows in use, `stride` apart.
    pub(crate) fn as_slice(&self) -> &[f32] {
        self.check_values();
        &self.data[..self.rows * self.stride]
    }

    /// The rows in use.
    pub(crate) fn as_rows(&self) -> Rows<'_, f32> {
        self.rows_of(0..self.rows)
    }

    /// Some of the rows in use, `stride` apart.
    pub(crate) fn rows_of(&self, rows: Range<usize>) -> Rows<'_, f32> {
        Rows {
            data: &self.as_slice()[rows.start * self.stride..rows.end * self.stride],
            count: rows.len(),
            stride: self.stride,
        }
    }

    /// The same in wide groups, where they are there.
    pub(crate) fn groups_of(&self, rows: Range<usize>) -> Option<Rows<'_, WideRowGroup>> {
        let stride = num_wide_groups(self.width);
        assert!(rows.end <= self.rows, "rows out of range");
        (self.form != Form::Values).then(|| Rows {
            data: &self.groups[rows.start * stride..rows.end * stride],
            count: rows.len(),
            stride,
        })
    }

    /// For writing: what they are in groups is forgotten.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        self.form = Form::Values;
        &mut self.data[..self.rows * self.stride]
    }

    /// The rows as values and as groups, for writing both.
    fn as_mut_both(&mut self) -> (&mut [f32], &mut [WideRowGroup]) {
        self.form = Form::Both;
        let groups = self.rows * num_wide_groups(self.width);
        (
            &mut self.data[..self.rows * self.stride],
            &mut self.groups[..groups],
        )
    }

    /// The rows as groups alone, for writing: their values are anything then.
    pub(crate) fn as_mut_groups(&mut self) -> &mut [WideRowGroup] {
        self.form = Form::Groups;
        let groups = self.rows * num_wide_groups(self.width);
        &mut self.groups[..groups]
    }
}

/// Runs `each(row, thread)` over rows, several to a tile where they are short.
pub(crate) fn for_each_row(
    pool: &ComputePool,
    rows: usize,
    work_per_row: usize,
    each: &(dyn Fn(usize, usize) + Sync),
) -> Result<(), PoolError> {
    // Below some microseconds of work another thread costs more than it helps.
    const ELEMENTS_PER_TILE: usize = 8192;
    let per_tile = (ELEMENTS_PER_TILE / work_per_row.max(1)).max(1);
    pool.run(rows.div_ceil(per_tile), &|tile, thread| {
        let first = tile * per_tile;
        (first..(first + per_tile).min(rows)).for_each(|row| each(row, thread));
    })
}

/// `out = x / sqrt(mean(x^2) + eps) * weight` over `width` values; `x` may be `out`.
#[inline(always)]
unsafe fn rms_norm_body<S: Simd>(
    x: *const f32,
    weight: *const f32,
    width: usize,
    eps: f32,
    out: *mut f32,
) {
    // SAFETY: all accesses lie within `width` values, for which the caller vouches.
    unsafe {
        let (whole, rest) = (width - width % LANES, width % LANES);
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(LANES) {
            let v = S::load(x.add(i));
            squares = S::fma(v, v, squares);
        }
        if rest > 0 {
            let v = simd::load_first::<S>(x.add(whole), rest);
            squares = S::fma(v, v, squares);
        }
        let mean = simd::sum::<S>(squares) / width as f32;
        let scale = S::splat(1.0 / (mean + eps).sqrt());
        for i in (0..whole).step_by(LANES) {
            let v = S::mul(S::load(x.add(i)), scale);
            S::store(out.add(i), S::mul(v, S::load(weight.add(i))));
        }
        if rest > 0 {
            let v = S::mul(simd::load_first::<S>(x.add(whole), rest), scale);
            let v = S::mul(v, simd::load_first::<S>(weight.add(whole), rest));
            simd::store_first::<S>(out.add(whole), v, rest);
        }
    }
}

dispatch! {
    /// RMS norm of one row; see `rms_norm_body`.
    ///
    /// # Safety
    /// `x`, `weight` and `out` must be valid for `width` values.
    pub(crate) unsafe fn rms_norm_row(
        x: *const f32, weight: *const f32, width: usize, eps: f32, out: *mut f32,
    ) = rms_norm_body
}

/// `x += delta` over `width` values.
#[inline(always)]
unsafe fn add_body<S: Simd>(x: *mut f32, delta: *const f32, width: usize) {
    // SAFETY: all accesses lie within `width` values, for which the caller vouches.
    unsafe {
        let (whole, rest) = (width - width % LANES, width % LANES);
        for i in (0..whole).step_by(LANES) {
            S::store(x.add(i), S::add(S::load(x.add(i)), S::load(delta.add(i))));
        }
        for i in whole..whole + rest {
            *x.add(i) += *delta.add(i);
        }
    }
}

dispatch! {
    /// `x += delta` for one row.
    ///
    /// # Safety
    /// `x` and `delta` must be valid for `width` values.
    unsafe fn add_row(x: *mut f32, delta: *const f32, width: usize) = add_body
}

/// `x += delta`, by row.
pub(crate) fn add(
    pool: &ComputePool,
    level: SimdLevel,
    x: &mut Activation,
    delta: &Activation,
) -> Result<(), ModelError> {
    let (rows, width, stride) = (x.rows, x.width, x.stride);
    assert!(delta.width == width && delta.rows == rows, "shapes differ");
    let x = SharedMut::new(x.as_mut_slice());
    for_each_row(pool, rows, width, &|row, _| {
        // SAFETY: each row belongs to one call; both hold `width` values.
        unsafe {
            let x = x.ptr(row * stride, width);
            add_row(level, x, delta.row(row).as_ptr(), width);
        }
    })?;
    Ok(())
}

/// `out = rms_norm(x)`, by row.
pub(crate) fn rms_norm(
    pool: &ComputePool,
    level: SimdLevel,
    x: &Activation,
    weight: &[f32],
    eps: f32,
    out: &mut Activation,
) -> Result<(), ModelError> {
    out.set_rows(x.rows)?;
    let (width, stride) = (x.width, out.stride);
    assert!(weight.len() == width && out.width == width, "widths differ");
    let to = SharedMut::new(out.as_mut_slice());
    for_each_row(pool, x.rows, width, &|row, _| {
        // SAFETY: each row of `out` belongs to one call; all three hold `width` values.
        unsafe {
            let to = to.ptr(row * stride, width);
            rms_norm_row(level, x.row(row).as_ptr(), weight.as_ptr(), width, eps, to);
        }
    })?;
    Ok(())
}

/// `x = rms_norm(x)`, by row.
pub(crate) fn rms_norm_in_place(
    pool: &ComputePool,
    level: SimdLevel,
    x: &mut Activation,
    weight: &[f32],
    eps: f32,
) -> Result<(), ModelError> {
    let (rows, width, stride) = (x.rows, x.width, x.stride);
    assert!(weight.len() == width, "widths differ");
    let x = SharedMut::new(x.as_mut_slice());
    for_each_row(pool, rows, width, &|row, _| {
        // SAFETY: each row belongs to one call; it and the weight hold `width` values.
        unsafe {
            let x = x.ptr(row * stride, width);
            rms_norm_row(level, x, weight.as_ptr(), width, eps, x);
        }
    })?;
    Ok(())
}

/// `residual += delta`, then `out = rms_norm(residual)`, by row; with `quantizes` in wide groups, too.
#[allow(clippy::too_many_arguments, reason = "two operations in one")]
pub(crate) fn add_rms_norm(
    pool: &ComputePool,
    level: SimdLevel,
    residual: &mut Activation,
    delta: &Activation,
    weight: &[f32],
    eps: f32,
    quantizes: bool,
    out: &mut Activation,
) -> Result<(), ModelError> {
    out.set_rows(residual.rows)?;
    let (rows, width) = (residual.rows, residual.width);
    let (x_stride, out_stride) = (residual.stride, out.stride);
    assert!(weight.len() == width && out.width == width, "widths differ");
    assert!(delta.width == width && delta.rows == rows, "shapes differ");
    let x = SharedMut::new(residual.as_mut_slice());
    let (to, groups) = match quantizes {
        true => {
            let (to, groups) = out.as_mut_both();
            (SharedMut::new(to), Some(SharedMut::new(groups)))
        }
        false => (SharedMut::new(out.as_mut_slice()), None),
    };
    let num_groups = num_wide_groups(width);
    for_each_row(pool, rows, width, &|row, _| {
        // SAFETY: each row of `residual` and `out` belongs to one call; all hold `width` values.
        unsafe {
            let x = x.ptr(row * x_stride, width);
            let to = to.ptr(row * out_stride, width);
            add_row(level, x, delta.row(row).as_ptr(), width);
            rms_norm_row(level, x, weight.as_ptr(), width, eps, to);
            if let Some(groups) = groups {
                let groups = groups.ptr(row * num_groups, num_groups);
                quantize_wide_row(level, to, width, groups);
            }
        }
    })?;
    Ok(())
}
