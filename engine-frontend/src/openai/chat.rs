//! `/v1/chat/completions`: messages in, one message out.

mod batch;
mod message;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;

use protocol::Shared;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokenizer::{TemplateValue, TemplateVariables};

use super::default_sampling_params::DefaultSamplingParams;
use super::fields::Fields;
use super::ignored_fields::Api;
use super::logprobs::{ChatCompletionLogProbs, PromptLogprobs};
use super::reasoning_effort;
use super::request::{CommonFields, take_max_tokens, wrong_max_tokens};
use super::tool_call::ToolCall;
use super::tool_choice::{ToolChoice, take_tool_choice};
use super::tool_format::{Openings, ToolCallFormat};
use super::tool_strictness::{self, ToolStrictness};
use super::tools::{self, take_tools};
use super::trace::TracedToken;
use super::usage::UsageInfo;
use crate::error::ValidationError;
use crate::input_processor::{ChatPrompt, GenerateRequest, Prompt};
pub use batch::BatchChatCompletionRequest;
pub(super) use message::is_nothing;
use message::{ArgumentBudget, chat_message};

const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

/// A request for `/v1/chat/completions`.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCompletionRequest {
    /// The conversation as the template sees it: every message an object with a `role`; text
    /// parts joined by newlines.
    pub messages: Vec<Value>,
    /// Functions that the model may call, as the template sees them. `null` is in the place of one that is left
    /// out.
    pub tools: Option<Vec<Value>>,
    /// Whether the model may call them.
    pub tool_choice: ToolChoice,
    /// Whether it may call several at once.
    pub parallel_tool_calls: bool,
    /// What becomes of a tool whose schema can't be enforced.
    pub tool_strictness: ToolStrictness,
    /// Whether logprobs are reported.
    pub logprobs: bool,
    /// Number of top logprobs per token.
    pub top_logprobs: i32,
    /// Most tokens of the answer; `max_tokens` is its older name.
    pub max_completion_tokens: Option<u32>,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the answer continues the last message.
    pub continue_final_message: bool,
    /// Whether the tokenizer adds its begin-of-text token to the rendered template.
    pub add_special_tokens: bool,
    /// A list of documents for the template.
    pub documents: Option<TemplateValue>,
    /// Further variables of the template.
    pub chat_template_kwargs: TemplateVariables,
    /// A template instead of the model's, where the server lets requests bring one.
    pub chat_template: Option<String>,
    /// Whether the answer has the model's thinking.
    pub include_reasoning: bool,
    /// Everything else.
    pub common: CommonFields,
}

