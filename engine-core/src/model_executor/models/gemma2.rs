//! Gemma 2: scaled embeddings, norms before and after each block, GELU, soft caps on attention scores
//! and logits, a sliding window in every other layer.

use super::attention::AttentionOptions;
use super::decoder::Family;
use super::layers::SandwichNormLayer;
use crate::model_executor::backend::Backend;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::WeightLoader;

pub(super) struct Gemma2;

impl Family for Gemma2 {
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
            sliding_window: config.sliding_windows[index],
            ..AttentionOptions::default()
        };
        SandwichNormLayer::load(config, prefix, index, options, loader)
    }
}
