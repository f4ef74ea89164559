//! A packed matrix of any format, and linear layers by it.

use super::activation::for_each_row;
use super::argmax::Argmax;
#[cfg(target_arch = "x86_64")]
use super::bf16_dot::{Bf16DotKernel, num_pairs, round_row};
#[cfg(target_arch = "x86_64")]
use super::bf16_tiles::{self, Bf16TileKernel};
use super::buffer::{Buffer, SharedMut};
use super::dense::{DenseFormat, DenseKernel, DenseMatrix};
use super::experts::ExpertRows;
use super::format::{Bf16, F16, F32};
use super::gated::{self, Gated, GroupScratch};
use super::grouped::GroupedMatrix;
use super::grouped_multiply::GroupedKernel;
use super::k_multiply::{ActivationBlock, KKernel};
use super::k_quants::{GROUPS, KLayout, KMatrix, Q4K, Q5K, Q6K};
use super::panels::{self, PanelKernel, Rows};
use super::quantized::{Layout, Q4, Q8, QuantizedKernel, QuantizedMatrix};
use super::quantized_rows::{ActivationGroup, num_groups, quantize_row};
use super::shared_weights::SharedWeights;
use super::simd::SimdLevel;
use super::weight_cache::{CachedMatrix, WeightCache};
use super::wide::{Wide4, Wide8, WideLayout, WideMatrix};
use super::wide_multiply::WideKernel;
use super::wide_rows::{WideRowGroup, num_wide_groups, quantize_wide_row};
use crate::model_executor::ModelDtype;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;
use crate::model_executor::error::ModelError;
use crate::model_executor::quantization::{KFormat, QuantizedFormat};
use crate::model_executor::weights::{StoredTensor, WeightFormat};
use crate::model_executor::wide_quantization::{WIDE_GROUP, WideFormat};

/// A weight `[out_features, in_features]` with its bias.
pub(crate) enum PackedMatrix {
    /// f32.
    F32(DenseMatrix<F32>),
    /// bfloat16.
    Bf16(DenseMatrix<Bf16>),
    /// Half precision.
    F16(DenseMatrix<F16>),
    /// 8 bits, quantized while loading.
    Wide8(WideMatrix<Wide8>),
    /// 4 bits, quantized while loading.
    Wide4(WideMatrix<Wide4>),
    /// A file's groups of 8 bits.
    Q8(QuantizedMatrix<Q8>),
    /// A file's groups of 4 bits.
    Q4(QuantizedMatrix<Q4>),
    /// A file's blocks of 6 bits.
    Q6K(KMatrix<Q6K>),
    /// A file's blocks of 5 bits.
    Q5K(KMatrix<Q5K>),
    /// A file's blocks of 4 bits.
    Q4K(KMatrix<Q4K>),
    /// A checkpoint's groups of 4 bits with scales and zeros.
    Grouped(GroupedMatrix),
    /// Some with the same input, one above the other; at least one.
    Stacked(Vec<PackedMatrix>),
}

/// Calls a method that all formats have, or does something else with those that are stacked.
macro_rules! each_format {
    ($matrix:expr, $name:ident => $call:expr, $stacked:ident => $instead:expr) => {
        match $matrix {
            PackedMatrix::F32($name) => $call,
            PackedMatrix::Bf16($name) => $call,
            PackedMatrix::F16($name) => $call,
            PackedMatrix::Wide8($name) => $call,
            PackedMatrix::Wide4($name) => $call,
            PackedMatrix::Q8($name) => $call,
            PackedMatrix::Q4($name) => $call,
            PackedMatrix::Q6K($name) => $call,
            PackedMatrix::Q5K($name) => $call,
            PackedMatrix::Q4K($name) => $call,
            PackedMatrix::Grouped($name) => $call,
            PackedMatrix::Stacked($stacked) => $instead,
        }
    };
}

/// What packs matrices.
#[derive(Clone, Copy)]
pub(crate) struct Packing<'a> {
    pub(crate) pool: &'a ComputePool,
    /// Of dense matrices.
    pub(crate) dtype: ModelDtype,
    /// Where quantized ones may lie already.
    pub(crate) cache: &'a WeightCache,
    /// Where all may lie already, made by another core.
    pub(crate) shared: &'a SharedWeights,
}

