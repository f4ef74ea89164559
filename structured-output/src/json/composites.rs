//! Some arrays and objects of a node that differ from each other.
//!
//! A way to write an array or object is a list of nodes, any values of which may stand there. So
//! each choice of values is another array or object.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::formula::{FALSE, Formula, FormulaId};
use super::live::DEAD;
use super::node::NodeId;
use super::plan::spelled;
use super::programs::Programs;
use super::value::unquote;
use super::values::Listed;
use crate::held::{allocated, with_room};
use crate::lexical::{Fuel, Lexicon, Stop};

/// So many values of a way are varied, the others are the same.
const MAX_VARIED: usize = 8;
/// So many names are added, one at a time.
const MAX_ADDED: usize = 16;
/// So many items are added.
const MAX_LONGER: u32 = 2;
/// So many bytes of a text are written in a step.
pub(super) const BYTES_A_STEP: usize = 64;

/// A way to write an array or object: what stands before each value, and the value.
type Way = Vec<(Vec<u8>, NodeId)>;

impl Programs {
    /// Texts of arrays and objects of a node, about so many, or as many as are found. Some may be equal.
    pub(super) fn composites(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        count: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<Vec<u8>>, Stop> {
        let mut texts = Vec::new();
        self.add_objects(lexicon, node, count, &mut texts, fuel)?;
        self.add_arrays(lexicon, node, count, &mut texts, fuel)?;
        if texts.len() < count {
            self.add_larger_objects(lexicon, node, count, &mut texts, fuel)?;
        }
        for more in 1..=MAX_LONGER {
            if texts.len() < count {
                let shape = self.shape(lexicon, node, fuel)?;
                let Some(shortest) = self.items_of_way(lexicon, shape.array, fuel)? else {
                    break;
                };
                let longer = self.logic.nodes.min_items(shortest.len() as u32 + more);
                let longer = self.logic.nodes.all_of(&[node, longer]);
                self.add_arrays(lexicon, longer, count, &mut texts, fuel)?;
            }
        }
        Ok(texts)
    }

    /// Adds objects with the fewest members.
    fn add_objects(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        count: usize,
        texts: &mut Vec<Vec<u8>>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let object = self.shape(lexicon, node, fuel)?.object;
        if object == FALSE {
            return Ok(());
        }
        let at = self.object_start(lexicon, &[object], fuel)?;
        for formula in self.choices(object) {
            if texts.len() >= count {
                break;
            }
            if self.object_cost(lexicon, at, formula, fuel)? == DEAD {
                continue;
            }
            let mut way = Vec::new();
            if !self.logic.facts(formula).closes {
                let Some(members) = self.costs.member_ways.get(&(at, formula)).cloned() else {
                    continue;
                };
                for (key, value) in members.iter() {
                    let mut before = key.clone();
                    before.push(b':');
                    way.push((before, *value));
                }
            }
            self.add_texts_of_way(lexicon, (b'{', way, b'}'), count, texts, fuel)?;
        }
        Ok(())
    }

    /// Adds objects with a member that none has to have.
    fn add_larger_objects(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        count: usize,
        texts: &mut Vec<Vec<u8>>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let object = self.shape(lexicon, node, fuel)?.object;
        if object == FALSE {
            return Ok(());
        }
        let at = self.object_start(lexicon, &[object], fuel)?;
        let mut keys = Vec::new();
        let num_names = self.plan(at.plan).num_names();
        for name in 0..num_names.min(MAX_ADDED as u32) {
            keys.extend(self.plan(at.plan).name(name).map(spelled));
        }
        for class in 0..self.plan(at.plan).classes.len() {
            let fresh = self.fresh_key(lexicon, at, class, fuel)?;
            keys.extend(fresh.map(|fresh| fresh.0));
        }
        for key in keys {
            if texts.len() >= count {
                break;
            }
            let Ok((key, _)) = unquote(&String::from_utf8_lossy(&key)) else {
                continue;
            };
            let has = self.logic.nodes.has(&key);
            let larger = self.logic.nodes.all_of(&[node, has]);
            if larger != node {
                self.add_objects(lexicon, larger, count, texts, fuel)?;
            }
        }
        Ok(())
    }

    /// Adds arrays with the fewest items.
    fn add_arrays(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        count: usize,
        texts: &mut Vec<Vec<u8>>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let array = self.shape(lexicon, node, fuel)?.array;
        for formula in self.choices(array) {
            if texts.len() >= count {
                break;
            }
            if let Some(items) = self.items_of_way(lexicon, formula, fuel)? {
                let way = items.iter().map(|&item| (Vec::new(), item)).collect();
                self.add_texts_of_way(lexicon, (b'[', way, b']'), count, texts, fuel)?;
            } else if let Some(items) = self.costs.text_ways.get(&formula) {
                let mut text = vec![b'['];
                text.extend_from_slice(&items.join(&b","[..]));
                text.push(b']');
                texts.push(text);
            }
        }
        Ok(())
    }

    /// The formulas of which one holds.
    fn choices(&self, formula: FormulaId) -> Vec<FormulaId> {
        match self.logic.formula(formula) {
            Formula::Any(list) => list.to_vec(),
            _ => vec![formula],
        }
    }

    /// Items with which an array ends, where they need not be distinct. `None` where there are none,
    /// or it is not known whether they may be any.
    fn items_of_way(
        &mut self,
        lexicon: &mut Lexicon,
        mut formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<NodeId>>, Stop> {
        if formula == FALSE || self.array_cost(lexicon, formula, fuel)? == DEAD {
            return Ok(None);
        }
        if self.logic.facts(formula).closes {
            return Ok(Some(Vec::new()));
        }
        while let Some(&one) = self.costs.array_choices.get(&formula) {
            formula = one;
        }
        if self.logic.facts(formula).has_unique {
            return Ok(None);
        }
        if let Some(items) = self.costs.item_ways.get(&formula) {
            return Ok(Some(items.to_vec()));
        }
        let Some(mut plain) = self.plain_array(formula) else {
            return Ok(None);
        };
        let mut items = Vec::new();
        while plain.min > 0 {
            let (item, times) = plain.next(&mut self.logic.nodes);
            fuel.burn(u64::from(times))?;
            items.extend((0..times).map(|_| item));
        }
        Ok(Some(items))
    }

    /// Adds what a way may be, the shortest first.
    fn add_texts_of_way(
        &mut self,
        lexicon: &mut Lexicon,
        (opening, way, closing): (u8, Way, u8),
        count: usize,
        texts: &mut Vec<Vec<u8>>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let mut lists: Vec<Vec<Listed>> = Vec::with_capacity(way.len());
        for (at, &(_, value)) in way.iter().enumerate() {
            let wanted = match at < MAX_VARIED {
                true => count - texts.len().min(count),
                false => 1,
            };
            self.list_values(lexicon, value, wanted.max(1), fuel)?;
            let listed = self.values.of(value);
            let listed = &listed[..wanted.max(1).min(listed.len())];
            fuel.burn(1 + listed.len() as u64 / 8)?;
            if listed.is_empty() {
                return Ok(());
            }
            lists.push(listed.to_vec());
        }
        // By length, which value is taken in each list; those from a number on may be varied.
        let length = |chosen: &[usize]| -> usize {
            let values = chosen.iter().zip(&lists);
            values.map(|(&one, list)| list[one].text.len()).sum()
        };
        let num_varied = lists.len().min(MAX_VARIED);
        let first = vec![0_usize; num_varied];
        let mut waiting = BinaryHeap::from([Reverse((length(&first), first, 0))]);
        let held = self.memory_bytes();
        let mut bytes = 0;
        while let Some(Reverse((_, chosen, from))) = waiting.pop() {
            fuel.burn(1 + way.len() as u64)?;
            let mut text = vec![opening];
            for (at, (before, _)) in way.iter().enumerate() {
                if at > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(before);
                let one = chosen.get(at).copied().unwrap_or(0);
                text.extend_from_slice(&lists[at][one].text);
            }
            text.push(closing);
            bytes += with_room(size_of::<Vec<u8>>()) + allocated(text.capacity());
            fuel.burn((text.len() / BYTES_A_STEP) as u64)?;
            fuel.check_bytes(held + bytes)?;
            texts.push(text);
            if texts.len() >= count {
                break;
            }
            for at in from..num_varied {
                if chosen[at] + 1 < lists[at].len() {
                    let mut next = chosen.clone();
                    next[at] += 1;
                    waiting.push(Reverse((length(&next), next, at)));
                }
            }
        }
        Ok(())
    }
}
