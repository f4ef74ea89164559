//! Rests of tokens that come again.
//!
//! Where a rule is repeated, and may be over within a token, what is left of a token comes to the same
//! lexemes again and again, each time with fewer bytes: of `ab cd ef` in `item+`, `item: /\w+/ " "?`, what
//! is left after two items is among what was left after one. There are as many rests as tokens have bytes,
//! but as many ways to come to them as a token can be cut. So each rest is kept once, equal rests have one
//! number, and of rests that come to an item again only those go on that didn't come to it before.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::TokenAutomaton;
use crate::earley::{LanguageMask, Leave, Places, Rests, Tokens, Walked};
use crate::index::{ROOT, Trie};
use crate::lexical::{Fuel, Stop};
use crate::mask::Forgotten;

/// A rest: a node of the trie of bytes and how many bytes come before what is left, or a token and how many
/// bytes of it are left.
type Rest = (u32, u32);

/// Which rests are known.
#[derive(Default)]
pub(super) struct ExitRests {
    /// By place, ascending.
    places: HashMap<Box<[Rest]>, Arc<LanguageMask>>,
    /// By token, ascending.
    tokens: HashMap<Box<[Rest]>, Arc<LanguageMask>>,
    /// Rests less others, by all their numbers: `None` where nothing is left.
    less: HashMap<Box<[u32]>, Option<Arc<LanguageMask>>>,
    /// Bytes of the keys, and of what they lead to.
    bytes: usize,
}

impl ExitRests {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        let num_rests = self.places.capacity() + self.tokens.capacity();
        self.bytes
            + num_rests * (size_of::<(Box<[Rest]>, usize)>() + 1)
            + self.less.capacity() * (size_of::<(Box<[u32]>, usize)>() + 1)
    }

    /// Hands all tables over to be dropped.
    pub(super) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.places);
        forgotten.add(self.tokens);
        forgotten.add(self.less);
    }
}

/// A place as tokens and the depth at which they are cut.
type Cut = (u32, Range<u32>);

fn cut(leave: &Leave, trie: &Trie) -> Cut {
    (leave.depth, leave.tokens(trie))
}

/// A set of a trie's tokens, which are added and asked for as ranges.
#[derive(Default)]
pub(super) struct TokenRanges {
    /// A bit for each token, in the trie's order, once there is one.
    words: Vec<u64>,
}

impl TokenRanges {
    /// Adds some of `num_tokens` tokens; whether all were there.
    pub(super) fn insert(&mut self, tokens: &Range<u32>, num_tokens: usize) -> bool {
        if self.words.is_empty() {
            self.words.resize(num_tokens.div_ceil(64), 0);
        }
        let mut had_all = true;
        for (at, bits) in words_of(tokens) {
            if let Some(word) = self.words.get_mut(at) {
                had_all &= *word & bits == bits;
                *word |= bits;
            }
        }
        had_all
    }

    /// Whether all of some tokens are there.
    pub(super) fn has_all(&self, tokens: &Range<u32>) -> bool {
        let has =
            |(at, bits): (usize, u64)| self.words.get(at).is_some_and(|word| word & bits == bits);
        words_of(tokens).all(has)
    }
}

/// The words that hold a range's bits, each with these.
fn words_of(tokens: &Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = *tokens;
    (start / 64..end.div_ceil(64)).map(move |at| {
        let first = start.saturating_sub(at * 64);
        let last = (end - at * 64).min(64);
        let below = |bit: u32| u64::MAX.checked_shr(64 - bit).unwrap_or_default();
        (at as usize, below(last) & !below(first))
    })
}

