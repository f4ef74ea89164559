//! From kept hidden states to the vectors that pooling requests ask for.
//!
//! A sum takes its rows in the order of their tokens, however the prompt was cut into chunks and whatever else is
//! in the batch: a vector has the same bits alone and in company.

use std::ops::Range;

use protocol::{PoolingParams, PoolingTask, PoolingType};

use crate::model_executor::CausalLm;
use crate::worker::model_runner::{
    LogitsRow, ModelRunner, ModelRunnerError, RowPurpose, ScheduledRequest,
};
use crate::worker::request_state::CachedRequestState;

/// A vector under way: it is delivered when the prompt is computed.
pub(crate) struct PoolingState {
    params: PoolingParams,
    /// Hidden states taken so far, from the first token on. They stay where the request is preempted.
    num_pooled: usize,
    /// `[hidden_size]` the sum of what was taken, empty before the first row.
    sum: Vec<f64>,
}

impl PoolingState {
    pub(crate) fn new(params: PoolingParams) -> Self {
        Self {
            params,
            num_pooled: 0,
            sum: Vec::new(),
        }
    }

    /// First position of the second text, where there is one.
    pub(crate) fn second_text(&self) -> Option<u32> {
        self.params.compressed_token_type_ids
    }

    /// Positions whose hidden states are needed of a step that computes the tokens up to `end`.
    pub(crate) fn due(&self, end: usize, num_prompt_tokens: usize) -> Range<usize> {
        let wanted = match self.params.pooling_type {
            PoolingType::Last => num_prompt_tokens - 1..num_prompt_tokens,
            PoolingType::Cls => 0..1,
            PoolingType::Mean => 0..num_prompt_tokens,
        };
        let start = wanted.start + self.num_pooled;
        start..wanted.end.min(end).max(start)
    }

    fn add(&mut self, hidden: &[f32]) {
        self.sum.resize(hidden.len(), 0.0);
        for (sum, value) in self.sum.iter_mut().zip(hidden) {
            *sum += f64::from(*value);
        }
        self.num_pooled += 1;
    }

    /// The mean of what was taken.
    fn pooled(&self) -> Vec<f32> {
        let count = self.num_pooled.max(1) as f64;
        self.sum.iter().map(|sum| (sum / count) as f32).collect()
    }
}

impl ModelRunner {
    /// Takes the hidden states of rows that are pooled.
    pub(super) fn pool_rows(
        &mut self,
        scheduled: &[ScheduledRequest],
        rows: &[LogitsRow],
    ) -> Result<(), ModelRunnerError> {
        let mut hidden = vec![0.0; self.model.hidden_size()];
        for (index, row) in rows.iter().enumerate() {
            if row.purpose != RowPurpose::Pool {
                continue;
            }
            self.model.hidden_state(index, &mut hidden)?;
            let request = self.requests.get_mut(&scheduled[row.request].request_id);
            if let Some(pooling) = request.and_then(|request| request.pooling.as_mut()) {
                pooling.add(&hidden);
            }
        }
        Ok(())
    }
}

/// The vector that `request` asks for, once its whole prompt is computed.
pub(super) fn finished_vector(
    model: &dyn CausalLm,
    request: &CachedRequestState,
) -> Result<Option<Vec<f32>>, ModelRunnerError> {
    let Some(pooling) = &request.pooling else {
        return Ok(None);
    };
    if request.num_computed_tokens < request.num_prompt_tokens {
        return Ok(None);
    }
    let params = &pooling.params;
    let pooled = pooling.pooled();
    Ok(Some(match params.task {
        PoolingTask::Embed => embedding(pooled, params),
        PoolingTask::Classify => {
            let logits = model.classify(&pooled)?;
            match params.use_activation {
                true => probabilities(&logits),
                false => logits,
            }
        }
    }))
}

/// The first `dimensions` entries, scaled to length 1 where that is asked for. A vector of zeros stays one.
fn embedding(mut vector: Vec<f32>, params: &PoolingParams) -> Vec<f32> {
    if let Some(dimensions) = params.dimensions {
        vector.truncate(dimensions as usize);
    }
    if params.use_activation {
        let squares: f64 = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        // torch.nn.functional.normalize divides by no less than this.
        let length = squares.sqrt().max(1e-12);
        vector
            .iter_mut()
            .for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
    vector
}

/// A sigmoid of one logit, a softmax of several.
fn probabilities(logits: &[f32]) -> Vec<f32> {
    if let [logit] = logits {
        return vec![(1.0 / (1.0 + (-f64::from(*logit)).exp())) as f32];
    }
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps = (logits.iter()).map(|logit| (f64::from(*logit) - f64::from(max)).exp());
    let sum: f64 = exps.clone().sum();
    exps.map(|exp| (exp / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_due_once_however_the_prompt_is_cut() {
        let mut mean = PoolingState::new(PoolingParams {
            pooling_type: PoolingType::Mean,
            ..PoolingParams::default()
        });
        assert_eq!(mean.due(3, 5), 0..3);
        for row in [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]] {
            mean.add(&row);
        }
        // Preempted: what was taken isn't taken again.
        assert_eq!(mean.due(2, 5), 3..3);
        assert_eq!(mean.due(5, 5), 3..5);
        assert_eq!(mean.pooled(), [3.0, 5.0]);
        let of = |pooling_type| {
            PoolingState::new(PoolingParams {
                pooling_type,
                ..PoolingParams::default()
            })
        };
        assert!(of(PoolingType::Last).due(4, 5).is_empty());
        assert_eq!(of(PoolingType::Last).due(5, 5), 4..5);
        assert_eq!(of(PoolingType::Cls).due(2, 5), 0..1);
    }

    #[test]
    fn an_embedding_is_cut_before_it_is_scaled() {
        let params = PoolingParams {
            dimensions: Some(2),
            use_activation: true,
            ..PoolingParams::default()
        };
        assert_eq!(embedding(vec![3.0, 4.0, 12.0], &params), [0.6, 0.8]);
        assert_eq!(embedding(vec![0.0, 0.0, 1.0], &params), [0.0, 0.0]);
    }

    #[test]
    fn one_logit_is_a_sigmoid_and_several_a_softmax() {
        assert_eq!(probabilities(&[0.0]), [0.5]);
        assert_eq!(probabilities(&[1e30, 1e30]), [0.5, 0.5]);
        let thirds = probabilities(&[2.0_f32.ln(), 0.0]);
        assert!((thirds[0] - 2.0 / 3.0).abs() < 1e-7);
    }
}
