//! `/inference/v1/generate`: token ids in, token ids out, as vLLM has it. No chat template and no text is involved, but
//! for stop strings and `bad_words`.

mod response;

use serde_json::{Map, Value, json};

use super::default_sampling_params::DefaultSamplingParams;
use super::error::ServingError;
use super::fields::{Fields, list, missing, object};
use super::ignored_fields::Api;
use super::known_keys;
use super::own_words::OwnWords;
use super::request::{CommonFields, wrong_max_tokens};
use crate::error::{GenerateError, ValidationError, cut_short};
use crate::input_processor::{GenerateRequest, Prompt, replace_name};
use crate::json_problem::number_text;

pub use response::{
    TokenGenerateChoice, TokenGenerateResponse, TokenGenerateStreamResponse, TokenLogprob,
    TokenLogprobs, TokenLogprobsContent,
};

const TOKEN_IDS: &str = "token_ids";
const SAMPLING_PARAMS: &str = "sampling_params";

/// Fields of a request.
const FIELDS: [&str; 18] = [
    "request_id",
    TOKEN_IDS,
    SAMPLING_PARAMS,
    "model",
    "reasoning_ended",
    "reasoning_parser_kwargs",
    "return_token_ids",
    "return_token_logprobs",
    "output_mode",
    "stream",
    "stream_options",
    "cache_salt",
    "priority",
    "token_offsets",
    "features",
    "content_parts",
    "kv_transfer_params",
    "ec_transfer_params",
];

/// Fields of `sampling_params`.
const SAMPLING_FIELDS: [&str; 30] = [
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "logprob_token_ids",
    "flat_logprobs",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stream_interval",
    "structured_outputs",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "thinking_token_budget",
    "repetition_detection",
    "extra_args",
];

/// A request for `/inference/v1/generate`.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenGenerateRequest {
    /// What the answers continue.
    pub token_ids: Vec<u32>,
    /// Number of logprobs per token.
    pub logprobs: Option<i32>,
    /// Whether thinking is over before the first token, so that a constraint holds from there.
    pub reasoning_ended: bool,
    /// Everything else.
    pub common: CommonFields,
}

impl TokenGenerateRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name; those of the sampling
    /// parameters begin with `sampling_params.`.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        Self::read(body, false)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); and what has no effect.
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        Self::read(body, true)
    }

    fn read(body: Value, is_strict: bool) -> Result<Self, ValidationError> {
        let mut outer = Fields::of(Api::Completions, body, is_strict)?;
        let mut merged = Map::new();
        for name in FIELDS {
            let value = outer.take_value(name);
            merged.extend(value.map(|value| (name.to_owned(), value)));
        }
        outer.finish().map_err(without_other_constraints)?;
        let token_ids = take_token_ids(merged.remove(TOKEN_IDS))?;
        let Some(sampling) = merged.remove(SAMPLING_PARAMS) else {
            return Err(missing(SAMPLING_PARAMS));
        };
        let sampling = object(SAMPLING_PARAMS, sampling)?;
        known_keys::check(SAMPLING_PARAMS, &sampling, &SAMPLING_FIELDS)?;
        // Read as those of a completion are.
        merged.extend(sampling);
        let fields = Fields::of(Api::Completions, Value::Object(merged), is_strict)?;
        Self::from_fields(fields, token_ids).map_err(in_own_words)
    }

    fn from_fields(mut fields: Fields, token_ids: Vec<u32>) -> Result<Self, ValidationError> {
        refuse_unsupported(&mut fields)?;
        let common = CommonFields::take(&mut fields)?;
        fields.take::<bool>("detokenize")?;
        fields.take::<bool>("flat_logprobs")?;
        let mut request = Self {
            token_ids,
            logprobs: fields.take("logprobs")?,
            reasoning_ended: fields.take("reasoning_ended")?.unwrap_or(false),
            common,
        };
        request.common.warnings = fields.finish()?;
        request.common.warnings.rename(own_name);
        request.verify()?;
        Ok(request)
    }

    fn verify(&self) -> Result<(), ValidationError> {
        if self.common.logprob_token_ids.is_some() && self.logprobs.is_none() {
            let message = "logprob_token_ids needs logprobs, which shows them";
            return Err(ValidationError::about("logprob_token_ids", message));
        }
        if let Some(settings) = &self.common.constraint_settings {
            return Err(settings.without_constraint());
        }
        if self.common.max_tokens == Some(0) {
            return Err(wrong_max_tokens("max_tokens", "0"));
        }
        Ok(())
    }

    /// The engine's request, which takes the tokens. Without a limit of its own it may use the rest of the context.
    pub fn take_generate_request(
        &mut self,
        request_id: &str,
        defaults: &DefaultSamplingParams,
    ) -> GenerateRequest {
        let prompt = Prompt::TokenIds(std::mem::take(&mut self.token_ids));
        let max_tokens = self.common.max_tokens.or(defaults.max_tokens);
        let mut request =
            self.common
                .generate_request(request_id.to_owned(), prompt, max_tokens, defaults);
        let params = &mut request.sampling_params;
        params.logprobs = self.logprobs;
        // Stop strings are looked for in text.
        params.detokenize = !params.stop.is_empty();
        if self.reasoning_ended
            && let Some(constraint) = &mut params.structured_outputs
        {
            constraint.make_mut().enable_in_reasoning = true;
        }
        request.prompt_field = Some(TOKEN_IDS.to_owned());
        let words = OwnWords {
            names: vec![
                ("max_tokens", "sampling_params.max_tokens"),
                ("structured_outputs", "sampling_params.structured_outputs"),
            ],
            ..OwnWords::default()
        };
        words.of_request(&mut request);
        request
    }
}

