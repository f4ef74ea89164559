//! A conversation, to the text that a chat template makes of it.

use std::mem;

use structured_output::CancelFlag;
use tokenizer::{
    ChatTemplate, ChatTemplateError, ChatTemplateRequest, TemplateMessage, TemplateValue, Tokenizer,
};

use super::{ChatPrompt, InputProcessor};
use crate::error::ValidationError;

/// A conversation that is read: its messages are values of a template, and no JSON any more.
pub(super) struct Conversation {
    /// All but the messages and the template.
    chat: ChatPrompt,
    messages: Vec<TemplateMessage>,
    /// The request's own template.
    own_template: Option<ChatTemplate>,
}

impl Conversation {
    /// Reads a conversation.
    ///
    /// # Errors
    /// A message of a wrong shape; a template that the request brought and that doesn't compile, or none at all.
    pub(super) fn new(
        mut chat: ChatPrompt,
        tokenizer: &Tokenizer,
    ) -> Result<Self, ValidationError> {
        let templates = tokenizer.chat_templates();
        let own_template = chat.chat_template.take();
        let own_template = own_template
            .map(|source| templates.compile(&source))
            .transpose()
            .map_err(|error| ValidationError::about("chat_template", error.to_string()))?;
        if own_template.is_none()
            && let Err(error) = templates.select(chat.tools.is_some())
        {
            return Err(ValidationError::about("messages", error.to_string()));
        }
        let messages = TemplateMessage::list(mem::take(&mut chat.messages)).map_err(|error| {
            let message = error.to_string();
            match error {
                ChatTemplateError::InvalidMessage { field, .. } => {
                    ValidationError::about(field, message)
                }
                _ => ValidationError::about("messages", message),
            }
        })?;
        Ok(Self {
            chat,
            messages,
            own_template,
        })
    }

    /// The text that the answer continues.
    ///
    /// # Errors
    /// A template that refuses the conversation, or that does too much.
    pub(super) fn render(
        &self,
        tokenizer: &Tokenizer,
        cancel: &CancelFlag,
    ) -> Result<String, ValidationError> {
        let mut text = self.apply_template(self.chat.add_generation_prompt, tokenizer, cancel)?;
        if self.chat.continue_final_message {
            let end = final_message_end(&text, self.last_text())?;
            text.truncate(end);
        }
        Ok(text)
    }

    /// The text of the last message, where its content is one.
    fn last_text(&self) -> &str {
        let last = self.messages.last();
        last.and_then(TemplateMessage::text).unwrap_or_default()
    }

    fn apply_template(
        &self,
        add_generation_prompt: bool,
        tokenizer: &Tokenizer,
        cancel: &CancelFlag,
    ) -> Result<String, ValidationError> {
        let tools = self.chat.tools.as_ref();
        let render = |tools: Option<&TemplateValue>| {
            self.template(tools.is_some(), tokenizer)?
                .render(&ChatTemplateRequest {
                    messages: &self.messages,
                    tools,
                    documents: self.chat.documents.as_ref(),
                    add_generation_prompt,
                    chat_template_kwargs: Some(&self.chat.chat_template_kwargs),
                    now: None,
                    cancel: Some(cancel),
                })
        };
        render(tools).map_err(|error| match (error, tools) {
            // Without them it would be a prompt.
            (error @ ChatTemplateError::LimitExceeded { .. }, Some(tools))
                if !tools.is_empty() && render(None).is_ok() =>
            {
                let message = format!("tools: {error} with {} tools: send fewer", tools.len());
                ValidationError::about("tools", message)
            }
            (error, _) => {
                let parameter = match &self.own_template {
                    Some(_) => "chat_template",
                    None => "messages",
                };
                ValidationError::about(parameter, error.to_string())
            }
        })
    }

    fn template<'t>(
        &'t self,
        has_tools: bool,
        tokenizer: &'t Tokenizer,
    ) -> Result<&'t ChatTemplate, ChatTemplateError> {
        match &self.own_template {
            Some(own) => Ok(own),
            None => tokenizer.chat_templates().select(has_tools),
        }
    }
}

impl InputProcessor {
    /// Where a conversation, of which `rendered` is the text, leaves the model's thinking.
    ///
    /// # Errors
    /// A template that refuses the conversation without the opening of an answer.
    pub(super) fn reasoning_ended_in_chat(
        &self,
        conversation: &Conversation,
        rendered: &str,
        cancel: &CancelFlag,
    ) -> Result<Option<bool>, ValidationError> {
        let Some(reasoning) = &self.reasoning else {
            return Ok(Some(true));
        };
        let chat = &conversation.chat;
        if chat.continue_final_message {
            return Ok(Some(reasoning.ended_in_answer(conversation.last_text())));
        }
        let tokenizer = &self.tokenizer;
        let Ok(template) = conversation.template(chat.tools.is_some(), tokenizer) else {
            return Ok(Some(true));
        };
        let without_opening = match chat.add_generation_prompt {
            true => conversation.apply_template(false, tokenizer, cancel)?,
            false => rendered.to_owned(),
        };
        Ok(reasoning.ended_in_opening(rendered, &without_opening, template))
    }
}

/// Where the last message's text ends in the rendered conversation.
fn final_message_end(rendered: &str, text: &str) -> Result<usize, ValidationError> {
    let content = text.trim();
    let start = match content {
        "" => None,
        content => rendered.rfind(content),
    };
    start.map(|start| start + content.len()).ok_or_else(|| {
        ValidationError::field(
            "continue_final_message",
            true,
            "continue_final_message needs a last message with text that the chat template keeps \
             as it is",
        )
    })
}
