//! Forced text: the tokens that the tokenizer itself would write for text that must come next.

use std::sync::Arc;

use protocol::JumpForward;
use structured_output::MatcherError;
use tokenizer::Tokenizer;

use super::request::StructuredOutputRequest;
use super::text_encoder::{MAX_CONTEXT_TOKENS, TextEncoder};

/// Forced text that is looked at at once, in bytes. Longer runs come in parts.
const MAX_TEXT_BYTES: usize = 1024;

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
        let num_allowed = request.validate_forced(&forced, tokens_left)?;
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
