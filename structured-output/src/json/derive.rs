//! What a formula becomes by an item of an array or a member of an object: its derivative
//! (Brzozowski 1964, here by whole values).
//!
//! An assertion about all members becomes a condition on the value that comes next. A formula's
//! derivative is split by those conditions (Shannon 1938): disjoint conditions on the value, and
//! what remains of the formula under each. Conditions that no value meets are left out.

use std::sync::Arc;

use hashbrown::HashMap;

use super::formula::{FALSE, Formula, FormulaId, TRUE};
use super::live::DEAD;
use super::node::{ANYTHING, Node, NodeId};
use super::object::PlanId;
use super::programs::Programs;
use super::relation::Relation;
use crate::lexical::{Fuel, Lexicon, OutOfFuel};

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Item,
    /// A member whose key is of that number in the plan: a name, or, beyond the names, any key of
    /// a class.
    Key(PlanId, u32),
    /// No member with that name, now or later.
    Without(PlanId, u32),
}

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

/// Outcomes, by what there was and what came.
pub(super) type OutcomesOf = HashMap<(Box<[FormulaId]>, Event), Arc<[Outcome]>>;

/// So many conditions on one value that overlap are not split into their parts.
const MANY_CONDITIONS: usize = 6;

impl Programs {
    /// What remains of a formula; it may speak of the value that comes next.
    pub(super) fn derive(
        &mut self,
        formula: FormulaId,
        event: Event,
        fuel: &mut Fuel,
    ) -> Result<FormulaId, OutOfFuel> {
        if let Some(&known) = self.derived.get(&(formula, event)) {
            return Ok(known);
        }
        fuel.burn(1)?;
        let derived = match self.logic.formula(formula).clone() {
            Formula::All(list) => {
                let mut rest = Vec::with_capacity(list.len());
                for &id in &list {
                    rest.push(self.derive(id, event, fuel)?);
                }
                self.logic.all(&rest)
            }
            Formula::Any(list) => {
                let mut rest = Vec::with_capacity(list.len());
                for &id in &list {
                    rest.push(self.derive(id, event, fuel)?);
                }
                self.logic.any(&rest)
            }
            Formula::Is(node) => self.derive_literal(formula, node, true, event),
            Formula::Not(node) => self.derive_literal(formula, node, false, event),
            Formula::Unique { set, holds } => {
                let known = self.logic.set(set).to_vec();
                let repeats = self.logic.nodes.any_of(&known);
                let value = if holds {
                    self.logic.nodes.not(repeats)
                } else {
                    repeats
                };
                let value = self.logic.value(value);
                if holds {
                    self.logic.all(&[value, formula])
                } else {
                    self.logic.any(&[value, formula])
                }
            }
            Formula::Value(_) => formula,
        };
        if self.logic.take_too_deep() {
            return Err(fuel.exhaust());
        }
        self.derived.insert((formula, event), derived);
        Ok(derived)
    }

    fn derive_literal(
        &mut self,
        formula: FormulaId,
        id: NodeId,
        holds: bool,
        event: Event,
    ) -> FormulaId {
        if let Event::Key(plan, key) | Event::Without(plan, key) = event
            && let Node::Has(name) = self.logic.nodes.node(id)
        {
            let is_it = self.plan(plan).name(key) == Some(&**name);
            return match (is_it, event) {
                (false, _) => formula,
                (true, Event::Key(..)) if holds => TRUE,
                (true, Event::Without(..)) if !holds => TRUE,
                (true, _) => FALSE,
            };
        }
        if let (Node::Members(_), Event::Key(plan, key)) = (self.logic.nodes.node(id), event) {
            let plan = self.plan(plan);
            let value = plan.value(id, key);
            let rest = if plan.is_only_of(id, key) {
                ANYTHING
            } else {
                id
            };
            return self.each(value, rest, holds);
        }
        let nodes = &mut self.logic.nodes;
        // What the item is to meet, and the assertion about those after it.
        let (value, rest) = match (nodes.node(id), event) {
            (Node::Items { prefix, rest }, Event::Item) => {
                let (rest, mut prefix) = (*rest, prefix.to_vec());
                let value = match prefix.is_empty() {
                    true => rest,
                    false => prefix.remove(0),
                };
                (value, nodes.items(prefix, rest))
            }
            (&Node::MinItems(min), Event::Item) => {
                let less = nodes.min_items(min - 1);
                return self.logic.literal(less, holds);
            }
            (&Node::Contains { item, min }, Event::Item) => {
                let less = nodes.contains(item, min - 1);
                let less = self.logic.literal(less, holds);
                return self.logic.choose(item, less, formula);
            }
            (&Node::MinProperties(min), Event::Key(..)) => {
                let less = nodes.min_properties(min - 1);
                return self.logic.literal(less, holds);
            }
            _ => return formula,
        };
        self.each(value, rest, holds)
    }

