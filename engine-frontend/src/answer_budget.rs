//! How much memory the answers to one request of the API may take before they are handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::{
    EngineCoreOutput, RequestError, RequestErrorCode, RequestOutputKind, SamplingParams,
};
use tokenizer::Tokenizer;

/// Bytes that the answers to a request may take together, the text that the API makes of them included. Under a
/// constraint it is half of that.
pub(crate) const MAX_ANSWER_BYTES: usize = 24 << 20;
/// Bytes of a token of few letters: its id and its text, in lists that grow and in the answer's JSON.
const TOKEN_BYTES: usize = 24;
/// Bytes of one logprob of a token of few letters: as it is kept, and in the text of the answer.
pub(crate) const LOGPROB_BYTES: usize = 128;
/// Logprobs per token that every server allows. Who raises `--max-logprobs` has as much more.
const USUAL_LOGPROBS: usize = 20;

/// Bytes of a stream that may wait for their reader.
const MAX_UNREAD_BYTES: usize = MAX_ANSWER_BYTES / 2;

/// What the answers to one request of the API take; shared by them all, whatever prompts they are to.
#[derive(Debug, Clone)]
pub struct AnswerBudget {
    used: Arc<AtomicUsize>,
    max_bytes: usize,
    is_stream: bool,
    /// True if the bytes of an answer stay counted once its reader has taken them.
    is_kept: bool,
}

impl AnswerBudget {
    /// The budget of a new request on a vocabulary of so many tokens. `keeps_answer` tells that a stream ends with the
    /// whole answer.
    pub fn new(params: &SamplingParams, vocab_size: usize, keeps_answer: bool) -> Self {
        let count = |asked: Option<i32>| usize::try_from(asked.unwrap_or(0)).unwrap_or(vocab_size);
        let asked = count(params.logprobs).max(count(params.prompt_logprobs));
        let is_stream = params.output_kind == RequestOutputKind::Delta;
        let is_kept = !is_stream || keeps_answer;
        let usual = match is_kept {
            true => MAX_ANSWER_BYTES,
            false => MAX_UNREAD_BYTES,
        };
        // A constraint takes as much in the core as the other half.
        let usual = match params.structured_outputs {
            Some(_) => usual / 2,
            None => usual,
        };
        Self {
            used: Arc::default(),
            max_bytes: usual.saturating_mul(asked.div_ceil(USUAL_LOGPROBS).max(1)),
            is_stream,
            is_kept,
        }
    }

    /// A share of nothing yet.
    pub(crate) fn share(&self) -> AnswerShare {
        AnswerShare {
            used: Arc::clone(&self.used),
            bytes: 0,
        }
    }

    /// Takes what an output adds into an answer's share.
    ///
    /// # Errors
    /// It is too much.
    pub(crate) fn charge(
        &self,
        share: &mut AnswerShare,
        output: &EngineCoreOutput,
        tokenizer: &Tokenizer,
    ) -> Result<(), RequestError> {
        let len = |id: &u32| tokenizer.token_bytes(*id).len();
        let tokens = output.new_token_ids.iter();
        let text: usize = tokens.map(|id| token_bytes(len(id))).sum();
        let lists = [&output.new_logprobs, &output.new_prompt_logprobs];
        let rows = lists
            .into_iter()
            .flatten()
            .flat_map(|l| &l.logprob_token_ids);
        let logprobs: usize = rows.flatten().map(|id| logprob_bytes(len(id))).sum();
        // An entry of a trace is its token's, with those of others, each as large as a logprob.
        let traced = output.new_token_ids.iter().zip(&output.new_trace);
        let traced = traced.map(|(id, trace)| {
            let top = trace
                .top
                .iter()
                .map(|token| logprob_bytes(len(&token.token_id)));
            logprob_bytes(len(id)) + top.sum::<usize>()
        });
        let bytes = text + logprobs + traced.sum::<usize>();
        // A piece of a stream is given back once it is read. Other answers are kept until all are there, however
        // long some of them have been whole.
        if !self.is_kept {
            share.bytes += bytes;
        }
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used <= self.max_bytes {
            return Ok(());
        }
        let mebibytes = self.max_bytes >> 20;
        Err(RequestError::new(
            RequestErrorCode::ValidationError,
            match (self.is_stream, self.is_kept) {
                (true, true) => format!(
                    "the answer has grown beyond {mebibytes} MiB, which the last event would repeat: ask for \
                     fewer tokens or logprobs"
                ),
                (true, false) => format!(
                    "more than {mebibytes} MiB of the stream wait for their reader: read it as it comes, \
                     or ask for fewer answers (n) or logprobs, or for no trace"
                ),
                (false, _) => format!(
                    "the answers have grown beyond {mebibytes} MiB: ask for fewer of them (n), for fewer \
                     tokens or logprobs, for no trace, or for a stream"
                ),
            },
        ))
    }
}

/// What a stream's answer takes of its request's [`AnswerBudget`]; given back when dropped, as its reader takes
/// what waits.
#[derive(Debug)]
pub(crate) struct AnswerShare {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl AnswerShare {
    /// All of it; what is left is a share of nothing.
    pub(crate) fn take(&mut self) -> Self {
        let bytes = std::mem::take(&mut self.bytes);
        let used = Arc::clone(&self.used);
        Self { used, bytes }
    }

    /// Becomes one with another share of the same budget.
    pub(crate) fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of a token whose text has `len` bytes: with room to grow, and once more in JSON.
fn token_bytes(len: usize) -> usize {
    TOKEN_BYTES.max(8 + 3 * len)
}

/// Bytes of the logprob of a token whose text has `len` bytes: JSON has it as a text, and each byte as a number.
fn logprob_bytes(len: usize) -> usize {
    LOGPROB_BYTES.max(80 + 6 * len)
}

#[cfg(test)]
mod tests {
    use protocol::{LogprobsLists, StructuredOutputsConstraint, StructuredOutputsParams};

