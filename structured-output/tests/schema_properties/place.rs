//! A place in a text, and what its masks say against what is so.

use structured_output::{GrammarMatcher, MatcherError};

use crate::random::Random;
use crate::subject::{EOS, FIRST_WORD, MAX_STEPS, bytes_of};

/// An answer, or none where the texts of distinct items fill a generation: that is a limit, and says
/// nothing of the mask.
pub(crate) fn within_memory<T>(result: Result<T, MatcherError>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(MatcherError::StatesExhausted { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) struct Place {
    pub(crate) matcher: GrammarMatcher,
    pub(crate) text: String,
}

impl Place {
    /// A token that begins what is left of a valid text, and is not allowed.
    pub(crate) fn missing(&self, valid: &[String]) -> Option<String> {
        let mask = within_memory(self.matcher.next_token_mask())?;
        let rests = valid
            .iter()
            .filter_map(|text| text.strip_prefix(&*self.text));
        for rest in rests {
            if rest.is_empty() && !mask.is_allowed(EOS) {
                return Some(format!("{} may not end", self.text));
            }
            let begins = |&token: &u32| rest.as_bytes().starts_with(bytes_of(token));
            for token in (0..EOS).filter(begins) {
                if !mask.is_allowed(token) {
                    return Some(format!("after {} token {token} of {rest}", self.text));
                }
            }
        }
        None
    }

    /// Texts that begin with some of the allowed tokens.
    pub(crate) fn endings(&self, random: &mut Random) -> Vec<String> {
        let Some(mask) = within_memory(self.matcher.next_token_mask()) else {
            return Vec::new();
        };
        let mut ids = mask.token_ids();
        while ids.len() > 24 {
            ids.swap_remove(random.below(ids.len()));
        }
        let finished = ids.into_iter().filter_map(|token| {
            let mut matcher = self.matcher.fork();
            let mut text = self.text.clone().into_bytes();
            let mut next = token;
            loop {
                assert!(within_memory(matcher.accept_token(next))?, "token {next}");
                if matcher.is_terminated() {
                    return Some(String::from_utf8(text).unwrap());
                }
                text.extend_from_slice(bytes_of(next));
                let left = within_memory(matcher.min_tokens_to_complete())?;
                let ids = within_memory(matcher.next_token_mask_within(left))?.token_ids();
                next = *random.of(&ids);
            }
        });
        finished.collect()
    }

    /// A mask within a number of tokens that isn't what each token by itself needs.
    pub(crate) fn wrong_within(&self, random: &mut Random) -> Option<String> {
        let mask = within_memory(self.matcher.next_token_mask())?;
        let least = within_memory(self.matcher.min_tokens_to_complete())?;
        let left = least + random.below(4) as u32;
        // With less than all steps nothing is left out.
        let mut whole = self.matcher.fork();
        whole.set_allowance(Some(MAX_STEPS - 1));
        let within = within_memory(whole.next_token_mask_within(left))?;
        let part = within_memory(self.matcher.next_token_mask_within(left))?;
        if let Some(&token) = part.token_ids().iter().find(|&&id| !within.is_allowed(id)) {
            return Some(format!("after {} token {token} within {left}", self.text));
        }
        let some = (FIRST_WORD..EOS).filter(|_| random.below(16) == 0);
        for token in (0..FIRST_WORD).chain(some).chain([EOS]) {
            let expected = mask.is_allowed(token) && {
                let mut matcher = self.matcher.fork();
                assert!(within_memory(matcher.accept_token(token))?, "token {token}");
                within_memory(matcher.min_tokens_to_complete())? < left
            };
            if within.is_allowed(token) != expected {
                let text = &self.text;
                return Some(format!(
                    "after {text} token {token} within {left}: {expected}"
                ));
            }
        }
        None
    }
}
