//! What a model is made of: about a dozen operations on a flat batch, and who executes them.
//!
//! A model family is written once against [`Backend`]. Three backends stand behind it: [`cpu`], our
//! own kernels over buffers that exist before the first step; [`cuda`], our own kernels on a GPU; and
//! [`candle`], tensors of candle, the slow reference of both.

pub(crate) mod candle;
pub(crate) mod cpu;
pub(crate) mod cuda;

use std::ops::Range;

use super::config::HiddenAct;
use super::error::ModelError;
use super::rotary::RotaryTable;
use super::weights::{StoredTensor, WeightFormat};
use super::{Bitmask, DeviceMemory, ForwardInput, ModelLimits};

/// Heads of an attention layer and the pages of its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionShape {
    /// Query heads.
    pub(crate) num_heads: usize,
    /// Key and value heads; divides `num_heads`.
    pub(crate) num_kv_heads: usize,
    /// Width of a head.
    pub(crate) head_dim: usize,
}

impl AttentionShape {
    /// Width of all query heads.
    pub(crate) fn q_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Width of all key heads, and of all value heads.
    pub(crate) fn kv_width(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Width of `[queries | keys | values]`.
    pub(crate) fn qkv_width(&self) -> usize {
        self.q_width() + 2 * self.kv_width()
    }

    /// Query heads per key head.
    pub(crate) fn group(&self) -> usize {
        self.num_heads / self.num_kv_heads
    }
}

/// What an attention layer makes of the products of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttentionScores {
    /// What they are multiplied with.
    pub(crate) scale: f32,
    /// Their bound, by `bound * tanh(score / bound)`.
    pub(crate) softcap: Option<f32>,
    /// Tokens attended to, the query's own included; `None` is all.
    pub(crate) window: Option<usize>,
    /// True if a token attends to those before it and itself; false if to all of its request, which is in the
    /// step in one piece then.
    pub(crate) is_causal: bool,
}

/// How tokens choose their experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertChoice {
    /// Experts to choose from.
    pub(crate) num_experts: usize,
    /// Experts of each token, the likeliest.
    pub(crate) top_k: usize,
    /// Whether the weights of a token's experts sum to 1; else they are parts of all experts'.
    pub(crate) normalize: bool,
}

/// A norm that takes the mean away, too.
pub(crate) struct LayerNorm<V> {
    /// `[width]`
    pub(crate) weight: V,
    /// `[width]`
    pub(crate) bias: V,
    /// Added to the variance.
    pub(crate) eps: f32,
}

/// What makes logits of hidden states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LmHead<'a, M> {
    /// `[vocab_size, hidden]`
    pub(crate) matrix: &'a M,
    /// The logits' bound, by `bound * tanh(logit / bound)`.
    pub(crate) softcap: Option<f32>,
}

/// What a model's steps need beside the limits.
pub(crate) struct StepNeeds {
    pub(crate) shape: AttentionShape,
    /// The rotations of its layers.
    pub(crate) rotary: Vec<RotaryTable>,
    /// Where it has mixtures of experts.
    pub(crate) experts: Option<ExpertChoice>,
}

