//! Quantized matrices, packed at load, and their product with quantized activations.
//!
//! A panel is 32 outputs wide and as deep as the matrix in groups of 32. A group is its 32 scales
//! (half precision), then the values: four consecutive ones of each output at a time, as one
//! instruction multiplies them. With 4 bits a byte holds a value of the group's first half and, in
//! its upper bits, the one 16 further on.

use half::f16;

use super::buffer::Buffer;
use super::integer::IntegerSimd;
use super::integer_product::{IntegerProduct, multiply_rows};
#[cfg(target_arch = "x86_64")]
use super::integer_tiles;
use super::packing::{for_each_row_of_panel, pack_panels, padded_bias};
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::prefetch::RowBlock;
use super::quantized_rows::{ActivationGroup, num_groups};
use super::shared_weights::Weights;
use super::simd::{LANES, SimdLevel};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::quantization::{GROUP, Group, QuantizedFormat};
use crate::model_executor::weights::StoredTensor;

/// Bytes of a group's scales.
pub(super) const SCALES: usize = 2 * PANEL_WIDTH;

/// Bytes that one instruction multiplies: 4 values of 16 outputs.
pub(super) const STEP: usize = 4 * LANES;

/// A format's layout in a panel.
pub(crate) trait Layout: Send + Sync + 'static {
    const FORMAT: QuantizedFormat;
    /// What is stored for 0.
    const ZERO: u8 = Self::FORMAT.zero();
    /// Bytes of a group of 32 outputs, a multiple of 64.
    const GROUP_BYTES: usize;
}

/// 8 bits per value.
pub(crate) struct Q8;
impl Layout for Q8 {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q8_0;
    const GROUP_BYTES: usize = SCALES + GROUP * PANEL_WIDTH;
}

/// 4 bits per value.
pub(crate) struct Q4;
impl Layout for Q4 {
    const FORMAT: QuantizedFormat = QuantizedFormat::Q4_0;
    const GROUP_BYTES: usize = SCALES + GROUP * PANEL_WIDTH / 2;
}

/// Where value `k` of column `col` stands in a group, and by how many bits it is shifted.
fn place<L: Layout>(k: usize, col: usize) -> (usize, u32) {
    let (k, shift) = match L::FORMAT {
        QuantizedFormat::Q8_0 => (k, 0),
        QuantizedFormat::Q4_0 => (k % 16, 4 * (k as u32 / 16)),
    };
    (SCALES + (k / 4 * PANEL_WIDTH + col) * 4 + k % 4, shift)
}

fn write_group<L: Layout>(group: &Group, col: usize, to: &mut [u8]) {
    to[2 * col..][..2].copy_from_slice(&group.scale.to_bits().to_ne_bytes());
    for (k, value) in group.values.iter().enumerate() {
        let (at, shift) = place::<L>(k, col);
        let stored = (i16::from(*value) + i16::from(L::FORMAT.zero())) as u8;
        to[at] |= stored << shift;
    }
}

/// A weight `[out_features, in_features]` in panels of layout `L`.
pub(crate) struct QuantizedMatrix<L: Layout> {
    panels: Weights<u8>,
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
    layout: std::marker::PhantomData<L>,
}

impl<L: Layout> QuantizedMatrix<L> {
    /// Bytes of the panels of such a matrix.
    pub(crate) fn num_bytes(out_features: usize, in_features: usize) -> usize {
        out_features.div_ceil(PANEL_WIDTH) * num_groups(in_features) * L::GROUP_BYTES
    }

