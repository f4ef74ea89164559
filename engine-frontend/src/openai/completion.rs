//! `/v1/completions`: text in, text on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::default_sampling_params::DefaultSamplingParams;
use super::echo::EchoedText;
use super::fields::Fields;
use super::ignored_fields::Api;
use super::logprobs::{CompletionLogProbs, PromptLogprobs};
use super::request::{CommonFields, wrong_max_tokens};
use super::trace::TracedToken;
use super::usage::UsageInfo;
use crate::answer_budget::MAX_ANSWER_BYTES;
use crate::error::ValidationError;
use crate::input_processor::{GenerateRequest, Prompt};
use crate::sampling_params::MAX_N_SEQUENCES;

/// Bytes of a token's text, about.
const USUAL_TOKEN_BYTES: usize = 8;
/// Most prompts in one request, and most conversations.
pub(super) const MAX_PROMPTS: usize = 1024;
/// Most answers to one request, over all its prompts: each is a request to the core.
const MAX_SEQUENCES: usize = MAX_N_SEQUENCES as usize;

/// One prompt or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a string, a list of strings, a list of token ids, or a list of such lists"
)]
pub enum CompletionPrompt {
    /// Text.
    Text(String),
    /// One prompt as token ids.
    TokenIds(Vec<u32>),
    /// Several texts.
    Texts(Vec<String>),
    /// Several prompts as token ids.
    TokenIdLists(Vec<Vec<u32>>),
}

impl CompletionPrompt {
    /// How many prompts there are.
    fn len(&self) -> usize {
        match self {
            Self::Text(_) | Self::TokenIds(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::TokenIdLists(lists) => lists.len(),
        }
    }

    /// About how many bytes of text they are.
    pub(super) fn num_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::TokenIds(ids) => ids.len() * USUAL_TOKEN_BYTES,
            Self::Texts(texts) => texts.iter().map(String::len).sum(),
            Self::TokenIdLists(lists) => {
                lists.iter().map(Vec::len).sum::<usize>() * USUAL_TOKEN_BYTES
            }
        }
    }

    /// The prompts one by one.
    fn to_prompts(&self) -> Vec<Prompt> {
        match self {
            Self::Text(text) => vec![Prompt::Text(text.clone())],
            Self::TokenIds(ids) => vec![Prompt::TokenIds(ids.clone())],
            Self::Texts(texts) => texts.iter().cloned().map(Prompt::Text).collect(),
            Self::TokenIdLists(lists) => lists.iter().cloned().map(Prompt::TokenIds).collect(),
        }
    }
}

/// A request for `/v1/completions`.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// What the answers continue.
    pub prompt: CompletionPrompt,
    /// Whether the answer starts with the prompt.
    pub echo: bool,
    /// Number of top logprobs per token.
    pub logprobs: Option<i32>,
    /// Whether the tokenizer adds its begin-of-text token.
    pub add_special_tokens: bool,
    /// Everything else.
    pub common: CommonFields,
}

