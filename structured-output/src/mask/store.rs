//! The store of masks: each set of tokens once, within a budget of bytes.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::forgotten::Forgotten;
use super::{MAX_SPARSE, Mask};

/// How a mask is put together: some large sets that are known by number, and a list of further ids.
/// Masks of one recipe are equal. That is what they are recognised by: a large mask is neither
/// hashed nor compared.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    /// Numbers of the large sets, ascending.
    pub(crate) sets: Vec<u32>,
    /// Ids that are in none of them, ascending.
    pub(crate) ids: Vec<u32>,
}

/// A hash of a mask's words or ids: of some kilobytes, so in lanes that don't wait for one another.
fn hash_of(mask: &Mask) -> u64 {
    const LANES: usize = 8;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (Mask::Dense { words, .. } | Mask::Sparse(words)) = mask;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
    let (pairs, odd_one) = words.as_chunks::<2>();
    let (groups, pairs) = pairs.as_chunks::<LANES>();
    let of_pair = |&[low, high]: &[u32; 2]| u64::from(low) | u64::from(high) << 32;
    let mut lanes = [0; LANES];
    for group in groups {
        for (lane, pair) in lanes.iter_mut().zip(group) {
            *lane = mix(*lane, of_pair(pair));
        }
    }
    let rest = pairs.iter().map(of_pair);
    let rest = rest.chain(odd_one.iter().map(|&word| u64::from(word)));
    let hash = lanes.into_iter().chain(rest).fold(words.len() as u64, mix);
    hash ^ hash >> 32
}

/// Masks by their recipes, or by their words. Equality is checked in full: a hash collision costs a comparison, never
/// a wrong mask.
#[derive(Default)]
pub(crate) struct MaskStore {
    masks: HashTable<(Recipe, Arc<Mask>)>,
    /// Those that are known by their words, with the hashes of these.
    by_words: HashTable<(u64, Arc<Mask>)>,
    hasher: DefaultHashBuilder,
    bytes: usize,
}

impl MaskStore {
    /// The mask of a recipe. `make` is asked for one that isn't known yet and is more than a short
    /// list of ids.
    pub(crate) fn intern(
        &mut self,
        recipe: Recipe,
        make: impl FnOnce(&Recipe) -> Mask,
    ) -> Arc<Mask> {
        let hasher = &self.hasher;
        let entry = self.masks.entry(
            hasher.hash_one(&recipe),
            |(known, _)| *known == recipe,
            |(known, _)| hasher.hash_one(known),
        );
        match entry {
            Entry::Occupied(known) => Arc::clone(&known.get().1),
            Entry::Vacant(place) => {
                let is_short = recipe.sets.is_empty() && recipe.ids.len() <= MAX_SPARSE;
                let mask = Arc::new(match is_short {
                    true => Mask::from_ids(recipe.ids.clone()),
                    false => make(&recipe),
                });
                let numbers = recipe.sets.capacity() + recipe.ids.capacity();
                self.bytes += mask.memory_bytes() + numbers * size_of::<u32>();
                place.insert((recipe, Arc::clone(&mask)));
                mask
            }
        }
    }

    /// A mask from its words: known by its content.
    pub(crate) fn intern_words(&mut self, words: Vec<u32>) -> Arc<Mask> {
        let mask = match Mask::from_uncounted(words) {
            Mask::Sparse(ids) => {
                let recipe = Recipe {
                    sets: Vec::new(),
                    ids: ids.into_vec(),
                };
                return self.intern(recipe, |recipe| Mask::from_ids(recipe.ids.clone()));
            }
            dense => dense,
        };
        let hash = hash_of(&mask);
        let entry = self.by_words.entry(
            hash,
            |(known_hash, known)| *known_hash == hash && **known == mask,
            |(hash, _)| *hash,
        );
        match entry {
            Entry::Occupied(known) => Arc::clone(&known.get().1),
            Entry::Vacant(place) => {
                self.bytes += mask.memory_bytes();
                Arc::clone(&place.insert((hash, Arc::new(mask))).get().1)
            }
        }
    }

    /// Hands all masks over to be dropped.
    pub(crate) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.masks);
        forgotten.add(self.by_words);
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.masks.capacity() * (size_of::<(Recipe, usize)>() + 1)
            + self.by_words.capacity() * (size_of::<(u64, usize)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(sets: &[u32], ids: &[u32]) -> Recipe {
        Recipe {
            sets: sets.to_vec(),
            ids: ids.to_vec(),
        }
    }

    #[test]
    fn masks_of_the_same_words_are_one() {
        let mut store = MaskStore::default();
        let mask = |first: u32| -> Vec<u32> {
            let all = (0..5).map(|at| u32::MAX.rotate_left(at) ^ first);
            all.chain([first, 0, 7]).collect()
        };
        let known: Vec<_> = (0..200)
            .map(|first| store.intern_words(mask(first)))
            .collect();
        for (first, known) in (0..).zip(&known) {
            assert!(Arc::ptr_eq(known, &store.intern_words(mask(first))));
            assert_eq!(**known, Mask::from_uncounted(mask(first)));
        }
        let hashes: std::collections::BTreeSet<u64> =
            known.iter().map(|mask| hash_of(mask)).collect();
        assert_eq!(hashes.len(), 200);
    }

    #[test]
    fn masks_of_one_recipe_are_one() {
        let mut store = MaskStore::default();
        let unasked = |_: &Recipe| -> Mask { panic!("a short list makes itself") };
        let first = store.intern(recipe(&[], &[1, 3]), unasked);
        let held = store.memory_bytes();
        let again = store.intern(recipe(&[], &[1, 3]), unasked);
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(store.memory_bytes(), held);
        let make = |_: &Recipe| Mask::from_words(vec![u32::MAX; 4], 128);
        let other = store.intern(recipe(&[7], &[1, 3]), make);
        assert!(store.memory_bytes() > held + 16);
        assert_eq!(*other, Mask::from_words(vec![u32::MAX; 4], 128));
        let again = store.intern(recipe(&[7], &[1, 3]), unasked);
        assert!(Arc::ptr_eq(&other, &again));
    }
}
