//! Token masks: shared, immutable, each distinct set of tokens once.
//!
//! | file | idea |
//! |---|---|
//! | `store` | masks by what they are made of |
//! | `walk` | an automaton through a trie of tokens |
//! | `beside` | two states through it side by side |
//! | `ended_texts` | along finitely many texts |
//! | `forgotten` | what is forgotten, dropped some entries at a time |
//! | `table` | the states that a walk meets |

pub(crate) mod beside;
pub(crate) mod ended_texts;
mod forgotten;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod walk;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::bitmask::BITS_PER_WORD;
pub(crate) use forgotten::Forgotten;

/// Masks with at most this many tokens are lists of ids.
pub(crate) const MAX_SPARSE: usize = 64;

/// A set of tokens: dense words, or a list where there are few.
#[derive(Debug)]
pub(crate) enum Mask {
    /// One bit per id, `ceil(vocab_size / 32)` words, with the number of bits set once that was asked
    /// for, and a number that no other mask of the process has or will have.
    Dense {
        words: Box<[u32]>,
        count: OnceLock<u32>,
        number: u64,
    },
    /// Ascending ids, at most [`MAX_SPARSE`].
    Sparse(Box<[u32]>),
}

impl Mask {
    /// A mask from its words, which `count` bits are set in.
    pub(crate) fn from_words(words: Vec<u32>, count: usize) -> Self {
        if count > MAX_SPARSE {
            return Self::dense(words, OnceLock::from(count as u32));
        }
        Self::Sparse(listed(&words, MAX_SPARSE).into())
    }

    /// A mask from its words, whose bits are not counted before that is asked for.
    pub(crate) fn from_uncounted(words: Vec<u32>) -> Self {
        let mut count = 0;
        let is_large = words.chunks(CHUNK).any(|chunk| {
            if any_is_set(chunk) {
                count += chunk
                    .iter()
                    .map(|word| word.count_ones() as usize)
                    .sum::<usize>();
            }
            count > MAX_SPARSE
        });
        match is_large {
            true => Self::dense(words, OnceLock::new()),
            false => Self::Sparse(listed(&words, MAX_SPARSE).into()),
        }
    }

    fn dense(words: Vec<u32>, count: OnceLock<u32>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::Dense {
            words: words.into_boxed_slice(),
            count,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
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
            Self::Dense { words, count, .. } => {
                *count.get_or_init(|| count_bits(words) as u32) as usize
            }
            Self::Sparse(ids) => ids.len(),
        }
    }

    /// Whether any token is not in it, of so many.
    pub(crate) fn leaves_any_out(&self, vocab_size: usize) -> bool {
        match self {
            Self::Dense { words, count, .. } if count.get().is_none() => {
                let (whole, part) = (vocab_size / BITS_PER_WORD, vocab_size % BITS_PER_WORD);
                let last = words.get(whole).copied().unwrap_or_default();
                words.len() < whole
                    || words.iter().take(whole).any(|&word| word != u32::MAX)
                    || last.trailing_ones() < part as u32
            }
            _ => self.num_allowed() < vocab_size,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let (Self::Dense { words, .. } | Self::Sparse(words)) = self;
        size_of_val(&**words) + size_of::<Self>() + 2 * size_of::<usize>()
    }
}

impl PartialEq for Mask {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dense { words: own, .. }, Self::Dense { words: other, .. })
            | (Self::Sparse(own), Self::Sparse(other)) => own == other,
            _ => false,
        }
    }
}

impl Eq for Mask {}

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

/// How many bits are set. Eight vectors of words are added up bit by bit before any is counted, since that
/// takes an instruction of few processors.
pub(crate) fn count_bits(words: &[u32]) -> usize {
    const LANES: usize = 8;
    /// Sums, and carries.
    fn add(a: &mut [u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> [u32; LANES] {
        std::array::from_fn(|lane| {
            let both = a[lane] ^ b[lane];
            let carry = (a[lane] & b[lane]) | (both & c[lane]);
            a[lane] = both ^ c[lane];
            carry
        })
    }
    fn count(words: &[u32]) -> usize {
        words.iter().map(|word| word.count_ones() as usize).sum()
    }
    let (vectors, _) = words.as_chunks::<LANES>();
    let (groups, _) = vectors.as_chunks::<8>();
    let (mut ones, mut twos, mut fours) = ([0; LANES], [0; LANES], [0; LANES]);
    let mut eights = 0;
    for [a, b, c, d, e, f, g, h] in groups {
        let two = add(&mut ones, a, b);
        let two_more = add(&mut ones, c, d);
        let four = add(&mut twos, &two, &two_more);
        let two = add(&mut ones, e, f);
        let two_more = add(&mut ones, g, h);
        let four_more = add(&mut twos, &two, &two_more);
        eights += count(&add(&mut fours, &four, &four_more));
    }
    let counted = groups.len() * 8 * LANES;
    8 * eights + 4 * count(&fours) + 2 * count(&twos) + count(&ones) + count(&words[counted..])
}

/// So many words are looked at at once where mostly nothing is set.
const CHUNK: usize = 16;

fn any_is_set(chunk: &[u32]) -> bool {
    chunk.iter().fold(0, |all, word| all | word) != 0
}

/// A list of the ids of about so many bits that are set, ascending.
pub(crate) fn listed(words: &[u32], about: usize) -> Vec<u32> {
    let mut ids = Vec::with_capacity(about);
    let firsts = (0..).step_by(CHUNK * BITS_PER_WORD);
    for (chunk, first) in words.chunks(CHUNK).zip(firsts) {
        if !any_is_set(chunk) {
            continue;
        }
        // Which words have any, without a branch for each: that would be guessed wrong often.
        let mut places = [0_u32; CHUNK];
        let mut num_places = 0;
        for (&word, at) in chunk.iter().zip(0..) {
            places[num_places] = at;
            num_places += usize::from(word != 0);
        }
        for &at in &places[..num_places] {
            let first = first + at * BITS_PER_WORD as u32;
            let mut left = chunk[at as usize];
            while left != 0 {
                ids.push(first + left.trailing_zeros());
                left &= left - 1;
            }
        }
    }
    ids
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

    /// The number of a dense mask, which none of this process had before or gets later: what a copy of it
    /// on a device can be found by.
    pub fn number(&self) -> Option<u64> {
        match &*self.mask {
            Mask::Dense { number, .. } => Some(*number),
            Mask::Sparse(_) => None,
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

    /// Whether it forbids any token, of so many.
    pub(crate) fn leaves_any_out(&self, vocab_size: usize) -> bool {
        self.mask.leaves_any_out(vocab_size)
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
    use crate::bitmask::bitmask_words;

    proptest! {
        #[test]
        fn bits_are_counted(words in prop::collection::vec(any::<u32>(), 0..300), all in 0_usize..4000) {
            let one_by_one: u32 = words.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(count_bits(&words), one_by_one as usize);
            let uncounted = Mask::from_uncounted(words.clone());
            prop_assert_eq!(&uncounted, &Mask::from_words(words, one_by_one as usize));
            prop_assert_eq!(uncounted.num_allowed(), one_by_one as usize);
            // All of so many, and of one more.
            let mut words = vec![0; bitmask_words(all + 1)];
            set_bits(&mut words, &(0..all as u32).collect::<Vec<_>>());
            prop_assert!(!Mask::from_uncounted(words.clone()).leaves_any_out(all));
            prop_assert!(Mask::from_uncounted(words).leaves_any_out(all + 1));
        }

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
