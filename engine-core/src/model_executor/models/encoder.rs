//! Encoders: BERT, RoBERTa and nomic. Every token attends to all of its text, whose keys and values lie in the
//! blocks of the request for one step.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Quantization;

use super::LoadedWeights;
use super::classifier::{Classifier, DenseName};
use crate::model_executor::backend::{
    AttentionScores, AttentionShape, Backend, LayerNorm, StepNeeds,
};
use crate::model_executor::checkpoint::Checkpoint;
use crate::model_executor::config::{EncoderConfig, EncoderKind, HfConfig, HiddenAct};
use crate::model_executor::error::ModelError;
use crate::model_executor::forward_input::WrittenSlots;
use crate::model_executor::weights::WeightLoader;
use crate::model_executor::{CausalLm, DeviceMemory, ForwardInput, LoadProgress, ModelLimits};

/// What may stand before the names of all tensors: the class that wrote the file decides.
const PREFIXES: [&str; 4] = ["", "bert.", "roberta.", "nomic_bert."];

/// The tensor whose format `--dtype auto` follows, behind one of [`PREFIXES`].
pub(super) const WORD_EMBEDDINGS: &str = "embeddings.word_embeddings.weight";

/// The prefix of the file's tensors; the first where it has no embedding, which is refused by name then.
pub(super) fn prefix_of(checkpoint: &Checkpoint) -> &'static str {
    let has = |prefix: &&&str| {
        let name = format!("{prefix}{WORD_EMBEDDINGS}");
        checkpoint.find_any(&name).is_some()
    };
    PREFIXES.iter().find(has).copied().unwrap_or_default()
}

/// What differs in the names of the encoders' tensors.
struct Names {
    embedding_norm: &'static str,
    layers: &'static str,
    qkv: &'static [&'static str],
    attention_output: &'static str,
    attention_norm: &'static str,
    /// Into the MLP, the gate first where there is one.
    mlp_in: &'static [&'static str],
    mlp_out: &'static str,
    mlp_norm: &'static str,
}

const BERT_NAMES: Names = Names {
    embedding_norm: "embeddings.LayerNorm",
    layers: "encoder.layer",
    qkv: &[
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ],
    attention_output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    mlp_in: &["intermediate.dense"],
    mlp_out: "output.dense",
    mlp_norm: "output.LayerNorm",
};

const NOMIC_NAMES: Names = Names {
    embedding_norm: "emb_ln",
    layers: "encoder.layers",
    qkv: &["attn.Wqkv"],
    attention_output: "attn.out_proj",
    attention_norm: "norm1",
    mlp_in: &["mlp.fc12", "mlp.fc11"],
    mlp_out: "mlp.fc2",
    mlp_norm: "norm2",
};

/// One layer: attention, then MLP, each added to what it read and normed.
struct Layer<B: Backend> {
    qkv: B::Matrix,
    attention_output: B::Matrix,
    attention_norm: LayerNorm<B::Vector>,
    mlp_in: B::Matrix,
    mlp_out: B::Matrix,
    mlp_norm: LayerNorm<B::Vector>,
}

/// An encoder's weights on a backend.
pub(super) struct EncoderWeights<B: Backend> {
    config: HfConfig,
    encoder: EncoderConfig,
    backend: B,
    heartbeat: Arc<AtomicU64>,
    word_embeddings: B::Matrix,
    position_embeddings: Option<B::Matrix>,
    token_type_embeddings: Option<B::Matrix>,
    embedding_norm: LayerNorm<B::Vector>,
    layers: Vec<Layer<B>>,
    classifier: Option<Classifier>,
}

