//! Masks of ambiguous states by walks of all tokens.
//!
//! First from the state with one way for each of its lexemes (`narrowed`): what that allows the state
//! allows, and the steps are those of an unambiguous text. It tells nearly all tokens that are allowed. Then
//! without any context (`loose_walk`): what that refuses the state refuses, and it tells nearly all tokens
//! that aren't allowed. The rest is walked with all ways to read the text.

use std::ops::Range;
use std::sync::Arc;

use super::TokenAutomaton;
use crate::earley::StateId;
use crate::index::Trie;
use crate::lexical::{Fuel, Stop};
use crate::mask::set_bits;

/// Tokens of a trie that are still looked for.
pub(super) struct Wanted {
    /// How many of them come before each token, in the trie's order.
    before: Vec<u32>,
}

impl Wanted {
    /// Those whose bits are as given.
    pub(super) fn with(trie: &Trie, words: &[u32], is_set: bool) -> Self {
        let mut before = Vec::with_capacity(trie.tokens().len() + 1);
        let mut count = 0;
        before.push(0);
        for &id in trie.tokens() {
            let word = words.get(id as usize / 32).copied().unwrap_or_default();
            count += u32::from((word >> (id % 32) & 1 == 1) == is_set);
            before.push(count);
        }
        Self { before }
    }

    /// Whether some of a range of the trie's tokens are among them.
    pub(super) fn has(&self, tokens: &Range<u32>) -> bool {
        let before = |at: u32| self.before.get(at as usize);
        before(tokens.start) != before(tokens.end)
    }
}

impl TokenAutomaton {
    /// Adds what the text lexemes of a state allow, by walks of all tokens.
    pub(super) fn walk_all_tokens(
        &mut self,
        state: StateId,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        self.grammars.memo.swap_steps();
        let narrowed = fuel.within(fuel.left() / 2, |part| {
            self.walk_narrowed(trie, state, words, part)
        });
        self.grammars.memo.swap_steps();
        // Else what was found holds.
        if narrowed? == Some(false) {
            return Ok(());
        }
        fuel.burn(trie.tokens().len() as u64 / 8)?;
        let mut wanted = Wanted::with(trie, words, false);
        let mut found = Vec::new();
        let loose = fuel.within(fuel.left() / 2, |part| {
            self.walk_loosely(trie, state, &wanted, &mut found, part)
        })?;
        if loose.is_some() {
            let mut possible = vec![0_u32; words.len()];
            for tokens in found {
                set_bits(&mut possible, trie.ids(tokens));
            }
            for (possible, known) in possible.iter_mut().zip(&*words) {
                *possible &= !known;
            }
            wanted = Wanted::with(trie, &possible, true);
        }
        let state = self.number(state, fuel)?;
        let is_wanted = |tokens: &Range<u32>| wanted.has(tokens);
        self.walk_wanted(trie, state, is_wanted, fuel, |tokens| {
            set_bits(words, tokens)
        })
    }

    /// With one way for each lexeme; whether there were others.
    pub(super) fn walk_narrowed(
        &mut self,
        trie: &Trie,
        state: StateId,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        self.grammars.memo.steps.take_left_out();
        let (parser, machine) = self.parser();
        let narrowed = parser.narrowed(machine, state, fuel)?;
        self.walk_parser(trie, narrowed, fuel, |tokens| set_bits(words, tokens))?;
        Ok(self.grammars.memo.steps.take_left_out() || narrowed != state)
    }
}
