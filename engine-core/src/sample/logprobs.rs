//! Logprobs of a row: the chosen token's, its rank, and those asked for besides.

use protocol::{LogprobsLists, LogprobsMode, SamplingParams};

use super::math;
use super::row::{BlockMaxima, Candidate, by_rank, count_at_least};

/// Logprobs of one position; a row of `LogprobsLists`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogprobsRow {
    /// `[1 + k]` ids: the chosen token, then those asked for, most probable first (named ids in
    /// the order of the request). The chosen one may occur among those again.
    pub token_ids: Vec<u32>,
    /// `[1 + k]` logprobs (or logits, by `LogprobsMode`) beside the ids; -inf for a masked token
    /// and where a logprob is below what `f32` holds.
    pub logprobs: Vec<f32>,
    /// 1-based rank of the chosen token: how many logits are at least its own.
    pub rank: u32,
}

impl LogprobsRow {
    /// Appends the row to `lists`.
    pub fn push_to(self, lists: &mut LogprobsLists) {
        lists.logprob_token_ids.push(self.token_ids);
        lists.logprobs.push(self.logprobs);
        lists.sampled_token_ranks.push(self.rank);
    }
}

/// Which logprobs a request wants besides the chosen token's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RequestedLogprobs<'a> {
    /// The most probable ones; all that there are where they are fewer.
    Top(usize),
    /// These.
    Ids(&'a [u32]),
}

impl<'a> RequestedLogprobs<'a> {
    /// Of generated tokens; `None` where none are wanted.
    pub(super) fn of_output(params: &'a SamplingParams) -> Option<Self> {
        Self::new(params.logprobs, params.logprob_token_ids.as_deref())
    }

    /// Of prompt tokens; `None` where none are wanted.
    pub(super) fn of_prompt(params: &'a SamplingParams) -> Option<Self> {
        Self::new(
            params.prompt_logprobs,
            params.prompt_logprob_token_ids.as_deref(),
        )
    }

    /// Named ids take the place of the top ones; -1 is all.
    fn new(top: Option<i32>, ids: Option<&'a [u32]>) -> Option<Self> {
        ids.map(Self::Ids)
            .or_else(|| Some(Self::Top(usize::try_from(top?).unwrap_or(usize::MAX))))
    }
}

/// Whether `mode` normalises.
pub(super) fn is_normalised(mode: LogprobsMode) -> bool {
    matches!(
        mode,
        LogprobsMode::RawLogprobs | LogprobsMode::ProcessedLogprobs
    )
}

/// Whether `mode` looks at the row after every processor and filter.
pub(super) fn is_processed(mode: LogprobsMode) -> bool {
    matches!(
        mode,
        LogprobsMode::ProcessedLogits | LogprobsMode::ProcessedLogprobs
    )
}

/// Gathers one row. `maxima` must have read `row` and found a finite logit; an id outside the row
/// has logprob -inf. One pass for the sum where `normalised`, one for the rank, about `k` blocks
/// for the top.
pub(super) fn gather(
    row: &[f32],
    maxima: &BlockMaxima,
    normalised: bool,
    token_id: u32,
    requested: RequestedLogprobs<'_>,
    floats: &mut Vec<f32>,
    candidates: &mut Vec<Candidate>,
) -> LogprobsRow {
    // Subtracted one after the other: their sum would lose the smaller one where logits are huge.
    let (max, log_sum) = if normalised {
        (
            f64::from(maxima.max),
            math::ln(maxima.sum_exp(row.into(), f32::MIN, 1.0)),
        )
    } else {
        (0.0, 0.0)
    };
    let logit_of = |id: u32| row.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let mut token_ids = vec![token_id];
    match requested {
        RequestedLogprobs::Ids(ids) => token_ids.extend_from_slice(ids),
        RequestedLogprobs::Top(0) => {}
        RequestedLogprobs::Top(k) => {
            maxima.collect_top(row.into(), k, f32::NEG_INFINITY, floats, candidates);
            candidates.sort_unstable_by(by_rank);
            token_ids.extend(candidates.iter().map(|candidate| candidate.id));
        }
    }
    let logprobs = token_ids
        .iter()
        .map(|&id| (f64::from(logit_of(id)) - max - log_sum) as f32)
        .collect();
    LogprobsRow {
        token_ids,
        logprobs,
        rank: count_at_least(row, logit_of(token_id)),
    }
}
