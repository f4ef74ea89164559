//! Llama: grouped-query attention and a gated MLP, each behind an RMS norm. Biases where
//! `attention_bias` and `mlp_bias` say so.

use super::decoder::Family;
use super::layers::{Attention, AttentionOptions, GatedMlp, PreNormLayer};
use crate::model_executor::backend::Backend;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

pub(super) struct Llama;

impl Family for Llama {
    type Layer<B: Backend> = PreNormLayer<B>;

    fn load_layer<B: Backend>(
        config: &HfConfig,
        prefix: &str,
        _index: usize,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<PreNormLayer<B>, ModelError> {
        let options = AttentionOptions {
            qkv_bias: config.attention_bias,
            o_bias: config.attention_bias,
            qk_norm: false,
            sliding_window: None,
        };
        let attention = Attention::load(config, prefix, &options, loader)?;
        let mlp = GatedMlp::load(config, prefix, config.mlp_bias, loader)?;
        PreNormLayer::load(config, prefix, attention, mlp, loader)
    }
}
