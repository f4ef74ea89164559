//! The core's own look at sampling parameters: a second line behind the frontend's validation.

use protocol::{RequestError, RequestErrorCode, SamplingParams};

use super::metadata::VocabSizes;

/// Most ids of `logprob_token_ids`.
const MAX_LOGPROB_TOKEN_IDS: usize = 128;

/// Refuses what sampling can't honour: numbers outside their ranges, ids that have no logit, more
/// logprobs per token than `max_logprobs` (-1 is no limit).
///
/// Stop tokens are not looked at: an id that can't be sampled just never stops anything.
///
/// # Errors
/// A validation error that names the field, the value and what would be right.
pub fn check_params(
    params: &SamplingParams,
    vocab: VocabSizes,
    max_logprobs: i32,
) -> Result<(), RequestError> {
    check(params, vocab, max_logprobs)
        .map_err(|message| RequestError::new(RequestErrorCode::ValidationError, message))
}

fn check(params: &SamplingParams, vocab: VocabSizes, max_logprobs: i32) -> Result<(), String> {
    let within = |name: &str, value: f32, range: std::ops::RangeInclusive<f32>| {
        if range.contains(&value) {
            return Ok(());
        }
        Err(format!(
            "{name} is {value}; it must be within {}..={}",
            range.start(),
            range.end()
        ))
    };
    if params.n != 1 {
        return Err(format!(
            "n is {}; a request to the core is for 1 answer",
            params.n
        ));
    }
    within("temperature", params.temperature, 0.0..=2.0)?;
    within("presence_penalty", params.presence_penalty, -2.0..=2.0)?;
    within("frequency_penalty", params.frequency_penalty, -2.0..=2.0)?;
    within("min_p", params.min_p, 0.0..=1.0)?;
    above_zero("top_p", params.top_p, 1.0)?;
    above_zero("repetition_penalty", params.repetition_penalty, f32::MAX)?;
    for (name, value) in [
        ("logprobs", params.logprobs),
        ("prompt_logprobs", params.prompt_logprobs),
    ] {
        let Some(value) = value else { continue };
        if value < -1 {
            return Err(format!(
                "{name} is {value}; it must be -1 (all) or at least 0"
            ));
        }
        if max_logprobs >= 0 && !(0..=max_logprobs).contains(&value) {
            return Err(format!(
                "{name} is {value}; it must be within 0..={max_logprobs} (max_logprobs)"
            ));
        }
    }

    let ids = |name: &str, ids: &[u32]| token_ids(name, ids, vocab);
    for (name, list) in [
        ("logprob_token_ids", &params.logprob_token_ids),
        ("prompt_logprob_token_ids", &params.prompt_logprob_token_ids),
    ] {
        let Some(list) = list else { continue };
        if list.len() > MAX_LOGPROB_TOKEN_IDS {
            let found = list.len();
            return Err(format!(
                "{name} has {found} ids; at most {MAX_LOGPROB_TOKEN_IDS} are allowed"
            ));
        }
        ids(name, list)?;
    }
    // Each step of each request reads the whole list.
    if params.logit_bias.len() > vocab.num_tokens() {
        let found = params.logit_bias.len();
        return Err(format!(
            "logit_bias has {found} ids; the vocabulary has {}",
            vocab.num_tokens()
        ));
    }
    for &(id, bias) in &params.logit_bias {
        ids("logit_bias", &[id])?;
        within(
            &format!("logit_bias of token id {id}"),
            bias,
            -100.0..=100.0,
        )?;
    }
    if let Some(allowed) = &params.allowed_token_ids {
        if allowed.is_empty() {
            return Err("allowed_token_ids is empty; it must name at least one id".to_owned());
        }
        // So a mask is one pass over the row, and a look for one id takes few steps.
        if !allowed.is_sorted_by(|a, b| a < b) {
            return Err("allowed_token_ids must ascend, each id once".to_owned());
        }
        ids("allowed_token_ids", allowed)?;
    }
    for word in &params.bad_words_token_ids {
        if word.is_empty() {
            return Err("bad_words_token_ids has an empty sequence; each needs a token".to_owned());
        }
        ids("bad_words_token_ids", word)?;
    }
    thinking(params, vocab)
}

/// `0 < value <= most`.
fn above_zero(name: &str, value: f32, most: f32) -> Result<(), String> {
    if value > 0.0 && value <= most {
        return Ok(());
    }
    let bound = if most == f32::MAX {
        "finite".to_owned()
    } else {
        format!("at most {most}")
    };
    Err(format!("{name} is {value}; it must be above 0 and {bound}"))
}

