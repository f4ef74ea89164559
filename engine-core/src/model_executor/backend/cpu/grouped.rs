//! Matrices of 4 bits with a scale and a zero for each group of columns, as GPTQ and AWQ have them.
//!
//! Values stand as those of [`Wide4`] do, in units of 64 of the depth, but are the file's codes `0..=15`.
//! After all panels come their headers: of each group the scales of 32 outputs (half precision), then a
//! byte for the zero of each. A value is `scale * (code - zero)`, so nothing of the file is rounded.

use half::f16;

use super::buffer::Buffer;
use super::packing::{for_each_row_of_panel, pack_panels_and_headers, padded_bias};
use super::panels::PANEL_WIDTH;
use super::shared_weights::Weights;
use super::wide::{UNIT, UNITS, Wide4, WideLayout, place};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::StoredTensor;
use crate::model_executor::wide_quantization::WIDE_GROUP;

/// Bytes of a group's scales.
pub(super) const SCALES: usize = 2 * PANEL_WIDTH;

/// Bytes of a group's scales and zeros.
pub(super) const HEADER: usize = SCALES + PANEL_WIDTH;

/// Bytes of the values of [`WIDE_GROUP`] of the depth.
pub(super) const WIDE_GROUP_BYTES: usize = UNITS * Wide4::UNIT_BYTES;

/// A weight `[out_features, in_features]`.
pub(crate) struct GroupedMatrix {
    panels: Weights<u8>,
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
    /// Columns of a group: divides [`WIDE_GROUP`].
    group: usize,
    /// The column that is multiplied at each place, where they don't stand in their own order.
    order: Option<Vec<u32>>,
}

impl GroupedMatrix {
    /// Bytes of the values of a panel, and of its headers.
    fn panel_len(in_features: usize, group: usize) -> (usize, usize) {
        let values = in_features.div_ceil(UNIT) * Wide4::UNIT_BYTES;
        (values, in_features.div_ceil(group) * HEADER)
    }

    /// Bytes of the panels of such a matrix.
    pub(crate) fn num_bytes(out_features: usize, in_features: usize, group: usize) -> usize {
        let (values, headers) = Self::panel_len(in_features, group);
        out_features.div_ceil(PANEL_WIDTH) * (values + headers)
    }

    /// Packs tensors of codes `[n_i, in_features]`, stacked, all with one order of columns, to the panels of one
    /// matrix.
    pub(crate) fn pack(
        pool: &ComputePool,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        group: usize,
    ) -> Result<Buffer<u8>, ModelError> {
        assert!(
            group > 0
                && WIDE_GROUP.is_multiple_of(group)
                && parts.iter().all(|p| p.codes().is_some()),
            "groups must divide 256 and tensors have codes"
        );
        let (panel_len, header_len) = Self::panel_len(in_features, group);
        let fill = |panel, to: &mut [u8], headers: &mut [u8]| {
            for_each_row_of_panel(parts, panel, |col, part, row| {
                let Some(tensor) = part.codes() else {
                    return;
                };
                for (index, header) in headers.chunks_exact_mut(HEADER).enumerate() {
                    let stored = index * group / tensor.block[1];
                    let scale = f16::from_f32(tensor.scale(row, stored));
                    header[2 * col..][..2].copy_from_slice(&scale.to_bits().to_ne_bytes());
                    header[SCALES + col] = tensor.zero(row, stored);
                }
                let codes = tensor.codes.row(row);
                for k in 0..in_features {
                    let code = codes.get(tensor.column_at(k)).copied().unwrap_or(0);
                    let (at, shift) = place::<Wide4>(k % WIDE_GROUP, col);
                    to[k / WIDE_GROUP * WIDE_GROUP_BYTES + at] |= code << shift;
                }
            });
        };
        pack_panels_and_headers(pool, parts, panel_len, header_len, &fill)
    }

    /// A matrix `[out_features, in_features]` of such panels. `order` has the column that is multiplied at each
    /// place, where they don't stand in their own order.
    pub(crate) fn new(
        panels: Weights<u8>,
        [out_features, in_features]: [usize; 2],
        group: usize,
        order: Option<Vec<u32>>,
        bias: Option<&[f32]>,
    ) -> Result<Self, ModelError> {
        assert!(
            panels.len() == Self::num_bytes(out_features, in_features, group),
            "panels of another size"
        );
        Ok(Self {
            panels,
            bias: padded_bias(out_features, bias)?,
            out_features,
            in_features,
            group,
            order,
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

    /// Columns of a group.
    pub(super) fn group(&self) -> usize {
        self.group
    }

    /// The column that is multiplied at each place, where they don't stand in their own order.
    pub(crate) fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// Values of a panel from wide group `first` on.
    pub(super) fn values(&self, panel: usize, first: usize) -> &[u8] {
        let (len, _) = Self::panel_len(self.in_features, self.group);
        &self.panels[panel * len..][..len][first * WIDE_GROUP_BYTES..]
    }

    /// Headers of a panel from wide group `first` on.
    pub(super) fn headers(&self, panel: usize, first: usize) -> &[u8] {
        let (panel_len, len) = Self::panel_len(self.in_features, self.group);
        let headers = &self.panels[self.out_features.div_ceil(PANEL_WIDTH) * panel_len..];
        &headers[panel * len..][..len][first * (WIDE_GROUP / self.group) * HEADER..]
    }

    /// Writes row `feature` of the matrix: the file's values.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        let (panel, col) = (feature / PANEL_WIDTH, feature % PANEL_WIDTH);
        let (values, headers) = (self.values(panel, 0), self.headers(panel, 0));
        for k in 0..self.in_features.min(out.len()) {
            let header = &headers[k / self.group * HEADER..][..HEADER];
            let scale = f16::from_ne_bytes([header[2 * col], header[2 * col + 1]]).to_f32();
            let (at, shift) = place::<Wide4>(k % WIDE_GROUP, col);
            let code = values[k / WIDE_GROUP * WIDE_GROUP_BYTES + at] >> shift & 15;
            let column = match &self.order {
                None => k,
                Some(order) => order[k] as usize,
            };
            out[column] = scale * (f32::from(code) - f32::from(header[SCALES + col]));
        }
    }
}
