//! Masks of states.

use std::sync::Arc;

use super::gather::Gather;
use super::memo::{Exits, LexemeMask, Part, frames_read};
use super::{State, TokenAutomaton};
use crate::index::ROOT;
use crate::lexical::{Fuel, NO_MARK, OutOfFuel};
use crate::mask::Mask;

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    ///
    /// A look-up where the state, or one that no token can tell from it, has been asked for before.
    /// Otherwise what the lexeme allows by itself, and for the few tokens that go on after it, a
    /// walk of the machine through what they go on with.
    pub(crate) fn mask(&mut self, state: State, fuel: &mut Fuel) -> Result<Arc<Mask>, OutOfFuel> {
        // Saturation speaks of bytes: it holds where any text can be written.
        let lexeme = if self.writes_any_text {
            self.machine.lexicon.saturated(state.lexeme)
        } else {
            state.lexeme
        };
        if let Some(known) = self.masks.get(lexeme, state, self.machine.stacks()) {
            return Ok(known);
        }
        if !self.writes_any_text {
            let mask = self.mask_where(state, fuel, |automaton, next, fuel| {
                automaton.is_completable(next, fuel)
            })?;
            self.masks
                .insert_for_state(lexeme, state, Arc::clone(&mask));
            return Ok(mask);
        }
        self.machine.start_recording();
        let mut gather = Gather::default();
        self.add_stop_tokens(&mut gather, state, fuel)?;
        // What may end the text here may have asked for the end of a key or an item.
        let mut depends_on_text = self.machine.reads.text.take().is_some();
        let mut unsure = Vec::new();
        let mut at = State { lexeme, ..state };
        loop {
            for part in self.parts(at.lexeme, fuel)?.iter() {
                self.add_part(part, at, &mut gather, &mut unsure, fuel)?;
            }
            // The lexeme may end before the token begins.
            match self.machine.lexicon.end_mark(at.lexeme) {
                NO_MARK => break,
                mark => at = self.machine.end_lexeme(at, mark, fuel)?,
            }
            depends_on_text |= self.machine.reads.text.take().is_some();
            depends_on_text |= self.machine.has_key_frames();
            at.lexeme = self.machine.lexicon.saturated(at.lexeme);
        }
        let reads = self.machine.stop_recording();
        for &token in &unsure {
            if self.advance(state, token, fuel)?.is_some() {
                gather.ids.push(token);
            }
        }
        let mask = self.finish(gather);
        if unsure.is_empty() && !depends_on_text {
            let stacks = self.machine.stacks();
            let read = frames_read(stacks, state.stack, reads.lowest);
            self.masks
                .insert(lexeme, state, read, stacks, Arc::clone(&mask));
        } else {
            self.masks
                .insert_for_state(lexeme, state, Arc::clone(&mask));
        }
        Ok(mask)
    }

    /// The tokens after which at most `num_tokens - 1` more are enough to complete, stop token
    /// included. Empty where `num_tokens` is below [`TokenAutomaton::min_tokens`] of the state.
    pub(crate) fn mask_within(
        &mut self,
        state: State,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let left = num_tokens.saturating_sub(1);
        let farthest = self.farthest_successor.get(&state);
        if farthest.is_some_and(|&farthest| farthest <= left) {
            return self.mask(state, fuel);
        }
        let mut farthest = 0;
        let mask = self.mask_where(state, fuel, |automaton, next, fuel| {
            if !automaton.is_completable(next, fuel)? {
                return Ok(false);
            }
            let needs = automaton.min_tokens(next, fuel)?;
            farthest = farthest.max(needs);
            Ok(needs <= left)
        })?;
        self.farthest_successor.insert(state, farthest);
        Ok(mask)
    }

    /// The tokens that lead to states of which `keep` is true, which is asked once per state.
    fn mask_where(
        &mut self,
        state: State,
        fuel: &mut Fuel,
        mut keep: impl FnMut(&mut Self, State, &mut Fuel) -> Result<bool, OutOfFuel>,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let mut gather = Gather::default();
        self.add_stop_tokens(&mut gather, state, fuel)?;
        let mut verdicts: hashbrown::HashMap<State, bool> = hashbrown::HashMap::new();
        for (tokens, next) in self.reached_by_tokens(state, fuel)? {
            let kept = match verdicts.get(&next) {
                Some(&kept) => kept,
                None => {
                    let kept = keep(self, next, fuel)?;
                    verdicts.insert(next, kept);
                    kept
                }
            };
            if kept {
                gather.ids.extend_from_slice(&tokens);
            }
        }
        Ok(self.finish(gather))
    }

    /// All states that a token leads to, with such tokens. The text of a key is not kept in them.
    pub(super) fn reached_by_tokens(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Vec<(Vec<u32>, State)>, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let mut unsure = Vec::new();
        self.machine.start_recording();
        let mut reached: Vec<(Vec<u32>, State)> = Vec::new();
        if state.stack == crate::pushdown::EMPTY_STACK {
            // One lexeme: the trie of a coarse alphabet may do.
            for (tokens, lexeme) in self.reached_in_lexeme(state.lexeme, fuel)? {
                reached.push((tokens, State { lexeme, ..state }));
            }
        } else {
            let found = |tokens: &[u32], next| reached.push((tokens.to_vec(), next));
            let trie = index.byte_trie();
            self.walk_states(trie, trie.children(ROOT), state, fuel, found, &mut unsure)?;
        }
        self.machine.stop_recording();
        for token in unsure {
            if let Some(next) = self.advance(state, token, fuel)? {
                reached.push((vec![token], next));
            }
        }
        Ok(reached)
    }

    /// Adds what a part of a lexeme allows, by itself and with what follows in a state.
    fn add_part(
        &mut self,
        part: &Part,
        state: State,
        gather: &mut Gather,
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let Part { mask, mark } = part;
        gather.add_inside(mask);
        self.add_exits(mask, *mark, state, &mut gather.ids, unsure, fuel)?;
        if let Some(reference) = &mask.reference {
            let (mut ids, mut unsure_ids) = (Vec::new(), Vec::new());
            let of_reference = &reference.mask;
            self.add_exits(of_reference, *mark, state, &mut ids, &mut unsure_ids, fuel)?;
            for (found, list) in [(ids, &mut gather.ids), (unsure_ids, unsure)] {
                let kept = |id: &u32| reference.less.binary_search(id).is_err();
                list.extend(found.into_iter().filter(kept));
            }
        }
        Ok(())
    }

    /// Adds the tokens that go on after a lexeme and may, in a state. `mark` stands for mark 0.
    fn add_exits(
        &mut self,
        part: &LexemeMask,
        mark: Option<u16>,
        state: State,
        ids: &mut Vec<u32>,
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let index = Arc::clone(&self.index);
        for (own_mark, exits) in &part.exits {
            let mark = mark.unwrap_or(*own_mark);
            match exits {
                Exits::Nodes(nodes) => {
                    let trie = index.byte_trie();
                    self.walk_exits(trie, nodes, state, mark, ids, unsure, fuel)?;
                }
                Exits::Suffixes(trie) => {
                    let nodes: Vec<u32> = trie.children(ROOT).collect();
                    self.walk_exits(trie, &nodes, state, mark, ids, unsure, fuel)?;
                }
            }
        }
        Ok(())
    }

    fn add_stop_tokens(
        &mut self,
        gather: &mut Gather,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        if self.is_accepting(state, fuel)? {
            gather
                .ids
                .extend_from_slice(self.index.info().stop_token_ids());
        }
        Ok(())
    }

    fn finish(&mut self, gather: Gather) -> Arc<Mask> {
        let num_words = self.index.text_tokens().len();
        gather.finish(&mut self.masks.store, num_words)
    }
}