impl<B: Backend> EncoderWeights<B> {
    pub(super) fn load(
        config: &HfConfig,
        encoder: EncoderConfig,
        checkpoint: &Checkpoint,
        backend: B,
        quantization: Quantization,
        heartbeat: Arc<AtomicU64>,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, ModelError> {
        let quantized = config.quantization.as_ref();
        let mut loader = WeightLoader::new(checkpoint, &backend, quantization, quantized, progress);
        let (hidden, prefix) = (config.hidden_size, prefix_of(checkpoint));
        let names = match encoder.kind {
            EncoderKind::NomicBert => &NOMIC_NAMES,
            EncoderKind::Bert | EncoderKind::Roberta => &BERT_NAMES,
        };
        let mut table = |name: &str, rows: usize| {
            loader.vocabulary(hidden, &format!("{prefix}embeddings.{name}"), rows)
        };
        let word_embeddings = table("word_embeddings", config.vocab_size)?;
        let position_embeddings = match encoder.kind {
            EncoderKind::NomicBert => None,
            EncoderKind::Bert | EncoderKind::Roberta => {
                let rows = config.max_position_embeddings + encoder.first_position;
                Some(table("position_embeddings", rows)?)
            }
        };
        let token_type_embeddings = match encoder.type_vocab_size {
            0 => None,
            types => Some(table("token_type_embeddings", types)?),
        };
        let eps = encoder.layer_norm_eps;
        let embedding_norm =
            loader.layer_norm(&format!("{prefix}{}", names.embedding_norm), hidden, eps)?;
        let mut layers = Vec::new();
        for index in 0..config.num_hidden_layers {
            let block = format!("{prefix}{}.{index}", names.layers);
            let qkv_width = 3 * hidden / names.qkv.len();
            let qkv: Vec<_> = names.qkv.iter().map(|name| (*name, qkv_width)).collect();
            let width = config.intermediate_size;
            let mlp_in: Vec<_> = names.mlp_in.iter().map(|name| (*name, width)).collect();
            let attention_output = [(names.attention_output, hidden)];
            let mlp_out = [(names.mlp_out, hidden)];
            let (bias, mlp_bias) = (config.attention_bias, config.mlp_bias);
            layers.push(Layer {
                qkv: loader.fused_linear(hidden, &block, &qkv, bias)?,
                attention_output: loader.fused_linear(hidden, &block, &attention_output, bias)?,
                attention_norm: loader.layer_norm(
                    &format!("{block}.{}", names.attention_norm),
                    hidden,
                    eps,
                )?,
                mlp_in: loader.fused_linear(hidden, &block, &mlp_in, mlp_bias)?,
                mlp_out: loader.fused_linear(width, &block, &mlp_out, mlp_bias)?,
                mlp_norm: loader.layer_norm(&format!("{block}.{}", names.mlp_norm), hidden, eps)?,
            });
        }
        let classifier = match config.is_classifier {
            true => Some(Classifier::load(checkpoint, hidden, head_of(encoder.kind))?),
            false => None,
        };
        loader.finish()?;
        Ok(Self {
            config: config.clone(),
            encoder,
            backend,
            heartbeat,
            word_embeddings,
            position_embeddings,
            token_type_embeddings,
            embedding_norm,
            layers,
            classifier,
        })
    }
}

/// The classifier's layers over the first token's hidden state. BERT's first one is its pooler.
fn head_of(kind: EncoderKind) -> &'static [DenseName] {
    match kind {
        EncoderKind::Bert | EncoderKind::NomicBert => &[
            DenseName {
                name: "bert.pooler.dense",
                bias: true,
                tanh: true,
            },
            DenseName {
                name: "classifier",
                bias: true,
                tanh: false,
            },
        ],
        EncoderKind::Roberta => &[
            DenseName {
                name: "classifier.dense",
                bias: true,
                tanh: true,
            },
            DenseName {
                name: "classifier.out_proj",
                bias: true,
                tanh: false,
            },
        ],
    }
}

impl<B: Backend> LoadedWeights for EncoderWeights<B> {
    fn kv_cache_bytes_per_block(&self, block_size: usize) -> usize {
        // One cache for all layers: none is read after the layer that wrote it.
        let shape = AttentionShape::of(&self.config);
        self.backend.kv_cache_bytes_per_block(shape, block_size)
    }

    fn device_memory(&self) -> Result<Option<DeviceMemory>, ModelError> {
        self.backend.device_memory()
    }