/// Sorts places and drops those whose tokens are all cut there at others, which lie above them.
fn each_once(leaves: &mut Vec<Leave>, trie: &Trie, fuel: &mut Fuel) -> Result<(), Stop> {
    fuel.burn(leaves.len() as u64 / 4)?;
    let keyed = leaves.iter().map(|leave| {
        let (depth, tokens) = cut(leave, trie);
        // A node with one child has the same tokens.
        ((depth, tokens.start, Reverse(tokens.end), leave.at), *leave)
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    leaves.clear();
    let mut last = (0, 0);
    for ((depth, _, Reverse(end), _), leave) in keyed {
        if (depth, end) > last {
            last = (depth, end);
            leaves.push(leave);
        }
    }
    Ok(())
}

/// Removes places whose tokens are all cut there at others, too; `others` are in no order.
fn remove(
    leaves: &mut Vec<Leave>,
    others: impl Iterator<Item = Leave>,
    trie: &Trie,
    fuel: &mut Fuel,
) -> Result<(), Stop> {
    let mut others: Vec<Leave> = others.collect();
    fuel.burn(leaves.len() as u64 / 4)?;
    each_once(&mut others, trie, fuel)?;
    let others: Vec<Cut> = others.iter().map(|other| cut(other, trie)).collect();
    leaves.retain(|leave| {
        let (depth, tokens) = cut(leave, trie);
        // Others lie apart, so only the last that begins no later may hold these.
        let at = others.partition_point(|other| (other.0, other.1.start) <= (depth, tokens.start));
        let before = at.checked_sub(1).and_then(|at| others.get(at));
        before.is_none_or(|before| before.0 != depth || before.1.end < tokens.end)
    });
    Ok(())
}

fn place(leave: &Leave) -> Rest {
    (leave.node, leave.depth)
}

/// The rests of a trie of rests.
fn rests_of(trie: &Trie) -> Vec<Rest> {
    let mut rests = Vec::with_capacity(trie.tokens().len());
    let mut pending = vec![(ROOT, 0)];
    while let Some((node, depth)) = pending.pop() {
        let ids = trie.ids(trie.own(node)).iter();
        rests.extend(ids.map(|&id| (id, depth)));
        pending.extend(trie.children(node).map(|child| (child, depth + 1)));
    }
    rests
}

impl TokenAutomaton {
    /// Rests at places in the trie of bytes, without ends at which many tokens leave; some may come twice.
    pub(super) fn some_rests_at(&mut self, leaves: Vec<Leave>) -> Arc<LanguageMask> {
        let index = Arc::clone(&self.index);
        let walked = Walked {
            leaves,
            ..Walked::default()
        };
        let places = Places::new(walked, |node| index.text_below(node));
        let (mask, num_bytes) = self.mask_of_rests(Rests::Places(places));
        self.grammars.memo.exit_rests.bytes += num_bytes;
        mask
    }

    /// The same, each once, and equal ones as they were.
    pub(super) fn rests_at(
        &mut self,
        mut leaves: Vec<Leave>,
        fuel: &mut Fuel,
    ) -> Result<Arc<LanguageMask>, Stop> {
        let index = Arc::clone(&self.index);
        each_once(&mut leaves, index.byte_trie(), fuel)?;
        let key: Box<[Rest]> = leaves.iter().map(place).collect();
        if let Some(known) = self.grammars.memo.exit_rests.places.get(&key) {
            return Ok(Arc::clone(known));
        }
        let mask = self.some_rests_at(leaves);
        let known = &mut self.grammars.memo.exit_rests;
        known.bytes += size_of_val(&*key);
        known.places.insert(key, Arc::clone(&mask));
        Ok(mask)
    }

    /// Rests of tokens: the last bytes of each.
    pub(super) fn rests_of_tokens(
        &mut self,
        mut rests: Vec<Rest>,
        fuel: &mut Fuel,
    ) -> Result<Arc<LanguageMask>, Stop> {
        fuel.burn(rests.len() as u64 / 4)?;
        rests.sort_unstable();
        rests.dedup();
        let key: Box<[Rest]> = rests.into();
        if let Some(known) = self.grammars.memo.exit_rests.tokens.get(&key) {
            return Ok(Arc::clone(known));
        }
        let index = Arc::clone(&self.index);
        let rests = key.iter().map(|&(id, num_bytes)| {
            let bytes = index.info().token_bytes(id);
            let from = bytes.len().saturating_sub(num_bytes as usize);
            (id, bytes.get(from..).unwrap_or_default())
        });
        let trie = Trie::of_bytes(rests);
        let (mask, num_bytes) = self.mask_of_rests(Rests::Trie(trie));
        let known = &mut self.grammars.memo.exit_rests;
        known.bytes += size_of_val(&*key) + num_bytes;
        known.tokens.insert(key, Arc::clone(&mask));
        Ok(mask)
    }

    fn mask_of_rests(&mut self, rests: Rests) -> (Arc<LanguageMask>, usize) {
        let mask = LanguageMask {
            tagged: Box::default(),
            number: self.grammars.memo.languages.next_number(),
            inside: Tokens::default(),
            rests,
        };
        let num_bytes = mask.memory_bytes();
        (Arc::new(mask), num_bytes)
    }

    /// Those of some rests that others don't have, ends at which many tokens leave apart; `None` where there
    /// are none.
    pub(super) fn rests_less(
        &mut self,
        rests: &Arc<LanguageMask>,
        others: &[Arc<LanguageMask>],
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LanguageMask>>, Stop> {
        if others.is_empty() {
            return Ok(Some(Arc::clone(rests)));
        }
        let numbers = std::iter::once(rests).chain(others);
        let numbers: Box<[u32]> = numbers.map(|mask| mask.number).collect();
        fuel.burn(1)?;
        if let Some(known) = self.grammars.memo.exit_rests.less.get(&numbers) {
            return Ok(known.clone());
        }
        let left = match &rests.rests {
            Rests::Places(places) => {
                let mut left = places.leaves.clone();
                let others = others.iter().filter_map(|other| match &other.rests {
                    Rests::Places(other) => Some(other.leaves.iter().copied()),
                    Rests::Trie(_) => None,
                });
                let index = Arc::clone(&self.index);
                remove(&mut left, others.flatten(), index.byte_trie(), fuel)?;
                match left.len() {
                    0 => None,
                    len if len == places.leaves.len() => Some(Arc::clone(rests)),
                    _ => Some(self.rests_at(left, fuel)?),
                }
            }
            Rests::Trie(trie) => {
                let mut left = rests_of(trie);
                let num_rests = left.len();
                let others = others.iter().filter_map(|other| match &other.rests {
                    Rests::Trie(other) => Some(rests_of(other)),
                    Rests::Places(_) => None,
                });
                let others: HashSet<Rest> = others.flatten().collect();
                fuel.burn((num_rests + others.len()) as u64 / 4)?;
                left.retain(|rest| !others.contains(rest));
                match left.len() {
                    0 => None,
                    len if len == num_rests => Some(Arc::clone(rests)),
                    _ => Some(self.rests_of_tokens(left, fuel)?),
                }
            }
        };
        let known = &mut self.grammars.memo.exit_rests;
        known.bytes += size_of_val(&*numbers);
        known.less.insert(numbers, left.clone());
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_tokens_are_sets() {
        let num_tokens = 300;
        for (start, end) in [(0, 1), (3, 64), (63, 65), (64, 128), (1, 300), (130, 131)] {
            let mut ranges = TokenRanges::default();
            assert!(!ranges.has_all(&(start..end)));
            assert!(!ranges.insert(&(start..end), num_tokens));
            assert!(ranges.insert(&(start..end), num_tokens));
            for from in 0..num_tokens as u32 {
                for length in [1, 2, 63, 70] {
                    let to = (from + length).min(num_tokens as u32);
                    let is_within = start <= from && to <= end;
                    assert_eq!(ranges.has_all(&(from..to)), is_within, "{from} {to}");
                }
            }
        }
    }
}
