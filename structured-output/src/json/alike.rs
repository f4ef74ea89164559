//! Arrays of distinct items that are all of one list of strings and words: what is left is counted.
//!
//! Which of them an array has makes no difference to whether it can end, only how many. So nothing is
//! tried, and no set is looked at that the text doesn't have: of 20 values there are 2^20.

use hashbrown::HashSet;

use super::formula::{FALSE, Formula, FormulaId};
use super::node::{Kinds, Node, NodeId};
use super::programs::Programs;
use super::shape::{NONE, Spellings};
use crate::lexical::{ExprId, Fuel, Lexicon, OutOfFuel};

/// Such an array.
pub(super) struct Alike {
    /// The languages of the values that it doesn't have yet, one each.
    left: Vec<ExprId>,
    /// How many items it needs.
    needed: u32,
    /// How many it may have at most.
    most: Option<u32>,
}

impl Alike {
    /// Whether it can end, though some of the values were not to be had.
    pub(super) fn can_end_without(&self, num_values: usize) -> bool {
        let num_left = self.left.len().saturating_sub(num_values);
        self.needed as usize <= num_left && self.most.is_none_or(|most| self.needed <= most)
    }
}

impl Programs {
    /// A formula as an array of distinct items that are alike, and of which there are finitely many;
    /// `None` where it asks for anything else.
    pub(super) fn alike(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Alike>, OutOfFuel> {
        let Formula::All(list) = self.logic.formula(formula) else {
            return Ok(None);
        };
        let (mut items, mut set, mut needed, mut most) = (Vec::new(), None, 0, None);
        for &id in list {
            match self.logic.formula(id) {
                Formula::Unique {
                    set: so_far,
                    holds: true,
                } => set = Some(*so_far),
                Formula::Is(node) => match self.logic.nodes.node(*node) {
                    Node::Items { prefix, rest } if prefix.is_empty() => items.push(*rest),
                    Node::MinItems(min) => needed = *min,
                    _ => return Ok(None),
                },
                Formula::Not(node) => match self.logic.nodes.node(*node) {
                    Node::MinItems(more) => most = Some(*more - 1),
                    _ => return Ok(None),
                },
                _ => return Ok(None),
            }
        }
        let Some(set) = set.filter(|_| !items.is_empty()) else {
            return Ok(None);
        };
        let item = self.logic.nodes.all_of(&items);
        let Some(mut left) = self.values_of_list(lexicon, item, fuel)? else {
            return Ok(None);
        };
        let mut taken = HashSet::new();
        for constant in self.logic.set(set).to_vec() {
            let values = self.values_of_list(lexicon, constant, fuel)?;
            taken.extend(values.into_iter().flatten());
        }
        left.retain(|value| !taken.contains(value));
        Ok(Some(Alike { left, needed, most }))
    }

    /// The values of a node that is a list of words and strings, each by its language.
    fn values_of_list(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<ExprId>>, OutOfFuel> {
        let node = self.resolved(node);
        let shape = self.shape(lexicon, node, fuel)?;
        if shape.number != NONE || shape.array != FALSE || shape.object != FALSE {
            return Ok(None);
        }
        let strings = match shape.string {
            NONE => Vec::new(),
            Spellings::Free => return Ok(None),
            Spellings::Only(language) => lexicon.alternatives(language),
        };
        fuel.burn(strings.len() as u64)?;
        let nodes = &self.logic.nodes;
        if !strings.iter().all(|&one| nodes.is_single_string(one)) {
            return Ok(None);
        }
        let words = [Kinds::NULL, Kinds::FALSE, Kinds::TRUE].into_iter();
        let words = words.zip(self.texts(lexicon).words);
        let words = words.filter(|(kind, _)| shape.words & kind.0 != 0);
        Ok(Some(words.map(|word| word.1).chain(strings).collect()))
    }

    /// The shortest items with which such an array ends, as texts. `None` where too few are left.
    pub(super) fn alike_to_end(
        &mut self,
        lexicon: &mut Lexicon,
        alike: &Alike,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Vec<u8>>>, OutOfFuel> {
        if !alike.can_end_without(0) {
            return Ok(None);
        }
        // What is longer than as many as are needed is not written.
        let mut lengths = Vec::with_capacity(alike.left.len());
        for &value in &alike.left {
            fuel.burn(1)?;
            lengths.push((lexicon.distance(value, fuel)?, value));
        }
        lengths.sort_unstable();
        let last = (alike.needed as usize).checked_sub(1);
        let longest = last
            .and_then(|last| lengths.get(last))
            .map_or(0, |one| one.0);
        lengths.retain(|one| one.0 <= longest);
        let mut texts = Vec::with_capacity(lengths.len());
        for (_, value) in lengths {
            let mut text = Vec::new();
            Self::write_shortest(lexicon, value, &mut text, fuel)?;
            texts.push(text);
        }
        texts.sort_unstable_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        texts.truncate(alike.needed as usize);
        Ok(Some(texts))
    }
}