    /// The next value is such and the rest holds, or else the contrary.
    fn each(&mut self, value: NodeId, rest: NodeId, holds: bool) -> FormulaId {
        if holds {
            let (value, rest) = (self.logic.value(value), self.logic.literal(rest, true));
            self.logic.all(&[value, rest])
        } else {
            let not = self.logic.nodes.not(value);
            let (value, rest) = (self.logic.value(not), self.logic.literal(rest, false));
            self.logic.any(&[value, rest])
        }
    }

    /// What some formulas become by an event, by the value that comes. Values after which no
    /// formula can hold for a plain reason are left out.
    pub(super) fn outcomes(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        event: Event,
        fuel: &mut Fuel,
    ) -> Result<Arc<[Outcome]>, OutOfFuel> {
        let key = (formulas.into(), event);
        if let Some(known) = self.outcomes_of.get(&key) {
            return Ok(Arc::clone(known));
        }
        let derived = self.derive_each(formulas, event, fuel)?;
        let outcomes: Arc<[Outcome]> = self.split(lexicon, derived, fuel)?.into();
        self.bytes +=
            outcomes.len() * (size_of::<Outcome>() + 4 * formulas.len()) + 4 * formulas.len() + 64;
        self.outcomes_of.insert(key, Arc::clone(&outcomes));
        Ok(outcomes)
    }