    use super::*;
    use crate::test_support::{THINK_END, tokenizer};

    fn output(num_tokens: usize, num_logprobs: usize) -> EngineCoreOutput {
        EngineCoreOutput {
            new_token_ids: vec![0; num_tokens],
            new_logprobs: Some(LogprobsLists {
                logprob_token_ids: vec![vec![0; num_logprobs]],
                ..LogprobsLists::default()
            }),
            ..EngineCoreOutput::default()
        }
    }

    fn charge(
        budget: &AnswerBudget,
        share: &mut AnswerShare,
        output: &EngineCoreOutput,
    ) -> Result<(), RequestError> {
        budget.charge(share, output, &tokenizer())
    }

    #[test]
    fn all_answers_of_a_request_have_one_budget() {
        let params = SamplingParams::default();
        let budget = AnswerBudget::new(&params, 1000, false);
        let (mut one, mut other) = (budget.share(), budget.share());
        let half = MAX_ANSWER_BYTES / 2 / TOKEN_BYTES;
        assert_eq!(charge(&budget, &mut one, &output(half, 0)), Ok(()));
        assert_eq!(charge(&budget, &mut other, &output(half, 0)), Ok(()));
        // One that is whole waits for the others.
        drop(one);
        let error = charge(&budget, &mut other, &output(100, 0)).unwrap_err();
        assert!(error.message.contains("beyond 24 MiB"), "{error:?}");
    }

    #[test]
    fn answers_under_a_constraint_have_half_of_it() {
        let constraint = StructuredOutputsConstraint::Regex("[a-z]".to_owned());
        let params = SamplingParams {
            structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
            ..SamplingParams::default()
        };
        let budget = AnswerBudget::new(&params, 1000, false);
        let mut share = budget.share();
        let half = MAX_ANSWER_BYTES / 2 / TOKEN_BYTES;
        assert_eq!(charge(&budget, &mut share, &output(half, 0)), Ok(()));
        let error = charge(&budget, &mut share, &output(100, 0)).unwrap_err();
        assert!(error.message.contains("beyond 12 MiB"), "{error:?}");
    }

    #[test]
    fn a_stream_counts_what_waits_for_its_reader() {
        let params = SamplingParams {
            logprobs: Some(20),
            output_kind: RequestOutputKind::Delta,
            ..SamplingParams::default()
        };
        let budget = AnswerBudget::new(&params, 1000, false);
        let piece = output(1, MAX_UNREAD_BYTES / 2 / LOGPROB_BYTES - 1);
        let (mut one, mut other) = (budget.share(), budget.share());
        // As much as it likes, as long as it is read.
        for _ in 0..10 {
            assert_eq!(charge(&budget, &mut one, &piece), Ok(()));
            assert_eq!(charge(&budget, &mut other, &piece), Ok(()));
            let mut waiting = one.take();
            waiting.add(other.take());
            drop(waiting);
        }
        assert_eq!(charge(&budget, &mut one, &piece), Ok(()));
        assert_eq!(charge(&budget, &mut one, &piece), Ok(()));
        let error = charge(&budget, &mut other, &piece).unwrap_err();
        assert!(
            error
                .message
                .starts_with("more than 12 MiB of the stream wait"),
            "{error:?}"
        );
        drop((one, other));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn long_tokens_count_by_their_text() {
        let params = SamplingParams::default();
        let used = |token_id: u32| {
            let budget = AnswerBudget::new(&params, 1000, false);
            let mut output = output(1, 1);
            output.new_token_ids[0] = token_id;
            output.new_logprobs.as_mut().unwrap().logprob_token_ids[0][0] = token_id;
            charge(&budget, &mut budget.share(), &output).unwrap();
            budget.used.load(Ordering::Relaxed)
        };
        assert_eq!(used(0), TOKEN_BYTES + LOGPROB_BYTES);
        let len = "</think>".len();
        assert_eq!(used(THINK_END), 8 + 3 * len + 80 + 6 * len);
    }

    #[test]
    fn a_stream_that_ends_with_the_whole_answer_keeps_what_it_takes() {
        let params = SamplingParams {
            output_kind: RequestOutputKind::Delta,
            ..SamplingParams::default()
        };
        let budget = AnswerBudget::new(&params, 1000, true);
        let mut share = budget.share();
        let half = output(MAX_ANSWER_BYTES / 2 / TOKEN_BYTES, 0);
        assert_eq!(charge(&budget, &mut share, &half), Ok(()));
        drop(share.take());
        assert_eq!(charge(&budget, &mut share, &half), Ok(()));
        drop(share.take());
        let error = charge(&budget, &mut share, &half).unwrap_err();
        let wanted = "the answer has grown beyond 24 MiB, which the last event would repeat";
        assert!(error.message.starts_with(wanted), "{error:?}");
    }

    #[test]
    fn more_logprobs_have_more_room_where_the_server_allows_them() {
        let most = MAX_ANSWER_BYTES / LOGPROB_BYTES;
        let has_room = |logprobs| {
            let params = SamplingParams {
                logprobs: Some(logprobs),
                output_kind: RequestOutputKind::FinalOnly,
                ..SamplingParams::default()
            };
            let budget = AnswerBudget::new(&params, 1000, false);
            charge(&budget, &mut budget.share(), &output(0, most + 1)).is_ok()
        };
        assert!(!has_room(20));
        assert!(has_room(21));
        assert!(has_room(-1));
    }
}
