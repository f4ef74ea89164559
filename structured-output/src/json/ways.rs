//! The ways that formulas go by an item or a member: a derivative, split by what it says of the value
//! that comes (Shannon 1938). Disjoint conditions on the value, and what remains of the formula under
//! each; conditions that no value meets are left out.

use std::sync::Arc;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, FormulaId, TRUE};
use super::live::DEAD;
use super::node::{ANYTHING, NodeId};
use super::programs::Programs;
use super::relation::Relation;
use crate::held::{allocated, shared, with_room};
use crate::lexical::{Fuel, Lexicon, Stop};

/// A value that may come, and what remains then of each of some formulas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) value: NodeId,
    pub(super) rest: Box<[FormulaId]>,
}

/// The ways that a formula goes by an event, as far as they were asked for: see [`Programs::way`].
pub(super) struct Ways {
    found: Vec<(NodeId, FormulaId)>,
    /// What is to be split further, the last first.
    pending: Vec<(NodeId, Vec<FormulaId>)>,
    /// How many are taken out of `pending` to be split.
    is_split: u32,
}

impl Ways {
    /// Those of a formula that was derived.
    fn new(derived: Vec<FormulaId>) -> Self {
        Self {
            found: Vec::new(),
            pending: vec![(ANYTHING, derived)],
            is_split: 0,
        }
    }
}

/// Ways by what there was and what came.
pub(super) type WaysOf = HashMap<(FormulaId, Event), Ways>;

/// An entry of [`OutcomesOf`].
pub(super) type OutcomesEntry = ((Box<[FormulaId]>, Event), Arc<[Outcome]>);

/// Outcomes, by what there was and what came.
pub(super) type OutcomesOf = HashMap<(Box<[FormulaId]>, Event), Arc<[Outcome]>>;

impl Programs {
    /// What some formulas become by an event, by the value that comes. Values after which no
    /// formula can hold for a plain reason are left out.
    pub(super) fn outcomes(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        event: Event,
        fuel: &mut Fuel,
    ) -> Result<Arc<[Outcome]>, Stop> {
        let key = (formulas.into(), event);
        if let Some(known) = self.outcomes_of.get(&key) {
            return Ok(Arc::clone(known));
        }
        let derived = self.derive_each(formulas, event, fuel)?;
        let outcomes: Arc<[Outcome]> = self.split(lexicon, ANYTHING, derived, fuel)?.into();
        let list = allocated(size_of_val(formulas));
        self.bytes += list + shared(size_of_val(&*outcomes)) + outcomes.len() * list;
        self.outcomes_of.insert(key, Arc::clone(&outcomes));
        Ok(outcomes)
    }

    /// Whether an event can come with a value, such that what remains is `good`. Looks no further
    /// than to the first such value.
    pub(super) fn has_outcome(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        event: Event,
        fuel: &mut Fuel,
        good: &mut impl FnMut(&mut Self, &mut Lexicon, &[FormulaId], &mut Fuel) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let mut pending = vec![(ANYTHING, self.derive_each(formulas, event, fuel)?)];
        while let Some((path, formulas)) = pending.pop() {
            // Conditions occur in the positive only: what holds where none of them does, holds.
            let mut least = Vec::with_capacity(formulas.len());
            for &id in &formulas {
                least.push(self.without_values(id));
            }
            if self.cost(lexicon, path, fuel)? != DEAD && good(self, lexicon, &least, fuel)? {
                return Ok(true);
            }
            self.split_way(lexicon, path, formulas, &mut pending, fuel)?;
        }
        Ok(false)
    }

    /// Splits formulas by what they say of the next value, which is in a node.
    pub(super) fn split(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        formulas: Vec<FormulaId>,
        fuel: &mut Fuel,
    ) -> Result<Vec<Outcome>, Stop> {
        let mut found: Vec<(Vec<NodeId>, Vec<FormulaId>)> = Vec::new();
        let mut index: HashMap<Vec<FormulaId>, usize> = HashMap::new();
        let mut pending = vec![(node, formulas)];
        while let Some((path, formulas)) = pending.pop() {
            let way = self.split_way(lexicon, path, formulas, &mut pending, fuel)?;
            let Some((path, formulas)) = way else {
                continue;
            };
            match index.get(&formulas) {
                Some(&at) => found[at].0.push(path),
                None => {
                    index.insert(formulas.clone(), found.len());
                    found.push((vec![path], formulas));
                }
            }
        }
        let mut outcomes = Vec::with_capacity(found.len());
        for (paths, rest) in found {
            outcomes.push(Outcome {
                value: self.logic.nodes.any_of(&paths),
                rest: rest.into(),
            });
        }
        Ok(outcomes)
    }