impl Packing<'_> {
    /// Packs tensors `[n_i, in_features]`, stacked; `name` is that of the first.
    pub(crate) fn pack(
        self,
        name: &str,
        format: WeightFormat,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
    ) -> Result<PackedMatrix, ModelError> {
        Ok(match (format, self.dtype) {
            (WeightFormat::Full, _) | (WeightFormat::Dense, ModelDtype::Float32) => {
                PackedMatrix::F32(self.dense(name, "f32", in_features, parts, bias)?)
            }
            (WeightFormat::Dense, ModelDtype::BFloat16) => {
                PackedMatrix::Bf16(self.dense(name, "bf16", in_features, parts, bias)?)
            }
            (WeightFormat::Dense, ModelDtype::Float16) => {
                PackedMatrix::F16(self.dense(name, "f16", in_features, parts, bias)?)
            }
            (WeightFormat::Wide(WideFormat::Wide8), _) => {
                PackedMatrix::Wide8(self.wide(name, in_features, parts, bias)?)
            }
            (WeightFormat::Wide(WideFormat::Wide4), _) => {
                PackedMatrix::Wide4(self.wide(name, in_features, parts, bias)?)
            }
            (WeightFormat::Quantized(QuantizedFormat::Q8_0), _) => {
                PackedMatrix::Q8(self.quantized(name, in_features, parts, bias)?)
            }
            (WeightFormat::Quantized(QuantizedFormat::Q4_0), _) => {
                PackedMatrix::Q4(self.quantized(name, in_features, parts, bias)?)
            }
            (WeightFormat::K(KFormat::Q6K), _) => {
                PackedMatrix::Q6K(self.k_quantized(name, in_features, parts, bias)?)
            }
            (WeightFormat::K(KFormat::Q5K), _) => {
                PackedMatrix::Q5K(self.k_quantized(name, in_features, parts, bias)?)
            }
            (WeightFormat::K(KFormat::Q4K), _) => {
                PackedMatrix::Q4K(self.k_quantized(name, in_features, parts, bias)?)
            }
            (WeightFormat::Grouped { size }, _) => {
                PackedMatrix::Grouped(self.grouped(name, in_features, parts, bias, size)?)
            }
        })
    }

    /// Values that are no groups.
    fn dense<F: DenseFormat>(
        self,
        name: &str,
        format: &'static str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
    ) -> Result<DenseMatrix<F>, ModelError> {
        let num_bytes = DenseMatrix::<F>::num_bytes;
        let matrix = describe(name, format, in_features, parts, num_bytes);
        let pack = || DenseMatrix::<F>::pack(self.pool, in_features, parts);
        let panels = self.shared.share(self.pool, matrix, pack)?;
        DenseMatrix::new(panels, matrix.out_features, in_features, bias)
    }

    /// A file's blocks, which are kept as they are.
    fn k_quantized<L: KLayout>(
        self,
        name: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
    ) -> Result<KMatrix<L>, ModelError> {
        let num_bytes = KMatrix::<L>::num_bytes;
        let matrix = describe(name, L::FORMAT.name(), in_features, parts, num_bytes);
        let pack = || KMatrix::<L>::pack(self.pool, in_features, parts);
        let panels = self.shared.share(self.pool, matrix, pack)?;
        KMatrix::new(panels, matrix.out_features, in_features, bias)
    }

    /// A file's groups, which are kept as they are where they are of this format.
    fn quantized<L: Layout>(
        self,
        name: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
    ) -> Result<QuantizedMatrix<L>, ModelError> {
        let num_bytes = QuantizedMatrix::<L>::num_bytes;
        let matrix = describe(name, L::FORMAT.name(), in_features, parts, num_bytes);
        let pack = || QuantizedMatrix::<L>::pack(self.pool, in_features, parts);
        let is_held = parts.iter().all(|part| part.is_held_by(L::FORMAT));
        let panels = (self.shared).share(self.pool, matrix, || match is_held {
            true => pack(),
            false => self.cached(matrix, pack),
        })?;
        QuantizedMatrix::new(panels, matrix.out_features, in_features, bias)
    }

    /// A checkpoint's groups of `group` columns, which are kept as they are.
    fn grouped(
        self,
        name: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
        group: usize,
    ) -> Result<GroupedMatrix, ModelError> {
        let num_bytes = |rows, columns| GroupedMatrix::num_bytes(rows, columns, group);
        let matrix = describe(name, "grouped4", in_features, parts, num_bytes);
        let pack = || GroupedMatrix::pack(self.pool, in_features, parts, group);
        let panels = self.shared.share(self.pool, matrix, pack)?;
        let order = parts.first().and_then(StoredTensor::column_order);
        let order = order.map(|order| order.columns.clone());
        GroupedMatrix::new(
            panels,
            [matrix.out_features, in_features],
            group,
            order,
            bias,
        )
    }

    /// Groups that are made here.
    fn wide<L: WideLayout>(
        self,
        name: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
    ) -> Result<WideMatrix<L>, ModelError> {
        let num_bytes = WideMatrix::<L>::num_bytes;
        let matrix = describe(name, L::FORMAT.name(), in_features, parts, num_bytes);
        let pack = || WideMatrix::<L>::pack(self.pool, in_features, parts);
        let panels = (self.shared).share(self.pool, matrix, || self.cached(matrix, pack))?;
        WideMatrix::new(panels, matrix.out_features, in_features, bias)
    }

    /// Panels from the cache, or made and kept there: for what takes more to make than to read.
    fn cached(
        self,
        matrix: CachedMatrix<'_>,
        pack: impl FnOnce() -> Result<Buffer<u8>, ModelError>,
    ) -> Result<Buffer<u8>, ModelError> {
        if let Some(panels) = self.cache.read(self.pool, matrix)? {
            return Ok(panels);
        }
        let panels = pack()?;
        self.cache.add(self.pool, matrix, &panels)?;
        Ok(panels)
    }
}