impl ChatCompletionRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Chat, body, false)?)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); and what has no effect.
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Chat, body, true)?)
    }

    pub(crate) fn from_fields(fields: Fields) -> Result<Self, ValidationError> {
        Self::with_messages(fields, |fields| {
            chat_messages(fields.require_list("messages")?, &mut ArgumentBudget::new())
        })
    }

    /// Reads a request whose messages come from `take_messages`.
    fn with_messages(
        mut fields: Fields,
        take_messages: impl FnOnce(&mut Fields) -> Result<Vec<Value>, ValidationError>,
    ) -> Result<Self, ValidationError> {
        let common = CommonFields::take(&mut fields)?;
        refuse_unsupported(&mut fields)?;
        let messages = take_messages(&mut fields)?;
        let tools = take_tools(&mut fields)?;
        let tool_choice = take_tool_choice(&mut fields, tools.as_deref())?;
        let kwargs = fields.take_object("chat_template_kwargs")?;
        let mut chat_template_kwargs = kwargs.unwrap_or_default();
        if let Some(effort) = reasoning_effort::take(&mut fields)? {
            chat_template_kwargs.insert(
                reasoning_effort::REASONING_EFFORT.to_owned(),
                Value::from(effort),
            );
        }
        let continue_final_message = fields.take("continue_final_message")?.unwrap_or(false);
        let documents = fields.take_list("documents")?;
        let mut request = Self {
            messages,
            tools,
            tool_choice,
            parallel_tool_calls: fields.take("parallel_tool_calls")?.unwrap_or(true),
            tool_strictness: tool_strictness::take(&mut fields)?,
            logprobs: fields.take("logprobs")?.unwrap_or(false),
            top_logprobs: fields.take("top_logprobs")?.unwrap_or(0),
            max_completion_tokens: take_max_tokens(&mut fields, MAX_COMPLETION_TOKENS)?,
            add_generation_prompt: fields
                .take("add_generation_prompt")?
                .unwrap_or(!continue_final_message),
            continue_final_message,
            add_special_tokens: fields.take("add_special_tokens")?.unwrap_or(false),
            documents: documents.map(|list| TemplateValue::from(Value::Array(list))),
            chat_template_kwargs: chat_template_kwargs.into(),
            chat_template: fields.take("chat_template")?,
            include_reasoning: fields.take("include_reasoning")?.unwrap_or(true),
            common,
        };
        request.common.warnings = fields.finish()?;
        request.verify()?;
        Ok(request)
    }

    fn verify(&self) -> Result<(), ValidationError> {
        if self.common.logprob_token_ids.is_some() && !self.logprobs {
            return Err(ValidationError::about(
                "logprob_token_ids",
                "logprob_token_ids needs logprobs, which shows them",
            ));
        }
        if self.top_logprobs != 0 && !self.logprobs {
            return Err(ValidationError::field(
                "top_logprobs",
                self.top_logprobs,
                "top_logprobs needs logprobs=true",
            ));
        }
        for (name, limit) in [
            (MAX_COMPLETION_TOKENS, self.max_completion_tokens),
            ("max_tokens", self.common.max_tokens),
        ] {
            if limit == Some(0) {
                return Err(wrong_max_tokens(name, "0"));
            }
        }
        if let Some(limit) = self.max_completion_tokens
            && let Some(other) = self.common.max_tokens.filter(|other| *other != limit)
        {
            let message = format!(
                "max_tokens and {MAX_COMPLETION_TOKENS} are one field: give one of them, not {other} and \
                 {limit}"
            );
            return Err(ValidationError::about("max_tokens", message));
        }
        if let Some(settings) = &self.common.constraint_settings
            && self.tool_choice == ToolChoice::None
        {
            return Err(settings.without_constraint());
        }
        if self.continue_final_message && self.add_generation_prompt {
            return Err(ValidationError::field(
                "continue_final_message",
                true,
                "continue_final_message and add_generation_prompt can't both be true",
            ));
        }
        Ok(())
    }

    /// The prompt, which takes what it is made of: it may be large, and the answer takes long.
    pub fn take_prompt(&mut self) -> Prompt {
        let mut tools = self.tools.take();
        if let Some(tools) = &mut tools {
            tools.retain(|tool| !tool.is_null());
        }
        Prompt::Chat(ChatPrompt {
            messages: mem::take(&mut self.messages),
            tools: tools.map(|tools| TemplateValue::from(Value::Array(tools))),
            documents: self.documents.take(),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            chat_template_kwargs: mem::take(&mut self.chat_template_kwargs).into(),
            chat_template: self.chat_template.take().map(Shared::from),
        })
    }

    /// About how many bytes of tools and constraint there are to read.
    pub(super) fn num_bytes(&self) -> usize {
        tools::bytes_to_read(self.tools.as_deref(), self.common.constraint.as_ref())
    }

    /// The engine's request, and where calls begin in its answer; takes [the
    /// prompt](Self::take_prompt) and the constraint. Without a limit of its own it may use the rest of
    /// the context. `format` is how the model writes calls, where that is known.
    ///
    /// # Errors
    /// Tools that can't be called as the request wants.
    pub(super) fn take_generate_request(
        &mut self,
        request_id: &str,
        defaults: &DefaultSamplingParams,
        format: Option<Arc<ToolCallFormat>>,
    ) -> Result<(GenerateRequest, Option<Openings>), ValidationError> {
        let tools = tools::constraint(
            &self.tool_choice,
            self.tools.as_deref().unwrap_or_default(),
            self.parallel_tool_calls,
            format,
            self.common.constraint.as_ref(),
        )?;
        let max_tokens = self
            .max_completion_tokens
            .or(self.common.max_tokens)
            .or(defaults.max_tokens);
        let prompt = self.take_prompt();
        let mut request =
            self.common
                .generate_request(request_id.to_owned(), prompt, max_tokens, defaults);
        self.common.constraint = None;
        if self.max_completion_tokens.is_some() {
            request.max_tokens_field = Some(MAX_COMPLETION_TOKENS.to_owned());
        }
        request.add_special_tokens = self.add_special_tokens;
        request.separate_reasoning = true;
        request.sampling_params.logprobs = self.logprobs.then_some(self.top_logprobs);
        let openings = tools.map(|mut tools| {
            if let Some(settings) = &self.common.constraint_settings {
                settings.apply(tools.constraint.params.make_mut());
            }
            request.constraint_has_header = tools.has_header;
            request.constrain(tools.constraint);
            // Calls may begin with a control token, the only ones that the constraint has.
            request.sampling_params.skip_special_tokens = false;
            tools.openings
        });
        Ok((request, openings))
    }
}

