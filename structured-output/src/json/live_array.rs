//! Whether an array can end, and with which items.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, Formula, FormulaId, NO_ITEMS};
use super::live::DEAD;
use super::node::{Node, NodeId};
use super::programs::Programs;
use crate::bound::Bound;
use crate::lexical::search::FARTHEST;
use crate::lexical::{Fuel, Lexicon, Stop};

impl Programs {
    /// Length of a short rest of an array after an item; [`DEAD`] where there is none.
    pub(super) fn array_cost(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if formula == FALSE {
            return Ok(DEAD);
        }
        if self.logic.facts(formula).closes {
            return Ok(1);
        }
        if let Some(&known) = self.costs.arrays.get(&formula) {
            return Ok(known);
        }
        let (cost, is_sure) = self.with_assumptions(|programs| {
            if let Formula::Any(list) = programs.logic.formula(formula) {
                for one in list.clone() {
                    let cost = programs.array_cost(lexicon, one, fuel)?;
                    if cost != DEAD {
                        programs.costs.array_choices.insert(formula, one);
                        return Ok(cost);
                    }
                }
                return Ok(DEAD);
            }
            if programs.logic.facts(formula).has_unique {
                programs.cost_with_distinct(lexicon, formula, fuel)
            } else if let Some(cost) = programs.plain_array_cost(lexicon, formula, fuel)? {
                Ok(cost)
            } else {
                let Some((cost, items)) = programs.items_to_end(lexicon, formula, fuel)? else {
                    return Ok(DEAD);
                };
                programs.costs.note_items(formula, items);
                Ok(cost)
            }
        })?;
        if is_sure {
            self.costs.arrays.insert(formula, cost);
        }
        Ok(cost)
    }

    /// As [`Programs::array_cost`], after an item that is not in the formula's set yet.
    pub(super) fn array_cost_with_item(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let cost = self.array_cost(lexicon, formula, fuel)?;
        if cost != DEAD || formula == FALSE || !self.logic.facts(formula).has_repeated {
            return Ok(cost);
        }
        let repeated = self.where_distinct(formula, false);
        self.cost_of_repeating(lexicon, repeated, NO_ITEMS, fuel)
    }

    /// The cost of an array without choices: its items one by one, and how many.
    fn plain_array_cost(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        let Some(mut plain) = self.plain_array(formula) else {
            return Ok(None);
        };
        if plain.is_contradicted() {
            return Ok(Some(DEAD));
        }
        let mut bytes = 1_u32;
        while plain.min > 0 {
            let (value, times) = plain.next(&mut self.logic.nodes);
            fuel.burn(1)?;
            let cost = self.cost(lexicon, value, fuel)?;
            if cost == DEAD {
                return Ok(Some(DEAD));
            }
            let each = cost.saturating_add(1).saturating_mul(times);
            bytes = bytes.saturating_add(each).min(FARTHEST);
        }
        Ok(Some(bytes))
    }

    pub(super) fn plain_array(&self, formula: FormulaId) -> Option<PlainArray> {
        let mut plain = PlainArray {
            items: Vec::new(),
            contains: None,
            min: 0,
            max: None,
        };
        let list = match self.logic.formula(formula) {
            Formula::All(list) => list.to_vec(),
            _ => vec![formula],
        };
        for id in list {
            match self.logic.formula(id) {
                Formula::Is(node) => match self.logic.nodes.node(*node) {
                    Node::Items { prefix, rest } => plain.items.push((prefix.to_vec(), *rest)),
                    Node::MinItems(min) => plain.min = *min,
                    Node::Contains { item, min } if plain.contains.is_none() => {
                        plain.contains = Some((*item, *min));
                    }
                    _ => return None,
                },
                Formula::Not(node) => match self.logic.nodes.node(*node) {
                    Node::MinItems(more) => plain.max = Some(*more - 1),
                    _ => return None,
                },
                _ => return None,
            }
        }
        // Which of its first items an array is to contain would have to be chosen.
        let has_prefix = plain.items.iter().any(|(prefix, _)| !prefix.is_empty());
        if let Some((_, least)) = plain.contains {
            if has_prefix {
                return None;
            }
            plain.min = plain.min.max(least);
        }
        Some(plain)
    }

    /// Items with which an array without unique items may end after another one, and the length
    /// of that: the way of least cost (Dijkstra 1959).
    pub(super) fn items_to_end(
        &mut self,
        lexicon: &mut Lexicon,
        start: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<(u32, Vec<NodeId>)>, Stop> {
        let mut best: HashMap<FormulaId, (u32, FormulaId, NodeId)> = HashMap::new();
        let mut queue = BinaryHeap::from([Reverse((0_u32, start))]);
        while let Some(Reverse((cost, formula))) = queue.pop() {
            fuel.burn(1)?;
            if best.len() > Bound::WaysThroughArrays.max() {
                return Err(fuel.exhaust(Bound::WaysThroughArrays));
            }
            if best.get(&formula).is_some_and(|known| known.0 < cost) {
                continue;
            }
            if self.logic.facts(formula).closes {
                let total = cost.saturating_add(1).min(FARTHEST);
                let (mut at, mut items) = (formula, Vec::new());
                while at != start
                    && let Some(&(_, before, value)) = best.get(&at)
                {
                    items.push(value);
                    at = before;
                    let so_far = best.get(&at).map_or(0, |known| known.0);
                    if at != start {
                        self.costs.arrays.entry(at).or_insert(total - so_far);
                    }
                }
                items.reverse();
                return Ok(Some((total, items)));
            }
            let outcomes = self.outcomes(lexicon, &[formula], Event::Item, fuel)?;
            for outcome in outcomes.iter() {
                let (value, rest) = (outcome.value, outcome.rest[0]);
                if rest == formula {
                    continue;
                }
                let bytes = self.cost(lexicon, value, fuel)?;
                if bytes == DEAD {
                    continue;
                }
                let reached = cost.saturating_add(bytes).saturating_add(1).min(FARTHEST);
                let known = best.get(&rest).map_or(DEAD, |known| known.0);
                if rest != start && reached < known {
                    best.insert(rest, (reached, formula, value));
                    queue.push(Reverse((reached, rest)));
                }
            }
        }
        Ok(None)
    }
}

/// An array whose items are told by their position alone, or, where all are alike, by what so many of
/// them are to be.
pub(super) struct PlainArray {
    items: Vec<(Vec<NodeId>, NodeId)>,
    /// What so many items at least are to be beside that. They come first.
    contains: Option<(NodeId, u32)>,
    /// How many items there are to be at least.
    pub(super) min: u32,
    max: Option<u32>,
}

impl PlainArray {
    /// Whether it is to have more items than it may.
    pub(super) fn is_contradicted(&self) -> bool {
        self.max.is_some_and(|max| max < self.min)
    }

    /// The next item, and how many in a row are such; they are over then.
    pub(super) fn next(&mut self, nodes: &mut super::node::Nodes) -> (NodeId, u32) {
        let mut all = Vec::with_capacity(self.items.len());
        let mut is_last = true;
        for (prefix, rest) in &mut self.items {
            if prefix.is_empty() {
                all.push(*rest);
            } else {
                all.push(prefix.remove(0));
                is_last = false;
            }
        }
        let times = match self.contains.take() {
            Some((item, least)) => {
                all.push(item);
                least
            }
            None if is_last => self.min,
            None => 1,
        };
        self.min -= times;
        (nodes.all_of(&all), times)
    }
}
