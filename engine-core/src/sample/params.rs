//! The core's own look at sampling parameters: a second line behind the frontend's validation.

use protocol::{RequestError, RequestErrorCode, SamplingParams};

use super::metadata::VocabSizes;

/// Most ids of `logprob_token_ids`.
const MAX_LOGPROB_TOKEN_IDS: usize = 128;

/// Refuses what sampling can't honour: numbers outside their ranges, ids that have no logit.
///
/// Stop tokens are not looked at: an id that can't be sampled just never stops anything.
///
/// # Errors
/// A validation error that names the field, the value and what would be right.
pub fn check_params(params: &SamplingParams, vocab: VocabSizes) -> Result<(), RequestError> {
    check(params, vocab).map_err(|message| RequestError {
        code: RequestErrorCode::ValidationError,
        message,
        retryable: false,
    })
}

fn check(params: &SamplingParams, vocab: VocabSizes) -> Result<(), String> {
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
        if let Some(value) = value.filter(|&value| value < -1) {
            return Err(format!(
                "{name} is {value}; it must be -1 (all) or at least 0"
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
                "{name} has {found} ids; at most {MAX_LOGPROB_TOKEN_IDS} go"
            ));
        }
        ids(name, list)?;
    }
    for &(id, bias) in &params.logit_bias {
        ids("logit_bias", &[id])?;
        within("logit_bias", bias, -100.0..=100.0)?;
    }
    if let Some(allowed) = &params.allowed_token_ids {
        if allowed.is_empty() {
            return Err("allowed_token_ids is empty; it must name at least one id".to_owned());
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
    if params.thinking_token_budget.is_none() {
        return Ok(());
    }
    let Some(tokens) = &params.thinking_tokens else {
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
    Ok(())
}
