//! Tensors on their way from the checkpoint to a backend.

use gguf::TensorType;
use protocol::Quantization;

use super::LoadProgress;
use super::backend::{Backend, LayerNorm};
use super::checkpoint::Checkpoint;
use super::config::QuantizationConfig;
use super::error::ModelError;
use super::quantization::{KFormat, QuantizedFormat};
use super::quantized_linear::{FLOATS, LinearTensors, QUANTIZED_NAMES};
use super::quantized_tensor::QuantizedTensor;
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
    /// In 4 bits with a scale and a zero for each group of columns, as GPTQ and AWQ have them.
    Grouped {
        /// Columns of a group: 32, 64, 128 or 256.
        size: usize,
    },
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
            // Experts read rows in one order.
            MatrixRole::Expert if part.column_order().is_some() => {
                coarser(Self::Wide(WideFormat::Wide8))
            }
            _ => coarser(part.kept_in()),
        });
        let mut formats: Vec<Self> = formats.collect();
        if role == MatrixRole::Expert && formats.windows(2).any(|pair| pair[0] != pair[1]) {
            // Groups of 32 hold those of most files as they are.
            let one = formats.iter().map(|format| match format {
                Self::K(_) | Self::Grouped { .. } | Self::Wide(WideFormat::Wide8) => {
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
            Self::Quantized(QuantizedFormat::Q4_0)
            | Self::Wide(WideFormat::Wide4)
            | Self::Grouped { .. } => 4,
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
            StoredDtype::Codes => {
                let group = self.codes().and_then(QuantizedTensor::kernel_group);
                group.map_or(WeightFormat::Wide(WideFormat::Wide8), |size| {
                    WeightFormat::Grouped { size }
                })
            }
        }
    }
}

/// A weight that was found in the checkpoint.
enum Weight<'a> {
    Plain(StoredTensor<'a>),
    Quantized(QuantizedTensor<'a>),
}

impl Weight<'_> {
    fn stored(&self) -> StoredTensor<'_> {
        match self {
            Self::Plain(tensor) => *tensor,
            Self::Quantized(tensor) => StoredTensor::quantized(tensor),
        }
    }
}

/// Hands the checkpoint's tensors to a backend, one by one.
pub(crate) struct WeightLoader<'a, B: Backend> {
    checkpoint: &'a Checkpoint,
    backend: &'a B,
    quantization: Quantization,
    /// What the checkpoint says of its quantized layers.
    config: Option<&'a QuantizationConfig>,
    progress: &'a mut dyn FnMut(LoadProgress),
    done: LoadProgress,
}

impl<'a, B: Backend> WeightLoader<'a, B> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        backend: &'a B,
        quantization: Quantization,
        config: Option<&'a QuantizationConfig>,
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
            config,
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

    /// A layer norm `[width]`, named without `.weight` or `.bias`.
    pub(crate) fn layer_norm(
        &mut self,
        name: &str,
        width: usize,
        eps: f32,
    ) -> Result<LayerNorm<B::Vector>, ModelError> {
        let weight = self.find(&format!("{name}.weight"), &[width])?;
        let bias = self.find(&format!("{name}.bias"), &[width])?;
        let norm = LayerNorm {
            weight: self.backend.load_vector(weight, 0.0)?,
            bias: self.backend.load_vector(bias, 0.0)?,
            eps,
        };
        self.advance(&[weight, bias]);
        Ok(norm)
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

    /// The weight of a linear layer or an embedding, named without `.weight`, as the checkpoint has it.
    fn find_weight(
        &self,
        name: &str,
        shape: [usize; 2],
        role: MatrixRole,
    ) -> Result<Weight<'a>, ModelError> {
        let plain_name = format!("{name}.weight");
        let plain = || self.find(&plain_name, &shape).map(Weight::Plain);
        let Some(config) = self.config else {
            return plain();
        };
        let is_embedding = role == MatrixRole::Vocabulary && name != "lm_head";
        let scheme = config.scheme(name).filter(|_| !is_embedding);
        let is_float = (self.checkpoint.find_any(&plain_name))
            .is_some_and(|tensor| FLOATS.contains(&tensor.dtype));
        let Some(scheme) = scheme else {
            let names = QUANTIZED_NAMES.map(|suffix| format!("{name}.{suffix}"));
            let quantized = names.into_iter().find(|name| {
                // Its weight alone would be misread.
                self.checkpoint.find_any(name).is_some()
            });
            return match quantized {
                None => plain(),
                Some(tensor) => Err(ModelError::Quantized {
                    tensor,
                    field: config.ignoring_field(),
                    problem: "is of a layer that must not be quantized".to_owned(),
                }),
            };
        };
        // Quantizers leave routers alone, and bitsandbytes the LM head; not all of them say so.
        let is_bitsandbytes = matches!(config, QuantizationConfig::BitsAndBytes(_));
        let may_be_plain =
            role == MatrixRole::Router || role == MatrixRole::Vocabulary && is_bitsandbytes;
        if may_be_plain && is_float {
            return plain();
        }
        if is_float {
            return Err(ModelError::Quantized {
                tensor: plain_name,
                field: config.ignoring_field(),
                problem: format!(
                    "is not quantized, and the layer must be ({}) unless it is listed",
                    config.method()
                ),
            });
        }
        let tensors = LinearTensors {
            checkpoint: self.checkpoint,
            module: name,
            out_features: shape[0],
            in_features: shape[1],
        };
        tensors.read(scheme).map(Weight::Quantized)
    }

    fn matrix(
        &mut self,
        in_features: usize,
        parts: &[(String, usize)],
        bias: bool,
        role: MatrixRole,
    ) -> Result<B::Matrix, ModelError> {
        let mut found = Vec::with_capacity(parts.len());
        let mut biases = Vec::new();
        for (name, out_features) in parts {
            found.push(self.find_weight(name, [*out_features, in_features], role)?);
            if bias {
                biases.push(self.find(&format!("{name}.bias"), &[*out_features])?);
            }
        }
        let weights: Vec<StoredTensor<'_>> = found.iter().map(Weight::stored).collect();
        let bias: Option<Vec<f32>> =
            bias.then(|| biases.iter().flat_map(|bias| bias.to_f32()).collect());
        let formats = WeightFormat::of_stored(self.quantization, role, &weights);
        let mut matrices = Vec::new();
        let (mut first, mut first_row) = (0, 0);
        // Parts of one format and order of columns that follow one another are one matrix.
        let orders = (formats.iter().zip(&weights)).map(|(format, weight)| match format {
            WeightFormat::Grouped { .. } => weight.column_order(),
            // Their values are in the columns' own order.
            _ => None,
        });
        let orders: Vec<_> = orders.collect();
        let kinds: Vec<_> = formats.into_iter().zip(orders).collect();
        for same in kinds.chunk_by(PartialEq::eq) {
            let parts_of_one = &weights[first..first + same.len()];
            let rows: usize = parts_of_one.iter().map(StoredTensor::rows).sum();
            let bias = bias.as_ref().map(|bias| &bias[first_row..first_row + rows]);
            let (name, format) = (&parts[first].0, same[0].0);
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
