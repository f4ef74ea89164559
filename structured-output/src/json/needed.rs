//! Members with which an object may end, where those that must come are enough: told without a search.

use hashbrown::{HashMap, HashSet};

use super::formula::{Formula, FormulaId};
use super::live::{DEAD, WayMember};
use super::node::{ANYTHING, Node, NodeId, OPERANDS_PER_STEP};
use super::object::ObjectAt;
use super::plan::{Plan, PlanId, spelled};
use super::programs::Programs;
use crate::lexical::{Fuel, Lexicon, Stop};

/// An object with some names, each once, and nothing else.
struct Needed {
    plan: PlanId,
    names: Vec<u32>,
    /// The nodes that say that these are there.
    has: HashSet<NodeId>,
}

/// What the names that must come tell of an object's end.
pub(super) enum End {
    /// These members end it, in the order of the plan.
    Members(Vec<WayMember>),
    /// It has no end: one of the names has no value.
    Never,
    /// More or other names are needed, or values that do more than they must.
    Unknown,
}

impl Programs {
    /// How an object ends with the names that a formula asks for in any case. Linear in the formula.
    pub(super) fn end_with_needed(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<End, Stop> {
        let Formula::All(list) = self.logic.formula(formula) else {
            return Ok(End::Unknown);
        };
        let list = list.clone();
        fuel.burn(list.len() as u64 / OPERANDS_PER_STEP)?;
        let plan = self.plan(at.plan);
        let mut needed = Needed {
            plan: at.plan,
            names: Vec::new(),
            has: HashSet::new(),
        };
        let (mut tables, mut others) = (Vec::new(), Vec::new());
        for &id in &list {
            let Formula::Is(node) = *self.logic.formula(id) else {
                others.push(id);
                continue;
            };
            match self.logic.nodes.node(node) {
                Node::Has(name) => match plan.number(name) {
                    Some(number) if self.is_open(at, number) => {
                        needed.names.push(number);
                        needed.has.insert(node);
                    }
                    _ => return Ok(End::Unknown),
                },
                Node::Members(_) => tables.extend(plan.values(node).cloned()),
                _ => others.push(id),
            }
        }
        needed.names.sort_unstable();
        let mut known = HashMap::new();
        for &id in &others {
            if !self.holds_with(id, &needed, &mut known, fuel)? {
                return Ok(End::Unknown);
            }
        }
        let mut members = Vec::with_capacity(needed.names.len());
        for &name in &needed.names {
            fuel.burn(1 + tables.len() as u64 / OPERANDS_PER_STEP)?;
            let values: Vec<NodeId> = tables.iter().map(|table| table[name as usize]).collect();
            let value = self.logic.nodes.all_of(&values);
            if self.cost(lexicon, value, fuel)? == DEAD {
                return Ok(End::Never);
            }
            let text = self.plan(at.plan).name(name);
            members.push((spelled(text.unwrap_or_default()), value));
        }
        Ok(End::Members(members))
    }

    /// Whether a formula surely holds of an object, whatever the values of its members are. Recursion is
    /// bounded by the depth of formulas; of a part that several share it is told once.
    fn holds_with(
        &self,
        id: FormulaId,
        object: &Needed,
        known: &mut HashMap<FormulaId, bool>,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let (list, is_all) = match self.logic.formula(id) {
            Formula::All(list) => (list, true),
            Formula::Any(list) => (list, false),
            _ => return Ok(self.literal_holds_with(id, object)),
        };
        if let Some(&known) = known.get(&id) {
            return Ok(known);
        }
        fuel.burn(1 + list.len() as u64 / OPERANDS_PER_STEP)?;
        let mut holds = is_all;
        for &id in list {
            if self.holds_with(id, object, known, fuel)? != is_all {
                holds = !is_all;
                break;
            }
        }
        known.insert(id, holds);
        Ok(holds)
    }

    fn literal_holds_with(&self, id: FormulaId, object: &Needed) -> bool {
        match self.logic.formula(id) {
            Formula::Is(node) => match self.logic.nodes.node(*node) {
                Node::Has(_) => object.has.contains(node),
                Node::MinProperties(min) => object.names.len() as u64 >= u64::from(*min),
                Node::Members(_) => says_nothing(self.plan(object.plan), *node, &object.names),
                _ => false,
            },
            Formula::Not(node) => match self.logic.nodes.node(*node) {
                Node::Has(_) => !object.has.contains(node),
                Node::MinProperties(min) => (object.names.len() as u64) < u64::from(*min),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Whether an assertion about members allows some names any value.
fn says_nothing(plan: &Plan, members: NodeId, names: &[u32]) -> bool {
    let values = plan.values(members);
    values.is_some_and(|values| names.iter().all(|&name| values[name as usize] == ANYTHING))
}
