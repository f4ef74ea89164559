//! Arrays: which items may come next, told apart by what may follow them.

use std::sync::Arc;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, FormulaId};
use super::live::DEAD;
use super::node::NodeId;
use super::programs::{ArrayId, GoalsId, Programs};
use crate::lexical::{Fuel, Lexicon, Stop};

/// The next item of an array.
#[derive(Debug)]
pub(super) struct Items {
    /// What it may be.
    pub(super) goals: GoalsId,
    /// By goal, what remains.
    pub(super) rest: Vec<ArrayId>,
}

impl Programs {
    /// The next item; `None` where there may be none.
    pub(super) fn items(
        &mut self,
        lexicon: &mut Lexicon,
        array: ArrayId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<Items>>, Stop> {
        if let Some(known) = self.items_of.get(&array) {
            return Ok(known.clone());
        }
        let formulas = self.arrays.get(array.0).clone();
        let has_unique = formulas.iter().any(|&id| self.logic.facts(id).has_unique);
        let joint = match has_unique {
            true => None,
            false => self.joint_outcomes(lexicon, &formulas, Event::Item, None, fuel)?,
        };
        let outcomes = match joint {
            Some(joint) => joint,
            None => self.outcomes(lexicon, &formulas, Event::Item, fuel)?,
        };
        let mut found: Vec<(Box<[FormulaId]>, Vec<NodeId>)> = Vec::new();
        let mut index: HashMap<Box<[FormulaId]>, usize> = HashMap::new();
        for outcome in outcomes.iter() {
            let mut value = outcome.value;
            if self.cost(lexicon, value, fuel)? == DEAD {
                continue;
            }
            let mut rest = Vec::with_capacity(outcome.rest.len());
            let mut values = Vec::with_capacity(outcome.rest.len());
            for &formula in &outcome.rest {
                let left = match formula {
                    FALSE => None,
                    _ => self.leaving_enough(lexicon, value, formula, fuel)?,
                };
                rest.push(if left.is_some() { formula } else { FALSE });
                values.extend(left);
            }
            if values.is_empty() {
                continue;
            }
            value = self.logic.nodes.any_of(&values);
            let rest: Box<[FormulaId]> = rest.into();
            match index.get(&rest) {
                Some(&at) => found[at].1.push(value),
                None => {
                    index.insert(rest.clone(), found.len());
                    found.push((rest, vec![value]));
                }
            }
        }
        let mut goals = Vec::with_capacity(found.len());
        let mut rests = Vec::with_capacity(found.len());
        for (rest, values) in found {
            goals.push(self.logic.nodes.any_of(&values));
            rests.push(self.array_of(rest));
        }
        let items = match goals.is_empty() {
            true => None,
            false => Some(Arc::new(Items {
                goals: self.goals_of(&goals),
                rest: rests,
            })),
        };
        self.bytes += 64 + 4 * goals.len();
        self.items_of.insert(array, items.clone());
        Ok(items)
    }
}
