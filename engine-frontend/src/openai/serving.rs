//! Answers API requests with an engine.

mod chat;
mod tokens;
mod unread;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{Shared, StopReason};
use serde_json::Value;
use structured_output::CancelFlag;
use tokenizer::Tokenizer;

pub use chat::ChatSettings;
pub(super) use chat::{chat_logprobs, finish_reason};

use super::completion::{
    CompletionPrompt, CompletionRequest, CompletionResponse, CompletionResponseChoice,
};
use super::default_sampling_params::DefaultSamplingParams;
use super::echo::{self, prompt_text, text_and_logprobs};
use super::error::ServingError;
use super::logprobs::PromptLogprobs;
use super::tool_format::ToolCallFormat;
use super::trace::take_trace;
use super::usage::UsageInfo;
use crate::answer_budget::{LOGPROB_BYTES, MAX_ANSWER_BYTES};
use crate::async_llm::{AsyncLLM, RequestStream};
use crate::error::ValidationError;
use crate::input_processor::GenerateRequest;
use crate::outputs::{CompletionOutput, RequestOutput};
use crate::token_usage::TokenUsage;
use crate::tokenizer_threads::LARGE;

/// What a request doesn't say itself.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The request's id without prefix; a `request_id` in the body wins.
    pub request_id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Seed for a request without one; `None` draws one.
    pub default_seed: Option<u64>,
    /// See [`GenerateRequest::trace_headers`].
    pub trace_headers: Vec<(String, String)>,
    /// Keeps the request's cached prefixes from callers with another one, whatever its own
    /// `cache_salt` is.
    pub caller_salt: Option<Arc<str>>,
    /// See [`GenerateRequest::owner`].
    pub owner: u64,
    /// Counts the request's tokens as they come.
    pub usage: Arc<TokenUsage>,
}

impl RequestContext {
    /// The salt of a request with this one of its own. No two callers' are equal: the caller's salt
    /// comes first, and a request's holds no slash.
    fn cache_salt(&self, own: Option<String>) -> Option<String> {
        match (&self.caller_salt, own) {
            (Some(callers), Some(own)) => Some(format!("{callers}/{own}")),
            (Some(callers), None) => Some(callers.to_string()),
            (None, own) => own,
        }
    }
}

/// The API on one model.
#[derive(Debug)]
pub struct OpenAIServing {
    engine: Arc<AsyncLLM>,
    served_model_names: Vec<String>,
    /// Without links and dots.
    model_folder: Option<PathBuf>,
    default_sampling_params: DefaultSamplingParams,
    prompt_tokens_details: bool,
    /// How the model writes calls, where that is known.
    tool_call_format: Option<Arc<ToolCallFormat>>,
    chat: ChatSettings,
    system_fingerprint: String,
}

impl OpenAIServing {
    /// The API on `engine`, whose model answers to each of `served_model_names`; responses carry
    /// the first.
    pub fn new(
        engine: Arc<AsyncLLM>,
        served_model_names: Vec<String>,
        default_sampling_params: DefaultSamplingParams,
    ) -> Self {
        let template = engine.tokenizer().chat_templates().select(true);
        Self {
            tool_call_format: template.ok().and_then(ToolCallFormat::of_template),
            chat: ChatSettings::default(),
            system_fingerprint: system_fingerprint(&engine),
            engine,
            served_model_names,
            model_folder: None,
            default_sampling_params,
            prompt_tokens_details: false,
        }
    }

    /// Reads and forces calls in this format, whatever the chat template looks like.
    #[must_use]
    pub fn with_tool_call_format(mut self, format: Arc<ToolCallFormat>) -> Self {
        self.tool_call_format = Some(format);
        self
    }

    /// Says in the usage how many prompt tokens came from the prefix cache.
    #[must_use]
    pub fn with_prompt_tokens_details(mut self, told: bool) -> Self {
        self.prompt_tokens_details = told;
        self
    }

    /// Lets requests name the model by any path of its folder as well. For callers of this
    /// machine: whoever asks learns which paths lead there.
    #[must_use]
    pub fn with_model_folder(mut self, folder: &Path) -> Self {
        self.model_folder = folder.canonicalize().ok();
        self
    }

