//! Validation of sampling parameters against a model's limits.
//!
//! Ranges are vLLM V1's. Everything is checked here, before a request travels, so that the core
//! can rely on it; what the core nevertheless finds wrong ends that one request.

use protocol::{RequestOutputKind, SamplingParams, Shared};
use serde_json::{Map, Value};

use crate::error::ValidationError;
use crate::json_problem::json_problem;

/// Most answers to one prompt.
pub(crate) const MAX_N_SEQUENCES: u32 = 16_384;
/// Most ids in `logprob_token_ids` and in `prompt_logprob_token_ids`.
pub(crate) const MAX_LOGPROB_TOKEN_IDS: usize = 128;
/// Most entries of `bad_words`, and most token sequences that they turn into.
pub(crate) const MAX_BAD_WORDS: usize = 128;
/// Most bytes of a stop string, and of an entry of `bad_words`: longer ones are no text that a model writes by
/// itself.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 10;
/// Most bytes of all stop strings, and of all `bad_words`. What finds stop strings takes some 20 times as much.
pub(crate) const MAX_TEXTS_BYTES: usize = 16 << 10;
/// Most ids in `stop_token_ids`: every new token is looked for among them.
pub(crate) const MAX_STOP_TOKEN_IDS: usize = 1024;
/// The least signed integer of 64 bits, and the first number above the unsigned ones.
const I64_MIN: f64 = -9_223_372_036_854_775_808.0;
const U64_END: f64 = 18_446_744_073_709_551_616.0;
/// Temperatures below this mean greedy decoding.
pub(crate) const SAMPLING_EPS: f32 = 1e-5;
/// Lowest temperature above zero: lower ones overflow the softmax.
pub(crate) const MIN_TEMPERATURE: f32 = 0.01;

/// Parameters of a request that generates nothing.
pub(crate) fn params_without_text() -> SamplingParams {
    SamplingParams {
        max_tokens: Some(1),
        seed: Some(0),
        detokenize: false,
        output_kind: RequestOutputKind::FinalOnly,
        ..SamplingParams::default()
    }
}

/// What a model and its engine allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Longest sequence, prompt and output together.
    pub max_model_len: u32,
    /// Token ids are below this.
    pub vocab_size: u32,
    /// Most logprobs per token; -1 is no limit.
    pub max_logprobs: i32,
}

/// Checks every field and brings equal meanings to one form: greedy parameters lose their
/// filters, near-zero temperatures are raised to 0.01, biases are clamped.
///
/// # Errors
/// The first field out of range, with its value and its range.
pub fn verify(params: &mut SamplingParams, limits: &ModelLimits) -> Result<(), ValidationError> {
    verify_ranges(params)?;
    verify_lengths(params)?;
    verify_stops(params, limits)?;
    verify_logprobs(params, limits)?;
    verify_token_lists(params, limits)?;
    normalise(params)
}

fn check(
    ok: bool,
    parameter: &str,
    value: impl std::fmt::Display,
    range: &str,
) -> Result<(), ValidationError> {
    if ok {
        return Ok(());
    }
    let message = format!("{parameter} must be {range}, got {value}");
    Err(ValidationError::field(parameter, value, message))
}

/// Checks the numbers that have bounds whatever the model is.
pub(crate) fn verify_ranges(p: &SamplingParams) -> Result<(), ValidationError> {
    let within = |low: f32, high: f32, v: f32| v >= low && v <= high;
    check(
        (1..=MAX_N_SEQUENCES).contains(&p.n),
        "n",
        p.n,
        "between 1 and 16384",
    )?;
    check(
        within(-2.0, 2.0, p.presence_penalty),
        "presence_penalty",
        p.presence_penalty,
        "between -2 and 2",
    )?;
    check(
        within(-2.0, 2.0, p.frequency_penalty),
        "frequency_penalty",
        p.frequency_penalty,
        "between -2 and 2",
    )?;
    check(
        p.repetition_penalty.is_finite() && p.repetition_penalty > 0.0,
        "repetition_penalty",
        p.repetition_penalty,
        "finite and greater than 0",
    )?;
    check(
        within(0.0, 2.0, p.temperature),
        "temperature",
        p.temperature,
        "between 0 and 2",
    )?;
    check(
        p.top_p > 0.0 && p.top_p <= 1.0,
        "top_p",
        p.top_p,
        "greater than 0 and at most 1",
    )?;
    check(
        within(0.0, 1.0, p.min_p),
        "min_p",
        p.min_p,
        "between 0 and 1",
    )?;
    if let Some(interval) = p.stream_interval {
        check(interval >= 1, "stream_interval", interval, "at least 1")?;
    }
    // 0 turns it off, and then the others say nothing.
    if let Some(r) = p.repetition_detection.filter(|r| r.max_pattern_size > 0) {
        check(
            r.min_pattern_size <= r.max_pattern_size,
            "repetition_detection.min_pattern_size",
            r.min_pattern_size,
            "at most max_pattern_size",
        )?;
        check(
            r.min_count >= 2,
            "repetition_detection.min_count",
            r.min_count,
            "at least 2",
        )?;
    }
    Ok(())
}

