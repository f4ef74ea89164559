//! One request in flight, as the frontend knows it.

use std::sync::Arc;

use protocol::{EngineCoreOutput, FinishReason, RequestOutputKind, StopReason};

use crate::answer_budget::{AnswerBudget, AnswerShare};
use crate::detokenizer::IncrementalDetokenizer;
use crate::input_processor::CallersFields;
use crate::logprobs::LogprobsProcessor;
use crate::metrics::RequestStateStats;
use crate::outputs::CompletionOutput;
use crate::request_output_collector::RequestOutputCollector;
use crate::token_trace::TraceCollector;
use crate::token_usage::Ending;

/// Everything that the frontend knows about one request in flight (one of `n`).
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) external_req_id: String,
    /// Internal id of the request that this is one answer to, where `n > 1`.
    pub(super) parent_id: Option<String>,
    pub(super) index: u32,
    pub(super) prompt: Option<Arc<str>>,
    pub(super) prompt_token_ids: Arc<[u32]>,
    pub(super) output_kind: RequestOutputKind,
    pub(super) stream_interval: usize,
    /// What the caller calls its fields, where it has a constraint.
    pub(super) callers_fields: Option<Arc<CallersFields>>,
    /// Under a constraint: the model's tokens that end its text.
    pub(super) model_stop_token_ids: Vec<u32>,
    /// Whether all tokens so far are a whole text of the constraint.
    pub(super) structured_output_complete: Option<bool>,
    /// True once the limit of tokens led the answer to its end. Kept over a restart of the core.
    pub(super) completed_by_budget: bool,
    /// True once a string of the answer that repeated itself was closed. Kept as well.
    pub(super) repetition_closed: bool,
    pub(super) detokenizer: IncrementalDetokenizer,
    pub(super) logprobs_processor: LogprobsProcessor,
    pub(super) trace: TraceCollector,
    pub(super) budget: AnswerBudget,
    /// What it takes of the budget: of a stream what isn't handed over.
    pub(super) share: AnswerShare,
    /// Of a request whose positions are scored.
    pub(super) scores: Vec<Vec<f32>>,
    pub(super) pooling_output: Option<Vec<f32>>,
    pub(super) num_cached_tokens: u32,
    /// Tokens that earlier outputs of a stream brought.
    pub(super) sent_tokens: usize,
    pub(super) queue: Arc<RequestOutputCollector>,
    pub(super) stats: RequestStateStats,
}

impl RequestState {
    /// True if the limit of tokens led the answer to its end, and it is whole.
    fn is_completed_by_budget(&self) -> bool {
        self.completed_by_budget && self.structured_output_complete == Some(true)
    }

    /// Notes how the answer ended, for whoever logs it.
    pub(super) fn note_ending(&self, reason: FinishReason) {
        self.queue.note_ending(Ending::Finish(reason));
        for (is_so, ending) in [
            (self.is_completed_by_budget(), Ending::CompletedByBudget),
            (self.repetition_closed, Ending::RepetitionClosed),
        ] {
            if is_so {
                self.queue.note_ending(ending);
            }
        }
    }

