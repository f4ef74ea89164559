//! Walks that forget contexts: what they refuse, each state with these lexemes refuses.
//!
//! A state is a set of lexemes with the places after them, and a rule that is over returns to all that
//! call it (`earley/anywhere.rs`). There are few such states, however ambiguous a text is.

use std::ops::Range;

use hashbrown::HashMap;

use super::TokenAutomaton;
use super::all_tokens::Wanted;
use crate::earley::{Follower, StateId, read_to_tag};
use crate::index::{ROOT, Trie};
use crate::lexical::{EMPTY, EPSILON, Fuel, Stop};
use crate::pushdown::EMPTY_STACK;

/// States up to which they are kept for the next walk.
const MAX_STATES: usize = 1024;

/// A step that was not made yet.
const UNSEEN: u32 = u32::MAX;
/// A step that there isn't.
const DEAD_END: u32 = u32::MAX - 1;

/// The states met in such walks, with the steps between them.
#[derive(Default)]
pub(super) struct LooseSteps {
    numbers: HashMap<Box<[Follower]>, u32>,
    states: Vec<Box<[Follower]>>,
    /// One for each byte.
    targets: Vec<u32>,
    num_followers: usize,
}

impl LooseSteps {
    fn number(&mut self, mut state: Vec<Follower>) -> u32 {
        state.sort_unstable();
        state.dedup();
        if let Some(&known) = self.numbers.get(&state[..]) {
            return known;
        }
        let number = self.states.len() as u32;
        self.num_followers += 2 * state.len();
        self.states.push(state.clone().into());
        self.numbers.insert(state.into(), number);
        self.targets.resize(self.targets.len() + 256, UNSEEN);
        number
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.num_followers * size_of::<Follower>()
            + self.states.capacity() * size_of::<Box<[Follower]>>()
            + self.numbers.capacity() * (size_of::<(Box<[Follower]>, u32)>() + 1)
            + self.targets.capacity() * 4
    }
}

impl TokenAutomaton {
    /// Adds the tokens, among some, that a state may go on with as far as that can be told without its
    /// contexts, as ranges of the trie's: what isn't among them is refused.
    pub(super) fn walk_loosely(
        &mut self,
        trie: &Trie,
        state: StateId,
        wanted: &Wanted,
        found: &mut Vec<Range<u32>>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if self.grammars.memo.loose.states.len() > MAX_STATES {
            self.grammars.memo.loose = LooseSteps::default();
        }
        let followers = self.grammars.parser.followers(state);
        let start = self.grammars.memo.loose.number(followers);
        let mut pending = vec![(ROOT, start)];
        while let Some((node, state)) = pending.pop() {
            for child in trie.children(node) {
                if !wanted.has(&trie.below(child)) {
                    continue;
                }
                fuel.burn(1)?;
                let byte = trie.label(child);
                let at = state as usize * 256 + usize::from(byte);
                let next = match self.grammars.memo.loose.targets[at] {
                    UNSEEN => {
                        let next = self.loose_step(state, byte, fuel)?;
                        self.grammars.memo.loose.targets[at] = next;
                        next
                    }
                    known => known,
                };
                if next != DEAD_END {
                    found.push(trie.own(child));
                    pending.push((child, next));
                }
            }
        }
        Ok(())
    }

    fn loose_step(&mut self, state: u32, byte: u8, fuel: &mut Fuel) -> Result<u32, Stop> {
        let followers = self.grammars.memo.loose.states[state as usize].clone();
        let mut next = Vec::with_capacity(followers.len() + 8);
        let mut has_ended = false;
        for &(lexeme, place) in &*followers {
            fuel.burn(1)?;
            let Some(text) = lexeme.text() else { continue };
            if text.stack == EMPTY_STACK && self.machine.lexicon.is_for_tags(text.lexeme) {
                let read = read_to_tag(&mut self.machine, text.lexeme, byte, fuel)?;
                if let Some(place) = self.grammars.parser.choice(place, read.tag) {
                    has_ended = true;
                    next.extend_from_slice(self.grammars.parser.first_anywhere(place, fuel)?);
                }
                if read.rest != EMPTY {
                    let rest = self.machine.start_of_expression(read.rest);
                    next.push((lexeme.after(rest), place));
                }
                continue;
            }
            let Some(after) = self.machine.step(text, byte, fuel)? else {
                continue;
            };
            if self.machine.is_accepting(after, fuel)? {
                has_ended = true;
                let first = self.grammars.parser.first_anywhere(place, fuel)?;
                let num_first = first.len() as u64;
                next.extend_from_slice(first);
                fuel.burn(num_first)?;
            }
            if after.lexeme != EPSILON {
                next.push((lexeme.after(after), place));
            }
        }
        // Where a lexeme ends the whole text may be over, which is no dead end though nothing follows.
        Ok(match next.is_empty() && !has_ended {
            true => DEAD_END,
            false => self.grammars.memo.loose.number(next),
        })
    }
}