    fn step_bytes(&self, max_num_batched_tokens: usize) -> u64 {
        let config = &self.config;
        let width = 6 * config.hidden_size + 3 * config.intermediate_size;
        let activations = (max_num_batched_tokens * width * size_of::<f32>()) as u64;
        let widest = config.hidden_size.max(config.intermediate_size);
        activations + (self.backend).working_bytes(max_num_batched_tokens, widest, 1)
    }

    fn has_lm_head(&self) -> bool {
        false
    }

    fn num_labels(&self) -> usize {
        self.classifier.as_ref().map_or(0, Classifier::num_labels)
    }

    fn into_model(
        mut self: Box<Self>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn CausalLm>, ModelError> {
        let config = &self.config;
        let shape = AttentionShape::of(config);
        let ropes = config.ropes.iter();
        let needs = StepNeeds {
            shape,
            rotary: ropes
                .map(|rope| rope.table(shape.head_dim, limits.max_model_len))
                .collect(),
            experts: None,
        };
        self.backend.reserve(limits, needs)?;
        let (tokens, hidden) = (limits.max_num_batched_tokens, config.hidden_size);
        let width = config.intermediate_size;
        let backend = &self.backend;
        let is_gated = self.encoder.kind == EncoderKind::NomicBert;
        Ok(Box::new(Encoder {
            cache: backend.allocate_kv_caches(shape, limits, 1)?.swap_remove(0),
            hidden: backend.allocate(tokens, hidden)?,
            delta: backend.allocate(tokens, hidden)?,
            qkv: backend.allocate(tokens, shape.qkv_width())?,
            attention: backend.allocate(tokens, hidden)?,
            gate_up: match is_gated {
                true => Some(backend.allocate(tokens, 2 * width)?),
                false => None,
            },
            mlp: backend.allocate(tokens, width)?,
            places: Vec::with_capacity(tokens),
            logits_indices: Vec::with_capacity(limits.max_num_logits_rows),
            written: WrittenSlots::new(limits),
            limits: *limits,
            weights: *self,
        }))
    }
}

/// An encoder that is ready to run.
struct Encoder<B: Backend> {
    weights: EncoderWeights<B>,
    limits: ModelLimits,
    /// Of whichever layer is computed.
    cache: B::KvCache,
    /// `[num_tokens, hidden]` what a layer reads, normed.
    hidden: B::Activation,
    /// `[num_tokens, hidden]` what is added to it.
    delta: B::Activation,
    /// `[num_tokens, 3 * hidden]`
    qkv: B::Activation,
    /// `[num_tokens, hidden]`
    attention: B::Activation,
    /// `[num_tokens, 2 * intermediate]` where the MLP is gated.
    gate_up: Option<B::Activation>,
    /// `[num_tokens, intermediate]`
    mlp: B::Activation,
    /// `[num_tokens]` rows of the table of positions, then of that of types.
    places: Vec<u32>,
    /// Rows of the last batch that may be asked for.
    logits_indices: Vec<u32>,
    written: WrittenSlots,
}

impl<B: Backend> Encoder<B> {
    /// Checks that every request is there in one piece, and its token types are the model's.
    fn check(&self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        let rows = input
            .query_start_loc
            .windows(2)
            .map(|pair| pair[1] - pair[0]);
        if let Some((rows, seq_len)) = rows.zip(input.seq_lens).find(|(rows, len)| rows != *len) {
            return Err(ModelError::Input {
                field: "seq_lens",
                problem: format!("{seq_len} tokens must be in one step in an encoder, not {rows}"),
            });
        }
        let types = self.weights.encoder.type_vocab_size;
        let largest = input.token_type_ids.iter().max().copied().unwrap_or(0);
        if largest > 0 && largest as usize >= types {
            return Err(ModelError::Input {
                field: "token_type_ids",
                problem: format!("{largest} must be below type_vocab_size ({types})"),
            });
        }
        Ok(())
    }