/// The matrix of some tensors `[n_i, in_features]`, stacked. `num_bytes` has the bytes of the panels of a matrix
/// `[out_features, in_features]`.
fn describe<'a>(
    name: &'a str,
    format: &'static str,
    in_features: usize,
    parts: &[StoredTensor<'_>],
    num_bytes: impl FnOnce(usize, usize) -> usize,
) -> CachedMatrix<'a> {
    let out_features = parts.iter().map(StoredTensor::rows).sum();
    CachedMatrix {
        name,
        format,
        out_features,
        in_features,
        num_bytes: num_bytes(out_features, in_features),
    }
}

impl PackedMatrix {
    pub(crate) fn out_features(&self) -> usize {
        each_format!(self, matrix => matrix.out_features(), stacked => {
            stacked.iter().map(Self::out_features).sum()
        })
    }

    pub(crate) fn in_features(&self) -> usize {
        each_format!(self, matrix => matrix.in_features(), stacked => {
            stacked.first().map_or(0, Self::in_features)
        })
    }

    /// Whether its input is quantized to wide groups in the order in which it comes.
    pub(crate) fn is_wide(&self) -> bool {
        match self {
            Self::Wide8(_) | Self::Wide4(_) => true,
            Self::Grouped(matrix) => matrix.order().is_none(),
            _ => false,
        }
    }

    /// Whether products of experts may go by both in one call.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && !self.is_stacked()
            && (self.out_features(), self.in_features())
                == (other.out_features(), other.in_features())
    }

    /// Whether it is several matrices.
    pub(crate) fn is_stacked(&self) -> bool {
        matches!(self, Self::Stacked(_))
    }

    /// Whether [`Outputs::Gated`] may be asked of it.
    pub(crate) fn is_gateable(&self) -> bool {
        !self.is_stacked() && gated::is_gateable(self.out_features())
    }

    /// Writes row `feature` of the matrix, as a table of embeddings is read.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        each_format!(self, matrix => matrix.read_row(feature, out), stacked => {
            let mut feature = feature;
            for matrix in stacked {
                if feature < matrix.out_features() {
                    return matrix.read_row(feature, out);
                }
                feature -= matrix.out_features();
            }
        });
    }
}

/// Where a product's rows are put into the form that its matrix asks for.
pub(crate) struct Conversion {
    groups: Buffer<ActivationGroup>,
    wide_groups: Buffer<WideRowGroup>,
    #[cfg(target_arch = "x86_64")]
    pairs: Buffer<u32>,
}

