//! Matrices in floating point, packed at load.

use super::buffer::{self, Buffer};
use super::format::{Bf16, F16, F32, Format};
use super::multiply::{Product, multiply_rows};
use super::packing::{for_each_row_of_panel, interleave_words, pack_panels, padded_bias};
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::shared_weights::Weights;
use super::simd::SimdLevel;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::{StoredDtype, StoredTensor};

/// A format of weights. Its panels have a word of each row after the other: an f32, a pair of bfloat16, or one
/// number of half precision.
pub(crate) trait DenseFormat: Format {
    /// Bytes of a word.
    const WORD: usize = 4;
    /// How a checkpoint stores such values, so that they need no conversion.
    const STORED_AS: StoredDtype;
}

impl DenseFormat for F32 {
    const STORED_AS: StoredDtype = StoredDtype::F32;
}

impl DenseFormat for Bf16 {
    const STORED_AS: StoredDtype = StoredDtype::BF16;
}

impl DenseFormat for F16 {
    const WORD: usize = 2;
    const STORED_AS: StoredDtype = StoredDtype::F16;
}

/// A weight `[out_features, in_features]` in panels of format `F`.
pub(crate) struct DenseMatrix<F: DenseFormat> {
    panels: Weights<F::Element>,
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
}

impl<F: DenseFormat> DenseMatrix<F> {
    /// Bytes of the panels of such a matrix.
    pub(crate) fn num_bytes(out_features: usize, in_features: usize) -> usize {
        let panel_len = F::panel_len(in_features, PANEL_WIDTH);
        out_features.div_ceil(PANEL_WIDTH) * panel_len * size_of::<F::Element>()
    }

    /// Packs tensors `[n_i, in_features]`, stacked, to the panels of one matrix.
    pub(crate) fn pack(
        pool: &ComputePool,
        in_features: usize,
        parts: &[StoredTensor<'_>],
    ) -> Result<Buffer<F::Element>, ModelError> {
        let panel_len = F::panel_len(in_features, PANEL_WIDTH);
        pack_panels(pool, parts, panel_len, &|panel, to| {
            pack_panel::<F>(parts, panel, in_features, to);
        })
    }

    /// A matrix of such panels.
    pub(crate) fn new(
        panels: Weights<F::Element>,
        out_features: usize,
        in_features: usize,
        bias: Option<&[f32]>,
    ) -> Result<Self, ModelError> {
        assert!(
            size_of_val(&*panels) == Self::num_bytes(out_features, in_features),
            "panels of another size"
        );
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

/// Fills one panel with its rows of stacked tensors.
///
/// A panel has a word of each row after the other. Rows that are stored as such words are only put in
/// that order, at the speed of memory.
fn pack_panel<F: DenseFormat>(
    parts: &[StoredTensor<'_>],
    panel: usize,
    in_features: usize,
    to: &mut [F::Element],
) {
    let row_len = F::panel_len(in_features, 1);
    let as_stored = cfg!(target_endian = "little")
        && row_len == in_features
        && parts.iter().all(|part| part.dtype() == F::STORED_AS);
    let mut converted = Vec::new();
    let mut rows: [&[u8]; PANEL_WIDTH] = [&[]; PANEL_WIDTH];
    let mut count = 0;
    for_each_row_of_panel(parts, panel, |col, part, row| {
        count = col + 1;
        if as_stored {
            rows[col] = part.row(row);
        } else {
            converted.resize((col + 1) * row_len, F::from_f32(0.0));
            let to = &mut converted[col * row_len..];
            part.for_each_in_row(row, |k, value| to[k] = F::from_f32(value));
        }
    });
    if !as_stored && row_len > 0 {
        for (row, converted) in rows.iter_mut().zip(converted.chunks_exact(row_len)) {
            *row = buffer::as_bytes(converted);
        }
    }
    let (rows, to) = (&rows[..count], buffer::as_bytes_mut(to));
    match F::WORD {
        2 => interleave_words::<2>(rows, to),
        _ => interleave_words::<4>(rows, to),
    }
}

/// Products of f32 rows with a [`DenseMatrix`].
pub(crate) struct DenseKernel<'a, F: DenseFormat> {
    pub(crate) matrix: &'a DenseMatrix<F>,
    pub(crate) level: SimdLevel,
}

impl<F: DenseFormat> PanelKernel for DenseKernel<'_, F> {
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
    fn depth_block(&self, _rows: usize) -> usize {
        // Even, as bfloat16 rows come in pairs.
        512
    }
    fn bias(&self) -> &[f32] {
        self.matrix.bias()
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