impl CompletionRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Completions, body, false)?)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); and what has no effect.
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Completions, body, true)?)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, ValidationError> {
        let common = CommonFields::take(&mut fields)?;
        let instead = "write prompt and suffix into the prompt, as the model's own format for filling \
                       in a middle wants them";
        fields.refuse_unless("suffix", instead, |v| v == "")?;
        let mut request = Self {
            prompt: fields.require("prompt")?,
            echo: fields.take("echo")?.unwrap_or(false),
            logprobs: fields.take("logprobs")?,
            add_special_tokens: fields.take("add_special_tokens")?.unwrap_or(true),
            common,
        };
        request.common.warnings = fields.finish()?;
        request.verify()?;
        Ok(request)
    }

    fn verify(&self) -> Result<(), ValidationError> {
        if self.common.logprob_token_ids.is_some() && self.logprobs.is_none() {
            return Err(ValidationError::about(
                "logprob_token_ids",
                "logprob_token_ids needs logprobs, which shows them",
            ));
        }
        let count = self.prompt.len();
        if count == 0 || count > MAX_PROMPTS {
            return Err(ValidationError::field(
                "prompt",
                count,
                format!("prompt must hold between 1 and {MAX_PROMPTS} prompts, got {count}"),
            ));
        }
        let n = self.common.n.unwrap_or(1);
        let sequences = self.num_sequences();
        if sequences > MAX_SEQUENCES {
            let message = format!(
                "prompt and n ask for {sequences} answers together ({count} prompts, n {n}); at \
                 most {MAX_SEQUENCES} are possible in one request"
            );
            return Err(ValidationError::field("n", n, message));
        }
        let echoed = self.prompt.num_bytes().saturating_mul(n as usize);
        if self.echo && n > 1 && echoed > MAX_ANSWER_BYTES {
            let message = format!(
                "echo would repeat the prompt in {n} answers, {echoed} bytes together: at most \
                 {MAX_ANSWER_BYTES} are possible. Leave it out, or ask for fewer answers"
            );
            return Err(ValidationError::field("echo", true, message));
        }
        if let Some(settings) = &self.common.constraint_settings {
            return Err(settings.without_constraint());
        }
        if self.common.max_tokens == Some(0) && !self.echo {
            return Err(wrong_max_tokens("max_tokens", "0"));
        }
        if self.echo_only() && self.common.constraint.is_some() {
            let message = "max_tokens is 0, so that there is no answer to constrain: leave the \
                           constraint out, or ask for 1 token at least";
            return Err(ValidationError::field("max_tokens", 0, message));
        }
        Ok(())
    }

    /// The answers that it asks for, over all its prompts.
    pub fn num_sequences(&self) -> usize {
        let n = self.common.n.unwrap_or(1);
        self.prompt.len().saturating_mul(n as usize)
    }

    /// Whether the answer is the prompt alone: `echo` with `max_tokens: 0`.
    pub(super) fn echo_only(&self) -> bool {
        self.echo && self.common.max_tokens == Some(0)
    }

    /// The engine's requests, one per prompt, with the ids `{request_id}-{i}`.
    pub fn to_generate_requests(
        &self,
        request_id: &str,
        defaults: &DefaultSamplingParams,
    ) -> Vec<GenerateRequest> {
        // Where nothing says otherwise a completion has 16 tokens. Few constraints have a whole text in so
        // few: under one it may fill the context.
        let base = defaults.to_sampling_params();
        let max_tokens = match self.common.max_tokens {
            // The engine always generates; the one token is left out of the answer.
            Some(0) if self.echo => Some(1),
            Some(max_tokens) => Some(max_tokens),
            None if self.common.constraint.is_some() => defaults.max_tokens,
            None => base.max_tokens,
        };
        let mut requests = Vec::new();
        for (i, prompt) in self.prompt.to_prompts().into_iter().enumerate() {
            let id = format!("{request_id}-{i}");
            let mut request = self
                .common
                .generate_request(id, prompt, max_tokens, defaults);
            request.add_special_tokens = self.add_special_tokens;
            let params = &mut request.sampling_params;
            params.logprobs = self.logprobs;
            if self.echo && params.prompt_logprobs.is_none() {
                params.prompt_logprobs = self.logprobs;
            }
            requests.push(request);
        }
        requests
    }
}

/// The answer to a [`CompletionRequest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionResponse {
    /// `cmpl-...`.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// `n` answers to the first prompt, then to the second, and so on.
    pub choices: Vec<CompletionResponseChoice>,
    /// Tokens taken.
    pub usage: UsageInfo,
    /// What answered.
    pub system_fingerprint: String,
    /// Parts of the request that have no effect, with `include_warnings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionResponseChoice {
    /// Position in `choices`.
    pub index: u32,
    /// The text.
    pub text: EchoedText,
    /// Logprobs where asked for.
    pub logprobs: Option<CompletionLogProbs>,
    /// `stop`, `length`, `abort`, `error` or `repetition`.
    pub finish_reason: Option<String>,
    /// The stop string or stop token id.
    pub stop_reason: Option<Value>,
    /// Under a constraint: whether the text is a whole one, not cut off by a limit or a stop
    /// string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output_complete: Option<bool>,
    /// `true` where `max_tokens` led the answer to its end; else absent.
    #[serde(skip_serializing_if = "super::is_false")]
    pub structured_output_completed_by_budget: bool,
    /// `true` where a string that repeated itself was closed; else absent.
    #[serde(skip_serializing_if = "super::is_false")]
    pub structured_output_repetition_closed: bool,
    /// What its tokens were chosen from, with `include_trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Vec<TracedToken>>,
    /// The answer's tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// The prompt's tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// The prompt's logprobs, with `prompt_logprobs`: per token a map from id to logprob, rank
    /// and text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
}

