//! A set of bytes, 256 bits wide.

/// A set of bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    /// No byte.
    pub(crate) const EMPTY: Self = Self([0; 4]);
    /// All 256 bytes.
    pub(crate) const FULL: Self = Self([u64::MAX; 4]);

    /// The bytes `low..=high`; empty where `low > high`.
    pub(crate) fn range(low: u8, high: u8) -> Self {
        (low..=high).collect()
    }

    /// One byte.
    pub(crate) fn single(byte: u8) -> Self {
        Self::range(byte, byte)
    }

    /// Adds a byte.
    pub(crate) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    /// Whether a byte is in the set.
    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    /// How many bytes of the set are below one of its bytes; `None` where that isn't in it.
    pub(crate) fn rank(&self, byte: u8) -> Option<usize> {
        let word = usize::from(byte >> 6);
        let below = self.0[word] & !(u64::MAX << (byte & 63));
        let before = self.0[..word].iter().map(|word| word.count_ones() as usize);
        self.contains(byte)
            .then(|| before.sum::<usize>() + below.count_ones() as usize)
    }

    /// Bytes in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Bytes in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// All other bytes.
    pub(crate) fn complement(&self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Whether there is no byte in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// How many bytes are in it.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The least byte in it.
    pub(crate) fn first(&self) -> Option<u8> {
        let mut words = (0..4_u8).zip(self.0);
        let (index, word) = words.find(|(_, word)| *word != 0)?;
        Some(index * 64 + word.trailing_zeros() as u8)
    }

    /// The only byte in it; `None` where there are more or none.
    pub(crate) fn sole(&self) -> Option<u8> {
        let mut words = (0..4_u8).zip(self.0).filter(|(_, word)| *word != 0);
        let (index, word) = words.next()?;
        let is_sole = word.is_power_of_two() && words.next().is_none();
        is_sole.then(|| index * 64 + word.trailing_zeros() as u8)
    }

    /// The bytes in it, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let words = self.0;
        (0..4_u8).flat_map(move |index| {
            let mut word = words[usize::from(index)];
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as u8)?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

impl FromIterator<u8> for ByteSet {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        let mut set = Self::EMPTY;
        for byte in bytes {
            set.insert(byte);
        }
        set
    }
}

impl std::fmt::Debug for ByteSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|byte| byte.escape_ascii().to_string()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_tree_set(
            a in prop::collection::btree_set(any::<u8>(), 0..256),
            b in prop::collection::btree_set(any::<u8>(), 0..256),
        ) {
            let set: ByteSet = a.iter().copied().collect();
            let other: ByteSet = b.iter().copied().collect();
            let bytes = |set: ByteSet| set.iter().collect::<Vec<u8>>();
            prop_assert_eq!(set.len(), a.len());
            let sole = |set: &BTreeSet<u8>| set.first().copied().filter(|_| set.len() == 1);
            prop_assert_eq!(set.sole(), sole(&a));
            prop_assert_eq!(set.first(), a.first().copied());
            let first: BTreeSet<u8> = a.first().copied().into_iter().collect();
            let one: ByteSet = first.iter().copied().collect();
            prop_assert_eq!(one.sole(), sole(&first));
            prop_assert_eq!(set.is_empty(), a.is_empty());
            prop_assert_eq!(bytes(set), a.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(bytes(set.union(&other)), a.union(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(
                bytes(set.intersection(&other)),
                a.intersection(&b).copied().collect::<Vec<_>>()
            );
            let all: BTreeSet<u8> = (0..=255).collect();
            prop_assert_eq!(
                bytes(set.complement()),
                all.difference(&a).copied().collect::<Vec<_>>()
            );
            prop_assert!((0..=255).all(|byte| set.contains(byte) == a.contains(&byte)));
            let ranks: Vec<usize> = a.iter().filter_map(|&byte| set.rank(byte)).collect();
            prop_assert_eq!(ranks, (0..a.len()).collect::<Vec<_>>());
            prop_assert!((0..=255).all(|byte| set.rank(byte).is_some() == a.contains(&byte)));
        }

        #[test]
        fn a_range_has_its_bytes(low: u8, high: u8) {
            prop_assert_eq!(
                ByteSet::range(low, high).iter().collect::<Vec<_>>(),
                (low..=high).collect::<Vec<_>>()
            );
        }
    }
}
