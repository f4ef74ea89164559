//! Matrices, packed at load, and their product with activations.
//!
//! A packed matrix `[out_features, in_features]` is a row of panels, each `in_features` deep and
//! 32 outputs wide: 32 outputs are computed at once, one lane each, so that no sum runs across
//! lanes and every output is one chain of multiply-adds whatever the number of rows. A GEMV
//! streams each panel once from memory; with more rows a panel comes from the cache again.

use super::activation::Activation;
use super::buffer::{Buffer, SharedMut};
use super::format::Format;
use super::multiply::{MAX_ROWS, Product, multiply_rows};
use super::simd::{LANES, SimdLevel};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::StoredTensor;

/// Outputs of a panel.
pub(crate) const PANEL_WIDTH: usize = 2 * LANES;

/// Depth of a panel's part that stays in the first cache while rows pass; even.
const DEPTH_BLOCK: usize = 512;

/// Rows whose activations stay in the second cache while panels pass.
const ROW_BLOCK: usize = 12 * MAX_ROWS;

/// Multiply-adds below which a tile is not worth a thread.
const WORK_PER_TILE: usize = 16 * 1024;

/// A weight `[out_features, in_features]` in panels.
pub(crate) struct PackedMatrix<F: Format> {
    panels: Buffer<F::Element>,
    /// `[out_features]`, padded with zeros to whole panels; zeros where there is no bias.
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
}

impl<F: Format> PackedMatrix<F> {
    /// Packs tensors `[n_i, in_features]`, stacked.
    pub(crate) fn pack(
        pool: &ComputePool,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
    ) -> Result<Self, ModelError> {
        let out_features: usize = parts.iter().map(StoredTensor::rows).sum();
        let num_panels = out_features.div_ceil(PANEL_WIDTH);
        let panel_len = F::panel_len(in_features, PANEL_WIDTH);
        let mut panels = Buffer::zeroed("weights", num_panels * panel_len)?;
        let mut padded_bias = Buffer::zeroed("biases", num_panels * PANEL_WIDTH)?;
        if let Some(bias) = bias {
            padded_bias[..bias.len()].copy_from_slice(bias);
        }
        let to = SharedMut::new(&mut panels);
        pool.run(num_panels, &|panel, _| {
            // SAFETY: each panel belongs to one tile.
            let to = unsafe {
                std::slice::from_raw_parts_mut(to.ptr(panel * panel_len, panel_len), panel_len)
            };
            let first = panel * PANEL_WIDTH;
            for (col, feature) in (first..(first + PANEL_WIDTH).min(out_features)).enumerate() {
                let mut row = feature;
                for part in parts {
                    if row < part.rows() {
                        part.for_each_in_row(row, |k, value| {
                            to[F::index(k, col, PANEL_WIDTH)] = F::from_f32(value);
                        });
                        break;
                    }
                    row -= part.rows();
                }
            }
        })?;
        Ok(Self {
            panels,
            bias: padded_bias,
            out_features,
            in_features,
        })
    }

    pub(crate) fn out_features(&self) -> usize {
        self.out_features
    }

    pub(crate) fn in_features(&self) -> usize {
        self.in_features
    }

    fn panel(&self, index: usize) -> &[F::Element] {
        let len = F::panel_len(self.in_features, PANEL_WIDTH);
        &self.panels[index * len..][..len]
    }

    /// A product with one panel that begins with the bias; the rows are the caller's.
    fn panel_of_product(&self, index: usize) -> Product<F> {
        Product {
            a: std::ptr::null(),
            a_stride: 0,
            panel: self.panel(index).as_ptr(),
            col: 0,
            width: PANEL_WIDTH,
            depth: self.in_features,
            init: self.bias[index * PANEL_WIDTH..].as_ptr(),
            init_stride: 0,
            c: std::ptr::null_mut(),
            c_stride: 0,
        }
    }

