//! Whether there is a value, and how long a short one is: of nodes and objects.
//!
//! Costs are in bytes of text without white space. They need not be the least, but each is that of
//! a value that exists, and where an array or object is half over, of a way to end it. Recursive
//! schemas ask for the least fixpoint: a node that is being looked at counts as dead within itself.
//! A value that is found so is final; that there is none is final only if no node that is still
//! open was counted as dead for it. Until then it is remembered as long as those are open
//! ([`Assumed`]): nodes that hold one another would be looked at in every order otherwise.

use std::sync::Arc;

use hashbrown::HashMap;

use super::formula::{FALSE, Formula, FormulaId};
use super::node::{Kinds, NodeId};
use super::object::ObjectAt;
use super::programs::Programs;
use super::seen::NOTHING_SEEN;
use super::shape::{Shape, Spellings};
use crate::bound::Bound;
use crate::held::{allocated, shared, with_room};
pub(super) use crate::lexical::search::DEAD;
use crate::lexical::{Fuel, Lexicon, Stop};

/// An entry of [`Costs::member_ways`].
type MemberWay = ((ObjectAt, FormulaId), Arc<[WayMember]>);

/// A member with which an object may end: its key as it is written, and what its value is.
pub(super) type WayMember = (Vec<u8>, NodeId);

/// What is known of costs.
pub(super) struct Costs {
    nodes: HashMap<NodeId, u32>,
    pub(super) arrays: HashMap<FormulaId, u32>,
    objects: HashMap<(ObjectAt, FormulaId), u32>,
    /// How what is known to end ends, where that takes a search. What is written so ends: each
    /// value was known before what it is a part of.
    pub(super) item_ways: HashMap<FormulaId, Arc<[NodeId]>>,
    pub(super) text_ways: HashMap<FormulaId, Arc<[Vec<u8>]>>,
    pub(super) member_ways: HashMap<(ObjectAt, FormulaId), Arc<[WayMember]>>,
    /// The names of the members with which objects end: where they come in any order, as sets of
    /// `Programs::done`; in the order of the schema, the first one.
    pub(super) end_names: HashMap<(ObjectAt, FormulaId), u32>,
    /// How many items arrays need at least, be they distinct or not; `None` where none end them.
    pub(super) items_needed: HashMap<FormulaId, Option<u32>>,
    /// Of what is one of several formulas over arrays, the one that was found to end.
    pub(super) array_choices: HashMap<FormulaId, FormulaId>,
    /// Items, as nodes, with which arrays end, be they distinct or not.
    pub(super) distinct_ways: HashMap<FormulaId, Arc<[NodeId]>>,
    /// Nodes being looked at.
    pub(super) open: Vec<NodeId>,
    /// Nodes without a value as far as some of these have none.
    dead_under: Assumed,
    /// Bytes of the ways.
    way_bytes: usize,
    /// The lowest of `open` that was counted as dead, or `usize::MAX`.
    assumed: usize,
}

/// Nodes that were found dead where some open ones were counted as dead. That is so while those are open:
/// further open ones leave still less. When the innermost of them is dead under others itself, it
/// is so under those.
#[derive(Default)]
struct Assumed {
    /// The lowest of the open nodes that one depends on.
    lowest: HashMap<NodeId, usize>,
    /// By the highest that they may depend on.
    by_highest: Vec<Vec<NodeId>>,
}

/// What became of an open node.
enum Closed {
    /// It has a value, or nobody knows.
    Other,
    /// It has none, whatever is open.
    Dead,
    /// It has none as far as open ones from this on have none.
    DeadUnder(usize),
}

impl Assumed {
    /// Those that depend on the open node at `at`, which is open no more. Returns who is dead for good.
    fn close(&mut self, at: usize, closed: &Closed) -> Vec<NodeId> {
        let mut nodes = match self.by_highest.get_mut(at) {
            Some(nodes) => std::mem::take(nodes),
            None => Vec::new(),
        };
        let mut dead = Vec::new();
        match *closed {
            Closed::Other => {
                for node in nodes {
                    self.lowest.remove(&node);
                }
                return dead;
            }
            Closed::Dead => nodes.retain(|node| {
                let is_below = self.lowest.get(node).is_some_and(|lowest| *lowest < at);
                if !is_below {
                    self.lowest.remove(node);
                    dead.push(*node);
                }
                is_below
            }),
            Closed::DeadUnder(lowest) => {
                for node in &nodes {
                    if let Some(known) = self.lowest.get_mut(node) {
                        *known = lowest.min(*known);
                    }
                }
            }
        }
        for node in nodes {
            self.depend(node, at);
        }
        dead
    }

    /// Notes a node that depends on open ones below `end` alone, the lowest being known.
    fn depend(&mut self, node: NodeId, end: usize) {
        let highest = end.saturating_sub(1);
        if self.by_highest.len() <= highest {
            self.by_highest.resize_with(highest + 1, Vec::new);
        }
        if let Some(nodes) = self.by_highest.get_mut(highest) {
            nodes.push(node);
        }
    }
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
            end_names: HashMap::new(),
            items_needed: HashMap::new(),
            array_choices: HashMap::new(),
            distinct_ways: HashMap::new(),
            open: Vec::new(),
            dead_under: Assumed::default(),
            way_bytes: 0,
            assumed: usize::MAX,
        }
    }
}

