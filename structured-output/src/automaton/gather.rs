//! A mask that is being put together.

use std::sync::Arc;

use super::memo::{LexemeMask, Reference};
use crate::mask::store::{MaskStore, Recipe};
use crate::mask::{Mask, count_bits, set_bits};

/// The tokens of a mask, gathered from parts of a lexeme and from what follows it.
///
/// Large sets stay where they are until the mask turns out to be a new one: most masks differ from
/// a known set, such as what the body of a string allows, by some dozens of tokens.
#[derive(Default)]
pub(super) struct Gather {
    /// Parts that are large sets.
    sets: Vec<Arc<LexemeMask>>,
    /// Further tokens, in any order.
    pub(super) ids: Vec<u32>,
}

impl Gather {
    /// Adds the tokens that end within a part, those of its reference included.
    pub(super) fn add_inside(&mut self, part: &Arc<LexemeMask>) {
        let of_reference = part.reference.as_ref().and_then(Reference::inside);
        match (&part.inside, of_reference) {
            (Mask::Sparse(ids), None) => self.ids.extend_from_slice(ids),
            _ => self.sets.push(Arc::clone(part)),
        }
    }

    /// The mask, of `num_words` words where it is a large one.
    pub(super) fn finish(mut self, store: &mut MaskStore, num_words: usize) -> Arc<Mask> {
        self.sets.sort_unstable_by_key(|part| part.number);
        self.sets.dedup_by_key(|part| part.number);
        self.ids.sort_unstable();
        self.ids.dedup();
        let sets = &self.sets;
        self.ids
            .retain(|&id| !sets.iter().any(|part| part.contains(id)));
        let recipe = Recipe {
            sets: sets.iter().map(|part| part.number).collect(),
            ids: self.ids,
        };
        store.intern(recipe, |recipe| {
            let mut count = None;
            let mut words = Vec::new();
            for part in sets {
                let (own, own_count) = part.words(num_words);
                if words.is_empty() {
                    (words, count) = (own, Some(own_count));
                    continue;
                }
                for (word, own) in words.iter_mut().zip(own) {
                    *word |= own;
                }
                count = None;
            }
            words.resize(num_words, 0);
            set_bits(&mut words, &recipe.ids);
            let count = match (count, sets.len()) {
                (Some(count), 1) => count + recipe.ids.len(),
                _ => count_bits(&words),
            };
            Mask::from_words(words, count)
        })
    }
}

impl LexemeMask {
    /// Whether a token ends within the lexeme, the reference's included.
    fn contains(&self, id: u32) -> bool {
        self.inside.is_allowed(id)
            || self.reference.as_ref().is_some_and(|reference| {
                let inside = reference.inside().is_some_and(|mask| mask.is_allowed(id));
                inside && reference.less.binary_search(&id).is_err()
            })
    }

    /// The tokens that end within the lexeme as words, and how many they are.
    fn words(&self, num_words: usize) -> (Vec<u32>, usize) {
        let mut words = vec![0; 0];
        let mut count = 0;
        match self
            .reference
            .as_ref()
            .map(|reference| (reference, reference.inside()))
        {
            None | Some((_, None)) => words.resize(num_words, 0),
            Some((reference, Some(inside))) => {
                match inside {
                    Mask::Dense { words: own, .. } => words.extend_from_slice(own),
                    Mask::Sparse(ids) => {
                        words.resize(num_words, 0);
                        set_bits(&mut words, ids);
                    }
                }
                for &id in &reference.less {
                    if let Some(word) = words.get_mut(id as usize / 32) {
                        *word &= !(1 << (id % 32));
                    }
                }
                count = inside.num_allowed() - reference.num_inside;
            }
        }
        // What is more than the reference allows is apart from it.
        self.inside.add_to(&mut words);
        (words, count + self.inside.num_allowed())
    }
}
