//! Forced text: the tokens that the tokenizer itself would write for text that must come next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use protocol::JumpForward;
use structured_output::MatcherError;
use tokenizer::Tokenizer;

use super::mask::TokenMask;
use super::request::StructuredOutputRequest;
use crate::lock::lock;

/// Forced text that is looked at at once, in bytes. Longer runs come in parts.
const MAX_TEXT_BYTES: usize = 1024;

/// Tokens before the forced text that are encoded with it, at most.
const MAX_CONTEXT_TOKENS: usize = 6;

/// Tokens that may follow forced text, at most, for each of which is looked whether it merges with it.
const MAX_NEXT_TOKENS: usize = 16;

/// Answers that are remembered of what merges with what.
const MAX_REMEMBERED: usize = 1 << 16;

/// Which tokens are appended without sampling.
#[derive(Debug, Clone, Default)]
pub enum ForcedTokens {
    /// None.
    #[default]
    Off,
    /// Those that are alone in their mask: the output is that of `Off`.
    SingleToken,
    /// Those of forced text too.
    Text(Arc<TextEncoder>),
}

/// Encodes forced text.
#[derive(Debug)]
pub struct TextEncoder {
    tokenizer: Arc<Tokenizer>,
    /// Whether two tokens stay what they are before a third. Grammars ask this of few tokens, again
    /// and again.
    stays: Mutex<HashMap<[u32; 3], bool>>,
}

impl ForcedTokens {
    /// As the configuration says.
    pub fn new(jump_forward: JumpForward, tokenizer: Arc<Tokenizer>) -> Self {
        match jump_forward {
            JumpForward::Off => Self::Off,
            JumpForward::SingleToken => Self::SingleToken,
            JumpForward::Text => Self::Text(Arc::new(TextEncoder::new(tokenizer))),
        }
    }

    /// The tokens that come next without being sampled; empty where there is a choice.
    /// `all_token_ids` are prompt and output so far, of which the last few count, and `tokens_left` may
    /// still come.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(crate) fn next(
        &self,
        request: &mut StructuredOutputRequest,
        all_token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<Vec<u32>, MatcherError> {
        if let Some(found) = request.found_forced(tokens_left) {
            return Ok(found);
        }
        let run = self.forced_text(request, all_token_ids, tokens_left)?;
        if !run.is_empty() {
            return Ok(run);
        }
        Ok(request.forced_token(tokens_left)?.into_iter().collect())
    }

    /// The last of some tokens, as many as [`next`](Self::next) looks at.
    pub(crate) fn last_of(all_token_ids: &[u32]) -> &[u32] {
        let first = all_token_ids.len().saturating_sub(MAX_CONTEXT_TOKENS);
        all_token_ids.get(first..).unwrap_or_default()
    }

    /// The tokens that come next without being sampled, where they can be told by the text.
    /// `all_token_ids` are prompt and output so far, of which `tokens_left` may still come. Each is
    /// allowed after those before it.
    ///
    /// The text is encoded together with the last tokens before it, as the model saw such text in
    /// training. Where that would change a token that stands already, there is nothing to tell.
    /// The last token of the run is left to the model, unless none of the tokens that may follow it
    /// would merge with it.
    ///
    /// # Errors
    /// A limit of the grammar.
    fn forced_text(
        &self,
        request: &mut StructuredOutputRequest,
        all_token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<Vec<u32>, MatcherError> {
        let Self::Text(encoder) = self else {
            return Ok(Vec::new());
        };
        let mut text = request.forced_text()?;
        while text.len() > MAX_TEXT_BYTES {
            text.pop();
        }
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let Some((context, mut forced)) = encoder.encode_after(all_token_ids, &text) else {
            return Ok(Vec::new());
        };
        let num_allowed = request.validate_tokens(&forced, tokens_left)?;
        let is_last_settled = num_allowed == forced.len()
            && match request.mask_after(&forced, tokens_left)? {
                Some(mask) => encoder.is_settled(&context, &text, &forced, &mask),
                // The text ends there.
                None => true,
            };
        if !is_last_settled {
            forced.pop();
        }
        forced.truncate(num_allowed);
        Ok(forced)
    }
}

impl TextEncoder {
    fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            stays: Mutex::default(),
        }
    }

    /// The tokens of `text` after `all_token_ids`, and their context: the longest end of them that both
    /// together are written with. `None` where there is none, or where the text would change tokens that
    /// are as the tokenizer writes them.
    fn encode_after<'a>(
        &'a self,
        all_token_ids: &'a [u32],
        text: &str,
    ) -> Option<(Context<'a>, Vec<u32>)> {
        let tokenizer = &*self.tokenizer;
        let recent = Context::longest(tokenizer, all_token_ids)?;
        // A context that begins within a word is encoded to other tokens than stand there. Without any
        // only at the start of a text.
        let skips = 0..recent.len().max(1);
        for skipped in skips {
            let Some(context) = Context::of_tokens(tokenizer, &recent[skipped..]) else {
                continue;
            };
            // First both together, which mostly is all that has to be asked.
            if let Some(forced) = context.encode(text) {
                return Some((context, forced));
            }
            if context.is_as_written() {
                return None;
            }
        }
        None
    }

    /// Whether `text` is written as `forced` whichever of the tokens in `mask` comes next. Not where
    /// they are many.
    fn is_settled(
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
                    || context.stays_before(text, forced, token_id)
            })
    }

    /// Whether the last two of `forced` stay what they are before a token; remembered.
    fn stays_before(&self, forced: &[u32], next: u32) -> bool {
        let &[.., before, last] = forced else {
            return false;
        };
        let key = [before, last, next];
        if let Some(&known) = lock(&self.stays).get(&key) {
            return known;
        }
        let bytes: Vec<u8> = key
            .iter()
            .flat_map(|&id| self.tokenizer.token_bytes(id))
            .copied()
            .collect();
        let stays = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| self.tokenizer.encode(text, false).ok())
            .is_some_and(|encoded| encoded.starts_with(&[before, last]));
        let mut known = lock(&self.stays);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(key, stays);
        stays
    }
}

