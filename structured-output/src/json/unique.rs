//! Arrays whose items differ from each other, or don't all.
//!
//! The set of the items so far is a part of the formula. An array's items are distinct or they are
//! not: so a formula is what it is where they are (looked at here), or what it is where they
//! aren't (`repeat`).
//!
//! Mostly it is told by counting values whether an array can end (`distinct`), else it is searched for.
//! An item that would leave too few others for those that must follow is excluded before it is
//! written: if some distinct items complete the array without it, only those can be missed. So
//! each of those is tried in its place, but those of which there are enough. If nothing completes
//! the array without it, it is to be repeated: then it is one of what can still come.

use hashbrown::{HashMap, HashSet};

use super::derive::Event;
use super::distinct::{Chosen, Ending};
use super::formula::{FALSE, Formula, FormulaId, NO_ITEMS, SetId, TRUE};
use super::live::DEAD;
use super::node::{NOTHING, NodeId};
use super::programs::Programs;
use super::value::Value;
use crate::bound::Bound;
use crate::lexical::search::FARTHEST;
use crate::lexical::{Fuel, Lexicon, Stop};

/// Distinct items that an array may need at its end.
const MAX_DISTINCT: u32 = Bound::DistinctItems.max() as u32;
/// So many items of a set are copied in a step.
const ITEMS_A_STEP: usize = 16;
/// Items are parsed this deep.
const MAX_NESTING: usize = 1000;

/// Items with which an array ends.
enum Rest {
    Chosen(Chosen),
    /// As they are written.
    Texts(Vec<Vec<u8>>),
}

/// A search for distinct items.
#[derive(Default)]
struct Distinct {
    /// Whether a way was cut for its length.
    was_cut: bool,
    failed: HashSet<(FormulaId, u32)>,
    /// Formulas on the way, sets apart.
    path: Vec<FormulaId>,
}

impl Programs {
    /// A formula with one more item in its sets.
    pub(super) fn with_item(
        &mut self,
        formula: FormulaId,
        item: NodeId,
        fuel: &mut Fuel,
    ) -> Result<FormulaId, Stop> {
        let facts = self.logic.facts(formula);
        if !facts.has_unique {
            return Ok(formula);
        }
        let num_items = self.logic.set(self.items_so_far(formula, fuel)?).len();
        fuel.burn(u64::from(facts.size) + (num_items / ITEMS_A_STEP) as u64)?;
        Ok(self.logic.map(
            formula,
            &mut HashMap::new(),
            &mut |logic, leaf| match *logic.formula(leaf) {
                Formula::Unique { set, holds } => {
                    let set = logic.with(set, item);
                    logic.unique(set, holds)
                }
                _ => leaf,
            },
        ))
    }

    /// The values equal to the one that a text spells. Costs a step for each byte, and for each
    /// expression that is asked for.
    pub(super) fn constant_of(
        &mut self,
        lexicon: &mut Lexicon,
        text: &[u8],
        fuel: &mut Fuel,
    ) -> Result<NodeId, Stop> {
        fuel.burn(1 + text.len() as u64)?;
        let text = String::from_utf8_lossy(text);
        let Ok(value) = Value::parse(&text, MAX_NESTING) else {
            return Ok(NOTHING);
        };
        let num_asked = lexicon.num_asked();
        let constant = self.logic.nodes.constant(lexicon, &value);
        fuel.burn(lexicon.num_asked() - num_asked)?;
        if let Some(constant) = constant {
            self.values.note_constant(constant, &value);
        }
        Ok(constant.unwrap_or(NOTHING))
    }

    /// The set of the items so far.
    fn items_so_far(&self, formula: FormulaId, fuel: &mut Fuel) -> Result<SetId, Stop> {
        let leaves = self.logic.leaves(&[formula], fuel)?;
        let set = leaves
            .iter()
            .find_map(|&leaf| match *self.logic.formula(leaf) {
                Formula::Unique { set, .. } => Some(set),
                _ => None,
            });
        Ok(set.unwrap_or(NO_ITEMS))
    }

    /// What a formula is where the items of the array are all distinct, or are not.
    pub(super) fn where_distinct(&mut self, formula: FormulaId, distinct: bool) -> FormulaId {
        self.logic.map(
            formula,
            &mut HashMap::new(),
            &mut |logic, leaf| match *logic.formula(leaf) {
                Formula::Unique { holds, .. } if holds == distinct => TRUE,
                Formula::Unique { .. } => FALSE,
                _ => leaf,
            },
        )
    }

