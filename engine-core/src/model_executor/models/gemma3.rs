//! Gemma 3 (text): Gemma 2 with norms on query and key heads in place of the soft caps, a sliding
//! window in five of six layers, and a rotation of their own for these.

use super::attention::AttentionOptions;
use super::decoder::Family;
use super::layers::SandwichNormLayer;
use crate::model_executor::backend::Backend;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

pub(super) struct Gemma3;

impl Family for Gemma3 {
    type Layer<B: Backend> = SandwichNormLayer<B>;

    const NORM_OFFSET: f32 = 1.0;

    fn embedding_scale(config: &HfConfig) -> f32 {
        (config.hidden_size as f32).sqrt()
    }

    fn load_layer<B: Backend>(
        config: &HfConfig,
        prefix: &str,
        index: usize,
        loader: &mut WeightLoader<'_, B>,
    ) -> Result<SandwichNormLayer<B>, ModelError> {
        let options = AttentionOptions {
            qkv_bias: config.attention_bias,
            o_bias: config.attention_bias,
            qk_norm: true,
            norm_offset: 1.0,
            sliding_window: config.sliding_windows[index],
            ..AttentionOptions::default()
        };
        SandwichNormLayer::load(config, prefix, index, options, loader)
    }
}
