//! Mixtral: Mistral with a mixture of experts in every layer.

use super::layers::{PreNormFamily, PreNormOptions};
use super::mistral::Mistral;
use super::mlp::ExpertNames;
use crate::model_executor::config::HfConfig;

pub(super) struct Mixtral;

impl PreNormFamily for Mixtral {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        PreNormOptions {
            experts: Some(ExpertNames {
                block: "block_sparse_moe",
                gate: "w1",
                up: "w3",
                down: "w2",
            }),
            ..Mistral::options(config, index)
        }
    }
}
