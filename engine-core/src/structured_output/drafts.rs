//! What a grammar says of several tokens one after the other, before any of them is taken.

use structured_output::MatcherError;

use super::mask::TokenMask;
use super::request::{Accepted, StructuredOutputRequest};

impl StructuredOutputRequest {
    /// The masks of the next token and of those after each token of a draft, where `tokens_left`
    /// may still come. As many as draft tokens can be accepted, plus one. Nothing changes.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub fn masks(
        &mut self,
        draft_token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<Vec<TokenMask>, MatcherError> {
        let mut masks = Vec::with_capacity(1 + draft_token_ids.len());
        masks.push(self.mask(tokens_left)?);
        let walked = self.walk(draft_token_ids, tokens_left, |ahead, tokens_left| {
            masks.push(ahead.mask(tokens_left)?);
            Ok(())
        });
        match walked {
            // What takes too long now is asked again where it comes next.
            Ok(_) | Err(MatcherError::AllowanceSpent) => Ok(masks),
            Err(error) => Err(error),
        }
    }

    /// The mask after some tokens, one after the other; `None` where one of them can't be accepted or the last
    /// ends the text. Nothing changes.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(crate) fn mask_after(
        &mut self,
        token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<Option<TokenMask>, MatcherError> {
        if token_ids.is_empty() {
            return self.mask(tokens_left).map(Some);
        }
        let (mut num_left, mut mask) = (token_ids.len(), None);
        self.walk(token_ids, tokens_left, |ahead, tokens_left| {
            num_left -= 1;
            if num_left == 0 {
                mask = Some(ahead.mask(tokens_left)?);
            }
            Ok(())
        })?;
        Ok(mask)
    }

    /// How many tokens of forced text can come, one after the other. Nothing changes. Stop tokens of the
    /// request are text only where its mask has nothing else.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(super) fn validate_forced(
        &mut self,
        token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<usize, MatcherError> {
        let num_allowed = self.validate_tokens(token_ids, tokens_left)?;
        let is_stop = |token_id| self.stop_token_ids.contains(token_id);
        match token_ids.iter().any(is_stop) {
            true => Ok(num_allowed.min(self.grammar.validate_tokens(token_ids)?)),
            false => Ok(num_allowed),
        }
    }

    /// How many tokens of a draft can be accepted, one after the other. Nothing changes.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub fn validate_tokens(
        &mut self,
        draft_token_ids: &[u32],
        tokens_left: u32,
    ) -> Result<usize, MatcherError> {
        self.walk(draft_token_ids, tokens_left, |_, _| Ok(()))
    }

    /// Accepts the tokens of a draft while they are allowed, calls `visit` after each, and takes
    /// all back. Returns how many were allowed.
    fn walk(
        &mut self,
        draft_token_ids: &[u32],
        tokens_left: u32,
        mut visit: impl FnMut(&mut Self, u32) -> Result<(), MatcherError>,
    ) -> Result<usize, MatcherError> {
        if draft_token_ids.is_empty() {
            return Ok(0);
        }
        let before = (
            self.reasoning.clone(),
            self.has_overshot,
            self.is_closing_string,
        );
        let how_it_ended = (
            self.was_led_to_end,
            self.is_cut_short,
            self.is_whole_at_limit,
        );
        let num_answer_tokens = self.num_answer_tokens;
        let mut num_accepted = 0;
        let mut result = Ok(());
        for (&token_id, left) in draft_token_ids.iter().zip((0..tokens_left).rev()) {
            match self.accept_token(token_id, left) {
                Ok(Accepted::Yes) => num_accepted += 1,
                Ok(Accepted::Refused | Accepted::Overshoots) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            if self.is_terminated() {
                break;
            }
            result = visit(self, left);
            if result.is_err() {
                break;
            }
        }
        self.set_num_answer_tokens(num_answer_tokens)?;
        (self.reasoning, self.has_overshot, self.is_closing_string) = before;
        (
            self.was_led_to_end,
            self.is_cut_short,
            self.is_whole_at_limit,
        ) = how_it_ended;
        result.map(|()| num_accepted)
    }
}
