//! Phi-3, Phi-3.5-mini and Phi-4: Mistral with fused projections in the checkpoint. The rotation
//! may be of a part of each head, and stretched by LongRoPE.

use super::attention::AttentionOptions;
use super::layers::{PreNormFamily, PreNormOptions};
use super::mlp::MlpOptions;
use crate::model_executor::config::HfConfig;

pub(super) struct Phi3;

impl PreNormFamily for Phi3 {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        PreNormOptions {
            attention: AttentionOptions {
                stored_fused: true,
                sliding_window: config.sliding_windows[index],
                ..AttentionOptions::default()
            },
            mlp: MlpOptions {
                stored_fused: true,
                ..MlpOptions::default()
            },
            ..PreNormOptions::default()
        }
    }
}
