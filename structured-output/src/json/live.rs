//! Whether there is a value, and how long a short one is.
//!
//! Costs are in bytes of text without white space. They need not be the least, but each is that of
//! a value that exists, and where an array or object is half over, of a way to end it. Recursive
//! schemas ask for the least fixpoint: a node that is being looked at counts as dead within itself.
//! A value that is found so is final; that there is none is final only if no node that is still
//! open was counted as dead for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, Formula, FormulaId, NO_ITEMS};
use super::node::{Kinds, Node, NodeId};
use super::object::ObjectAt;
use super::programs::Programs;
use super::shape::{Shape, Spellings};
pub(super) use crate::lexical::search::DEAD;
use crate::lexical::search::FARTHEST;
use crate::lexical::{ExprId, Fuel, Lexicon, OutOfFuel};

/// Values within values at most this deep where each needs the next, by recursion.
const MAX_NESTING: usize = 100;

/// A member with which an object may end: its key as it is written, and what its value is.
pub(super) type WayMember = (Vec<u8>, NodeId);

/// What is known of costs.
pub(super) struct Costs {
    nodes: HashMap<NodeId, u32>,
    arrays: HashMap<FormulaId, u32>,
    objects: HashMap<(ObjectAt, FormulaId), u32>,
    /// How what is known to end ends, where that takes a search. What is written so ends: each
    /// value was known before what it is a part of.
    item_ways: HashMap<FormulaId, Arc<[NodeId]>>,
    text_ways: HashMap<FormulaId, Arc<[Vec<u8>]>>,
    member_ways: HashMap<(ObjectAt, FormulaId), Arc<[WayMember]>>,
    /// Of what is one of several formulas over arrays, the one that was found to end.
    array_choices: HashMap<FormulaId, FormulaId>,
    /// Nodes being looked at.
    open: Vec<NodeId>,
    /// The lowest of `open` that was counted as dead, or `usize::MAX`.
    assumed: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            arrays: HashMap::new(),
            objects: HashMap::new(),
            item_ways: HashMap::new(),
            text_ways: HashMap::new(),
            member_ways: HashMap::new(),
            array_choices: HashMap::new(),
            open: Vec::new(),
            assumed: usize::MAX,
        }
    }
}

impl Costs {
    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * 9
            + self.arrays.capacity() * 9
            + self.objects.capacity() * (size_of::<(ObjectAt, FormulaId, u32)>() + 1)
            + self.item_ways.capacity() * 64
            + self.text_ways.capacity() * 128
            + self.member_ways.capacity() * 256
            + self.array_choices.capacity() * 9
    }
}

impl Programs {
    /// Length of a short text of a node; [`DEAD`] where there is none.
    pub(super) fn cost(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        if let Some(&known) = self.costs.nodes.get(&node) {
            return Ok(known);
        }
        let node = self.resolved(node);
        if let Some(&known) = self.costs.nodes.get(&node) {
            return Ok(known);
        }
        if let Some(at) = self.costs.open.iter().position(|&open| open == node) {
            self.costs.assumed = self.costs.assumed.min(at);
            return Ok(DEAD);
        }
        fuel.burn(1)?;
        if self.costs.open.len() >= MAX_NESTING {
            return Err(fuel.exhaust());
        }
        let at = self.costs.open.len();
        self.costs.open.push(node);
        let outer = std::mem::replace(&mut self.costs.assumed, usize::MAX);
        let cost = self.cost_of_shape(lexicon, node, fuel);
        self.costs.open.pop();
        let assumed = std::mem::replace(&mut self.costs.assumed, outer);
        let cost = cost?;
        if cost != DEAD || assumed >= at {
            self.costs.nodes.insert(node, cost);
        } else {
            self.costs.assumed = outer.min(assumed);
        }
        Ok(cost)
    }

    /// As [`Programs::cost`], but [`DEAD`] only where that is final.
    pub(super) fn sure_cost(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let outer = std::mem::replace(&mut self.costs.assumed, usize::MAX);
        let cost = self.cost(lexicon, node, fuel);
        let assumed = std::mem::replace(&mut self.costs.assumed, outer);
        let cost = cost?;
        Ok(if cost == DEAD && assumed != usize::MAX {
            0
        } else {
            cost
        })
    }

    /// Does a piece of work whose [`DEAD`] depends on no open node if the second is true.
    fn with_assumptions(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<u32, OutOfFuel>,
    ) -> Result<(u32, bool), OutOfFuel> {
        let outer = std::mem::replace(&mut self.costs.assumed, usize::MAX);
        let cost = work(self);
        let assumed = std::mem::replace(&mut self.costs.assumed, outer);
        let cost = cost?;
        if cost == DEAD && assumed != usize::MAX {
            self.costs.assumed = outer.min(assumed);
            return Ok((DEAD, false));
        }
        Ok((cost, true))
    }

