//! What a formula becomes by an item of an array or a member of an object: its derivative
//! (Brzozowski 1964, here by whole values).
//!
//! An assertion about all members becomes a condition on the value that comes next; `ways` splits
//! the derivative by those.

use super::facts::bit_of;
use super::formula::{FALSE, Formula, FormulaId, TRUE};
use super::node::{ANYTHING, Node, NodeId};
use super::plan::PlanId;
use super::programs::Programs;
use crate::bound::Bound;
use crate::lexical::{Fuel, Stop};

/// A look-up among what was derived takes as long as so many operands.
const LOOK_UP: usize = 4;

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

impl Programs {
    /// What remains of a formula; it may speak of the value that comes next.
    pub(super) fn derive(
        &mut self,
        formula: FormulaId,
        event: Event,
        fuel: &mut Fuel,
    ) -> Result<FormulaId, Stop> {
        if !self.is_concerned(formula, event) {
            return Ok(formula);
        }
        self.logic.count(LOOK_UP);
        if let Some(&known) = self.derived.get(&(formula, event)) {
            return Ok(known);
        }
        fuel.burn(1)?;
        self.charge(0, fuel)?;
        let derived = match self.logic.formula(formula).clone() {
            Formula::All(list) => {
                // First what the key decides by itself: mostly little is left to derive then.
                let key = match event {
                    Event::Key(plan, key) => self.plan(plan).has(key).map(|has| (has, true)),
                    Event::Without(plan, key) => self.plan(plan).has(key).map(|has| (has, false)),
                    Event::Item => None,
                };
                let list = match key {
                    Some(_) => self.logic.decided_by_keys(&list, key),
                    None => Some(list.to_vec()),
                };
                match list {
                    Some(mut rest) => {
                        for id in &mut rest {
                            *id = self.derive(*id, event, fuel)?;
                        }
                        self.logic.all(&rest)
                    }
                    None => FALSE,
                }
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
                fuel.burn(known.len() as u64)?;
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
            return Err(fuel.exhaust(Bound::Conditions));
        }
        self.derived.insert((formula, event), derived);
        Ok(derived)
    }

    /// Whether an event may change a formula.
    fn is_concerned(&self, formula: FormulaId, event: Event) -> bool {
        let (Event::Key(plan, key) | Event::Without(plan, key)) = event else {
            return true;
        };
        let facts = self.logic.facts(formula);
        let plan = self.plan(plan);
        let has = plan.has(key);
        facts.has_members
            || has.is_some_and(|has| facts.names & bit_of(has) != 0)
            || facts.member_names & plan.bit_of(key) != 0
    }

    pub(super) fn derive_each(
        &mut self,
        formulas: &[FormulaId],
        event: Event,
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, Stop> {
        let mut derived = Vec::with_capacity(formulas.len());
        for &formula in formulas {
            derived.push(self.derive(formula, event, fuel)?);
        }
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
            && let Node::Has(_) = self.logic.nodes.node(id)
        {
            let is_it = self.plan(plan).has(key) == Some(id);
            return match (is_it, event) {
                (false, _) => formula,
                (true, Event::Key(..)) if holds => TRUE,
                (true, Event::Without(..)) if !holds => TRUE,
                (true, _) => FALSE,
            };
        }
        if let (Node::Members(_), Event::Without(plan, key)) = (self.logic.nodes.node(id), event) {
            // Of a key that doesn't come it says nothing, and of others neither.
            return match self.plan(plan).is_only_of(id, key) {
                true => self.logic.literal(ANYTHING, holds),
                false => formula,
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
}
