//! What a caller gets: the text and tokens of a request, so far or in the end.

use std::sync::Arc;

use protocol::{FinishReason, StopReason, TokenTrace};

use crate::answer_budget::LOGPROB_BYTES;
use crate::logprobs::PositionLogprobs;

/// The state of one request: complete, cumulative so far, or what is new, depending on
/// [`RequestOutputKind`](protocol::RequestOutputKind).
#[derive(Debug, Clone, PartialEq)]
pub struct RequestOutput {
    /// The caller's id.
    pub request_id: String,
    /// The prompt as text, where it was given as text.
    pub prompt: Option<Arc<str>>,
    /// The prompt as tokens.
    pub prompt_token_ids: Arc<[u32]>,
    /// Logprobs of the prompt's tokens where asked for, with the first output. One entry per
    /// prompt token; `None` at positions without one (the first has nothing before it).
    pub prompt_logprobs: Option<Arc<[Option<PositionLogprobs>]>>,
    /// One row per scored position, where asked for; see [`protocol::EngineCoreOutput::scores`].
    pub scores: Vec<Vec<f32>>,
    /// The vector that was asked for; see [`protocol::EngineCoreOutput::pooling_output`].
    pub pooling_output: Option<Vec<f32>>,
    /// The answers, by index.
    pub outputs: Vec<CompletionOutput>,
    /// Whether all answers are complete.
    pub finished: bool,
    /// Prompt tokens that came from the prefix cache.
    pub num_cached_tokens: u32,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompletionOutput {
    /// Which of the `n` answers.
    pub index: u32,
    /// The text; empty without detokenization.
    pub text: String,
    /// The model's thinking, where it is told apart
    /// ([`GenerateRequest::separate_reasoning`](crate::GenerateRequest)); it is then no part of
    /// `text`.
    pub reasoning: Option<String>,
    /// The tokens.
    pub token_ids: Vec<u32>,
    /// How many tokens so far were the model's thinking, where it is told apart.
    pub num_reasoning_tokens: u32,
    /// Sum of the logprobs of all tokens so far that this engine sampled, where logprobs were
    /// asked for.
    pub cumulative_logprob: Option<f64>,
    /// Logprobs, one entry per token of `token_ids`, where asked for.
    pub logprobs: Option<Vec<PositionLogprobs>>,
    /// What its tokens were chosen from, one entry per token that this engine generated, where asked for.
    pub trace: Option<Vec<TokenTrace>>,
    /// Why the answer is complete; `None` while it isn't.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it.
    pub stop_reason: Option<StopReason>,
    /// Of a complete answer under a constraint: whether it is a whole text of the grammar. It
    /// isn't where a limit or a stop string cut it off.
    pub structured_output_complete: Option<bool>,
    /// Of a complete answer that is a whole text of its constraint: true if the limit of tokens led it to
    /// its end, so that it may say less than the model would have.
    pub structured_output_completed_by_budget: bool,
    /// Of a complete answer: true if a string that repeated itself was closed.
    pub structured_output_repetition_closed: bool,
}

impl CompletionOutput {
    /// Whether the answer is complete.
    pub fn finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Appends a later delta of the same answer.
    fn append(&mut self, next: Self) {
        self.text.push_str(&next.text);
        if let Some(new) = next.reasoning {
            self.reasoning.get_or_insert_default().push_str(&new);
        }
        self.token_ids.extend(next.token_ids);
        self.num_reasoning_tokens = next.num_reasoning_tokens;
        if let Some(new) = next.logprobs {
            self.logprobs.get_or_insert_default().extend(new);
        }
        if let Some(new) = next.trace {
            self.trace.get_or_insert_default().extend(new);
        }
        self.cumulative_logprob = next.cumulative_logprob;
        self.finish_reason = next.finish_reason;
        self.stop_reason = next.stop_reason;
        self.structured_output_complete = next.structured_output_complete;
        self.structured_output_completed_by_budget = next.structured_output_completed_by_budget;
        self.structured_output_repetition_closed = next.structured_output_repetition_closed;
    }
}

impl RequestOutput {
    /// Merges a later output of the same request into this one: deltas are appended
    /// (`aggregate`), cumulative outputs replaced.
    pub fn add(&mut self, next: Self, aggregate: bool) {
        self.finished |= next.finished;
        if next.prompt_logprobs.is_some() {
            self.prompt_logprobs = next.prompt_logprobs;
        }
        self.num_cached_tokens = self.num_cached_tokens.max(next.num_cached_tokens);
        for completion in next.outputs {
            let index = completion.index;
            match self.outputs.binary_search_by_key(&index, |o| o.index) {
                Ok(at) if aggregate => self.outputs[at].append(completion),
                Ok(at) => self.outputs[at] = completion,
                Err(at) => self.outputs.insert(at, completion),
            }
        }
    }

    /// About how many bytes there are to read.
    pub(crate) fn num_bytes(&self) -> usize {
        let logprobs = |positions: &[PositionLogprobs]| -> usize {
            positions.iter().map(|p| p.len() * LOGPROB_BYTES).sum()
        };
        let of_answer = |output: &CompletionOutput| {
            let positions = output.logprobs.as_deref().unwrap_or_default();
            let trace = output.trace.as_deref().unwrap_or_default().iter();
            let alternatives: usize = trace.map(|token| 1 + token.top.len()).sum();
            output.text.len()
                + size_of_val(&*output.token_ids)
                + logprobs(positions)
                + alternatives * LOGPROB_BYTES
        };
        let prompt = self.prompt_logprobs.as_deref().unwrap_or_default();
        let prompt: usize = prompt
            .iter()
            .flatten()
            .map(|p| p.len() * LOGPROB_BYTES)
            .sum();
        prompt + self.outputs.iter().map(of_answer).sum::<usize>()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn output(index: u32, text: &str, finish: Option<FinishReason>) -> RequestOutput {
        RequestOutput {
            request_id: "r".to_owned(),
            prompt: None,
            prompt_token_ids: [1].into(),
            prompt_logprobs: None,
            scores: Vec::new(),
            pooling_output: None,
            outputs: vec![CompletionOutput {
                index,
                text: text.to_owned(),
                token_ids: text.bytes().map(u32::from).collect(),
                finish_reason: finish,
                ..CompletionOutput::default()
            }],
            finished: finish.is_some(),
            num_cached_tokens: 0,
        }
    }

    #[test]
    fn deltas_are_appended_by_index() {
        let mut held = output(1, "a", None);
        held.add(output(0, "x", None), true);
        held.add(output(1, "b", Some(FinishReason::Stop)), true);
        let texts: Vec<_> = held
            .outputs
            .iter()
            .map(|o| (o.index, o.text.as_str()))
            .collect();
        assert_eq!(texts, [(0, "x"), (1, "ab")]);
        assert_eq!(held.outputs[1].finish_reason, Some(FinishReason::Stop));
        assert_eq!(held.outputs[1].token_ids, [97, 98]);
        assert!(held.finished);
    }

    #[test]
    fn cumulative_outputs_are_replaced() {
        let mut held = output(0, "a", None);
        held.add(output(0, "ab", None), false);
        assert_eq!(held.outputs[0].text, "ab");
    }
}
