//! Completion by tokens: whether a state can be completed, and in how few tokens.
//!
//! Where the vocabulary can write any text, completion by bytes is enough, and the bound on tokens
//! is taken from the *canonical completion*: the shortest in bytes, of several the one with the
//! smallest first byte, and so on. What follows a prefix of it is the canonical completion of the
//! state there, so the fewest tokens that write it fall by one with each of them: following the
//! bound always ends in time. It need not be the least number of tokens (a longer text may take
//! fewer), but it is never too low.
//!
//! With other vocabularies the bound is exact: a search over tokens.

use std::sync::Arc;

use super::ways::Way;
use super::writable::AnyEnd;
use super::{GrammarState, State, TokenAutomaton};
use crate::index::ROOT;
use crate::lexical::search::{Graph, Search, UNKNOWN, nearest_end};
use crate::lexical::{Fuel, Stop};

/// A shorter way to the end of a text is walked again.
const LONG_WAY: usize = 32;

impl TokenAutomaton {
    /// Whether the text so far can be completed by tokens of the vocabulary. `state` is reached by
    /// whole tokens.
    pub(crate) fn is_completable(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        if self.writes_any_text {
            self.machine.lexicon.is_live(state.lexeme, fuel)
        } else {
            self.is_writable(state, fuel)
        }
    }

    /// Runs a search by tokens: [`DEAD`] where tokens of the vocabulary reach no end. Where they
    /// write any text there is nothing to search.
    pub(crate) fn run_by_tokens(
        &mut self,
        search: &mut Search<State>,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if self.writes_any_text {
            return Ok(0);
        }
        search.run(&mut AnyEnd(self), fuel)
    }

    /// How many tokens complete the text from a state that can be completed, the stop token
    /// included: at least 1.
    pub(crate) fn min_tokens(&mut self, state: State, fuel: &mut Fuel) -> Result<u32, Stop> {
        if !self.writes_any_text {
            let tokens = nearest_end(&mut ByTokens(self), state, fuel)?;
            return Ok(tokens.saturating_add(1));
        }
        let state = self.completed_as(state, fuel)?;
        if let Some(&known) = self.min_tokens.get(&state) {
            return Ok(known);
        }
        let mut way = self.ways.take(state);
        let counted = self.count_on_way(&mut way, fuel);
        if counted.is_err() {
            self.ways.put(state, way);
        }
        counted?;
        Ok(self.min_tokens.get(&state).copied().unwrap_or(u32::MAX))
    }

    /// Walks a canonical completion from the end of the way on that was walked so far, and makes known what
    /// all places on it need.
    fn count_on_way(&mut self, way: &mut Way<State, u8>, fuel: &mut Fuel) -> Result<(), Stop> {
        let Way {
            places: states,
            steps: text,
        } = way;
        let Some(&(mut last)) = states.last() else {
            return Ok(());
        };
        let longest = self.index.max_token_bytes() as usize;
        // Up to the end, or a token's length into what is known.
        let mut known_run = 0;
        while let Some((byte, next)) = self.machine.toward_end(last, fuel)? {
            fuel.burn(1)?;
            let known = self.min_tokens.contains_key(&last);
            known_run = if known { known_run + 1 } else { 0 };
            if known_run > longest {
                break;
            }
            text.push(byte);
            states.push(next);
            last = next;
        }
        for start in (0..states.len()).rev() {
            if self.min_tokens.contains_key(&states[start]) {
                continue;
            }
            let tokens = match start == text.len() {
                // A completion that is longer than any number says has no first byte.
                true if !self.machine.is_accepting(last, fuel)? => u32::MAX,
                true => 1,
                false => self.fewest_tokens(&text[start..], &states[start..], fuel)?,
            };
            self.min_tokens.insert(states[start], tokens);
        }
        Ok(())
    }

