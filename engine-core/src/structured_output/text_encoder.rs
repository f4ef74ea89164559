//! Encodes forced text as the tokenizer would together with what stands before it.
//!
//! That is on everybody's way: no step begins before the text behind its tokens is known. So as little
//! of what stands before a text as can matter is encoded with it, and what was encoded is remembered: in
//! `"name": "Ada", "age": ` a comma and a key follow the name's quotation mark whatever the name is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, TryLockError};

use tokenizer::Tokenizer;

use super::mask::TokenMask;

/// Tokens before the forced text that are encoded with it, at most.
pub(super) const MAX_CONTEXT_TOKENS: usize = 6;

/// Tokens that may follow forced text, at most, for each of which is looked whether it merges with it.
const MAX_NEXT_TOKENS: usize = 16;

/// Answers that are remembered of what merges with what.
const MAX_REMEMBERED: usize = 1 << 16;

/// Texts that are remembered with their tokens, in bytes of both. All are forgotten when there are more:
/// those that come often are soon there again.
const MAX_REMEMBERED_BYTES: usize = 4 << 20;

/// Encodes forced text.
#[derive(Debug)]
pub struct TextEncoder {
    tokenizer: Arc<Tokenizer>,
    encoded: Mutex<Encoded>,
    /// Whether two tokens stay what they are before a third. Grammars ask this of few tokens, again
    /// and again.
    stays: Mutex<HashMap<[u32; 3], bool>>,
}

/// Texts that were encoded.
#[derive(Debug, Default)]
struct Encoded {
    tokens: HashMap<String, Arc<[u32]>>,
    num_bytes: usize,
}

/// The end of prompt and output, before which nothing matters for how a text after it is encoded.
#[derive(Debug)]
pub(super) struct Context<'a> {
    token_ids: &'a [u32],
    text: String,
}

