//! Llama: grouped-query attention and a gated MLP, each behind an RMS norm. Biases where
//! `attention_bias` and `mlp_bias` say so.

use super::attention::AttentionOptions;
use super::layers::{PreNormFamily, PreNormOptions};
use super::mlp::MlpOptions;
use crate::model_executor::config::HfConfig;

pub(super) struct Llama;

impl PreNormFamily for Llama {
    fn options(config: &HfConfig, _index: usize) -> PreNormOptions {
        PreNormOptions {
            attention: AttentionOptions {
                qkv_bias: config.attention_bias,
                o_bias: config.attention_bias,
                ..AttentionOptions::default()
            },
            mlp: MlpOptions {
                bias: config.mlp_bias,
                ..MlpOptions::default()
            },
            ..PreNormOptions::default()
        }
    }
}
