//! The pieces that families put together: attention, gated MLP, the pre-norm layer.

use super::decoder::{Buffers, DecoderLayer, Family, OutputRows};
use crate::model_executor::backend::{AttentionShape, Backend};
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::{LinearSpec, WeightLoader};

/// What differs between the layers of the families; the default is none of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PreNormOptions {
    /// Biases on queries, keys and values.
    pub(super) qkv_bias: bool,
    /// A bias on the output projection.
    pub(super) o_bias: bool,
    /// RMS norm of each query and key head before the rotation.
    pub(super) qk_norm: bool,
    /// Tokens attended to, itself included; `None` is all.
    pub(super) sliding_window: Option<usize>,
    /// Biases on the MLP's projections.
    pub(super) mlp_bias: bool,
}

/// A family whose layers are all [`PreNormLayer`]s. One with other layers is a [`Family`] itself.
pub(super) trait PreNormFamily: 'static {
    /// Options of layer `index`.
    fn options(config: &HfConfig, index: usize) -> PreNormOptions;
}

impl<T: PreNormFamily> Family for T {
    type Layer<B: Backend> = PreNormLayer<B>;

    fn load_layer<B: Backend>(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<PreNormLayer<B>, ModelError> {
        PreNormLayer::load(config, prefix, T::options(config, index), loader)
    }
}

/// Query and key head norms.
struct QkNorm<B: Backend> {
    q: B::Vector,
    k: B::Vector,
    eps: f32,
}

/// Grouped-query attention over the paged cache.
struct Attention<B: Backend> {
    shape: AttentionShape,
    sliding_window: Option<usize>,
    qkv_proj: B::Matrix,
    qk_norm: Option<QkNorm<B>>,
    o_proj: B::Matrix,
}

impl<B: Backend> Attention<B> {
    fn load(
        config: &HfConfig,
        prefix: &str,
        options: PreNormOptions,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let shape = AttentionShape::of(config);
        let name = |part: &str| format!("{prefix}.self_attn.{part}");
        let (q, k, v, o) = (
            name("q_proj"),
            name("k_proj"),
            name("v_proj"),
            name("o_proj"),
        );
        let part = |name, out_features| LinearSpec {
            name,
            out_features,
            bias: options.qkv_bias,
        };
        let qkv_proj = loader.fused_linear(
            config.hidden_size,
            &[
                part(&q, shape.q_width()),
                part(&k, shape.kv_width()),
                part(&v, shape.kv_width()),
            ],
        )?;
        let qk_norm = if options.qk_norm {
            Some(QkNorm {
                q: loader.vector(&name("q_norm"), config.head_dim)?,
                k: loader.vector(&name("k_norm"), config.head_dim)?,
                eps: config.rms_norm_eps,
            })
        } else {
            None
        };
        let o_proj = loader.fused_linear(
            shape.q_width(),
            &[LinearSpec {
                name: &o,
                out_features: config.hidden_size,
                bias: options.o_bias,
            }],
        )?;
        Ok(Self {
            shape,
            sliding_window: options.sliding_window,
            qkv_proj,
            qk_norm,
            o_proj,
        })
    }

    /// Reads `normed`, writes the cache and, for the rows of `output`, `delta`. Leaves only those
    /// rows in the residual stream.
    fn forward(
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
        backend.rotary_and_kv_write(qkv, self.shape, cache)?;
        if output == OutputRows::None {
            return Ok(());
        }
        backend.paged_attention(qkv, self.shape, cache, self.sliding_window, attention)?;
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

/// `down(silu(gate(x)) * up(x))`
struct GatedMlp<B: Backend> {
    gate_up_proj: B::Matrix,
    down_proj: B::Matrix,
}

impl<B: Backend> GatedMlp<B> {
    fn load(
        config: &HfConfig,
        prefix: &str,
        bias: bool,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let name = |part: &str| format!("{prefix}.mlp.{part}");
        let (gate, up, down) = (name("gate_proj"), name("up_proj"), name("down_proj"));
        let part = |name, out_features| LinearSpec {
            name,
            out_features,
            bias,
        };
        let width = config.intermediate_size;
        Ok(Self {
            gate_up_proj: loader
                .fused_linear(config.hidden_size, &[part(&gate, width), part(&up, width)])?,
            down_proj: loader.fused_linear(width, &[part(&down, config.hidden_size)])?,
        })
    }

    /// Reads `normed`, writes `delta`.
    fn forward(&self, backend: &mut B, buffers: &mut Buffers<B>) -> Result<(), ModelError> {
        let Buffers {
            normed,
            gate_up,
            mlp,
            delta,
            ..
        } = buffers;
        backend.linear(normed, &self.gate_up_proj, gate_up)?;
        backend.silu_and_mul(gate_up, mlp)?;
        backend.linear(mlp, &self.down_proj, delta)
    }
}

/// Attention and MLP, each behind an RMS norm and added to the residual stream.
pub(super) struct PreNormLayer<B: Backend> {
    eps: f32,
    input_layernorm: B::Vector,
    attention: Attention<B>,
    post_attention_layernorm: B::Vector,
    mlp: GatedMlp<B>,
}

impl<B: Backend> PreNormLayer<B> {
    fn load(
        config: &HfConfig,
        prefix: &str,
        options: PreNormOptions,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let attention = Attention::load(config, prefix, options, loader)?;
        let mlp = GatedMlp::load(config, prefix, options.mlp_bias, loader)?;
        let mut norm = |part: &str| loader.vector(&format!("{prefix}.{part}"), config.hidden_size);
        Ok(Self {
            eps: config.rms_norm_eps,
            input_layernorm: norm("input_layernorm")?,
            attention,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mlp,
        })
    }
}

impl<B: Backend> DecoderLayer<B> for PreNormLayer<B> {
    fn forward(
        &self,
        backend: &mut B,
        cache: &mut B::KvCache,
        buffers: &mut Buffers<B>,
        output: OutputRows,
    ) -> Result<(), ModelError> {
        buffers.add_and_norm(backend, &self.input_layernorm, self.eps)?;
        self.attention.forward(backend, cache, buffers, output)?;
        if output == OutputRows::None {
            return Ok(());
        }
        buffers.add_and_norm(backend, &self.post_attention_layernorm, self.eps)?;
        self.mlp.forward(backend, buffers)?;
        Ok(())
    }
}