    fn derive_each(
        &mut self,
        formulas: &[FormulaId],
        event: Event,
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, OutOfFuel> {
        let mut derived = Vec::with_capacity(formulas.len());
        for &formula in formulas {
            derived.push(self.derive(formula, event, fuel)?);
        }
        Ok(derived)
    }

    /// Whether an event can come with a value, such that what remains is `good`. Looks no further
    /// than to the first such value.
    pub(super) fn has_outcome(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        event: Event,
        fuel: &mut Fuel,
        good: &mut impl FnMut(
            &mut Self,
            &mut Lexicon,
            &[FormulaId],
            &mut Fuel,
        ) -> Result<bool, OutOfFuel>,
    ) -> Result<bool, OutOfFuel> {
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

    fn without_values(&mut self, formula: FormulaId) -> FormulaId {
        if !self.logic.facts(formula).has_value {
            return formula;
        }
        let mut known = HashMap::new();
        self.logic.map(
            formula,
            &mut known,
            &mut |logic, leaf| match logic.formula(leaf) {
                Formula::Value(_) => FALSE,
                _ => leaf,
            },
        )
    }

    /// Splits formulas by what they say of the next value.
    fn split(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: Vec<FormulaId>,
        fuel: &mut Fuel,
    ) -> Result<Vec<Outcome>, OutOfFuel> {
        let mut found: Vec<(Vec<NodeId>, Vec<FormulaId>)> = Vec::new();
        let mut index: HashMap<Vec<FormulaId>, usize> = HashMap::new();
        let mut pending = vec![(ANYTHING, formulas)];
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
    ) -> Result<Option<(NodeId, FormulaId)>, OutOfFuel> {
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
                Err(OutOfFuel) => ways.pending.push(next),
                Ok(None) => ways.pending.extend(pending),
                Ok(Some((path, rest))) => {
                    ways.found.extend(rest.first().map(|&rest| (*path, rest)))
                }
            }
            let after = ways.found.len() + ways.pending.len();
            self.bytes += after.saturating_sub(before) * size_of::<(NodeId, Vec<FormulaId>, u64)>();
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
    ) -> Result<Option<(NodeId, Vec<FormulaId>)>, OutOfFuel> {
        fuel.burn(1)?;
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

    /// What the next value has to be, where a formula speaks of nothing else, and by many conditions that
    /// overlap: their parts would be too many to be told apart, and what remains after them is the same.
    fn joined_values(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<Option<NodeId>, OutOfFuel> {
        let &[formula] = formulas else {
            return Ok(None);
        };
        if !self.logic.facts(formula).has_value {
            return Ok(None);
        }
        let mut conditions = Vec::new();
        for leaf in self.logic.leaves(formulas) {
            fuel.burn(1)?;
            let Formula::Value(node) = *self.logic.formula(leaf) else {
                return Ok(None);
            };
            conditions.push(match *self.logic.nodes.node(node) {
                Node::Not(inner) => inner,
                _ => node,
            });
        }
        let conditions = Self::each_once(conditions.into_iter());
        if conditions.len() < MANY_CONDITIONS {
            return Ok(None);
        }
        let mut num_overlapping = 0;
        for &condition in &conditions[1..] {
            let relation = self.relation(lexicon, conditions[0], condition, fuel)?;
            num_overlapping += usize::from(relation == Relation::Unknown);
        }
        if num_overlapping + 1 < MANY_CONDITIONS {
            return Ok(None);
        }
        Ok(Some(self.node_of_values(formula, &mut HashMap::new())))
    }

    /// A formula that speaks of the next value alone, as a node.
    fn node_of_values(
        &mut self,
        formula: FormulaId,
        known: &mut HashMap<FormulaId, NodeId>,
    ) -> NodeId {
        if let Some(&known) = known.get(&formula) {
            return known;
        }
        let node = match self.logic.formula(formula).clone() {
            Formula::Value(node) => node,
            Formula::All(list) => {
                let all: Vec<NodeId> = list
                    .iter()
                    .map(|&one| self.node_of_values(one, known))
                    .collect();
                self.logic.nodes.all_of(&all)
            }
            Formula::Any(list) => {
                let any: Vec<NodeId> = list
                    .iter()
                    .map(|&one| self.node_of_values(one, known))
                    .collect();
                self.logic.nodes.any_of(&any)
            }
            _ => ANYTHING,
        };
        known.insert(formula, node);
        node
    }

    /// Adds what a value's being such implies for the other conditions of some formulas. Branches
    /// that a constant tells apart are decided at once by it.
    fn add_implied(
        &mut self,
        lexicon: &mut Lexicon,
        path: NodeId,
        formulas: &[FormulaId],
        truths: &mut HashMap<NodeId, bool>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        for leaf in self.logic.leaves(formulas) {
            fuel.burn(1)?;
            let Formula::Value(condition) = *self.logic.formula(leaf) else {
                continue;
            };
            if truths.contains_key(&condition) {
                continue;
            }
            let not = self.logic.nodes.not(condition);
            match self.relation(lexicon, path, condition, fuel)? {
                Relation::Within => {
                    truths.extend([(condition, true), (not, false)]);
                    continue;
                }
                Relation::Apart => {
                    truths.extend([(condition, false), (not, true)]);
                    continue;
                }
                Relation::Partly => continue,
                Relation::Unknown => {}
            }
            for (way, truth) in [(condition, false), (not, true)] {
                let both = self.logic.nodes.all_of(&[path, way]);
                if self.sure_cost(lexicon, both, fuel)? == DEAD {
                    truths.extend([(condition, truth), (not, !truth)]);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Conditions without which a formula doesn't hold, and the formula without them.
    fn demanded(&mut self, formula: FormulaId) -> Option<(Vec<NodeId>, FormulaId)> {
        let list = match self.logic.formula(formula) {
            Formula::Value(node) => return Some((vec![*node], TRUE)),
            Formula::All(list) => list.clone(),
            _ => return None,
        };
        let (mut values, mut rest) = (Vec::new(), Vec::new());
        for &id in &list {
            match self.logic.formula(id) {
                Formula::Value(node) => values.push(*node),
                _ => rest.push(id),
            }
        }
        if values.is_empty() {
            return None;
        }
        Some((values, self.logic.all(&rest)))
    }

    /// The first condition on the next value, in the positive.
    fn first_value(&self, formula: FormulaId) -> NodeId {
        let mut id = formula;
        loop {
            match self.logic.formula(id) {
                Formula::All(list) | Formula::Any(list) => {
                    let speaks = |id: &&FormulaId| self.logic.facts(**id).has_value;
                    match list.iter().find(speaks) {
                        Some(&next) => id = next,
                        None => return ANYTHING,
                    }
                }
                Formula::Value(node) => {
                    return match *self.logic.nodes.node(*node) {
                        Node::Not(inner) => inner,
                        _ => *node,
                    };
                }
                _ => return ANYTHING,
            }
        }
    }

    /// Formulas where it is known of some conditions on the next value whether they hold.
    fn assume(
        &mut self,
        formulas: &[FormulaId],
        truths: &HashMap<NodeId, bool>,
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, OutOfFuel> {
        let mut known = HashMap::new();
        let mut rest = Vec::with_capacity(formulas.len());
        for &formula in formulas {
            if !self.logic.facts(formula).has_value {
                rest.push(formula);
                continue;
            }
            rest.push(self.logic.map(formula, &mut known, &mut |logic, leaf| {
                let truth = match logic.formula(leaf) {
                    Formula::Value(node) => truths.get(node),
                    _ => None,
                };
                truth.map_or(leaf, |&truth| if truth { TRUE } else { FALSE })
            }));
        }
        fuel.burn(known.len() as u64)?;
        Ok(rest)
    }
}
