//! Tensors on their way from the checkpoint to a backend.

use protocol::Quantization;

use super::LoadProgress;
use super::backend::Backend;
use super::checkpoint::Checkpoint;
use super::error::ModelError;
use super::quantization::QuantizedFormat;
pub(crate) use super::stored_tensor::{StoredDtype, StoredTensor};

/// How a backend keeps a matrix; the finest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// The format of a matrix that is stored in `parts`: what `--quantization` asks for, or what
    /// the file has where that is coarser. Of parts in several formats the finest counts.
    fn of_stored(quantization: Quantization, role: MatrixRole, parts: &[StoredTensor<'_>]) -> Self {
        let asked = Self::of(quantization, role);
        let stored = parts.iter().map(|part| part.dtype().kept_in()).min();
        match stored {
            Some(stored) if role != MatrixRole::Router => asked.max(stored),
            _ => asked,
        }
    }
}

impl StoredDtype {
    /// The format that holds such values exactly, or of the quantized ones the nearest.
    fn kept_in(self) -> WeightFormat {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => WeightFormat::Dense,
            Self::Blocks(gguf::TensorType::Q4_0) => WeightFormat::Quantized(QuantizedFormat::Q4_0),
            Self::Blocks(_) => WeightFormat::Quantized(QuantizedFormat::Q8_0),
        }
    }
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
    ///
    /// # Errors
    /// [`ModelError::Gguf`] where a GGUF file has such tensors.
    pub(crate) fn finish(mut self) -> Result<(), ModelError> {
        self.checkpoint.check_all_used()?;
        self.done.done_bytes = self.done.total_bytes;
        (self.progress)(self.done);
        Ok(())
    }

    fn find(&self, name: &str, expected: &[usize]) -> Result<StoredTensor<'a>, ModelError> {
        let raw = self
            .checkpoint
            .find(name)?
            .ok_or_else(|| ModelError::MissingTensor {
                name: self.checkpoint.name_in_file(name),
                expected: expected.to_owned(),
            })?;
        StoredTensor::new(raw, || self.checkpoint.name_in_file(name), expected)
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
        let included = if self.checkpoint.norm_offset_included() {
            offset
        } else {
            0.0
        };
        let tensor = tensor.without_offset(included);
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
        let part = (name.to_owned(), vocab_size);
        self.matrix(in_features, &[part], false, MatrixRole::Vocabulary)
    }

    /// One matrix of several linear layers of a block with the same input, stacked in the order
    /// given: their names within the block, without `.weight` or `.bias`, and their output features.
    /// With `bias` each has one.
    pub(crate) fn fused_linear(
        &mut self,
        in_features: usize,
        block: &str,
        parts: &[(&str, usize)],
        bias: bool,
    ) -> Result<B::Matrix, ModelError> {
        let parts: Vec<(String, usize)> = parts
            .iter()
            .map(|(part, out_features)| (format!("{block}.{part}"), *out_features))
            .collect();
        self.matrix(in_features, &parts, bias, MatrixRole::Layer)
    }

    /// The matrix that chooses experts, named without `.weight`.
    pub(crate) fn router(
        &mut self,
        in_features: usize,
        name: &str,
        num_experts: usize,
    ) -> Result<B::Matrix, ModelError> {
        let part = (name.to_owned(), num_experts);
        self.matrix(in_features, &[part], false, MatrixRole::Router)
    }

    fn matrix(
        &mut self,
        in_features: usize,
        parts: &[(String, usize)],
        bias: bool,
        role: MatrixRole,
    ) -> Result<B::Matrix, ModelError> {
        let mut weights = Vec::with_capacity(parts.len());
        let mut biases = Vec::new();
        for (name, out_features) in parts {
            let shape = [*out_features, in_features];
            weights.push(self.find(&format!("{name}.weight"), &shape)?);
            if bias {
                biases.push(self.find(&format!("{name}.bias"), &[*out_features])?);
            }
        }
        let bias: Option<Vec<f32>> =
            bias.then(|| biases.iter().flat_map(|bias| bias.to_f32()).collect());
        let name = parts.first().map_or("", |(name, _)| name);
        let format = WeightFormat::of_stored(self.quantization, role, &weights);
        let matrix =
            self.backend
                .load_matrix(name, in_features, &weights, bias.as_deref(), format)?;
        self.advance(&weights);
        self.advance(&biases);
        Ok(matrix)
    }
}
