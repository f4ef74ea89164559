//! Sets of keys that an object has already.
//!
//! A set is a trie over the keys' characters whose nodes are interned: equal sets are one number,
//! and a set with one more key makes anew only the nodes on the way to it. The language of a set's
//! spellings is put together along the same nodes, each once. So the n-th key of an object costs
//! its length and how many keys branch off on the way, not n.

use hashbrown::HashMap;

use super::programs::Interner;
use crate::held::with_room;
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// A set of keys that an object has already, beside those that its plan names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct SeenId(u32);

/// No key seen.
pub(super) const NOTHING_SEEN: SeenId = SeenId(0);

/// What may follow a beginning that keys share.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Branch {
    /// Whether a key ends here.
    ends: bool,
    /// By the next character, ascending.
    next: Box<[(char, u32)]>,
}

/// All sets of a generation.
pub(super) struct SeenKeys {
    branches: Interner<Branch>,
    /// By node, and whether in every spelling: what follows the beginning, closing quote included.
    spellings: HashMap<(u32, bool), ExprId>,
}

impl Default for SeenKeys {
    fn default() -> Self {
        let mut branches = Interner::default();
        branches.intern(Branch::default(), 0);
        Self {
            branches,
            spellings: HashMap::new(),
        }
    }
}

impl SeenKeys {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.branches.bytes()
            + with_room(self.spellings.len() * (size_of::<((u32, bool), ExprId)>() + 1))
    }

    /// Whether a key is in a set.
    pub(super) fn has(&self, seen: SeenId, key: &str) -> bool {
        let mut at = seen.0;
        for char in key.chars() {
            let next = &self.branches.get(at).next;
            match next.binary_search_by_key(&char, |&(char, _)| char) {
                Ok(index) => at = next[index].1,
                Err(_) => return false,
            }
        }
        self.branches.get(at).ends
    }

    /// A set with one more key.
    pub(super) fn with(&mut self, seen: SeenId, key: &str) -> SeenId {
        let mut way = Vec::new();
        let mut at = seen.0;
        for char in key.chars() {
            let next = &self.branches.get(at).next;
            let found = next.binary_search_by_key(&char, |&(char, _)| char);
            way.push((at, char, found));
            at = found.map_or(NOTHING_SEEN.0, |index| next[index].1);
        }
        let mut last = self.branches.get(at).clone();
        last.ends = true;
        let mut made = self.intern(last);
        for (at, char, found) in way.into_iter().rev() {
            let mut branch = self.branches.get(at).clone();
            match found {
                Ok(index) => branch.next[index].1 = made,
                Err(index) => {
                    let mut next = branch.next.into_vec();
                    next.insert(index, (char, made));
                    branch.next = next.into();
                }
            }
            made = self.intern(branch);
        }
        SeenId(made)
    }

    fn intern(&mut self, branch: Branch) -> u32 {
        let bytes = size_of_val(&*branch.next);
        self.branches.intern(branch, bytes).0
    }

    /// The spellings of a set's keys, quotes included; with `all`, every spelling.
    ///
    /// # Errors
    /// Out of fuel: one for each node and character whose language was not made before.
    pub(super) fn language(
        &mut self,
        lexicon: &mut Lexicon,
        seen: SeenId,
        all: bool,
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        let quote = lexicon.byte(b'"');
        let mut open = vec![seen.0];
        while let Some(&at) = open.last() {
            if self.spellings.contains_key(&(at, all)) {
                open.pop();
                continue;
            }
            let branch = self.branches.get(at);
            fuel.burn(1 + branch.next.len() as u64)?;
            let depth = open.len();
            let mut ways = Vec::with_capacity(branch.next.len() + 1);
            if branch.ends {
                ways.push(quote);
            }
            for &(char, next) in &branch.next {
                match self.spellings.get(&(next, all)) {
                    Some(&rest) => ways.push(lexicon.json_char_then(char, rest, all)),
                    None => open.push(next),
                }
            }
            if open.len() == depth {
                let language = lexicon.or(&ways);
                self.spellings.insert((at, all), language);
                open.pop();
            }
        }
        let rest = self.spellings[&(seen.0, all)];
        Ok(lexicon.concat(quote, rest))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::testing::accepts;
    use super::*;

    fn set_of<'a>(seen: &mut SeenKeys, keys: impl IntoIterator<Item = &'a String>) -> SeenId {
        let add = |set, key: &String| seen.with(set, key);
        keys.into_iter().fold(NOTHING_SEEN, add)
    }

    proptest! {
        #[test]
        fn a_set_holds_its_keys_in_any_order_and_no_others(
            keys in prop::collection::vec("[ab\"é\u{1}\u{1f600}]{0,3}", 1..8),
            others in prop::collection::vec("[ab\"é\u{1}\u{1f600}]{0,3}", 1..8),
        ) {
            let mut lexicon = Lexicon::new(Vec::new(), 8);
            let mut seen = SeenKeys::default();
            let set = set_of(&mut seen, &keys);
            prop_assert_eq!(set_of(&mut seen, keys.iter().rev()), set);
            prop_assert_eq!(set_of(&mut seen, keys.iter().chain(&keys)), set);
            let distinct: BTreeSet<&String> = keys.iter().collect();
            for all in [false, true] {
                let mut fuel = Fuel::new(100_000);
                let language = seen.language(&mut lexicon, set, all, &mut fuel).unwrap();
                for key in keys.iter().chain(&others) {
                    let plain = serde_json::to_string(key).unwrap();
                    let units: String =
                        key.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
                    let escaped = format!("\"{units}\"");
                    let is_seen = distinct.contains(key);
                    prop_assert_eq!(accepts(&mut lexicon, language, plain.as_bytes()), is_seen);
                    let is_spelled = is_seen && (all || key.chars().all(|char| char == '\u{1}'));
                    prop_assert_eq!(accepts(&mut lexicon, language, escaped.as_bytes()), is_spelled);
                }
            }
        }
    }

    #[test]
    fn the_last_key_of_many_costs_no_more_than_the_first() {
        let mut lexicon = Lexicon::new(Vec::new(), 8);
        let mut seen = SeenKeys::default();
        let mut set = NOTHING_SEEN;
        let mut costs = Vec::new();
        for number in 0..20_000_u32 {
            let bytes = seen.memory_bytes() + lexicon.memory_bytes();
            let mut fuel = Fuel::new(1_000_000);
            set = seen.with(
                set,
                &format!("key {:05}", number.wrapping_mul(7919) % 100_000),
            );
            seen.language(&mut lexicon, set, false, &mut fuel).unwrap();
            let bytes = seen.memory_bytes() + lexicon.memory_bytes() - bytes;
            costs.push((1_000_000 - fuel.left(), bytes));
        }
        // Nine characters, of which each node has at most ten to go on with.
        assert!(costs.iter().all(|&(steps, _)| steps < 120));
        // Tables grow by doubling, so bytes are compared over many keys.
        let bytes = |from: usize| {
            costs[from..from + 5000]
                .iter()
                .map(|cost| cost.1)
                .sum::<usize>()
        };
        assert!(
            bytes(15_000) < 2 * bytes(0).max(5000 * 2000),
            "{}",
            bytes(15_000)
        );
    }
}
