//! How much memory the answers to one request of the API may take before they are handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::{
    EngineCoreOutput, LogprobsLists, RequestError, RequestErrorCode, RequestOutputKind,
    SamplingParams,
};

/// Bytes that the answers to a request may take together. With what the API makes of them, and the text that it
/// sends, it is about 64 MiB.
pub(crate) const MAX_ANSWER_BYTES: usize = 24 << 20;
/// Bytes of a token: its id and its text, in lists that grow.
const TOKEN_BYTES: usize = 24;
/// Bytes of one logprob: with its token's text and bytes.
const LOGPROB_BYTES: usize = 128;
/// Logprobs per token that every server allows. Who raises `--max-logprobs` has as much more.
const USUAL_LOGPROBS: usize = 20;

/// What the answers to one request of the API take; shared by them all, whatever prompts they are to.
#[derive(Debug, Clone)]
pub struct AnswerBudget {
    used: Arc<AtomicUsize>,
    max_bytes: usize,
    /// False for a stream, which gives its logprobs out.
    keeps_logprobs: bool,
}

impl AnswerBudget {
    /// The budget of a new request on a vocabulary of so many tokens.
    pub fn new(params: &SamplingParams, vocab_size: usize) -> Self {
        let count = |asked: Option<i32>| usize::try_from(asked.unwrap_or(0)).unwrap_or(vocab_size);
        let asked = count(params.logprobs).max(count(params.prompt_logprobs));
        Self {
            used: Arc::default(),
            max_bytes: MAX_ANSWER_BYTES.saturating_mul(asked.div_ceil(USUAL_LOGPROBS).max(1)),
            keeps_logprobs: params.output_kind != RequestOutputKind::Delta,
        }
    }

    /// Takes what an output adds.
    ///
    /// # Errors
    /// It is too much.
    pub(super) fn charge(&self, output: &EngineCoreOutput) -> Result<(), RequestError> {
        let mut bytes = output.new_token_ids.len() * TOKEN_BYTES;
        if self.keeps_logprobs {
            bytes += num_logprobs(output.new_logprobs.as_ref()) * LOGPROB_BYTES;
        }
        bytes += num_logprobs(output.new_prompt_logprobs.as_ref()) * LOGPROB_BYTES;
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used <= self.max_bytes {
            return Ok(());
        }
        Err(RequestError {
            code: RequestErrorCode::ValidationError,
            message: format!(
                "the answers have grown beyond {} MiB: ask for fewer of them (n), for fewer tokens or \
                 logprobs, or for a stream",
                self.max_bytes >> 20
            ),
            retryable: false,
        })
    }
}

fn num_logprobs(rows: Option<&LogprobsLists>) -> usize {
    let rows = rows.map_or(&[][..], |rows| &rows.logprobs);
    rows.iter().map(Vec::len).sum()
}

#[cfg(test)]
mod tests {
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
        let sibling = budget.clone();
        let half = MAX_ANSWER_BYTES / 2 / TOKEN_BYTES;
        assert_eq!(budget.charge(&output(half, 0)), Ok(()));
        assert_eq!(sibling.charge(&output(half, 0)), Ok(()));
        let error = sibling.charge(&output(100, 0)).unwrap_err();
        assert!(error.message.contains("beyond 24 MiB"), "{error:?}");
    }

    #[test]
    fn logprobs_count_where_they_are_kept_and_more_where_more_are_allowed() {
        let most = MAX_ANSWER_BYTES / LOGPROB_BYTES;
        let charge = |logprobs, output_kind| {
            let params = SamplingParams {
                logprobs: Some(logprobs),
                output_kind,
                ..SamplingParams::default()
            };
            AnswerBudget::new(&params, 1000).charge(&output(0, most + 1))
        };
        assert!(charge(20, RequestOutputKind::FinalOnly).is_err());
        assert!(charge(20, RequestOutputKind::Delta).is_ok());
        assert!(charge(21, RequestOutputKind::FinalOnly).is_ok());
        assert!(charge(-1, RequestOutputKind::FinalOnly).is_ok());
    }
}