/// What executes a model's layers.
///
/// Operations write whole activations; the number of rows of an output is that of its input.
/// Those that need to know which request a row belongs to refer to the batch of `begin_step`.
pub(crate) trait Backend: Send + Sized + 'static {
    /// A weight `[out_features, in_features]` with its bias.
    type Matrix: Send;
    /// The matrices of a layer's experts.
    type Experts: Send;
    /// A weight `[width]`.
    type Vector: Send;
    /// `[rows, width]` of f32, room for a fixed number of rows.
    type Activation: Send;
    /// Keys and values of one layer, `[num_blocks, block_size]` slots.
    type KvCache: Send;

    /// Loads weights `[n_i, in_features]` stacked to one matrix `[sum of n_i, in_features]`, kept
    /// in `format`. `name` is that of the first of them.
    fn load_matrix(
        &self,
        name: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
        format: WeightFormat,
    ) -> Result<Self::Matrix, ModelError>;

    /// One matrix of several with the same input, one above the other; at least one.
    fn stack_matrices(&self, matrices: Vec<Self::Matrix>) -> Result<Self::Matrix, ModelError>;

    /// A layer's experts, ascending; all are alike.
    fn join_experts(&self, experts: Vec<Self::Matrix>) -> Result<Self::Experts, ModelError>;

    /// A number rounded to the model's dtype.
    fn round_to_dtype(&self, value: f32) -> f32;

    /// Loads a weight vector, in the model's dtype, plus `offset`.
    fn load_vector(
        &self,
        tensor: StoredTensor<'_>,
        offset: f32,
    ) -> Result<Self::Vector, ModelError>;

    /// Bytes of one block's keys and values in one layer.
    fn kv_cache_bytes_per_block(&self, shape: AttentionShape, block_size: usize) -> usize;

    /// The memory of the backend's device; `None` where it is the host's.
    fn device_memory(&self) -> Result<Option<DeviceMemory>, ModelError> {
        Ok(None)
    }

    /// Bytes that steps of `num_tokens` tokens take of the device beside activations, keys and values, about, where the
    /// widest input of a matrix is `widest`.
    fn working_bytes(&self, _num_tokens: usize, _widest: usize, _vocab_size: usize) -> u64 {
        0
    }

    /// Prepares for steps within `limits`: everything whose size depends on them.
    fn reserve(&mut self, limits: &ModelLimits, needs: StepNeeds) -> Result<(), ModelError>;

    /// Room for `rows` rows.
    fn allocate(&self, rows: usize, width: usize) -> Result<Self::Activation, ModelError>;

    /// Caches for `num_layers` layers, empty, after [`Self::reserve`].
    fn allocate_kv_caches(
        &self,
        shape: AttentionShape,
        limits: &ModelLimits,
        num_layers: usize,
    ) -> Result<Vec<Self::KvCache>, ModelError>;

    /// Takes over the batch of the next operations. The caller has validated it. Returns whether the layers have run
    /// already, by a recording of an earlier step: then the operations up to [`Self::end_layers`] are left out.
    fn begin_step(&mut self, input: &ForwardInput<'_>) -> Result<bool, ModelError>;

    /// Stands behind the last operation of the layers, which left the hidden states that the LM head reads.
    fn end_layers(&mut self) -> Result<(), ModelError> {
        Ok(())
    }

    /// `out[t] = table[input_ids[t]] * scale`
    fn embed(
        &mut self,
        table: &Self::Matrix,
        scale: f32,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `out = x * matrix^T + bias`
    fn linear(
        &mut self,
        x: &Self::Activation,
        matrix: &Self::Matrix,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `out = x / rms(x) * weight`, by row.
    fn rms_norm(
        &mut self,
        x: &Self::Activation,
        weight: &Self::Vector,
        eps: f32,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `x = x / rms(x) * weight`, by row.
    fn rms_norm_in_place(
        &mut self,
        x: &mut Self::Activation,
        weight: &Self::Vector,
        eps: f32,
    ) -> Result<(), ModelError>;

    /// `residual += delta`, then `out = rms_norm(residual)`.
    fn add_rms_norm(
        &mut self,
        residual: &mut Self::Activation,
        delta: &Self::Activation,
        weight: &Self::Vector,
        eps: f32,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// RMS norm of each query head and each key head inside `[queries | keys | values]`.
    fn qk_norm(
        &mut self,
        qkv: &mut Self::Activation,
        shape: AttentionShape,
        q_weight: &Self::Vector,
        k_weight: &Self::Vector,
        eps: f32,
    ) -> Result<(), ModelError>;

    /// Rotates queries and keys in place by their positions, where the layer has one of the
    /// rotations of `reserve`, and writes keys and values to the slots of the batch.
    fn rotary_and_kv_write(
        &mut self,
        qkv: &mut Self::Activation,
        shape: AttentionShape,
        rotary: Option<usize>,
        cache: &mut Self::KvCache,
    ) -> Result<(), ModelError>;

    /// Attention of each row's queries over its request's blocks: positions
    /// `position - window + 1 ..= position`, or all up to `position`, or where it isn't causal all of the
    /// request. `out` is `[num_tokens, num_heads * head_dim]`.
    fn paged_attention(
        &mut self,
        qkv: &Self::Activation,
        shape: AttentionShape,
        cache: &Self::KvCache,
        scores: AttentionScores,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `out = act(gate) * up` of `[gate | up]`.
    fn act_and_mul(
        &mut self,
        act: HiddenAct,
        gate_up: &Self::Activation,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `out = (act(gate) * up) * down^T + bias` of `[gate | up] = x * gate_up^T + bias`, the matrices being
    /// `(gate_up, down)`; `gate_up` and `mlp` are room for what comes between, and hold anything afterwards.
    fn gated_mlp(
        &mut self,
        x: &Self::Activation,
        (gate_up_proj, down_proj): (&Self::Matrix, &Self::Matrix),
        act: HiddenAct,
        gate_up: &mut Self::Activation,
        mlp: &mut Self::Activation,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError> {
        self.linear(x, gate_up_proj, gate_up)?;
        self.act_and_mul(act, gate_up, mlp)?;
        self.linear(mlp, down_proj, out)
    }

    /// Chooses the experts of each row by its logits `[rows, num_experts]`. The rows that go
    /// through one expert then stand together, the experts ascending, in what the operations on
    /// experts call routed rows.
    fn route(&mut self, logits: &Self::Activation, choice: ExpertChoice) -> Result<(), ModelError>;

    /// `out[i] = x[row that routed row i is of]`
    fn gather_routed(
        &mut self,
        x: &Self::Activation,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `out = x * matrix^T` of routed rows, the matrix being that of the row's expert.
    fn linear_experts(
        &mut self,
        x: &Self::Activation,
        experts: &Self::Experts,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `out[t]` = sum of its routed rows, each times the weight of its expert, the experts
    /// ascending.
    fn combine_routed(
        &mut self,
        routed: &Self::Activation,
        out: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// `x[i] = x[logits_indices[i]]`, and no other rows; the indices ascend.
    fn keep_logits_rows(&mut self, x: &mut Self::Activation) -> Result<(), ModelError>;

    /// `to[i] = from[rows[i]]`, and no other rows.
    fn copy_rows(
        &mut self,
        from: &Self::Activation,
        rows: &[usize],
        to: &mut Self::Activation,
    ) -> Result<(), ModelError>;

    /// Copies a row into the host's memory; `out` is as wide.
    fn read_row(
        &mut self,
        x: &Self::Activation,
        row: usize,
        out: &mut [f32],
    ) -> Result<(), ModelError>;

    /// `out[t] = table[ids[t]]`
    fn embed_rows(
        &mut self,
        _table: &Self::Matrix,
        _ids: &[u32],
        _out: &mut Self::Activation,
    ) -> Result<(), ModelError> {
        Err(no_encoders())
    }

    /// `x += delta`
    fn add(
        &mut self,
        _x: &mut Self::Activation,
        _delta: &Self::Activation,
    ) -> Result<(), ModelError> {
        Err(no_encoders())
    }

    /// `x = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`, by row.
    fn layer_norm(
        &mut self,
        _x: &mut Self::Activation,
        _norm: &LayerNorm<Self::Vector>,
    ) -> Result<(), ModelError> {
        Err(no_encoders())
    }

    /// `x = act(x)`
    fn activate(&mut self, _act: HiddenAct, _x: &mut Self::Activation) -> Result<(), ModelError> {
        Err(no_encoders())
    }

    /// Logits `[rows.len(), vocab_size]` of some rows of `hidden`. `bitmasks` are those rows' grammar
    /// masks: a backend whose logits are not in the host's memory applies them before they come there;
    /// others leave that to the sampler. `maxima` are empty, and may be left so, or get what
    /// [`CausalLm::logits_maxima`](crate::model_executor::CausalLm::logits_maxima) says.
    fn lm_head(
        &mut self,
        hidden: &Self::Activation,
        rows: Range<usize>,
        head: LmHead<'_, Self::Matrix>,
        bitmasks: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
        maxima: &mut Vec<f32>,
    ) -> Result<(), ModelError>;

    /// What [`CausalLm::compute_argmax`](crate::model_executor::CausalLm::compute_argmax) says, of some rows of
    /// `hidden`.
    fn lm_head_argmax(
        &mut self,
        _hidden: &Self::Activation,
        _rows: Range<usize>,
        _head: &Self::Matrix,
        _bitmasks: &[Option<Bitmask<'_>>],
        _num_tokens: usize,
        _token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        Ok(false)
    }

    /// Logits of rows of `hidden` for the token ids beside them, one row's after the other's, equal to those of
    /// [`Self::lm_head`].
    fn lm_head_for(
        &mut self,
        hidden: &Self::Activation,
        few: &[(usize, &[u32])],
        head: LmHead<'_, Self::Matrix>,
        logits: &mut [f32],
    ) -> Result<(), ModelError>;
}

/// What a backend without the operations of encoders says.
fn no_encoders() -> ModelError {
    ModelError::Limits {
        field: "backend",
        problem: "encoders run on the processor alone (--device cpu)".to_owned(),
    }
}

/// The decoder reserves before it runs; this is what a caller that doesn't would see.
fn not_reserved() -> ModelError {
    ModelError::Input {
        field: "limits",
        problem: "must be reserved before a step".to_owned(),
    }
}