    /// Length of a short rest of an array whose formula speaks of distinct items; [`DEAD`] where there is
    /// none.
    pub(super) fn cost_with_distinct(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let Some(rest) = self.rest_with_distinct(lexicon, formula, fuel)? else {
            return Ok(DEAD);
        };
        let bytes = match &rest {
            Rest::Chosen(chosen) => chosen.bytes(self),
            Rest::Texts(texts) => texts.iter().map(|text| text.len() + 1).sum(),
        };
        // A whole array is written from these, the rest of one is not.
        if self.items_so_far(formula, fuel)? == NO_ITEMS {
            let texts = match rest {
                Rest::Chosen(chosen) => chosen.texts(self),
                Rest::Texts(texts) => texts,
            };
            self.costs.note_item_texts(formula, texts);
        }
        Ok((bytes + 1).min(FARTHEST as usize) as u32)
    }

    /// Items with which an array ends whose formula speaks of distinct items. `None` where there are
    /// none.
    fn rest_with_distinct(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Rest>, Stop> {
        let set = self.items_so_far(formula, fuel)?;
        let distinct = self.where_distinct(formula, true);
        match self.distinct_ending(lexicon, distinct, set, fuel)? {
            Ending::Items(chosen) => return Ok(Some(Rest::Chosen(chosen))),
            Ending::Never => {}
            Ending::Unknown => {
                let unique = self.logic.unique(set, true);
                let distinct = self.logic.all(&[unique, distinct]);
                let found = self.distinct_items(lexicon, distinct, fuel)?;
                if let Some(texts) = found {
                    return Ok(Some(Rest::Texts(texts)));
                }
            }
        }
        let repeated = self.where_distinct(formula, false);
        if repeated == FALSE {
            return Ok(None);
        }
        let repeated = self.repeated_items(lexicon, repeated, set, fuel)?;
        Ok(repeated.map(Rest::Texts))
    }

    /// Distinct items, as texts, with which an array ends after those in the set of its formula,
    /// which asks for them: searched for. `None` where there are none.
    fn distinct_items(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Vec<u8>>>, Stop> {
        let Some(needed) = self.items_needed(lexicon, formula, fuel)? else {
            return Ok(None);
        };
        // One more at a time, so that few are tried before many.
        for most in needed..=MAX_DISTINCT {
            let mut search = Distinct::default();
            let found = self.distinct(lexicon, formula, most, &mut search, fuel)?;
            if found.is_some() || !search.was_cut {
                return Ok(found.map(|mut items| {
                    items.reverse();
                    items
                }));
            }
        }
        Err(fuel.exhaust(Bound::DistinctItems))
    }

    /// A lower bound on the items that an array needs to end, as if all that may come were distinct;
    /// no more than can be looked for. `None` where no number of them ends it.
    fn items_needed(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        let start = self.where_distinct(formula, true);
        if let Some(&known) = self.costs.items_needed.get(&start) {
            return Ok(known);
        }
        let mut reached: HashSet<FormulaId> = HashSet::from_iter([start]);
        let mut level = vec![start];
        let mut needed = None;
        for depth in 0..=MAX_DISTINCT {
            if level
                .iter()
                .any(|&formula| self.logic.facts(formula).closes)
            {
                needed = Some(depth);
                break;
            }
            if depth == MAX_DISTINCT && !level.is_empty() {
                return Err(fuel.exhaust(Bound::DistinctItems));
            }
            let mut next = Vec::new();
            for formula in level {
                fuel.burn(1)?;
                let outcomes = self.outcomes(lexicon, &[formula], Event::Item, fuel)?;
                for outcome in outcomes.iter() {
                    let rest = outcome.rest[0];
                    if reached.insert(rest) {
                        next.push(rest);
                    }
                }
            }
            level = next;
        }
        self.costs.items_needed.insert(start, needed);
        Ok(needed)
    }

    /// At most `most` items that end an array, the last first.
    fn distinct(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        most: u32,
        search: &mut Distinct,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Vec<u8>>>, Stop> {
        fuel.burn(1)?;
        let facts = self.logic.facts(formula);
        if facts.closes {
            return Ok(Some(Vec::new()));
        }
        match self.items_needed(lexicon, formula, fuel)? {
            Some(needed) if needed <= most => {}
            Some(_) => {
                search.was_cut = true;
                return Ok(None);
            }
            None => return Ok(None),
        }
        if search.failed.contains(&(formula, most)) {
            return Ok(None);
        }
        // Coming here again with more items doesn't help.
        let here = self.where_distinct(formula, true);
        if search.path.contains(&here) {
            return Ok(None);
        }
        search.path.push(here);
        let found = self.distinct_from(lexicon, formula, most, search, fuel);
        search.path.pop();
        let found = found?;
        if found.is_none() {
            search.failed.insert((formula, most));
        }
        Ok(found)
    }

    fn distinct_from(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        most: u32,
        search: &mut Distinct,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Vec<u8>>>, Stop> {
        let outcomes = self.outcomes(lexicon, &[formula], Event::Item, fuel)?;
        for outcome in outcomes.iter() {
            let mut value = outcome.value;
            // As many in turn as could be in the way of those after it, and one more.
            for _ in 0..most {
                if self.cost(lexicon, value, fuel)? == DEAD {
                    break;
                }
                let mut text = Vec::new();
                self.write(lexicon, value, &mut text, fuel)?;
                let item = self.constant_of(lexicon, &text, fuel)?;
                let rest = self.with_item(outcome.rest[0], item, fuel)?;
                if let Some(mut items) = self.distinct(lexicon, rest, most - 1, search, fuel)? {
                    items.push(text);
                    return Ok(Some(items));
                }
                if rest == outcome.rest[0] {
                    break;
                }
                let other = self.logic.nodes.not(item);
                value = self.logic.nodes.all_of(&[value, other]);
            }
        }
        Ok(None)
    }

    /// What of a value may be the next item, so that a formula that remains after it can still be
    /// met; `None` where nothing may.
    pub(super) fn leaving_enough(
        &mut self,
        lexicon: &mut Lexicon,
        value: NodeId,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<NodeId>, Stop> {
        let facts = self.logic.facts(formula);
        if self.array_cost(lexicon, formula, fuel)? == DEAD {
            if !facts.has_repeated {
                return Ok(None);
            }
            let repeated = self.where_distinct(formula, false);
            let later = self.items_later(lexicon, repeated, fuel)?;
            let value = self.logic.nodes.all_of(&[value, later]);
            let cost = self.cost(lexicon, value, fuel)?;
            return Ok((cost != DEAD).then_some(value));
        }
        if !facts.has_unique || facts.closes {
            return Ok(Some(value));
        }
        let Some(rest) = self.rest_with_distinct(lexicon, formula, fuel)? else {
            return Ok(Some(value));
        };
        // Mostly there are enough, whichever of the values the item is.
        let texts = match rest {
            Rest::Chosen(chosen) => chosen.critical_texts(self),
            Rest::Texts(texts) => texts,
        };
        if texts.is_empty() {
            return Ok(Some(value));
        }
        let mut kept = vec![value];
        for text in texts {
            let item = self.constant_of(lexicon, &text, fuel)?;
            let both = self.logic.nodes.all_of(&[value, item]);
            if self.sure_cost(lexicon, both, fuel)? == DEAD {
                continue;
            }
            let after = self.with_item(formula, item, fuel)?;
            if self.array_cost(lexicon, after, fuel)? == DEAD {
                kept.push(self.logic.nodes.not(item));
            }
        }
        let value = self.logic.nodes.all_of(&kept);
        let cost = self.cost(lexicon, value, fuel)?;
        Ok((cost != DEAD).then_some(value))
    }
}

/// The text of the item that ends where a text ends: what follows the last comma or bracket of the
/// innermost array that is open there. The text begins within an array.
pub(super) fn last_item(text: &[u8]) -> &[u8] {
    let mut starts = vec![0];
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, &byte) in text.iter().enumerate() {
        if in_string {
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => starts.push(at + 1),
            b']' | b'}' => {
                starts.pop();
            }
            b',' | b':' => {
                if let Some(start) = starts.last_mut() {
                    *start = at + 1;
                }
            }
            _ => {}
        }
    }
    let start = starts.last().copied().unwrap_or(0);
    text[start..].trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::last_item;

    #[test]
    fn the_last_item_of_a_text() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"1", b"1"),
            (b", \"a,]\\\"\"", b"\"a,]\\\"\""),
            (b",[1,2]", b"[1,2]"),
            (b" [[1, {\"a\":[3]}", b"{\"a\":[3]}"),
            (b"{\"a\": [1 , 22", b"22"),
        ];
        for (text, item) in cases {
            assert_eq!(last_item(text), *item);
        }
    }
}
