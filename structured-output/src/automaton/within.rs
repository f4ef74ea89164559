//! Masks that look at the states after each token: what can be completed by tokens, and in how many.

use std::sync::Arc;

use hashbrown::HashMap;

use super::token_walk::Reached;
use super::{GrammarState, TokenAutomaton};
use crate::lexical::{Fuel, OutOfFuel};
use crate::mask::{Mask, set_bits};

/// What a state needs that tokens lead to.
#[derive(Clone, Copy)]
struct Need {
    /// Tokens to the end, stop token included; `None` where tokens reach none.
    tokens: Option<u32>,
    /// Whether it may be another with another text of the key or item that is being written.
    depends_on_text: bool,
}

impl TokenAutomaton {
    /// The tokens after which at most `num_tokens - 1` more are enough to complete, stop token
    /// included. Empty where `num_tokens` is below [`TokenAutomaton::tokens_to_end`] of the state.
    ///
    /// A look-up of the plain mask where no successor needs more. Else a walk of the trie of tokens
    /// with a question for each distinct state that it meets.
    pub(crate) fn next_tokens_within(
        &mut self,
        state: GrammarState,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let left = num_tokens.saturating_sub(1);
        let known = self.farthest_successor.get(&state);
        if known.is_some_and(|&farthest| farthest <= left) {
            return self.next_tokens(state, fuel);
        }
        let mut farthest = 0;
        let mask = self.tokens_where(state, fuel, |need| {
            farthest = farthest.max(need);
            need <= left
        })?;
        self.farthest_successor.insert(state, farthest);
        Ok(mask)
    }

    /// The tokens after which tokens of the vocabulary can complete the text.
    pub(super) fn completable_tokens(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        self.tokens_where(state, fuel, |_| true)
    }

    /// The tokens that lead to states that can be completed in a number of tokens of which `keep`
    /// is true, and those with which the text ends.
    fn tokens_where(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
        mut keep: impl FnMut(u32) -> bool,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let mut words = vec![0_u32; self.index.text_tokens().len()];
        match state {
            GrammarState::Machine(state) => {
                if self.is_accepting(state, fuel)? {
                    set_bits(&mut words, self.index.info().stop_token_ids());
                }
            }
            GrammarState::Parser(state) => self.add_parser_ends(state, &mut words, fuel)?,
        }
        let mut needs: HashMap<Reached, Need> = HashMap::new();
        self.walk_tokens(state, fuel, |automaton, tokens, reached, fuel| {
            // Texts of any length are alike.
            let key = Reached {
                behind: reached.behind.min(1),
                ..reached
            };
            match needs.get(&key) {
                Some(need) if !need.depends_on_text => {
                    if need.tokens.is_some_and(&mut keep) {
                        set_bits(&mut words, tokens);
                    }
                }
                known => {
                    let is_first = known.is_none();
                    let Some(&token) = tokens.first() else {
                        return Ok(());
                    };
                    let state = automaton.after_whole(reached, token);
                    let tokens_left = match automaton.can_end(state, fuel)? {
                        true => Some(automaton.tokens_to_end(state, fuel)?),
                        false => None,
                    };
                    if is_first {
                        let depends_on_text =
                            reached.behind > 0 && automaton.text_matters(state, fuel)?;
                        let need = Need {
                            tokens: tokens_left,
                            depends_on_text,
                        };
                        needs.insert(key, need);
                    }
                    if tokens_left.is_some_and(&mut keep) {
                        set_bits(&mut words, tokens);
                    }
                }
            }
            Ok(())
        })?;
        Ok(self.interned(words))
    }

    /// Whether the canonical completion of a state within a key or an item may depend on its text:
    /// whether it writes another key or item that has to be another.
    fn text_matters(&mut self, state: GrammarState, fuel: &mut Fuel) -> Result<bool, OutOfFuel> {
        let GrammarState::Machine(start) = state else {
            return Ok(false);
        };
        if !self.writes_any_text {
            return Ok(true);
        }
        self.completion_needs_text(start, fuel)
    }
}