    /// Length of the shortest text of some spellings.
    pub(super) fn cost_of_spellings(
        lexicon: &mut Lexicon,
        spellings: Spellings,
        free: u32,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        match spellings {
            Spellings::Free => Ok(free),
            Spellings::Only(language) => lexicon.distance(language, fuel),
        }
    }

    /// The shortest scalar of a shape.
    pub(super) fn cost_of_scalars(
        lexicon: &mut Lexicon,
        shape: &Shape,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        if shape.number == Spellings::Free {
            // Nothing is shorter, so nothing else is looked at.
            return Ok(1);
        }
        let number = Self::cost_of_spellings(lexicon, shape.number, 1, fuel)?;
        let string = Self::cost_of_spellings(lexicon, shape.string, 2, fuel)?;
        let words = match shape.words {
            0 => DEAD,
            words if words == Kinds::FALSE.0 => 5,
            _ => 4,
        };
        Ok(number.min(string).min(words))
    }

    fn cost_of_shape(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let shape = self.shape(lexicon, node, fuel)?;
        let mut cost = Self::cost_of_scalars(lexicon, &shape, fuel)?;
        let logic = &self.logic;
        if logic.facts(shape.array).closes || logic.facts(shape.object).closes {
            cost = cost.min(2);
        }
        if cost == DEAD && shape.array != FALSE {
            let rest = self.array_cost(lexicon, shape.array, fuel)?;
            // `[` in place of the first comma.
            cost = cost.min(rest);
        }
        if cost == DEAD && shape.object != FALSE {
            let at = self.object_start(lexicon, &[shape.object], fuel)?;
            cost = self.object_cost(lexicon, at, shape.object, fuel)?;
        }
        Ok(cost)
    }

