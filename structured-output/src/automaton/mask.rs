//! Masks of states.

use std::ops::Range;
use std::sync::Arc;

use super::{State, TokenAutomaton};
use crate::index::Trie;
use crate::lexical::{Fuel, OutOfFuel};
use crate::mask::walk::walk;
use crate::mask::{MAX_SPARSE, Mask};

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    ///
    /// A look-up where the state, or one that no token can tell from it, has been asked for before.
    /// Otherwise a walk through the trie of the coarsest alphabet that fits.
    pub(crate) fn mask(&mut self, state: State, fuel: &mut Fuel) -> Result<Arc<Mask>, OutOfFuel> {
        // Saturation speaks of bytes: it holds where any text can be written.
        let key = if self.writes_any_text {
            self.lexicon.saturated(state)
        } else {
            state
        };
        if let Some(known) = self.mask_of.get(&key) {
            return Ok(Arc::clone(known));
        }
        let index = Arc::clone(&self.index);
        let trie = index.trie(self.alphabet_of(key));
        let ranges = if self.writes_any_text {
            let mut ranges = Ranges::default();
            walk(&mut self.lexicon, trie, key, fuel, |tokens, _| {
                ranges.add(tokens)
            })?;
            ranges
        } else {
            self.ranges_where(trie, key, fuel, |automaton, next, fuel| {
                automaton.is_completable(next, fuel)
            })?
        };
        let mask = self.finish_mask(trie, &ranges, self.is_accepting(state));
        self.mask_of.insert(key, Arc::clone(&mask));
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
        let index = Arc::clone(&self.index);
        let trie = index.trie(self.alphabet_of(state));
        let mut farthest = 0;
        let ranges = self.ranges_where(trie, state, fuel, |automaton, next, fuel| {
            if !automaton.is_completable(next, fuel)? {
                return Ok(false);
            }
            let needs = automaton.min_tokens(next, fuel)?;
            farthest = farthest.max(needs);
            Ok(needs <= left)
        })?;
        self.farthest_successor.insert(state, farthest);
        let may_end = num_tokens > 0 && self.is_accepting(state);
        Ok(self.finish_mask(trie, &ranges, may_end))
    }

    /// The states that one token leads to and that can be completed, each once.
    pub(super) fn successors(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Vec<State>, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let trie = index.trie(self.alphabet_of(state));
        let mut states = Vec::new();
        walk(&mut self.lexicon, trie, state, fuel, |_, next| {
            states.push(next)
        })?;
        states.sort_unstable();
        states.dedup();
        Ok(states)
    }

    /// The coarsest alphabet that keeps apart what the state keeps apart.
    fn alphabet_of(&self, state: State) -> usize {
        let finest = self.index.num_alphabets() - 1;
        (0..finest)
            .find(|&alphabet| self.lexicon.fits_alphabet(state, alphabet))
            .unwrap_or(finest)
    }

    /// The tokens that lead to states of which `keep` is true; `keep` is asked once per state.
    fn ranges_where(
        &mut self,
        trie: &Trie,
        state: State,
        fuel: &mut Fuel,
        mut keep: impl FnMut(&mut Self, State, &mut Fuel) -> Result<bool, OutOfFuel>,
    ) -> Result<Ranges, OutOfFuel> {
        let mut reached: Vec<(Range<u32>, State)> = Vec::new();
        walk(&mut self.lexicon, trie, state, fuel, |tokens, next| {
            reached.push((tokens, next));
        })?;
        let mut verdicts: hashbrown::HashMap<State, bool> = hashbrown::HashMap::new();
        let mut ranges = Ranges::default();
        for (tokens, next) in reached {
            let kept = match verdicts.get(&next) {
                Some(&kept) => kept,
                None => {
                    let kept = keep(self, next, fuel)?;
                    verdicts.insert(next, kept);
                    kept
                }
            };
            if kept {
                ranges.add(tokens);
            }
        }
        Ok(ranges)
    }

    /// The mask of ranges of a trie's tokens, and of the stop tokens where the text may end.
    fn finish_mask(&mut self, trie: &Trie, ranges: &Ranges, may_end: bool) -> Arc<Mask> {
        let stops: &[u32] = if may_end {
            self.index.info().stop_token_ids()
        } else {
            &[]
        };
        let count = ranges.count + stops.len();
        let inside = |range: &Range<u32>| &trie.tokens()[range.start as usize..range.end as usize];
        if count <= MAX_SPARSE {
            let text = ranges.list.iter().flat_map(inside);
            let mask = Mask::from_ids(text.chain(stops).copied().collect());
            return self.masks.intern(mask);
        }
        // Set what is allowed or clear what isn't, whichever is less.
        let mut words;
        if ranges.count > trie.tokens().len() / 2 {
            words = self.index.text_tokens().to_vec();
            let mut start = 0;
            let all = trie.tokens().len() as u32;
            for range in ranges.list.iter().chain([&(all..all)]) {
                for &id in inside(&(start..range.start)) {
                    words[id as usize / 32] &= !(1 << (id % 32));
                }
                start = range.end;
            }
        } else {
            words = vec![0; self.index.text_tokens().len()];
            for &id in ranges.list.iter().flat_map(inside) {
                words[id as usize / 32] |= 1 << (id % 32);
            }
        }
        for &id in stops {
            words[id as usize / 32] |= 1 << (id % 32);
        }
        self.masks.intern(Mask::from_words(words, count))
    }
}

/// Ascending ranges, adjacent ones joined.
#[derive(Default)]
struct Ranges {
    list: Vec<Range<u32>>,
    count: usize,
}

impl Ranges {
    fn add(&mut self, range: Range<u32>) {
        self.count += range.len();
        match self.list.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.list.push(range),
        }
    }
}
