//! Conversations: a chat request's answer as a whole, and what the server decides for all of them.

use std::mem;

use protocol::FinishReason;
use serde_json::{Map, Value};
use structured_output::CancelFlag;
use tokenizer::{ChatTemplate, Tokenizer};

use super::{OpenAIServing, RequestContext, request_id, stop_reason};
use crate::error::ValidationError;
use crate::input_processor::{ChatPrompt, GenerateRequest, Prompt};
use crate::openai::chat::{
    BatchChatCompletionRequest, ChatCompletionRequest, ChatCompletionResponse,
    ChatCompletionResponseChoice, ChatMessage,
};
use crate::openai::error::ServingError;
use crate::openai::logprobs::{ChatCompletionLogProbs, PromptLogprobs};
use crate::openai::reasoning_effort::{self, REASONING_EFFORT, thinking_token_budget};
use crate::openai::tool_call::split_answer;
use crate::openai::tool_choice::ToolChoice;
use crate::openai::tool_format::Openings;
use crate::openai::trace::take_trace;
use crate::outputs::{CompletionOutput, RequestOutput};

/// What a server decides for all conversations.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatSettings {
    /// Variables of the template that a request doesn't set itself.
    pub default_chat_template_kwargs: Map<String, Value>,
    /// Whether a request may bring a template.
    pub trust_request_chat_template: bool,
    /// Whether the template sees no tools where `tool_choice` is `none`: a model that isn't told of
    /// them writes no calls.
    pub exclude_tools_when_tool_choice_none: bool,
    /// The role of answers.
    pub response_role: String,
}

impl Default for ChatSettings {
    fn default() -> Self {
        Self {
            default_chat_template_kwargs: Map::new(),
            trust_request_chat_template: false,
            exclude_tools_when_tool_choice_none: true,
            response_role: "assistant".to_owned(),
        }
    }
}

impl OpenAIServing {
    /// Sets what the server decides for all conversations.
    #[must_use]
    pub fn with_chat_settings(mut self, chat: ChatSettings) -> Self {
        self.chat = chat;
        self
    }

