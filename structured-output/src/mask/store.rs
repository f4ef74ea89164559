//! The store of masks: each set of tokens once, within a budget of bytes.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Mask;

/// Masks interned by content. Equality is checked in full: a hash collision costs a comparison,
/// never a wrong mask.
#[derive(Default)]
pub(crate) struct MaskStore {
    masks: HashTable<Arc<Mask>>,
    hasher: DefaultHashBuilder,
    bytes: usize,
}

impl MaskStore {
    /// The one shared copy of a mask.
    pub(crate) fn intern(&mut self, mask: Mask) -> Arc<Mask> {
        let hasher = &self.hasher;
        let entry = self.masks.entry(
            hasher.hash_one(&mask),
            |known| **known == mask,
            |known| hasher.hash_one(&**known),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(known) => Arc::clone(known.get()),
            hashbrown::hash_table::Entry::Vacant(place) => {
                self.bytes += mask.memory_bytes();
                let mask = Arc::new(mask);
                place.insert(Arc::clone(&mask));
                mask
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.masks.capacity() * (size_of::<usize>() + 1)
    }

    /// How many masks are held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.masks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_masks_are_one() {
        let mut store = MaskStore::default();
        let first = store.intern(Mask::from_ids(vec![3, 1]));
        let held = store.memory_bytes();
        let again = store.intern(Mask::from_ids(vec![1, 3]));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((store.len(), store.memory_bytes()), (1, held));
        let other = store.intern(Mask::from_words(vec![u32::MAX; 4], 128));
        assert_eq!(store.len(), 2);
        assert!(store.memory_bytes() > held + 16);
        assert_eq!(*other, Mask::from_words(vec![u32::MAX; 4], 128));
    }
}