impl Costs {
    pub(super) fn memory_bytes(&self) -> usize {
        self.way_bytes
            + with_room(
                self.nodes.len() * 9
                    + self.arrays.len() * 9
                    + self.objects.len() * (size_of::<(ObjectAt, FormulaId, u32)>() + 1)
                    + self.item_ways.len() * (size_of::<(FormulaId, Arc<[NodeId]>)>() + 1)
                    + self.text_ways.len() * (size_of::<(FormulaId, Arc<[Vec<u8>]>)>() + 1)
                    + self.member_ways.len() * (size_of::<MemberWay>() + 1)
                    + self.end_names.len() * (size_of::<(ObjectAt, FormulaId, u32)>() + 1)
                    + self.items_needed.len() * 13
                    + self.array_choices.len() * 9
                    + self.distinct_ways.len() * (size_of::<(FormulaId, Arc<[NodeId]>)>() + 1),
            )
    }
}

impl Costs {
    /// Takes note of the members with which an object ends.
    fn note_members(&mut self, object: (ObjectAt, FormulaId), members: Vec<WayMember>) {
        let keys = members.iter().map(|member| allocated(member.0.capacity()));
        self.way_bytes += keys.sum::<usize>() + shared(size_of_val(&members[..]));
        self.member_ways.insert(object, members.into());
    }

    /// The innermost open node was taken off `open`.
    fn close(&mut self, closed: Closed) {
        let dead = self.dead_under.close(self.open.len(), &closed);
        self.nodes.extend(dead.into_iter().map(|node| (node, DEAD)));
    }

    /// Takes off the innermost open node, of which nothing is said.
    pub(super) fn pop_open(&mut self) {
        self.open.pop();
        self.close(Closed::Other);
    }

    /// Takes note of the items with which an array ends, as nodes.
    pub(super) fn note_items(&mut self, array: FormulaId, items: Vec<NodeId>) {
        self.way_bytes += shared(size_of_val(&items[..]));
        self.item_ways.insert(array, items.into());
    }

    /// Takes note of the items with which an array ends, be they distinct or not.
    pub(super) fn note_distinct_way(
        &mut self,
        array: FormulaId,
        items: Vec<NodeId>,
    ) -> Arc<[NodeId]> {
        self.way_bytes += shared(size_of_val(&items[..]));
        let items: Arc<[NodeId]> = items.into();
        self.distinct_ways.insert(array, Arc::clone(&items));
        items
    }

    /// The same, as they are written.
    pub(super) fn note_item_texts(&mut self, array: FormulaId, texts: Vec<Vec<u8>>) {
        let bytes = texts.iter().map(|text| allocated(text.capacity()));
        self.way_bytes += bytes.sum::<usize>() + shared(size_of_val(&texts[..]));
        self.text_ways.insert(array, texts.into());
    }
}

impl Programs {
    /// Length of a short text of a node; [`DEAD`] where there is none.
    pub(super) fn cost(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
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
        if let Some(&lowest) = self.costs.dead_under.lowest.get(&node) {
            self.costs.assumed = self.costs.assumed.min(lowest);
            return Ok(DEAD);
        }
        if self.costs.open.len() >= Bound::Nesting.max() {
            return Err(fuel.exhaust(Bound::Nesting));
        }
        let at = self.costs.open.len();
        self.costs.open.push(node);
        let outer = std::mem::replace(&mut self.costs.assumed, usize::MAX);
        let cost = self.cost_of_shape(lexicon, node, fuel);
        self.costs.open.pop();
        let assumed = std::mem::replace(&mut self.costs.assumed, outer);
        self.costs.close(match cost {
            Ok(DEAD) if assumed >= at => Closed::Dead,
            Ok(DEAD) => Closed::DeadUnder(assumed),
            _ => Closed::Other,
        });
        let cost = cost?;
        if cost != DEAD || assumed >= at {
            self.costs.nodes.insert(node, cost);
        } else {
            self.costs.assumed = outer.min(assumed);
            self.costs.dead_under.lowest.insert(node, assumed);
            self.costs.dead_under.depend(node, at);
        }
        Ok(cost)
    }

    /// As [`Programs::cost`], but [`DEAD`] only where that is final.
    pub(super) fn sure_cost(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
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
    pub(super) fn with_assumptions(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<u32, Stop>,
    ) -> Result<(u32, bool), Stop> {
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
    ) -> Result<u32, Stop> {
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
    ) -> Result<u32, Stop> {
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
    ) -> Result<u32, Stop> {
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

    /// Length of a short rest of an object after a member; [`DEAD`] where there is none.
    pub(super) fn object_cost(
        &mut self,
        lexicon: &mut Lexicon,
        mut at: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if formula == FALSE {
            return Ok(DEAD);
        }
        let facts = self.logic.facts(formula);
        if facts.closes {
            return Ok(1);
        }
        // Which other keys there are matters only where more of them are to come.
        if !facts.wants_members {
            at.seen = NOTHING_SEEN;
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
                        if let Some(&names) = programs.costs.end_names.get(&(at, one)) {
                            programs.costs.end_names.insert((at, formula), names);
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
            if let Some(names) = programs.names_of(at, &members) {
                programs.costs.end_names.insert((at, formula), names);
            }
            // A whole object is written from these, the rest of one is not.
            if at.is_start() {
                programs.costs.note_members((at, formula), members);
            }
            Ok(bytes)
        })?;
        if is_sure {
            self.costs.objects.insert((at, formula), cost);
        }
        Ok(cost)
    }
}
