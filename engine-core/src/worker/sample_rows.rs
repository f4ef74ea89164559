//! The second half of a step: from kept hidden states to tokens.
//!
//! Where a mask leaves few tokens, only their rows of the LM head are computed, and where it leaves
//! one, none is. A draft is verified by sampling at each of its positions, as if it were not there:
//! while what comes is the draft's token, the next position's hidden state is the right one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::core::sched::output::{GrammarOutput, ModelRunnerOutput, RequestMasks};
use crate::lock::lock;
use crate::model_executor::{LOGITS_PER_MAXIMUM, ModelError};
use crate::panic_message::panic_message;
use crate::sample::{
    KnownLogits, LogprobsRow, RequestSamplingState, RowMask, Sampler, SamplerOutputRow,
    SamplerScratch,
};
use crate::structured_output::TokenMask;
use crate::worker::model_runner::{
    LogitsRow, ModelRunner, ModelRunnerError, RowPurpose, ScheduledRequest,
};
use crate::worker::request_state::CachedRequestState;

/// Logits held at a time, in rows: the LM head and the sampler alternate over slices of about this
/// many.
pub(super) const LOGITS_ROWS: usize = 64;

/// What a row brought.
enum RowOutput {
    Sampled(SamplerOutputRow),
    PromptLogprobs(LogprobsRow),
}

/// What a row brought, or why its request fails.
type RowResult = Result<RowOutput, String>;

/// Where a row's token comes from.
#[derive(Clone, Copy)]
enum Head<'a> {
    /// Nowhere: none is sampled here.
    Unsampled,
    /// The mask leaves this one: no logit is needed.
    Given(u32),
    /// The logits of these tokens.
    Few(&'a [u32]),
    /// All logits, under a bitmask where there is one.
    Full(Option<&'a [u32]>),
    /// The largest logit was all that was asked for, and is that of this token.
    Largest(u32),
}

/// Rows that belong together: a prompt position, or the sampled positions of a request.
struct Group<'a> {
    rows: &'a [LogitsRow],
    heads: &'a [Head<'a>],
    /// Of each row; empty where its head needs none.
    logits: Vec<&'a mut [f32]>,
    /// What the model noted of each row while it computed it.
    maxima: Vec<Option<&'a [f32]>>,
    /// Of the first rows; those behind the last token have none.
    results: Vec<RowResult>,
}

impl ModelRunner {
    /// Computes the logits of `rows` as far as they are needed, samples, and books the results.
    pub(super) fn sample_all_rows(
        &mut self,
        scheduled: &[ScheduledRequest],
        rows: &[LogitsRow],
        grammar_output: Option<&GrammarOutput>,
        output: &mut ModelRunnerOutput,
    ) -> Result<(), ModelRunnerError> {
        let free = GrammarOutput::default();
        let grammar_output = grammar_output.unwrap_or(&free);
        let mut first_row = 0;
        while first_row < rows.len() {
            let end = end_of_slice(rows, first_row);
            let mut heads: Vec<Head<'_>> = rows[first_row..end]
                .iter()
                .map(|row| self.head_of(*row, scheduled, grammar_output))
                .collect();
            self.count_head_rows(&rows[first_row..end], &heads, output);
            if self.want_largest(&rows[first_row..end], &heads, scheduled, grammar_output) {
                self.compute_largest(first_row, &mut heads)?;
            }
            let slots = self.compute_heads(first_row, &heads)?;
            let slice = &rows[first_row..end];
            let results = self.sample_slice(scheduled, slice, &heads, &slots, grammar_output)?;
            self.blank_few(&heads, &slots);
            for (request, results) in results {
                for result in results {
                    self.take_result(&scheduled[request], request, result, output);
                }
            }
            first_row = end;
        }
        for (index, masks) in grammar_output.masks.iter().enumerate() {
            if let (RequestMasks::Failed(reason), Some(error)) =
                (masks, output.errors.get_mut(index))
            {
                error.get_or_insert_with(|| reason.clone());
            }
        }
        Ok(())
    }

