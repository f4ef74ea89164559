//! Tensors on their way from the checkpoint to a backend.

use half::{bf16, f16};
use protocol::Quantization;

use super::LoadProgress;
use super::backend::Backend;
use super::checkpoint::{Checkpoint, RawTensor};
use super::error::ModelError;
use super::quantization::{GROUP, Group, QuantizedFormat};

/// How a backend keeps a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightFormat {
    /// In the model's dtype.
    Dense,
    /// In quantized groups.
    Quantized(QuantizedFormat),
}

/// What a matrix is for, which decides how coarsely it may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixRole {
    /// A layer's.
    Layer,
    /// The embedding or the LM head: logits come straight from it.
    Vocabulary,
    /// What chooses experts: small, and a small change may choose another.
    Router,
}

impl WeightFormat {
    /// The format of a matrix under `--quantization`.
    pub(crate) fn of(quantization: Quantization, role: MatrixRole) -> Self {
        match (quantization, role) {
            (Quantization::None, _) | (_, MatrixRole::Router) => Self::Dense,
            (Quantization::Q4_0, MatrixRole::Layer) => Self::Quantized(QuantizedFormat::Q4_0),
            (Quantization::Q4_0 | Quantization::Q8_0, _) => Self::Quantized(QuantizedFormat::Q8_0),
        }
    }
}

/// Number format of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredDtype {
    F32,
    F16,
    BF16,
}

/// A matrix (or, with one row, a vector) as the checkpoint stores it, row-major.
#[derive(Clone, Copy)]
pub(crate) struct StoredTensor<'a> {
    dtype: StoredDtype,
    rows: usize,
    cols: usize,
    data: &'a [u8],
}

impl<'a> StoredTensor<'a> {
    fn new(raw: RawTensor<'a>, name: &str, expected: &[usize]) -> Result<Self, ModelError> {
        let dtype = match raw.dtype {
            safetensors::Dtype::F32 => StoredDtype::F32,
            safetensors::Dtype::F16 => StoredDtype::F16,
            safetensors::Dtype::BF16 => StoredDtype::BF16,
            other => {
                return Err(ModelError::TensorDtype {
                    name: name.to_owned(),
                    file: raw.file.to_owned(),
                    found: format!("{other:?}"),
                });
            }
        };
        if raw.shape != expected {
            return Err(ModelError::TensorShape {
                name: name.to_owned(),
                file: raw.file.to_owned(),
                expected: expected.to_owned(),
                found: raw.shape.to_owned(),
            });
        }
        let cols = expected.last().copied().unwrap_or(1);
        let rows = expected
            .iter()
            .product::<usize>()
            .checked_div(cols)
            .unwrap_or(0);
        Ok(Self {
            dtype,
            rows,
            cols,
            data: raw.data,
        })
    }

    /// A tensor of f32 bytes.
    #[cfg(test)]
    pub(crate) fn f32(rows: usize, cols: usize, data: &'a [u8]) -> Self {
        Self {
            dtype: StoredDtype::F32,
            rows,
            cols,
            data,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn num_bytes(&self) -> usize {
        self.data.len()
    }

    /// Calls `each(column, value)` over one row.
    #[inline]
    pub(crate) fn for_each_in_row(&self, row: usize, mut each: impl FnMut(usize, f32)) {
        fn split<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
            bytes.as_chunks::<N>().0.iter().copied()
        }
        let width = match self.dtype {
            StoredDtype::F32 => 4,
            StoredDtype::F16 | StoredDtype::BF16 => 2,
        };
        let start = row * self.cols * width;
        let Some(bytes) = self.data.get(start..start + self.cols * width) else {
            return;
        };
        match self.dtype {
            StoredDtype::F32 => split::<4>(bytes)
                .enumerate()
                .for_each(|(col, bytes)| each(col, f32::from_le_bytes(bytes))),
            StoredDtype::F16 => split::<2>(bytes)
                .enumerate()
                .for_each(|(col, bytes)| each(col, f16::from_le_bytes(bytes).to_f32())),
            StoredDtype::BF16 => split::<2>(bytes)
                .enumerate()
                .for_each(|(col, bytes)| each(col, bf16::from_le_bytes(bytes).to_f32())),
        }
    }

    /// Calls `each(group, values)` over the groups of one row; the last is filled with zeros.
    pub(crate) fn for_each_group_in_row(
        &self,
        row: usize,
        format: QuantizedFormat,
        mut each: impl FnMut(usize, Group),
    ) {
        let mut values = [0.0; GROUP];
        self.for_each_in_row(row, |col, value| {
            values[col % GROUP] = value;
            if col % GROUP == GROUP - 1 || col + 1 == self.cols {
                each(col / GROUP, format.quantize(&values));
                values = [0.0; GROUP];
            }
        });
    }

    /// All values in order, as they are left in `format`.
    pub(crate) fn to_f32_in(self, format: WeightFormat) -> Vec<f32> {
        let WeightFormat::Quantized(format) = format else {
            return self.to_f32();
        };
        let mut values = vec![0.0; self.rows * self.cols];
        for (row, values) in values.chunks_exact_mut(self.cols.max(1)).enumerate() {
            self.for_each_group_in_row(row, format, |index, group| {
                for (i, value) in values[index * GROUP..].iter_mut().take(GROUP).enumerate() {
                    *value = group.to_f32(i);
                }
            });
        }
        values
    }

    /// All values in order.
    pub(crate) fn to_f32(self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        for (row, values) in values.chunks_exact_mut(self.cols.max(1)).enumerate() {
            self.for_each_in_row(row, |col, value| values[col] = value);
        }
        values
    }
}

/// A weight `[out_features, in_features]` by name, and whether a bias `[out_features]` goes with it.
pub(crate) struct LinearSpec<'n> {
    /// Name without `.weight` or `.bias`.
    pub(crate) name: &'n str,
    pub(crate) out_features: usize,
    pub(crate) bias: bool,
}

