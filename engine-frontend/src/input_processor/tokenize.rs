//! From a prompt in any form to its tokens: template, text, ids.

use structured_output::CancelFlag;

use super::conversation::Conversation;
use super::{InputProcessor, Prompt};
use crate::error::ValidationError;

/// Tokens of a text that is counted, or cut, and not to fit the context: as many as some 45 MiB of the
/// tokenizer's memory allow, which takes up to 300 bytes per byte of a text of short words.
pub(crate) const MAX_COUNTED_TOKENS: u32 = 128 << 10;
/// Bytes of a text that is tokenized as it is, whatever its tokenizer: it takes no more memory than that.
const SHORT_WHOLE_TEXT: usize = MAX_COUNTED_TOKENS as usize;
/// Bytes of text that are tokenized at once where a text can be cut: 5 MiB of memory.
const PIECE: usize = 16 << 10;
/// Bytes behind a piece that has no place to cut in which one is looked for: a word of so many takes 118 bytes per byte.
const CUT_WITHIN: usize = SHORT_WHOLE_TEXT;
/// Bytes at the end of a piece in which it is cut before white space, where there is no place to cut.
const SPACE_WITHIN: usize = 1 << 10;
/// Bytes of a text that are read at least, however short the context is, and bytes per token of the limit beyond which
/// it isn't read: twice what long words take.
const MAX_BYTES: MaxBytes = MaxBytes {
    at_least: 1 << 20,
    per_token: 16,
};
/// The same of a text that has to be tokenized as a whole, for each token of the context, and of what normalizing makes
/// of it. The tokenizer takes up to 118 bytes for each of these, be it one word.
const MAX_WHOLE_BYTES: MaxBytes = MaxBytes {
    at_least: 576 << 10,
    per_token: 6,
};
/// Bytes of a text that may grow as it is normalized: elevenfold at most.
const SHORT_TO_NORMALIZE: usize = 32 << 10;
/// Bytes of text that are normalized at once to see what they become.
const PIECE_TO_NORMALIZE: usize = 16 << 10;

/// How long a text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextLimit {
    /// Most tokens.
    pub(crate) num_tokens: u32,
    /// True if this is the model's context.
    pub(crate) is_context: bool,
}

/// How many bytes a text may have.
struct MaxBytes {
    at_least: usize,
    per_token: usize,
}

impl MaxBytes {
    fn for_tokens(&self, num_tokens: usize) -> usize {
        num_tokens.saturating_mul(self.per_token).max(self.at_least)
    }
}

/// A prompt in all its forms.
#[derive(Debug)]
pub(crate) struct TokenizedPrompt {
    pub(super) text: Option<String>,
    pub(crate) token_ids: Vec<u32>,
    /// Where it leaves the model's thinking; `None` where that may yet begin.
    pub(super) reasoning_ended: Option<bool>,
}

impl InputProcessor {
    /// Turns a prompt into tokens that need not fit the context, but for
    /// [`MAX_COUNTED_TOKENS`].
    ///
    /// # Errors
    /// A template that refuses the messages, or too many tokens.
    pub(crate) fn tokenize(
        &self,
        prompt: Prompt,
        add_special_tokens: bool,
        cancel: &CancelFlag,
    ) -> Result<TokenizedPrompt, ValidationError> {
        let limit = TextLimit {
            num_tokens: self.max_counted_tokens(),
            is_context: false,
        };
        self.tokenize_within(prompt, add_special_tokens, limit, cancel)
    }

    /// The tokens of two texts in the tokenizer's form for such, and the first place of the second one where the
    /// model tells them apart. What is above `max_length` is cut off the texts, of the longer one first.
    ///
    /// # Errors
    /// Too many tokens.
    pub(crate) fn tokenize_pair(
        &self,
        first: &str,
        second: &str,
        add_special_tokens: bool,
        max_length: Option<usize>,
        cancel: &CancelFlag,
    ) -> Result<(Vec<u32>, Option<usize>), ValidationError> {
        let limit = TextLimit {
            num_tokens: self.max_counted_tokens(),
            is_context: false,
        };
        self.check_length(&[first, second], limit, cancel)?;
        let pair = (self.tokenizer).encode_pair(first, second, add_special_tokens, max_length);
        pair.map_err(|error| ValidationError::field("prompt", second, error.to_string()))
    }

    /// Most tokens of a text that need not fit the context.
    pub(crate) fn max_counted_tokens(&self) -> u32 {
        self.limits.max_model_len.max(MAX_COUNTED_TOKENS)
    }

