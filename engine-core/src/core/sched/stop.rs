//! When a request is over.

use protocol::{FinishReason, SamplingParams, StopReason};

use crate::core::request::Request;
use crate::repetition::ends_in_repetition;
use crate::structured_output::StructuredOutputRequest;

/// The stop reason of text that repeats itself, as vLLM has it.
const REPETITION_DETECTED: &str = "repetition_detected";

/// Why a request ends with its last token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) finish_reason: FinishReason,
    pub(crate) stop_reason: Option<StopReason>,
}

/// Whether `request` ends with the output it has, judged by its last output token.
///
/// In this order: a budget that ended free text, the end-of-text token, `stop_token_ids`, the end of
/// the grammar, `max_model_len` and `max_tokens`, and then repetition. A text of a grammar that comes
/// to its end with the last token that there is room for says `stop`: only its stop token is missing.
/// Before `min_tokens` output tokens only the grammar and the lengths end a request. Sampling masks stop
/// tokens until then; one that comes all the same (from a replay) does not cut the output shorter than
/// was asked.
pub(crate) fn check_stop(request: &Request, max_model_len: usize) -> Option<Stop> {
    let params = request.sampling_params();
    let output_token_ids = request.output_token_ids();
    let last_token_id = *output_token_ids.last()?;
    let reached_min_tokens = output_token_ids.len() >= params.min_tokens as usize;
    // After the end of a text nothing can come.
    let is_terminated = request
        .grammar()
        .is_some_and(StructuredOutputRequest::is_terminated);
    let may_stop = reached_min_tokens || is_terminated;

    // Whole by its grammar, yet it would have gone on.
    let is_cut_short = request
        .grammar()
        .is_some_and(StructuredOutputRequest::is_cut_short);
    if is_cut_short {
        let is_own = params.stop_token_ids.contains(&last_token_id);
        return Some(Stop {
            finish_reason: FinishReason::Length,
            stop_reason: is_own.then_some(StopReason::TokenId(last_token_id)),
        });
    }
    if may_stop && !params.ignore_eos && params.eos_token_id == Some(last_token_id) {
        return Some(Stop {
            finish_reason: FinishReason::Stop,
            stop_reason: None,
        });
    }
    // Under a grammar one that did not end the text is part of it.
    let ends_text = is_terminated || request.grammar().is_none();
    if may_stop && ends_text && params.stop_token_ids.contains(&last_token_id) {
        return Some(Stop {
            finish_reason: FinishReason::Stop,
            stop_reason: Some(StopReason::TokenId(last_token_id)),
        });
    }
    if is_terminated {
        return Some(Stop {
            finish_reason: FinishReason::Stop,
            stop_reason: None,
        });
    }
    let max_tokens = params
        .max_tokens
        .map_or(usize::MAX, |max_tokens| max_tokens as usize);
    if request.num_tokens() >= max_model_len || output_token_ids.len() >= max_tokens {
        let is_whole = request
            .grammar()
            .is_some_and(StructuredOutputRequest::is_whole_at_limit);
        let finish_reason = match is_whole {
            true => FinishReason::Stop,
            false => FinishReason::Length,
        };
        return Some(Stop {
            finish_reason,
            stop_reason: None,
        });
    }
    let repeats = params
        .repetition_detection
        .is_some_and(|detection| ends_in_repetition(output_token_ids, detection).is_some());
    (reached_min_tokens && repeats).then_some(Stop {
        finish_reason: FinishReason::Repetition,
        stop_reason: Some(StopReason::String(REPETITION_DETECTED.to_owned())),
    })
}

/// True if free text may end with this token, as soon as `min_tokens` are there.
pub(super) fn may_end_text(params: &SamplingParams, token_id: u32) -> bool {
    let is_eos = !params.ignore_eos && params.eos_token_id == Some(token_id);
    is_eos || params.stop_token_ids.contains(&token_id)
}

#[cfg(test)]
mod tests {
    use protocol::{EngineCoreRequest, RepetitionDetection};

    use super::*;
    use crate::core::block_hash::BlockHasher;

    #[test]
    fn repetition_is_looked_for_in_the_output_from_min_tokens_on() {
        let stop = |output_token_ids: &[u32], min_tokens| {
            let message = EngineCoreRequest {
                prompt_token_ids: vec![4, 4, 4, 4].into(),
                output_token_ids: output_token_ids.to_vec(),
                sampling_params: SamplingParams {
                    min_tokens,
                    repetition_detection: Some(RepetitionDetection {
                        max_pattern_size: 3,
                        min_pattern_size: 1,
                        min_count: 3,
                    }),
                    ..SamplingParams::default()
                },
                ..EngineCoreRequest::default()
            };
            let request = Request::from_engine_core_request(message, &BlockHasher::disabled());
            check_stop(&request, 100).map(|stop| stop.finish_reason)
        };
        assert_eq!(stop(&[4, 4], 0), None);
        assert_eq!(stop(&[4, 4, 4], 0), Some(FinishReason::Repetition));
        assert_eq!(stop(&[4, 4, 4], 4), None);
        assert_eq!(stop(&[], 0), None);
    }
}
