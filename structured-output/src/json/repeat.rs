//! Arrays with items that are equal.
//!
//! Which item will be repeated is guessed: of two items at different places, each with its node,
//! some value may be both if the nodes have one in common.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::{HashMap, HashSet};

use super::derive::Event;
use super::formula::{FormulaId, SetId};
use super::live::DEAD;
use super::node::{ANYTHING, NodeId};
use super::programs::Programs;
use crate::bound::Bound;
use crate::lexical::{Fuel, Lexicon, Stop};

/// How far a search for equal items is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// No item is to be repeated yet.
    Before,
    /// An item that is such is to be repeated.
    Guessed(NodeId),
    /// Some items are equal: such ones, or one that was there before.
    Equal(NodeId),
}

type Place = (FormulaId, Phase);

impl Programs {
    /// Items, as texts, with which an array ends after those in a set, such that not all are
    /// distinct; its formula speaks of that no more. `None` where there are none.
    pub(super) fn repeated_items(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        set: SetId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Vec<u8>>>, Stop> {
        let way = self.way_to_repeat(lexicon, (formula, Phase::Before), set, fuel)?;
        let Some((_, way)) = way else {
            return Ok(None);
        };
        let equal = way.iter().find_map(|step| match step.1 {
            Phase::Equal(value) => Some(value),
            _ => None,
        });
        let mut equal_text = Vec::new();
        self.write(lexicon, equal.unwrap_or(ANYTHING), &mut equal_text, fuel)?;
        let mut texts = Vec::new();
        let mut before = Phase::Before;
        for (value, phase) in way {
            let is_equal = before != phase;
            before = phase;
            if is_equal {
                texts.push(equal_text.clone());
            } else {
                let mut text = Vec::new();
                self.write(lexicon, value, &mut text, fuel)?;
                texts.push(text);
            }
        }
        Ok(Some(texts))
    }

    /// Length of a rest of an array in which an item that was there is repeated; [`DEAD`] where
    /// there is none.
    pub(super) fn cost_of_repeating(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        set: SetId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let start = (formula, Phase::Guessed(ANYTHING));
        let way = self.way_to_repeat(lexicon, start, set, fuel)?;
        Ok(way.map_or(DEAD, |way| way.0))
    }

    /// The cheapest way to the end of an array (Dijkstra 1959): its cost, and its items.
    #[allow(clippy::type_complexity)]
    fn way_to_repeat(
        &mut self,
        lexicon: &mut Lexicon,
        start: Place,
        set: SetId,
        fuel: &mut Fuel,
    ) -> Result<Option<(u32, Vec<(NodeId, Phase)>)>, Stop> {
        let known = self.logic.set(set).to_vec();
        let known = self.logic.nodes.any_of(&known);
        let mut best: HashMap<Place, (u32, Place, NodeId)> = HashMap::new();
        let mut queue = BinaryHeap::from([Reverse((0_u32, start))]);
        while let Some(Reverse((cost, place))) = queue.pop() {
            fuel.burn(1)?;
            if best.len() > Bound::WaysThroughArrays.max() {
                return Err(fuel.exhaust(Bound::WaysThroughArrays));
            }
            if best.get(&place).is_some_and(|known| known.0 < cost) {
                continue;
            }
            let (formula, phase) = place;
            if matches!(phase, Phase::Equal(_)) && self.logic.facts(formula).closes {
                let (mut at, mut way) = (place, Vec::new());
                while at != start
                    && let Some(&(_, before, value)) = best.get(&at)
                {
                    way.push((value, at.1));
                    at = before;
                }
                way.reverse();
                return Ok(Some((cost.saturating_add(1), way)));
            }
            let outcomes = self.outcomes(lexicon, &[formula], Event::Item, fuel)?;
            for outcome in outcomes.iter() {
                let (value, rest) = (outcome.value, outcome.rest[0]);
                let mut next = vec![(value, phase)];
                match phase {
                    Phase::Before => {
                        next.push((value, Phase::Guessed(value)));
                        let again = self.logic.nodes.all_of(&[value, known]);
                        next.push((again, Phase::Equal(again)));
                    }
                    Phase::Guessed(guess) => {
                        let again = self.logic.nodes.all_of(&[value, guess]);
                        next.push((again, Phase::Equal(again)));
                    }
                    Phase::Equal(_) => {}
                }
                for (value, phase) in next {
                    let bytes = self.cost(lexicon, value, fuel)?;
                    if bytes == DEAD {
                        continue;
                    }
                    let reached = cost.saturating_add(bytes).saturating_add(1);
                    let next = (rest, phase);
                    let known = best.get(&next).map_or(DEAD, |known| known.0);
                    if next != start && reached < known {
                        best.insert(next, (reached, place, value));
                        queue.push(Reverse((reached, next)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// What an item that is yet to come may be, at any place from which an array can end.
    pub(super) fn items_later(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<NodeId, Stop> {
        let mut reached: HashSet<FormulaId> = HashSet::from_iter([formula]);
        let mut pending = vec![formula];
        let mut later = Vec::new();
        while let Some(formula) = pending.pop() {
            fuel.burn(1)?;
            let outcomes = self.outcomes(lexicon, &[formula], Event::Item, fuel)?;
            for outcome in outcomes.iter() {
                let rest = outcome.rest[0];
                let is_possible = self.cost(lexicon, outcome.value, fuel)? != DEAD
                    && self.array_cost(lexicon, rest, fuel)? != DEAD;
                if is_possible {
                    later.push(outcome.value);
                    if reached.insert(rest) {
                        pending.push(rest);
                    }
                }
            }
        }
        Ok(self.logic.nodes.any_of(&later))
    }
}
