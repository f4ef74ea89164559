//! Forced text: the tokens that the tokenizer itself would write for text that must come next.

use std::sync::Arc;

use protocol::JumpForward;
use structured_output::MatcherError;
use tokenizer::Tokenizer;

use super::request::StructuredOutputRequest;

/// Forced text that is looked at at once, in bytes. Longer runs come in parts.
const MAX_TEXT_BYTES: usize = 1024;

/// Tokens before the forced text that are encoded with it, at most.
const MAX_CONTEXT_TOKENS: usize = 16;

/// Which tokens are appended without sampling.
#[derive(Debug, Clone, Default)]
pub enum ForcedTokens {
    /// None.
    #[default]
    Off,
    /// Those that are alone in their mask: the output is that of `Off`.
    SingleToken,
    /// Those of forced text too.
    Text(Arc<Tokenizer>),
}

impl ForcedTokens {
    /// As the configuration says.
    pub fn new(jump_forward: JumpForward, tokenizer: Arc<Tokenizer>) -> Self {
        match jump_forward {
            JumpForward::Off => Self::Off,
            JumpForward::SingleToken => Self::SingleToken,
            JumpForward::Text => Self::Text(tokenizer),
        }
    }

    /// The tokens that come next without being sampled, where they can be told by the text; at
    /// least two, so that there is something to win. `all_token_ids` are prompt and output so far,
    /// of which `tokens_left` may still come. Each is allowed after those before it.
    ///
    /// The text is encoded together with the last tokens before it, as the model saw such text in
    /// training. Where that would change a token that stands already, there is nothing to tell.
    /// The last token of the run is left to the model: it might merge with what follows.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(crate) fn forced_text(
        &self,
        request: &mut StructuredOutputRequest,
        all_token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<Vec<u32>, MatcherError> {
        let Self::Text(tokenizer) = self else {
            return Ok(Vec::new());
        };
        let mut text = request.forced_text()?;
        while text.len() > MAX_TEXT_BYTES {
            text.pop();
        }
        let mut forced = encode_after(tokenizer, all_token_ids, &text).unwrap_or_default();
        forced.pop();
        let num_allowed = request.validate_tokens(&forced, tokens_left)?;
        forced.truncate(num_allowed);
        if forced.len() < 2 {
            forced.clear();
        }
        Ok(forced)
    }
}

/// The tokens of `text` where it follows `token_ids`; `None` where encoding both together would
/// give other tokens than these.
fn encode_after(tokenizer: &Tokenizer, token_ids: &[u32], text: &str) -> Option<Vec<u32>> {
    if text.is_empty() {
        return None;
    }
    let first = token_ids.len().saturating_sub(MAX_CONTEXT_TOKENS);
    // Nothing merges across a control token.
    let is_control = |id: &u32| tokenizer.is_special_token(*id);
    let recent = token_ids.get(first..)?;
    let start = recent.iter().rposition(is_control).map_or(0, |at| at + 1);
    let recent = &recent[start..];
    // A context that begins within a word is encoded to other tokens than stand there: the
    // longest part that is not.
    (0..=recent.len()).find_map(|skipped| {
        let context = &recent[skipped..];
        let bytes: Vec<u8> = context
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id))
            .copied()
            .collect();
        let mut together = String::from_utf8(bytes).ok()?;
        if !context.is_empty() && tokenizer.encode(&together, false).ok()? != context {
            return None;
        }
        // Without any context only at the start of a text.
        if context.is_empty() && !recent.is_empty() {
            return None;
        }
        together.push_str(text);
        let mut encoded = tokenizer.encode(&together, false).ok()?;
        encoded
            .starts_with(context)
            .then(|| encoded.split_off(context.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builtin() -> Tokenizer {
        Tokenizer::from_bytes(builtin_model::FILES).unwrap()
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
        assert_eq!(encode_after(&tokenizer, &start, ""), None);
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
}