    /// Answers a chat request as a whole, whatever its `stream` says.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn create_chat_completion(
        &self,
        mut request: ChatCompletionRequest,
        context: &RequestContext,
    ) -> Result<ChatCompletionResponse, ServingError> {
        let conversation = mem::take(&mut request.messages);
        self.answer_conversations(request, vec![conversation], context)
            .await
    }

    /// Answers several conversations, with one choice for each.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer. What is wrong with a conversation names it by its
    /// index.
    pub async fn create_batch_chat_completion(
        &self,
        request: BatchChatCompletionRequest,
        context: &RequestContext,
    ) -> Result<ChatCompletionResponse, ServingError> {
        self.answer_conversations(request.shared, request.conversations, context)
            .await
    }

    /// Adds warnings about parts of a request that its chat template doesn't read, once for all conversations.
    pub fn warn_of_unread_in_batch(&self, request: &mut BatchChatCompletionRequest) {
        let shared = &mut request.shared;
        for (i, conversation) in request.conversations.iter_mut().enumerate() {
            mem::swap(&mut shared.messages, conversation);
            let mut unread = self.unread(shared);
            mem::swap(&mut shared.messages, conversation);
            unread.rename(|field| match field.strip_prefix("messages") {
                Some(place) => format!("messages[{i}]{place}"),
                None => field.to_owned(),
            });
            shared.common.warnings.extend(unread);
        }
    }

    /// One prompt and its answers for each conversation. `request` has all but their messages.
    async fn answer_conversations(
        &self,
        request: ChatCompletionRequest,
        conversations: Vec<Vec<Value>>,
        context: &RequestContext,
    ) -> Result<ChatCompletionResponse, ServingError> {
        self.check_model(request.common.model.as_deref())?;
        let id = request_id("chatcmpl", request.common.request_id.as_deref(), context);
        let roles: Vec<String> = (conversations.iter())
            .map(|messages| self.response_role(&request, messages))
            .collect();
        let is_one = conversations.len() == 1;
        let (request, generate, openings) = self.chat_generate_request(request, &id).await?;
        let requests = generate_requests(generate, conversations);
        let outputs = self.generate_each(requests, context).await;
        let outputs = outputs.map_err(|(i, error)| match i {
            // The first may have failed for what all share.
            0 => error,
            i => error.within(&format!("messages[{i}]")),
        })?;
        let usage = self.usage(&outputs);
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
            warnings: request.common.told_warnings(),
        };
        let size = outputs.iter().map(RequestOutput::num_bytes).sum();
        let tokenizer = self.engine.tokenizer().clone();
        let n = request.common.n.unwrap_or(1);
        let fill = move |_: &CancelFlag| {
            for ((i, output), role) in (0..).zip(outputs).zip(&roles) {
                if request.common.return_token_ids && is_one {
                    response.prompt_token_ids = Some(output.prompt_token_ids.to_vec());
                }
                response.prompt_logprobs = PromptLogprobs::of(&output);
                for mut completion in output.outputs {
                    completion.index += i * n;
                    let openings = openings.as_ref();
                    let choice = chat_choice(&request, &tokenizer, role, openings, completion);
                    response.choices.push(choice);
                }
            }
            response
        };
        Ok(self.engine.run_by_size(size, fill).await?)
    }

    /// The role of the answer to a conversation. One that goes on has its message's.
    pub(in crate::openai) fn response_role(
        &self,
        request: &ChatCompletionRequest,
        messages: &[Value],
    ) -> String {
        let last = messages.last().and_then(|m| m.get("role")?.as_str());
        match last {
            Some(role) if !request.add_generation_prompt => role.to_owned(),
            _ => self.chat.response_role.clone(),
        }
    }

    /// Brings the server's settings into a prompt, whose request has this choice.
    pub(crate) fn complete_prompt(
        &self,
        prompt: &mut Prompt,
        choice: &ToolChoice,
    ) -> Result<(), ValidationError> {
        let Prompt::Chat(chat) = prompt else {
            return Ok(());
        };
        if !self.shows_tools(choice) {
            chat.tools = None;
        }
        if let Some(template) = &chat.chat_template
            && !self.chat.trust_request_chat_template
        {
            let message = "chat_template is not available: the server was started without \
                           --trust-request-chat-template";
            return Err(ValidationError::field(
                "chat_template",
                &**template,
                message,
            ));
        }
        let reads_effort = self.reads_effort(chat);
        let kwargs = chat.chat_template_kwargs.make_mut();
        for (name, value) in &self.chat.default_chat_template_kwargs {
            kwargs.insert_missing(name, || value.clone());
        }
        reasoning_effort::switch_thinking(kwargs, reads_effort)
    }

    /// Whether the template sees the tools of a request with this choice.
    fn shows_tools(&self, choice: &ToolChoice) -> bool {
        *choice != ToolChoice::None || !self.chat.exclude_tools_when_tool_choice_none
    }

    /// True if the template of a conversation reads `reasoning_effort`.
    fn reads_effort(&self, chat: &ChatPrompt) -> bool {
        if let Some(own) = &chat.chat_template {
            return own.contains(REASONING_EFFORT);
        }
        let template = self.chat_template(chat.tools.is_some());
        template.is_some_and(|template| template.mentions_name(REASONING_EFFORT))
    }

    /// The model's template for a conversation, if it has one that can be used.
    pub(super) fn chat_template(&self, has_tools: bool) -> Option<&ChatTemplate> {
        let templates = self.engine.tokenizer().chat_templates();
        templates.select(has_tools).ok()
    }

    /// Bounds the thinking of a request by its effort, unless it has a budget or the model doesn't think.
    fn bound_thinking(&self, generate: &mut GenerateRequest) {
        let budget = &mut generate.sampling_params.thinking_token_budget;
        if let Prompt::Chat(chat) = &generate.prompt
            && budget.is_none()
            && self.engine.takes_thinking_budget()
        {
            let variables = &chat.chat_template_kwargs;
            *budget = thinking_token_budget(variables, self.reads_effort(chat));
        }
    }

    /// The request, the engine's, and where calls begin in its answer: see
    /// [`ChatCompletionRequest::take_generate_request`].
    pub(crate) async fn chat_generate_request(
        &self,
        mut request: ChatCompletionRequest,
        id: &str,
    ) -> Result<(ChatCompletionRequest, GenerateRequest, Option<Openings>), ServingError> {
        if request.logprobs {
            self.engine.check_top_logprobs(request.top_logprobs)?;
        }
        let (id, defaults) = (id.to_owned(), self.default_sampling_params);
        let format = self.tool_call_format();
        let size = request.num_bytes();
        let shows_tools = self.shows_tools(&request.tool_choice);
        let take = move |_: &CancelFlag| {
            // They may be large, which takes long to drop.
            request.tools = request.tools.filter(|_| shows_tools);
            let taken = request.take_generate_request(&id, &defaults, format);
            (request, taken)
        };
        // Schemas of tools are parsed and put together.
        let (request, taken) = self.engine.run_by_size(size, take).await?;
        let (mut generate, openings) = taken?;
        self.complete_prompt(&mut generate.prompt, &request.tool_choice)?;
        self.bound_thinking(&mut generate);
        Ok((request, generate, openings))
    }
}

