//! A member that comes later and tells assertions about an object apart: of those that speak of a constant
//! of it no two can hold. So a formula is a few cases, in each of which little is left of what the
//! others say.

use hashbrown::{HashMap, HashSet};

use super::formula::{FALSE, Formula, FormulaId, TRUE};
use super::node::{ANYTHING, Node, NodeId, OPERANDS_PER_STEP};
use super::object::ObjectAt;
use super::programs::Programs;
use crate::lexical::{Fuel, Lexicon, OutOfFuel};
use crate::options::PropertyOrder;

/// Assertions about an object's members, by what they say of one of them.
pub(super) struct Telling {
    /// The node that says that the member is there.
    pub(super) has: NodeId,
    /// Those that say the same of its value. No value is in what two groups say.
    pub(super) groups: Vec<Vec<NodeId>>,
}

impl Programs {
    /// A formula as the cases that one of some assertions holds, of which those of different groups can't
    /// hold together, and that none does.
    pub(super) fn cases(
        &mut self,
        formula: FormulaId,
        groups: &[Vec<NodeId>],
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, OutOfFuel> {
        let mut number_of: HashMap<NodeId, usize> = HashMap::new();
        for (number, group) in groups.iter().enumerate() {
            number_of.extend(group.iter().map(|&assertion| (assertion, number)));
        }
        let mut cases = Vec::new();
        // Halved again and again, so that each operand is looked at as often as there are halves around it.
        let mut pending = vec![(0..groups.len(), formula)];
        while let Some((range, formula)) = pending.pop() {
            fuel.burn(1)?;
            if formula == FALSE {
                continue;
            }
            let middle = range.start + range.len() / 2;
            if range.len() > 1 {
                for (kept, left_out) in [
                    (middle..range.end, range.start..middle),
                    (range.start..middle, middle..range.end),
                ] {
                    let none = |node| {
                        let number = number_of.get(&node);
                        number
                            .is_some_and(|at| left_out.contains(at))
                            .then_some(FALSE)
                    };
                    pending.push((kept, self.with_leaves(formula, &none, fuel)?));
                }
                continue;
            }
            for &assertion in groups.get(range.start).map_or(&[][..], |group| group) {
                let holds = |node| (node == assertion).then_some(TRUE);
                let case = self.with_leaves(formula, &holds, fuel)?;
                let literal = self.logic.literal(assertion, true);
                cases.push(self.logic.all(&[literal, case]));
            }
        }
        let none = |node| number_of.get(&node).map(|_| FALSE);
        let rest = self.with_leaves(formula, &none, fuel)?;
        if rest != FALSE {
            let mut all = vec![rest];
            for &assertion in groups.iter().flatten() {
                all.push(self.logic.literal(assertion, false));
            }
            cases.push(self.logic.all(&all));
        }
        Ok(cases)
    }

    /// A formula where it is known of some assertions whether they hold.
    pub(super) fn with_leaves(
        &mut self,
        formula: FormulaId,
        truth: &impl Fn(NodeId) -> Option<FormulaId>,
        fuel: &mut Fuel,
    ) -> Result<FormulaId, OutOfFuel> {
        let mut known = HashMap::new();
        let changed = self.logic.map(formula, &mut known, &mut |logic, leaf| {
            let (node, holds) = match *logic.formula(leaf) {
                Formula::Is(node) => (node, true),
                Formula::Not(node) => (node, false),
                _ => return leaf,
            };
            match (truth(node), holds) {
                (None, _) => leaf,
                (Some(truth), true) => truth,
                (Some(TRUE), false) => FALSE,
                (Some(_), false) => TRUE,
            }
        });
        fuel.burn(1)?;
        self.charge(0, fuel)?;
        Ok(changed)
    }

    /// The assertions about the member that tells most of them apart.
    pub(super) fn telling(
        &mut self,
        lexicon: &mut Lexicon,
        (at, key): (ObjectAt, u32),
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Telling>, OutOfFuel> {
        let plan = at.plan;
        let first = match at.order {
            PropertyOrder::Schema => key + 1,
            PropertyOrder::Any => 0,
        };
        let mut assertions = Vec::new();
        for leaf in self.logic.leaves(&[formula], fuel)? {
            if let Formula::Is(node) | Formula::Not(node) = *self.logic.formula(leaf)
                && let Node::Members(_) = self.logic.nodes.node(node)
            {
                assertions.push(node);
            }
        }
        let assertions = Self::each_once(assertions.into_iter());
        let mut best: Option<Telling> = None;
        for name in first..self.plan(plan).num_names() {
            fuel.burn(1 + assertions.len() as u64 / OPERANDS_PER_STEP)?;
            if name == key || !self.is_open(at, name) {
                continue;
            }
            let Some(has) = self.plan(plan).has(name) else {
                continue;
            };
            let mut groups: Vec<Vec<NodeId>> = Vec::new();
            // By what is said, its group, where it is apart from what the others say.
            let mut numbers: HashMap<NodeId, Option<usize>> = HashMap::new();
            let mut strings = HashSet::new();
            for &assertion in &assertions {
                let value = self.plan(plan).value(assertion, name);
                let number = match numbers.get(&value) {
                    Some(&known) => known,
                    None => {
                        let is_apart = value != ANYTHING
                            && self.lists_others(lexicon, value, &mut strings, fuel)?;
                        let number = is_apart.then_some(groups.len());
                        groups.extend(is_apart.then(Vec::new));
                        numbers.insert(value, number);
                        number
                    }
                };
                if let Some(group) = number.and_then(|number| groups.get_mut(number)) {
                    group.push(assertion);
                }
            }
            let best_so_far = best.as_ref().map_or(1, |best| best.groups.len());
            if groups.len() > best_so_far {
                best = Some(Telling { has, groups });
            }
        }
        Ok(best)
    }
}
