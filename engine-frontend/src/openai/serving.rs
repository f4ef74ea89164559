//! Answers API requests with an engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{FinishReason, StopReason};
use serde_json::{Map, Value};

use super::chat::{
    ChatCompletionRequest, ChatCompletionResponse, ChatCompletionResponseChoice, ChatMessage,
};
use super::completion::{CompletionRequest, CompletionResponse, CompletionResponseChoice};
use super::echo::echo_prompt;
use super::error::ServingError;
use super::logprobs::{ChatCompletionLogProbs, CompletionLogProbs, prompt_logprobs};
use super::request::{DefaultSamplingParams, UsageInfo};
use super::tool_call::split_answer;
use super::tool_format::{Openings, ToolCallFormat};
use super::tools::ToolChoice;
use crate::async_llm::{AsyncLLM, RequestStream};
use crate::error::ValidationError;
use crate::input_processor::{GenerateRequest, Prompt};
use crate::outputs::{CompletionOutput, RequestOutput};

/// What a request doesn't say itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestContext {
    /// The request's id without prefix; a `request_id` in the body wins.
    pub request_id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Seed for a request without one; `None` draws one.
    pub default_seed: Option<u64>,
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
    tool_call_format: Option<ToolCallFormat>,
    chat: ChatSettings,
    system_fingerprint: String,
}

/// What a server decides for all conversations.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatSettings {
    /// Variables of the template that a request doesn't set itself.
    pub default_chat_template_kwargs: Map<String, Value>,
    /// Whether a request may bring a template.
    pub trust_request_chat_template: bool,
    /// The role of answers.
    pub response_role: String,
}

impl Default for ChatSettings {
    fn default() -> Self {
        Self {
            default_chat_template_kwargs: Map::new(),
            trust_request_chat_template: false,
            response_role: "assistant".to_owned(),
        }
    }
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
    pub fn with_tool_call_format(mut self, format: ToolCallFormat) -> Self {
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
        let outputs = self.generate(requests, context).await?;
        let n = request.common.n.unwrap_or(1);
        let mut choices = Vec::new();
        for (i, output) in (0..).zip(&outputs) {
            for completion in &output.outputs {
                let index = i * n + completion.index;
                choices.push(self.completion_choice(request, output, completion, index));
            }
        }
        let usage = if request.echo_only() {
            let prompt_tokens = self.usage(&outputs).prompt_tokens;
            UsageInfo::new(prompt_tokens, 0)
        } else {
            self.usage(&outputs)
        };
        Ok(CompletionResponse {
            id,
            object: "text_completion".to_owned(),
            created: context.created,
            model: self.model_name(),
            choices,
            usage,
            system_fingerprint: self.system_fingerprint.clone(),
        })
    }