/// The engine's requests, one per conversation, with the ids `{id}-{i}` where there are several. `generate` is a
/// request without messages.
fn generate_requests(
    mut generate: GenerateRequest,
    conversations: Vec<Vec<Value>>,
) -> Vec<GenerateRequest> {
    let set_messages = |generate: &mut GenerateRequest, conversation| {
        if let Prompt::Chat(chat) = &mut generate.prompt {
            chat.messages = conversation;
        }
    };
    let mut conversations = conversations;
    if conversations.len() == 1 {
        set_messages(&mut generate, conversations.swap_remove(0));
        return vec![generate];
    }
    let of_conversation = |(i, conversation)| {
        let mut generate = generate.clone();
        generate.request_id = format!("{}-{i}", generate.request_id);
        generate.prompt_field = Some(format!("messages[{i}]"));
        set_messages(&mut generate, conversation);
        generate
    };
    (conversations.into_iter().enumerate())
        .map(of_conversation)
        .collect()
}

fn chat_choice(
    request: &ChatCompletionRequest,
    tokenizer: &Tokenizer,
    role: &str,
    openings: Option<&Openings>,
    mut completion: CompletionOutput,
) -> ChatCompletionResponseChoice {
    let (content, tool_calls) = match openings {
        Some(openings) => split_answer(openings, &completion.text),
        None => (Some(completion.text.clone()), Vec::new()),
    };
    let has_calls = !tool_calls.is_empty();
    let trace = take_trace(tokenizer, &mut completion);
    ChatCompletionResponseChoice {
        index: completion.index,
        logprobs: chat_logprobs(request, &mut completion),
        finish_reason: finish_reason(&completion, &request.tool_choice, has_calls),
        message: ChatMessage {
            role: role.to_owned(),
            content,
            reasoning_content: completion.reasoning.filter(|_| request.include_reasoning),
            tool_calls: has_calls.then_some(tool_calls),
        },
        stop_reason: completion.stop_reason.as_ref().map(stop_reason),
        structured_output_complete: completion.structured_output_complete,
        structured_output_completed_by_budget: completion.structured_output_completed_by_budget,
        structured_output_repetition_closed: completion.structured_output_repetition_closed,
        trace,
        token_ids: (request.common.return_token_ids).then_some(completion.token_ids),
    }
}

