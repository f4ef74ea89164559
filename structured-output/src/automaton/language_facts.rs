//! What is known of languages by themselves, whatever grammar they stand in.

use std::sync::Arc;

use hashbrown::HashMap;

use super::bounded::BoundedFacts;
use crate::earley::{End, LanguageMask};
use crate::lexical::ExprId;
use crate::mask::Forgotten;

/// A language by what it has in common with another one.
pub(super) struct Beside {
    pub(super) rest: ExprId,
    /// Tokens for which they differ.
    pub(super) apart: Box<[u32]>,
    /// What the language allows of these.
    pub(super) mask: Arc<LanguageMask>,
    /// Whether many tokens leave the other one at one place.
    pub(super) has_large_ends: bool,
}

impl Beside {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.mask.memory_bytes() + size_of_val(&*self.apart)
    }
}

/// Masks of languages by themselves. Every generation begins with those of its base.
#[derive(Default)]
pub(super) struct LanguageFacts {
    /// What was known before, and is not copied: there are thousands.
    base: Option<Arc<Self>>,
    /// What languages allow by themselves, of the tokens below a node of the trie of bytes.
    masks: HashMap<(End, ExprId), Arc<LanguageMask>>,
    /// What a language has in common there with another one, if it has.
    beside: HashMap<(End, ExprId), Option<Arc<Beside>>>,
    /// Alternatives of languages, see [`super::language_item`].
    parts: HashMap<ExprId, Arc<[ExprId]>>,
    /// How many characters of a count tokens need.
    pub(super) bounded: BoundedFacts,
    num_masks: u32,
    /// Bytes of what the tables refer to.
    bytes: usize,
}

impl LanguageFacts {
    /// Begins with what is known.
    pub(super) fn with_base(base: Arc<Self>) -> Self {
        Self {
            num_masks: base.num_masks,
            bounded: base.bounded.shared(),
            base: Some(base),
            ..Self::default()
        }
    }

    /// What is known here, or before.
    fn find<T>(&self, known: impl Fn(&Self) -> Option<&T>) -> Option<&T> {
        known(self).or_else(|| self.base.as_deref().and_then(known))
    }

    /// Hands all tables over to be dropped.
    pub(super) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.beside);
        forgotten.add(self.masks);
        forgotten.add(self.parts);
        self.bounded.forget(forgotten);
    }

    /// A number for a mask that is being made.
    pub(super) fn next_number(&mut self) -> u32 {
        self.num_masks += 1;
        self.num_masks
    }

    pub(super) fn mask(&self, at: End, language: ExprId) -> Option<Arc<LanguageMask>> {
        self.find(|facts| facts.masks.get(&(at, language))).cloned()
    }

    pub(super) fn insert_mask(
        &mut self,
        at: End,
        language: ExprId,
        mask: LanguageMask,
    ) -> Arc<LanguageMask> {
        self.bytes += mask.memory_bytes();
        let mask = Arc::new(mask);
        self.masks.insert((at, language), Arc::clone(&mask));
        mask
    }

    pub(super) fn beside(&self, at: End, language: ExprId) -> Option<Option<Arc<Beside>>> {
        self.find(|facts| facts.beside.get(&(at, language)))
            .cloned()
    }

    pub(super) fn insert_beside(
        &mut self,
        at: End,
        language: ExprId,
        beside: Option<Beside>,
    ) -> Option<Arc<Beside>> {
        self.bytes += beside.as_ref().map_or(0, Beside::memory_bytes);
        let beside = beside.map(Arc::new);
        self.beside.insert((at, language), beside.clone());
        beside
    }

    pub(super) fn parts(&self, language: ExprId) -> Option<Arc<[ExprId]>> {
        self.find(|facts| facts.parts.get(&language)).cloned()
    }

    pub(super) fn insert_parts(&mut self, language: ExprId, parts: Vec<ExprId>) -> Arc<[ExprId]> {
        self.bytes += 2 * size_of::<usize>() + size_of_val(&*parts);
        let parts = Arc::from(parts);
        self.parts.insert(language, Arc::clone(&parts));
        parts
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.bounded.memory_bytes()
            + self.parts.capacity() * (size_of::<(ExprId, [usize; 2])>() + 1)
            + self.masks.capacity() * (size_of::<(End, ExprId, usize)>() + 1)
            + self.beside.capacity() * (size_of::<(End, ExprId, usize)>() + 1)
    }
}