/// Takes the prompt; what is no token's id is named by its index. Whether the model has them all is the engine's to
/// say.
fn take_token_ids(value: Option<Value>) -> Result<Vec<u32>, ValidationError> {
    let Some(value) = value else {
        return Err(missing(TOKEN_IDS));
    };
    let ids = list(TOKEN_IDS, value)?;
    if ids.is_empty() {
        let message = "token_ids must hold at least one token id";
        return Err(ValidationError::field(TOKEN_IDS, "[]", message));
    }
    let id_of = |(i, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            let field = format!("{TOKEN_IDS}[{i}]");
            let value = cut_short(&number_text(value));
            let message = format!("{field} must be a token id, a whole number from 0, got {value}");
            ValidationError::field(field, value, message)
        })
    };
    ids.iter().enumerate().map(id_of).collect()
}

/// Fields that only pass where they ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    const TEXT_ALONE: &str = "the engine reads and writes text alone";
    let instead = "this route tells token ids; /detokenize makes text of them, and /v1/completions takes token ids too";
    fields.refuse_unless("output_mode", instead, |mode| mode == "tokens")?;
    let instead = "ask for sampling_params.logprobs";
    fields.refuse_unless("return_token_logprobs", instead, |v| v == false)?;
    let instead = "leave it out: the engine finds out from the prompt where thinking stands";
    fields.refuse_unless("reasoning_parser_kwargs", instead, |kwargs| {
        kwargs == &json!({}) || kwargs == &json!({"chat_template_kwargs": {}})
    })?;
    if fields.is_false("reasoning_ended") {
        return Err(ValidationError::not_supported(
            "reasoning_ended",
            false,
            instead,
        ));
    }
    let instead = "leave it out: the answer has no text that it could be for";
    fields.refuse_unless("token_offsets", instead, |_| false)?;
    fields.refuse_unless("features", TEXT_ALONE, |_| false)?;
    fields.refuse_unless("content_parts", TEXT_ALONE, |parts| parts == &json!([]))?;
    let instead = "the engine has no plug-ins that could read it; leave it out";
    fields.refuse_unless("extra_args", instead, |args| args == &json!({}))
}

/// What this route calls a field of a completion.
fn own_name(field: &str) -> String {
    let head = field.split(['.', '[']).next().unwrap_or_default();
    match SAMPLING_FIELDS.contains(&head) {
        true => format!("{SAMPLING_PARAMS}.{field}"),
        false => field.to_owned(),
    }
}

/// An error about a field of a completion, by the name that it has here.
fn in_own_words(mut error: ValidationError) -> ValidationError {
    if let Some(field) = &error.parameter {
        let own = own_name(field);
        if own != *field {
            error.message = replace_name(&error.message, field, &own);
            error.parameter = Some(own);
        }
    }
    // Prompts of tokens are never cut here.
    error.message = error.message.replace(", or set truncate_prompt_tokens", "");
    error
}

/// The same of an error that may be about a field.
pub(super) fn serving_error_in_own_words(error: ServingError) -> ServingError {
    match error {
        ServingError::Generate(GenerateError::Validation(error)) => in_own_words(error).into(),
        other => other,
    }
}

/// An error about an unknown field, with this route's place of constraints.
fn without_other_constraints(mut error: ValidationError) -> ValidationError {
    const BEFORE: &str = "constraints go into ";
    if let Some((start, _)) = error.message.split_once(BEFORE) {
        error.message = format!("{start}{BEFORE}sampling_params.structured_outputs");
    }
    error
}

#[cfg(test)]
mod tests {
    use protocol::RequestOutputKind;

    use super::*;

    fn read(sampling: Value) -> Result<TokenGenerateRequest, ValidationError> {
        TokenGenerateRequest::from_json(json!({"token_ids": [1, 2], "sampling_params": sampling}))
    }

    fn refused(body: Value) -> (String, String) {
        let error = TokenGenerateRequest::from_json(body).unwrap_err();
        (error.parameter.clone().unwrap(), error.to_string())
    }

