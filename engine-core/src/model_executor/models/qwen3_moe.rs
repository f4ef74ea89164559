//! Qwen3-MoE: Qwen3 with a mixture of experts in the layers that the configuration doesn't keep
//! dense.

use super::layers::{PreNormFamily, PreNormOptions};
use super::mlp::ExpertNames;
use super::qwen3::Qwen3;
use crate::model_executor::config::HfConfig;

pub(super) struct Qwen3Moe;

impl PreNormFamily for Qwen3Moe {
    fn options(config: &HfConfig, index: usize) -> PreNormOptions {
        let experts = config.experts.as_ref();
        let is_sparse = experts.is_some_and(|experts| experts.sparse_layers[index]);
        PreNormOptions {
            experts: is_sparse.then_some(ExpertNames {
                block: "mlp",
                gate: "gate_proj",
                up: "up_proj",
                down: "down_proj",
            }),
            ..Qwen3::options(config, index)
        }
    }
}
