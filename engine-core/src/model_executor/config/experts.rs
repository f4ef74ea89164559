//! The settings of mixtures of experts.

use serde_json::Value;

use super::fields::{Fields, config_error};
use crate::model_executor::error::ModelError;

/// Layers whose MLP is a mixture of experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertsConfig {
    /// Experts of a layer.
    pub num_experts: usize,
    /// Experts that each token goes through.
    pub num_experts_per_tok: usize,
    /// Width inside an expert.
    pub intermediate_size: usize,
    /// Whether the weights of a token's experts sum to 1.
    pub norm_topk_prob: bool,
    /// `[num_hidden_layers]` whether the layer is a mixture.
    pub sparse_layers: Vec<bool>,
}

impl Fields<'_> {
    /// The mixture of `architecture`, where it is a family with one.
    pub(super) fn experts(
        &self,
        architecture: &str,
        intermediate_size: usize,
        num_layers: usize,
    ) -> Result<Option<ExpertsConfig>, ModelError> {
        // Both names occur in checkpoints of both families.
        let field = ["num_local_experts", "num_experts"]
            .into_iter()
            .find(|name| self.get(name).is_some())
            .unwrap_or("num_experts");
        let experts = match architecture {
            "MixtralForCausalLM" => ExpertsConfig {
                num_experts: self.positive(field)?,
                num_experts_per_tok: self.positive("num_experts_per_tok")?,
                intermediate_size,
                norm_topk_prob: true,
                sparse_layers: vec![true; num_layers],
            },
            "Qwen3MoeForCausalLM" => ExpertsConfig {
                num_experts: self.positive(field)?,
                num_experts_per_tok: self.positive("num_experts_per_tok")?,
                intermediate_size: self.positive("moe_intermediate_size")?,
                norm_topk_prob: self.flag("norm_topk_prob")?,
                sparse_layers: self.sparse_layers(num_layers)?,
            },
            _ => return Ok(None),
        };
        if experts.num_experts_per_tok > experts.num_experts {
            return Err(config_error(
                "num_experts_per_tok",
                format!(
                    "{} must be at most {field} ({})",
                    experts.num_experts_per_tok, experts.num_experts
                ),
            ));
        }
        Ok(Some(experts))
    }

    /// Every `decoder_sparse_step`th layer but those of `mlp_only_layers`.
    fn sparse_layers(&self, num_layers: usize) -> Result<Vec<bool>, ModelError> {
        let step = self.optional_positive("decoder_sparse_step")?.unwrap_or(1);
        let mut layers: Vec<bool> = (1..=num_layers).map(|layer| layer % step == 0).collect();
        let Some(value) = self.get("mlp_only_layers") else {
            return Ok(layers);
        };
        let right = "a list of layers, counted from 0";
        let list = value
            .as_array()
            .ok_or_else(|| self.wrong("mlp_only_layers", value, right))?;
        for dense in list {
            let index =
                Value::as_u64(dense).ok_or_else(|| self.wrong("mlp_only_layers", dense, right))?;
            if let Some(sparse) = layers.get_mut(index as usize) {
                *sparse = false;
            }
        }
        Ok(layers)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::parse;
    use super::*;

    fn experts(changes: Value) -> Result<ExpertsConfig, String> {
        let mut config = json!({"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8,
            "num_experts_per_tok": 2, "moe_intermediate_size": 48});
        for (name, value) in changes.as_object().unwrap() {
            config[name] = value.clone();
        }
        parse(config).map(|config| config.experts.unwrap())
    }

    #[test]
    fn sparse_layers_follow_the_step_and_the_list() {
        let layers = |changes| experts(changes).unwrap().sparse_layers;
        assert_eq!(layers(json!({})), [true; 4]);
        assert_eq!(
            layers(json!({"decoder_sparse_step": 2})),
            [false, true, false, true]
        );
        assert_eq!(
            layers(json!({"mlp_only_layers": [0, 2, 9]})),
            [false, true, false, true]
        );
    }

    #[test]
    fn each_family_has_its_width_and_its_weights() {
        let qwen = experts(json!({"norm_topk_prob": true})).unwrap();
        assert_eq!((qwen.intermediate_size, qwen.norm_topk_prob), (48, true));
        assert!(!experts(json!({})).unwrap().norm_topk_prob);
        let mixtral = parse(json!({"architectures": ["MixtralForCausalLM"],
            "num_local_experts": 4, "num_experts_per_tok": 2}));
        let mixtral = mixtral.unwrap().experts.unwrap();
        assert_eq!(
            (
                mixtral.num_experts,
                mixtral.intermediate_size,
                mixtral.norm_topk_prob
            ),
            (4, 96, true)
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (changes, parts) in [
            (
                json!({"num_experts_per_tok": 9}),
                ["num_experts_per_tok", "at most num_experts (8)"],
            ),
            (json!({"num_experts": null}), ["num_experts", "missing"]),
            (json!({"mlp_only_layers": [-1]}), ["mlp_only_layers", "-1"]),
        ] {
            let message = experts(changes.clone()).unwrap_err();
            for part in parts {
                assert!(message.contains(part), "{changes}: {message}");
            }
        }
    }
}
