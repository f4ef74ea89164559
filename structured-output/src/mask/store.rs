//! The store of masks: each set of tokens once, within a budget of bytes.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::{MAX_SPARSE, Mask};
use crate::automaton::Forgotten;

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

/// Masks by their recipes, or by their words. Equality is checked in full: a hash collision costs a comparison, never
/// a wrong mask.
#[derive(Default)]
pub(crate) struct MaskStore {
    masks: HashTable<(Recipe, Arc<Mask>)>,
    /// Those that are known by their words.
    by_words: HashTable<Arc<Mask>>,
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
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        let mask = match Mask::from_words(words, count) {
            Mask::Sparse(ids) => {
                let recipe = Recipe {
                    sets: Vec::new(),
                    ids: ids.into_vec(),
                };
                return self.intern(recipe, |recipe| Mask::from_ids(recipe.ids.clone()));
            }
            dense => dense,
        };
        let hasher = &self.hasher;
        let entry = self.by_words.entry(
            hasher.hash_one(&mask),
            |known| **known == mask,
            |known| hasher.hash_one(&**known),
        );
        match entry {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(place) => {
                self.bytes += mask.memory_bytes();
                Arc::clone(place.insert(Arc::new(mask)).get())
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
            + self.by_words.capacity() * (size_of::<usize>() + 1)
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
