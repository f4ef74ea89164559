//! The decoder around a family's layers: embedding, residual stream, final norm, LM head.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Quantization;

use super::LoadedWeights;
use super::classifier::{Classifier, DenseName};
use super::mlp::ExpertBuffers;
use crate::model_executor::backend::{AttentionShape, Backend, ExpertChoice, LmHead, StepNeeds};
use crate::model_executor::checkpoint::Checkpoint;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::forward_input::WrittenSlots;
use crate::model_executor::weights::WeightLoader;
use crate::model_executor::{
    Bitmask, CausalLm, DeviceMemory, ForwardInput, LoadProgress, ModelLimits,
};

/// The tensor whose format `--dtype auto` follows.
pub(super) const EMBED_TOKENS: &str = "model.embed_tokens.weight";
/// The same in a file that was written of the model without its head, as sentence-transformers does.
pub(super) const HEADLESS_EMBED_TOKENS: &str = "embed_tokens.weight";

/// The classifier of a decoder, over the last token's hidden state.
const SCORE: [DenseName; 1] = [DenseName {
    name: "score",
    bias: false,
    tanh: false,
}];

/// A model family: which layers it has.
pub(super) trait Family: 'static {
    /// One of its layers.
    type Layer<B: Backend>: DecoderLayer<B> + 'static;

    /// What is added to the weights of the norms.
    const NORM_OFFSET: f32 = 0.0;

    /// What the embeddings are multiplied with, before it is rounded to the model's dtype.
    fn embedding_scale(_config: &HfConfig) -> f32 {
        1.0
    }

    /// Loads layer `index`, whose tensors' names begin with `prefix`.
    fn load_layer<B: Backend>(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self::Layer<B>, ModelError>;
}

/// The rows that a layer computes beyond its keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputRows {
    /// Every row: the next layer attends to it.
    All,
    /// The last layer: those of `logits_indices`, which nothing attends to any more.
    Logits,
    /// The last layer of a step that samples nothing.
    None,
}

/// One layer of a decoder.
pub(super) trait DecoderLayer<B: Backend>: Send {
    /// Reads the residual stream and writes the cache for all rows; leaves the rows of `output` in
    /// the residual stream, and what is to be added to them in `delta`.
    fn forward(
        &self,
        backend: &mut B,
        cache: &mut B::KvCache,
        buffers: &mut Buffers<B>,
        output: OutputRows,
    ) -> Result<(), ModelError>;
}

/// The activations of a step, allocated once. From the attention of the last layer on they hold
/// the rows of `logits_indices` alone.
pub(super) struct Buffers<B: Backend> {
    /// `[num_tokens, hidden]` the residual stream.
    pub(super) residual: B::Activation,
    /// `[num_tokens, hidden]` the last block's output, where `delta_pending` not yet added.
    pub(super) delta: B::Activation,
    delta_pending: bool,
    /// `[num_tokens, hidden]` input of the current block, and of the LM head.
    pub(super) normed: B::Activation,
    /// `[num_tokens, qkv]` queries, keys and values.
    pub(super) qkv: B::Activation,
    /// `[num_tokens, num_heads * head_dim]` output of the attention.
    pub(super) attention: B::Activation,
    /// `[num_tokens, 2 * intermediate]`
    pub(super) gate_up: B::Activation,
    /// `[num_tokens, intermediate]`
    pub(super) mlp: B::Activation,
    /// Where the model has mixtures of experts.
    pub(super) experts: Option<ExpertBuffers<B>>,
}

impl<B: Backend> Buffers<B> {
    fn allocate(backend: &B, config: &HfConfig, limits: &ModelLimits) -> Result<Self, ModelError> {
        let tokens = limits.max_num_batched_tokens;
        let shape = AttentionShape::of(config);
        let hidden = |rows| backend.allocate(rows, config.hidden_size);
        Ok(Self {
            residual: hidden(tokens)?,
            delta: hidden(tokens)?,
            delta_pending: false,
            normed: hidden(tokens)?,
            qkv: backend.allocate(tokens, shape.qkv_width())?,
            attention: backend.allocate(tokens, shape.q_width())?,
            gate_up: backend.allocate(tokens, 2 * config.intermediate_size)?,
            mlp: backend.allocate(tokens, config.intermediate_size)?,
            experts: match &config.experts {
                None => None,
                Some(experts) => Some(ExpertBuffers::allocate(
                    backend,
                    config.hidden_size,
                    experts,
                    tokens,
                )?),
            },
        })
    }

