//! SmolLM3: Llama without rotation in some layers, which may have a sliding window.

use super::attention::AttentionOptions;
use super::layers::{PreNormFamily, PreNormOptions};
use super::llama::Llama;
use crate::model_executor::config::HfConfig;

pub(super) struct SmolLm3;

impl PreNormFamily for SmolLm3 {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        let llama = Llama::options(config, index);
        PreNormOptions {
            attention: AttentionOptions {
                sliding_window: config.sliding_windows[index],
                ..llama.attention
            },
            ..llama
        }
    }
}