/// Why an answer is complete: `tool_calls` where it stopped by itself and its calls are whole. Of a
/// named function, as of OpenAI's, it is `stop`. A limit is never hidden.
pub(in crate::openai) fn finish_reason(
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

/// The logprobs of an answer, or of a piece of it, where asked for. They are taken out of it: both forms of them
/// at once would take twice the memory.
pub(in crate::openai) fn chat_logprobs(
    request: &ChatCompletionRequest,
    completion: &mut CompletionOutput,
) -> Option<ChatCompletionLogProbs> {
    let positions = completion.logprobs.take().filter(|_| request.logprobs)?;
    let top = match &request.common.logprob_token_ids {
        Some(_) => -1,
        None => request.top_logprobs,
    };
    let as_token_ids = request.common.return_tokens_as_token_ids;
    Some(ChatCompletionLogProbs::new(positions, top, as_token_ids))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tokenizer::TemplateVariables;

    use super::*;
    use crate::openai::default_sampling_params::DefaultSamplingParams;
    use crate::test_support::fake_engine;

    #[tokio::test]
    async fn conversations_share_what_is_not_their_own() {
        let (engine, _core) = fake_engine(64);
        let names = vec!["m".to_owned()];
        let serving = OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default());
        let serving = serving.with_chat_settings(ChatSettings {
            trust_request_chat_template: true,
            ..ChatSettings::default()
        });
        let messages = json!([{"role": "user", "content": "a"}]);
        let body = json!({
            "messages": vec![messages; 3], "chat_template": "t", "documents": [{"text": "d"}],
            "chat_template_kwargs": {"a": ["b"]},
        });
        let request = BatchChatCompletionRequest::from_json(body).unwrap();
        let (_, generate, _) = (serving.chat_generate_request(request.shared, "r"))
            .await
            .unwrap();
        let requests = generate_requests(generate, request.conversations);
        let chats = requests.iter().map(|request| match &request.prompt {
            Prompt::Chat(chat) => chat,
            other => panic!("a conversation, not {other:?}"),
        });
        let chats: Vec<_> = chats.collect();
        let [first, others @ ..] = &chats[..] else {
            panic!("there are three");
        };
        assert_eq!(others.len(), 2);
        for other in others {
            let kwargs = &first.chat_template_kwargs;
            assert!(kwargs.is_same(&other.chat_template_kwargs));
            let template = first.chat_template.as_ref().unwrap();
            assert!(template.is_same(other.chat_template.as_ref().unwrap()));
            assert!(first.documents.is_some() && first.documents == other.documents);
        }
    }

    #[tokio::test]
    async fn the_servers_settings_come_into_prompts() {
        let (engine, _core) = fake_engine(64);
        let names = vec!["m".to_owned()];
        let serving = OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default());
        let kwargs = json!({"a": 1, "b": 2});
        let settings = ChatSettings {
            default_chat_template_kwargs: kwargs.as_object().unwrap().clone(),
            ..ChatSettings::default()
        };
        let serving = serving.with_chat_settings(settings.clone());
        let prompt = |template: Option<&str>| {
            let kwargs = json!({"b": 3});
            Prompt::Chat(crate::input_processor::ChatPrompt {
                tools: Some(json!(["tool"]).into()),
                chat_template: template.map(|template| template.to_owned().into()),
                chat_template_kwargs: TemplateVariables::from(kwargs.as_object().unwrap().clone())
                    .into(),
                ..Default::default()
            })
        };
        let completed = |serving: &OpenAIServing, choice| {
            let mut plain = prompt(None);
            serving.complete_prompt(&mut plain, &choice).unwrap();
            match plain {
                Prompt::Chat(chat) => chat,
                other => panic!("a conversation, not {other:?}"),
            }
        };
        let chat = completed(&serving, ToolChoice::Auto);
        assert!(chat.tools.is_some());
        assert_eq!(completed(&serving, ToolChoice::None).tools, None);
        let kwargs = TemplateVariables::from(json!({"b": 3, "a": 1}).as_object().unwrap().clone());
        assert_eq!(*chat.chat_template_kwargs, kwargs);
        let complete = |serving: &OpenAIServing, template| {
            serving.complete_prompt(&mut prompt(Some(template)), &ToolChoice::Auto)
        };
        let error = complete(&serving, "x").unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("chat_template"));
        let serving = serving.with_chat_settings(ChatSettings {
            trust_request_chat_template: true,
            exclude_tools_when_tool_choice_none: false,
            ..settings
        });
        assert!(complete(&serving, "x").is_ok());
        assert!(completed(&serving, ToolChoice::None).tools.is_some());
    }
}
