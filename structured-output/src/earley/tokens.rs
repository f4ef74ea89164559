//! Sets of tokens that are added to others, and how they are put together.

use crate::bitmask::BITS_PER_WORD;
use crate::mask::{clear_bits, count_bits, listed, set_bits};

/// A set of tokens that is added to others. Unlike a mask it isn't counted, nor kept once only.
#[derive(Debug)]
pub(crate) enum Tokens {
    Ids(Box<[u32]>),
    /// A bit per id.
    Words(Box<[u32]>),
}

impl Default for Tokens {
    fn default() -> Self {
        Self::Ids(Box::default())
    }
}

impl Tokens {
    /// Up to so many tokens are listed.
    pub(crate) const MAX_LISTED: usize = 1024;

    /// The tokens whose bits are set.
    pub(crate) fn from_words(words: Vec<u32>) -> Self {
        // Each bit that is looked for costs more than many that are counted.
        let count = count_bits(&words);
        if count > Self::MAX_LISTED {
            return Self::Words(words.into());
        }
        Self::Ids(listed(&words, count).into())
    }

    /// Sets the tokens' bits.
    pub(crate) fn add_to(&self, words: &mut [u32]) {
        match self {
            Self::Ids(ids) => set_bits(words, ids),
            Self::Words(own) => {
                for (word, own) in words.iter_mut().zip(own) {
                    *word |= own;
                }
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let (Self::Ids(numbers) | Self::Words(numbers)) = self;
        size_of_val(&**numbers)
    }
}

/// A set of tokens that is being put together. Most are few, and to set their bits and look for them again
/// takes longer than to list them.
pub(crate) struct TokenUnion {
    /// In any order, some more than once, as long as they are few.
    listed: Vec<u32>,
    /// A bit per id once they were more; empty before that.
    words: Vec<u32>,
    num_words: usize,
    /// Whether they are too many to be listed again.
    is_large: bool,
}

impl TokenUnion {
    /// Nothing yet, of tokens with so many words of bits.
    pub(crate) fn new(num_words: usize) -> Self {
        Self {
            listed: Vec::new(),
            words: Vec::new(),
            num_words,
            is_large: false,
        }
    }

    /// Begins with bits.
    pub(crate) fn of_words(words: Vec<u32>) -> Self {
        Self {
            listed: Vec::new(),
            num_words: words.len(),
            words,
            is_large: false,
        }
    }

    /// A bit per id.
    pub(crate) fn words(&mut self) -> &mut [u32] {
        if self.words.is_empty() {
            self.words.resize(self.num_words, 0);
            set_bits(&mut self.words, &self.listed);
            self.listed.clear();
        }
        &mut self.words
    }

    /// Adds some tokens.
    pub(crate) fn add_ids(&mut self, ids: &[u32]) {
        if self.words.is_empty() && self.listed.len() + ids.len() <= Tokens::MAX_LISTED {
            if self.listed.capacity() == 0 && !ids.is_empty() {
                self.listed.reserve_exact(Tokens::MAX_LISTED);
            }
            self.listed.extend_from_slice(ids);
            return;
        }
        set_bits(self.words(), ids);
    }

    /// Adds a set.
    pub(crate) fn add(&mut self, tokens: &Tokens) {
        match tokens {
            Tokens::Ids(ids) => self.add_ids(ids),
            Tokens::Words(words) => {
                self.is_large = true;
                if self.words.is_empty() {
                    self.words.extend_from_slice(words);
                    set_bits(&mut self.words, &self.listed);
                    self.listed.clear();
                } else {
                    tokens.add_to(&mut self.words);
                }
            }
        }
    }

    /// Of some tokens those that are not in it: what is added to it of them is taken out again by
    /// [`TokenUnion::remove`].
    pub(crate) fn unset_of(&mut self, ids: &[u32]) -> Vec<u32> {
        let words = self.words();
        let is_set = |id: u32| {
            let word = words.get(id as usize / BITS_PER_WORD);
            word.is_some_and(|word| word >> (id % 32) & 1 == 1)
        };
        ids.iter().copied().filter(|&id| !is_set(id)).collect()
    }

    /// Takes some tokens out.
    pub(crate) fn remove(&mut self, ids: &[u32]) {
        self.is_large = false;
        clear_bits(self.words(), ids);
    }

    /// Takes a set out.
    pub(crate) fn subtract(&mut self, tokens: &Tokens) {
        match tokens {
            Tokens::Ids(ids) => self.remove(ids),
            Tokens::Words(others) => {
                self.is_large = false;
                for (word, other) in self.words().iter_mut().zip(others) {
                    *word &= !other;
                }
            }
        }
    }

    /// A bit per id of all that was added.
    pub(crate) fn into_words(mut self) -> Vec<u32> {
        self.words();
        self.words
    }

    /// All that was added.
    pub(crate) fn finish(self) -> Tokens {
        match self.words.is_empty() {
            true => Tokens::Ids(self.listed.into()),
            false if self.is_large => Tokens::Words(self.words.into()),
            false => Tokens::from_words(self.words),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::mask::ids_of;

    /// More ids than are listed.
    const NUM_IDS: u32 = 4000;

    fn set_of(tokens: &Tokens) -> BTreeSet<u32> {
        let mut words = vec![0; NUM_IDS.div_ceil(32) as usize];
        tokens.add_to(&mut words);
        ids_of(&words).collect()
    }

    fn ids() -> impl Strategy<Value = Vec<u32>> {
        let some = prop::collection::vec(0..NUM_IDS, 0..50);
        let many = (0..NUM_IDS / 2, 0..NUM_IDS / 2);
        prop_oneof![4 => some, 1 => many.prop_map(|(first, more)| (first..first + more).collect())]
    }

    proptest! {
        #[test]
        fn a_union_holds_what_was_added(
            steps in prop::collection::vec((0_u32..4, ids()), 0..8),
            begins_with_words in any::<bool>(),
        ) {
            let num_words = NUM_IDS.div_ceil(32) as usize;
            let mut union = match begins_with_words {
                true => TokenUnion::of_words(vec![0; num_words]),
                false => TokenUnion::new(num_words),
            };
            let mut expected = BTreeSet::new();
            for (kind, ids) in steps {
                match kind {
                    0 => union.add_ids(&ids),
                    1 => {
                        let mut words = vec![0; num_words];
                        set_bits(&mut words, &ids);
                        let tokens = Tokens::from_words(words);
                        let set: BTreeSet<u32> = ids.iter().copied().collect();
                        prop_assert_eq!(set_of(&tokens), set.clone());
                        let is_listed = matches!(tokens, Tokens::Ids(_));
                        prop_assert_eq!(is_listed, set.len() <= Tokens::MAX_LISTED);
                        union.add(&tokens);
                    }
                    2 => {
                        let unset: Vec<u32> =
                            ids.iter().copied().filter(|id| !expected.contains(id)).collect();
                        prop_assert_eq!(union.unset_of(&ids), unset);
                        continue;
                    }
                    _ => {
                        union.remove(&ids);
                        expected.retain(|id| !ids.contains(id));
                        continue;
                    }
                }
                expected.extend(ids);
            }
            prop_assert_eq!(set_of(&union.finish()), expected);
        }
    }
}
