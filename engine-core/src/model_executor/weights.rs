//! Tensors on their way from the checkpoint to a backend.

use gguf::TensorType;
use protocol::Quantization;

use super::LoadProgress;
use super::backend::Backend;
use super::checkpoint::Checkpoint;
use super::error::ModelError;
use super::quantization::{KFormat, QuantizedFormat};
pub(crate) use super::stored_tensor::{StoredDtype, StoredTensor};
use super::wide_quantization::WideFormat;

/// How a backend keeps a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightFormat {
    /// In f32, whatever the model's dtype: products of unrounded activations.
    Full,
    /// In the model's dtype.
    Dense,
    /// In a file's quantized groups of 32.
    Quantized(QuantizedFormat),
    /// In groups of 256 that are quantized while loading.
    Wide(WideFormat),
    /// In a file's blocks of 256.
    K(KFormat),
}

/// What a matrix is for, which decides how coarsely it may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixRole {
    /// A layer's.
    Layer,
    /// An expert's: those of all experts of a layer must be alike.
    Expert,
    /// The embedding or the LM head: logits come straight from it.
    Vocabulary,
    /// What chooses experts: small, and a small change may choose another.
    Router,
}

impl WeightFormat {
    /// The format of a matrix under `--quantization`.
    pub(crate) fn of(quantization: Quantization, role: MatrixRole) -> Self {
        match (quantization, role) {
            (_, MatrixRole::Router) => Self::Full,
            (Quantization::None, _) => Self::Dense,
            (Quantization::Q4_0, MatrixRole::Layer | MatrixRole::Expert) => {
                Self::Wide(WideFormat::Wide4)
            }
            (Quantization::Q4_0 | Quantization::Q8_0, _) => Self::Wide(WideFormat::Wide8),
        }
    }

    /// The formats of a matrix's parts: what `--quantization` asks for, or what the file has where that
    /// is as coarse or coarser.
    fn of_stored(
        quantization: Quantization,
        role: MatrixRole,
        parts: &[StoredTensor<'_>],
    ) -> Vec<Self> {
        let asked = Self::of(quantization, role);
        let coarser = |stored: Self| match stored.coarseness() >= asked.coarseness() {
            true => stored,
            false => asked,
        };
        let formats = parts.iter().map(|part| match role {
            MatrixRole::Router => asked,
            _ => coarser(part.kept_in()),
        });
        let mut formats: Vec<Self> = formats.collect();
        if role == MatrixRole::Expert && formats.windows(2).any(|pair| pair[0] != pair[1]) {
            // Groups of 32 hold those of most files as they are.
            let one = formats.iter().map(|format| match format {
                Self::K(_) | Self::Wide(WideFormat::Wide8) => {
                    Self::Quantized(QuantizedFormat::Q8_0)
                }
                Self::Wide(WideFormat::Wide4) => Self::Quantized(QuantizedFormat::Q4_0),
                other => *other,
            });
            let finest = one.min_by_key(|format| format.coarseness());
            formats.fill(finest.unwrap_or(asked));
        }
        formats
    }

    /// Bits per value, as a rank. What a file has in about as many bits as asked for is left as it is.
    fn coarseness(self) -> u8 {
        match self {
            Self::Full | Self::Dense => 0,
            Self::Quantized(QuantizedFormat::Q8_0) | Self::Wide(WideFormat::Wide8) => 1,
            Self::K(KFormat::Q6K) => 2,
            Self::K(KFormat::Q5K) => 3,
            Self::Quantized(QuantizedFormat::Q4_0) | Self::Wide(WideFormat::Wide4) => 4,
            Self::K(KFormat::Q4K) => 5,
        }
    }
}

impl StoredTensor<'_> {
    /// The format that holds such values exactly, or of the quantized ones the nearest.
    fn kept_in(&self) -> WeightFormat {
        match self.dtype() {
            StoredDtype::F32 | StoredDtype::F16 | StoredDtype::BF16 => WeightFormat::Dense,
            StoredDtype::Blocks(format) => match format {
                TensorType::Q4_0 => WeightFormat::Quantized(QuantizedFormat::Q4_0),
                TensorType::Q8_0 | TensorType::Q5_0 => {
                    WeightFormat::Quantized(QuantizedFormat::Q8_0)
                }
                TensorType::Q4K => WeightFormat::K(KFormat::Q4K),
                TensorType::Q5K => WeightFormat::K(KFormat::Q5K),
                TensorType::Q6K => WeightFormat::K(KFormat::Q6K),
                _ => WeightFormat::Wide(WideFormat::Wide8),
            },
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

    /// A layer's experts of their matrices, ascending.
    pub(crate) fn join_experts(&self, experts: Vec<B::Matrix>) -> Result<B::Experts, ModelError> {
        self.backend.join_experts(experts)
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

    /// As [`Self::fused_linear`], of an expert and without biases.
    pub(crate) fn expert_linear(
        &mut self,
        in_features: usize,
        expert: &str,
        parts: &[(&str, usize)],
    ) -> Result<B::Matrix, ModelError> {
        let parts: Vec<(String, usize)> = parts
            .iter()
            .map(|(part, out_features)| (format!("{expert}.{part}"), *out_features))
            .collect();
        self.matrix(in_features, &parts, false, MatrixRole::Expert)
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
        let formats = WeightFormat::of_stored(self.quantization, role, &weights);
        let mut matrices = Vec::new();
        let (mut first, mut first_row) = (0, 0);
        // Parts of one format that follow one another are one matrix.
        for same in formats.chunk_by(PartialEq::eq) {
            let parts_of_one = &weights[first..first + same.len()];
            let rows: usize = parts_of_one.iter().map(StoredTensor::rows).sum();
            let bias = bias.as_ref().map(|bias| &bias[first_row..first_row + rows]);
            let (name, format) = (&parts[first].0, same[0]);
            let matrix =
                (self.backend).load_matrix(name, in_features, parts_of_one, bias, format)?;
            matrices.push(matrix);
            first += same.len();
            first_row += rows;
        }
        let matrix = self.backend.stack_matrices(matrices)?;
        self.advance(&weights);
        self.advance(&biases);
        Ok(matrix)
    }
}
