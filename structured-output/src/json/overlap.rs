//! Whether two nodes have a value in common, told by one rule whatever they say: kind by kind, by what is
//! plain, by the values where these are few, else by a search of a few steps.

use std::sync::Arc;

use super::formula::{FALSE, Formula, FormulaId};
use super::live::DEAD;
use super::node::{ANYTHING, Kinds, Node, NodeId};
use super::programs::Programs;
use super::relation::Relation;
use super::shape::{NONE, Spellings};
use super::values::ValueId;
use crate::held::shared;
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// So many steps are taken to find out whether there is a value.
const STEPS_A_VALUE: u64 = 400;

/// Of numbers up to so many are looked at by themselves.
const FEW_NUMBERS: usize = 16;
/// So many steps are taken to list them.
const STEPS_A_LIST: u64 = 2_000;

/// Items and members are compared this deep.
const MAX_DEPTH: usize = 3;

/// The values of a language of numbers, ascending, where these are few.
pub(super) type FewNumbers = Option<Arc<[ValueId]>>;

/// Whether two languages are apart by the values that they list, where they do.
type ByValues =
    fn(&mut Programs, &mut Lexicon, (ExprId, ExprId), &mut Fuel) -> Result<Option<bool>, Stop>;

/// An item or a member that an array or object must have.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Part<'a> {
    Item(usize),
    Member(&'a str),
}

impl Programs {
    /// How the values of a node lie to those of another: [`Relation::Apart`] and [`Relation::Within`] only
    /// where that is so, [`Relation::Unknown`] where that isn't found out within a few steps.
    pub(super) fn overlap(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        other: NodeId,
        fuel: &mut Fuel,
    ) -> Result<Relation, Stop> {
        fuel.burn(1)?;
        match self.relation(lexicon, node, other, fuel)? {
            Relation::Unknown => {}
            known => return Ok(known),
        }
        if self.are_apart(lexicon, (node, other), MAX_DEPTH, fuel)? {
            return Ok(Relation::Apart);
        }
        let not = self.logic.nodes.not(other);
        let outside = self.logic.nodes.all_of(&[node, not]);
        Ok(match self.is_surely_dead(lexicon, outside, fuel)? {
            true => Relation::Within,
            false => Relation::Unknown,
        })
    }

    /// Whether a node is found to have no value within a few steps.
    pub(super) fn is_surely_dead(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let cost = fuel.within(STEPS_A_VALUE, |part| self.sure_cost(lexicon, node, part))?;
        Ok(cost == Some(DEAD))
    }

    /// Whether two nodes are found to have no value in common.
    fn are_apart(
        &mut self,
        lexicon: &mut Lexicon,
        (node, other): (NodeId, NodeId),
        depth: usize,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let shape = self.shape(lexicon, node, fuel)?;
        let beside = self.shape(lexicon, other, fuel)?;
        if shape.words & beside.words != 0 {
            return Ok(false);
        }
        let numbers = (shape.number, beside.number);
        let strings = (shape.string, beside.string);
        if !self.are_spellings_apart(lexicon, numbers, Self::are_few_numbers_apart, fuel)?
            || !self.are_spellings_apart(lexicon, strings, Self::are_listed_strings_apart, fuel)?
        {
            return Ok(false);
        }
        let has = |formula| formula != FALSE;
        let both = [(shape.array, beside.array), (shape.object, beside.object)];
        let mut is_unknown = false;
        for (own, others) in both {
            let is_apart = !has(own)
                || !has(others)
                || self.are_composites_apart(lexicon, (own, others), depth, fuel)?;
            is_unknown |= !is_apart;
        }
        if !is_unknown {
            return Ok(true);
        }
        let both = self.logic.nodes.all_of(&[node, other]);
        self.is_surely_dead(lexicon, both, fuel)
    }

    /// Whether two sets of spellings are found to have none in common: by their values where
    /// `by_values` can tell, else by a search.
    fn are_spellings_apart(
        &mut self,
        lexicon: &mut Lexicon,
        (own, others): (Spellings, Spellings),
        by_values: ByValues,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if own == NONE || others == NONE {
            return Ok(true);
        }
        let (Spellings::Only(own), Spellings::Only(others)) = (own, others) else {
            return Ok(false);
        };
        if let Some(are_apart) = by_values(self, lexicon, (own, others), fuel)? {
            return Ok(are_apart);
        }
        if own == others {
            return Ok(false);
        }
        let both = lexicon.and(&[own, others]);
        let is_live = fuel.within(STEPS_A_VALUE, |part| lexicon.is_live(both, part))?;
        Ok(is_live == Some(false))
    }

