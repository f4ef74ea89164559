//! Mistral: Llama without biases, every layer with the sliding window, where there is one.

use super::layers::{PreNormFamily, PreNormOptions};
use crate::model_executor::config::HfConfig;

pub(super) struct Mistral;

impl PreNormFamily for Mistral {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        PreNormOptions {
            sliding_window: config.sliding_windows[index],
            ..PreNormOptions::default()
        }
    }
}