    /// The same for a prompt within a limit. A text that is too long is refused before it is tokenized as a
    /// whole, which would take memory for all of it.
    ///
    /// # Errors
    /// A template that refuses the messages, or too many tokens.
    pub(super) fn tokenize_within(
        &self,
        prompt: Prompt,
        add_special_tokens: bool,
        limit: TextLimit,
        cancel: &CancelFlag,
    ) -> Result<TokenizedPrompt, ValidationError> {
        let ended_in = |token_ids: &[u32]| {
            let reasoning = self.reasoning.as_ref();
            Some(
                reasoning
                    .is_none_or(|reasoning| reasoning.ended_in_tokens(&self.tokenizer, token_ids)),
            )
        };
        let (text, conversation) = match prompt {
            Prompt::TokenIds(token_ids) => {
                return Ok(TokenizedPrompt {
                    text: None,
                    reasoning_ended: ended_in(&token_ids),
                    token_ids,
                });
            }
            Prompt::Text(text) => (text, None),
            Prompt::Chat(chat) => {
                let conversation = Conversation::new(chat, &self.tokenizer)?;
                let text = conversation.render(&self.tokenizer, cancel)?;
                (text, Some(conversation))
            }
        };
        let known = self.check_length(&[&text], limit, cancel)?;
        let ended_in_chat = match &conversation {
            None => None,
            Some(conversation) => self.reasoning_ended_in_chat(conversation, &text, cancel)?,
        };
        let is_chat = conversation.is_some();
        // Thousands of messages take as much memory as their tokens do on the way.
        drop(conversation);
        let known = match add_special_tokens {
            true => known.and_then(|known| self.tokenizer.with_special_tokens(&known)),
            false => known,
        };
        let token_ids = match known {
            Some(token_ids) => token_ids,
            None => self.encode(&text, add_special_tokens, "prompt")?,
        };
        Ok(TokenizedPrompt {
            reasoning_ended: match is_chat {
                true => ended_in_chat,
                false => ended_in(&token_ids),
            },
            text: Some(text),
            token_ids,
        })
    }

    /// Counts the tokens of texts that are tokenized together piece by piece, where they are long, and refuses them once
    /// there are more than an eighth too many: cuts between pieces may add some. Memory is that of one piece. Returns
    /// the tokens, without special ones, where it counted them and the tokenizer is known to write each piece apart.
    pub(super) fn check_length(
        &self,
        texts: &[&str],
        limit: TextLimit,
        cancel: &CancelFlag,
    ) -> Result<Option<Vec<u32>>, ValidationError> {
        let num_tokens = limit.num_tokens as usize;
        let max_bytes = MAX_BYTES.for_tokens(num_tokens);
        let max_whole_bytes = MAX_WHOLE_BYTES.for_tokens(self.limits.max_model_len as usize);
        let num_bytes: usize = texts.iter().map(|text| text.len()).sum();
        let can_be_cut = |text: &&str| {
            let (piece, behind) = self.first_piece(text);
            behind.is_empty() || self.is_cut(text, piece.len())
        };
        let is_short = num_bytes <= SHORT_WHOLE_TEXT;
        if num_bytes <= PIECE || (is_short && !texts.iter().all(can_be_cut)) {
            self.check_normalized(texts, max_whole_bytes, cancel)?;
            return Ok(None);
        }
        let (mut read, mut counted) = (0, 0);
        let mut token_ids = Some(Vec::new());
        for mut rest in texts.iter().copied() {
            while !rest.is_empty() {
                if cancel.is_cancelled() {
                    return Err(ValidationError::new("the request was cancelled"));
                }
                if read >= max_bytes {
                    return Err(self.too_many_bytes(num_bytes, max_bytes));
                }
                let (piece, behind) = self.first_piece(rest);
                let piece_ids = self.encode(piece, false, "prompt")?;
                read += piece.len();
                counted += piece_ids.len();
                match &mut token_ids {
                    Some(token_ids) if behind.is_empty() || self.is_cut(rest, piece.len()) => {
                        token_ids.extend(piece_ids);
                    }
                    _ if num_bytes > max_whole_bytes => {
                        return Err(self.too_many_bytes(num_bytes, max_whole_bytes));
                    }
                    _ => token_ids = None,
                }
                rest = behind;
                let at_least = counted - counted / 9;
                if at_least > num_tokens {
                    return Err(match limit.is_context {
                        true => self.too_long(at_least, "at least "),
                        false => too_many_to_count(at_least, num_tokens),
                    });
                }
            }
        }
        if token_ids.is_none() {
            self.check_normalized(texts, max_whole_bytes, cancel)?;
        }
        Ok(token_ids)
    }

