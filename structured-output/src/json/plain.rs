//! Plain objects: a list of properties of which some are required, as most are. Nothing of them has to
//! be derived.

use std::sync::{Arc, OnceLock};

use super::formula::Formula;
use super::live::{DEAD, WayMember};
use super::node::{ANYTHING, Node, NodeId};
use super::object::{Object, ObjectAt};
use super::plan::spelled;
use super::programs::Programs;
use crate::lexical::{Fuel, Lexicon, Stop};

/// A list of properties.
pub(super) struct Plain {
    /// What the members are: each name, then each class.
    pub(super) values: Vec<NodeId>,
    pub(super) required: Vec<bool>,
    pub(super) min: u32,
    pub(super) max: Option<u32>,
    /// By key, whether it may have a value, once that is known for good of all.
    pub(super) possible: OnceLock<Box<[bool]>>,
}

impl Plain {
    /// Whether the number of members matters.
    pub(super) fn counts(&self) -> bool {
        self.min > 0 || self.max.is_some()
    }
}

impl Programs {
    /// An object that is a plain list of properties.
    pub(super) fn plain_of(&mut self, object: &Object) -> Option<Plain> {
        let [formula] = object.rest[..] else {
            return None;
        };
        let list = match self.logic.formula(formula) {
            Formula::All(list) => list.to_vec(),
            Formula::Is(_) | Formula::Not(_) => vec![formula],
            _ => return None,
        };
        let plan = self.plan(object.plan);
        let mut required = vec![false; plan.num_names() as usize];
        let (mut min, mut max) = (0, None);
        let mut members = Vec::new();
        for &id in &list {
            match self.logic.formula(id) {
                Formula::Is(node) => match self.logic.nodes.node(*node) {
                    Node::Members(_) => members.push(*node),
                    Node::Has(name) => {
                        if let Some(number) = plan.number(name) {
                            required[number as usize] = true;
                        }
                    }
                    Node::MinProperties(least) => min = *least,
                    _ => return None,
                },
                Formula::Not(node) => match self.logic.nodes.node(*node) {
                    Node::MinProperties(more) => max = Some(*more - 1),
                    _ => return None,
                },
                _ => return None,
            }
        }
        let keys = plan.num_keys();
        let tables: Vec<Arc<[NodeId]>> = members
            .iter()
            .filter_map(|&node| plan.values(node).cloned())
            .collect();
        let nodes = &mut self.logic.nodes;
        let values = (0..keys).map(|key| match &tables[..] {
            [] => ANYTHING,
            [only] => only[key],
            _ => {
                let all: Vec<NodeId> = tables.iter().map(|table| table[key]).collect();
                nodes.all_of(&all)
            }
        });
        Some(Plain {
            values: values.collect(),
            required,
            min,
            max,
            possible: OnceLock::new(),
        })
    }

    /// Makes known which keys of a plain object may have a value, where no value is being looked at that
    /// would have to be assumed to have none.
    pub(super) fn note_possible(
        &mut self,
        lexicon: &mut Lexicon,
        plain: &Plain,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if plain.possible.get().is_some() || !self.costs.open.is_empty() {
            return Ok(());
        }
        let mut possible = Vec::with_capacity(plain.values.len());
        for &value in &plain.values {
            fuel.burn(1)?;
            possible.push(self.cost(lexicon, value, fuel)? != DEAD);
        }
        plain.possible.get_or_init(|| possible.into());
        Ok(())
    }

    /// Members with which a plain object may end, `count` being there already: the required ones,
    /// then as many others as there must be. `None` where there are none.
    pub(super) fn plain_members_to_end(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        plain: &Plain,
        count: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<WayMember>>, Stop> {
        let num_names = self.plan(at.plan).num_names();
        let mut members: Vec<WayMember> = Vec::new();
        for name in 0..num_names {
            if plain.required[name as usize] && self.is_open(at, name) {
                fuel.burn(1)?;
                let value = plain.values[name as usize];
                if self.cost(lexicon, value, fuel)? == DEAD {
                    return Ok(None);
                }
                let text = self.plan(at.plan).name(name);
                members.push((spelled(text.unwrap_or_default()), value));
            }
        }
        let there = count.saturating_add(members.len() as u32);
        let mut needed = plain.min.saturating_sub(there);
        if plain
            .max
            .is_some_and(|max| there.saturating_add(needed) > max)
        {
            return Ok(None);
        }
        for name in 0..num_names {
            if needed == 0 {
                break;
            }
            if !plain.required[name as usize] && self.is_open(at, name) {
                fuel.burn(1)?;
                let value = plain.values[name as usize];
                if self.cost(lexicon, value, fuel)? != DEAD {
                    let text = self.plan(at.plan).name(name);
                    members.push((spelled(text.unwrap_or_default()), value));
                    needed -= 1;
                }
            }
        }
        for class in 0..self.plan(at.plan).classes.len() {
            if needed == 0 {
                break;
            }
            let value = plain.values[num_names as usize + class];
            if self.cost(lexicon, value, fuel)? != DEAD {
                let keys = self.fresh_keys(lexicon, at, class, needed as usize, fuel)?;
                needed -= keys.len() as u32;
                members.extend(keys.into_iter().map(|key| (key, value)));
            }
        }
        if needed > 0 {
            return Ok(None);
        }
        Ok(Some(members))
    }

    /// Whether a plain object whose values all exist where they are required can end.
    pub(super) fn plain_can_end(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        plain: &Plain,
        count: u32,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let open = |programs: &Self, required: bool| {
            let names = 0..plain.required.len() as u32;
            let such = names.filter(|&name| plain.required[name as usize] == required);
            such.filter(|&name| programs.is_open(at, name))
                .collect::<Vec<u32>>()
        };
        let there = count.saturating_add(open(self, true).len() as u32);
        let needed = plain.min.saturating_sub(there);
        if plain
            .max
            .is_some_and(|max| there.saturating_add(needed) > max)
        {
            return Ok(false);
        }
        if needed == 0 {
            return Ok(true);
        }
        let mut possible = 0;
        for name in open(self, false) {
            fuel.burn(1)?;
            let value = plain.values[name as usize];
            possible += u32::from(self.cost(lexicon, value, fuel)? != DEAD);
            if possible >= needed {
                return Ok(true);
            }
        }
        // Of the keys that were listed the object has at most as many as it has members.
        let enough = (needed as usize).saturating_add(count as usize);
        for (class, &value) in plain.values[plain.required.len()..].iter().enumerate() {
            if self.has_listed_keys(at, class, enough) && self.cost(lexicon, value, fuel)? != DEAD {
                return Ok(true);
            }
        }
        let members = self.plain_members_to_end(lexicon, at, plain, count, fuel)?;
        Ok(members.is_some())
    }
}