    fn are_listed_strings_apart(
        &mut self,
        lexicon: &mut Lexicon,
        (own, others): (ExprId, ExprId),
        fuel: &mut Fuel,
    ) -> Result<Option<bool>, Stop> {
        Ok(match self.listed(lexicon, own, fuel)? {
            Some(list) => self
                .listed(lexicon, others, fuel)?
                .map(|beside| list.relation(&beside) == Relation::Apart),
            None => None,
        })
    }

    fn are_few_numbers_apart(
        &mut self,
        lexicon: &mut Lexicon,
        (own, others): (ExprId, ExprId),
        fuel: &mut Fuel,
    ) -> Result<Option<bool>, Stop> {
        Ok(match self.few_numbers(lexicon, own, fuel)? {
            Some(numbers) => self
                .few_numbers(lexicon, others, fuel)?
                .map(|beside| !numbers.iter().any(|number| beside.contains(number))),
            None => None,
        })
    }

    /// The values of a language of numbers, if there are few. Kept: of n nodes each is compared with all
    /// others.
    pub(super) fn few_numbers(
        &mut self,
        lexicon: &mut Lexicon,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<FewNumbers, Stop> {
        if let Some(known) = self.few_numbers.get(&language) {
            return Ok(known.clone());
        }
        let numbers = self.logic.nodes.kinds(Kinds::NUMBER);
        let spelled = self.logic.nodes.number(language);
        let node = self.logic.nodes.all_of(&[numbers, spelled]);
        let listed = fuel.within(STEPS_A_LIST, |part| {
            self.list_values(lexicon, node, FEW_NUMBERS + 1, part)
        })?;
        let are_all = listed.is_some() && self.values.are_all(node);
        let few: FewNumbers =
            are_all.then(|| self.values.of(node).iter().map(|one| one.id).collect());
        let held = few.as_ref().map_or(0, |few| shared(size_of_val(&**few)));
        self.bytes += held;
        self.few_numbers.insert(language, few.clone());
        Ok(few)
    }

    /// Whether two formulas over arrays, or over objects, both ask for an item or member of which no value
    /// meets both.
    fn are_composites_apart(
        &mut self,
        lexicon: &mut Lexicon,
        (own, others): (FormulaId, FormulaId),
        depth: usize,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if depth == 0 {
            return Ok(false);
        }
        let own = self.parts_needed(own);
        let others = self.parts_needed(others);
        fuel.burn(1 + (own.len() * others.len()) as u64)?;
        let mut both = Vec::new();
        for (part, node) in &own {
            let same = others.iter().filter(|other| other.0 == *part);
            both.extend(same.map(|other| (*node, other.1)));
        }
        for (node, other) in both {
            let is_apart = match self.relation(lexicon, node, other, fuel)? {
                Relation::Apart => true,
                Relation::Unknown => self.are_apart(lexicon, (node, other), depth - 1, fuel)?,
                Relation::Within | Relation::Partly => false,
            };
            if is_apart {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The items or members that a formula plainly asks for, each with what it is to be.
    fn parts_needed(&self, formula: FormulaId) -> Vec<(Part<'_>, NodeId)> {
        let alone = [formula];
        let list = match self.logic.formula(formula) {
            Formula::All(list) => list,
            _ => &alone[..],
        };
        let (mut num_items, mut names) = (0, Vec::new());
        let asserted = list.iter().filter_map(|&id| match *self.logic.formula(id) {
            Formula::Is(node) => Some(self.logic.nodes.node(node)),
            _ => None,
        });
        for node in asserted.clone() {
            match node {
                Node::MinItems(min) => num_items = num_items.max(*min as usize),
                Node::Has(name) => names.push(&**name),
                _ => {}
            }
        }
        let mut parts = Vec::new();
        for node in asserted {
            match node {
                Node::Items { prefix, rest } => {
                    let items = prefix.iter().copied().enumerate().take(num_items);
                    parts.extend(items.map(|(at, node)| (Part::Item(at), node)));
                    if num_items > prefix.len() && *rest != ANYTHING {
                        parts.push((Part::Item(prefix.len()), *rest));
                    }
                }
                Node::Members(members) => {
                    let named = members.named.iter();
                    let named = named.filter(|named| names.contains(&&*named.0));
                    parts.extend(named.map(|named| (Part::Member(&named.0), named.1)));
                }
                _ => {}
            }
        }
        parts
    }
}
