//! The attention block of a layer, and what differs in it between families.

use super::decoder::{Buffers, OutputRows};
use crate::model_executor::backend::{AttentionScores, AttentionShape, Backend};
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

/// What differs between the attention of the families; the default is none of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AttentionOptions {
    /// Biases on queries, keys and values.
    pub(super) qkv_bias: bool,
    /// A bias on the output projection.
    pub(super) o_bias: bool,
    /// Whether the checkpoint has queries, keys and values in one matrix.
    pub(super) stored_fused: bool,
    /// RMS norm of each query and key head before the rotation.
    pub(super) qk_norm: bool,
    /// What is added to the weights of these norms.
    pub(super) norm_offset: f32,
    /// Tokens attended to, itself included; `None` is all.
    pub(super) sliding_window: Option<usize>,
}

/// Query and key head norms.
struct QkNorm<B: Backend> {
    q: B::Vector,
    k: B::Vector,
    eps: f32,
}

/// Grouped-query attention over the paged cache.
pub(super) struct Attention<B: Backend> {
    shape: AttentionShape,
    scores: AttentionScores,
    /// Which rotation the layer has.
    rotary: Option<usize>,
    qkv_proj: B::Matrix,
    qk_norm: Option<QkNorm<B>>,
    o_proj: B::Matrix,
}

impl<B: Backend> Attention<B> {
    /// Loads the attention of layer `index`, whose tensors' names begin with `prefix`.
    pub(super) fn load(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        options: AttentionOptions,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let shape = AttentionShape::of(config);
        let (hidden, block) = (config.hidden_size, format!("{prefix}.self_attn"));
        let qk_norm = if options.qk_norm {
            let mut norm = |part: &str| {
                let name = format!("{block}.{part}");
                loader.vector(&name, config.head_dim, options.norm_offset)
            };
            Some(QkNorm {
                q: norm("q_norm")?,
                k: norm("k_norm")?,
                eps: config.rms_norm_eps,
            })
        } else {
            None
        };
        let qkv: &[(&str, usize)] = if options.stored_fused {
            &[("qkv_proj", shape.qkv_width())]
        } else {
            &[
                ("q_proj", shape.q_width()),
                ("k_proj", shape.kv_width()),
                ("v_proj", shape.kv_width()),
            ]
        };
        Ok(Self {
            shape,
            scores: AttentionScores {
                scale: 1.0 / config.query_pre_attn_scalar.sqrt(),
                softcap: config.attn_logit_softcapping,
                window: options.sliding_window,
                is_causal: true,
            },
            rotary: config.layer_ropes[index],
            qkv_proj: loader.fused_linear(hidden, &block, qkv, options.qkv_bias)?,
            qk_norm,
            o_proj: loader.fused_linear(
                shape.q_width(),
                &block,
                &[("o_proj", hidden)],
                options.o_bias,
            )?,
        })
    }

    /// Reads `normed`, writes the cache and, for the rows of `output`, `delta`. Leaves only those
    /// rows in the residual stream.
    pub(super) fn forward(
        &self,
        backend: &mut B,
        cache: &mut B::KvCache,
        buffers: &mut Buffers<B>,
        output: OutputRows,
    ) -> Result<(), ModelError> {
        let Buffers {
            residual,
            normed,
            qkv,
            attention,
            delta,
            ..
        } = buffers;
        backend.linear(normed, &self.qkv_proj, qkv)?;
        if let Some(norm) = &self.qk_norm {
            backend.qk_norm(qkv, self.shape, &norm.q, &norm.k, norm.eps)?;
        }
        backend.rotary_and_kv_write(qkv, self.shape, self.rotary, cache)?;
        if output == OutputRows::None {
            return Ok(());
        }
        backend.paged_attention(qkv, self.shape, cache, self.scores, attention)?;
        if output == OutputRows::Logits {
            backend.keep_logits_rows(attention)?;
            backend.keep_logits_rows(residual)?;
        }
        backend.linear(attention, &self.o_proj, delta)
    }
}

impl AttentionShape {
    /// The shape that `config` implies, the same for all layers.
    pub(super) fn of(config: &HfConfig) -> Self {
        Self {
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
        }
    }
}
