//! Qwen3: Qwen2 with an RMS norm on each query and key head in place of the biases.

use super::attention::AttentionOptions;
use super::layers::{PreNormFamily, PreNormOptions};
use crate::model_executor::config::HfConfig;

pub(super) struct Qwen3;

impl PreNormFamily for Qwen3 {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        PreNormOptions {
            attention: AttentionOptions {
                qkv_bias: config.attention_bias,
                o_bias: config.attention_bias,
                qk_norm: true,
                sliding_window: config.sliding_windows[index],
                ..AttentionOptions::default()
            },
            ..PreNormOptions::default()
        }
    }
}
