//! Which rows go through which expert, as plain as it can be.

use candle_core::{Device, Tensor};

use crate::model_executor::backend::ExpertChoice;
use crate::model_executor::error::ModelError;

/// The rows of one expert.
pub(super) struct ExpertRows {
    pub(super) expert: usize,
    /// `[rows]`
    pub(super) rows: Tensor,
    /// `[rows, 1]`
    pub(super) weights: Tensor,
}

/// The routing of a step's rows: the experts that have any, ascending.
#[derive(Default)]
pub(super) struct Routing {
    pub(super) num_rows: usize,
    pub(super) groups: Vec<ExpertRows>,
}

impl Routing {
    /// Chooses by logits `[rows][num_experts]`.
    pub(super) fn of(
        logits: &[Vec<f32>],
        choice: ExpertChoice,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let mut by_expert = vec![(Vec::new(), Vec::new()); choice.num_experts];
        for (row, logits) in logits.iter().enumerate() {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let parts: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
            let mut order: Vec<usize> = (0..parts.len()).collect();
            order.sort_by(|a, b| parts[*b].total_cmp(&parts[*a]));
            order.truncate(choice.top_k);
            let total: f32 = if choice.normalize {
                order.iter().map(|expert| parts[*expert]).sum()
            } else {
                parts.iter().sum()
            };
            for expert in order {
                by_expert[expert].0.push(row as u32);
                by_expert[expert].1.push(parts[expert] / total);
            }
        }
        let mut groups = Vec::new();
        for (expert, (rows, weights)) in by_expert.into_iter().enumerate() {
            let count = rows.len();
            if count > 0 {
                groups.push(ExpertRows {
                    expert,
                    rows: Tensor::from_vec(rows, count, device)?,
                    weights: Tensor::from_vec(weights, (count, 1), device)?,
                });
            }
        }
        Ok(Self {
            num_rows: logits.len(),
            groups,
        })
    }
}
