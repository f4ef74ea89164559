//! Prompts that one of some options is to continue, as tokens.

use std::collections::HashMap;

use structured_output::CancelFlag;

use super::conversation::Conversation;
use super::tokenize::TextLimit;
use super::{ChatPrompt, InputProcessor};
use crate::error::ValidationError;

/// Characters at the end of a prompt that may change how a tokenizer writes what follows.
const MAX_ENDING_CHARS: usize = 64;

/// Characters behind a message from which on a template's own text is all that an option's tokens depend on.
const MIN_ENDING_CHARS: usize = 16;

/// Bytes of texts whose tokens are kept for the next question.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// What the prompts of several questions have in common, tokenized once.
#[derive(Debug, Default)]
pub(crate) struct SharedPieces {
    /// Tokens of texts.
    known: HashMap<String, Vec<u32>>,
    num_bytes: usize,
    frame: Option<Frame>,
}

/// What a template writes around a message, and where that leaves thinking.
#[derive(Debug)]
struct Frame {
    before: String,
    after: String,
    reasoning_ended: Option<bool>,
}

impl SharedPieces {
    /// The tokens of a text that may come again. One that is not known has to be within the limit.
    fn encode(
        &mut self,
        processor: &InputProcessor,
        text: &str,
        limit: TextLimit,
        field: &str,
        cancel: &CancelFlag,
    ) -> Result<Vec<u32>, ValidationError> {
        if let Some(token_ids) = self.known.get(text) {
            return Ok(token_ids.clone());
        }
        let token_ids = processor.encode_within(text, limit, field, cancel)?;
        if self.num_bytes + text.len() <= MAX_KEPT_BYTES {
            self.num_bytes += text.len();
            self.known.insert(text.to_owned(), token_ids.clone());
        }
        Ok(token_ids)
    }
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
    /// Renders and tokenizes a conversation that ends with a message of this `content`. `shared_texts` are in it one
    /// behind the other, and in those that come after: the prompt up to the end of each is tokenized once, where the
    /// tokenizer is known to write it apart. Thinking that the template opens is closed.
    ///
    /// # Errors
    /// A template that refuses the messages, or too many tokens.
    pub(crate) fn tokenize_for_options(
        &self,
        chat: ChatPrompt,
        content: &str,
        shared_texts: [&str; 2],
        pieces: &mut SharedPieces,
        cancel: &CancelFlag,
    ) -> Result<OptionPrompt, ValidationError> {
        let limit = self.context_limit();
        let conversation = Conversation::new(chat, &self.tokenizer)?;
        let mut text = conversation.render(&self.tokenizer, cancel)?;
        let mut token_ids = Vec::new();
        let mut rest = text.as_str();
        for shared in shared_texts {
            let (piece, behind) = rest.split_at(self.end_of_shared(rest, shared));
            if !piece.is_empty() {
                token_ids.extend(pieces.encode(self, piece, limit, "prompt", cancel)?);
            }
            rest = behind;
        }
        token_ids.extend(self.encode_within(rest, limit, "prompt", cancel)?);
        let content_end = text.rfind(content).map(|start| start + content.len());
        if let Some(reasoning) = &self.reasoning
            && self.reasoning_ended_around(&conversation, &text, content, pieces, cancel)?
                == Some(false)
        {
            let closing = reasoning.closing_token_ids(&self.tokenizer);
            let closing =
                closing.map_err(|error| ValidationError::about("prompt", error.to_string()))?;
            text.push_str(&self.tokenizer.decode(&closing, false));
            token_ids.extend(closing);
        }
        self.verify_prompt(&token_ids, true, None)?;
        // The template's text alone where it is long enough: then the next question's options are known.
        let behind = content_end.and_then(|end| text.get(end..));
        let behind = behind.filter(|behind| behind.chars().count() >= MIN_ENDING_CHARS);
        let ending = last_chars(behind.unwrap_or(&text), MAX_ENDING_CHARS).to_owned();
        Ok(OptionPrompt {
            token_ids,
            ending_token_ids: pieces.encode(self, &ending, limit, "prompt", cancel)?,
            ending,
        })
    }

    /// Where a rendered conversation leaves thinking. The template is asked once for all messages that it writes the
    /// same around.
    fn reasoning_ended_around(
        &self,
        conversation: &Conversation,
        text: &str,
        content: &str,
        pieces: &mut SharedPieces,
        cancel: &CancelFlag,
    ) -> Result<Option<bool>, ValidationError> {
        let start = text.rfind(content);
        let around = start.map(|start| (&text[..start], &text[start + content.len()..]));
        if let (Some(frame), Some(around)) = (&pieces.frame, around)
            && (frame.before.as_str(), frame.after.as_str()) == around
        {
            return Ok(frame.reasoning_ended);
        }
        let reasoning_ended = self.reasoning_ended_in_chat(conversation, text, cancel)?;
        pieces.frame = around.map(|(before, after)| Frame {
            before: before.to_owned(),
            after: after.to_owned(),
            reasoning_ended,
        });
        Ok(reasoning_ended)
    }

    fn context_limit(&self) -> TextLimit {
        TextLimit {
            num_tokens: self.limits.max_model_len,
            is_context: true,
        }
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
        pieces: &mut SharedPieces,
        cancel: &CancelFlag,
    ) -> Result<Vec<u32>, ValidationError> {
        let whole = format!("{}{option}", prompt.ending);
        let whole = pieces.encode(self, &whole, self.context_limit(), field, cancel)?;
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
