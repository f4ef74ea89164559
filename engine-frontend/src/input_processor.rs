//! From a caller's request to an [`EngineCoreRequest`]: validation, template, tokens, lengths.

mod callers_fields;
mod conversation;
mod generate_request;
mod options;
mod prompt_length;
mod thinking;
mod tokenize;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use protocol::{EngineCoreRequest, SamplingParams, StructuredOutputsParams};
use structured_output::CancelFlag;
use tokenizer::Tokenizer;

pub use callers_fields::CallersFields;
use callers_fields::MAX_TOKENS;
pub use generate_request::{ChatPrompt, ConstraintPart, GenerateRequest, Prompt, TruncationSide};
pub(crate) use generate_request::{num_bytes, replace_name};
use generate_request::{with_max_tokens_field, with_prompt_field};
pub(crate) use options::SharedPieces;
use thinking::BehindThinking;
pub(crate) use tokenize::{MAX_COUNTED_TOKENS, TextLimit, TokenizedPrompt};

use crate::error::ValidationError;
use crate::random::random_u64;
use crate::sampling_params::{MAX_BAD_WORDS, ModelLimits, verify, verify_lengths};
use crate::stop_strings::StopStrings;
use crate::structured_outputs::{
    AnswerKind, ConstraintChecker, Reasoning, ReasoningParser, StructuredOutputsArgs,
};
use crate::thinking_split::ThinkingSplit;

/// A request that is ready to travel, and what stays behind of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessedInputs {
    /// The request, with `n` as the caller has it.
    pub request: EngineCoreRequest,
    /// When it came.
    pub arrival: Instant,
    /// The prompt as text: as given or as rendered.
    pub prompt: Option<Arc<str>>,
    /// What the caller of a constrained request calls its fields.
    pub callers_fields: Option<Arc<CallersFields>>,
    /// How thinking is told apart, where it is.
    pub thinking: Option<ThinkingSplit>,
    /// What finds its stop strings.
    pub stop_strings: Arc<StopStrings>,
    /// See [`GenerateRequest::keeps_answer`].
    pub keeps_answer: bool,
}

impl ProcessedInputs {
    /// A request that arrives now, of which nothing stays behind.
    pub fn new(request: EngineCoreRequest) -> Self {
        Self {
            stop_strings: Arc::new(StopStrings::new(&request.sampling_params.stop)),
            request,
            arrival: Instant::now(),
            prompt: None,
            callers_fields: None,
            thinking: None,
            keeps_answer: false,
        }
    }
}

/// A request's parameters and constraint, which are good, and all that is made of them without its prompt. A
/// clone costs little: the requests of a list share what may be large.
#[derive(Debug, Clone)]
pub(crate) struct VerifiedParams {
    asked: AskedParams,
    params: SamplingParams,
    stop_strings: Arc<StopStrings>,
    callers_fields: Option<Arc<CallersFields>>,
    max_tokens_field: String,
    behind_thinking: Arc<BehindThinking>,
}

/// Parameters as they were asked for: of what requests of one list have in common, all that is verified.
#[derive(Debug, Clone, PartialEq)]
struct AskedParams {
    sampling_params: SamplingParams,
    constraint_field: Option<String>,
    whitespace_field: Option<String>,
    max_tokens_field: Option<String>,
}

impl AskedParams {
    fn of(request: &GenerateRequest) -> Self {
        Self {
            sampling_params: request.sampling_params.clone(),
            constraint_field: request.constraint_field.clone(),
            whitespace_field: request.whitespace_field.clone(),
            max_tokens_field: request.max_tokens_field.clone(),
        }
    }
}

/// Makes requests ready for one model.
#[derive(Debug)]
pub struct InputProcessor {
    tokenizer: Arc<Tokenizer>,
    limits: ModelLimits,
    eos_token_id: Option<u32>,
    /// Further tokens that end a text, from `generation_config.json`.
    extra_eos_token_ids: Vec<u32>,
    structured_outputs: StructuredOutputsArgs,
    checker: ConstraintChecker,
    /// `None` where the model doesn't think, or it isn't to be told apart.
    reasoning: Option<Reasoning>,
}

