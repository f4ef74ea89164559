//! Mistral: Llama without biases, every layer with the sliding window, where there is one.

use super::attention::AttentionOptions;
use super::layers::{PreNormFamily, PreNormOptions};
use crate::model_executor::config::HfConfig;

pub(super) struct Mistral;

impl PreNormFamily for Mistral {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        PreNormOptions {
            attention: AttentionOptions {
                sliding_window: config.sliding_windows[index],
                ..AttentionOptions::default()
            },
            ..PreNormOptions::default()
        }
    }
}