    /// Refuses texts that are too long once they are normalized: one character can become eighteen.
    fn check_normalized(
        &self,
        texts: &[&str],
        max_bytes: usize,
        cancel: &CancelFlag,
    ) -> Result<(), ValidationError> {
        let num_bytes: usize = texts.iter().map(|text| text.len()).sum();
        if num_bytes <= SHORT_TO_NORMALIZE || texts.iter().all(|text| text.is_ascii()) {
            return Ok(());
        }
        let mut num_normalized = 0;
        for mut rest in texts.iter().copied() {
            while !rest.is_empty() {
                if cancel.is_cancelled() {
                    return Err(ValidationError::new("the request was cancelled"));
                }
                let end = char_boundary(rest, PIECE_TO_NORMALIZE);
                let (piece, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
                num_normalized += (self.tokenizer.normalized_len(piece))
                    .map_err(|error| ValidationError::field("prompt", piece, error.to_string()))?;
                rest = behind;
                if num_normalized > max_bytes {
                    let message = format!(
                        "the prompt has {num_bytes} bytes of text, of which the tokenizer makes more than {max_bytes} \
                         by normalizing them: no more are read. Shorten it"
                    );
                    let value = format!("{num_bytes} bytes");
                    return Err(ValidationError::field("prompt", value, message));
                }
            }
        }
        Ok(())
    }

    /// The tokens of a text, without special ones.
    ///
    /// # Errors
    /// Too many tokens.
    pub(super) fn encode_within(
        &self,
        text: &str,
        limit: TextLimit,
        parameter: &str,
        cancel: &CancelFlag,
    ) -> Result<Vec<u32>, ValidationError> {
        match self.check_length(&[text], limit, cancel)? {
            Some(token_ids) => Ok(token_ids),
            None => self.encode(text, false, parameter),
        }
    }

    /// Whether the tokenizer is known to write both sides of a place in a text apart.
    pub(super) fn is_cut(&self, text: &str, at: usize) -> bool {
        let Some((before, after)) = text.split_at_checked(at) else {
            return false;
        };
        let both = before.chars().next_back().zip(after.chars().next());
        both.is_some_and(|(before, after)| self.tokenizer.encodes_apart(before, after))
    }

    /// A text's first [`PIECE`] or a bit less, cut where the tokenizer is known to write both sides apart; or more, up to
    /// the next such place, or else cut before white space; and the rest.
    fn first_piece<'t>(&self, text: &'t str) -> (&'t str, &'t str) {
        if text.len() <= PIECE {
            return (text, "");
        }
        let end = char_boundary(text, PIECE);
        let is_cut = |at: &usize| self.is_cut(text, *at);
        // White space of ASCII is no part of another character, so a cut before it is one between two.
        let space = |at: &usize| {
            text.as_bytes()
                .get(*at)
                .is_some_and(u8::is_ascii_whitespace)
        };
        let cut = (1..end).rev().find(is_cut);
        let cut = cut.or_else(|| (end..text.len().min(end + CUT_WITHIN)).find(is_cut));
        let cut = cut.or_else(|| (end - SPACE_WITHIN..end).rev().find(space));
        text.split_at_checked(cut.unwrap_or(end))
            .unwrap_or((text, ""))
    }

    fn too_many_bytes(&self, num_bytes: usize, max_bytes: usize) -> ValidationError {
        let message = format!(
            "the prompt has {num_bytes} bytes of text: at most {max_bytes} are read for this model's \
             context length of {} tokens. Shorten it",
            self.limits.max_model_len
        );
        ValidationError::field("prompt", format!("{num_bytes} bytes"), message)
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

/// The first place from `at` on that is between two characters, or the text's end.
fn char_boundary(text: &str, at: usize) -> usize {
    let mut places = at..text.len();
    places
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}

fn too_many_to_count(num_tokens: usize, max_tokens: usize) -> ValidationError {
    let message = format!(
        "the prompt has at least {num_tokens} tokens: at most {max_tokens} are counted, or cut by \
         truncate_prompt_tokens. Shorten it"
    );
    ValidationError::field("prompt", num_tokens, message)
}
