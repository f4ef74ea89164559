//! How much memory the answers to one request of the API may take before they are handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::{
    EngineCoreOutput, LogprobsLists, RequestError, RequestErrorCode, RequestOutputKind,
    SamplingParams,
};

/// Bytes that the answers to a request may take together, the text that the API makes of them included. Under a
/// constraint it is half of that.
pub(crate) const MAX_ANSWER_BYTES: usize = 24 << 20;
/// Bytes of a token: its id and its text, in lists that grow.
const TOKEN_BYTES: usize = 24;
/// Bytes of one logprob: as it is kept, and in the text of the answer.
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
}

impl AnswerBudget {
    /// The budget of a new request on a vocabulary of so many tokens.
    pub fn new(params: &SamplingParams, vocab_size: usize) -> Self {
        let count = |asked: Option<i32>| usize::try_from(asked.unwrap_or(0)).unwrap_or(vocab_size);
        let asked = count(params.logprobs).max(count(params.prompt_logprobs));
        let is_stream = params.output_kind == RequestOutputKind::Delta;
        let usual = match is_stream {
            true => MAX_UNREAD_BYTES,
            false => MAX_ANSWER_BYTES,
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
    ) -> Result<(), RequestError> {
        let logprobs = num_logprobs(output.new_logprobs.as_ref())
            + num_logprobs(output.new_prompt_logprobs.as_ref());
        // An entry of a trace is its token's, with those of others, each as large as a logprob.
        let traced = output.new_trace.iter().map(|token| 1 + token.top.len());
        let logprobs = logprobs + traced.sum::<usize>();
        let bytes = output.new_token_ids.len() * TOKEN_BYTES + logprobs * LOGPROB_BYTES;
        // A piece of a stream is given back once it is read. Other answers are kept until all are there, however
        // long some of them have been whole.
        if self.is_stream {
            share.bytes += bytes;
        }
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used <= self.max_bytes {
            return Ok(());
        }
        let mebibytes = self.max_bytes >> 20;
        Err(RequestError::new(
            RequestErrorCode::ValidationError,
            match self.is_stream {
                true => format!(
                    "more than {mebibytes} MiB of the stream wait for their reader: read it as it comes, \
                     or ask for fewer answers (n) or logprobs, or for no trace"
                ),
                false => format!(
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

fn num_logprobs(rows: Option<&LogprobsLists>) -> usize {
    let rows = rows.map_or(&[][..], |rows| &rows.logprobs);
    rows.iter().map(Vec::len).sum()
}

#[cfg(test)]
mod tests {
    use protocol::{StructuredOutputsConstraint, StructuredOutputsParams};

    use super::*;

    fn output(num_tokens: usize, num_logprobs: usize) -> EngineCoreOutput {
        EngineCoreOutput {
            new_token_ids: vec![0; num_tokens],
            new_logprobs: Some(LogprobsLists {
                logprobs: vec![vec![0.0; num_logprobs]],
                ..LogprobsLists::default()
            }),
            ..EngineCoreOutput::default()
        }
    }

    #[test]
    fn all_answers_of_a_request_have_one_budget() {
        let params = SamplingParams::default();
        let budget = AnswerBudget::new(&params, 1000);
        let (mut one, mut other) = (budget.share(), budget.share());
        let half = MAX_ANSWER_BYTES / 2 / TOKEN_BYTES;
        assert_eq!(budget.charge(&mut one, &output(half, 0)), Ok(()));
        assert_eq!(budget.charge(&mut other, &output(half, 0)), Ok(()));
        // One that is whole waits for the others.
        drop(one);
        let error = budget.charge(&mut other, &output(100, 0)).unwrap_err();
        assert!(error.message.contains("beyond 24 MiB"), "{error:?}");
    }

    #[test]
    fn answers_under_a_constraint_have_half_of_it() {
        let constraint = StructuredOutputsConstraint::Regex("[a-z]".to_owned());
        let params = SamplingParams {
            structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
            ..SamplingParams::default()
        };
        let budget = AnswerBudget::new(&params, 1000);
        let mut share = budget.share();
        let half = MAX_ANSWER_BYTES / 2 / TOKEN_BYTES;
        assert_eq!(budget.charge(&mut share, &output(half, 0)), Ok(()));
        let error = budget.charge(&mut share, &output(100, 0)).unwrap_err();
        assert!(error.message.contains("beyond 12 MiB"), "{error:?}");
    }

    #[test]
    fn a_stream_counts_what_waits_for_its_reader() {
        let params = SamplingParams {
            logprobs: Some(20),
            output_kind: RequestOutputKind::Delta,
            ..SamplingParams::default()
        };
        let budget = AnswerBudget::new(&params, 1000);
        let piece = output(1, MAX_UNREAD_BYTES / 2 / LOGPROB_BYTES - 1);
        let (mut one, mut other) = (budget.share(), budget.share());
        // As much as it likes, as long as it is read.
        for _ in 0..10 {
            assert_eq!(budget.charge(&mut one, &piece), Ok(()));
            assert_eq!(budget.charge(&mut other, &piece), Ok(()));
            let mut waiting = one.take();
            waiting.add(other.take());
            drop(waiting);
        }
        assert_eq!(budget.charge(&mut one, &piece), Ok(()));
        assert_eq!(budget.charge(&mut one, &piece), Ok(()));
        let error = budget.charge(&mut other, &piece).unwrap_err();
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
    fn more_logprobs_have_more_room_where_the_server_allows_them() {
        let most = MAX_ANSWER_BYTES / LOGPROB_BYTES;
        let charge = |logprobs| {
            let params = SamplingParams {
                logprobs: Some(logprobs),
                output_kind: RequestOutputKind::FinalOnly,
                ..SamplingParams::default()
            };
            let budget = AnswerBudget::new(&params, 1000);
            budget.charge(&mut budget.share(), &output(0, most + 1))
        };
        assert!(charge(20).is_err());
        assert!(charge(21).is_ok());
        assert!(charge(-1).is_ok());
    }
}