    /// Answers a chat request as a whole, whatever its `stream` says.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn create_chat_completion(
        &self,
        request: &ChatCompletionRequest,
        context: &RequestContext,
    ) -> Result<ChatCompletionResponse, ServingError> {
        self.check_model(request.common.model.as_deref())?;
        let id = request_id("chatcmpl", request.common.request_id.as_deref(), context);
        let (generate, openings) = self.chat_generate_request(request, &id)?;
        let outputs = self.generate(vec![generate], context).await?;
        let usage = self.usage(&outputs);
        let role = self.response_role(request);
        let mut response = ChatCompletionResponse {
            id,
            object: "chat.completion".to_owned(),
            created: context.created,
            model: self.model_name(),
            choices: Vec::new(),
            usage,
            system_fingerprint: self.system_fingerprint.clone(),
            prompt_logprobs: None,
            prompt_token_ids: None,
        };
        for output in outputs {
            if request.common.return_token_ids {
                response.prompt_token_ids = Some(output.prompt_token_ids.to_vec());
            }
            response.prompt_logprobs = output.prompt_logprobs.as_deref().map(prompt_logprobs);
            for completion in output.outputs {
                response
                    .choices
                    .push(chat_choice(request, &role, openings.as_ref(), completion));
            }
        }
        Ok(response)
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

    /// Sets what the server decides for all conversations.
    #[must_use]
    pub fn with_chat_settings(mut self, chat: ChatSettings) -> Self {
        self.chat = chat;
        self
    }

    /// What answers: changes with the version and with the model's tokenizer.
    pub(super) fn system_fingerprint(&self) -> &str {
        &self.system_fingerprint
    }

    /// The role of the answer. One that goes on has its message's.
    pub(super) fn response_role(&self, request: &ChatCompletionRequest) -> String {
        let last = request
            .messages
            .last()
            .and_then(|m| m.get("role")?.as_str());
        match last {
            Some(role) if !request.add_generation_prompt => role.to_owned(),
            _ => self.chat.response_role.clone(),
        }
    }

    /// Brings the server's settings into a prompt.
    pub(super) fn complete_prompt(&self, prompt: &mut Prompt) -> Result<(), ValidationError> {
        let Prompt::Chat(chat) = prompt else {
            return Ok(());
        };
        if let Some(template) = &chat.chat_template
            && !self.chat.trust_request_chat_template
        {
            let message = "chat_template is not available: the server was started without \
                           --trust-request-chat-template";
            return Err(ValidationError::field("chat_template", template, message));
        }
        for (name, value) in &self.chat.default_chat_template_kwargs {
            let kwargs = &mut chat.chat_template_kwargs;
            kwargs.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        Ok(())
    }

    /// The engine's request, and where calls begin in its answer.
    pub(super) fn chat_generate_request(
        &self,
        request: &ChatCompletionRequest,
        id: &str,
    ) -> Result<(GenerateRequest, Option<Openings>), ServingError> {
        if request.logprobs {
            self.engine.check_top_logprobs(request.top_logprobs)?;
        }
        let defaults = &self.default_sampling_params;
        let format = self.tool_call_format;
        let (mut generate, openings) = request.to_generate_request(id, defaults, format)?;
        self.complete_prompt(&mut generate.prompt)?;
        Ok((generate, openings))
    }

    pub(super) fn model_name(&self) -> String {
        self.served_model_names.first().cloned().unwrap_or_default()
    }

    /// Runs the requests of one API request side by side. The first error drops, and so aborts,
    /// the others.
    pub(super) async fn generate(
        &self,
        requests: Vec<GenerateRequest>,
        context: &RequestContext,
    ) -> Result<Vec<RequestOutput>, ServingError> {
        let streams = self.start(requests, context).await?;
        let mut outputs = Vec::with_capacity(streams.len());
        for stream in streams {
            outputs.push(stream.collect().await?);
        }
        Ok(outputs)
    }

    /// Starts the requests of one API request. The first error aborts those that were started.
    pub(super) async fn start(
        &self,
        requests: Vec<GenerateRequest>,
        context: &RequestContext,
    ) -> Result<Vec<RequestStream>, ServingError> {
        let mut streams: Vec<RequestStream> = Vec::with_capacity(requests.len());
        for mut request in requests {
            let params = &mut request.sampling_params;
            params.seed = params.seed.or(context.default_seed);
            streams.push(self.engine.generate(request).await?);
        }
        Ok(streams)
    }

    fn completion_choice(
        &self,
        request: &CompletionRequest,
        output: &RequestOutput,
        completion: &CompletionOutput,
        index: u32,
    ) -> CompletionResponseChoice {
        let as_token_ids = request.common.return_tokens_as_token_ids;
        let keep_answer = !request.echo_only();
        let mut text = String::new();
        let mut logprobs = request.logprobs.map(|_| CompletionLogProbs::default());
        if request.echo {
            let tokenizer = self.engine.tokenizer();
            text = echo_prompt(tokenizer, output, logprobs.as_mut(), as_token_ids);
        }
        if keep_answer {
            text.push_str(&completion.text);
            if let (Some(logprobs), Some(positions)) = (&mut logprobs, &completion.logprobs) {
                for position in positions {
                    logprobs.push(Some(position), "", as_token_ids);
                }
            }
        }
        let return_token_ids = request.common.return_token_ids;
        CompletionResponseChoice {
            index,
            text,
            logprobs,
            finish_reason: completion.finish_reason.map(|r| r.as_str().to_owned()),
            stop_reason: completion.stop_reason.as_ref().map(stop_reason),
            structured_output_complete: completion.structured_output_complete,
            token_ids: return_token_ids.then(|| {
                if keep_answer {
                    completion.token_ids.clone()
                } else {
                    Vec::new()
                }
            }),
            prompt_token_ids: return_token_ids.then(|| output.prompt_token_ids.to_vec()),
            prompt_logprobs: match request.common.prompt_logprobs {
                Some(_) => output.prompt_logprobs.as_deref().map(prompt_logprobs),
                None => None,
            },
        }
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

    pub(super) fn tells_cached_tokens(&self) -> bool {
        self.prompt_tokens_details
    }
}

fn system_fingerprint(engine: &AsyncLLM) -> String {
    let tokenizer = engine.tokenizer().fingerprint();
    let tokenizer = tokenizer.get(..8).unwrap_or(tokenizer);
    format!("formwork-{}-{tokenizer}", protocol::BUILD_VERSION)
}

fn chat_choice(
    request: &ChatCompletionRequest,
    role: &str,
    openings: Option<&Openings>,
    completion: CompletionOutput,
) -> ChatCompletionResponseChoice {
    let (content, tool_calls) = match openings {
        Some(openings) => split_answer(openings, &completion.text),
        None => (Some(completion.text.clone()), Vec::new()),
    };
    let has_calls = !tool_calls.is_empty();
    ChatCompletionResponseChoice {
        index: completion.index,
        logprobs: chat_logprobs(request, &completion),
        finish_reason: finish_reason(&completion, &request.tool_choice, has_calls),
        message: ChatMessage {
            role: role.to_owned(),
            content,
            reasoning_content: completion.reasoning.filter(|_| request.include_reasoning),
            tool_calls: has_calls.then_some(tool_calls),
        },
        stop_reason: completion.stop_reason.as_ref().map(stop_reason),
        structured_output_complete: completion.structured_output_complete,
        token_ids: (request.common.return_token_ids).then_some(completion.token_ids),
    }
}

/// Why an answer is complete: `tool_calls` where it stopped by itself and its calls are whole. Of a
/// named function, as of OpenAI's, it is `stop`. A limit is never hidden.
pub(super) fn finish_reason(
    completion: &CompletionOutput,
    choice: &ToolChoice,
    has_calls: bool,
) -> Option<String> {
    let reason = completion.finish_reason?;
    let are_whole = has_calls && completion.structured_output_complete != Some(false);
    let is_named = matches!(choice, ToolChoice::Named(_));
    Some(match reason {
        FinishReason::Stop if are_whole && !is_named => "tool_calls".to_owned(),
        reason => reason.as_str().to_owned(),
    })
}

/// The logprobs of an answer, or of a piece of it, where asked for.
pub(super) fn chat_logprobs(
    request: &ChatCompletionRequest,
    completion: &CompletionOutput,
) -> Option<ChatCompletionLogProbs> {
    let positions = completion.logprobs.as_ref().filter(|_| request.logprobs)?;
    let top = match &request.common.logprob_token_ids {
        Some(_) => -1,
        None => request.top_logprobs,
    };
    let as_token_ids = request.common.return_tokens_as_token_ids;
    Some(ChatCompletionLogProbs::new(positions, top, as_token_ids))
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
    use crate::test_support::fake_engine;

    #[tokio::test]
    async fn the_servers_settings_come_into_prompts() {
        let (engine, _core) = fake_engine(64);
        let names = vec!["m".to_owned()];
        let serving = OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default());
        let kwargs = serde_json::json!({"a": 1, "b": 2});
        let settings = ChatSettings {
            default_chat_template_kwargs: kwargs.as_object().unwrap().clone(),
            ..ChatSettings::default()
        };
        let serving = serving.with_chat_settings(settings.clone());
        let prompt = |template: Option<&str>| {
            let kwargs = serde_json::json!({"b": 3});
            Prompt::Chat(crate::input_processor::ChatPrompt {
                chat_template: template.map(str::to_owned),
                chat_template_kwargs: kwargs.as_object().unwrap().clone(),
                ..Default::default()
            })
        };
        let mut plain = prompt(None);
        serving.complete_prompt(&mut plain).unwrap();
        let Prompt::Chat(chat) = plain else {
            panic!("a conversation")
        };
        let kwargs = Value::Object(chat.chat_template_kwargs);
        assert_eq!(kwargs, serde_json::json!({"b": 3, "a": 1}));
        let error = serving.complete_prompt(&mut prompt(Some("x"))).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("chat_template"));
        let serving = serving.with_chat_settings(ChatSettings {
            trust_request_chat_template: true,
            ..settings
        });
        assert!(serving.complete_prompt(&mut prompt(Some("x"))).is_ok());
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