    /// Takes a step's tokens and their logprobs, as far as a stop string lets them count. Returns why
    /// the answer is complete now, if it is.
    pub(super) fn take_tokens(
        &mut self,
        output: &EngineCoreOutput,
    ) -> (Option<FinishReason>, Option<StopReason>) {
        let mut finish_reason = output.finish_reason;
        let mut stop_reason = output.stop_reason.clone();
        let stopped_by_token = self.is_stopped_by_token(output);
        let stop_string = self
            .detokenizer
            .update(&output.new_token_ids, stopped_by_token);
        self.completed_by_budget |= output.completed_by_budget;
        self.repetition_closed |= output.repetition_closed;
        // An answer that ends from outside stays as whole as it was.
        if output.structured_output_complete.is_some() {
            self.structured_output_complete = output.structured_output_complete;
        } else if self.callers_fields.is_some() {
            let was_whole = self.structured_output_complete == Some(true);
            self.structured_output_complete = Some(was_whole && output.new_token_ids.is_empty());
        }
        if let Some(found) = stop_string {
            // That was of all new tokens.
            if found.num_new_tokens < output.new_token_ids.len() {
                let is_whole = u32::try_from(found.num_new_tokens)
                    .is_ok_and(|num_tokens| output.complete_after.contains(&num_tokens));
                self.structured_output_complete = self.structured_output_complete.map(|_| is_whole);
            }
            finish_reason = Some(FinishReason::Stop);
            stop_reason = Some(StopReason::String(found.stop_string));
        }
        if let Some(rows) = &output.new_prompt_logprobs {
            let prompt_len = self.prompt_token_ids.len();
            self.logprobs_processor.update_prompt(rows, prompt_len);
        }
        if !output.scores.is_empty() {
            self.scores.clone_from(&output.scores);
        }
        if output.pooling_output.is_some() {
            self.pooling_output.clone_from(&output.pooling_output);
        }
        if let Some(rows) = &output.new_logprobs {
            self.logprobs_processor.update(rows);
        }
        let num_tokens = self.detokenizer.num_output_tokens();
        self.logprobs_processor.truncate(num_tokens);
        self.trace.update(&output.new_trace);
        self.trace.truncate(num_tokens);
        (finish_reason, stop_reason)
    }

    /// Whether an output's last token is a stop token that ended the request, and no text.
    fn is_stopped_by_token(&self, output: &EngineCoreOutput) -> bool {
        let last = output.new_token_ids.last();
        match output.finish_reason {
            Some(FinishReason::Stop | FinishReason::Length) if self.callers_fields.is_some() => {
                // A text may come to its end at a limit, without a stop token; or be ended by one where
                // what it would have gone on with had no room. One of the request's own is said to have
                // ended it, else it is text.
                last.is_some_and(|token_id| {
                    self.model_stop_token_ids.contains(token_id)
                        || output.stop_reason == Some(StopReason::TokenId(*token_id))
                })
            }
            reason => reason == Some(FinishReason::Stop),
        }
    }

    /// What there is to say after an update; `None` where the caller doesn't want to hear it yet.
    pub(super) fn make_completion_output(
        &mut self,
        finish_reason: Option<FinishReason>,
        stop_reason: Option<StopReason>,
    ) -> Option<CompletionOutput> {
        let finished = finish_reason.is_some();
        let num_tokens = self.detokenizer.num_output_tokens();
        if !finished {
            if self.output_kind == RequestOutputKind::FinalOnly {
                return None;
            }
            let new_tokens = num_tokens - self.sent_tokens;
            if self.sent_tokens > 0 && new_tokens < self.stream_interval {
                return None;
            }
        }
        let delta = self.output_kind == RequestOutputKind::Delta;
        let start = if delta { self.sent_tokens } else { 0 };
        self.sent_tokens = num_tokens;
        let text = self.detokenizer.get_next_output_text(finished, delta);
        let reasoning = self.detokenizer.get_next_reasoning_text(delta);
        let token_ids = self.detokenizer.output_token_ids();
        Some(CompletionOutput {
            index: self.index,
            token_ids: token_ids.get(start..).unwrap_or_default().to_vec(),
            text,
            reasoning,
            num_reasoning_tokens: self.detokenizer.num_reasoning_tokens(),
            cumulative_logprob: self.logprobs_processor.cumulative_logprob(),
            logprobs: match delta || finished {
                true => self.logprobs_processor.take_logprobs_from(start),
                false => self.logprobs_processor.logprobs_from(start),
            },
            trace: match delta || finished {
                true => self.trace.take_from(start),
                false => self.trace.from(start),
            },
            finish_reason,
            stop_reason,
            structured_output_complete: self.structured_output_complete.filter(|_| finished),
            structured_output_completed_by_budget: finished && self.is_completed_by_budget(),
            structured_output_repetition_closed: finished && self.repetition_closed,
        })
    }
}