    /// Adds the last block's output to the residual stream and norms the sum into `normed`.
    /// What is computed next into `delta` counts as pending.
    pub(super) fn add_and_norm(
        &mut self,
        backend: &mut B,
        weight: &B::Vector,
        eps: f32,
    ) -> Result<(), ModelError> {
        let Self {
            residual,
            delta,
            normed,
            ..
        } = self;
        if self.delta_pending {
            backend.add_rms_norm(residual, delta, weight, eps, normed)
        } else {
            // The first block: the stream is the embedding alone.
            self.delta_pending = true;
            backend.rms_norm(residual, weight, eps, normed)
        }
    }
}

/// A family's weights on a backend.
pub(super) struct DecoderWeights<B: Backend, F: Family> {
    config: HfConfig,
    backend: B,
    heartbeat: Arc<AtomicU64>,
    embed_tokens: B::Matrix,
    embedding_scale: f32,
    layers: Vec<F::Layer<B>>,
    norm: B::Vector,
    /// `None` where it is the embedding, or nothing is generated.
    lm_head: Option<B::Matrix>,
    classifier: Option<Classifier>,
    /// False where the file has none: the embedding stands in its place, and must not be asked.
    has_lm_head: bool,
}

impl<B: Backend, F: Family> DecoderWeights<B, F> {
    pub(super) fn load(
        config: &HfConfig,
        checkpoint: &Checkpoint,
        backend: B,
        quantization: Quantization,
        heartbeat: Arc<AtomicU64>,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, ModelError> {
        let mut loader = WeightLoader::new(
            checkpoint,
            &backend,
            quantization,
            config.quantization.as_ref(),
            progress,
        );
        let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
        let is_headless = checkpoint.find_any(EMBED_TOKENS).is_none()
            && checkpoint.find_any(HEADLESS_EMBED_TOKENS).is_some();
        let prefix = if is_headless { "" } else { "model." };
        let embed_tokens =
            loader.vocabulary(hidden_size, &format!("{prefix}embed_tokens"), vocab_size)?;
        let layers = (0..config.num_hidden_layers)
            .map(|index| {
                let layer = format!("{prefix}layers.{index}");
                F::load_layer(config, &layer, index, &mut loader)
            })
            .collect::<Result<_, _>>()?;
        let norm = loader.vector(&format!("{prefix}norm"), config.hidden_size, F::NORM_OFFSET)?;
        let lm_head = if config.tie_word_embeddings || config.is_classifier || is_headless {
            None
        } else {
            Some(loader.vocabulary(hidden_size, "lm_head", vocab_size)?)
        };
        let classifier = match config.is_classifier {
            true => Some(Classifier::load(checkpoint, hidden_size, &SCORE)?),
            false => None,
        };
        loader.finish()?;
        Ok(Self {
            config: config.clone(),
            embedding_scale: backend.round_to_dtype(F::embedding_scale(config)),
            backend,
            heartbeat,
            embed_tokens,
            layers,
            norm,
            lm_head,
            classifier,
            has_lm_head: !config.is_classifier && (!is_headless || config.tie_word_embeddings),
        })
    }
}

impl<B: Backend, F: Family> DecoderWeights<B, F> {
    /// The LM head, and what multiplies by it.
    fn head(&mut self) -> (&mut B, LmHead<'_, B::Matrix>) {
        let head = LmHead {
            matrix: self.lm_head.as_ref().unwrap_or(&self.embed_tokens),
            softcap: self.config.final_logit_softcapping,
        };
        (&mut self.backend, head)
    }
}

impl<B: Backend, F: Family> LoadedWeights for DecoderWeights<B, F> {
    fn kv_cache_bytes_per_block(&self, block_size: usize) -> usize {
        let shape = AttentionShape::of(&self.config);
        self.layers.len() * self.backend.kv_cache_bytes_per_block(shape, block_size)
    }

    fn device_memory(&self) -> Result<Option<DeviceMemory>, ModelError> {
        self.backend.device_memory()
    }

    fn step_bytes(&self, max_num_batched_tokens: usize) -> u64 {
        let config = &self.config;
        let shape = AttentionShape::of(config);
        let routed = config.experts.as_ref().map_or(0, |experts| {
            experts.num_experts_per_tok * (config.hidden_size + 3 * experts.intermediate_size)
        });
        let width = 3 * config.hidden_size
            + shape.qkv_width()
            + shape.q_width()
            + 3 * config.intermediate_size
            + routed;
        let activations = (max_num_batched_tokens * width * size_of::<f32>()) as u64;
        let widest = config.hidden_size.max(config.intermediate_size);
        let widest = widest.max(shape.q_width());
        let vocab_size = config.vocab_size;
        activations + (self.backend).working_bytes(max_num_batched_tokens, widest, vocab_size)
    }

