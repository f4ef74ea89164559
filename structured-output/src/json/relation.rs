//! What one node says of another, by what is plain of their shapes: no new node is made for it, and
//! no value searched for.
//!
//! A value is mostly told apart by a constant. Of n alternatives with a constant each, n² pairs are
//! compared when the value comes, so that comparing has to be cheap.

use std::sync::Arc;

use super::formula::{FALSE, FormulaId, TRUE};
use super::node::NodeId;
use super::programs::Programs;
use super::shape::{NONE, Spellings};
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// So many strings of a list that are looked up in another one are a step.
const STRINGS_PER_STEP: u64 = 8;

/// How the values of one node lie to those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// All of them are in it.
    Within,
    /// None of them is.
    Apart,
    /// There are some that are, and some that aren't.
    Partly,
    /// That would have to be searched for.
    Unknown,
}

/// What is known of some values: whether some are in another set, and whether some are not.
#[derive(Default)]
struct Found {
    inside: Option<bool>,
    outside: Option<bool>,
    unknown: bool,
}

impl Found {
    /// Adds values, of which there surely are some or perhaps none.
    fn add(&mut self, relation: Relation, sure: bool) {
        let note = |side: &mut Option<bool>| *side = Some(sure || *side == Some(true));
        match relation {
            Relation::Within => note(&mut self.inside),
            Relation::Apart => note(&mut self.outside),
            Relation::Partly => {
                self.inside = Some(true);
                self.outside = Some(true);
            }
            Relation::Unknown => self.unknown = true,
        }
    }

    fn relation(&self) -> Relation {
        match (self.inside, self.outside) {
            (Some(true), Some(true)) => Relation::Partly,
            _ if self.unknown => Relation::Unknown,
            (_, None) => Relation::Within,
            (None, Some(_)) => Relation::Apart,
            _ => Relation::Unknown,
        }
    }
}

/// A list of strings, ascending, or all strings under a constraint but these.
pub(super) struct Listed {
    strings: Box<[ExprId]>,
    is_complement: bool,
}

impl Listed {
    /// How many of these strings are in a list.
    fn num_in(&self, list: &Self) -> usize {
        // Both are ascending: the shorter one is looked up in the longer one.
        let (few, many) = match self.strings.len() < list.strings.len() {
            true => (&self.strings, &list.strings),
            false => (&list.strings, &self.strings),
        };
        let is_there = |string: &&ExprId| many.binary_search(string).is_ok();
        few.iter().filter(is_there).count()
    }

    /// How these strings lie to others. Some of a list are neither none nor, where the others are
    /// all but some, all.
    pub(super) fn relation(&self, other: &Self) -> Relation {
        let num_common = self.num_in(other);
        let num_left = other.strings.len() - num_common;
        match (self.is_complement, other.is_complement) {
            // Both have infinitely many.
            (true, true) if num_left > 0 => Relation::Partly,
            (true, true) => Relation::Within,
            (true, false) if num_left > 0 => Relation::Partly,
            (true, false) => Relation::Apart,
            (false, is_complement) => {
                let inside = match is_complement {
                    true => self.strings.len() - num_common,
                    false => num_common,
                };
                match inside {
                    0 => Relation::Apart,
                    all if all == self.strings.len() => Relation::Within,
                    _ => Relation::Partly,
                }
            }
        }
    }
}