    /// Which logits a row needs under its mask.
    fn head_of<'a>(
        &self,
        row: LogitsRow,
        scheduled: &[ScheduledRequest],
        grammar_output: &'a GrammarOutput,
    ) -> Head<'a> {
        let RowPurpose::Sample { num_draft_tokens } = row.purpose else {
            return Head::Full(None);
        };
        let Ok(mask) = grammar_output.of(row.request).row(num_draft_tokens) else {
            return Head::Unsampled;
        };
        let wants_logprobs = self
            .requests
            .get(&scheduled[row.request].request_id)
            .is_some_and(CachedRequestState::wants_logprobs);
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

    fn count_head_rows(
        &self,
        rows: &[LogitsRow],
        heads: &[Head<'_>],
        output: &mut ModelRunnerOutput,
    ) {
        let vocab_size = self.vocab.logits as u64;
        for (row, head) in rows.iter().zip(heads) {
            let num_skipped = match (row.purpose, head) {
                // No position that is sampled: its request waits aside, or a draft before it is refused.
                (RowPurpose::PromptLogprobs { .. }, _) | (_, Head::Unsampled) => continue,
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
    fn want_largest(
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
    fn compute_largest(
        &mut self,
        first_row: usize,
        heads: &mut [Head<'_>],
    ) -> Result<(), ModelError> {
        let full: Vec<(usize, Option<&[u32]>)> = heads
            .iter()
            .enumerate()
            .filter_map(|(index, head)| match head {
                Head::Full(bitmask) => Some((index, *bitmask)),
                _ => None,
            })
            .collect();
        let rows: Vec<usize> = full.iter().map(|(index, _)| first_row + index).collect();
        let bitmasks: Vec<Option<&[u32]>> = full.iter().map(|(_, bitmask)| *bitmask).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let num_tokens = self.vocab.num_tokens();
        if let Some(token_ids) = self.model.compute_argmax(&rows, &bitmasks, num_tokens)? {
            for ((index, _), token_id) in full.iter().zip(token_ids) {
                if let Some(token_id) = token_id {
                    heads[*index] = Head::Largest(token_id);
                }
            }
        }
        Ok(())
    }

    /// Computes what `heads` need; the first belongs to row `first_row` of the batch. Returns the row
    /// of `self.logits` that each has got, if any: the full ones come first, so that the head's
    /// weights are read once for all of them, and those of few logits last, in rows that mostly are
    /// blank. Logits that are not needed are -inf.
    fn compute_heads(
        &mut self,
        first_row: usize,
        heads: &[Head<'_>],
    ) -> Result<Vec<Option<usize>>, ModelError> {
        let width = self.vocab.logits;
        let is_full = |index: &usize| matches!(heads[*index], Head::Full(_));
        let full: Vec<usize> = (0..heads.len()).filter(is_full).collect();
        let bitmask_of = |&index: &usize| match heads[index] {
            Head::Full(bitmask) => bitmask,
            Head::Unsampled | Head::Given(_) | Head::Few(_) | Head::Largest(_) => None,
        };
        let bitmasks: Vec<Option<&[u32]>> = full.iter().map(bitmask_of).collect();
        let mut slots = vec![None; heads.len()];
        for (slot, &index) in full.iter().enumerate() {
            slots[index] = Some(slot);
        }
        let full: Vec<usize> = full.iter().map(|index| first_row + index).collect();
        let logits = &mut self.logits[..full.len() * width];
        self.blank_slots[..full.len()].fill(false);
        self.model.compute_logits_of(&full, &bitmasks, logits)?;
        let mut slot = LOGITS_ROWS;
        for (index, head) in heads.iter().enumerate() {
            let Head::Few(token_ids) = head else {
                continue;
            };
            let few = &mut self.few_logits;
            few.resize(token_ids.len(), 0.0);
            self.model
                .compute_logits_for(first_row + index, token_ids, few)?;
            slot -= 1;
            let logits = &mut self.logits[slot * width..(slot + 1) * width];
            if !std::mem::take(&mut self.blank_slots[slot]) {
                logits.fill(f32::NEG_INFINITY);
            }
            for (&token_id, logit) in token_ids.iter().zip(few) {
                logits[token_id as usize] = *logit;
            }
            slots[index] = Some(slot);
        }
        Ok(slots)
    }

    /// Blanks the rows that have few logits, after they were sampled: whatever a request asks for, what
    /// was -inf stays so.
    fn blank_few(&mut self, heads: &[Head<'_>], slots: &[Option<usize>]) {
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

    /// Samples a slice of rows, whose logits lie at `slots` of `self.logits`, in parallel. Returns the
    /// results by request.
    fn sample_slice(
        &mut self,
        scheduled: &[ScheduledRequest],
        rows: &[LogitsRow],
        heads: &[Head<'_>],
        slots: &[Option<usize>],
        grammar_output: &GrammarOutput,
    ) -> Result<Vec<(usize, Vec<RowResult>)>, ModelRunnerError> {
        let logits = self.logits.chunks_exact_mut(self.vocab.logits);
        let mut logits: Vec<Option<&mut [f32]>> = logits.map(Some).collect();
        let num_maxima = self.vocab.logits.div_ceil(LOGITS_PER_MAXIMUM).max(1);
        let maxima: Vec<&[f32]> = match self.model.logits_maxima() {
            Some(maxima) => maxima.chunks(num_maxima).collect(),
            None => Vec::new(),
        };
        let mut groups = Vec::new();
        let mut first = 0;
        for rows in rows.chunk_by(belong_together) {
            let end = first + rows.len();
            let own_logits = slots[first..end].iter().map(|slot| {
                let logits = slot.and_then(|slot| logits.get_mut(slot));
                logits.and_then(Option::take).unwrap_or_default()
            });
            groups.push(Mutex::new(Group {
                rows,
                heads: &heads[first..end],
                logits: own_logits.collect(),
                maxima: slots[first..end]
                    .iter()
                    .map(|slot| slot.and_then(|slot| maxima.get(slot).copied()))
                    .collect(),
                results: Vec::new(),
            }));
            first = end;
        }
        let (requests, sampler, scratches) = (&self.requests, &self.sampler, &self.scratches);
        self.pool.run(groups.len(), &|index, thread| {
            // Each group is one tile's and each scratch one thread's: neither lock is ever waited for.
            let mut group = lock(&groups[index]);
            let mut scratch = lock(&scratches[thread]);
            let request = group.rows.first().map_or(0, |row| row.request);
            let Some(state) = requests.get(&scheduled[request].request_id) else {
                return;
            };
            let draft = &scheduled[request].draft_token_ids;
            let masks = grammar_output.of(request);
            // A panic here concerns one request: it fails, the batch goes on.
            let sampled = catch_unwind(AssertUnwindSafe(|| {
                group.sample(sampler, state, draft, masks, &mut scratch);
            }));
            if let Err(panic) = sampled {
                let message = format!("sampling panicked: {}", panic_message(panic));
                group.results = vec![Err(message)];
            }
        })?;
        let groups = groups.into_iter().filter_map(|group| {
            let group = group.into_inner().unwrap_or_else(PoisonError::into_inner);
            Some((group.rows.first()?.request, group.results))
        });
        Ok(groups.collect())
    }

    /// Books what a row brought to its request.
    fn take_result(
        &mut self,
        scheduled: &ScheduledRequest,
        index: usize,
        result: RowResult,
        output: &mut ModelRunnerOutput,
    ) {
        let Some(request) = self.requests.get_mut(&scheduled.request_id) else {
            return;
        };
        match result {
            Ok(RowOutput::Sampled(sampled)) => {
                request.append(sampled.token_id);
                output.sampled_token_ids[index].push(sampled.token_id);
                output.num_nans_in_logits[index] += sampled.num_nans;
                output.num_restored_rows += u32::from(sampled.restored);
                let is_constrained = request.is_constrained();
                output.num_overridden_rows += u32::from(sampled.restored && is_constrained);
                if let Some(row) = sampled.logprobs {
                    row.push_to(output.logprobs[index].get_or_insert_default());
                }
            }
            Ok(RowOutput::PromptLogprobs(row)) => {
                if let Some(prompt_logprobs) = &mut request.prompt_logprobs {
                    row.push_to(&mut prompt_logprobs.rows);
                }
            }
            Err(message) => {
                output.errors[index].get_or_insert(message);
            }
        }
    }
}

impl Group<'_> {
    /// Samples the rows one after the other, for as long as the draft turns out right.
    fn sample(
        &mut self,
        sampler: &Sampler,
        request: &CachedRequestState,
        draft_token_ids: &[u32],
        masks: &RequestMasks,
        scratch: &mut SamplerScratch,
    ) {
        let mut ahead: Option<RequestSamplingState> = None;
        let rows = self.rows.iter().zip(self.heads);
        for (((row, head), logits), maxima) in rows.zip(&mut self.logits).zip(&self.maxima) {
            let state = ahead.as_ref().unwrap_or(&request.sampling_state);
            let result = match row.purpose {
                RowPurpose::PromptLogprobs { target_token_id } => sampler
                    .prompt_logprobs_row(logits, state.params(), target_token_id, scratch)
                    .map(RowOutput::PromptLogprobs),
                RowPurpose::Sample { num_draft_tokens } => {
                    let Ok(mask) = masks.row(num_draft_tokens) else {
                        return;
                    };
                    let mask = mask.map(TokenMask::as_row_mask);
                    let sampled = match head {
                        Head::Unsampled => return,
                        Head::Given(token_id) => Ok(SamplerOutputRow::given(*token_id, state)),
                        Head::Largest(token_id) => Ok(SamplerOutputRow::largest(*token_id)),
                        Head::Few(token_ids) => {
                            let known = KnownLogits::Only(token_ids);
                            sampler.sample_known_row(logits, known, state, None, scratch)
                        }
                        Head::Full(_) => {
                            let known = maxima.map_or(KnownLogits::Nothing, KnownLogits::Maxima);
                            sampler.sample_known_row(logits, known, state, mask, scratch)
                        }
                    };
                    sampled.map(RowOutput::Sampled)
                }
            };
            let next = match (&result, row.purpose) {
                (Ok(RowOutput::Sampled(sampled)), RowPurpose::Sample { num_draft_tokens }) => {
                    let draft_token_id = draft_token_ids.get(num_draft_tokens);
                    draft_token_id.filter(|&&token_id| token_id == sampled.token_id)
                }
                _ => None,
            };
            self.results.push(result.map_err(|error| error.to_string()));
            let Some(&token_id) = next else {
                return;
            };
            ahead
                .get_or_insert_with(|| request.sampling_state.clone())
                .append(token_id);
        }
    }
}

/// A mask's words, where it has any.
fn bitmask_of(mask: &TokenMask) -> Option<&[u32]> {
    match mask.as_row_mask() {
        RowMask::Bitmask(words) => Some(words),
        RowMask::Only(_) | RowMask::Without(_) => None,
    }
}

/// Whether two neighbouring rows are sampled positions of one request.
fn belong_together(row: &LogitsRow, next: &LogitsRow) -> bool {
    let is_sampled = |row: &LogitsRow| matches!(row.purpose, RowPurpose::Sample { .. });
    row.request == next.request && is_sampled(row) && is_sampled(next)
}

/// Where a slice ends that begins at `first`: after [`LOGITS_ROWS`] rows, or before the group that
/// would be cut there.
fn end_of_slice(rows: &[LogitsRow], first: usize) -> usize {
    let mut end = rows.len().min(first + LOGITS_ROWS);
    while end < rows.len() && end > first + 1 && belong_together(&rows[end - 1], &rows[end]) {
        end -= 1;
    }
    end
}
