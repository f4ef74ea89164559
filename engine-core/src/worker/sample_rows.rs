//! The second half of a step: from kept hidden states to tokens.
//!
//! A draft is verified by sampling at each of its positions, as if it were not there:
//! while what comes is the draft's token, the next position's hidden state is the right one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::core::sched::output::{GrammarOutput, ModelRunnerOutput, RequestMasks};
use crate::lock::lock;
use crate::model_executor::LOGITS_PER_MAXIMUM;
use crate::panic_message::panic_message;
use crate::sample::{
    KnownLogits, LogprobsRow, RequestSamplingState, Sampler, SamplerOutputRow, SamplerScratch,
    log_softmax_of,
};
use crate::structured_output::TokenMask;
use crate::worker::heads::Head;
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
    Scores(Vec<f32>),
}

/// What a row brought, or why its request fails.
type RowResult = Result<RowOutput, String>;

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
            if rows[first_row].purpose == RowPurpose::Pool {
                first_row += 1;
                continue;
            }
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
                if let Some(trace) = sampled.trace {
                    output.push_trace(index, *trace);
                }
            }
            Ok(RowOutput::PromptLogprobs(row)) => {
                if let Some(prompt_logprobs) = &mut request.prompt_logprobs {
                    row.push_to(&mut prompt_logprobs.rows);
                }
            }
            Ok(RowOutput::Scores(row)) => {
                if let Some(scores) = &mut request.scores {
                    output.num_nans_in_logits[index] += u32::from(row.iter().any(|p| p.is_nan()));
                    scores.rows.push(row);
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
                RowPurpose::Score { .. } => match head {
                    Head::Few(token_ids) => {
                        Ok(RowOutput::Scores(log_softmax_of(logits, token_ids)))
                    }
                    _ => return,
                },
                RowPurpose::Pool => return,
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