impl Conversion {
    /// Room for `rows` rows of `width` values. Memory that is never needed is never taken.
    pub(crate) fn allocate(rows: usize, width: usize) -> Result<Self, ModelError> {
        let len = rows.saturating_mul(num_groups(width));
        Ok(Self {
            groups: Buffer::zeroed_rows("quantized activations", len)?,
            wide_groups: Buffer::zeroed_rows(
                "quantized activations",
                rows.saturating_mul(num_wide_groups(width)),
            )?,
            #[cfg(target_arch = "x86_64")]
            pairs: Buffer::zeroed_rows(
                "bfloat16 activations",
                rows.saturating_mul(bf16_tiles::stride(width)),
            )?,
        })
    }

    /// The rows in wide groups of 8-bit values.
    pub(crate) fn quantize_wide(
        &mut self,
        linear: Linear<'_>,
        x: &Rows<'_, f32>,
        width: usize,
    ) -> Result<Rows<'_, WideRowGroup>, ModelError> {
        x.check(width);
        let stride = num_wide_groups(width);
        let to = SharedMut::new(&mut self.wide_groups);
        for_each_row(linear.pool, x.count, width, &|row, _| {
            // SAFETY: each row belongs to one call and holds `width` values, as just checked.
            unsafe {
                let x = x.data.as_ptr().add(row * x.stride);
                let to = to.ptr(row * stride, stride);
                quantize_wide_row(linear.level, x, width, to);
            }
        })?;
        Ok(Rows {
            data: &self.wide_groups[..x.count * stride],
            count: x.count,
            stride,
        })
    }

    /// The same with the columns of each row in another order.
    fn quantize_in_order(
        &mut self,
        linear: Linear<'_>,
        x: &Rows<'_, f32>,
        order: &[u32],
    ) -> Result<Rows<'_, WideRowGroup>, ModelError> {
        let width = order.len();
        x.check(width);
        let stride = num_wide_groups(width);
        let to = SharedMut::new(&mut self.wide_groups);
        for_each_row(linear.pool, x.count, width, &|row, _| {
            let x = &x.data[row * x.stride..];
            let mut group = [0.0; WIDE_GROUP];
            for (index, order) in order.chunks(WIDE_GROUP).enumerate() {
                for (to, from) in group.iter_mut().zip(order) {
                    *to = x[*from as usize];
                }
                // SAFETY: each row belongs to one call; the group holds as many values.
                unsafe {
                    let to = to.ptr(row * stride + index, 1);
                    quantize_wide_row(linear.level, group.as_ptr(), order.len(), to);
                }
            }
        })?;
        Ok(Rows {
            data: &self.wide_groups[..x.count * stride],
            count: x.count,
            stride,
        })
    }

    /// The rows in groups of 8-bit values, for weights whose zero is stored as `zero`.
    fn quantize(
        &mut self,
        linear: Linear<'_>,
        x: &Rows<'_, f32>,
        width: usize,
        zero: u8,
    ) -> Result<Rows<'_, ActivationGroup>, ModelError> {
        x.check(width);
        let stride = num_groups(width);
        let to = SharedMut::new(&mut self.groups);
        for_each_row(linear.pool, x.count, width, &|row, _| {
            // SAFETY: each row belongs to one call and holds `width` values, as just checked.
            unsafe {
                let x = x.data.as_ptr().add(row * x.stride);
                let to = to.ptr(row * stride, stride);
                quantize_row(linear.level, x, width, i32::from(zero), to);
            }
        })?;
        Ok(Rows {
            data: &self.groups[..x.count * stride],
            count: x.count,
            stride,
        })
    }

    /// The rows in blocks of such groups; `width` is whole blocks.
    fn quantize_blocks(
        &mut self,
        linear: Linear<'_>,
        x: &Rows<'_, f32>,
        width: usize,
    ) -> Result<Rows<'_, ActivationBlock>, ModelError> {
        let groups = self.quantize(linear, x, width, 0)?;
        Ok(Rows {
            data: groups.data.as_chunks().0,
            count: groups.count,
            stride: groups.stride / GROUPS,
        })
    }
}

