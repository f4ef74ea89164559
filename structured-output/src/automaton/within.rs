//! Masks that look at the states after each token: what can be completed by tokens, and in how many.
//!
//! Each token of the vocabulary within a key leads to a text of its own, and each that ends the key to an
//! object of its own. What these need is the same but where the rest of the canonical completion writes an
//! equal key later: so it is asked once without the text, and texts are compared by what is written. Only
//! a token whose text might be written again is asked by itself.

use std::sync::Arc;

use hashbrown::HashMap;

use super::token_walk::Reached;
use super::{GrammarState, State, TokenAutomaton};
use crate::lexical::{Fuel, Stop};
use crate::mask::{Mask, set_bits};

/// Tokens to the end, stop token included; `None` where tokens reach none.
type TokensLeft = Option<u32>;

/// What a place within a key or an item needs, whatever its text is.
#[derive(Clone, Copy)]
enum Need {
    /// The same with each text.
    Known(TokensLeft),
    /// The same with each text but those that the completion writes later, by its place among those of
    /// places without their texts.
    Beside(TokensLeft, u32),
    /// Another with each text.
    OfText,
}

/// Tokens by what is left to be written after them.
struct Weighed {
    /// As bits.
    words: Vec<u32>,
    /// Whether all were weighed that might be kept.
    is_whole: bool,
    /// What places within texts need.
    needs: HashMap<State, Need>,
    /// What other places need, as a walk meets them.
    known: HashMap<GrammarState, TokensLeft>,
    /// Steps that may be taken for texts one by one; `None` where all have to be asked.
    steps_for_texts: Option<u64>,
}

impl Weighed {
    /// Nothing yet, of tokens with so many words of bits.
    fn new(num_words: usize, steps_for_texts: Option<u64>) -> Self {
        Self {
            words: vec![0; num_words],
            is_whole: true,
            needs: HashMap::new(),
            known: HashMap::new(),
            steps_for_texts,
        }
    }
}