    /// One of the ways that a formula goes by an event, by its number: the value that comes, and what
    /// remains. `None` from their number on. Splits no further than to it, and keeps what it found.
    pub(super) fn way(
        &mut self,
        lexicon: &mut Lexicon,
        (formula, event): (FormulaId, Event),
        number: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<(NodeId, FormulaId)>, Stop> {
        if !self.ways_of.contains_key(&(formula, event)) {
            let derived = self.derive_each(&[formula], event, fuel)?;
            self.ways_of.insert((formula, event), Ways::new(derived));
        }
        loop {
            let Some(ways) = self.ways_of.get_mut(&(formula, event)) else {
                return Ok(None);
            };
            if let Some(&found) = ways.found.get(number) {
                return Ok(Some(found));
            }
            // Put back where fuel runs out: then it is tried again.
            let Some(next) = ways.pending.pop() else {
                return Ok(None);
            };
            ways.is_split += 1;
            let mut pending = Vec::new();
            let (path, formulas) = next.clone();
            let way = self.split_way(lexicon, path, formulas, &mut pending, fuel);
            let Some(ways) = self.ways_of.get_mut(&(formula, event)) else {
                return Ok(None);
            };
            ways.is_split -= 1;
            let before = ways.found.len() + ways.pending.len();
            match &way {
                Err(_) => ways.pending.push(next),
                Ok(None) => ways.pending.extend(pending),
                Ok(Some((path, rest))) => {
                    ways.found.extend(rest.first().map(|&rest| (*path, rest)))
                }
            }
            let after = ways.found.len() + ways.pending.len();
            // One that is split leaves its list of formulas, of one.
            let bytes = with_room(size_of::<(NodeId, Vec<FormulaId>)>())
                + allocated(size_of::<FormulaId>());
            self.bytes += after.saturating_sub(before) * bytes;
            way?;
        }
    }

    /// Whether a way that a formula goes by an event is just being split: what is found out for that
    /// can't count on all ways being there.
    pub(super) fn is_splitting(&self, formula: FormulaId, event: Event) -> bool {
        let ways = self.ways_of.get(&(formula, event));
        ways.is_some_and(|ways| ways.is_split > 0)
    }

    /// Splits a way by a condition on the next value, if there is one; else gives it back.
    #[allow(clippy::type_complexity)]
    fn split_way(
        &mut self,
        lexicon: &mut Lexicon,
        path: NodeId,
        formulas: Vec<FormulaId>,
        pending: &mut Vec<(NodeId, Vec<FormulaId>)>,
        fuel: &mut Fuel,
    ) -> Result<Option<(NodeId, Vec<FormulaId>)>, Stop> {
        fuel.burn(1)?;
        self.charge(lexicon.memory_bytes(), fuel)?;
        if formulas.iter().all(|&id| id == FALSE) {
            return Ok(None);
        }
        if let Some(joined) = self.joined_values(lexicon, &formulas, fuel)? {
            let path = self.logic.nodes.all_of(&[path, joined]);
            if self.sure_cost(lexicon, path, fuel)? != DEAD {
                pending.push((path, vec![TRUE]));
            }
            return Ok(None);
        }
        if path == ANYTHING
            && let &[formula] = &formulas[..]
            && let Some(ways) = self.told_by_constants(lexicon, formula, fuel)?
        {
            // In reverse, as the first is to be taken first.
            let ways = ways.into_iter().rev();
            pending.extend(ways.map(|(value, rest)| (value, vec![rest])));
            return Ok(None);
        }
        let speaking = formulas.iter().find(|&&id| self.logic.facts(id).has_value);
        let Some(&speaking) = speaking else {
            return Ok(Some((path, formulas)));
        };
        // What all must meet needs no second way.
        if let [only] = formulas[..]
            && let Some((values, rest)) = self.demanded(only)
        {
            let mut all = vec![path];
            all.extend(values);
            let path = self.logic.nodes.all_of(&all);
            let mut truths = HashMap::new();
            self.add_implied(lexicon, path, &[rest], &mut truths, fuel)?;
            pending.push((path, self.assume(&[rest], &truths, fuel)?));
            return Ok(None);
        }
        let value = self.first_value(speaking);
        let not = self.logic.nodes.not(value);
        let relation = self.relation(lexicon, path, value, fuel)?;
        // Ways in reverse, as the first is to be taken first.
        let mut ways = Vec::with_capacity(2);
        for (way, truth, excluded) in [
            (not, false, Relation::Within),
            (value, true, Relation::Apart),
        ] {
            if relation == excluded {
                continue;
            }
            let is_within = truth && self.relation(lexicon, way, path, fuel)? == Relation::Within;
            let narrowed = match is_within {
                true => way,
                false => self.logic.nodes.all_of(&[path, way]),
            };
            let is_possible = match relation {
                // The whole condition is looked at where it is used.
                Relation::Unknown if path == ANYTHING && truth => true,
                Relation::Unknown => self.sure_cost(lexicon, narrowed, fuel)? != DEAD,
                _ => true,
            };
            if is_possible {
                ways.push((narrowed, truth));
            }
        }
        // A condition that the others imply is left out of the path.
        let implied = ways.len() == 1;
        for (narrowed, truth) in ways {
            let mut truths = HashMap::from_iter([(value, truth), (not, !truth)]);
            if truth {
                self.add_implied(lexicon, narrowed, &formulas, &mut truths, fuel)?;
            }
            let rest = self.assume(&formulas, &truths, fuel)?;
            pending.push((if implied { path } else { narrowed }, rest));
        }
        Ok(None)
    }
}