    /// The names that the model answers to.
    pub fn served_model_names(&self) -> &[String] {
        &self.served_model_names
    }

    /// What a request without sampling parameters gets.
    pub fn default_sampling_params(&self) -> &DefaultSamplingParams {
        &self.default_sampling_params
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<AsyncLLM> {
        &self.engine
    }

    /// Answers a completion request as a whole, whatever its `stream` says.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn create_completion(
        &self,
        request: &CompletionRequest,
        context: &RequestContext,
    ) -> Result<CompletionResponse, ServingError> {
        self.check_model(request.common.model.as_deref())?;
        let id = request_id("cmpl", request.common.request_id.as_deref(), context);
        let requests = request.to_generate_requests(&id, &self.default_sampling_params);
        let streams = self.start(requests, context).await?;
        let repeated = self.repeated_bytes(request, &streams).await?;
        let outputs = collect(streams).await.map_err(|(_, error)| error)?;
        let usage = if request.echo_only() {
            let prompt_tokens = self.usage(&outputs).prompt_tokens;
            UsageInfo::new(prompt_tokens, 0)
        } else {
            self.usage(&outputs)
        };
        let size = outputs.iter().map(RequestOutput::num_bytes).sum::<usize>() + repeated;
        let choices = if size <= LARGE {
            completion_choices(request, self.engine.tokenizer(), outputs)
        } else {
            let tokenizer = self.engine.tokenizer().clone();
            // All but the prompts costs little to clone.
            let request = CompletionRequest {
                prompt: CompletionPrompt::TokenIds(Vec::new()),
                common: request.common.clone(),
                ..*request
            };
            let make = move |_: &CancelFlag| completion_choices(&request, &tokenizer, outputs);
            self.engine.run_aside(size, make).await?
        };
        Ok(CompletionResponse {
            id,
            object: "text_completion".to_owned(),
            created: context.created,
            model: self.model_name(),
            choices,
            usage,
            system_fingerprint: self.system_fingerprint.clone(),
            warnings: request.common.told_warnings(),
        })
    }

    /// Bytes that the answers have of their prompts together. Refuses those that would take too much.
    async fn repeated_bytes(
        &self,
        request: &CompletionRequest,
        streams: &[RequestStream],
    ) -> Result<usize, ServingError> {
        let echoed = match request.echo {
            false => 0,
            true => {
                let tokenizer = self.engine.tokenizer().clone();
                let prompt = request.prompt.clone();
                let count = move |_: &CancelFlag| echo::json_bytes(&prompt, &tokenizer);
                let size = request.prompt.num_bytes();
                self.engine.run_by_size(size, count).await?
            }
        };
        let num_tokens = streams.iter().map(RequestStream::num_prompt_tokens).sum();
        Ok(check_repeated(request, num_tokens, echoed)?)
    }

    /// Refuses a model that isn't served here.
    ///
    /// # Errors
    /// [`ServingError::ModelNotFound`].
    pub fn check_model(&self, model: Option<&str>) -> Result<(), ServingError> {
        let Some(model) = model else { return Ok(()) };
        let is_folder = || {
            let folder = self.model_folder.as_deref();
            folder.is_some_and(|folder| Path::new(model).canonicalize().is_ok_and(|m| m == folder))
        };
        if self.served_model_names.iter().any(|name| name == model) || is_folder() {
            return Ok(());
        }
        Err(ServingError::ModelNotFound {
            model: model.to_owned(),
            served: self.served_model_names.clone(),
        })
    }

    /// What answers: changes with the version and with the model's tokenizer.
    pub(super) fn system_fingerprint(&self) -> &str {
        &self.system_fingerprint
    }

    pub(crate) fn model_name(&self) -> String {
        self.served_model_names.first().cloned().unwrap_or_default()
    }

    /// Runs the requests of one API request side by side. The first error drops, and so aborts,
    /// the others.
    pub(crate) async fn generate(
        &self,
        requests: Vec<GenerateRequest>,
        context: &RequestContext,
    ) -> Result<Vec<RequestOutput>, ServingError> {
        let outputs = self.generate_each(requests, context).await;
        outputs.map_err(|(_, error)| error)
    }

