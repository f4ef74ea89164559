//! Prompts that one of some options is to continue, as tokens.

use structured_output::CancelFlag;

use super::tokenize::TextLimit;
use super::{ChatPrompt, InputProcessor};
use crate::error::ValidationError;

/// Characters at the end of a prompt that may change how a tokenizer writes what follows.
const MAX_ENDING_CHARS: usize = 64;

/// What the prompts of several questions begin with, tokenized once.
#[derive(Debug)]
pub(crate) struct PromptStart {
    text: String,
    token_ids: Vec<u32>,
}

/// A prompt that an option is to continue.
#[derive(Debug)]
pub(crate) struct OptionPrompt {
    pub(crate) token_ids: Vec<u32>,
    /// The prompt's last characters, and their tokens.
    ending: String,
    ending_token_ids: Vec<u32>,
}

impl InputProcessor {
    /// Renders and tokenizes a conversation. `shared_text` is in a message of it and of those that come after:
    /// the prompt up to its end is tokenized once, where the tokenizer is known to write it apart. Thinking that
    /// the template opens is closed.
    ///
    /// # Errors
    /// A template that refuses the messages, or too many tokens.
    pub(crate) fn tokenize_for_options(
        &self,
        chat: &ChatPrompt,
        shared_text: &str,
        start: &mut Option<PromptStart>,
        cancel: &CancelFlag,
    ) -> Result<OptionPrompt, ValidationError> {
        let limit = TextLimit {
            num_tokens: self.limits.max_model_len,
            is_context: true,
        };
        let mut text = self.render(chat, cancel)?;
        let known = start.take().filter(|known| text.starts_with(&known.text));
        let start = match known {
            Some(known) => start.insert(known),
            None => {
                let shared = text[..self.end_of_shared(&text, shared_text)].to_owned();
                self.check_length(&[&shared], limit, cancel)?;
                start.insert(PromptStart {
                    token_ids: self.encode(&shared, false, "prompt")?,
                    text: shared,
                })
            }
        };
        let rest = &text[start.text.len()..];
        self.check_length(&[rest], limit, cancel)?;
        let mut token_ids = start.token_ids.clone();
        token_ids.extend(self.encode(rest, false, "prompt")?);
        let reasoning = self.reasoning.as_ref();
        if let Some(reasoning) = reasoning
            && self.reasoning_ended_in_chat(chat, &text, cancel)? == Some(false)
        {
            let closing = reasoning.closing_token_ids(&self.tokenizer);
            let closing =
                closing.map_err(|error| ValidationError::about("prompt", error.to_string()))?;
            text.push_str(&self.tokenizer.decode(&closing, false));
            token_ids.extend(closing);
        }
        self.verify_prompt(&token_ids, true, None)?;
        let ending = last_chars(&text, MAX_ENDING_CHARS).to_owned();
        Ok(OptionPrompt {
            token_ids,
            ending_token_ids: self.encode(&ending, false, "prompt")?,
            ending,
        })
    }

    /// The tokens by which an option continues a prompt: those that the tokenizer writes behind it. Where both
    /// would share a token, those of the option alone.
    ///
    /// # Errors
    /// The tokenizer fails; one of the tokens is none of text; or they leave no room in the context.
    pub(crate) fn option_token_ids(
        &self,
        prompt: &OptionPrompt,
        option: &str,
        field: &str,
    ) -> Result<Vec<u32>, ValidationError> {
        let whole = self.encode(&format!("{}{option}", prompt.ending), false, field)?;
        let token_ids = match whole.strip_prefix(prompt.ending_token_ids.as_slice()) {
            Some(behind) if behind.is_empty() == option.is_empty() => behind.to_vec(),
            _ => self.encode(option, false, field)?,
        };
        let is_control = |id: &&u32| {
            self.tokenizer.is_special_token(**id) || self.tokenizer.stop_token_ids().contains(id)
        };
        if let Some(id) = token_ids.iter().find(is_control) {
            let token = self.tokenizer.id_to_token(*id).unwrap_or_default();
            let message = format!(
                "{field} has {token:?}, which is a control token of this model and no text"
            );
            return Err(ValidationError::field(field, option, message));
        }
        let (num_tokens, limit) = (
            prompt.token_ids.len() + token_ids.len(),
            self.limits.max_model_len,
        );
        if num_tokens >= limit as usize {
            let message = format!(
                "{field} makes {num_tokens} tokens with its prompt: this model's maximum context length is \
                 {limit} tokens, and one is for the end. Shorten it"
            );
            return Err(ValidationError::field(field, option, message));
        }
        Ok(token_ids)
    }

    /// The tokens that end an answer.
    pub(crate) fn end_token_ids(&self) -> &[u32] {
        self.tokenizer.stop_token_ids()
    }

    /// Where the text up to the end of `shared_text` can be cut without another effect on its tokens; 0 where
    /// that is not known.
    fn end_of_shared(&self, text: &str, shared_text: &str) -> usize {
        let Some(start) = text.find(shared_text) else {
            return 0;
        };
        let mut ends = (start + 1..=start + shared_text.len()).rev();
        ends.find(|&end| self.is_cut(text, end)).unwrap_or(0)
    }
}

/// A text's last `max` characters, or all of them.
fn last_chars(text: &str, max: usize) -> &str {
    let start = text.char_indices().rev().take(max).last();
    start.map_or("", |(start, _)| &text[start..])
}