fn token_ids(name: &str, ids: &[u32], vocab: VocabSizes) -> Result<(), String> {
    let num_tokens = vocab.num_tokens();
    match ids.iter().find(|&&id| id as usize >= num_tokens) {
        None => Ok(()),
        Some(id) => Err(format!(
            "{name} has token id {id}; the vocabulary's ids are below {num_tokens}"
        )),
    }
}

fn thinking(params: &SamplingParams, vocab: VocabSizes) -> Result<(), String> {
    let Some(tokens) = &params.thinking_tokens else {
        if params.thinking_token_budget.is_none() {
            return Ok(());
        }
        return Err(
            "thinking_token_budget is set, but thinking_tokens is missing; a budget \
                    needs the tokens that open and close thinking"
                .to_owned(),
        );
    };
    for (name, sequence) in [
        ("thinking_tokens.start_token_ids", &tokens.start_token_ids),
        ("thinking_tokens.end_token_ids", &tokens.end_token_ids),
    ] {
        if sequence.is_empty() {
            return Err(format!("{name} is empty; it must name at least one token"));
        }
        token_ids(name, sequence, vocab)?;
    }
    let separator = &tokens.separator_token_ids;
    token_ids("thinking_tokens.separator_token_ids", separator, vocab)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ThinkingTokens;

    const VOCAB: VocabSizes = VocabSizes {
        logits: 128,
        tokenizer: 100,
    };

    fn message(change: impl FnOnce(&mut SamplingParams)) -> String {
        let mut params = SamplingParams::default();
        change(&mut params);
        let error = check_params(&params, VOCAB, 20).unwrap_err();
        assert_eq!(error.code, RequestErrorCode::ValidationError);
        assert!(!error.retryable);
        error.message
    }

    fn thinking_tokens(start: &[u32], end: &[u32]) -> Option<ThinkingTokens> {
        Some(ThinkingTokens {
            start_token_ids: start.to_vec(),
            end_token_ids: end.to_vec(),
            ..ThinkingTokens::default()
        })
    }

    #[test]
    fn the_ends_of_every_range_are_accepted() {
        let lowest = SamplingParams {
            temperature: 0.0,
            top_p: f32::MIN_POSITIVE,
            presence_penalty: -2.0,
            frequency_penalty: -2.0,
            repetition_penalty: f32::MIN_POSITIVE,
            logprobs: Some(-1),
            prompt_logprobs: Some(0),
            ..Default::default()
        };
        let highest = SamplingParams {
            temperature: 2.0,
            min_p: 1.0,
            top_k: u32::MAX,
            presence_penalty: 2.0,
            frequency_penalty: 2.0,
            repetition_penalty: f32::MAX,
            logprobs: Some(i32::MAX),
            logprob_token_ids: Some(vec![99; 128].into()),
            logit_bias: [(99, 100.0), (0, -100.0)].into(),
            allowed_token_ids: Some([99].into()),
            bad_words_token_ids: [vec![99]].into(),
            stop_token_ids: [u32::MAX].into(),
            eos_token_id: Some(u32::MAX),
            thinking_token_budget: Some(0),
            thinking_tokens: thinking_tokens(&[1], &[99]),
            ..Default::default()
        };
        for params in [SamplingParams::default(), lowest, highest] {
            assert_eq!(check_params(&params, VOCAB, -1), Ok(()));
        }
    }

    #[test]
    fn no_more_logprobs_than_the_engine_allows() {
        type Field = fn(&mut SamplingParams) -> &mut Option<i32>;
        let fields: [(&str, Field); 2] = [
            ("logprobs", |p| &mut p.logprobs),
            ("prompt_logprobs", |p| &mut p.prompt_logprobs),
        ];
        for (name, field) in fields {
            let checked = |value, max_logprobs| {
                let mut params = SamplingParams::default();
                *field(&mut params) = Some(value);
                check_params(&params, VOCAB, max_logprobs).map_err(|error| error.message)
            };
            for (value, max_logprobs) in [(0, 0), (20, 20), (-1, -1), (i32::MAX, -1)] {
                assert_eq!(checked(value, max_logprobs), Ok(()));
            }
            for (value, max_logprobs) in [(1, 0), (21, 20), (-1, 20), (i32::MAX, 20)] {
                let expected = format!(
                    "{name} is {value}; it must be within 0..={max_logprobs} (max_logprobs)"
                );
                assert_eq!(checked(value, max_logprobs), Err(expected));
            }
        }
    }

    #[test]
    fn numbers_outside_their_ranges_are_refused() {
        assert_eq!(
            message(|p| p.n = 3),
            "n is 3; a request to the core is for 1 answer"
        );
        assert_eq!(
            message(|p| p.temperature = f32::NAN),
            "temperature is NaN; it must be within 0..=2"
        );
        assert_eq!(
            message(|p| p.temperature = -0.1),
            "temperature is -0.1; it must be within 0..=2"
        );
        assert_eq!(
            message(|p| p.presence_penalty = 2.5),
            "presence_penalty is 2.5; it must be within -2..=2"
        );
        assert_eq!(
            message(|p| p.frequency_penalty = f32::INFINITY),
            "frequency_penalty is inf; it must be within -2..=2"
        );
        assert_eq!(
            message(|p| p.min_p = 1.5),
            "min_p is 1.5; it must be within 0..=1"
        );
        assert_eq!(
            message(|p| p.top_p = 0.0),
            "top_p is 0; it must be above 0 and at most 1"
        );
        assert_eq!(
            message(|p| p.top_p = 1.5),
            "top_p is 1.5; it must be above 0 and at most 1"
        );
        assert_eq!(
            message(|p| p.repetition_penalty = f32::INFINITY),
            "repetition_penalty is inf; it must be above 0 and finite"
        );
        assert_eq!(
            message(|p| p.logprobs = Some(-2)),
            "logprobs is -2; it must be -1 (all) or at least 0"
        );
        assert_eq!(
            message(|p| p.prompt_logprobs = Some(-7)),
            "prompt_logprobs is -7; it must be -1 (all) or at least 0"
        );
        assert_eq!(
            message(|p| p.logit_bias = [(1, f32::NAN)].into()),
            "logit_bias of token id 1 is NaN; it must be within -100..=100"
        );
    }

    #[test]
    fn ids_without_a_token_are_refused() {
        let outside = "has token id 100; the vocabulary's ids are below 100";
        type Change = fn(&mut SamplingParams);
        let cases: [(&str, Change); 7] = [
            ("logit_bias", |p| p.logit_bias = [(100, 0.0)].into()),
            ("allowed_token_ids", |p| {
                p.allowed_token_ids = Some([1, 100].into())
            }),
            ("bad_words_token_ids", |p| {
                p.bad_words_token_ids = [vec![1], vec![2, 100]].into()
            }),
            ("logprob_token_ids", |p| {
                p.logprob_token_ids = Some([100].into())
            }),
            ("prompt_logprob_token_ids", |p| {
                p.prompt_logprob_token_ids = Some([100].into())
            }),
            ("thinking_tokens.end_token_ids", |p| {
                p.thinking_token_budget = Some(1);
                p.thinking_tokens = thinking_tokens(&[1], &[100]);
            }),
            ("thinking_tokens.separator_token_ids", |p| {
                p.thinking_tokens = Some(ThinkingTokens {
                    separator_token_ids: vec![100],
                    ..thinking_tokens(&[1], &[2]).unwrap()
                });
            }),
        ];
        for (name, change) in cases {
            assert_eq!(message(change), format!("{name} {outside}"));
        }
    }

    #[test]
    fn empty_and_overlong_lists_are_refused() {
        assert_eq!(
            message(|p| p.allowed_token_ids = Some([].into())),
            "allowed_token_ids is empty; it must name at least one id"
        );
        for unordered in [[2, 1], [1, 1]] {
            assert_eq!(
                message(|p| p.allowed_token_ids = Some(unordered.into())),
                "allowed_token_ids must ascend, each id once"
            );
        }
        assert_eq!(
            message(|p| p.logit_bias = vec![(0, 1.0); 101].into()),
            "logit_bias has 101 ids; the vocabulary has 100"
        );
        assert_eq!(
            message(|p| p.bad_words_token_ids = [Vec::new()].into()),
            "bad_words_token_ids has an empty sequence; each needs a token"
        );
        assert_eq!(
            message(|p| p.logprob_token_ids = Some(vec![0; 129].into())),
            "logprob_token_ids has 129 ids; at most 128 are allowed"
        );
        assert_eq!(
            message(|p| p.prompt_logprob_token_ids = Some(vec![0; 129].into())),
            "prompt_logprob_token_ids has 129 ids; at most 128 are allowed"
        );
        assert_eq!(
            message(|p| p.thinking_token_budget = Some(1)),
            "thinking_token_budget is set, but thinking_tokens is missing; a budget needs the \
             tokens that open and close thinking"
        );
        assert_eq!(
            message(|p| {
                p.thinking_token_budget = Some(1);
                p.thinking_tokens = thinking_tokens(&[], &[1]);
            }),
            "thinking_tokens.start_token_ids is empty; it must name at least one token"
        );
    }
}