/// Hands the checkpoint's tensors to a backend, one by one.
pub(crate) struct WeightLoader<'a, B: Backend> {
    checkpoint: &'a Checkpoint,
    backend: &'a B,
    quantization: Quantization,
    progress: &'a mut dyn FnMut(LoadProgress),
    done: LoadProgress,
}

impl<'a, B: Backend> WeightLoader<'a, B> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        backend: &'a B,
        quantization: Quantization,
        progress: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        let done = LoadProgress {
            done_bytes: 0,
            total_bytes: checkpoint.num_bytes() as u64,
        };
        Self {
            checkpoint,
            backend,
            quantization,
            progress,
            done,
        }
    }

    /// Reports the end. Tensors that the model doesn't use count as done.
    pub(crate) fn finish(mut self) {
        self.done.done_bytes = self.done.total_bytes;
        (self.progress)(self.done);
    }

    fn find(&self, name: &str, expected: &[usize]) -> Result<StoredTensor<'a>, ModelError> {
        let raw = self
            .checkpoint
            .find(name)
            .ok_or_else(|| ModelError::MissingTensor {
                name: name.to_owned(),
                expected: expected.to_owned(),
            })?;
        StoredTensor::new(raw, name, expected)
    }

    fn advance(&mut self, tensors: &[StoredTensor<'_>]) {
        let bytes: usize = tensors.iter().map(StoredTensor::num_bytes).sum();
        self.done.done_bytes += bytes as u64;
        (self.progress)(self.done);
    }

    /// A norm's weight `[width]`, named without `.weight`, plus `offset`.
    pub(crate) fn vector(
        &mut self,
        name: &str,
        width: usize,
        offset: f32,
    ) -> Result<B::Vector, ModelError> {
        let tensor = self.find(&format!("{name}.weight"), &[width])?;
        let vector = self.backend.load_vector(tensor, offset)?;
        self.advance(&[tensor]);
        Ok(vector)
    }

    /// The embedding or the LM head, named without `.weight`.
    pub(crate) fn vocabulary(
        &mut self,
        in_features: usize,
        name: &str,
        vocab_size: usize,
    ) -> Result<B::Matrix, ModelError> {
        let part = LinearSpec {
            name,
            out_features: vocab_size,
            bias: false,
        };
        self.matrix(in_features, &[part], MatrixRole::Vocabulary)
    }

    /// One matrix of several linear layers with the same input, stacked in the order given.
    pub(crate) fn fused_linear(
        &mut self,
        in_features: usize,
        parts: &[LinearSpec<'_>],
    ) -> Result<B::Matrix, ModelError> {
        self.matrix(in_features, parts, MatrixRole::Layer)
    }

    /// The matrix that chooses experts, named without `.weight`.
    pub(crate) fn router(
        &mut self,
        in_features: usize,
        name: &str,
        num_experts: usize,
    ) -> Result<B::Matrix, ModelError> {
        let part = LinearSpec {
            name,
            out_features: num_experts,
            bias: false,
        };
        self.matrix(in_features, &[part], MatrixRole::Router)
    }

    fn matrix(
        &mut self,
        in_features: usize,
        parts: &[LinearSpec<'_>],
        role: MatrixRole,
    ) -> Result<B::Matrix, ModelError> {
        let mut weights = Vec::with_capacity(parts.len());
        let mut bias = Vec::new();
        let mut biases = Vec::new();
        let any_bias = parts.iter().any(|part| part.bias);
        for part in parts {
            let shape = [part.out_features, in_features];
            weights.push(self.find(&format!("{}.weight", part.name), &shape)?);
            if part.bias {
                let tensor = self.find(&format!("{}.bias", part.name), &[part.out_features])?;
                bias.extend(tensor.to_f32());
                biases.push(tensor);
            } else if any_bias {
                bias.resize(bias.len() + part.out_features, 0.0);
            }
        }
        let bias = any_bias.then_some(bias);
        let format = WeightFormat::of(self.quantization, role);
        let matrix = self
            .backend
            .load_matrix(in_features, &weights, bias.as_deref(), format)?;
        self.advance(&weights);
        self.advance(&biases);
        Ok(matrix)
    }
}
