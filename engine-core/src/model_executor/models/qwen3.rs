//! Qwen3: Qwen2 with an RMS norm on each query and key head in place of the biases.

use super::decoder::Family;
use super::layers::{Attention, AttentionOptions, GatedMlp, PreNormLayer};
use crate::model_executor::backend::Backend;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

pub(super) struct Qwen3;

impl Family for Qwen3 {
    type Layer<B: Backend> = PreNormLayer<B>;

    fn load_layer<B: Backend>(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<PreNormLayer<B>, ModelError> {
        let options = AttentionOptions {
            qkv_bias: config.attention_bias,
            o_bias: config.attention_bias,
            qk_norm: true,
            sliding_window: config.sliding_windows[index],
        };
        let attention = Attention::load(config, prefix, &options, loader)?;
        let mlp = GatedMlp::load(config, prefix, false, loader)?;
        PreNormLayer::load(config, prefix, attention, mlp, loader)
    }
}
