//! The layers that families put together from attention and MLP.

use super::attention::{Attention, AttentionOptions};
use super::decoder::{Buffers, DecoderLayer, Family, OutputRows};
use super::mlp::{ExpertNames, Experts, GatedMlp, MlpOptions};
use crate::model_executor::backend::Backend;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

/// What differs between the pre-norm layers of the families; the default is none of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PreNormOptions {
    pub(super) attention: AttentionOptions,
    pub(super) mlp: MlpOptions,
    /// Where the layer's MLP is a mixture of experts, their names.
    pub(super) experts: Option<ExpertNames>,
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
        PreNormLayer::load(config, prefix, index, T::options(config, index), loader)
    }
}

/// What stands after the attention of a [`PreNormLayer`].
enum Feedforward<B: Backend> {
    Mlp(GatedMlp<B>),
    Experts(Experts<B>),
}

/// Attention, then MLP, each behind an RMS norm and added to the residual stream.
pub(super) struct PreNormLayer<B: Backend> {
    eps: f32,
    input_layernorm: B::Vector,
    attention: Attention<B>,
    post_attention_layernorm: B::Vector,
    feedforward: Feedforward<B>,
}

impl<B: Backend> PreNormLayer<B> {
    fn load(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        options: PreNormOptions,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let attention = Attention::load(config, prefix, index, options.attention, loader)?;
        let feedforward = match (&config.experts, options.experts) {
            (Some(experts), Some(names)) => {
                Feedforward::Experts(Experts::load(config, experts, prefix, names, loader)?)
            }
            _ => Feedforward::Mlp(GatedMlp::load(config, prefix, options.mlp, loader)?),
        };
        let mut norm =
            |part: &str| loader.vector(&format!("{prefix}.{part}"), config.hidden_size, 0.0);
        Ok(Self {
            eps: config.rms_norm_eps,
            input_layernorm: norm("input_layernorm")?,
            attention,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            feedforward,
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
        match &self.feedforward {
            Feedforward::Mlp(mlp) => mlp.forward(backend, buffers),
            Feedforward::Experts(experts) => experts.forward(backend, buffers),
        }
    }
}

/// Attention, then MLP, each between two RMS norms and then added to the residual stream. The
/// norms' weights are stored less 1.
pub(super) struct SandwichNormLayer<B: Backend> {
    eps: f32,
    input_layernorm: B::Vector,
    attention: Attention<B>,
    post_attention_layernorm: B::Vector,
    pre_feedforward_layernorm: B::Vector,
    mlp: GatedMlp<B>,
    post_feedforward_layernorm: B::Vector,
}

impl<B: Backend> SandwichNormLayer<B> {
    pub(super) fn load(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        attention: AttentionOptions,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<Self, ModelError> {
        let attention = Attention::load(config, prefix, index, attention, loader)?;
        let mlp = GatedMlp::load(config, prefix, MlpOptions::default(), loader)?;
        let mut norm =
            |part: &str| loader.vector(&format!("{prefix}.{part}"), config.hidden_size, 1.0);
        Ok(Self {
            eps: config.rms_norm_eps,
            input_layernorm: norm("input_layernorm")?,
            attention,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
            mlp,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
        })
    }
}

impl<B: Backend> DecoderLayer<B> for SandwichNormLayer<B> {
    fn forward(
        &self,
        backend: &mut B,
        cache: &mut B::KvCache,
        buffers: &mut Buffers<B>,
        output: OutputRows,
    ) -> Result<(), ModelError> {
        let eps = self.eps;
        buffers.add_and_norm(backend, &self.input_layernorm, eps)?;
        self.attention.forward(backend, cache, buffers, output)?;
        if output == OutputRows::None {
            return Ok(());
        }
        backend.rms_norm_in_place(&mut buffers.delta, &self.post_attention_layernorm, eps)?;
        buffers.add_and_norm(backend, &self.pre_feedforward_layernorm, eps)?;
        self.mlp.forward(backend, buffers)?;
        backend.rms_norm_in_place(&mut buffers.delta, &self.post_feedforward_layernorm, eps)
    }
}