    fn has_lm_head(&self) -> bool {
        self.has_lm_head
    }

    fn num_labels(&self) -> usize {
        self.classifier.as_ref().map_or(0, Classifier::num_labels)
    }

    fn into_model(
        mut self: Box<Self>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn CausalLm>, ModelError> {
        let shape = AttentionShape::of(&self.config);
        let ropes = self.config.ropes.iter();
        let needs = StepNeeds {
            shape,
            rotary: ropes
                .map(|rope| rope.table(shape.head_dim, limits.max_model_len))
                .collect(),
            experts: self.config.experts.as_ref().map(ExpertChoice::of),
        };
        self.backend.reserve(limits, needs)?;
        let num_layers = self.layers.len();
        let caches = (self.backend).allocate_kv_caches(shape, limits, num_layers)?;
        let buffers = Buffers::allocate(&self.backend, &self.config, limits)?;
        Ok(Box::new(Decoder {
            weights: *self,
            limits: *limits,
            caches,
            buffers,
            written: WrittenSlots::new(limits),
            num_logits_rows: 0,
            logits_maxima: Vec::new(),
        }))
    }
}

/// A model that is ready to run.
struct Decoder<B: Backend, F: Family> {
    weights: DecoderWeights<B, F>,
    limits: ModelLimits,
    /// One per layer.
    caches: Vec<B::KvCache>,
    buffers: Buffers<B>,
    /// What checks that no two rows of a batch are written to one slot.
    written: WrittenSlots,
    /// Rows that the last batch left in `normed` for the LM head.
    num_logits_rows: usize,
    /// See [`CausalLm::logits_maxima`]; empty where they are not known.
    logits_maxima: Vec<f32>,
}

impl<B: Backend, F: Family> Decoder<B, F> {
    fn check_logits(
        &self,
        rows: &Range<usize>,
        found: usize,
        expected: usize,
    ) -> Result<(), ModelError> {
        if rows.start > rows.end || rows.end > self.num_logits_rows {
            return Err(ModelError::Input {
                field: "rows",
                problem: format!(
                    "{rows:?} must lie within the {} rows of the last batch",
                    self.num_logits_rows
                ),
            });
        }
        if found != expected {
            return Err(ModelError::Input {
                field: "logits",
                problem: format!("length {found} must be {expected}"),
            });
        }
        Ok(())
    }
}

impl<B: Backend, F: Family> Decoder<B, F> {
    fn masked_logits(
        &mut self,
        rows: Range<usize>,
        bitmasks: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        self.logits_maxima.clear();
        let expected = rows.len().saturating_mul(self.weights.config.vocab_size);
        self.check_logits(&rows, logits.len(), expected)?;
        if rows.is_empty() {
            return Ok(());
        }
        let (backend, head) = self.weights.head();
        let maxima = &mut self.logits_maxima;
        backend.lm_head(&self.buffers.normed, rows, head, bitmasks, logits, maxima)
    }
}

impl<B: Backend, F: Family> CausalLm for Decoder<B, F> {
    fn forward(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        let vocab_size = self.weights.config.vocab_size;
        input.validate(&self.limits, vocab_size, &mut self.written)?;
        let DecoderWeights {
            config,
            backend,
            heartbeat,
            embed_tokens,
            embedding_scale,
            layers,
            norm,
            ..
        } = &mut self.weights;
        let buffers = &mut self.buffers;
        self.num_logits_rows = 0;
        if input.input_ids.is_empty() {
            return Ok(());
        }
        if backend.begin_step(input)? {
            heartbeat.fetch_add(layers.len() as u64, Ordering::Relaxed);
            self.num_logits_rows = input.logits_indices.len();
            return Ok(());
        }
        backend.embed(embed_tokens, *embedding_scale, &mut buffers.residual)?;
        buffers.delta_pending = false;
        let last = if input.logits_indices.is_empty() {
            OutputRows::None
        } else {
            OutputRows::Logits
        };
        let num_layers = layers.len();
        for (index, (layer, cache)) in layers.iter().zip(&mut self.caches).enumerate() {
            let output = if index + 1 == num_layers {
                last
            } else {
                OutputRows::All
            };
            layer.forward(backend, cache, buffers, output)?;
            heartbeat.fetch_add(1, Ordering::Relaxed);
        }
        if last == OutputRows::None {
            return Ok(());
        }
        buffers.add_and_norm(backend, norm, config.rms_norm_eps)?;
        backend.end_layers()?;
        self.num_logits_rows = input.logits_indices.len();
        Ok(())
    }