/// The end of prompt and output, before which nothing matters for how a text after it is encoded.
struct Context<'a> {
    tokenizer: &'a Tokenizer,
    token_ids: &'a [u32],
    text: String,
}

impl<'a> Context<'a> {
    /// The last tokens, as many as may matter.
    fn longest(tokenizer: &Tokenizer, token_ids: &'a [u32]) -> Option<&'a [u32]> {
        let first = token_ids.len().saturating_sub(MAX_CONTEXT_TOKENS);
        // Nothing merges across a control token.
        let is_control = |id: &u32| tokenizer.is_special_token(*id);
        let recent = token_ids.get(first..)?;
        let start = recent.iter().rposition(is_control).map_or(0, |at| at + 1);
        recent.get(start..)
    }

    /// Some tokens that stand before a text; `None` where they are no whole characters.
    fn of_tokens(tokenizer: &'a Tokenizer, token_ids: &'a [u32]) -> Option<Self> {
        let bytes: Vec<u8> = token_ids
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id))
            .copied()
            .collect();
        let text = String::from_utf8(bytes).ok()?;
        Some(Self {
            tokenizer,
            token_ids,
            text,
        })
    }

    /// Whether the tokenizer writes these tokens for their text.
    fn is_as_written(&self) -> bool {
        let encoded = self.tokenizer.encode(&self.text, false);
        encoded.is_ok_and(|encoded| encoded == self.token_ids)
    }

    /// The tokens of `text` after this; `None` where encoding both together would give other tokens
    /// than stand here.
    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let together = self.text.clone() + text;
        let mut encoded = self.tokenizer.encode(&together, false).ok()?;
        encoded
            .starts_with(self.token_ids)
            .then(|| encoded.split_off(self.token_ids.len()))
    }

    /// Whether `text` is written as `forced` before a token.
    fn stays_before(&self, text: &str, forced: &[u32], next: u32) -> bool {
        let bytes = self.tokenizer.token_bytes(next);
        std::str::from_utf8(bytes).is_ok_and(|next| {
            self.encode(&(text.to_owned() + next))
                .is_some_and(|encoded| encoded.starts_with(forced))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_after(tokenizer: &Arc<Tokenizer>, token_ids: &[u32], text: &str) -> Option<Vec<u32>> {
        let encoder = TextEncoder::new(Arc::clone(tokenizer));
        Some(encoder.encode_after(token_ids, text)?.1)
    }

    fn builtin() -> Arc<Tokenizer> {
        Arc::new(Tokenizer::from_bytes(builtin_model::FILES).unwrap())
    }

    #[test]
    fn forced_text_is_encoded_with_what_stands_before_it() {
        let tokenizer = builtin();
        let text = "<|im_start|>assistant\n{\"name\": \"Sam\"";
        let whole = tokenizer
            .encode(&format!("{text}, \"age\": "), false)
            .unwrap();
        let before = tokenizer.encode(text, false).unwrap();
        let after = encode_after(&tokenizer, &before, ", \"age\": ");
        match whole.starts_with(&before) {
            true => assert_eq!(after.as_deref(), whole.get(before.len()..)),
            false => assert_eq!(after, None),
        }
        // Nothing before it but control tokens.
        let start = tokenizer.encode("<|im_start|>", false).unwrap();
        assert_eq!(
            encode_after(&tokenizer, &start, "{\"name\""),
            Some(tokenizer.encode("{\"name\"", false).unwrap())
        );
    }

    #[test]
    fn tokens_that_stand_are_never_changed() {
        let tokenizer = builtin();
        // Where the tokenizer would write one token, two stand: a further letter would merge.
        let one = tokenizer.encode("name", false).unwrap();
        assert_eq!(one.len(), 1);
        let letters: Vec<u32> = "nam"
            .chars()
            .flat_map(|letter| tokenizer.encode(&letter.to_string(), false).unwrap())
            .collect();
        assert_eq!(letters.len(), 3);
        assert_eq!(encode_after(&tokenizer, &letters, "e"), None);
    }

    #[test]
    fn a_context_that_begins_within_a_word_is_left_out() {
        let tokenizer = builtin();
        // As no tokenizer writes it: `name` by letters, then a colon as it is after any word.
        let mut token_ids: Vec<u32> = "name"
            .chars()
            .flat_map(|letter| tokenizer.encode(&letter.to_string(), false).unwrap())
            .collect();
        let quote = tokenizer.encode("e\"", false).unwrap();
        assert_eq!(quote.len(), 2);
        token_ids.push(quote[1]);
        let rest = tokenizer.encode("\": [{", false).unwrap();
        let expected = match rest.starts_with(&quote[1..]) {
            true => Some(rest[1..].to_vec()),
            false => None,
        };
        assert_eq!(encode_after(&tokenizer, &token_ids, ": [{"), expected);
    }
}
