//! When a request is over.

use protocol::{FinishReason, RepetitionDetection, StopReason};

use crate::request::Request;
use crate::structured_output::StructuredOutputRequest;

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
        .is_some_and(|detection| ends_in_repetition(output_token_ids, detection));
    (reached_min_tokens && repeats).then_some(Stop {
        finish_reason: FinishReason::Repetition,
        stop_reason: None,
    })
}

/// Whether the tail of `token_ids` is one pattern, of a size within bounds, `min_count` times.
///
/// Tries each size, leaves it at the first difference. Costs at worst
/// `max_pattern_size * token_ids.len()`, on ordinary text about one comparison per size.
fn ends_in_repetition(token_ids: &[u32], detection: RepetitionDetection) -> bool {
    // Once is no repetition, and an empty pattern is everywhere.
    let min_count = detection.min_count.max(2) as usize;
    let smallest = detection.min_pattern_size.max(1) as usize;
    let largest = (detection.max_pattern_size as usize).min(token_ids.len() / min_count);
    (smallest..=largest).any(|size| {
        let tail = &token_ids[token_ids.len() - size * min_count..];
        tail.iter()
            .rev()
            .zip(tail.iter().rev().skip(size))
            .all(|(token, before)| token == before)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::{EngineCoreRequest, SamplingParams};

    use super::*;
    use crate::core::block_hash::BlockHasher;

    fn detection(min: u32, max: u32, count: u32) -> RepetitionDetection {
        RepetitionDetection {
            min_pattern_size: min,
            max_pattern_size: max,
            min_count: count,
        }
    }

    #[test]
    fn a_repeated_tail_is_found() {
        assert!(ends_in_repetition(
            &[5, 1, 2, 1, 2, 1, 2],
            detection(1, 4, 3)
        ));
        assert!(!ends_in_repetition(
            &[5, 1, 2, 1, 2, 1, 2],
            detection(1, 4, 4)
        ));
        assert!(!ends_in_repetition(
            &[5, 1, 2, 1, 2, 1, 2],
            detection(1, 1, 2)
        ));
        assert!(!ends_in_repetition(
            &[5, 1, 2, 1, 2, 1, 2],
            detection(3, 4, 2)
        ));
        assert!(ends_in_repetition(&[9, 9, 9], detection(1, 1, 3)));
        assert!(!ends_in_repetition(&[9, 9, 9, 1], detection(1, 4, 2)));
        assert!(!ends_in_repetition(&[], detection(0, 4, 0)));
        // Once is no repetition.
        assert!(!ends_in_repetition(&[1, 2, 3], detection(0, u32::MAX, 0)));
        assert!(ends_in_repetition(&[3, 3], detection(0, u32::MAX, 0)));
    }

    #[test]
    fn repetition_is_looked_for_in_the_output_from_min_tokens_on() {
        let stop = |output_token_ids: &[u32], min_tokens| {
            let message = EngineCoreRequest {
                prompt_token_ids: vec![4, 4, 4, 4].into(),
                output_token_ids: output_token_ids.to_vec(),
                sampling_params: SamplingParams {
                    min_tokens,
                    repetition_detection: Some(detection(1, 3, 3)),
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

    proptest! {
        /// Against the definition: the tail is some pattern, repeated.
        #[test]
        fn repetition_is_as_defined(
            token_ids in prop::collection::vec(0u32..3, 0..14),
            min in 1usize..4,
            max in 1usize..6,
            count in 2usize..5,
        ) {
            let expected = (min..=max).any(|size| {
                token_ids.len() >= size * count
                    && token_ids.ends_with(&token_ids[token_ids.len() - size..].repeat(count))
            });
            let detection = detection(min as u32, max as u32, count as u32);
            prop_assert_eq!(ends_in_repetition(&token_ids, detection), expected);
        }
    }
}
