//! What a formula says of the value that comes next, its conditions: which there are, what one says of
//! the others, and what remains where it is known of some whether they hold.

use hashbrown::{HashMap, HashSet};

use super::formula::{FALSE, Formula, FormulaId, TRUE};
use super::live::DEAD;
use super::node::{ANYTHING, Node, NodeId};
use super::programs::Programs;
use super::relation::Relation;
use super::shape::{NONE, Spellings};
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// So many conditions on one value that overlap are not split into their parts.
const MANY_CONDITIONS: usize = 6;

/// Fewer alternatives with a constant each are compared two by two.
const MANY_CONSTANTS: usize = 8;

impl Programs {
    pub(super) fn without_values(&mut self, formula: FormulaId) -> FormulaId {
        self.logic
            .map_values(formula, &mut HashMap::new(), &|_| Some(false))
    }

    /// What the next value has to be, where a formula speaks of nothing else, and by many conditions that
    /// overlap: their parts would be too many to be told apart, and what remains after them is the same.
    pub(super) fn joined_values(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<Option<NodeId>, Stop> {
        let &[formula] = formulas else {
            return Ok(None);
        };
        let facts = self.logic.facts(formula);
        if !facts.has_value || facts.has_others {
            return Ok(None);
        }
        let mut conditions = Vec::new();
        for node in self.logic.values(formulas, fuel)? {
            fuel.burn(1)?;
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

    /// The ways of a formula of many alternatives, each with a constant that the next value has to be, and
    /// what remains after it: at once, where comparing each two of them would take the square of their number.
    pub(super) fn told_by_constants(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<(NodeId, FormulaId)>>, Stop> {
        let alternatives = match self.logic.formula(formula) {
            Formula::Any(list) if list.len() >= MANY_CONSTANTS => list.clone(),
            _ => return Ok(None),
        };
        let mut ways: Vec<(NodeId, Vec<FormulaId>)> = Vec::with_capacity(alternatives.len());
        // By the language of a constant, and by what single values it consists of.
        let mut index: HashMap<ExprId, usize> = HashMap::new();
        let mut seen: HashSet<ExprId> = HashSet::new();
        for &one in &alternatives {
            fuel.burn(1)?;
            let Some((values, rest)) = self.demanded(one) else {
                return Ok(None);
            };
            let [value] = values[..] else {
                return Ok(None);
            };
            if self.logic.facts(rest).has_value {
                return Ok(None);
            }
            let shape = self.shape(lexicon, value, fuel)?;
            let of_one_kind = match (shape.number, shape.string) {
                (number, NONE) => number,
                (NONE, string) => string,
                _ => return Ok(None),
            };
            let Spellings::Only(language) = of_one_kind else {
                return Ok(None);
            };
            if shape.words != 0 || shape.array != FALSE || shape.object != FALSE {
                return Ok(None);
            }
            if let Some(&at) = index.get(&language) {
                ways[at].1.push(rest);
                continue;
            }
            for part in lexicon.alternatives(language) {
                if !self.logic.nodes.is_single_value(part) || !seen.insert(part) {
                    return Ok(None);
                }
            }
            index.insert(language, ways.len());
            ways.push((value, vec![rest]));
        }
        let ways = ways.into_iter();
        let ways = ways.map(|(value, rests)| (value, self.logic.any(&rests)));
        Ok(Some(ways.collect()))
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
    pub(super) fn add_implied(
        &mut self,
        lexicon: &mut Lexicon,
        path: NodeId,
        formulas: &[FormulaId],
        truths: &mut HashMap<NodeId, bool>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        for condition in self.logic.values(formulas, fuel)? {
            fuel.burn(1)?;
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
    pub(super) fn demanded(&mut self, formula: FormulaId) -> Option<(Vec<NodeId>, FormulaId)> {
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
    pub(super) fn first_value(&self, formula: FormulaId) -> NodeId {
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
    pub(super) fn assume(
        &mut self,
        formulas: &[FormulaId],
        truths: &HashMap<NodeId, bool>,
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, Stop> {
        let mut known = HashMap::new();
        let mut rest = Vec::with_capacity(formulas.len());
        for &formula in formulas {
            if !self.logic.facts(formula).has_value {
                rest.push(formula);
                continue;
            }
            let truth = |node| truths.get(&node).copied();
            let assumed = self.logic.map_values(formula, &mut known, &truth);
            // What the value leaves of an alternative may be a key that must come.
            rest.push(self.logic.with_keys_decided(assumed));
        }
        fuel.burn(known.len() as u64)?;
        Ok(rest)
    }
}
