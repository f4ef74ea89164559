//! What completions and chat completions have in common.

use protocol::{RepetitionDetection, RequestOutputKind, SamplingParams, Shared};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::default_sampling_params::DefaultSamplingParams;
use super::fields::{Fields, parse};
use super::structured_outputs::{self, ConstraintSettings, RequestConstraint};
use super::warnings::Warnings;
use super::{ignored_fields, known_keys, llama_cpp};
use crate::error::{ValidationError, cut_short};
use crate::input_processor::{GenerateRequest, Prompt, TruncationSide};
use crate::json_problem::number_text;
use crate::sampling_params::MAX_N_SEQUENCES;

/// Most stop strings per request.
const MAX_STOP_STRINGS: usize = 128;
/// The limit on an answer's tokens, where a request doesn't call it otherwise.
const MAX_TOKENS: &str = "max_tokens";
/// Longest `request_id` in characters.
const MAX_REQUEST_ID_CHARS: usize = 128;
/// Longest `cache_salt` in characters.
const MAX_CACHE_SALT_CHARS: usize = 128;

/// How a stream ends; only with `stream: true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// A last chunk with the usage.
    #[serde(default)]
    pub include_usage: bool,
    /// The usage so far in every chunk.
    #[serde(default)]
    pub continuous_usage_stats: bool,
}

