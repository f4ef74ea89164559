//! Matrices quantized while loading, in wide groups of 256 along the depth.
//!
//! A panel is 32 outputs wide and as deep as the matrix in groups, of which the last may be cut. It holds
//! the values of a group's up to 4 units of 64: four consecutive ones of each output at a time, as one
//! instruction multiplies them and as a row of a tile holds them. With 8 bits they are signed bytes, of a
//! unit first those of 16 outputs and then those of the others: a tile is 1,024 bytes one after the other,
//! and none crosses a page. With 4 bits a byte holds a value of the first half of 32 and, in its upper
//! bits, the one 16 further on, 8 more than they are.
//!
//! After all panels come their headers. That of a group is its 32 scales (half precision) and its factors
//! where the format has any; a byte of factors holds those of a unit's two parts of 32.

use half::f16;

use super::buffer::Buffer;
use super::packing::{for_each_row_of_panel, pack_panels_and_headers, padded_bias};
use super::panels::PANEL_WIDTH;
use super::shared_weights::Weights;
use super::simd::LANES;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::StoredTensor;
use crate::model_executor::wide_quantization::{FACTOR_GROUP, WIDE_GROUP, WideFormat, WideGroup};

/// Values of a unit along the depth: as deep as a tile.
pub(super) const UNIT: usize = 64;

/// Units of a whole group.
pub(super) const UNITS: usize = WIDE_GROUP / UNIT;

/// Bytes of a group's scales.
pub(super) const SCALES: usize = 2 * PANEL_WIDTH;

/// Groups ahead whose headers are asked for: they lie apart from the values, a stream of their own whose lines
/// come later than the values' beside it (2 groups ahead cost 5 % of one to four rows).
pub(super) const HEADERS_AHEAD: usize = 8;

/// Bytes that one instruction multiplies: 4 values of 16 outputs.
pub(super) const STEP: usize = 4 * LANES;

/// Bytes of 16 outputs in a unit of 8 bits.
pub(super) const TILE: usize = UNIT * LANES;

/// A format's layout in a panel.
pub(crate) trait WideLayout: Send + Sync + 'static {
    const FORMAT: WideFormat;
    /// Bytes of a group's scales and factors: a multiple of 64.
    const HEADER: usize;
    /// Bytes of a unit, a multiple of 64.
    const UNIT_BYTES: usize;
    /// Bytes of a whole group's values.
    const GROUP_BYTES: usize = UNITS * Self::UNIT_BYTES;
}

/// 8 bits per value.
pub(crate) struct Wide8;
impl WideLayout for Wide8 {
    const FORMAT: WideFormat = WideFormat::Wide8;
    const HEADER: usize = SCALES;
    const UNIT_BYTES: usize = UNIT * PANEL_WIDTH;
}

/// 4 bits per value, and factors.
pub(crate) struct Wide4;
impl WideLayout for Wide4 {
    const FORMAT: WideFormat = WideFormat::Wide4;
    const HEADER: usize = SCALES + UNITS * PANEL_WIDTH;
    const UNIT_BYTES: usize = UNIT * PANEL_WIDTH / 2;
}

/// Where value `k` of column `col` stands among a group's, and by how many bits it is shifted.
pub(super) fn place<L: WideLayout>(k: usize, col: usize) -> (usize, u32) {
    match L::FORMAT {
        WideFormat::Wide8 => {
            let tile = k / UNIT * 2 + col / LANES;
            let four = k % UNIT / 4 * LANES + col % LANES;
            (tile * TILE + four * 4 + k % 4, 0)
        }
        WideFormat::Wide4 => {
            // Of 32 values the first 16 take the lower halves of four rows.
            let row = k / 32 * 4 + k % 16 / 4;
            let shift = 4 * (k as u32 / 16 % 2);
            ((row * PANEL_WIDTH + col) * 4 + k % 4, shift)
        }
    }
}

/// Where the factor of value `k` of column `col` stands in a group's header, and by how many bits it is shifted.
fn factor_place(k: usize, col: usize) -> (usize, u32) {
    let part = k / FACTOR_GROUP;
    (SCALES + part / 2 * PANEL_WIDTH + col, 4 * (part as u32 % 2))
}

/// Writes a group to zeros that are as many units as it has here, and to its header.
fn write_group<L: WideLayout>(group: &WideGroup, col: usize, to: &mut [u8], header: &mut [u8]) {
    header[2 * col..][..2].copy_from_slice(&group.scale.to_bits().to_ne_bytes());
    let len = to.len() / L::UNIT_BYTES * UNIT;
    for (k, value) in group.values.iter().enumerate().take(len) {
        let (at, shift) = place::<L>(k, col);
        match L::FORMAT {
            WideFormat::Wide8 => to[at] = *value as u8,
            WideFormat::Wide4 => to[at] |= ((value + 8) as u8) << shift,
        }
    }
    if L::FORMAT == WideFormat::Wide4 {
        for k in (0..len).step_by(FACTOR_GROUP) {
            let (at, shift) = factor_place(k, col);
            header[at] |= group.factors[k / FACTOR_GROUP] << shift;
        }
    }
}