    /// The normed sum of what words, places and types are embedded as.
    fn embed(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        let Self {
            weights,
            hidden,
            delta,
            places,
            ..
        } = self;
        let backend = &mut weights.backend;
        backend.embed(&weights.word_embeddings, 1.0, hidden)?;
        if let Some(table) = &weights.token_type_embeddings {
            places.clear();
            places.extend_from_slice(input.token_type_ids);
            places.resize(input.input_ids.len(), 0);
            backend.embed_rows(table, places, delta)?;
            backend.add(hidden, delta)?;
        }
        if let Some(table) = &weights.position_embeddings {
            let first = weights.encoder.first_position as u32;
            places.clear();
            places.extend(input.positions.iter().map(|position| position + first));
            backend.embed_rows(table, places, delta)?;
            backend.add(hidden, delta)?;
        }
        backend.layer_norm(hidden, &weights.embedding_norm)
    }

    fn run_layers(&mut self) -> Result<(), ModelError> {
        let Self {
            weights,
            cache,
            hidden,
            delta,
            qkv,
            attention,
            gate_up,
            mlp,
            ..
        } = self;
        let shape = AttentionShape::of(&weights.config);
        let scores = AttentionScores {
            scale: 1.0 / weights.config.query_pre_attn_scalar.sqrt(),
            softcap: None,
            window: None,
            is_causal: false,
        };
        let act: HiddenAct = weights.config.hidden_act;
        let rotaries = &weights.config.layer_ropes;
        let backend = &mut weights.backend;
        for (layer, rotary) in weights.layers.iter().zip(rotaries) {
            backend.linear(hidden, &layer.qkv, qkv)?;
            backend.rotary_and_kv_write(qkv, shape, *rotary, cache)?;
            backend.paged_attention(qkv, shape, cache, scores, attention)?;
            backend.linear(attention, &layer.attention_output, delta)?;
            backend.add(hidden, delta)?;
            backend.layer_norm(hidden, &layer.attention_norm)?;
            match gate_up {
                Some(gate_up) => {
                    let matrices = (&layer.mlp_in, &layer.mlp_out);
                    backend.gated_mlp(hidden, matrices, act, gate_up, mlp, delta)?;
                }
                None => {
                    backend.linear(hidden, &layer.mlp_in, mlp)?;
                    backend.activate(act, mlp)?;
                    backend.linear(mlp, &layer.mlp_out, delta)?;
                }
            }
            backend.add(hidden, delta)?;
            backend.layer_norm(hidden, &layer.mlp_norm)?;
            weights.heartbeat.fetch_add(1, Ordering::Relaxed);
        }
        backend.end_layers()
    }
}

impl<B: Backend> CausalLm for Encoder<B> {
    fn forward(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        let vocab_size = self.weights.config.vocab_size;
        input.validate(&self.limits, vocab_size, &mut self.written)?;
        self.check(input)?;
        self.logits_indices.clear();
        if input.input_ids.is_empty() {
            return Ok(());
        }
        self.weights.backend.begin_step(input)?;
        self.embed(input)?;
        self.run_layers()?;
        self.logits_indices.extend_from_slice(input.logits_indices);
        Ok(())
    }

    fn compute_logits(&mut self, rows: Range<usize>, _: &mut [f32]) -> Result<(), ModelError> {
        match rows.is_empty() {
            true => Ok(()),
            false => Err(no_head()),
        }
    }

    fn compute_logits_for(
        &mut self,
        few: &[(usize, &[u32])],
        _: &mut [f32],
    ) -> Result<(), ModelError> {
        match few.is_empty() {
            true => Ok(()),
            false => Err(no_head()),
        }
    }

    fn hidden_state(&mut self, row: usize, hidden: &mut [f32]) -> Result<(), ModelError> {
        let (Some(&index), true) = (
            self.logits_indices.get(row),
            hidden.len() == self.hidden_size(),
        ) else {
            return Err(ModelError::Input {
                field: "row",
                problem: format!(
                    "{row} must be one of the {} rows of the last batch",
                    self.logits_indices.len()
                ),
            });
        };
        let backend = &mut self.weights.backend;
        backend.read_row(&self.hidden, index as usize, hidden)
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

fn no_head() -> ModelError {
    ModelError::Input {
        field: "sampling_params",
        problem: "an encoder generates nothing: pooling_params are needed".to_owned(),
    }
}