/// Checks the messages of a conversation, and brings them to the form that templates expect.
fn chat_messages(
    messages: Vec<Value>,
    arguments: &mut ArgumentBudget,
) -> Result<Vec<Value>, ValidationError> {
    if messages.is_empty() {
        let message = "messages must hold at least one message";
        return Err(ValidationError::field("messages", "[]", message));
    }
    let messages = messages.into_iter().enumerate();
    messages
        .map(|(i, message)| chat_message(i, message, arguments))
        .collect()
}

/// Fields of chat requests that only pass where they ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    const TEXT_ALONE: &str = "the engine reads and writes text alone";
    for (name, instead) in [
        ("echo", "/v1/completions has it"),
        (
            "return_prompt_text",
            "return_token_ids and /detokenize give it",
        ),
    ] {
        fields.refuse_unless(name, instead, |v| v == &Value::Bool(false))?;
    }
    fields.refuse_unless("modalities", TEXT_ALONE, |v| v == &json!(["text"]))?;
    fields.refuse_unless("functions", "use tools", |v| v == &json!([]))?;
    let is_idle = |value: &Value| value == "none" || value == "auto";
    fields.refuse_unless("function_call", "use tool_choice", is_idle)?;
    for (name, instead) in [
        ("media_io_kwargs", TEXT_ALONE),
        ("mm_processor_kwargs", TEXT_ALONE),
        ("audio", TEXT_ALONE),
        ("web_search_options", "the server asks no other service"),
    ] {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    Ok(())
}

/// The answer to a [`ChatCompletionRequest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCompletionResponse {
    /// `chatcmpl-...`.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// The answers.
    pub choices: Vec<ChatCompletionResponseChoice>,
    /// Tokens taken.
    pub usage: UsageInfo,
    /// What answered.
    pub system_fingerprint: String,
    /// The prompt's logprobs, with `prompt_logprobs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The prompt's tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Parts of the request that have no effect, with `include_warnings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCompletionResponseChoice {
    /// Position in `choices`.
    pub index: u32,
    /// The message.
    pub message: ChatMessage,
    /// Logprobs where asked for.
    pub logprobs: Option<ChatCompletionLogProbs>,
    /// `stop`, `tool_calls`, `length`, `abort`, `error` or `repetition`.
    pub finish_reason: Option<String>,
    /// The stop string or stop token id.
    pub stop_reason: Option<Value>,
    /// Under a constraint: whether the content is a whole text of it, not cut off by a limit or a
    /// stop string.
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
}

/// The assistant's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `assistant`.
    pub role: String,
    /// The answer, exactly as the model wrote it; `None` where it is calls.
    pub content: Option<String>,
    /// The model's thinking, where there was some, without the tokens around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Functions that the model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
}