    #[test]
    fn fields_reach_the_engine() {
        let mut request = TokenGenerateRequest::from_json(json!({
            "model": "m", "token_ids": [3, 0, 4_294_967_295_u32], "request_id": "r", "priority": -2,
            "cache_salt": "s", "stream": true, "stream_options": {"include_usage": true},
            "return_token_ids": true, "output_mode": "tokens", "reasoning_ended": true, "features": null,
            "sampling_params": {
                "n": 2, "temperature": 0.5, "top_k": -1, "seed": 7, "max_tokens": 9, "min_tokens": 1,
                "logprobs": 3, "logprob_token_ids": [5], "stop_token_ids": [4], "logit_bias": {"7": 1},
                "allowed_token_ids": [1, 2], "structured_outputs": {"regex": "a+"}, "detokenize": false,
                "flat_logprobs": true, "skip_special_tokens": false, "extra_args": {},
            },
        }))
        .unwrap();
        let defaults = DefaultSamplingParams::default();
        let generate = request.take_generate_request("x", &defaults);
        assert_eq!(generate.prompt, Prompt::TokenIds(vec![3, 0, u32::MAX]));
        assert_eq!(
            (generate.priority, generate.cache_salt.as_deref()),
            (-2, Some("s"))
        );
        let params = &generate.sampling_params;
        assert_eq!(
            (params.n, params.max_tokens, params.logprobs),
            (2, Some(9), Some(3))
        );
        assert_eq!(params.output_kind, RequestOutputKind::Delta);
        assert!(!params.detokenize);
        assert!(
            params
                .structured_outputs
                .as_ref()
                .unwrap()
                .enable_in_reasoning
        );
        let field = generate.constraint_field.as_deref();
        assert_eq!(field, Some("sampling_params.structured_outputs.regex"));
        let field = generate.max_tokens_field.as_deref();
        assert_eq!(field, Some("sampling_params.max_tokens"));
    }

    #[test]
    fn without_a_limit_the_context_is_the_limit_and_stop_strings_need_text() {
        let mut request = read(json!({"stop": ["x"]})).unwrap();
        let generate = request.take_generate_request("x", &DefaultSamplingParams::default());
        assert_eq!(generate.sampling_params.max_tokens, None);
        assert!(generate.sampling_params.detokenize);
    }

    #[test]
    fn errors_name_the_field_where_it_stands() {
        let ids = |ids: Value| json!({"token_ids": ids, "sampling_params": {}});
        let with = |name: &str, value: Value| {
            let mut body = ids(json!([1]));
            body[name] = value;
            body
        };
        let sampling = |sampling: Value| with(SAMPLING_PARAMS, sampling);
        for (body, field, says) in [
            (json!({"sampling_params": {}}), "token_ids", "missing"),
            (json!({"token_ids": [1]}), "sampling_params", "missing"),
            (ids(json!([])), "token_ids", "at least one"),
            (ids(json!("a")), "token_ids", "got \"a\""),
            (ids(json!([1, -1])), "token_ids[1]", "got -1"),
            (ids(json!([1.5])), "token_ids[0]", "got 1.5"),
            (
                ids(json!([1, 2, 4_294_967_296_u64])),
                "token_ids[2]",
                "4294967296",
            ),
            (sampling(json!([])), "sampling_params", "sampling_params"),
            (
                sampling(json!({"temprature": 1})),
                "sampling_params.temprature",
                "did you mean `temperature`?",
            ),
            (
                sampling(json!({"model": "m"})),
                "sampling_params.model",
                "unknown field",
            ),
            (
                sampling(json!({"n": 0})),
                "sampling_params.n",
                "sampling_params.n must be",
            ),
            (
                sampling(json!({"top_k": -2})),
                "sampling_params.top_k",
                "got -2",
            ),
            (
                sampling(json!({"max_tokens": 0})),
                "sampling_params.max_tokens",
                "got 0",
            ),
            (
                sampling(json!({"logprob_token_ids": [1]})),
                "sampling_params.logprob_token_ids",
                "needs",
            ),
            (
                sampling(json!({"structured_outputs": {"regx": "a"}})),
                "sampling_params.structured_outputs.regx",
                "did you mean `regex`?",
            ),
            (
                sampling(json!({"structured_outputs": {}})),
                "sampling_params.structured_outputs",
                "none are specified",
            ),
            (
                sampling(json!({"extra_args": {"a": 1}})),
                "sampling_params.extra_args",
                "plug-ins",
            ),
            (
                with("temperature", json!(1)),
                "temperature",
                "unknown field",
            ),
            (
                with("guided_regex", json!("a")),
                "guided_regex",
                "sampling_params.structured_outputs",
            ),
            (
                with("output_mode", json!("text")),
                "output_mode",
                "/v1/completions",
            ),
            (
                with("reasoning_ended", json!(false)),
                "reasoning_ended",
                "leave it out",
            ),
            (with("features", json!({})), "features", "text alone"),
            (
                with("kv_transfer_params", json!({})),
                "kv_transfer_params",
                "leave it out",
            ),
            (with("cache_salt", json!("")), "cache_salt", "1 to 128"),
        ] {
            let (at, message) = refused(body);
            assert_eq!(at, field, "{message}");
            assert!(message.contains(says), "{message}");
            assert!(!message.contains("response_format"), "{message}");
        }
    }

    #[test]
    fn warnings_have_the_names_too() {
        let request =
            read(json!({"ignore_eos": true, "structured_outputs": {"regex": "a"}})).unwrap();
        let texts = request.common.warnings.texts();
        assert!(
            texts[0].starts_with("sampling_params.ignore_eos "),
            "{texts:?}"
        );
    }
}