    fn compute_logits(&mut self, rows: Range<usize>, logits: &mut [f32]) -> Result<(), ModelError> {
        self.masked_logits(rows, &[], logits)
    }

    fn compute_logits_of(
        &mut self,
        rows: &[usize],
        bitmasks: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        self.logits_maxima.clear();
        let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        if (first..).zip(rows).all(|(expected, &row)| expected == row) {
            return self.masked_logits(first..last.saturating_add(1), bitmasks, logits);
        }
        let expected = rows.len().saturating_mul(self.weights.config.vocab_size);
        let end = rows.iter().max().map_or(0, |row| row.saturating_add(1));
        self.check_logits(&(0..end), logits.len(), expected)?;
        let (backend, head) = self.weights.head();
        // The last block's output was added to the stream: its buffer is free until the next batch.
        let Buffers { normed, delta, .. } = &mut self.buffers;
        backend.copy_rows(normed, rows, delta)?;
        let maxima = &mut self.logits_maxima;
        backend.lm_head(delta, 0..rows.len(), head, bitmasks, logits, maxima)
    }

    fn compute_argmax(
        &mut self,
        rows: &[usize],
        bitmasks: &[Option<Bitmask<'_>>],
        num_tokens: usize,
        token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        // A cap makes logits equal that were not.
        if self.weights.config.final_logit_softcapping.is_some() {
            return Ok(false);
        }
        let end = rows.iter().max().map_or(0, |row| row.saturating_add(1));
        self.check_logits(&(0..end), 0, 0)?;
        let words = num_tokens.min(self.weights.config.vocab_size).div_ceil(32);
        if let Some(bitmask) = bitmasks
            .iter()
            .flatten()
            .find(|mask| mask.words.len() < words)
        {
            return Err(ModelError::Input {
                field: "bitmasks",
                problem: format!("length {} must be at least {words}", bitmask.words.len()),
            });
        }
        let first = rows.first().copied().unwrap_or(0);
        let (backend, head) = self.weights.head();
        let Buffers { normed, delta, .. } = &mut self.buffers;
        if (first..).zip(rows).all(|(expected, &row)| expected == row) {
            let rows = first..first + rows.len();
            return backend.lm_head_argmax(
                normed,
                rows,
                head.matrix,
                bitmasks,
                num_tokens,
                token_ids,
            );
        }
        // As for logits: the buffer is free until the next batch.
        backend.copy_rows(normed, rows, delta)?;
        let rows = 0..rows.len();
        backend.lm_head_argmax(delta, rows, head.matrix, bitmasks, num_tokens, token_ids)
    }

    fn logits_maxima(&self) -> Option<&[f32]> {
        (!self.logits_maxima.is_empty()).then_some(&self.logits_maxima)
    }

    fn compute_logits_for(
        &mut self,
        few: &[(usize, &[u32])],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let rows = few.iter().map(|(row, _)| row.saturating_add(1));
        let expected = few.iter().map(|(_, token_ids)| token_ids.len()).sum();
        self.check_logits(&(0..rows.max().unwrap_or(0)), logits.len(), expected)?;
        let vocab_size = self.weights.config.vocab_size;
        let mut token_ids = few.iter().flat_map(|(_, token_ids)| *token_ids);
        if let Some(id) = token_ids.find(|id| **id as usize >= vocab_size) {
            return Err(ModelError::Input {
                field: "token_ids",
                problem: format!("{id} must be below the vocabulary size {vocab_size}"),
            });
        }
        let (backend, head) = self.weights.head();
        backend.lm_head_for(&self.buffers.normed, few, head, logits)
    }

    fn hidden_state(&mut self, row: usize, hidden: &mut [f32]) -> Result<(), ModelError> {
        let (found, expected) = (hidden.len(), self.hidden_size());
        self.check_logits(&(0..row.saturating_add(1)), found, expected)?;
        let backend = &mut self.weights.backend;
        backend.read_row(&self.buffers.normed, row, hidden)
    }

    fn classify(&self, pooled: &[f32]) -> Result<Vec<f32>, ModelError> {
        match &self.weights.classifier {
            Some(classifier) => classifier.apply(pooled),
            None => Err(super::no_classifier()),
        }
    }

    fn vocab_size(&self) -> usize {
        self.weights.config.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.weights.config.hidden_size
    }
}