    /// The same; the error has the index of its request. What is refused before any starts has 0.
    pub(crate) async fn generate_each(
        &self,
        requests: Vec<GenerateRequest>,
        context: &RequestContext,
    ) -> Result<Vec<RequestOutput>, (usize, ServingError)> {
        let streams = self.start(requests, context).await;
        collect(streams.map_err(|error| (0, error))?).await
    }

    /// Starts the requests of one API request, all or none.
    pub(crate) async fn start(
        &self,
        requests: Vec<GenerateRequest>,
        context: &RequestContext,
    ) -> Result<Vec<RequestStream>, ServingError> {
        let mut requests = requests;
        let trace_headers: Shared<[(String, String)]> = context.trace_headers.as_slice().into();
        for request in &mut requests {
            let params = &mut request.sampling_params;
            params.seed = params.seed.or(context.default_seed);
            request.trace_headers = trace_headers.clone();
            request.cache_salt = context.cache_salt(request.cache_salt.take());
            request.owner = context.owner;
        }
        let usage = Some(context.usage.clone());
        Ok(self.engine.generate_all(requests, usage).await?)
    }

    fn usage(&self, outputs: &[RequestOutput]) -> UsageInfo {
        let prompt: usize = outputs.iter().map(|o| o.prompt_token_ids.len()).sum();
        let cached = outputs.iter().map(|o| u64::from(o.num_cached_tokens)).sum();
        let completion: usize = outputs
            .iter()
            .flat_map(|o| &o.outputs)
            .map(|c| c.token_ids.len())
            .sum();
        let answers = outputs.iter().flat_map(|o| &o.outputs);
        let reasoning = answers.map(|c| u64::from(c.num_reasoning_tokens)).sum();
        UsageInfo::new(prompt as u64, completion as u64)
            .with_reasoning_tokens(reasoning)
            .with_cached_tokens(self.tells_cached_tokens().then_some(cached))
    }

    /// How the model writes calls, where that is known.
    pub(super) fn tool_call_format(&self) -> Option<Arc<ToolCallFormat>> {
        self.tool_call_format.clone()
    }

    pub(crate) fn tells_cached_tokens(&self) -> bool {
        self.prompt_tokens_details
    }
}

/// Waits for the whole outputs of some streams; the first error, with its stream's index, aborts the others.
async fn collect(streams: Vec<RequestStream>) -> Result<Vec<RequestOutput>, (usize, ServingError)> {
    let mut outputs = Vec::with_capacity(streams.len());
    for (i, stream) in streams.into_iter().enumerate() {
        let output = stream.collect().await;
        outputs.push(output.map_err(|error| (i, error.into()))?);
    }
    Ok(outputs)
}

/// Bytes that the answers have of their prompts, which have so many tokens, and as JSON so many bytes of text where that
/// is echoed. Refuses what would repeat them in so many answers that they take too much; what a prompt has itself is free.
fn check_repeated(
    request: &CompletionRequest,
    num_tokens: usize,
    echoed: usize,
) -> Result<usize, ValidationError> {
    /// Bytes of a token's id, as a number and as JSON.
    const ID_BYTES: usize = 16;
    let common = &request.common;
    let n = common.n.unwrap_or(1);
    let of_echo = echoed.saturating_mul(n as usize);
    let of_ids = match common.return_token_ids {
        true => ID_BYTES,
        false => 0,
    };
    // The token itself may not be among the likeliest. A negative number asks for the whole vocabulary,
    // which no server has room for in more than one answer.
    let of_echoed = request.logprobs.filter(|_| request.echo);
    let of_logprobs = match common.prompt_logprobs.or(of_echoed) {
        Some(asked) => usize::try_from(asked).map_or(MAX_ANSWER_BYTES, |asked| {
            asked.saturating_add(1).saturating_mul(LOGPROB_BYTES)
        }),
        None => 0,
    };
    let bytes = (num_tokens * (n as usize).saturating_sub(1))
        .saturating_mul(of_ids.saturating_add(of_logprobs))
        .saturating_add(of_echo.saturating_sub(request.prompt.num_bytes()));
    if bytes <= MAX_ANSWER_BYTES {
        // An echoed prompt is read once in any case.
        return Ok(bytes.saturating_add(echoed));
    }
    let message = format!(
        "the prompt's text (echo), its token ids or logprobs would be in {n} answers, {bytes} bytes together: at \
         most {MAX_ANSWER_BYTES} are possible. Ask for fewer answers"
    );
    Err(ValidationError::field("n", n, message))
}