/// Checks `max_tokens` and `min_tokens`; called again once an open `max_tokens` is known.
pub(crate) fn verify_lengths(p: &SamplingParams) -> Result<(), ValidationError> {
    if let Some(max_tokens) = p.max_tokens {
        check(
            max_tokens >= 1,
            "max_tokens",
            max_tokens,
            "at least 1, or absent for the rest of the context",
        )?;
        check(
            p.min_tokens <= max_tokens,
            "min_tokens",
            p.min_tokens,
            &format!("at most max_tokens ({max_tokens})"),
        )?;
    }
    Ok(())
}

fn verify_stops(p: &SamplingParams, limits: &ModelLimits) -> Result<(), ValidationError> {
    verify_texts("stop", &p.stop)?;
    check(
        p.stop_token_ids.len() <= MAX_STOP_TOKEN_IDS,
        "stop_token_ids",
        format!("{} ids", p.stop_token_ids.len()),
        &format!("a list of at most {MAX_STOP_TOKEN_IDS} token ids"),
    )?;
    if p.stop.iter().any(String::is_empty) {
        let message = "stop must not be or hold an empty string";
        return Err(ValidationError::field("stop", "\"\"", message));
    }
    if !p.stop.is_empty() && !p.detokenize {
        return Err(ValidationError::field(
            "stop",
            format!("{:?}", p.stop),
            "stop strings are matched on text: they need detokenize=true",
        ));
    }
    verify_ids("stop_token_ids", &p.stop_token_ids, limits)
}

/// Checks how long texts are that are looked for in answers.
fn verify_texts(name: &str, texts: &[String]) -> Result<(), ValidationError> {
    let longest = texts.iter().map(String::len).max().unwrap_or(0);
    check(
        longest <= MAX_TEXT_BYTES,
        name,
        format!("one of {longest} bytes"),
        &format!("made of texts of at most {MAX_TEXT_BYTES} bytes each"),
    )?;
    let all: usize = texts.iter().map(String::len).sum();
    check(
        all <= MAX_TEXTS_BYTES,
        name,
        format!("{all} bytes"),
        &format!("made of texts of at most {MAX_TEXTS_BYTES} bytes together"),
    )
}

/// Checks that a list of ids isn't longer than the vocabulary, in which case it has some of them twice.
fn verify_list_len(name: &str, len: usize, limits: &ModelLimits) -> Result<(), ValidationError> {
    check(
        len <= limits.vocab_size as usize,
        name,
        format!("{len} ids"),
        &format!(
            "a list of at most as many token ids as the vocabulary has, {}",
            limits.vocab_size
        ),
    )
}

/// Checks how many logprobs per token the field `name` asks for.
pub(crate) fn verify_num_logprobs(
    name: &str,
    value: i32,
    limits: &ModelLimits,
) -> Result<(), ValidationError> {
    check(
        value >= -1,
        name,
        value,
        "at least 0, or -1 for the whole vocabulary",
    )?;
    if limits.max_logprobs < 0 {
        return Ok(());
    }
    if value == -1 {
        return Err(ValidationError::field(
            name,
            value,
            format!("{name} of -1 (all tokens) needs --max-logprobs -1"),
        ));
    }
    check(
        value <= limits.max_logprobs,
        name,
        value,
        &format!(
            "at most {} here (--max-logprobs raises the limit; -1 lifts it)",
            limits.max_logprobs
        ),
    )
}

fn verify_logprobs(p: &SamplingParams, limits: &ModelLimits) -> Result<(), ValidationError> {
    for (name, value) in [
        ("logprobs", p.logprobs),
        ("prompt_logprobs", p.prompt_logprobs),
    ] {
        if let Some(value) = value {
            verify_num_logprobs(name, value, limits)?;
        }
    }
    for (name, ids) in [
        ("logprob_token_ids", &p.logprob_token_ids),
        ("prompt_logprob_token_ids", &p.prompt_logprob_token_ids),
    ] {
        let Some(ids) = ids else { continue };
        check(
            !ids.is_empty() && ids.len() <= MAX_LOGPROB_TOKEN_IDS,
            name,
            format!("{} ids", ids.len()),
            "a list of 1 to 128 token ids",
        )?;
        verify_ids(name, ids, limits)?;
    }
    Ok(())
}