impl TextEncoder {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            encoded: Mutex::default(),
            stays: Mutex::default(),
        }
    }

    /// The tokens of `text` after `all_token_ids`, and their context: an end of them that both together
    /// are written with. `None` where there is none, or where the text would change tokens that are as
    /// the tokenizer writes them.
    pub(super) fn encode_after<'a>(
        &self,
        all_token_ids: &'a [u32],
        text: &str,
    ) -> Option<(Context<'a>, Vec<u32>)> {
        let recent = self.recent(all_token_ids)?;
        // Where a word ends right before the text, it stays as it is if its last token does.
        if let Some(at) = recent.len().checked_sub(1)
            && self.ends_word_before(&recent[at..], text)
            && let Some(last) = self.context(&recent[at..])
            && let Some(forced) = self.encode_in(&last, text)
        {
            return Some((last, forced));
        }
        let recent = self.since_last_word(recent)?;
        // A context that begins within a word is encoded to other tokens than stand there. Without any
        // only at the start of a text.
        let skips = 0..recent.len().max(1);
        for skipped in skips {
            let Some(context) = self.context(&recent[skipped..]) else {
                continue;
            };
            // First both together, which mostly is all that has to be asked.
            if let Some(forced) = self.encode_in(&context, text) {
                return Some((context, forced));
            }
            if self.is_as_written(&context) {
                return None;
            }
        }
        None
    }

    /// The last tokens, as many as may matter.
    fn recent<'a>(&self, token_ids: &'a [u32]) -> Option<&'a [u32]> {
        let first = token_ids.len().saturating_sub(MAX_CONTEXT_TOKENS);
        // Nothing merges across a control token.
        let is_control = |id: &u32| self.tokenizer.is_special_token(*id);
        let recent = token_ids.get(first..)?;
        let start = recent.iter().rposition(is_control).map_or(0, |at| at + 1);
        recent.get(start..)
    }

    /// Of some tokens those after the last word's end within them, since what stands before that neither
    /// changes nor is changed by what comes after. `None` where the last token goes across it: it is not
    /// as the tokenizer writes it, with whatever else. All where no word ends.
    fn since_last_word<'a>(&self, token_ids: &'a [u32]) -> Option<&'a [u32]> {
        let mut next = None;
        for (index, &token_id) in token_ids.iter().enumerate().rev() {
            for &byte in self.tokenizer.token_bytes(token_id).iter().rev() {
                if next.is_some_and(|next| self.encodes_apart(byte, next)) {
                    return token_ids.get(index + 1..).filter(|since| !since.is_empty());
                }
                next = Some(byte);
            }
        }
        Some(token_ids)
    }

    /// Whether a word ends between tokens and a text.
    fn ends_word_before(&self, token_ids: &[u32], text: &str) -> bool {
        let last = token_ids
            .last()
            .and_then(|&token_id| self.tokenizer.token_bytes(token_id).last());
        match (last, text.as_bytes().first()) {
            (Some(&before), Some(&after)) => self.encodes_apart(before, after),
            _ => false,
        }
    }

    /// Whether a word is known to end between two bytes: only such of ASCII are looked at, which are characters.
    fn encodes_apart(&self, before: u8, after: u8) -> bool {
        before.is_ascii()
            && after.is_ascii()
            && (self.tokenizer).encodes_apart(char::from(before), char::from(after))
    }

    /// Some tokens that stand before a text; `None` where they are no whole characters.
    fn context<'a>(&self, token_ids: &'a [u32]) -> Option<Context<'a>> {
        let text = self.text_of(token_ids)?;
        Some(Context { token_ids, text })
    }

    fn text_of(&self, token_ids: &[u32]) -> Option<String> {
        let bytes: Vec<u8> = token_ids
            .iter()
            .flat_map(|&id| self.tokenizer.token_bytes(id))
            .copied()
            .collect();
        String::from_utf8(bytes).ok()
    }

    /// The tokens of `text` after a context; `None` where encoding both together would give other
    /// tokens than stand there.
    fn encode_in(&self, context: &Context<'_>, text: &str) -> Option<Vec<u32>> {
        let encoded = self.encode(context.text.clone() + text)?;
        Some(encoded.strip_prefix(context.token_ids)?.to_vec())
    }

    /// Whether the tokenizer writes these tokens for their text.
    fn is_as_written(&self, context: &Context<'_>) -> bool {
        self.encode(context.text.clone())
            .is_some_and(|encoded| *encoded == *context.token_ids)
    }

    /// Whether `text` is written as `forced` whichever of the tokens in `mask` comes next. Not where
    /// they are many.
    pub(super) fn is_settled(
        &self,
        context: &Context<'_>,
        text: &str,
        forced: &[u32],
        mask: &TokenMask,
    ) -> bool {
        let Some(next) = mask.few_tokens() else {
            return false;
        };
        next.len() <= MAX_NEXT_TOKENS
            && next.iter().all(|&token_id| {
                self.tokenizer.is_special_token(token_id)
                    || self.stays_before(forced, token_id)
                    || self.stays_in(context, text, forced, token_id)
            })
    }

    /// Whether `text` is written as `forced` in its context and before a token.
    fn stays_in(&self, context: &Context<'_>, text: &str, forced: &[u32], next: u32) -> bool {
        std::str::from_utf8(self.tokenizer.token_bytes(next)).is_ok_and(|next| {
            self.encode_in(context, &(text.to_owned() + next))
                .is_some_and(|encoded| encoded.starts_with(forced))
        })
    }

    /// Whether the last two of `forced` stay what they are before a token; remembered.
    fn stays_before(&self, forced: &[u32], next: u32) -> bool {
        let &[.., before, last] = forced else {
            return false;
        };
        let key = [before, last, next];
        let known = unless_taken(&self.stays, |stays| stays.get(&key).copied());
        if let Some(known) = known.flatten() {
            return known;
        }
        let stays = self
            .text_of(&key)
            .and_then(|text| self.tokenizer.encode(&text, false).ok())
            .is_some_and(|encoded| encoded.starts_with(&[before, last]));
        unless_taken(&self.stays, |known| {
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
            known.insert(key, stays);
        });
        stays
    }

    /// The tokens of a text; remembered.
    fn encode(&self, text: String) -> Option<Arc<[u32]>> {
        let known = unless_taken(&self.encoded, |encoded| encoded.tokens.get(&text).cloned());
        if let Some(known) = known.flatten() {
            return Some(known);
        }
        let tokens: Arc<[u32]> = self.tokenizer.encode(&text, false).ok()?.into();
        unless_taken(&self.encoded, |encoded| {
            encoded.insert(text, Arc::clone(&tokens));
        });
        Some(tokens)
    }
}

impl Encoded {
    fn insert(&mut self, text: String, tokens: Arc<[u32]>) {
        let num_bytes = text.len() + size_of_val(&*tokens);
        if self.num_bytes + num_bytes > MAX_REMEMBERED_BYTES {
            *self = Self::default();
        }
        self.num_bytes += num_bytes;
        self.tokens.insert(text, tokens);
    }
}

/// Does something with what is remembered, unless somebody else is at it: that may be a thread of low
/// priority, for which nobody is to wait.
fn unless_taken<T, R>(remembered: &Mutex<T>, with: impl FnOnce(&mut T) -> R) -> Option<R> {
    match remembered.try_lock() {
        Ok(mut remembered) => Some(with(&mut remembered)),
        Err(TryLockError::Poisoned(poisoned)) => Some(with(&mut poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests;
