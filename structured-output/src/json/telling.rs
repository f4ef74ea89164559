//! A member that comes later and tells assertions about an object apart: its values are a few disjoint sets
//! (see `atoms`), and with one of them most of the assertions fail. So a formula is a few cases, in each of
//! which little is left of what it says.

use hashbrown::HashMap;

use super::atoms::Atom;
use super::formula::{FALSE, Formula, FormulaId, TRUE};
use super::node::{ANYTHING, Members, Node, NodeId, OPERANDS_PER_STEP};
use super::object::ObjectAt;
use super::programs::Programs;
use super::shape::{NONE, Spellings};
use crate::lexical::{Fuel, Lexicon, Stop};
use crate::options::PropertyOrder;

/// A member, and what assertions about an object say of it.
pub(super) struct Telling {
    /// Its number.
    pub(super) name: u32,
    /// The node that says that it is there.
    has: NodeId,
    /// By assertion that says something of it, the number of what it says, and whether it says nothing else
    /// of what is to come.
    assertions: HashMap<NodeId, (u32, bool)>,
    /// By number of what is said, the cases in which it holds of the value, ascending.
    cases: Vec<Vec<u32>>,
    /// By case, the assertion that the value is of it.
    literals: Vec<NodeId>,
}

impl Programs {
    /// A formula as the cases that a member is not there, or that its value is one of those told apart.
    pub(super) fn cases(
        &mut self,
        formula: FormulaId,
        telling: &Telling,
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, Stop> {
        let mut cases = Vec::new();
        let has = |known: FormulaId| move |node| (node == telling.has).then_some(known);
        let absent = self.with_leaves(formula, &has(FALSE), fuel)?;
        let is_absent = self.logic.literal(telling.has, false);
        cases.push(self.logic.all(&[is_absent, absent]));
        let there = self.with_leaves(formula, &has(TRUE), fuel)?;
        let is_there = self.logic.literal(telling.has, true);
        // Halved again and again, so that each operand is looked at as often as there are halves around it.
        let mut pending = vec![(0..telling.literals.len(), there)];
        while let Some((range, formula)) = pending.pop() {
            fuel.burn(1)?;
            if formula == FALSE || range.is_empty() {
                continue;
            }
            let middle = range.start + range.len() / 2;
            let halves = match range.len() {
                1 => vec![range.clone()],
                _ => vec![middle..range.end, range.start..middle],
            };
            for half in halves {
                let truth = |node| {
                    let &(said, is_all) = telling.assertions.get(&node)?;
                    let holds_in = telling.cases.get(said as usize)?;
                    let first = holds_in.partition_point(|&case| (case as usize) < half.start);
                    let holds = holds_in
                        .get(first)
                        .is_some_and(|&case| half.contains(&(case as usize)));
                    match holds {
                        false => Some(FALSE),
                        true if is_all && half.len() == 1 => Some(TRUE),
                        true => None,
                    }
                };
                let case = self.with_leaves(formula, &truth, fuel)?;
                if half.len() > 1 || range.len() > 1 {
                    pending.push((half, case));
                } else if let Some(&literal) = telling.literals.get(half.start) {
                    let literal = self.logic.literal(literal, true);
                    cases.push(self.logic.all(&[is_there, literal, case]));
                }
            }
        }
        cases.retain(|&case| case != FALSE);
        Ok(cases)
    }

    /// A formula where it is known of some assertions whether they hold.
    fn with_leaves(
        &mut self,
        formula: FormulaId,
        truth: &impl Fn(NodeId) -> Option<FormulaId>,
        fuel: &mut Fuel,
    ) -> Result<FormulaId, Stop> {
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
        fuel.burn(1 + known.len() as u64 / OPERANDS_PER_STEP)?;
        self.charge(0, fuel)?;
        Ok(changed)
    }

    /// The member that tells most assertions apart, but for some.
    pub(super) fn telling(
        &mut self,
        lexicon: &mut Lexicon,
        (at, key): (ObjectAt, u32),
        formula: FormulaId,
        skipped: &[u32],
        fuel: &mut Fuel,
    ) -> Result<Option<Telling>, Stop> {
        let mut assertions = Vec::new();
        for leaf in self.logic.leaves(&[formula], fuel)? {
            if let Formula::Is(node) | Formula::Not(node) = *self.logic.formula(leaf)
                && let Node::Members(_) = self.logic.nodes.node(node)
            {
                assertions.push(node);
            }
        }
        let assertions = Self::each_once(assertions.into_iter());
        let mut names = Vec::new();
        for name in 0..self.plan(at.plan).num_names() {
            fuel.burn(1 + assertions.len() as u64 / OPERANDS_PER_STEP)?;
            if skipped.contains(&name) || !self.comes_later(at, key, name) {
                continue;
            }
            let plan = self.plan(at.plan);
            let said = assertions.iter().map(|&node| plan.value(node, name));
            let said = Self::each_once(said.filter(|&value| value != ANYTHING));
            let mut num_listed = 0;
            for &value in &said {
                num_listed += usize::from(self.is_listed(lexicon, value, fuel)?);
            }
            if !said.is_empty() {
                names.push((num_listed, said.len(), name, said));
            }
        }
        // Those of which lists are said first: they are told apart at once.
        names.sort_by_key(|&(num_listed, num_said, ..)| std::cmp::Reverse((num_listed, num_said)));
        for (_, _, name, said) in names {
            if let Some(atoms) = self.atoms(lexicon, &said, fuel)? {
                let telling = self.told_apart((at, key), name, &assertions, &said, &atoms, fuel)?;
                return Ok(Some(telling));
            }
        }
        Ok(None)
    }

    /// Whether a name may come after a member with a key.
    fn comes_later(&self, at: ObjectAt, key: u32, name: u32) -> bool {
        let is_after = match at.order {
            PropertyOrder::Schema => name > key,
            PropertyOrder::Any => name != key,
        };
        is_after && self.is_open(at, name)
    }

    /// Whether a node's numbers and strings are lists.
    fn is_listed(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        fuel.burn(1)?;
        let shape = self.shape(lexicon, node, fuel)?;
        let is_list = match shape.string {
            NONE => true,
            Spellings::Free => false,
            Spellings::Only(language) => self.listed(lexicon, language, fuel)?.is_some(),
        };
        Ok(is_list
            && match shape.number {
                NONE => true,
                Spellings::Free => false,
                Spellings::Only(language) => self.few_numbers(lexicon, language, fuel)?.is_some(),
            })
    }

    fn told_apart(
        &mut self,
        (at, key): (ObjectAt, u32),
        name: u32,
        all: &[NodeId],
        said: &[NodeId],
        atoms: &[Atom],
        fuel: &mut Fuel,
    ) -> Result<Telling, Stop> {
        let number_of: HashMap<NodeId, u32> = said.iter().copied().zip(0..).collect();
        let mut assertions = HashMap::new();
        for &node in all {
            let plan = self.plan(at.plan);
            let Some(values) = plan.values(node) else {
                continue;
            };
            fuel.burn(1 + values.len() as u64 / OPERANDS_PER_STEP)?;
            let num_names = plan.num_names();
            let is_said = |(key_of, value): (u32, &NodeId)| {
                let is_open = key_of >= num_names || self.comes_later(at, key, key_of);
                key_of != name && is_open && *value != ANYTHING
            };
            if let Some(&number) = number_of.get(&plan.value(node, name)) {
                let says_more = (0..).zip(values.iter()).any(is_said);
                assertions.insert(node, (number, !says_more));
            }
        }
        let mut cases = vec![Vec::new(); said.len()];
        let mut literals = Vec::with_capacity(atoms.len());
        let text: Box<str> = self.plan(at.plan).name(name).unwrap_or_default().into();
        for (case, atom) in (0_u32..).zip(atoms) {
            fuel.burn(1 + atom.said.len() as u64 / OPERANDS_PER_STEP)?;
            for &number in &atom.said {
                if let Some(cases) = cases.get_mut(number as usize) {
                    cases.push(case);
                }
            }
            let members = Members {
                named: [(text.clone(), atom.node)].into(),
                patterns: Box::default(),
                additional: ANYTHING,
            };
            let literal = self.logic.nodes.members(members);
            self.add_to_plan(at.plan, literal, name, atom.node);
            literals.push(literal);
        }
        let has = match self.plan(at.plan).has(name) {
            Some(has) => has,
            None => {
                let has = self.logic.nodes.has(&text);
                self.add_has_to_plan(at.plan, has, name);
                has
            }
        };
        Ok(Telling {
            name,
            has,
            assertions,
            cases,
            literals,
        })
    }
}