fn verify_token_lists(p: &SamplingParams, limits: &ModelLimits) -> Result<(), ValidationError> {
    verify_list_len("logit_bias", p.logit_bias.len(), limits)?;
    for &(id, bias) in &p.logit_bias {
        check_id("logit_bias", id, limits)?;
        check(
            !bias.is_nan(),
            "logit_bias",
            bias,
            "a number; beyond -100 and 100 it counts as these",
        )?;
    }
    if let Some(ids) = &p.allowed_token_ids {
        check(
            !ids.is_empty(),
            "allowed_token_ids",
            "[]",
            "absent or a non-empty list of token ids",
        )?;
        verify_list_len("allowed_token_ids", ids.len(), limits)?;
        verify_ids("allowed_token_ids", ids, limits)?;
    }
    check(
        p.bad_words.len() <= MAX_BAD_WORDS,
        "bad_words",
        format!("{} words", p.bad_words.len()),
        "a list of at most 128 words",
    )?;
    verify_texts("bad_words", &p.bad_words)?;
    if p.bad_words.iter().any(String::is_empty) {
        return Err(ValidationError::field(
            "bad_words",
            format!("{:?}", p.bad_words),
            "bad_words must not hold an empty string",
        ));
    }
    if let Some(args) = &p.extra_args {
        let map: Map<String, Value> = serde_json::from_str(args).map_err(|error| {
            let message = format!("extra_args must be a JSON object: {}", json_problem(&error));
            ValidationError::field("extra_args", &**args, message)
        })?;
        map.values().try_for_each(verify_extra_arg)?;
    }
    Ok(())
}

/// Integers must have 64 bits, signed or unsigned. One that has more is read as a float, so a
/// float without a fraction and of that size is refused as well.
fn verify_extra_arg(value: &Value) -> Result<(), ValidationError> {
    match value {
        Value::Number(number) => {
            let has_64_bits =
                |float: f64| float.fract() != 0.0 || (I64_MIN..U64_END).contains(&float);
            check(
                number.is_i64() || number.is_u64() || number.as_f64().is_some_and(has_64_bits),
                "extra_args",
                number,
                "made of integers from -2^63 to 2^64-1",
            )
        }
        Value::Array(values) => values.iter().try_for_each(verify_extra_arg),
        Value::Object(map) => map.values().try_for_each(verify_extra_arg),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

fn verify_ids(name: &str, ids: &[u32], limits: &ModelLimits) -> Result<(), ValidationError> {
    ids.iter().try_for_each(|&id| check_id(name, id, limits))
}

fn check_id(name: &str, id: u32, limits: &ModelLimits) -> Result<(), ValidationError> {
    check(
        id < limits.vocab_size,
        name,
        id,
        &format!(
            "token ids below the vocabulary's size, {}",
            limits.vocab_size
        ),
    )
}

fn normalise(p: &mut SamplingParams) -> Result<(), ValidationError> {
    if p.temperature < SAMPLING_EPS {
        p.temperature = 0.0;
        p.top_p = 1.0;
        p.top_k = 0;
        p.min_p = 0.0;
    } else if p.temperature < MIN_TEMPERATURE {
        tracing::warn!(
            "temperature {} is below {MIN_TEMPERATURE} and may overflow; using {MIN_TEMPERATURE}",
            p.temperature
        );
        p.temperature = MIN_TEMPERATURE;
    }
    if p.logit_bias.iter().any(|(_, bias)| bias.abs() > 100.0) {
        let clamped = p.logit_bias.iter();
        p.logit_bias = clamped
            .map(|&(id, bias)| (id, bias.clamp(-100.0, 100.0)))
            .collect();
    }
    if let Some(ids) = &mut p.allowed_token_ids {
        ascend(ids);
    }
    Ok(())
}

/// Sorts ids, and drops those that are there twice.
fn ascend(ids: &mut Shared<[u32]>) {
    if !ids.is_sorted_by(|a, b| a < b) {
        let mut ascending = ids.to_vec();
        ascending.sort_unstable();
        ascending.dedup();
        *ids = ascending.into();
    }
}

#[cfg(test)]
mod tests;