/// The fields that both kinds of request have. `None` is absent or `null`.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(
    missing_docs,
    reason = "the API's names; their meaning is SamplingParams'"
)]
pub struct CommonFields {
    pub model: Option<String>,
    pub n: Option<u32>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub seed: Option<u64>,
    pub stop: Shared<[String]>,
    pub stop_token_ids: Shared<[u32]>,
    pub include_stop_str_in_output: bool,
    pub ignore_eos: bool,
    pub max_tokens: Option<u32>,
    pub max_tokens_field: &'static str,
    pub min_tokens: u32,
    pub skip_special_tokens: bool,
    pub spaces_between_special_tokens: bool,
    pub logit_bias: Shared<[(u32, f32)]>,
    pub allowed_token_ids: Option<Shared<[u32]>>,
    pub bad_words: Shared<[String]>,
    pub prompt_logprobs: Option<i32>,
    pub logprob_token_ids: Option<Shared<[u32]>>,
    pub repetition_detection: Option<RepetitionDetection>,
    pub thinking_token_budget: Option<u32>,
    pub truncate_prompt_tokens: Option<i64>,
    pub truncation_side: TruncationSide,
    pub stream: bool,
    pub stream_options: Option<StreamOptions>,
    pub stream_interval: Option<u32>,
    pub include_warnings: bool,
    pub warnings: Warnings,
    pub priority: i64,
    pub request_id: Option<String>,
    pub cache_salt: Option<String>,
    pub return_token_ids: bool,
    pub return_tokens_as_token_ids: bool,
    pub include_trace: bool,
    pub constraint: Option<RequestConstraint>,
    pub constraint_settings: Option<ConstraintSettings>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl CommonFields {
    /// Takes the common fields out of a request.
    pub(super) fn take(fields: &mut Fields) -> Result<Self, ValidationError> {
        refuse_unsupported(fields)?;
        llama_cpp::take(fields)?;
        let constraint = structured_outputs::take(fields)?;
        let max_tokens = take_max_tokens(fields, MAX_TOKENS)?;
        let n_predict = llama_cpp::take_n_predict(fields, max_tokens)?;
        let common = Self {
            model: fields.take("model")?,
            n: take_n(fields)?,
            temperature: take_float(fields, "temperature")?,
            top_p: take_float(fields, "top_p")?,
            top_k: take_or_off(fields, "top_k")?.map(|top_k| top_k.unwrap_or(0)),
            min_p: take_float(fields, "min_p")?,
            presence_penalty: take_float(fields, "presence_penalty")?,
            frequency_penalty: take_float(fields, "frequency_penalty")?,
            repetition_penalty: take_float(fields, "repetition_penalty")?,
            seed: take_seed(fields)?,
            stop: take_stop(fields)?,
            stop_token_ids: fields.take("stop_token_ids")?.unwrap_or_default(),
            include_stop_str_in_output: fields.take("include_stop_str_in_output")?.unwrap_or(false),
            ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
            max_tokens: max_tokens.or(n_predict),
            max_tokens_field: match n_predict {
                Some(_) => llama_cpp::N_PREDICT,
                None => MAX_TOKENS,
            },
            min_tokens: fields.take("min_tokens")?.unwrap_or(0),
            skip_special_tokens: fields.take("skip_special_tokens")?.unwrap_or(true),
            spaces_between_special_tokens: fields
                .take("spaces_between_special_tokens")?
                .unwrap_or(true),
            logit_bias: take_logit_bias(fields)?,
            allowed_token_ids: fields.take("allowed_token_ids")?,
            bad_words: fields.take("bad_words")?.unwrap_or_default(),
            prompt_logprobs: fields.take("prompt_logprobs")?,
            logprob_token_ids: fields.take("logprob_token_ids")?,
            repetition_detection: take_repetition_detection(fields)?,
            thinking_token_budget: take_or_off(fields, "thinking_token_budget")?.flatten(),
            truncation_side: take_truncation_side(fields)?,
            truncate_prompt_tokens: fields.take("truncate_prompt_tokens")?,
            stream: fields.take("stream")?.unwrap_or(false),
            stream_options: take_stream_options(fields)?,
            include_warnings: fields.take("include_warnings")?.unwrap_or(false),
            warnings: Warnings::default(),
            stream_interval: fields.take("stream_interval")?,
            priority: fields.take("priority")?.unwrap_or(0),
            request_id: fields.take("request_id")?,
            cache_salt: fields.take("cache_salt")?,
            return_token_ids: fields.take("return_token_ids")?.unwrap_or(false),
            return_tokens_as_token_ids: fields.take("return_tokens_as_token_ids")?.unwrap_or(false),
            include_trace: fields.take("include_trace")?.unwrap_or(false),
            constraint: constraint.constraint,
            constraint_settings: constraint.settings,
        };
        llama_cpp::take_repeat_last_n(fields, common.has_penalty())?;
        if common.min_tokens > 0 && common.constraint.is_some() {
            let message =
                ": an answer under a constraint ends where it is complete, whatever this says";
            fields.warnings().push("min_tokens", message);
        }
        if common.ignore_eos && common.constraint.is_some() {
            let message = " has no effect: an answer under a constraint ends where it is complete";
            fields.warnings().push("ignore_eos", message);
        }
        if fields.is_strict() {
            common.verify_strictly()?;
        }
        common.verify()?;
        Ok(common)
    }

    /// The warnings for the answer, if the request wants them there.
    pub(crate) fn told_warnings(&self) -> Option<Vec<String>> {
        self.include_warnings.then(|| self.warnings.texts())
    }

    fn has_penalty(&self) -> bool {
        let is_on = |penalty: Option<f32>, off: f32| penalty.is_some_and(|penalty| penalty != off);
        is_on(self.presence_penalty, 0.0)
            || is_on(self.frequency_penalty, 0.0)
            || is_on(self.repetition_penalty, 1.0)
    }

    /// Refuses what has no effect.
    fn verify_strictly(&self) -> Result<(), ValidationError> {
        if self.stream_options.is_some() && !self.stream {
            return Err(ValidationError::about(
                "stream_options",
                "stream_options is only allowed with stream=true",
            ));
        }
        if let Some(n) = self.n.filter(|n| *n > 1)
            && self.temperature == Some(0.0)
        {
            let message =
                format!("n must be 1 with temperature 0: all answers would be the same, got {n}");
            return Err(ValidationError::field("n", n, message));
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), ValidationError> {
        if self.prompt_logprobs.is_some() && self.stream {
            return Err(ValidationError::field(
                "prompt_logprobs",
                self.prompt_logprobs.unwrap_or_default(),
                "prompt_logprobs is not available with stream=true",
            ));
        }
        if self.stop.len() > MAX_STOP_STRINGS {
            return Err(ValidationError::field(
                "stop",
                format!("{} strings", self.stop.len()),
                format!("stop must hold at most {MAX_STOP_STRINGS} strings"),
            ));
        }
        check_names(self.request_id.as_deref(), self.cache_salt.as_deref())
    }

    /// The engine's request for one prompt. `max_tokens` is the limit that the request or its
    /// kind gives.
    pub(super) fn generate_request(
        &self,
        request_id: String,
        prompt: Prompt,
        max_tokens: Option<u32>,
        defaults: &DefaultSamplingParams,
    ) -> GenerateRequest {
        let base = defaults.to_sampling_params();
        let sampling_params = SamplingParams {
            n: self.n.unwrap_or(1),
            temperature: self.temperature.unwrap_or(base.temperature),
            top_p: self.top_p.unwrap_or(base.top_p),
            top_k: self.top_k.unwrap_or(base.top_k),
            min_p: self.min_p.unwrap_or(base.min_p),
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            seed: self.seed,
            stop: self.stop.clone(),
            stop_token_ids: self.stop_token_ids.clone(),
            include_stop_str_in_output: self.include_stop_str_in_output,
            ignore_eos: self.ignore_eos,
            max_tokens,
            min_tokens: self.min_tokens,
            skip_special_tokens: self.skip_special_tokens,
            spaces_between_special_tokens: self.spaces_between_special_tokens,
            logit_bias: self.logit_bias.clone(),
            allowed_token_ids: self.allowed_token_ids.clone(),
            bad_words: self.bad_words.clone(),
            prompt_logprobs: self.prompt_logprobs,
            logprob_token_ids: self.logprob_token_ids.clone(),
            include_trace: self.include_trace,
            repetition_detection: self.repetition_detection,
            thinking_token_budget: self.thinking_token_budget,
            stream_interval: self.stream_interval,
            output_kind: if self.stream {
                RequestOutputKind::Delta
            } else {
                RequestOutputKind::FinalOnly
            },
            ..base
        };
        let mut request = GenerateRequest {
            truncate_prompt_tokens: self.truncate_prompt_tokens,
            truncation_side: self.truncation_side,
            priority: self.priority,
            cache_salt: self.cache_salt.clone(),
            max_tokens_field: Some(self.max_tokens_field.to_owned()),
            ..GenerateRequest::new(request_id, prompt, sampling_params)
        };
        if let Some(constraint) = &self.constraint {
            request.constrain(constraint.clone());
        }
        request
    }
}

impl GenerateRequest {
    /// Puts the answer under a constraint, instead of one that it may be under.
    pub(super) fn constrain(&mut self, constraint: RequestConstraint) {
        self.sampling_params.structured_outputs = Some(constraint.params);
        self.constraint_field = Some(constraint.field);
        self.constraint_parts = constraint.parts;
        self.whitespace_field = constraint.whitespace_field;
    }
}

/// Fields of both kinds that only pass where they ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    for (name, instead) in [
        ("use_beam_search", "answers are sampled; n gives several"),
        (
            "return_weight_versions",
            "the weights never change while the server runs; leave it out",
        ),
    ] {
        fields.refuse_unless(name, instead, |v| v == &Value::Bool(false))?;
    }
    let instead = "n gives all answers; choose among them";
    fields.refuse_unless("best_of", instead, |v| v.as_u64() == Some(1))?;
    let instead = "it is of beam search; leave it out";
    fields.refuse_unless("length_penalty", instead, |v| v.as_f64() == Some(1.0))?;
    let instead = "the engine has no plug-ins that could read it; leave it out";
    fields.refuse_unless("vllm_xargs", instead, |v| v == &json!({}))?;
    let instead = "every prefix is cached for all requests; leave it out";
    fields.refuse_unless("session_id", instead, |v| v == "")?;
    for name in ["lora", "lora_request"] {
        fields.refuse_unless(name, "the server has no adapters", |v| v == &json!([]))?;
    }
    for (name, instead) in [
        ("prompt_embeds", "a prompt is text or token ids"),
        (
            "kv_transfer_params",
            "one engine computes the whole answer; leave it out",
        ),
        (
            "ec_transfer_params",
            "the engine reads text alone; leave it out",
        ),
        ("watermarking", "answers bear no watermark; leave it out"),
    ] {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    Ok(())
}

/// Whether an id is printable ASCII, and not too long.
fn is_request_id(id: &str) -> bool {
    let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    (1..=MAX_REQUEST_ID_CHARS).contains(&id.len()) && id.bytes().all(is_printable)
}

/// How many answers; whether there may be so many is for the sampling parameters to say.
fn take_n(fields: &mut Fields) -> Result<Option<u32>, ValidationError> {
    let Some(value) = fields.take_value("n") else {
        return Ok(None);
    };
    let n = value.as_u64().and_then(|n| u32::try_from(n).ok());
    match n.filter(|n| (1..=MAX_N_SEQUENCES).contains(n)) {
        Some(n) => Ok(Some(n)),
        None => {
            let got = cut_short(&number_text(&value));
            let message =
                format!("n must be a whole number between 1 and {MAX_N_SEQUENCES}, got {got}");
            Err(ValidationError::field("n", got, message))
        }
    }
}

/// Which side of a prompt is kept, where one is cut.
fn take_truncation_side(fields: &mut Fields) -> Result<TruncationSide, ValidationError> {
    const FIELD: &str = "truncation_side";
    let side: Option<TruncationSide> = fields.take(FIELD)?;
    if side.is_some() && !fields.has("truncate_prompt_tokens") {
        let message = "truncation_side needs truncate_prompt_tokens: nothing is cut without it";
        return Err(ValidationError::about(FIELD, message));
    }
    Ok(side.unwrap_or_default())
}

/// A number, which is refused as it was sent where it is none of 32 bits.
fn take_float(fields: &mut Fields, name: &'static str) -> Result<Option<f32>, ValidationError> {
    let Some(value) = fields.take_value(name) else {
        return Ok(None);
    };
    let float: f32 = parse(name, &value)?;
    if !float.is_finite() {
        let value = number_text(&value);
        let message = format!("{name} is far out of range, got {value}");
        return Err(ValidationError::field(name, value, message));
    }
    Ok(Some(float))
}

/// A count that may be -1 for "off": `Some(None)` is off.
fn take_or_off(
    fields: &mut Fields,
    name: &'static str,
) -> Result<Option<Option<u32>>, ValidationError> {
    let Some(value) = fields.take::<i64>(name)? else {
        return Ok(None);
    };
    if value == -1 {
        return Ok(Some(None));
    }
    u32::try_from(value)
        .map(|value| Some(Some(value)))
        .map_err(|_| {
            ValidationError::field(
                name,
                value,
                format!("{name} must be between 0 and 4294967295, or -1 for off, got {value}"),
            )
        })
}

/// Takes a limit on the answer's tokens. Whether 0 will do is the kind's to say.
pub(crate) fn take_max_tokens(
    fields: &mut Fields,
    name: &'static str,
) -> Result<Option<u32>, ValidationError> {
    let Some(value) = fields.take_value(name) else {
        return Ok(None);
    };
    match value.as_u64().and_then(|value| u32::try_from(value).ok()) {
        Some(max_tokens) => Ok(Some(max_tokens)),
        None => Err(wrong_max_tokens(name, &number_text(&value))),
    }
}

/// What `max_tokens` would have to be.
pub(super) fn wrong_max_tokens(name: &str, value: &str) -> ValidationError {
    let value = cut_short(value);
    let message = format!(
        "{name} must be a whole number from 1 to 4294967295, or absent for the default, got {value}"
    );
    ValidationError::field(name, value, message)
}

fn take_stream_options(fields: &mut Fields) -> Result<Option<StreamOptions>, ValidationError> {
    const FIELD: &str = "stream_options";
    let Some(mut map) = fields.take_object(FIELD)? else {
        return Ok(None);
    };
    if let Some(value) = map
        .remove("include_obfuscation")
        .filter(|value| !value.is_null())
    {
        ignored_fields::check(
            "stream_options.include_obfuscation",
            value,
            fields.is_strict(),
        )?;
    }
    let mut take = |name: &str| match map.remove(name) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => parse::<bool>(&format!("{FIELD}.{name}"), value),
    };
    let options = StreamOptions {
        include_usage: take("include_usage")?,
        continuous_usage_stats: take("continuous_usage_stats")?,
    };
    known_keys::check(FIELD, &map, &["include_usage", "continuous_usage_stats"])?;
    Ok(Some(options))
}

