//! Which logits each row of a step needs, and computing them: the LM head.
//!
//! Where a mask leaves few tokens, only their rows of the head are computed, and where it leaves one, none is.
//! Where nothing but the largest logit is asked for, none is written.

use crate::core::sched::output::{GrammarOutput, ModelRunnerOutput};
use crate::model_executor::{Bitmask, ModelError};
use crate::sample::{RowMask, Sampler};
use crate::structured_output::TokenMask;
use crate::worker::model_runner::{LogitsRow, ModelRunner, RowPurpose, ScheduledRequest};
use crate::worker::request_state::CachedRequestState;
use crate::worker::sample_rows::LOGITS_ROWS;

/// Where a row's token comes from.
#[derive(Clone, Copy)]
pub(super) enum Head<'a> {
    /// Nowhere: none is sampled here.
    Unsampled,
    /// The mask leaves this one: no logit is needed.
    Given(u32),
    /// The logits of these tokens.
    Few(&'a [u32]),
    /// All logits, under a bitmask where there is one.
    Full(Option<Bitmask<'a>>),
    /// The largest logit was all that was asked for, and is that of this token.
    Largest(u32),
}

impl ModelRunner {
    /// Which logits a row needs under its mask.
    pub(super) fn head_of<'a>(
        &self,
        row: LogitsRow,
        scheduled: &'a [ScheduledRequest],
        grammar_output: &'a GrammarOutput,
    ) -> Head<'a> {
        let num_draft_tokens = match row.purpose {
            RowPurpose::Sample { num_draft_tokens } => num_draft_tokens,
            RowPurpose::PromptLogprobs { .. } => return Head::Full(None),
            RowPurpose::Score { position } => {
                return Head::Few(scheduled[row.request].scored_token_ids(position));
            }
            RowPurpose::Pool => return Head::Unsampled,
        };
        let Ok(mask) = grammar_output.of(row.request).row(num_draft_tokens) else {
            return Head::Unsampled;
        };
        let request = self.requests.get(&scheduled[row.request].request_id);
        if request.is_some_and(CachedRequestState::wants_trace) {
            // Also of the logits that the mask takes away.
            return Head::Full(None);
        }
        let wants_logprobs = request.is_some_and(CachedRequestState::wants_logprobs);
        match mask {
            Some(mask) if self.enable_sparse_head && !wants_logprobs => {
                match (mask.forced_token(), mask.few_tokens()) {
                    (Some(token_id), _) => Head::Given(token_id),
                    (None, Some(token_ids)) => Head::Few(token_ids),
                    (None, None) => Head::Full(bitmask_of(mask)),
                }
            }
            Some(mask) => Head::Full(bitmask_of(mask)),
            None => Head::Full(None),
        }
    }

    pub(super) fn count_head_rows(
        &self,
        rows: &[LogitsRow],
        heads: &[Head<'_>],
        output: &mut ModelRunnerOutput,
    ) {
        let vocab_size = self.vocab.logits as u64;
        for (row, head) in rows.iter().zip(heads) {
            let num_skipped = match (row.purpose, head) {
                // No position that is sampled: its request waits aside, or a draft before it is refused.
                (
                    RowPurpose::PromptLogprobs { .. } | RowPurpose::Score { .. } | RowPurpose::Pool,
                    _,
                )
                | (_, Head::Unsampled) => continue,
                (_, Head::Given(_)) => vocab_size,
                (_, Head::Few(token_ids)) => vocab_size - token_ids.len() as u64,
                (_, Head::Full(_) | Head::Largest(_)) => 0,
            };
            output.num_head_rows += vocab_size;
            output.num_head_rows_skipped += num_skipped;
        }
    }

    /// Whether the largest logit is all that any row asks for that would get all: else the head's weights would be
    /// read twice.
    pub(super) fn want_largest(
        &self,
        rows: &[LogitsRow],
        heads: &[Head<'_>],
        scheduled: &[ScheduledRequest],
        grammar_output: &GrammarOutput,
    ) -> bool {
        let mut full = rows
            .iter()
            .zip(heads)
            .filter(|(_, head)| matches!(head, Head::Full(_)));
        full.all(|(row, _)| {
            let RowPurpose::Sample { num_draft_tokens } = row.purpose else {
                return false;
            };
            // Behind a draft the state would be another one.
            let ScheduledRequest {
                request_id,
                draft_token_ids,
                ..
            } = &scheduled[row.request];
            let mask = grammar_output.of(row.request).row(num_draft_tokens);
            let is_bitmask = match mask {
                Ok(Some(mask)) => bitmask_of(mask).is_some(),
                Ok(None) => true,
                Err(_) => false,
            };
            let state = self
                .requests
                .get(request_id)
                .map(|request| &request.sampling_state);
            is_bitmask && draft_token_ids.is_empty() && state.is_some_and(Sampler::takes_largest)
        })
    }

    /// Finds the largest logits of the rows that would get all, where the model can and they tell the token.
    pub(super) fn compute_largest(
        &mut self,
        first_row: usize,
        heads: &mut [Head<'_>],
    ) -> Result<(), ModelError> {
        let full = full_heads(heads);
        if full.is_empty() {
            return Ok(());
        }
        let (rows, bitmasks): (Vec<_>, Vec<_>) = (full.iter())
            .map(|&(index, bitmask)| (first_row + index, bitmask))
            .unzip();
        let num_tokens = self.vocab.num_tokens();
        let token_ids = &mut self.largest_token_ids;
        if (self.model).compute_argmax(&rows, &bitmasks, num_tokens, token_ids)? {
            for ((index, _), token_id) in full.iter().zip(token_ids) {
                if let Some(token_id) = token_id {
                    heads[*index] = Head::Largest(*token_id);
                }
            }
        }
        Ok(())
    }

    /// Computes what `heads` need; the first belongs to row `first_row` of the batch. Returns the row
    /// of `self.logits` that each has got, if any: the full ones come first, so that the head's
    /// weights are read once for all of them, and those of few logits last, in rows that mostly are
    /// blank. Logits that are not needed are -inf.
    pub(super) fn compute_heads(
        &mut self,
        first_row: usize,
        heads: &[Head<'_>],
    ) -> Result<Vec<Option<usize>>, ModelError> {
        let width = self.vocab.logits;
        let full = full_heads(heads);
        let mut slots = vec![None; heads.len()];
        for (slot, &(index, _)) in full.iter().enumerate() {
            slots[index] = Some(slot);
        }
        let (rows, bitmasks): (Vec<_>, Vec<_>) = (full.iter())
            .map(|&(index, bitmask)| (first_row + index, bitmask))
            .unzip();
        let logits = &mut self.logits[..full.len() * width];
        self.blank_slots[..full.len()].fill(false);
        self.model.compute_logits_of(&rows, &bitmasks, logits)?;
        let few: Vec<(usize, &[u32])> = (heads.iter().enumerate())
            .filter_map(|(index, head)| match head {
                Head::Few(token_ids) => Some((index, *token_ids)),
                _ => None,
            })
            .collect();
        if few.is_empty() {
            return Ok(slots);
        }
        let rows: Vec<(usize, &[u32])> = (few.iter())
            .map(|&(index, token_ids)| (first_row + index, token_ids))
            .collect();
        let num_few = few.iter().map(|(_, token_ids)| token_ids.len()).sum();
        self.few_logits.resize(num_few, 0.0);
        self.model.compute_logits_for(&rows, &mut self.few_logits)?;
        let mut computed = self.few_logits.iter();
        let mut slot = LOGITS_ROWS;
        for (index, token_ids) in few {
            slot -= 1;
            let logits = &mut self.logits[slot * width..(slot + 1) * width];
            if !std::mem::take(&mut self.blank_slots[slot]) {
                logits.fill(f32::NEG_INFINITY);
            }
            for (&token_id, logit) in token_ids.iter().zip(&mut computed) {
                logits[token_id as usize] = *logit;
            }
            slots[index] = Some(slot);
        }
        Ok(slots)
    }

    /// Blanks the rows that have few logits, after they were sampled: whatever a request asks for, what
    /// was -inf stays so.
    pub(super) fn blank_few(&mut self, heads: &[Head<'_>], slots: &[Option<usize>]) {
        let width = self.vocab.logits;
        for (head, slot) in heads.iter().zip(slots) {
            if let (Head::Few(token_ids), &Some(slot)) = (head, slot) {
                let logits = &mut self.logits[slot * width..(slot + 1) * width];
                for &token_id in *token_ids {
                    logits[token_id as usize] = f32::NEG_INFINITY;
                }
                debug_assert!(logits.iter().all(|&logit| logit == f32::NEG_INFINITY));
                self.blank_slots[slot] = true;
            }
        }
    }
}

/// The places of the heads that need all logits, with their bitmasks.
fn full_heads<'a>(heads: &[Head<'a>]) -> Vec<(usize, Option<Bitmask<'a>>)> {
    let full = heads
        .iter()
        .enumerate()
        .filter_map(|(index, head)| match head {
            Head::Full(bitmask) => Some((index, *bitmask)),
            _ => None,
        });
    full.collect()
}

/// A mask's words, where it has any.
fn bitmask_of(mask: &TokenMask) -> Option<Bitmask<'_>> {
    let RowMask::Bitmask(words) = mask.as_row_mask() else {
        return None;
    };
    Some(Bitmask {
        words,
        number: mask.number(),
    })
}