/// The answers in the API's words. Each output is dropped once it is told.
fn completion_choices(
    request: &CompletionRequest,
    tokenizer: &Tokenizer,
    outputs: Vec<RequestOutput>,
) -> Vec<CompletionResponseChoice> {
    let n = request.common.n.unwrap_or(1);
    let mut choices = Vec::new();
    for (i, mut output) in (0..).zip(outputs) {
        let prompt = request.echo.then(|| prompt_text(tokenizer, &output));
        for completion in std::mem::take(&mut output.outputs) {
            let index = i * n + completion.index;
            let prompt = prompt.clone();
            choices.push(completion_choice(
                request, tokenizer, &output, completion, index, prompt,
            ));
        }
    }
    choices
}

fn completion_choice(
    request: &CompletionRequest,
    tokenizer: &Tokenizer,
    output: &RequestOutput,
    mut completion: CompletionOutput,
    index: u32,
    prompt: Option<Arc<str>>,
) -> CompletionResponseChoice {
    let (text, logprobs) = text_and_logprobs(request, tokenizer, output, &mut completion, prompt);
    let keep_answer = !request.echo_only();
    let return_token_ids = request.common.return_token_ids;
    CompletionResponseChoice {
        index,
        text,
        logprobs,
        finish_reason: completion.finish_reason.map(|r| r.as_str().to_owned()),
        stop_reason: completion.stop_reason.as_ref().map(stop_reason),
        structured_output_complete: completion.structured_output_complete,
        structured_output_completed_by_budget: completion.structured_output_completed_by_budget,
        structured_output_repetition_closed: completion.structured_output_repetition_closed,
        trace: take_trace(tokenizer, &mut completion).filter(|_| keep_answer),
        token_ids: return_token_ids.then(|| {
            if keep_answer {
                completion.token_ids
            } else {
                Vec::new()
            }
        }),
        prompt_token_ids: return_token_ids.then(|| output.prompt_token_ids.to_vec()),
        prompt_logprobs: match request.common.prompt_logprobs {
            Some(_) => PromptLogprobs::of(output),
            None => None,
        },
    }
}

fn system_fingerprint(engine: &AsyncLLM) -> String {
    let tokenizer = engine.tokenizer().fingerprint();
    let tokenizer = tokenizer.get(..8).unwrap_or(tokenizer);
    format!("formwork-{}-{tokenizer}", protocol::BUILD_VERSION)
}

pub(super) fn stop_reason(reason: &StopReason) -> Value {
    match reason {
        StopReason::TokenId(id) => Value::from(*id),
        StopReason::String(string) => Value::from(string.as_str()),
    }
}