    /// Bytes of a short completion. What follows a text that is kept, of a key or an item, depends on
    /// it: the completion is followed to that text's end, and where that is long, it is remembered for
    /// the places on the way.
    pub(super) fn machine_bytes_to_end(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if let Some(bytes) = self.unread_bytes_to_end(state, fuel)? {
            return Ok(bytes);
        }
        let mut way = Vec::new();
        let mut at = state;
        let mut bytes = loop {
            if let Some(&known) = self.bytes_to_end.get(&at) {
                break known;
            }
            let next = match at.has_text() {
                true => self.machine.toward_end(at, fuel)?,
                false => None,
            };
            let Some((_, next)) = next else {
                break self.machine.distance(at, fuel)?.0;
            };
            fuel.burn(1)?;
            way.push(at);
            at = next;
        };
        let is_long = way.len() > LONG_WAY;
        for place in way.into_iter().rev() {
            bytes = bytes.saturating_add(1);
            if is_long {
                self.bytes_to_end.insert(place, bytes);
            }
        }
        Ok(bytes)
    }

    /// The text tokens that begin the canonical completion and leave no more than `num_tokens - 1`
    /// to be written, stop token included; none where the text is complete. Looks at one text, where
    /// a mask looks at all.
    ///
    /// With vocabularies that can't write any text there is no canonical completion: `None`.
    pub(crate) fn completing_tokens(
        &mut self,
        state: State,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<u32>>, Stop> {
        if !self.writes_any_text {
            return Ok(None);
        }
        // What the states on the way need is known after this.
        self.min_tokens(state, fuel)?;
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let (mut node, mut last) = (ROOT, self.completed_as(state, fuel)?);
        let mut completing = Vec::new();
        while let Some((byte, next)) = self.machine.toward_end(last, fuel)? {
            fuel.burn(1)?;
            let Some(child) = trie.child(node, byte) else {
                break;
            };
            node = child;
            let rest = self.min_tokens.get(&next).copied().unwrap_or(u32::MAX);
            if rest < num_tokens {
                completing.extend_from_slice(trie.ids(trie.own(node)));
            }
            last = next;
        }
        Ok(Some(completing))
    }

    /// One token that begins `text`, and what the state after it needs. `states[i]` is the state
    /// after `text[..i]`; those after the first are known.
    fn fewest_tokens(&self, text: &[u8], states: &[State], fuel: &mut Fuel) -> Result<u32, Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let mut fewest = u32::MAX;
        let mut node = ROOT;
        for (&byte, after) in text.iter().zip(&states[1..]) {
            fuel.burn(1)?;
            let Some(child) = trie.child(node, byte) else {
                break;
            };
            node = child;
            if !trie.own(node).is_empty() {
                let rest = self.min_tokens.get(after).copied().unwrap_or(u32::MAX);
                fewest = fewest.min(rest.saturating_add(1));
            }
        }
        Ok(fewest)
    }
}

/// The automaton as a graph whose edges are tokens.
pub(super) struct ByTokens<'a>(pub(super) &'a mut TokenAutomaton);

impl Graph for ByTokens<'_> {
    type State = State;

    fn known(&self, state: State) -> u32 {
        self.0
            .token_distance
            .get(&state)
            .copied()
            .unwrap_or(UNKNOWN)
    }

    fn bound(&self, _: State) -> u32 {
        0
    }

    fn is_end(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        self.0.is_accepting(state, fuel)
    }

    fn successors(&mut self, state: State, fuel: &mut Fuel) -> Result<Vec<State>, Stop> {
        let reached = self.0.after_tokens(GrammarState::Machine(state), fuel)?;
        let machine = reached.into_iter().filter_map(|next| match next {
            GrammarState::Machine(next) => Some(next),
            GrammarState::Parser(_) => None,
        });
        Ok(machine.collect())
    }

    fn remember(&mut self, state: State, distance: u32) {
        self.0.token_distance.insert(state, distance);
    }
}