impl TokenAutomaton {
    /// The tokens after which at most `num_tokens - 1` more are enough to complete, stop token
    /// included. Empty where `num_tokens` is below [`TokenAutomaton::tokens_to_end`] of the state.
    ///
    /// A look-up of the plain mask where no successor needs more. Else a walk of the trie of tokens
    /// with a question for each distinct state that it meets. Where that takes more than there is and
    /// `may_leave_out` is true, tokens are left out, but none of the canonical completion.
    pub(crate) fn next_tokens_within(
        &mut self,
        state: GrammarState,
        num_tokens: u32,
        may_leave_out: bool,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, Stop> {
        let left = num_tokens.saturating_sub(1);
        let known = self.farthest_successor.get(&state);
        if known.is_some_and(|&farthest| farthest <= left) {
            return self.next_tokens(state, fuel);
        }
        let mut farthest = 0;
        let keep = |need| {
            farthest = farthest.max(need);
            need <= left
        };
        let may_leave_out = may_leave_out && self.writes_any_text;
        let steps_for_texts = may_leave_out.then(|| fuel.left() / 4);
        let mut weighed = Weighed::new(self.index.text_tokens().len(), steps_for_texts);
        if may_leave_out {
            // What is left is enough for the one text that is known.
            let mut most = fuel.part(fuel.left() / 8 * 7);
            most.limit_to_eighths(7);
            let granted = most.left();
            let done = self.weigh_tokens(state, &mut weighed, &mut most, keep);
            fuel.burn(granted - most.left())?;
            weighed.is_whole &= done.is_ok();
        } else {
            self.weigh_tokens(state, &mut weighed, fuel, keep)?;
        }
        let Weighed {
            mut words,
            is_whole,
            ..
        } = weighed;
        if is_whole {
            self.farthest_successor.insert(state, farthest);
        } else {
            let tokens = self.tokens_toward_end(state, num_tokens, fuel)?;
            let info = self.index.info();
            let mut tokens = tokens.unwrap_or_default();
            tokens.retain(|&token| !info.is_stop_token(token));
            if self.may_end(state, fuel)? {
                tokens.extend_from_slice(self.index.info().stop_token_ids());
            }
            set_bits(&mut words, &tokens);
        }
        Ok(self.interned(words))
    }

    /// The tokens after which tokens of the vocabulary can complete the text.
    pub(super) fn completable_tokens(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, Stop> {
        let mut words = vec![0; self.index.text_tokens().len()];
        self.add_ends(state, &mut words, fuel)?;
        // How many tokens are needed isn't asked: that takes a search of its own.
        self.walk_tokens(state, false, fuel, |automaton, tokens, reached, fuel| {
            let Some(&token) = tokens.first() else {
                return Ok(());
            };
            let next = automaton.after_whole(reached, token, fuel)?;
            if automaton.can_end(next, fuel)? {
                set_bits(&mut words, tokens);
            }
            Ok(())
        })?;
        Ok(self.interned(words))
    }

    /// Adds the stop tokens where the text may end.
    fn add_ends(
        &mut self,
        start: GrammarState,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        match start {
            GrammarState::Machine(state) => {
                if self.is_accepting(state, fuel)? {
                    set_bits(words, self.index.info().stop_token_ids());
                }
                Ok(())
            }
            GrammarState::Parser(state) => self.add_parser_ends(state, words, fuel),
        }
    }

    /// The tokens that lead to states that can be completed in a number of tokens of which `keep`
    /// is true, and those with which the text ends.
    fn weigh_tokens(
        &mut self,
        start: GrammarState,
        weighed: &mut Weighed,
        fuel: &mut Fuel,
        mut keep: impl FnMut(u32) -> bool,
    ) -> Result<(), Stop> {
        self.add_ends(start, &mut weighed.words, fuel)?;
        let is_unread = self.writes_any_text;
        self.walk_tokens(
            start,
            is_unread,
            fuel,
            |automaton, tokens, reached, fuel| {
                let Some(&token) = tokens.first() else {
                    return Ok(());
                };
                let left = automaton.tokens_left(start, reached, token, weighed, fuel)?;
                if left.is_some_and(&mut keep) {
                    set_bits(&mut weighed.words, tokens);
                }
                Ok(())
            },
        )
    }

    /// What is needed after a token.
    fn tokens_left(
        &mut self,
        start: GrammarState,
        reached: Reached,
        token: u32,
        weighed: &mut Weighed,
        fuel: &mut Fuel,
    ) -> Result<TokensLeft, Stop> {
        let GrammarState::Machine(state) = reached.state else {
            if let Some(&known) = weighed.known.get(&reached.state) {
                return Ok(known);
            }
            let state = self.after_whole(reached, token, fuel)?;
            let left = self.count_tokens_left(state, fuel)?;
            weighed.known.insert(reached.state, left);
            return Ok(left);
        };
        if let (true, GrammarState::Machine(start)) = (reached.is_unread, start) {
            let Some(read) = self.read_without_text(start, token, fuel)? else {
                return self.tokens_left_of_text(
                    GrammarState::Machine(start),
                    token,
                    weighed,
                    fuel,
                );
            };
            let Some(at) = read else {
                return Ok(None);
            };
            if at.is_read() {
                return self.known_tokens_left(GrammarState::Machine(at), weighed, fuel);
            }
            let whole = u32::MAX;
            let known = self.tokens_left_in_text((at, start), token, whole, weighed, fuel)?;
            return match known {
                Some(left) => Ok(left),
                None => {
                    self.tokens_left_of_text(GrammarState::Machine(start), token, weighed, fuel)
                }
            };
        }
        if reached.behind == 0 {
            return self.known_tokens_left(reached.state, weighed, fuel);
        }
        let left = match self.unread_place(state) {
            Some(place) => {
                self.tokens_left_in_text((place, state), token, reached.behind, weighed, fuel)?
            }
            None if self.writes_any_text => {
                self.tokens_left_in_item(reached, token, weighed, fuel)?
            }
            None => None,
        };
        match left {
            Some(left) => Ok(left),
            None => self.tokens_left_of_text(start, token, weighed, fuel),
        }
    }

    /// A place within a lexeme whose text is kept, without that text; `None` where it is not to be left
    /// out.
    fn unread_place(&self, state: State) -> Option<State> {
        match self.writes_any_text {
            true => self.machine.unread_place(state),
            false => None,
        }
    }

    /// What a place needs whose text, if it has one, is known.
    fn known_tokens_left(
        &mut self,
        state: GrammarState,
        weighed: &mut Weighed,
        fuel: &mut Fuel,
    ) -> Result<TokensLeft, Stop> {
        if let Some(&known) = weighed.known.get(&state) {
            return Ok(known);
        }
        let left = self.count_tokens_left(state, fuel)?;
        weighed.known.insert(state, left);
        Ok(left)
    }

    fn count_tokens_left(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<TokensLeft, Stop> {
        Ok(match self.can_end(state, fuel)? {
            true => Some(self.tokens_to_end(state, fuel)?),
            false => None,
        })
    }

    /// What is needed after a token with its own text: each makes states of its own, so of these there may
    /// only be some.
    fn tokens_left_of_text(
        &mut self,
        start: GrammarState,
        token: u32,
        weighed: &mut Weighed,
        fuel: &mut Fuel,
    ) -> Result<TokensLeft, Stop> {
        let Some(steps) = weighed.steps_for_texts else {
            return self.ask_of_text(start, token, fuel);
        };
        let mut own = fuel.part(steps);
        own.limit_to_eighths(3);
        let granted = own.left();
        let asked = self.ask_of_text(start, token, &mut own);
        let taken = granted - own.left();
        fuel.burn(taken)?;
        // Neither more steps nor more memory for it than that: the token is left out.
        weighed.is_whole &= asked.is_ok();
        weighed.steps_for_texts = Some(match asked {
            Ok(_) => steps - taken,
            Err(_) => 0,
        });
        Ok(asked.unwrap_or(None))
    }

    fn ask_of_text(
        &mut self,
        start: GrammarState,
        token: u32,
        fuel: &mut Fuel,
    ) -> Result<TokensLeft, Stop> {
        fuel.burn(1)?;
        match self.after_token(start, token, fuel)? {
            Some(state) => Ok(Some(self.tokens_to_end(state, fuel)?)),
            None => Ok(None),
        }
    }

    /// What is needed at a place without its text, which is that of a state and the last `behind` bytes of
    /// a token; `None` where the text has to be known.
    fn tokens_left_in_text(
        &mut self,
        (place, state): (State, State),
        token: u32,
        behind: u32,
        weighed: &mut Weighed,
        fuel: &mut Fuel,
    ) -> Result<Option<TokensLeft>, Stop> {
        let need = match weighed.needs.get(&place) {
            Some(&need) => need,
            None => {
                let need = self.need_in_text(place, fuel)?;
                weighed.needs.insert(place, need);
                need
            }
        };
        Ok(match need {
            Need::Known(left) => Some(left),
            Need::OfText => None,
            Need::Beside(left, completion) => {
                let index = Arc::clone(&self.index);
                let bytes = index.info().token_bytes(token);
                let from = bytes.len().saturating_sub(behind as usize);
                let rest = bytes.get(from..).unwrap_or_default();
                match self.is_completion_written_after(state, rest, completion, fuel)? {
                    true => None,
                    false => Some(left),
                }
            }
        })
    }

    /// The same within an item: what the first of its texts needs, where the completion writes no item
    /// later.
    fn tokens_left_in_item(
        &mut self,
        reached: Reached,
        token: u32,
        weighed: &mut Weighed,
        fuel: &mut Fuel,
    ) -> Result<Option<TokensLeft>, Stop> {
        let GrammarState::Machine(place) = reached.state else {
            return Ok(None);
        };
        let need = match weighed.needs.get(&place) {
            Some(&need) => need,
            None => {
                let state = self.after_whole(reached, token, fuel)?;
                let left = self.count_tokens_left(state, fuel)?;
                let completion = match state {
                    GrammarState::Machine(state) if left.is_some() => {
                        self.unread_completion(state, fuel)?
                    }
                    _ => None,
                };
                let need = match completion {
                    Some(completion) if !self.writes_texts_later(completion) => Need::Known(left),
                    _ if left.is_none() => Need::Known(None),
                    _ => Need::OfText,
                };
                weighed.needs.insert(place, need);
                need
            }
        };
        Ok(match need {
            Need::Known(left) => Some(left),
            _ => None,
        })
    }

    fn need_in_text(&mut self, place: State, fuel: &mut Fuel) -> Result<Need, Stop> {
        if !self.is_completable(place, fuel)? {
            return Ok(Need::Known(None));
        }
        let Some(completion) = self.unread_completion(place, fuel)? else {
            return Ok(Need::OfText);
        };
        let left = Some(self.min_tokens(place, fuel)?);
        Ok(match self.writes_texts_later(completion) {
            true => Need::Beside(left, completion),
            false => Need::Known(left),
        })
    }
}
