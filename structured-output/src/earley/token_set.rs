//! Sets of tokens that grammars name.

use hashbrown::HashMap;

use super::program::TokenSetId;

/// A set of tokens as runs of ids, ascending, with gaps between them: small where it is few tokens,
/// and where it is all but a few.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TokenRuns(Box<[(u32, u32)]>);

impl TokenRuns {
    /// From runs in any order that may overlap; first and last ids.
    pub(crate) fn new(mut runs: Vec<(u32, u32)>) -> Self {
        runs.retain(|run| run.0 <= run.1);
        runs.sort_unstable();
        runs.dedup_by(|next, kept| {
            let meets = next.0 <= kept.1.saturating_add(1);
            if meets {
                kept.1 = kept.1.max(next.1);
            }
            meets
        });
        Self(runs.into())
    }

    /// The runs of ids that satisfy a condition.
    pub(crate) fn of_ids(ids: impl Iterator<Item = u32>) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for id in ids {
            match runs.last_mut() {
                Some(run) if run.1.checked_add(1) == Some(id) => run.1 = id,
                _ => runs.push((id, id)),
            }
        }
        Self(runs.into())
    }

    /// The tokens that are not in another set.
    pub(crate) fn less(&self, other: &Self) -> Self {
        let mut left = Vec::with_capacity(self.0.len() + other.0.len());
        let mut others = other.0.iter().copied().peekable();
        for &(mut first, last) in &self.0 {
            while let Some(&(from, to)) = others.peek().filter(|run| run.0 <= last) {
                if to >= first {
                    if from > first {
                        left.push((first, from - 1));
                    }
                    first = to.saturating_add(1);
                }
                if to > last {
                    break;
                }
                others.next();
            }
            if first <= last {
                left.push((first, last));
            }
        }
        Self(left.into())
    }

    /// First and last ids, ascending.
    pub(crate) fn runs(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// Whether a token is in it.
    pub(crate) fn contains(&self, id: u32) -> bool {
        let after = self.0.partition_point(|run| run.0 <= id);
        after.checked_sub(1).is_some_and(|at| id <= self.0[at].1)
    }

    /// Sets the bits of its tokens.
    pub(crate) fn add_to(&self, words: &mut [u32]) {
        for &(first, last) in &self.0 {
            let (from, to) = (first as usize / 32, last as usize / 32);
            let (low, high) = (u32::MAX << (first % 32), u32::MAX >> (31 - last % 32));
            match words.get_mut(from..=to) {
                Some([only]) => *only |= low & high,
                Some([from, between @ .., to]) => {
                    *from |= low;
                    between.fill(u32::MAX);
                    *to |= high;
                }
                _ => {}
            }
        }
    }

    /// Steps that it takes to go through it: about 64 words of bits are one.
    pub(crate) fn num_steps(&self) -> u64 {
        let span = |&(first, last): &(u32, u32)| 1 + u64::from((last - first) / (64 * 32));
        1 + self.0.iter().map(span).sum::<u64>()
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0) + size_of::<Self>()
    }
}

/// The sets of all grammars of a generation, each once.
#[derive(Default)]
pub(super) struct TokenSets {
    sets: Vec<TokenRuns>,
    ids: HashMap<TokenRuns, TokenSetId>,
    bytes: usize,
}

impl TokenSets {
    /// The number of a set.
    pub(super) fn add(&mut self, set: TokenRuns) -> TokenSetId {
        let next = TokenSetId(self.sets.len() as u32);
        let (sets, bytes) = (&mut self.sets, &mut self.bytes);
        *self.ids.entry(set).or_insert_with_key(|set| {
            // Both tables hold it.
            *bytes += 2 * set.memory_bytes() + size_of::<TokenSetId>() + 1;
            sets.push(set.clone());
            next
        })
    }

    /// The set with a number.
    pub(super) fn get(&self, id: TokenSetId) -> &TokenRuns {
        &self.sets[id.0 as usize]
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ids(set: &TokenRuns) -> BTreeSet<u32> {
        let runs = set.runs().iter();
        runs.flat_map(|&(first, last)| first..=last).collect()
    }

    proptest! {
        #[test]
        fn runs_are_sets(
            some in prop::collection::vec((0_u32..200, 0_u32..40), 0..8),
            others in prop::collection::vec((0_u32..200, 0_u32..40), 0..8),
        ) {
            let runs = |list: &[(u32, u32)]| -> Vec<(u32, u32)> {
                list.iter().map(|&(first, more)| (first, first + more)).collect()
            };
            let expected = |list: &[(u32, u32)]| -> BTreeSet<u32> {
                runs(list).into_iter().flat_map(|(first, last)| first..=last).collect()
            };
            let (a, b) = (TokenRuns::new(runs(&some)), TokenRuns::new(runs(&others)));
            let (all_a, all_b) = (expected(&some), expected(&others));
            prop_assert_eq!(ids(&a), all_a.clone());
            prop_assert_eq!(&TokenRuns::of_ids(all_a.iter().copied()), &a);
            let left: BTreeSet<u32> = all_a.difference(&all_b).copied().collect();
            prop_assert_eq!(ids(&a.less(&b)), left);
            prop_assert!((0..300).all(|id| a.contains(id) == all_a.contains(&id)));
            let mut words = vec![0_u32; 8];
            a.add_to(&mut words);
            let bits = (0..256).filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1);
            prop_assert_eq!(bits.collect::<BTreeSet<u32>>(), all_a);
        }
    }
}