/// A weight `[out_features, in_features]` in panels of layout `L`.
pub(crate) struct WideMatrix<L: WideLayout> {
    panels: Weights<u8>,
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
    layout: std::marker::PhantomData<L>,
}

impl<L: WideLayout> WideMatrix<L> {
    /// Bytes of a panel and of its headers.
    fn panel_len(in_features: usize) -> (usize, usize) {
        (
            in_features.div_ceil(UNIT) * L::UNIT_BYTES,
            in_features.div_ceil(WIDE_GROUP) * L::HEADER,
        )
    }

    /// Bytes of the panels of such a matrix and of their headers.
    pub(crate) fn num_bytes(out_features: usize, in_features: usize) -> usize {
        let (values, headers) = Self::panel_len(in_features);
        out_features.div_ceil(PANEL_WIDTH) * (values + headers)
    }

    /// Quantizes tensors `[n_i, in_features]`, stacked, to the panels of one matrix.
    pub(crate) fn pack(
        pool: &ComputePool,
        in_features: usize,
        parts: &[StoredTensor<'_>],
    ) -> Result<Buffer<u8>, ModelError> {
        let (panel_len, header_len) = Self::panel_len(in_features);
        let fill = |panel, to: &mut [u8], headers: &mut [u8]| {
            for_each_row_of_panel(parts, panel, |col, part, row| {
                part.for_each_wide_group_in_row(row, L::FORMAT, |index, group| {
                    let to = to.chunks_mut(L::GROUP_BYTES).nth(index);
                    let header = headers.chunks_mut(L::HEADER).nth(index);
                    if let (Some(to), Some(header)) = (to, header) {
                        write_group::<L>(&group, col, to, header);
                    }
                });
            });
        };
        pack_panels_and_headers(pool, parts, panel_len, header_len, &fill)
    }

    /// A matrix of such panels.
    pub(crate) fn new(
        panels: Weights<u8>,
        out_features: usize,
        in_features: usize,
        bias: Option<&[f32]>,
    ) -> Result<Self, ModelError> {
        assert!(
            panels.len() == Self::num_bytes(out_features, in_features),
            "panels of another size"
        );
        Ok(Self {
            panels,
            bias: padded_bias(out_features, bias)?,
            out_features,
            in_features,
            layout: std::marker::PhantomData,
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

    /// Units of group `group`.
    pub(super) fn units(&self, group: usize) -> usize {
        (self.in_features - group * WIDE_GROUP)
            .div_ceil(UNIT)
            .min(UNITS)
    }

    /// A panel from group `first` on.
    pub(super) fn groups(&self, panel: usize, first: usize) -> &[u8] {
        let (len, _) = Self::panel_len(self.in_features);
        &self.panels[panel * len..][..len][first * L::GROUP_BYTES..]
    }

    /// Their headers.
    pub(super) fn headers(&self, panel: usize, first: usize) -> &[u8] {
        let (panel_len, len) = Self::panel_len(self.in_features);
        let headers = &self.panels[self.out_features.div_ceil(PANEL_WIDTH) * panel_len..];
        &headers[panel * len..][..len][first * L::HEADER..]
    }

    /// Writes row `feature` of the matrix, as a table of embeddings is read.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        let groups = self.groups(feature / PANEL_WIDTH, 0);
        let col = feature % PANEL_WIDTH;
        let headers = self.headers(feature / PANEL_WIDTH, 0);
        let groups = groups.chunks(L::GROUP_BYTES).zip(headers.chunks(L::HEADER));
        for (out, (group, header)) in out.chunks_mut(WIDE_GROUP).zip(groups) {
            let scale = f16::from_ne_bytes([header[2 * col], header[2 * col + 1]]).to_f32();
            for (k, out) in out.iter_mut().enumerate() {
                let (at, shift) = place::<L>(k, col);
                let whole = match L::FORMAT {
                    WideFormat::Wide8 => i32::from(group[at] as i8),
                    WideFormat::Wide4 => {
                        let value = i32::from(group[at] >> shift & 15) - 8;
                        let (at, shift) = factor_place(k, col);
                        value * i32::from(header[at] >> shift & 15)
                    }
                };
                *out = scale * whole as f32;
            }
        }
    }
}