    /// Length of a short rest of an array after an item; [`DEAD`] where there is none.
    pub(super) fn array_cost(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
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
                let Some(items) = programs.texts_to_end(lexicon, formula, fuel)? else {
                    return Ok(DEAD);
                };
                let bytes = items.iter().map(|item| item.len() + 1).sum::<usize>() + 1;
                programs.costs.text_ways.insert(formula, items.into());
                Ok(bytes.min(FARTHEST as usize) as u32)
            } else if let Some(cost) = programs.plain_array_cost(lexicon, formula, fuel)? {
                Ok(cost)
            } else {
                let Some((cost, items)) = programs.items_to_end(lexicon, formula, fuel)? else {
                    return Ok(DEAD);
                };
                programs.costs.item_ways.insert(formula, items.into());
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
    ) -> Result<u32, OutOfFuel> {
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
    ) -> Result<Option<u32>, OutOfFuel> {
        let Some(mut plain) = self.plain_array(formula) else {
            return Ok(None);
        };
        if plain.max.is_some_and(|max| max < plain.min) {
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

    fn plain_array(&self, formula: FormulaId) -> Option<PlainArray> {
        let mut plain = PlainArray {
            items: Vec::new(),
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
                    _ => return None,
                },
                Formula::Not(node) => match self.logic.nodes.node(*node) {
                    Node::MinItems(more) => plain.max = Some(*more - 1),
                    _ => return None,
                },
                _ => return None,
            }
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
    ) -> Result<Option<(u32, Vec<NodeId>)>, OutOfFuel> {
        let mut best: HashMap<FormulaId, (u32, FormulaId, NodeId)> = HashMap::new();
        let mut queue = BinaryHeap::from([Reverse((0_u32, start))]);
        while let Some(Reverse((cost, formula))) = queue.pop() {
            fuel.burn(1)?;
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

    /// Length of a short rest of an object after a member; [`DEAD`] where there is none.
    pub(super) fn object_cost(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        if formula == FALSE {
            return Ok(DEAD);
        }
        if self.logic.facts(formula).closes {
            return Ok(1);
        }
        if let Some(&known) = self.costs.objects.get(&(at, formula)) {
            return Ok(known);
        }
        let (cost, is_sure) = self.with_assumptions(|programs| {
            if let Formula::Any(list) = programs.logic.formula(formula) {
                for one in list.clone() {
                    let cost = programs.object_cost(lexicon, at, one, fuel)?;
                    if cost != DEAD {
                        if let Some(way) = programs.costs.member_ways.get(&(at, one)).cloned() {
                            programs.costs.member_ways.insert((at, formula), way);
                        }
                        return Ok(cost);
                    }
                }
                return Ok(DEAD);
            }
            let members = programs.members_to_end(lexicon, at, formula, fuel)?;
            let Some(members) = members else {
                return Ok(DEAD);
            };
            let bytes = programs.cost_of_members(lexicon, &members, fuel)?;
            programs
                .costs
                .member_ways
                .insert((at, formula), members.into());
            Ok(bytes)
        })?;
        if is_sure {
            self.costs.objects.insert((at, formula), cost);
        }
        Ok(cost)
    }

    /// A short text of a node that has one.
    pub(super) fn write(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        if self.costs.open.len() >= MAX_NESTING {
            return Err(fuel.exhaust());
        }
        self.costs.open.push(node);
        let written = self.write_shape(lexicon, node, text, fuel);
        self.costs.open.pop();
        written
    }

    fn write_shape(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let shape = self.shape(lexicon, node, fuel)?;
        let logic = &self.logic;
        let (array, object) = (logic.facts(shape.array), logic.facts(shape.object));
        let scalar = Self::cost_of_scalars(lexicon, &shape, fuel)?;
        if scalar != DEAD && (scalar <= 2 || !(array.closes || object.closes)) {
            return self.write_scalar(lexicon, &shape, scalar, text, fuel);
        }
        if array.closes {
            text.extend_from_slice(b"[]");
            return Ok(());
        }
        if object.closes {
            text.extend_from_slice(b"{}");
            return Ok(());
        }
        if self.array_cost(lexicon, shape.array, fuel)? != DEAD {
            let mut formula = shape.array;
            while let Some(&one) = self.costs.array_choices.get(&formula) {
                formula = one;
            }
            text.push(b'[');
            if let Some(items) = self.costs.text_ways.get(&formula) {
                text.extend_from_slice(&items.join(&b","[..]));
            } else if let Some(items) = self.costs.item_ways.get(&formula).cloned() {
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    self.write(lexicon, *item, text, fuel)?;
                }
            } else if let Some(mut plain) = self.plain_array(formula) {
                for index in 0..plain.min {
                    if index > 0 {
                        text.push(b',');
                    }
                    plain.min = 1;
                    let (item, _) = plain.next(&mut self.logic.nodes);
                    self.write(lexicon, item, text, fuel)?;
                }
            }
            text.push(b']');
            return Ok(());
        }
        let at = self.object_start(lexicon, &[shape.object], fuel)?;
        let members = self.costs.member_ways.get(&(at, shape.object)).cloned();
        text.push(b'{');
        for (index, (key, value)) in members.iter().flat_map(|m| m.iter()).enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(key);
            text.push(b':');
            self.write(lexicon, *value, text, fuel)?;
        }
        text.push(b'}');
        Ok(())
    }

    fn write_scalar(
        &mut self,
        lexicon: &mut Lexicon,
        shape: &Shape,
        cost: u32,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let texts = self.texts(lexicon);
        for (spellings, free) in [(shape.number, texts.number), (shape.string, texts.string)] {
            let language = match spellings {
                Spellings::Free => free,
                Spellings::Only(language) => language,
            };
            if lexicon.distance(language, fuel)? == cost {
                return Self::write_shortest(lexicon, language, text, fuel);
            }
        }
        let words = [
            (Kinds::NULL, "null"),
            (Kinds::TRUE, "true"),
            (Kinds::FALSE, "false"),
        ];
        let word = words.iter().find(|(kind, _)| shape.words & kind.0 != 0);
        text.extend_from_slice(word.map_or(&b""[..], |word| word.1.as_bytes()));
        Ok(())
    }

    /// The shortest text of a language that has one, of several the one with the least bytes.
    pub(super) fn write_shortest(
        lexicon: &mut Lexicon,
        mut language: ExprId,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        while !lexicon.is_nullable(language) {
            let mut nearest: Option<(u32, u8, ExprId)> = None;
            for (bytes, next) in lexicon.derivatives(language, fuel)? {
                let distance = lexicon.distance(next, fuel)?;
                let Some(byte) = bytes.iter().next() else {
                    continue;
                };
                if nearest.is_none_or(|known| (distance, byte) < (known.0, known.1)) {
                    nearest = Some((distance, byte, next));
                }
            }
            match nearest {
                Some((distance, byte, next)) if distance != DEAD => {
                    text.push(byte);
                    language = next;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// An array whose items are told by their position alone.
struct PlainArray {
    items: Vec<(Vec<NodeId>, NodeId)>,
    min: u32,
    max: Option<u32>,
}

impl PlainArray {
    /// The next item, and how many in a row are such; they are over then.
    fn next(&mut self, nodes: &mut super::node::Nodes) -> (NodeId, u32) {
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
        let times = if is_last { self.min } else { 1 };
        self.min -= times;
        (nodes.all_of(&all), times)
    }
}