#[cfg(test)]
mod tests {
    use protocol::RequestOutputKind;
    use serde_json::json;

    use super::*;

    fn refused(body: Value) -> String {
        let error = CompletionRequest::from_json(body).unwrap_err();
        error.parameter.unwrap()
    }

    #[test]
    fn a_number_out_of_range_is_shown_as_sent() {
        let body = json!({"prompt": "a", "temperature": 1e308});
        let error = CompletionRequest::from_json(body).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("temperature"));
        assert!(error.message.contains("got 1e308") || error.message.contains("got 1e+308"));
    }

    #[test]
    fn every_prompt_shape() {
        for (shape, count) in [
            (json!("a"), 1),
            (json!(["a", "b"]), 2),
            (json!([1, 2, 3]), 1),
            (json!([[1], [2, 3]]), 2),
        ] {
            let request = CompletionRequest::from_json(json!({"prompt": shape})).unwrap();
            let requests = request.to_generate_requests("x", &DefaultSamplingParams::default());
            assert_eq!(requests.len(), count, "{shape}");
            assert_eq!(requests[0].request_id, "x-0");
        }
        assert_eq!(refused(json!({})), "prompt");
        assert_eq!(refused(json!({"prompt": 5})), "prompt");
        assert_eq!(refused(json!({"prompt": ["a", 1]})), "prompt");
        assert_eq!(refused(json!({"prompt": vec!["a"; 1025]})), "prompt");
    }

    #[test]
    fn prompts_times_n_is_limited() {
        let request = |prompts, n| {
            CompletionRequest::from_json(json!({"prompt": vec!["a"; prompts], "n": n}))
        };
        assert!(request(1024, 16).is_ok());
        assert!(request(1, 16_384).is_ok());
        for (prompts, n) in [(1024, 17), (2, 8193)] {
            let error = request(prompts, n).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some("n"));
            let says = format!("({prompts} prompts, n {n}); at most 16384");
            assert!(error.message.contains(&says), "{error}");
        }
    }

    #[test]
    fn fields_reach_the_sampling_parameters() {
        let request = CompletionRequest::from_json(json!({
            "prompt": "a", "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1,
            "presence_penalty": 0.1, "frequency_penalty": 0.2, "repetition_penalty": 1.1,
            "seed": -2, "stop": "x", "stop_token_ids": [3], "ignore_eos": true,
            "max_tokens": 9, "min_tokens": 2, "logprobs": 3, "prompt_logprobs": 1,
            "logit_bias": {"7": 1e300}, "allowed_token_ids": [1, 2], "bad_words": ["w"],
            "thinking_token_budget": -1, "skip_special_tokens": false, "vllm_xargs": {},
            "repetition_detection":
                {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 3},
            "truncate_prompt_tokens": -1, "truncation_side": "right", "priority": -3,
            "logprob_token_ids": [7],
            "cache_salt": "s", "add_special_tokens": false, "user": "me",
        }))
        .unwrap();
        let defaults = DefaultSamplingParams {
            top_k: Some(50),
            temperature: Some(0.1),
            ..DefaultSamplingParams::default()
        };
        let requests = request.to_generate_requests("x", &defaults);
        let p = &requests[0].sampling_params;
        assert_eq!((p.n, p.temperature, p.top_p, p.top_k), (2, 0.5, 0.9, 0));
        assert_eq!(p.seed, Some(u64::MAX - 1));
        assert_eq!(p.logit_bias, [(7, 100.0)]);
        assert_eq!(p.stop, ["x".to_owned()]);
        assert_eq!((p.max_tokens, p.min_tokens), (Some(9), 2));
        assert_eq!((p.logprobs, p.prompt_logprobs), (Some(3), Some(1)));
        assert_eq!(p.thinking_token_budget, None);
        assert_eq!(p.repetition_detection.unwrap().min_count, 3);
        assert_eq!(p.output_kind, RequestOutputKind::FinalOnly);
        assert_eq!(requests[0].truncate_prompt_tokens, Some(-1));
        assert_eq!(
            (requests[0].priority, requests[0].add_special_tokens),
            (-3, false)
        );
    }

    #[test]
    fn absent_fields_come_from_the_generation_config() {
        let request = CompletionRequest::from_json(json!({"prompt": "a"})).unwrap();
        let plain = request.to_generate_requests("x", &DefaultSamplingParams::default());
        assert_eq!(plain[0].sampling_params.max_tokens, Some(16));
        let body = json!({"prompt": "a", "structured_outputs": {"json_object": true}});
        let constrained = CompletionRequest::from_json(body).unwrap();
        let max_tokens = |defaults: DefaultSamplingParams| {
            constrained.to_generate_requests("x", &defaults)[0]
                .sampling_params
                .max_tokens
        };
        assert_eq!(max_tokens(DefaultSamplingParams::default()), None);
        let configured = DefaultSamplingParams {
            max_tokens: Some(40),
            ..DefaultSamplingParams::default()
        };
        assert_eq!(max_tokens(configured), Some(40));
        let defaults = DefaultSamplingParams {
            temperature: Some(0.6),
            top_k: Some(20),
            max_tokens: Some(99),
            ..DefaultSamplingParams::default()
        };
        let p = &request.to_generate_requests("x", &defaults)[0].sampling_params;
        assert_eq!((p.temperature, p.top_k, p.max_tokens), (0.6, 20, Some(99)));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (name, value) in [
            ("guided_yaml", json!({})),
            ("guided_whitespace_pattern", json!("x")),
            ("use_beam_search", json!(true)),
            ("suffix", json!("x")),
            ("length_penalty", json!(1.5)),
            ("prompt_embeds", json!("x")),
            ("best_of", json!(2)),
            ("vllm_xargs", json!({"a": 1})),
            ("session_id", json!("s")),
            ("lora", json!([{"id": 0, "scale": 1}])),
            ("lora_request", json!({"lora_name": "a"})),
            ("messages", json!([])),
            ("temperatur", json!(1)),
        ] {
            let mut body = json!({"prompt": "a"});
            body[name] = value;
            assert_eq!(refused(body), name);
        }
        let harmless = json!({
            "prompt": "a", "response_format": {"type": "text"}, "use_beam_search": false,
            "suffix": "", "length_penalty": 1.0, "guided_json": null,
            "best_of": 1, "vllm_xargs": {}, "session_id": "", "lora": [],
        });
        assert!(CompletionRequest::from_json(harmless).is_ok());
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (name, value) in [
            ("stop", json!(vec!["a"; 129])),
            ("stop", json!(3)),
            ("seed", json!(1.5)),
            ("top_k", json!(-2)),
            ("logit_bias", json!({"x": 1})),
            ("logit_bias", json!({"1": "x"})),
            ("cache_salt", json!("a/b")),
            ("stream_options", json!(1)),
            ("truncation_side", json!("up")),
            ("truncation_side", json!("left")),
            ("logprob_token_ids", json!([1])),
            ("guided_decoding_backend", json!("xgrammar")),
            ("request_id", json!("")),
            ("request_id", json!("a\nb")),
            ("request_id", json!("\u{e9}")),
            ("request_id", json!("x".repeat(129))),
            ("n", json!(-1)),
        ] {
            let mut body = json!({"prompt": "a"});
            body[name] = value;
            assert_eq!(refused(body), name);
        }
        let longest = json!({"prompt": "a", "request_id": "x y".repeat(42)});
        assert!(CompletionRequest::from_json(longest).is_ok());
    }

    #[test]
    fn n_has_one_range_whatever_is_wrong() {
        for (value, got) in [
            (json!(-1), "-1"),
            (json!(0), "0"),
            (json!(16_385), "16385"),
            (json!(1.5), "1.5"),
            (json!("two"), "\"two\""),
            (json!(2_f64.powi(64)), "18446744073709551616"),
        ] {
            let error = CompletionRequest::from_json(json!({"prompt": "a", "n": value}));
            assert_eq!(
                error.unwrap_err().to_string(),
                format!("n must be a whole number between 1 and 16384, got {got}")
            );
        }
    }
}
