//! Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, and a sliding window in the
//! layers that the configuration names.

use super::attention::AttentionOptions;
use super::layers::{PreNormFamily, PreNormOptions};
use crate::model_executor::config::HfConfig;

pub(super) struct Qwen2;

impl PreNormFamily for Qwen2 {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        PreNormOptions {
            attention: AttentionOptions {
                qkv_bias: true,
                sliding_window: config.sliding_windows[index],
                ..AttentionOptions::default()
            },
            ..PreNormOptions::default()
        }
    }
}