fn take_seed(fields: &mut Fields) -> Result<Option<u64>, ValidationError> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected an integer of 64 bits")]
    enum Seed {
        Signed(i64),
        Unsigned(u64),
    }
    Ok(match fields.take("seed")? {
        None | Some(Seed::Signed(-1)) => None,
        // Every 64-bit pattern is a seed of its own.
        Some(Seed::Signed(seed)) => Some(u64::from_le_bytes(seed.to_le_bytes())),
        Some(Seed::Unsigned(seed)) => Some(seed),
    })
}

fn take_stop(fields: &mut Fields) -> Result<Shared<[String]>, ValidationError> {
    Ok(match fields.take("stop")? {
        None => Shared::default(),
        Some(OneOrMany::One(stop)) => [stop].into(),
        Some(OneOrMany::Many(stop)) => stop.into(),
    })
}

fn take_logit_bias(fields: &mut Fields) -> Result<Shared<[(u32, f32)]>, ValidationError> {
    let Some(bias) = fields.take_object("logit_bias")? else {
        return Ok(Shared::default());
    };
    bias.iter()
        .map(|(id, value)| {
            let id = id.parse().map_err(|_| {
                ValidationError::field(
                    "logit_bias",
                    id,
                    format!("logit_bias: keys are token ids, got {id:?}"),
                )
            })?;
            // Narrowed after clamping, so that no large number turns infinite.
            match value.as_f64() {
                #[allow(clippy::cast_possible_truncation, reason = "within -100..=100")]
                Some(value) => Ok((id, value.clamp(-100.0, 100.0) as f32)),
                None => Err(ValidationError::field(
                    "logit_bias",
                    value,
                    format!(
                        "logit_bias: values are numbers (beyond -100 and 100 they count as \
                         these), got {value}"
                    ),
                )),
            }
        })
        .collect()
}

