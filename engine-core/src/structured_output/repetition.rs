//! Loops within a string: a model that writes the same tokens over and over there is led out of it.
//!
//! A grammar that has just a string left to a model can keep it from whatever would end a loop, so the
//! bound stands here. The string is closed, and what follows is the model's again: nothing that the
//! grammar asks for is cut off.

use protocol::RepetitionDetection;
use structured_output::{MaskRef, MatcherError};

use super::reasoning::Phase;
use super::request::StructuredOutputRequest;
use crate::repetition::ends_in_repetition;

/// What counts as a loop where a request doesn't say: at most 32 tokens, 64 times in a row. A table, a
/// ruled line or a list that a model means to write is shorter.
pub(crate) const DEFAULT_REPETITION: RepetitionDetection = RepetitionDetection {
    max_pattern_size: 32,
    min_pattern_size: 1,
    min_count: 64,
};

/// Text is a string's where at least one in so many of the vocabulary's tokens may come next. Digits,
/// words of a list and punctuation are far fewer.
const STRING_SHARE: usize = 8;

impl StructuredOutputRequest {
    /// Looks whether the answer's last tokens are a loop within one string, and leads out of it from
    /// here on. True where it does. Costs some comparisons, and where there is a loop a mask.
    pub(crate) fn close_repetition(&mut self, output_token_ids: &[u32]) -> bool {
        let is_watched =
            self.is_repetition_watched && matches!(self.reasoning.phase, Phase::Answer);
        if !is_watched {
            return false;
        }
        let start = output_token_ids
            .len()
            .saturating_sub(self.num_answer_tokens);
        let answer = output_token_ids.get(start..).unwrap_or_default();
        let Some(size) = ends_in_repetition(answer, DEFAULT_REPETITION) else {
            return false;
        };
        let pattern = &answer[answer.len() - size..];
        // What the grammar can't tell now it tells after the next token.
        let closes = !self.writes_quote(pattern) && self.is_within_string().unwrap_or(false);
        if closes {
            self.is_closing_string = true;
            self.has_closed_repetition = true;
        }
        closes
    }

    /// The mask that leads out of a string whose loop is to end; `None` where none is.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(super) fn closing_mask(&mut self) -> Result<Option<MaskRef>, MatcherError> {
        if !self.is_closing_string {
            return Ok(None);
        }
        if !self.is_within_string()? {
            self.is_closing_string = false;
            return Ok(None);
        }
        let needed = self.grammar.min_tokens_to_complete()?;
        self.grammar.next_token_mask_completing(needed).map(Some)
    }

    /// True if a string that repeated itself was closed.
    pub(crate) fn has_closed_repetition(&self) -> bool {
        self.has_closed_repetition
    }

    /// True if nearly any text may come next, and some must: text that may end here ends as the model
    /// likes, as without a constraint.
    fn is_within_string(&self) -> Result<bool, MatcherError> {
        if self.grammar.is_completed() {
            return Ok(false);
        }
        let num_allowed = self.grammar.next_token_mask()?.num_allowed();
        let vocab_size = self.grammar.tokenizer_info().vocab_size();
        Ok(num_allowed.saturating_mul(STRING_SHARE) >= vocab_size)
    }

    /// True if tokens have a quote: then they may be several strings.
    fn writes_quote(&self, token_ids: &[u32]) -> bool {
        let info = self.grammar.tokenizer_info();
        let mut tokens = token_ids.iter().map(|&token_id| info.token_bytes(token_id));
        tokens.any(|bytes| bytes.contains(&b'"'))
    }
}
