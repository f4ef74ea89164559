//! Matrices in floating point, packed at load.

use super::buffer::{Buffer, SharedMut};
use super::format::Format;
use super::multiply::{Product, multiply_rows};
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::simd::SimdLevel;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::StoredTensor;

/// A weight `[out_features, in_features]` in panels of format `F`.
pub(crate) struct DenseMatrix<F: Format> {
    panels: Buffer<F::Element>,
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
}

impl<F: Format> DenseMatrix<F> {
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
        let to = SharedMut::new(&mut panels);
        pool.run(num_panels, &|panel, _| {
            // SAFETY: each panel belongs to one tile.
            let to = unsafe {
                std::slice::from_raw_parts_mut(to.ptr(panel * panel_len, panel_len), panel_len)
            };
            for_each_row_of_panel(parts, panel, |col, part, row| {
                part.for_each_in_row(row, |k, value| {
                    to[F::index(k, col, PANEL_WIDTH)] = F::from_f32(value);
                });
            });
        })?;
        Ok(Self {
            panels,
            bias: padded_bias(out_features, bias)?,
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

    /// `[out_features]`, padded to whole panels.
    pub(crate) fn bias(&self) -> &[f32] {
        &self.bias
    }

    pub(crate) fn panel(&self, index: usize) -> &[F::Element] {
        let len = F::panel_len(self.in_features, PANEL_WIDTH);
        &self.panels[index * len..][..len]
    }

    /// Writes row `feature` of the matrix, as a table of embeddings is read.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        let panel = self.panel(feature / PANEL_WIDTH);
        for (k, out) in out.iter_mut().enumerate() {
            *out = F::to_f32(panel[F::index(k, feature % PANEL_WIDTH, PANEL_WIDTH)]);
        }
    }
}

/// Calls `each(column of the panel, tensor, its row)` for the rows that a panel holds of stacked
/// tensors.
pub(crate) fn for_each_row_of_panel(
    parts: &[StoredTensor<'_>],
    panel: usize,
    mut each: impl FnMut(usize, &StoredTensor<'_>, usize),
) {
    for col in 0..PANEL_WIDTH {
        let mut row = panel * PANEL_WIDTH + col;
        for part in parts {
            if row < part.rows() {
                each(col, part, row);
                break;
            }
            row -= part.rows();
        }
    }
}

/// A bias for whole panels; zeros where there is none.
pub(crate) fn padded_bias(
    out_features: usize,
    bias: Option<&[f32]>,
) -> Result<Buffer<f32>, ModelError> {
    let mut padded = Buffer::zeroed("biases", out_features.next_multiple_of(PANEL_WIDTH))?;
    if let Some(bias) = bias {
        padded[..bias.len()].copy_from_slice(bias);
    }
    Ok(padded)
}

/// Products of f32 rows with a [`DenseMatrix`].
pub(crate) struct DenseKernel<'a, F: Format> {
    pub(crate) matrix: &'a DenseMatrix<F>,
    pub(crate) level: SimdLevel,
}

impl<F: Format> PanelKernel for DenseKernel<'_, F> {
    type Input = f32;

    fn out_features(&self) -> usize {
        self.matrix.out_features
    }
    fn depth(&self) -> usize {
        self.matrix.in_features
    }
    fn work_per_output(&self) -> usize {
        self.matrix.in_features
    }
    fn depth_block(&self) -> usize {
        // Even, as bfloat16 rows come in pairs.
        512
    }
    fn bias(&self) -> &[f32] {
        &self.matrix.bias
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<f32>) {
        let panel = self.matrix.panel(panel);
        let product = Product::<F> {
            a: part.x,
            a_stride: part.x_stride,
            panel: panel[F::index(part.first, 0, PANEL_WIDTH).min(panel.len())..].as_ptr(),
            col,
            width: PANEL_WIDTH,
            depth: part.depth,
            init: part.init,
            init_stride: part.init_stride,
            c: part.c,
            c_stride: part.c_stride,
            streams: wide,
        };
        // SAFETY: the caller vouches for rows, results and columns.
        unsafe { multiply_rows(self.level, part.rows, wide, &product) }
    }
}
