//! Mistral: Llama without biases, every layer with the sliding window, where there is one.

use super::decoder::Family;
use super::layers::{Attention, AttentionOptions, GatedMlp, PreNormLayer};
use crate::model_executor::backend::Backend;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

pub(super) struct Mistral;

impl Family for Mistral {
    type Layer<B: Backend> = PreNormLayer<B>;

    fn load_layer<B: Backend>(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<PreNormLayer<B>, ModelError> {
        let options = AttentionOptions {
            qkv_bias: false,
            o_bias: false,
            qk_norm: false,
            sliding_window: config.sliding_windows[index],
        };
        let attention = Attention::load(config, prefix, &options, loader)?;
        let mlp = GatedMlp::load(config, prefix, false, loader)?;
        PreNormLayer::load(config, prefix, attention, mlp, loader)
    }
}