pub(super) fn request_id(prefix: &str, own: Option<&str>, context: &RequestContext) -> String {
    format!("{prefix}-{}", own.unwrap_or(&context.request_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{fake_engine, output};

    #[test]
    fn no_two_callers_have_a_salt_in_common() {
        let salt = |callers: Option<&str>, own: Option<&str>| {
            let context = RequestContext {
                request_id: String::new(),
                created: 0,
                default_seed: None,
                trace_headers: Vec::new(),
                caller_salt: callers.map(Arc::from),
                owner: 0,
                usage: Arc::default(),
            };
            context.cache_salt(own.map(str::to_owned))
        };
        assert_eq!(salt(None, None), None);
        assert_eq!(salt(None, Some("s")).as_deref(), Some("s"));
        assert_eq!(salt(Some("a1"), None).as_deref(), Some("a1"));
        assert_eq!(salt(Some("a1"), Some("s")).as_deref(), Some("a1/s"));
    }

    fn context() -> RequestContext {
        RequestContext {
            request_id: "r".to_owned(),
            created: 0,
            default_seed: None,
            trace_headers: Vec::new(),
            caller_salt: Some("a1".into()),
            owner: 5,
            usage: Arc::default(),
        }
    }

    /// A quotation mark is two bytes of JSON, and the token 257 has ten.
    #[tokio::test]
    async fn echoed_prompts_are_bounded_by_their_json() {
        let serving = |engine| {
            let names = vec!["m".to_owned()];
            OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default())
        };
        let (refusing, _core) = fake_engine(5000);
        let (engine, mut core) = fake_engine(5000);
        let (refusing, serving) = (serving(refusing), serving(engine));
        let context = context();
        let request = |n: u32, prompt: Value| {
            let body = serde_json::json!({
                "prompt": prompt, "n": n, "max_tokens": 9, "echo": true, "return_token_ids": false,
            });
            CompletionRequest::from_json(body).unwrap()
        };
        let quoted = "\"".repeat(1000);
        let ends = "<|im_end|>".repeat(1000);
        for (prompt, n, echoed) in [
            (Value::from(quoted.as_str()), 14_000, quoted),
            (vec![257; 1000].into(), 3000, ends),
        ] {
            let too_many = request(n, prompt.clone());
            let refused = refusing.create_completion(&too_many, &context);
            let error = refused.await.unwrap_err().to_string();
            assert!(error.contains("text (echo)"), "{error}");
            assert!(error.contains("at most 25165824"), "{error}");
            let request = request(2, prompt);
            let answer = serving.create_completion(&request, &context);
            let generate = async {
                for _ in 0..2 {
                    let request = core.added().await;
                    let end = Some(protocol::FinishReason::Length);
                    core.send(vec![output(&request.request_id, "ab", end)]);
                }
            };
            let (answer, ()) = tokio::join!(answer, generate);
            let texts: Vec<String> = (answer.unwrap().choices.iter())
                .map(|choice| choice.text.to_string())
                .collect();
            assert_eq!(texts, vec![format!("{echoed}ab"); 2]);
        }
    }

    #[tokio::test]
    async fn tokens_are_counted_though_nobody_takes_the_answer() {
        let (engine, mut core) = fake_engine(64);
        let names = vec!["m".to_owned()];
        let serving = OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default());
        let context = context();
        let body = serde_json::json!({"prompt": "seven b", "n": 2, "max_tokens": 9});
        let request = CompletionRequest::from_json(body).unwrap();
        let usage = context.usage.clone();
        {
            let answer = serving.create_completion(&request, &context);
            tokio::pin!(answer);
            let generate = async {
                for _ in 0..2 {
                    let request = core.added().await;
                    assert_eq!(request.cache_salt.as_deref(), Some("a1"));
                    assert_eq!(request.owner, 5);
                    core.send(vec![output(&request.request_id, "abc", None)]);
                }
                while usage.completion_tokens() < 6 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                _ = &mut answer => panic!("there is no end yet"),
                () = generate => {}
            }
        }
        // The answer was given up before its end.
        assert_eq!((usage.prompt_tokens(), usage.completion_tokens()), (7, 6));
    }

    #[tokio::test]
    async fn a_model_is_known_by_its_names_and_by_paths_of_its_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("m");
        std::fs::create_dir(&folder).unwrap();
        let (engine, _core) = fake_engine(64);
        let dotted = folder.join("../m");
        let serving = OpenAIServing::new(
            Arc::new(engine),
            vec!["m".to_owned()],
            DefaultSamplingParams::default(),
        )
        .with_model_folder(&dotted);
        let check = |model: &Path| serving.check_model(model.to_str());
        for model in [Path::new("m"), &folder, &dotted, &folder.join(".")] {
            assert!(check(model).is_ok(), "{}", model.display());
        }
        assert!(serving.check_model(None).is_ok());
        for model in [parent.path(), Path::new("other")] {
            assert!(matches!(
                check(model),
                Err(ServingError::ModelNotFound { .. })
            ));
        }
    }
}