fn take_repetition_detection(
    fields: &mut Fields,
) -> Result<Option<RepetitionDetection>, ValidationError> {
    const FIELD: &str = "repetition_detection";
    const KEYS: [&str; 3] = ["max_pattern_size", "min_pattern_size", "min_count"];
    let Some(object) = fields.take_object(FIELD)? else {
        return Ok(None);
    };
    known_keys::check(FIELD, &object, &KEYS)?;
    let take = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => parse::<u32>(&format!("{FIELD}.{key}"), value).map(Some),
    };
    let size = |key: &str| take(key).map(Option::unwrap_or_default);
    Ok(Some(RepetitionDetection {
        max_pattern_size: size("max_pattern_size")?,
        min_pattern_size: size("min_pattern_size")?,
        min_count: size("min_count")?,
    }))
}

/// Checks the names that a client may give a request and its share of the prefix cache. Every answer carries them.
///
/// # Errors
/// One is empty, too long, or has characters that it can't have.
pub(crate) fn check_names(
    request_id: Option<&str>,
    cache_salt: Option<&str>,
) -> Result<(), ValidationError> {
    if let Some(id) = request_id
        && !is_request_id(id)
    {
        // As JSON, in which line ends show.
        let message = format!(
            "request_id must have 1 to {MAX_REQUEST_ID_CHARS} characters of printable ASCII, or \
             be absent, got {}",
            cut_short(&json!(id).to_string())
        );
        return Err(ValidationError::field("request_id", json!(id), message));
    }
    if let Some(salt) = cache_salt
        && (salt.is_empty()
            || salt.chars().count() > MAX_CACHE_SALT_CHARS
            || salt.contains(['@', '/', '\\', '\0']))
    {
        return Err(ValidationError::field(
            "cache_salt",
            salt,
            format!(
                "cache_salt must have 1 to {MAX_CACHE_SALT_CHARS} characters, none of \
                 them @, /, \\ or NUL"
            ),
        ));
    }
    Ok(())
}