impl InputProcessor {
    /// A processor for a model with this tokenizer and these limits.
    pub fn new(tokenizer: Arc<Tokenizer>, limits: ModelLimits) -> Self {
        let mut eos_token_ids = tokenizer.generation_config().eos_token_ids.clone();
        let eos_token_id = tokenizer
            .eos_token_id()
            .or_else(|| eos_token_ids.first().copied());
        eos_token_ids.retain(|&id| Some(id) != eos_token_id);
        let reasoning = Reasoning::found(&tokenizer);
        Self {
            checker: ConstraintChecker::new(Arc::clone(&tokenizer)),
            tokenizer,
            limits,
            eos_token_id,
            extra_eos_token_ids: eos_token_ids,
            structured_outputs: StructuredOutputsArgs::default(),
            reasoning,
        }
    }

    /// The same with these settings for constraints and thinking.
    ///
    /// # Errors
    /// The thinking's tokens that they name are not the tokenizer's, or are the same.
    pub fn with_structured_outputs(
        mut self,
        args: StructuredOutputsArgs,
    ) -> Result<Self, ValidationError> {
        let parser = match (&args.thinking_markers, &args.reasoning_parser) {
            (_, ReasoningParser::Off) => ReasoningParser::Off,
            (Some(markers), _) => ReasoningParser::Markers(markers.clone()),
            (None, parser) => parser.clone(),
        };
        self.reasoning = match &parser {
            ReasoningParser::Off => None,
            ReasoningParser::Auto => Reasoning::found(&self.tokenizer),
            ReasoningParser::Markers(markers) => self.reasoning_by(markers)?,
        };
        self.structured_outputs = args;
        Ok(self)
    }

    /// Validates a request and turns it into what the core needs.
    ///
    /// # Errors
    /// The first thing that is wrong: a sampling parameter out of range, a template that refuses
    /// the messages, an empty or too long prompt, a token id that the model doesn't have.
    pub fn process_inputs(
        &self,
        request: GenerateRequest,
    ) -> Result<ProcessedInputs, ValidationError> {
        let cancel = CancelFlag::new();
        let verified = self.verify_params(&request, Some(&cancel))?;
        self.process_like(&mut Some(verified), request, &cancel)
    }

