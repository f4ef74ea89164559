//! Token masks: shared, immutable, each distinct set of tokens once.
//!
//! | file | idea |
//! |---|---|
//! | `store` | masks by what they are made of |
//! | `walk` | an automaton through a trie of tokens |
//! | `beside` | two states through it side by side |
//! | `ended_texts` | along finitely many texts |
//! | `table` | the states that a walk meets |

pub(crate) mod beside;
pub(crate) mod ended_texts;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod walk;

use std::sync::Arc;

use crate::bitmask::BITS_PER_WORD;

/// Masks with at most this many tokens are lists of ids.
pub(crate) const MAX_SPARSE: usize = 64;

/// A set of tokens: dense words, or a list where there are few.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mask {
    /// One bit per id, `ceil(vocab_size / 32)` words, with the number of bits set.
    Dense { words: Box<[u32]>, count: u32 },
    /// Ascending ids, at most [`MAX_SPARSE`].
    Sparse(Box<[u32]>),
}

impl Mask {
    /// A mask from its words, which `count` bits are set in.
    pub(crate) fn from_words(words: Vec<u32>, count: usize) -> Self {
        if count > MAX_SPARSE {
            return Self::Dense {
                words: words.into_boxed_slice(),
                count: count as u32,
            };
        }
        Self::Sparse(ids_of(&words).collect())
    }

    /// A mask from at most [`MAX_SPARSE`] ids in any order.
    pub(crate) fn from_ids(mut ids: Vec<u32>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        Self::Sparse(ids.into_boxed_slice())
    }

    /// Sets the mask's bits in some words.
    pub(crate) fn add_to(&self, words: &mut [u32]) {
        match self {
            Self::Dense { words: own, .. } => {
                for (word, own) in words.iter_mut().zip(own) {
                    *word |= own;
                }
            }
            Self::Sparse(ids) => set_bits(words, ids),
        }
    }

    /// Whether a token is in it.
    pub(crate) fn is_allowed(&self, id: u32) -> bool {
        match self {
            Self::Dense { words, .. } => words
                .get(id as usize / BITS_PER_WORD)
                .is_some_and(|word| word >> (id % 32) & 1 == 1),
            Self::Sparse(ids) => ids.binary_search(&id).is_ok(),
        }
    }

    /// How many tokens are in it.
    pub(crate) fn num_allowed(&self) -> usize {
        match self {
            Self::Dense { count, .. } => *count as usize,
            Self::Sparse(ids) => ids.len(),
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let (Self::Dense { words, .. } | Self::Sparse(words)) = self;
        size_of_val(&**words) + size_of::<Self>() + 2 * size_of::<usize>()
    }
}

/// Sets the bits of some ids.
pub(crate) fn set_bits(words: &mut [u32], ids: &[u32]) {
    for &id in ids {
        if let Some(word) = words.get_mut(id as usize / BITS_PER_WORD) {
            *word |= 1 << (id % 32);
        }
    }
}

/// Clears the bits of some ids.
pub(crate) fn clear_bits(words: &mut [u32], ids: &[u32]) {
    for &id in ids {
        if let Some(word) = words.get_mut(id as usize / BITS_PER_WORD) {
            *word &= !(1 << (id % 32));
        }
    }
}

/// The ids of the bits that are set, ascending.
pub(crate) fn ids_of(words: &[u32]) -> impl Iterator<Item = u32> {
    words.iter().zip(0_u32..).flat_map(|(&word, index)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(index * BITS_PER_WORD as u32 + bit)
        })
    })
}

/// The tokens that may come next, shared with the engine and with every other request in the same
/// state: cloning and dropping one costs an atomic operation, and equal masks are one allocation
/// for as long as the engine keeps them.
#[derive(Debug, Clone)]
pub struct MaskRef {
    mask: Arc<Mask>,
}

/// What a [`MaskRef`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskView<'a> {
    /// One bit per token id, `ceil(vocab_size / 32)` words: token `t` is bit `t % 32` of word
    /// `t / 32`.
    Dense(&'a [u32]),
    /// All allowed ids, ascending, at most 64.
    Sparse(&'a [u32]),
}

impl MaskRef {
    pub(crate) fn new(mask: Arc<Mask>) -> Self {
        Self { mask }
    }

    /// The mask's words or ids, without a copy.
    pub fn view(&self) -> MaskView<'_> {
        match &*self.mask {
            Mask::Dense { words, .. } => MaskView::Dense(words),
            Mask::Sparse(ids) => MaskView::Sparse(ids),
        }
    }

    /// Whether a token is allowed.
    pub fn is_allowed(&self, token_id: u32) -> bool {
        self.mask.is_allowed(token_id)
    }

    /// How many tokens are allowed.
    pub fn num_allowed(&self) -> usize {
        self.mask.num_allowed()
    }

    /// The one token that is allowed, where it is only one.
    pub fn forced_token(&self) -> Option<u32> {
        match self.view() {
            MaskView::Sparse(&[token_id]) => Some(token_id),
            _ => None,
        }
    }

    /// The allowed ids, ascending.
    pub fn token_ids(&self) -> Vec<u32> {
        match self.view() {
            MaskView::Dense(words) => ids_of(words).collect(),
            MaskView::Sparse(ids) => ids.to_vec(),
        }
    }

    /// Whether both are the same allocation, which implies equality and costs nothing.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mask, &other.mask)
    }

    /// Writes the mask as a bitmask row. Words that the row has beyond the mask become 0; ids that
    /// it has no word for are left out.
    pub fn write_to(&self, row: &mut [u32]) {
        match self.view() {
            MaskView::Dense(words) => {
                let shared = words.len().min(row.len());
                let (inside, beyond) = row.split_at_mut(shared);
                inside.copy_from_slice(&words[..shared]);
                beyond.fill(0);
            }
            MaskView::Sparse(ids) => {
                row.fill(0);
                for &id in ids {
                    if let Some(word) = row.get_mut(id as usize / BITS_PER_WORD) {
                        *word |= 1 << (id % 32);
                    }
                }
            }
        }
    }
}

impl PartialEq for MaskRef {
    /// Equal as sets of tokens.
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.mask == other.mask
    }
}

impl Eq for MaskRef {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_forms_hold_the_same_set(ids in prop::collection::btree_set(0_u32..300, 0..150)) {
            let mut words = vec![0_u32; 10];
            for id in &ids {
                words[*id as usize / 32] |= 1 << (id % 32);
            }
            let mask = MaskRef::new(Arc::new(Mask::from_words(words.clone(), ids.len())));
            let is_sparse = matches!(mask.view(), MaskView::Sparse(_));
            prop_assert_eq!(is_sparse, ids.len() <= MAX_SPARSE);
            prop_assert_eq!(mask.num_allowed(), ids.len());
            prop_assert_eq!(mask.token_ids().into_iter().collect::<BTreeSet<_>>(), ids.clone());
            prop_assert!((0..400).all(|id| mask.is_allowed(id) == ids.contains(&id)));
            let only = ids.first().copied().filter(|_| ids.len() == 1);
            prop_assert_eq!(mask.forced_token(), only);

            let mut row = vec![u32::MAX; 12];
            mask.write_to(&mut row);
            prop_assert_eq!(&row[..10], &words[..]);
            prop_assert_eq!(&row[10..], &[0, 0]);
            let mut short = vec![u32::MAX; 3];
            mask.write_to(&mut short);
            prop_assert_eq!(&short[..], &words[..3]);
            if is_sparse {
                let listed = Mask::from_ids(ids.iter().rev().copied().collect());
                prop_assert_eq!(MaskRef::new(Arc::new(listed)), mask);
            }
        }
    }
}