    /// Writes row `feature` of the matrix, as a table of embeddings is read.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        let panel = self.panel(feature / PANEL_WIDTH);
        for (k, out) in out.iter_mut().enumerate() {
            *out = F::to_f32(panel[F::index(k, feature % PANEL_WIDTH, PANEL_WIDTH)]);
        }
    }

    /// `out[r, ..] = x[r, ..] * self^T + bias` for rows of `in_features` values at `x_stride`,
    /// results `out_features` wide at `out_stride`.
    pub(crate) fn multiply(
        &self,
        pool: &ComputePool,
        level: SimdLevel,
        x: Rows<'_>,
        out: &mut [f32],
        out_stride: usize,
    ) -> Result<(), ModelError> {
        let rows = x.count;
        x.check(self.in_features);
        let num_panels = self.out_features.div_ceil(PANEL_WIDTH);
        let work_per_panel = (self.in_features * PANEL_WIDTH * rows.min(ROW_BLOCK)).max(1);
        let panels_per_tile = (WORK_PER_TILE / work_per_panel).max(1);
        let tiles_per_row_block = num_panels.div_ceil(panels_per_tile);
        let num_tiles = rows.div_ceil(ROW_BLOCK) * tiles_per_row_block;
        let to = SharedMut::new(out);
        pool.run(num_tiles, &|tile, _| {
            let first_row = tile / tiles_per_row_block * ROW_BLOCK;
            let first_panel = tile % tiles_per_row_block * panels_per_tile;
            let tile_rows = (rows - first_row).min(ROW_BLOCK);
            for panel in first_panel..(first_panel + panels_per_tile).min(num_panels) {
                let col = panel * PANEL_WIDTH;
                let cols = (self.out_features - col).min(PANEL_WIDTH);
                for row in 0..tile_rows {
                    // SAFETY: only checks the bounds of what the kernel writes below.
                    let _ = unsafe { to.ptr((first_row + row) * out_stride + col, cols) };
                }
                // SAFETY: `x` holds the rows, `self` a panel and its bias; `cols` values of each
                // row of `out` belong to this tile and lie within it, as just checked.
                unsafe {
                    let product = Product {
                        a: x.data.as_ptr().add(first_row * x.stride),
                        a_stride: x.stride,
                        c: to.ptr(first_row * out_stride + col, cols),
                        c_stride: out_stride,
                        ..self.panel_of_product(panel)
                    };
                    panel_product(level, tile_rows, cols, product);
                }
            }
        })?;
        Ok(())
    }

    /// `out[i] = x * self[features[i]] + bias`, equal to the same entries of [`Self::multiply`].
    pub(crate) fn multiply_chosen(
        &self,
        pool: &ComputePool,
        level: SimdLevel,
        x: &[f32],
        features: &[u32],
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let x = Rows {
            data: x,
            count: 1,
            stride: x.len(),
        };
        x.check(self.in_features);
        assert_eq!(features.len(), out.len(), "one output per feature");
        let per_tile = (WORK_PER_TILE / (self.in_features * LANES).max(1)).max(1);
        let to = SharedMut::new(out);
        pool.run(features.len().div_ceil(per_tile), &|tile, _| {
            let first = tile * per_tile;
            for (index, feature) in features.iter().enumerate().skip(first).take(per_tile) {
                let feature = *feature as usize;
                assert!(feature < self.out_features, "feature out of range");
                let (panel, col) = (feature / PANEL_WIDTH, feature % PANEL_WIDTH);
                let vec = col - col % LANES;
                let mut lanes = [0.0f32; LANES];
                // SAFETY: one row of `x`, half a panel and its bias, 16 results; `out[index]`
                // belongs to this tile.
                unsafe {
                    let whole = self.panel_of_product(panel);
                    let product = Product {
                        a: x.data.as_ptr(),
                        col: vec,
                        init: whole.init.add(vec),
                        c: lanes.as_mut_ptr(),
                        ..whole
                    };
                    multiply_rows(level, 1, false, &product);
                    *to.ptr(index, 1) = lanes[col - vec];
                }
            }
        })?;
        Ok(())
    }
}

/// Rows of f32 at a stride.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

impl<'a> Rows<'a> {
    /// All rows of an activation.
    pub(crate) fn of(x: &'a Activation) -> Self {
        Self {
            data: x.as_slice(),
            count: x.rows(),
            stride: x.stride(),
        }
    }

    /// Panics where the rows don't hold `width` values each: kernels rely on it.
    fn check(&self, width: usize) {
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

/// Rows times one panel, `cols` results each.
///
/// # Safety
/// `product` must hold what `multiply_rows` asks for, `c` being valid for `cols` values per row
/// only; `init` must be the panel's bias.
unsafe fn panel_product<F: Format>(
    level: SimdLevel,
    rows: usize,
    cols: usize,
    product: Product<F>,
) {
    // SAFETY: the caller vouches for all columns or, where a panel is cut, results go by way of
    // a buffer as wide as the panel.
    unsafe {
        if cols == PANEL_WIDTH {
            let depth_block = if rows > MAX_ROWS {
                DEPTH_BLOCK
            } else {
                product.depth
            };
            let mut part = Product {
                depth: product.depth.min(depth_block),
                ..product
            };
            multiply_rows(level, rows, true, &part);
            let mut first = depth_block;
            while first < product.depth {
                // The sums go on where they stopped.
                part.a = product.a.add(first);
                part.panel = product.panel.add(F::index(first, 0, PANEL_WIDTH));
                part.depth = (product.depth - first).min(depth_block);
                (part.init, part.init_stride) = (part.c.cast_const(), part.c_stride);
                multiply_rows(level, rows, true, &part);
                first += depth_block;
            }
        } else {
            let mut results = [0.0f32; PANEL_WIDTH];
            for row in 0..rows {
                let part = Product {
                    a: product.a.add(row * product.a_stride),
                    c: results.as_mut_ptr(),
                    ..product
                };
                multiply_rows(level, 1, true, &part);
                let to = product.c.add(row * product.c_stride);
                std::ptr::copy_nonoverlapping(results.as_ptr(), to, cols);
            }
        }
    }
}