    /// The same behind a request whose parameters were verified, and are verified no more where this one has
    /// the same. A constraint is left to the core otherwise.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn process_like(
        &self,
        before: &mut Option<VerifiedParams>,
        request: GenerateRequest,
        cancel: &CancelFlag,
    ) -> Result<ProcessedInputs, ValidationError> {
        let verified = match before {
            Some(verified) if verified.asked == AskedParams::of(&request) => verified.clone(),
            _ => before.insert(self.verify_params(&request, None)?).clone(),
        };
        self.process_prompt(request, verified, cancel)
    }

    /// Whether a request has a constraint that is to be checked here.
    pub(crate) fn is_check_due(&self, request: &GenerateRequest) -> bool {
        let constraint = request.sampling_params.structured_outputs.clone();
        constraint.is_some_and(|mut constraint| {
            // Which is done once more before the check.
            self.structured_outputs
                .apply(&mut constraint, request.whitespace_field.is_some());
            self.checker.is_check_due(&constraint)
        })
    }

    /// Checks a part of a constraint as far as that is done here.
    ///
    /// # Errors
    /// What is wrong with it, by its field.
    pub(crate) fn check_part(
        &self,
        part: &ConstraintPart,
        cancel: &CancelFlag,
    ) -> Result<(), ValidationError> {
        let alone = StructuredOutputsParams::new(part.constraint.clone());
        match self.checker.is_check_due(&alone) {
            true => self.check_alone(part, &alone, cancel),
            false => Ok(()),
        }
    }

    /// Checks a part of a constraint, which is `alone` by itself; errors are told by its field.
    fn check_alone(
        &self,
        part: &ConstraintPart,
        alone: &StructuredOutputsParams,
        cancel: &CancelFlag,
    ) -> Result<(), ValidationError> {
        let checked = self.checker.check(alone, cancel);
        checked.map_err(|error| CallersFields::of_part(part).translate(&error))
    }

    /// The first half of [`process_inputs`](Self::process_inputs): all that doesn't need the prompt. A
    /// constraint is checked if there is a flag for that; where this is set the check ends early, and finds
    /// nothing wrong.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn verify_params(
        &self,
        request: &GenerateRequest,
        check: Option<&CancelFlag>,
    ) -> Result<VerifiedParams, ValidationError> {
        let name = request.max_tokens_field.clone();
        let name = name.unwrap_or_else(|| MAX_TOKENS.to_owned());
        let mut params = request.sampling_params.clone();
        verify(&mut params, &self.limits).map_err(|error| with_max_tokens_field(error, &name))?;
        let callers_fields = self
            .verify_constraint(request, &mut params, check)?
            .map(Arc::new);
        self.complete_for_model(&mut params)?;
        Ok(VerifiedParams {
            asked: AskedParams::of(request),
            stop_strings: Arc::new(StopStrings::new(&params.stop)),
            params,
            callers_fields,
            max_tokens_field: name,
            behind_thinking: Arc::default(),
        })
    }

    /// The second half of [`process_inputs`](Self::process_inputs): what needs the prompt. Ends early, with an
    /// error that nobody hears, where `cancel` is set.
    ///
    /// # Errors
    /// As there.
    fn process_prompt(
        &self,
        request: GenerateRequest,
        verified: VerifiedParams,
        cancel: &CancelFlag,
    ) -> Result<ProcessedInputs, ValidationError> {
        let name = verified.max_tokens_field.clone();
        let prompt_field = request.prompt_field.clone();
        let processed = self.process(request, verified, cancel);
        processed.map_err(|error| {
            let error = with_max_tokens_field(error, &name);
            match &prompt_field {
                Some(field) => with_prompt_field(error, field),
                None => error,
            }
        })
    }

    fn process(
        &self,
        request: GenerateRequest,
        verified: VerifiedParams,
        cancel: &CancelFlag,
    ) -> Result<ProcessedInputs, ValidationError> {
        let VerifiedParams {
            mut params,
            stop_strings,
            mut callers_fields,
            max_tokens_field: _,
            behind_thinking,
            asked: _,
        } = verified;
        let limit = TextLimit {
            num_tokens: match request.truncate_prompt_tokens {
                None => self.limits.max_model_len,
                // What is cut off is read too.
                Some(_) => self.limits.max_model_len.max(MAX_COUNTED_TOKENS),
            },
            is_context: request.truncate_prompt_tokens.is_none(),
        };
        let is_prompt_only = request.is_prompt_only();
        let TokenizedPrompt {
            text: prompt,
            mut token_ids,
            reasoning_ended,
        } = self.tokenize_within(request.prompt, request.add_special_tokens, limit, cancel)?;
        if let Some(keep) = request.truncate_prompt_tokens {
            self.truncate(&mut token_ids, keep, request.truncation_side, &params)?;
        }
        let field = request.prompt_field.as_deref();
        let prompt_len = self.verify_prompt(&token_ids, is_prompt_only, field)?;
        match is_prompt_only {
            true => params.max_tokens = Some(1),
            false => self.complete_for_prompt(&mut params, prompt_len)?,
        }
        let answer = match &params.structured_outputs {
            None => AnswerKind::Free,
            Some(_) if request.constraint_has_header => AnswerKind::WithHeader,
            Some(_) => AnswerKind::Constrained,
        };
        let constrained_from_the_start =
            self.complete_thinking(&mut params, reasoning_ended, answer)?;
        if !constrained_from_the_start {
            let constraint = (&mut params.structured_outputs, &mut callers_fields);
            self.put_behind_thinking(constraint, reasoning_ended, &behind_thinking)?;
        }
        let thinking = self
            .reasoning
            .as_ref()
            .filter(|_| request.separate_reasoning);
        Ok(ProcessedInputs {
            request: EngineCoreRequest {
                request_id: internal_request_id(&request.request_id),
                external_req_id: Some(request.request_id),
                prompt_token_ids: token_ids.into(),
                sampling_params: params,
                arrival_time: unix_time(request.arrival),
                cache_salt: request.cache_salt,
                owner: request.owner,
                priority: request.priority,
                trace_headers: request.trace_headers,
                reasoning_ended,
                scored_positions: request.scored_positions,
                pooling_params: request.pooling_params,
                ..EngineCoreRequest::default()
            },
            arrival: request.arrival,
            keeps_answer: request.keeps_answer,
            prompt: prompt.map(Arc::from),
            callers_fields,
            // A constraint that holds inside thinking leaves nothing to tell apart.
            thinking: thinking
                .filter(|_| !constrained_from_the_start)
                .map(|reasoning| reasoning.split(reasoning_ended, answer)),
            stop_strings,
        })
    }

    /// Brings the engine's settings into a constraint, and checks it where that isn't left to the core.
    /// Returns what its field is called.
    fn verify_constraint(
        &self,
        request: &GenerateRequest,
        params: &mut SamplingParams,
        check: Option<&CancelFlag>,
    ) -> Result<Option<CallersFields>, ValidationError> {
        let Some(constraint) = &mut params.structured_outputs else {
            return Ok(None);
        };
        self.structured_outputs
            .apply(constraint, request.whitespace_field.is_some());
        let field = request.constraint_field.clone().unwrap_or_else(|| {
            let kind = constraint.constraint.kind();
            format!("structured_outputs.{kind}")
        });
        let fields = CallersFields::of(request, field);
        if let Some(cancel) = check
            && let Err(error) = self.checker.check(constraint, cancel)
        {
            // An error that a part has by itself is told by that part's field.
            for part in &request.constraint_parts {
                let alone = StructuredOutputsParams::new(part.constraint.clone());
                self.check_alone(part, &alone, cancel)?;
            }
            return Err(fields.translate(&error));
        }
        Ok(Some(fields))
    }

    /// True if a token is one of the tokenizer's control tokens.
    pub(crate) fn is_special_token(&self, token_id: u32) -> bool {
        self.tokenizer.is_special_token(token_id)
    }

    /// Fills what depends on the model.
    fn complete_for_model(&self, params: &mut SamplingParams) -> Result<(), ValidationError> {
        if params.ignore_eos {
            params.eos_token_id = None;
        } else {
            params.eos_token_id = self.eos_token_id;
            let own = &params.stop_token_ids;
            let extra = self.extra_eos_token_ids.iter();
            let missing: Vec<u32> = extra.filter(|id| !own.contains(id)).copied().collect();
            if !missing.is_empty() {
                params.stop_token_ids = own.iter().copied().chain(missing).collect();
            }
        }
        params.bad_words_token_ids = self.bad_words_token_ids(&params.bad_words)?.into();
        // Positions taken from the cache have no logits.
        params.skip_reading_prefix_cache |=
            params.prompt_logprobs.is_some() || params.prompt_logprob_token_ids.is_some();
        Ok(())
    }

    /// Fills what depends on the prompt, and what is each request's own.
    fn complete_for_prompt(
        &self,
        params: &mut SamplingParams,
        prompt_len: u32,
    ) -> Result<(), ValidationError> {
        let room = self.limits.max_model_len - prompt_len;
        params.max_tokens = Some(params.max_tokens.map_or(room, |limit| limit.min(room)));
        verify_lengths(params)?;
        params.seed.get_or_insert_with(random_u64);
        Ok(())
    }

    /// Each word as token sequences: at the start of a text, and after a space.
    fn bad_words_token_ids(&self, bad_words: &[String]) -> Result<Vec<Vec<u32>>, ValidationError> {
        let mut sequences: Vec<Vec<u32>> = Vec::new();
        for word in bad_words {
            let bare = match word.trim_start() {
                "" => word.as_str(),
                bare => bare,
            };
            for text in [bare.to_owned(), format!(" {bare}")] {
                let ids = self.encode(&text, false, "bad_words")?;
                if !ids.is_empty() && !sequences.contains(&ids) {
                    sequences.push(ids);
                }
            }
        }
        if sequences.len() > MAX_BAD_WORDS {
            return Err(ValidationError::field(
                "bad_words",
                format!("{} words", bad_words.len()),
                format!(
                    "bad_words must turn into at most {MAX_BAD_WORDS} token sequences (a word \
                     may be two: with and without a space before it), got {}",
                    sequences.len()
                ),
            ));
        }
        Ok(sequences)
    }
}

/// `{id}-{8 random hex digits}`: callers may repeat their ids.
fn internal_request_id(external: &str) -> String {
    format!("{external}-{:08x}", random_u64() >> 32)
}

/// Unix time in seconds of something that was just now.
fn unix_time(then: Instant) -> f64 {
    let then = SystemTime::now().checked_sub(then.elapsed());
    let since = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok());
    since.map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests;