    /// Quantizes tensors `[n_i, in_features]`, stacked, to the panels of one matrix.
    pub(crate) fn pack(
        pool: &ComputePool,
        in_features: usize,
        parts: &[StoredTensor<'_>],
    ) -> Result<Buffer<u8>, ModelError> {
        let panel_len = num_groups(in_features) * L::GROUP_BYTES;
        pack_panels(pool, parts, panel_len, &|panel, to: &mut [u8]| {
            for_each_row_of_panel(parts, panel, |col, part, row| {
                part.for_each_group_in_row(row, L::FORMAT, |index, group| {
                    let to = &mut to[index * L::GROUP_BYTES..][..L::GROUP_BYTES];
                    write_group::<L>(&group, col, to);
                });
            });
        })
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

    /// The groups of a panel from group `first` on.
    fn groups(&self, panel: usize, first: usize) -> &[u8] {
        let num_groups = num_groups(self.in_features);
        let end = (panel + 1) * num_groups * L::GROUP_BYTES;
        &self.panels[(panel * num_groups + first) * L::GROUP_BYTES..end]
    }

    /// Writes row `feature` of the matrix, as a table of embeddings is read.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        let groups = self.groups(feature / PANEL_WIDTH, 0);
        let col = feature % PANEL_WIDTH;
        let zero = f32::from(L::FORMAT.zero());
        let mask = match L::FORMAT {
            QuantizedFormat::Q8_0 => 255,
            QuantizedFormat::Q4_0 => 15,
        };
        for (out, group) in out
            .chunks_mut(GROUP)
            .zip(groups.chunks_exact(L::GROUP_BYTES))
        {
            let scale = f16::from_ne_bytes([group[2 * col], group[2 * col + 1]]).to_f32();
            for (k, out) in out.iter_mut().enumerate() {
                let (at, shift) = place::<L>(k, col);
                *out = scale * (f32::from(group[at] >> shift & mask) - zero);
            }
        }
    }
}

/// Products of quantized rows with a [`QuantizedMatrix`].
pub(crate) struct QuantizedKernel<'a, L: Layout> {
    pub(crate) matrix: &'a QuantizedMatrix<L>,
    pub(crate) level: SimdLevel,
}

impl<L: Layout> QuantizedKernel<'_, L> {
    /// Whether tiles are faster than vectors for so many rows; their results are the same.
    #[cfg(target_arch = "x86_64")]
    fn goes_by_tiles(&self, rows: usize) -> bool {
        self.level.has_tiles() && rows >= integer_tiles::LEAST_ROWS
    }

    /// There are none.
    #[cfg(not(target_arch = "x86_64"))]
    fn goes_by_tiles(&self, _rows: usize) -> bool {
        false
    }
}

impl<L: Layout> PanelKernel for QuantizedKernel<'_, L> {
    type Input = ActivationGroup;

    fn out_features(&self) -> usize {
        self.matrix.out_features
    }
    fn depth(&self) -> usize {
        num_groups(self.matrix.in_features)
    }
    fn work_per_output(&self) -> usize {
        // A quarter of what f32 takes, where there are instructions for bytes.
        self.matrix.in_features / 2
    }
    fn depth_block(&self, rows: usize) -> usize {
        if self.goes_by_tiles(rows) {
            // They walk it in chunks of their own.
            return self.depth().max(1);
        }
        16 * 1024 / L::GROUP_BYTES
    }
    fn row_block(&self) -> usize {
        if !self.level.has_tiles() {
            return 96;
        }
        // Whose activations take two thirds of the second cache.
        let row_bytes = self.depth() * size_of::<ActivationGroup>();
        ((5 << 18) / row_bytes.max(1)).clamp(32, 256) / 16 * 16
    }
    fn row_step(&self) -> usize {
        if self.level.has_tiles() { 16 } else { 1 }
    }
    fn bias(&self) -> &[f32] {
        &self.matrix.bias
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<ActivationGroup>) {
        let groups = self.matrix.groups(panel, part.first).as_ptr();
        #[cfg(target_arch = "x86_64")]
        if wide && self.goes_by_tiles(part.rows) {
            // SAFETY: the caller vouches for rows, results and groups; the level has tiles.
            return unsafe { integer_tiles::multiply::<L>(groups, part) };
        }
        // SAFETY: the caller vouches for rows, results, columns and groups.
        unsafe { multiply_rows(self, self.level, groups, col, wide, part) }
    }
}