impl Programs {
    /// How the values of a node lie to those of another, as far as that is plain. Of a node without
    /// values anything may be said.
    ///
    /// # Errors
    /// Out of fuel, by the steps of making their shapes and of comparing lists.
    pub(super) fn relation(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        other: NodeId,
        fuel: &mut Fuel,
    ) -> Result<Relation, Stop> {
        if node == other {
            return Ok(Relation::Within);
        }
        let shape = self.shape(lexicon, node, fuel)?;
        let beside = self.shape(lexicon, other, fuel)?;
        let mut found = Found::default();
        if shape.words & beside.words != 0 {
            found.add(Relation::Within, true);
        }
        if shape.words & !beside.words != 0 {
            found.add(Relation::Apart, true);
        }
        for (own, others) in [(shape.array, beside.array), (shape.object, beside.object)] {
            if own != FALSE {
                found.add(relation_of_formulas(own, others), own == TRUE);
            }
        }
        for (own, others) in [(shape.number, beside.number), (shape.string, beside.string)] {
            if own != NONE {
                let relation = self.relation_of_spellings(lexicon, own, others, fuel)?;
                let is_sure = match own {
                    Spellings::Free => true,
                    Spellings::Only(language) => lexicon.is_plainly_live(language),
                };
                found.add(relation, is_sure);
            }
        }
        Ok(found.relation())
    }

    fn relation_of_spellings(
        &mut self,
        lexicon: &mut Lexicon,
        own: Spellings,
        others: Spellings,
        fuel: &mut Fuel,
    ) -> Result<Relation, Stop> {
        if own == others {
            return Ok(Relation::Within);
        }
        if others == NONE {
            return Ok(Relation::Apart);
        }
        let Spellings::Only(others) = others else {
            return Ok(Relation::Within);
        };
        let is_single = |language| self.logic.nodes.is_single_value(language);
        if let Spellings::Only(own) = own
            && is_single(own)
            && is_single(others)
        {
            return Ok(Relation::Apart);
        }
        let Some(others) = self.listed(lexicon, others, fuel)? else {
            return Ok(Relation::Unknown);
        };
        let own = match own {
            // Any string has further spellings, which are in no list.
            Spellings::Free => return Ok(Relation::Partly),
            Spellings::Only(own) => self.listed(lexicon, own, fuel)?,
        };
        let Some(own) = own else {
            return Ok(Relation::Unknown);
        };
        let num_looked_up = own.strings.len().min(others.strings.len());
        fuel.burn(1 + num_looked_up as u64 / STRINGS_PER_STEP)?;
        Ok(own.relation(&others))
    }

    /// A language that lists strings, or all but some. Kept: of n alternatives each is compared with all
    /// others, and with the list of all of them.
    pub(super) fn listed(
        &mut self,
        lexicon: &mut Lexicon,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<Listed>>, Stop> {
        if let Some(known) = self.listed.get(&language) {
            return Ok(Some(Arc::clone(known)));
        }
        let texts = self.texts(lexicon);
        let mut strings = Vec::new();
        let mut is_complement = false;
        for part in lexicon.conjuncts(language) {
            let part = match lexicon.complemented(part) {
                Some(left_out) => left_out,
                None if part == texts.constrained || part == texts.decimal => {
                    is_complement = true;
                    continue;
                }
                None if part == language => part,
                None => return Ok(None),
            };
            let list = lexicon.alternatives(part);
            fuel.burn(list.len() as u64)?;
            let nodes = &self.logic.nodes;
            if !list.iter().all(|&one| nodes.is_single_value(one)) {
                return Ok(None);
            }
            strings.extend(list);
        }
        // A complement of strings alone has what is no string.
        if !is_complement && lexicon.conjuncts(language) != [language] {
            return Ok(None);
        }
        strings.sort_unstable();
        // A string may be left out twice.
        strings.dedup();
        let listed = Arc::new(Listed {
            strings: strings.into(),
            is_complement,
        });
        self.bytes += size_of::<Listed>() + listed.strings.len() * size_of::<ExprId>() + 64;
        self.listed.insert(language, Arc::clone(&listed));
        Ok(Some(listed))
    }
}

fn relation_of_formulas(own: FormulaId, others: FormulaId) -> Relation {
    match others {
        TRUE => Relation::Within,
        FALSE => Relation::Apart,
        _ if own == others => Relation::Within,
        _ => Relation::Unknown,
    }
}