#[cfg(target_arch = "x86_64")]
impl Conversion {
    /// The rows in pairs of bfloat16, at the level that multiplies such.
    fn round_to_bf16(
        &mut self,
        linear: Linear<'_>,
        x: &Rows<'_, f32>,
        width: usize,
    ) -> Result<Rows<'_, u32>, ModelError> {
        assert!(linear.level.has_bf16_dot(), "level without bfloat16");
        x.check(width);
        let pairs = num_pairs(width);
        let stride = match linear.level.has_tiles() {
            true => bf16_tiles::stride(width),
            false => pairs,
        };
        let to = SharedMut::new(&mut self.pairs);
        for_each_row(linear.pool, x.count, width, &|row, _| {
            // SAFETY: each row belongs to one call and holds `width` values, as just checked; the
            // processor has the level, as it exists.
            unsafe {
                let x = x.data.as_ptr().add(row * x.stride);
                let to = to.ptr(row * stride, stride);
                round_row(x, width, to);
                std::ptr::write_bytes(to.add(pairs), 0, stride - pairs);
            }
        })?;
        Ok(Rows {
            data: &self.pairs[..x.count * stride],
            count: x.count,
            stride,
        })
    }
}

/// Which outputs of a product are computed.
pub(crate) enum Outputs<'a> {
    /// All of every row, rows at this stride.
    All { stride: usize },
    /// The same, and the largest of each [`PANEL_WIDTH`](panels::PANEL_WIDTH), see
    /// [`panels::multiply_with_maxima`]. Not of stacked matrices.
    WithMaxima {
        stride: usize,
        maxima: SharedMut<'a, f32>,
    },
    /// The largest of every row alone; nothing else is written. Not of stacked matrices.
    Argmax(Argmax<'a>),
    /// `act(first half) * second half` of every row, rows at this stride. Not of stacked matrices.
    Gated { act: HiddenAct, stride: usize },
    /// These of the only row.
    Chosen(&'a [u32]),
}

/// What executes products.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    pub(crate) pool: &'a ComputePool,
    pub(crate) level: SimdLevel,
}

