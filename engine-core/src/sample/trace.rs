//! What a token was chosen from: its probability before the grammar's mask and under it, and the tokens that
//! were most probable before.
//!
//! Costs, for a request that asks for it, two more sums of exponentials over the row, and ten blocks for the
//! most probable tokens.

use protocol::{TokenTrace, TracedToken};

use super::mask::RowMask;
use super::masked_row::MaskedRow;
use super::math;
use super::row::{BlockMaxima, Candidate, by_rank};

/// Tokens that a trace names, at most.
const NUM_TOP: usize = 10;

/// The trace of a row whose token is yet to be drawn.
#[derive(Debug)]
pub(super) struct RowTrace {
    model: Softmax,
    masked: Softmax,
    num_allowed: u32,
    is_constrained: bool,
    top: Vec<TracedToken>,
}

/// What makes logits probabilities.
#[derive(Debug, Clone, Copy)]
struct Softmax {
    max: f64,
    /// Of `exp(logit - max)` over all tokens that count; at least 1.
    sum_exp: f64,
}

impl Softmax {
    fn of(row: MaskedRow<'_>, maxima: &BlockMaxima) -> Self {
        Self {
            max: f64::from(maxima.max),
            sum_exp: maxima.sum_exp(row, f32::MIN, 1.0),
        }
    }

    fn probability(self, logit: f32) -> f32 {
        (math::exp(f64::from(logit) - self.max) / self.sum_exp) as f32
    }
}

impl RowTrace {
    /// Looks at a row before its mask is applied. `maxima` are those of the row; `floats` and `candidates` are
    /// scratch.
    pub(super) fn before_mask(
        row: &[f32],
        mask: Option<RowMask<'_>>,
        maxima: &BlockMaxima,
        floats: &mut Vec<f32>,
        candidates: &mut Vec<Candidate>,
    ) -> Self {
        let model = Softmax::of(row.into(), maxima);
        maxima.collect_top(row.into(), NUM_TOP, f32::MIN, floats, candidates);
        candidates.sort_unstable_by(by_rank);
        let is_allowed = |token_id| mask.is_none_or(|mask| mask.allows(token_id));
        let top = candidates.iter().map(|candidate| TracedToken {
            token_id: candidate.id,
            probability: model.probability(candidate.logit),
            is_allowed: is_allowed(candidate.id),
        });
        Self {
            model,
            masked: model,
            num_allowed: mask.map_or(row.len(), |mask| mask.num_allowed(row.len())) as u32,
            // Thinking leaves out few tokens; that is not the grammar.
            is_constrained: matches!(mask, Some(RowMask::Bitmask(_) | RowMask::Only(_))),
            top: top.collect(),
        }
    }

    /// Looks at the row again, under its mask. `maxima` may bound its blocks, but has its maximum.
    pub(super) fn under_mask(&mut self, row: MaskedRow<'_>, maxima: &BlockMaxima) {
        self.masked = Softmax::of(row, maxima);
    }

    /// The trace of the token that was drawn; `logit` is the model's.
    pub(super) fn of_token(self, logit: f32) -> TokenTrace {
        TokenTrace {
            probability: Some(self.model.probability(logit)),
            masked_probability: self.masked.probability(logit),
            num_allowed: self.num_allowed,
            is_constrained: self.is_constrained,
            is_forced: false,
            step_seconds: 0.0,
            top: self.top,
        }
    }
}