/// Every element of `c` is one chain of multiply-adds in ascending groups, whatever `ROWS` and
/// `VECS` are; the products inside a group are whole numbers and summed exactly.
impl<L: Layout> IntegerProduct for QuantizedKernel<'_, L> {
    type Input = ActivationGroup;

    const DEPTH_BYTES: usize = L::GROUP_BYTES;
    const ROWS_AVX512: usize = 6;
    const ROWS_NEON: usize = 3;

    #[inline(always)]
    unsafe fn multiply<S: IntegerSimd, const ROWS: usize, const VECS: usize>(
        &self,
        groups: *const u8,
        col: usize,
        part: &Part<ActivationGroup>,
        block: RowBlock,
    ) {
        let (row, mut prefetch) = (block.first, block.prefetch);
        // SAFETY: all accesses lie within what the caller of `multiply_rows` vouches for.
        unsafe {
            let x = part.x.add(row * part.x_stride);
            let mut totals = part.initial_sums::<S, ROWS, VECS>(row);
            let values = SCALES + col * 4;
            for index in 0..part.depth {
                let group = groups.add(index * L::GROUP_BYTES);
                prefetch.step::<S>(group, L::GROUP_BYTES);
                let x = x.add(index);
                let mut sums = [[S::splat_sums(0); VECS]; ROWS];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = &*x.add(row * part.x_stride);
                    let less = match L::FORMAT {
                        QuantizedFormat::Q8_0 => S::BYTES_LESS,
                        QuantizedFormat::Q4_0 => 0,
                    };
                    let x_sum = i32::from(x.halves[0]) + i32::from(x.halves[1]);
                    *sums = [S::splat_sums(x.offset + less * x_sum); VECS];
                }
                // Four values of each column at a time.
                let factors = |row: usize, step: usize| {
                    S::splat_factors(
                        (&raw const (*x.add(row * part.x_stride)).values)
                            .cast::<i8>()
                            .add(4 * step),
                    )
                };
                match L::FORMAT {
                    QuantizedFormat::Q8_0 => {
                        for step in 0..8 {
                            let at = group.add(values + step * 2 * STEP);
                            let mut bytes = [S::load_bytes(at); VECS];
                            for (vec, bytes) in bytes.iter_mut().enumerate().skip(1) {
                                *bytes = S::load_bytes(at.add(vec * STEP));
                            }
                            for (row, sums) in sums.iter_mut().enumerate() {
                                let factors = factors(row, step);
                                for (sum, bytes) in sums.iter_mut().zip(bytes) {
                                    *sum = S::dot(*sum, bytes, factors);
                                }
                            }
                        }
                    }
                    QuantizedFormat::Q4_0 => {
                        for step in 0..4 {
                            let at = group.add(values + step * 2 * STEP);
                            let mut bytes = [S::load_nibbles(at); VECS];
                            for (vec, bytes) in bytes.iter_mut().enumerate().skip(1) {
                                *bytes = S::load_nibbles(at.add(vec * STEP));
                            }
                            for (row, sums) in sums.iter_mut().enumerate() {
                                let lower = factors(row, step);
                                for (sum, bytes) in sums.iter_mut().zip(bytes) {
                                    *sum = S::dot(*sum, bytes.0, lower);
                                }
                                let upper = factors(row, step + 4);
                                for (sum, bytes) in sums.iter_mut().zip(bytes) {
                                    *sum = S::dot(*sum, bytes.1, upper);
                                }
                            }
                        }
                    }
                }
                let mut scales = [S::splat(0.0); VECS];
                for (vec, scale) in scales.iter_mut().enumerate() {
                    *scale = S::load_f16(group.add(2 * (col + vec * LANES)).cast());
                }
                for (row, (totals, sums)) in totals.iter_mut().zip(sums).enumerate() {
                    let x_scale = S::splat((*x.add(row * part.x_stride)).scale);
                    for (vec, total) in totals.iter_mut().enumerate() {
                        let scale = S::mul(scales[vec], x_scale);
                        *total = S::fma(S::sums_to_f32(sums[vec]), scale, *total);
                    }
                }
            }
            part.store_sums::<S, ROWS, VECS>(row, &totals);
        }
    }
}