impl Linear<'_> {
    /// `out = x * matrix^T + bias`. Chosen outputs are equal to the same ones among all.
    pub(crate) fn multiply(
        self,
        matrix: &PackedMatrix,
        x: &Rows<'_, f32>,
        conversion: &mut Conversion,
        outputs: Outputs<'_>,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let (level, width) = (self.level, matrix.in_features());
        match matrix {
            PackedMatrix::F32(matrix) => self.run(&DenseKernel { matrix, level }, x, outputs, out),
            PackedMatrix::F16(matrix) => self.run(&DenseKernel { matrix, level }, x, outputs, out),
            PackedMatrix::Bf16(matrix) => {
                #[cfg(target_arch = "x86_64")]
                if level.has_bf16_dot() {
                    let x = conversion.round_to_bf16(self, x, width)?;
                    if let Some(kernel) = Bf16TileKernel::new(matrix, level) {
                        return self.run(&kernel, &x, outputs, out);
                    }
                    if let Some(kernel) = Bf16DotKernel::new(matrix, level) {
                        return self.run(&kernel, &x, outputs, out);
                    }
                }
                self.run(&DenseKernel { matrix, level }, x, outputs, out)
            }
            PackedMatrix::Wide8(_) | PackedMatrix::Wide4(_) => {
                let x = conversion.quantize_wide(self, x, width)?;
                self.multiply_wide(matrix, &x, outputs, out)
            }
            PackedMatrix::Grouped(grouped) => {
                let x = match grouped.order() {
                    None => conversion.quantize_wide(self, x, width)?,
                    Some(order) => conversion.quantize_in_order(self, x, order)?,
                };
                self.multiply_wide(matrix, &x, outputs, out)
            }
            PackedMatrix::Q8(matrix) => {
                let x = conversion.quantize(self, x, width, Q8::ZERO)?;
                self.run(&QuantizedKernel { matrix, level }, &x, outputs, out)
            }
            PackedMatrix::Q4(matrix) => {
                let x = conversion.quantize(self, x, width, Q4::ZERO)?;
                self.run(&QuantizedKernel { matrix, level }, &x, outputs, out)
            }
            PackedMatrix::Q6K(matrix) => {
                let x = conversion.quantize_blocks(self, x, width)?;
                self.run(&KKernel { matrix, level }, &x, outputs, out)
            }
            PackedMatrix::Q5K(matrix) => {
                let x = conversion.quantize_blocks(self, x, width)?;
                self.run(&KKernel { matrix, level }, &x, outputs, out)
            }
            PackedMatrix::Q4K(matrix) => {
                let x = conversion.quantize_blocks(self, x, width)?;
                self.run(&KKernel { matrix, level }, &x, outputs, out)
            }
            PackedMatrix::Stacked(matrices) => {
                self.multiply_stacked(matrices, x, conversion, outputs, out)
            }
        }
    }

    /// The same of rows that are in wide groups already, by a matrix that [reads](PackedMatrix::is_wide) such.
    pub(crate) fn multiply_wide(
        self,
        matrix: &PackedMatrix,
        x: &Rows<'_, WideRowGroup>,
        outputs: Outputs<'_>,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let level = self.level;
        match matrix {
            PackedMatrix::Wide8(matrix) => self.run(&WideKernel { matrix, level }, x, outputs, out),
            PackedMatrix::Wide4(matrix) => self.run(&WideKernel { matrix, level }, x, outputs, out),
            PackedMatrix::Grouped(matrix) => {
                self.run(&GroupedKernel { matrix, level }, x, outputs, out)
            }
            _ => unreachable!("asked of matrices that read wide groups"),
        }
    }

    /// `out = act(gate) * up` of `[gate | up] = x * matrix^T + bias`, from wide groups to wide groups
    /// `[rows, groups]`.
    pub(crate) fn multiply_gated_wide(
        self,
        matrix: &PackedMatrix,
        x: &Rows<'_, WideRowGroup>,
        act: HiddenAct,
        scratch: &mut GroupScratch,
        out: &mut [WideRowGroup],
    ) -> Result<(), ModelError> {
        let level = self.level;
        match matrix {
            PackedMatrix::Wide8(matrix) => Gated::new(&WideKernel { matrix, level }, level, x, act)
                .multiply_to_groups(self.pool, scratch, out),
            PackedMatrix::Wide4(matrix) => Gated::new(&WideKernel { matrix, level }, level, x, act)
                .multiply_to_groups(self.pool, scratch, out),
            PackedMatrix::Grouped(matrix) => {
                Gated::new(&GroupedKernel { matrix, level }, level, x, act)
                    .multiply_to_groups(self.pool, scratch, out)
            }
            _ => unreachable!("asked of matrices that read wide groups"),
        }
    }

    /// [`Self::multiply`] by matrices one above the other.
    fn multiply_stacked(
        self,
        matrices: &[PackedMatrix],
        x: &Rows<'_, f32>,
        conversion: &mut Conversion,
        outputs: Outputs<'_>,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let mut first = 0;
        match outputs {
            Outputs::All { stride } => {
                for matrix in matrices {
                    let out = out.get_mut(first..).unwrap_or_default();
                    let outputs = Outputs::All { stride };
                    self.multiply(matrix, x, conversion, outputs, out)?;
                    first += matrix.out_features();
                }
            }
            Outputs::WithMaxima { .. } | Outputs::Argmax(_) | Outputs::Gated { .. } => {
                unreachable!("asked of matrices that are not stacked")
            }
            Outputs::Chosen(features) => {
                // Only embeddings and LM heads are asked for some, and they are one tensor.
                let mut chosen = [0.0];
                for (feature, out) in features.iter().zip(out) {
                    let mut feature = *feature;
                    for matrix in matrices {
                        let rows = matrix.out_features() as u32;
                        if feature < rows {
                            let outputs = Outputs::Chosen(&[feature]);
                            self.multiply(matrix, x, conversion, outputs, &mut chosen)?;
                            *out = chosen[0];
                            break;
                        }
                        feature -= rows;
                    }
                }
            }
        }
        Ok(())
    }

    /// `out = x * matrix^T` by the matrix of each group of rows; all have one shape and format.
    pub(crate) fn multiply_groups(
        self,
        matrices: &[PackedMatrix],
        groups: &[ExpertRows],
        x: &Rows<'_, f32>,
        conversion: &mut Conversion,
        out: &mut [f32],
        stride: usize,
    ) -> Result<(), ModelError> {
        let Some(first) = matrices.first() else {
            return Ok(());
        };
        let (level, width) = (self.level, first.in_features());
        // A kernel by one of the matrices, all of which are of the first one's kind.
        macro_rules! run {
            ($kind:ident, $x:expr, $matrix:ident => $kernel:expr) => {{
                let kernel_of = |expert: usize| match &matrices[expert] {
                    PackedMatrix::$kind($matrix) => $kernel,
                    _ => unreachable!("experts are in one format"),
                };
                panels::multiply_groups(&kernel_of, groups, self.pool, $x, out, stride)
            }};
        }
        match first {
            PackedMatrix::F32(_) => run!(F32, x, matrix => DenseKernel { matrix, level }),
            PackedMatrix::F16(_) => run!(F16, x, matrix => DenseKernel { matrix, level }),
            PackedMatrix::Bf16(_) => {
                #[cfg(target_arch = "x86_64")]
                if level.has_bf16_dot() {
                    let x = conversion.round_to_bf16(self, x, width)?;
                    if level.has_tiles() {
                        return run!(Bf16, &x, matrix => match Bf16TileKernel::new(matrix, level) {
                            Some(kernel) => kernel,
                            None => unreachable!("the level has it, as just checked"),
                        });
                    }
                    return run!(Bf16, &x, matrix => match Bf16DotKernel::new(matrix, level) {
                        Some(kernel) => kernel,
                        None => unreachable!("the level has it, as just checked"),
                    });
                }
                run!(Bf16, x, matrix => DenseKernel { matrix, level })
            }
            PackedMatrix::Wide8(_) => {
                let x = conversion.quantize_wide(self, x, width)?;
                run!(Wide8, &x, matrix => WideKernel { matrix, level })
            }
            PackedMatrix::Wide4(_) => {
                let x = conversion.quantize_wide(self, x, width)?;
                run!(Wide4, &x, matrix => WideKernel { matrix, level })
            }
            PackedMatrix::Q8(_) => {
                let x = conversion.quantize(self, x, width, Q8::ZERO)?;
                run!(Q8, &x, matrix => QuantizedKernel { matrix, level })
            }
            PackedMatrix::Q4(_) => {
                let x = conversion.quantize(self, x, width, Q4::ZERO)?;
                run!(Q4, &x, matrix => QuantizedKernel { matrix, level })
            }
            PackedMatrix::Q6K(_) => {
                let x = conversion.quantize_blocks(self, x, width)?;
                run!(Q6K, &x, matrix => KKernel { matrix, level })
            }
            PackedMatrix::Q5K(_) => {
                let x = conversion.quantize_blocks(self, x, width)?;
                run!(Q5K, &x, matrix => KKernel { matrix, level })
            }
            PackedMatrix::Q4K(_) => {
                let x = conversion.quantize_blocks(self, x, width)?;
                run!(Q4K, &x, matrix => KKernel { matrix, level })
            }
            PackedMatrix::Grouped(_) => {
                let x = conversion.quantize_wide(self, x, width)?;
                run!(Grouped, &x, matrix => GroupedKernel { matrix, level })
            }
            PackedMatrix::Stacked(_) => unreachable!("experts are in one format"),
        }
    }

    fn run<K: PanelKernel>(
        self,
        kernel: &K,
        x: &Rows<'_, K::Input>,
        outputs: Outputs<'_>,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        match outputs {
            Outputs::All { stride } => panels::multiply(kernel, self.pool, x, out, stride),
            Outputs::WithMaxima { stride, maxima } => {
                panels::multiply_with_maxima(kernel, self.level, self.pool, x, out, stride, maxima)
            }
            Outputs::Gated { act, stride } => {
                Gated::new(kernel, self.level, x, act).multiply(self.pool, out, stride)
            }
            Outputs::Argmax(argmax) => argmax.of(kernel, self.level, self.pool, x),
            Outputs::Chosen(features) => {
                panels::multiply_chosen(kernel, self.pool, x, features, out)
            }
        }
    }
}
