//! Drafts by prompt lookup: what followed the last tokens where they occurred before.

use protocol::SpeculativeConfig;

use super::{SpeculativeConfigError, invalid};

/// Proposes drafts from a request's own tokens; needs no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NgramProposer {
    num_speculative_tokens: usize,
    min_ngram: usize,
    max_ngram: usize,
}

impl NgramProposer {
    /// A proposer as configured. `num_speculative_tokens` is for [`Proposer`](super::Proposer) to check.
    ///
    /// # Errors
    /// A number out of its range.
    pub fn new(config: &SpeculativeConfig) -> Result<Self, SpeculativeConfigError> {
        let SpeculativeConfig {
            num_speculative_tokens,
            prompt_lookup_min,
            prompt_lookup_max,
            ..
        } = *config;
        if prompt_lookup_min == 0 {
            let expected = "it must be at least 1";
            return Err(invalid("prompt_lookup_min", prompt_lookup_min, expected));
        }
        if prompt_lookup_max < prompt_lookup_min {
            let expected = format!("it must be at least prompt_lookup_min {prompt_lookup_min}");
            return Err(invalid("prompt_lookup_max", prompt_lookup_max, expected));
        }
        Ok(Self {
            num_speculative_tokens: num_speculative_tokens as usize,
            min_ngram: prompt_lookup_min as usize,
            max_ngram: prompt_lookup_max as usize,
        })
    }

    /// At most `max_tokens` tokens that followed the longest tail of `token_ids` that occurs in it
    /// before, of `prompt_lookup_min..=prompt_lookup_max` tokens; the earliest of such places. Empty
    /// where there is none. Linear in the number of tokens.
    pub fn propose<'a>(&self, token_ids: &'a [u32], max_tokens: usize) -> &'a [u32] {
        let len = token_ids.len();
        let (mut best_end, mut best_len) = (0, 0);
        // The longest common suffix of each prefix with the whole, by the prefix function of the
        // reversed tokens (Knuth, Morris, Pratt 1977). Reversed position i is token len - 1 - i.
        let reversed = |index: usize| token_ids.get(len.wrapping_sub(1 + index));
        let mut prefix = vec![0_usize; self.max_ngram.min(len)];
        let mut matched = 0;
        for index in 1..len {
            while matched > 0 && reversed(matched) != reversed(index) {
                matched = prefix[matched - 1];
            }
            if reversed(matched) == reversed(index) {
                matched += 1;
            }
            // Reversed, the match ends at `index`; so it stands at len - 1 - index onwards.
            if matched >= best_len && matched >= self.min_ngram {
                best_len = matched;
                best_end = len - 1 - index + matched;
            }
            if let Some(entry) = prefix.get_mut(index) {
                *entry = matched;
            }
            if matched == self.max_ngram {
                matched = prefix[matched - 1];
            }
        }
        if best_len == 0 {
            return &[];
        }
        let num_tokens = self.num_speculative_tokens.min(max_tokens);
        let end = len.min(best_end.saturating_add(num_tokens));
        token_ids.get(best_end..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::spec_decode::Proposer;

    fn proposer(num_speculative_tokens: u32, min: u32, max: u32) -> NgramProposer {
        NgramProposer::new(&SpeculativeConfig {
            num_speculative_tokens,
            prompt_lookup_min: min,
            prompt_lookup_max: max,
            ..SpeculativeConfig::default()
        })
        .unwrap()
    }

    #[test]
    fn what_followed_the_tail_before_is_proposed() {
        let tokens = [1, 2, 3, 4, 5, 9, 2, 3];
        assert_eq!(proposer(3, 1, 4).propose(&tokens, 10), [4, 5, 9]);
        assert_eq!(proposer(3, 1, 4).propose(&tokens, 2), [4, 5]);
        assert_eq!(proposer(3, 3, 4).propose(&tokens, 10), [0_u32; 0]);
        assert_eq!(proposer(9, 2, 2).propose(&tokens, 10), [4, 5, 9, 2, 3]);
        assert_eq!(proposer(3, 1, 2).propose(&[7, 7, 7], 10), [7]);
        assert_eq!(proposer(3, 1, 2).propose(&[], 10), [0_u32; 0]);
    }

    #[test]
    fn a_configuration_out_of_range_is_named() {
        let message = |num_speculative_tokens, prompt_lookup_min, prompt_lookup_max| {
            Proposer::new(&SpeculativeConfig {
                num_speculative_tokens,
                prompt_lookup_min,
                prompt_lookup_max,
                ..SpeculativeConfig::default()
            })
            .unwrap_err()
            .to_string()
        };
        assert_eq!(
            message(0, 1, 1),
            "speculative_config.num_speculative_tokens is 0: it must be from 1 to 31"
        );
        assert_eq!(
            message(32, 1, 1),
            "speculative_config.num_speculative_tokens is 32: it must be from 1 to 31"
        );
        assert_eq!(
            message(1, 0, 1),
            "speculative_config.prompt_lookup_min is 0: it must be at least 1"
        );
        assert_eq!(
            message(1, 3, 2),
            "speculative_config.prompt_lookup_max is 2: it must be at least prompt_lookup_min 3"
        );
    }

    proptest! {
        /// Against the definition: every tail, longest first, at every place, earliest first.
        #[test]
        fn the_longest_tail_at_its_earliest_place(
            tokens in prop::collection::vec(0_u32..3, 0..24),
            (min, more, num) in (1_u32..4, 0_u32..4, 1_u32..6),
            max_tokens in 0_usize..6,
        ) {
            let len = tokens.len();
            let found = (min as usize..=(min + more) as usize).rev().find_map(|size| {
                let tail = tokens.get(len.checked_sub(size)?..)?;
                (0..len - size).find(|&start| &tokens[start..start + size] == tail).map(|start| start + size)
            });
            let expected = found.map_or(&[][..], |start| {
                &tokens[start..len.min(start + max_tokens.min(num as usize))]
            });
            prop_assert_eq!(proposer(num, min, min + more).propose(&tokens, max_tokens), expected);
        }
    }
}
