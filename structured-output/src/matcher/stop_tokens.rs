//! Stop tokens of a request's own: they end a text where it may end, and are text where nothing else goes on
//! or ends in time.

use std::sync::Arc;

use super::{AcceptedStep, GrammarMatcher};
use crate::automaton::GrammarState;
use crate::bitmask::bitmask_words;
use crate::error::MatcherError;
use crate::mask::{Mask, MaskRef};

/// Of more tokens so many are tried one by one.
const MAX_TRIED_TOKENS: usize = 64;

impl GrammarMatcher {
    /// Accepts a stop token of the matcher's own as text: true where it is one, the text can't end and the
    /// grammar allows it, else nothing changes. For those that
    /// [`GrammarMatcher::next_token_mask_within`] allows and [`GrammarMatcher::accept_token`] doesn't.
    ///
    /// # Errors
    /// A limit; nothing changes.
    pub fn accept_stop_token_as_text(&mut self, token_id: u32) -> Result<bool, MatcherError> {
        let place = self.place;
        if !self.is_own_stop_token(token_id) || place.terminated || self.may_end(place.state)? {
            return Ok(false);
        }
        let next = self.after_text(place, token_id)?;
        Ok(self.advance(AcceptedStep::TextOfStopToken(token_id), next))
    }

    /// As [`GrammarMatcher::next_token_mask_completing`], where the shortest completion goes on with stop
    /// tokens of the matcher's own, which are text only where nothing else ends in time.
    pub(super) fn beside_own_stop_tokens(
        &self,
        own: Vec<u32>,
        num_tokens: u32,
    ) -> Result<MaskRef, MatcherError> {
        let mask = self.next_token_mask()?;
        if mask.num_allowed() > MAX_TRIED_TOKENS {
            // Within a string almost any of them does.
            let ids = mask.token_ids();
            let step = ids.len().div_ceil(MAX_TRIED_TOKENS);
            let mut some: Vec<u32> = ids.into_iter().step_by(step).collect();
            let state = self.place.state;
            let tried = self
                .grammar
                .engine()
                .run(&self.allowance, |automaton, fuel| {
                    let mut found = Vec::new();
                    for id in std::mem::take(&mut some) {
                        if let Some(next) = automaton.after_token(state, id, fuel)?
                            && automaton.tokens_to_end(next, fuel)? < num_tokens
                        {
                            found.push(id);
                        }
                    }
                    Ok(found)
                });
            match tried {
                Ok(found) if !found.is_empty() => return Ok(self.mask_of_tokens(found)),
                Ok(_) | Err(MatcherError::StepsExhausted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match self.next_token_mask_within(num_tokens) {
            // Too many to be asked: the text ends with those.
            Err(MatcherError::StepsExhausted { .. }) => Ok(self.mask_of_tokens(own)),
            weighed => weighed,
        }
    }

    pub(super) fn is_own_stop_token(&self, token_id: u32) -> bool {
        self.own_stop_tokens.binary_search(&token_id).is_ok()
    }

    pub(super) fn is_unused_stop_token(&self, token_id: u32) -> bool {
        self.unused_stop_tokens.binary_search(&token_id).is_ok()
    }

    /// Whether the text can't end here, and nothing but the matcher's own stop tokens can continue it.
    pub(super) fn only_own_stop_tokens_go_on(
        &self,
        state: GrammarState,
    ) -> Result<bool, MatcherError> {
        let mask = self.grammar.engine().mask(state, &self.allowance)?;
        Ok(self.with_own_stop_tokens(state, &mask)?.is_none())
    }

    /// The mask with the matcher's own stop tokens allowed exactly where the text may end. `None` where
    /// that leaves nothing.
    pub(super) fn with_own_stop_tokens(
        &self,
        state: GrammarState,
        mask: &Arc<Mask>,
    ) -> Result<Option<MaskRef>, MatcherError> {
        let mask = MaskRef::new(Arc::clone(mask));
        if self.own_stop_tokens.is_empty() && self.unused_stop_tokens.is_empty() {
            return Ok(Some(mask));
        }
        let vocab_size = self.grammar.tokenizer_info().vocab_size();
        let mut words = vec![0; bitmask_words(vocab_size)];
        mask.write_to(&mut words);
        let may_end = self.may_end(state)?;
        for &id in self.own_stop_tokens.iter() {
            let (word, bit) = (&mut words[id as usize / 32], 1 << (id % 32));
            *word = if may_end { *word | bit } else { *word & !bit };
        }
        for &id in self.unused_stop_tokens.iter() {
            words[id as usize / 32] &= !(1 << (id % 32));
        }
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        if count == 0 {
            return Ok(None);
        }
        let mask = Mask::from_words(words, count);
        Ok(Some(MaskRef::new(Arc::new(mask))))
    }
}
