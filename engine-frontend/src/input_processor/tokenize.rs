//! From a prompt in any form to its tokens: template, text, ids.

use serde_json::Value;
use tokenizer::{ChatTemplateError, ChatTemplateRequest};

use super::{ChatPrompt, InputProcessor, Prompt};
use crate::error::ValidationError;

/// Most bytes of text per token that are usual.
const USUAL_TOKEN_BYTES: usize = 8;
/// Bytes of a text that is tokenized as a whole in any case.
const SHORT_TEXT: usize = 64 << 10;

/// A prompt in all its forms.
#[derive(Debug)]
pub(crate) struct TokenizedPrompt {
    pub(super) text: Option<String>,
    pub(crate) token_ids: Vec<u32>,
    /// Where it leaves the model's thinking; `None` where that may yet begin.
    pub(super) reasoning_ended: Option<bool>,
}

impl InputProcessor {
    /// Turns a prompt of any length into tokens.
    ///
    /// # Errors
    /// A template that refuses the messages.
    pub(crate) fn tokenize(
        &self,
        prompt: Prompt,
        add_special_tokens: bool,
    ) -> Result<TokenizedPrompt, ValidationError> {
        self.tokenize_within(prompt, add_special_tokens, None)
    }

    /// The same for a prompt that may have `limit` tokens. One that is far too long is refused
    /// before all of it has been read.
    ///
    /// # Errors
    /// A template that refuses the messages, or far too many tokens.
    pub(super) fn tokenize_within(
        &self,
        prompt: Prompt,
        add_special_tokens: bool,
        limit: Option<u32>,
    ) -> Result<TokenizedPrompt, ValidationError> {
        let ended_in = |token_ids: &[u32]| {
            let reasoning = self.reasoning.as_ref();
            Some(reasoning.is_none_or(|reasoning| reasoning.ended_in_tokens(token_ids)))
        };
        let (text, chat) = match prompt {
            Prompt::TokenIds(token_ids) => {
                return Ok(TokenizedPrompt {
                    text: None,
                    reasoning_ended: ended_in(&token_ids),
                    token_ids,
                });
            }
            Prompt::Text(text) => (text, None),
            Prompt::Chat(chat) => (self.render(&chat)?, Some(chat)),
        };
        if let Some(limit) = limit {
            self.refuse_far_too_long(&text, limit)?;
        }
        let token_ids = self.encode(&text, add_special_tokens, "prompt")?;
        let reasoning_ended = match &chat {
            None => ended_in(&token_ids),
            Some(chat) => self.reasoning_ended_in_chat(chat, &text)?,
        };
        Ok(TokenizedPrompt {
            text: Some(text),
            token_ids,
            reasoning_ended,
        })
    }

    /// Looks at beginnings of a long text, each four times as long as the one before, and refuses it
    /// where one has more than twice the tokens that may be: so much is not lost by what follows.
    /// Costs no more than tokenizing a text that just passes.
    fn refuse_far_too_long(&self, text: &str, limit: u32) -> Result<(), ValidationError> {
        let limit = limit as usize;
        let mut len = limit.saturating_mul(USUAL_TOKEN_BYTES).max(SHORT_TEXT);
        while len < text.len() / 2 {
            while !text.is_char_boundary(len) {
                len += 1;
            }
            let beginning = text.get(..len).unwrap_or_default();
            let num_tokens = self.encode(beginning, false, "prompt")?.len();
            if num_tokens > 2 * limit {
                return Err(self.too_long(num_tokens, "at least "));
            }
            len = len.saturating_mul(4);
        }
        Ok(())
    }

    fn reasoning_ended_in_chat(
        &self,
        chat: &ChatPrompt,
        rendered: &str,
    ) -> Result<Option<bool>, ValidationError> {
        let Some(reasoning) = &self.reasoning else {
            return Ok(Some(true));
        };
        if chat.continue_final_message {
            return Ok(Some(reasoning.ended_in_answer(chat.messages.last())));
        }
        let templates = self.tokenizer.chat_templates();
        let own = match &chat.chat_template {
            Some(source) => templates.compile(source).ok(),
            None => None,
        };
        let template = match &own {
            Some(own) => own,
            None => match templates.select(chat.tools.is_some()) {
                Ok(template) => template,
                Err(_) => return Ok(Some(true)),
            },
        };
        let without_opening = if chat.add_generation_prompt {
            self.apply_chat_template(chat, false)?
        } else {
            rendered.to_owned()
        };
        Ok(reasoning.ended_in_opening(rendered, &without_opening, template))
    }

    fn render(&self, chat: &ChatPrompt) -> Result<String, ValidationError> {
        let mut text = self.apply_chat_template(chat, chat.add_generation_prompt)?;
        if chat.continue_final_message {
            let end = final_message_end(&text, chat.messages.last())?;
            text.truncate(end);
        }
        Ok(text)
    }

    fn apply_chat_template(
        &self,
        chat: &ChatPrompt,
        add_generation_prompt: bool,
    ) -> Result<String, ValidationError> {
        let parameter = match &chat.chat_template {
            Some(_) => "chat_template",
            None => "messages",
        };
        let rendered = self.render_with(chat, chat.tools.as_deref(), add_generation_prompt);
        rendered.map_err(|error| match (error, chat.tools.as_deref()) {
            // Without them it would be a prompt.
            (error @ ChatTemplateError::LimitExceeded { .. }, Some(tools))
                if !tools.is_empty()
                    && self.render_with(chat, None, add_generation_prompt).is_ok() =>
            {
                let message = format!("tools: {error} with {} tools: send fewer", tools.len());
                ValidationError::about("tools", message)
            }
            (error, _) => {
                let message = error.to_string();
                match error {
                    ChatTemplateError::InvalidMessage { field, .. } => {
                        ValidationError::about(field, message)
                    }
                    _ => ValidationError::about(parameter, message),
                }
            }
        })
    }

    fn render_with(
        &self,
        chat: &ChatPrompt,
        tools: Option<&[Value]>,
        add_generation_prompt: bool,
    ) -> Result<String, ChatTemplateError> {
        let request = ChatTemplateRequest {
            messages: &chat.messages,
            tools,
            documents: chat.documents.as_deref(),
            add_generation_prompt,
            chat_template_kwargs: Some(&chat.chat_template_kwargs),
            now: None,
            cancel: None,
        };
        match &chat.chat_template {
            Some(source) => {
                let template = self.tokenizer.chat_templates().compile(source)?;
                template.render(&request)
            }
            None => self.tokenizer.apply_chat_template(&request),
        }
    }

    pub(super) fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        parameter: &str,
    ) -> Result<Vec<u32>, ValidationError> {
        self.tokenizer
            .encode(text, add_special_tokens)
            .map_err(|error| ValidationError::field(parameter, text, error.to_string()))
    }
}

/// Where the last message's text ends in the rendered conversation.
fn final_message_end(rendered: &str, message: Option<&Value>) -> Result<usize, ValidationError> {
    let content = message
        .and_then(|message| message.get("content"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .trim();
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
