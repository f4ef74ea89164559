//! Everything that the frames of JSON refer to, interned.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::array::Items;
use super::derive::Event;
use super::formula::{FormulaId, Logic};
use super::frame::Frame;
use super::live::Costs;
use super::member::Values;
use super::node::{Kinds, NodeId};
use super::object::{Object, ObjectAt, ObjectId};
use super::overlap::FewNumbers;
use super::plain::Plain;
use super::plan::{Plan, PlanId};
use super::relation::Listed;
use super::seen::SeenKeys;
use super::several::Goals;
use super::shape::Shape;
use super::style::{Style, StyleId};
use super::values::AllValues;
use super::ways::{OutcomesEntry, OutcomesOf, Ways, WaysOf};
use crate::held::{allocated, with_room};
use crate::lexical::{EPSILON, ExprId, Fuel, Lexicon, Stop};

/// Distinct things by number.
pub(super) struct Interner<T> {
    items: Vec<T>,
    ids: HashMap<T, u32>,
    bytes: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            ids: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The number of a thing that owns `bytes` on the heap, and whether it is new.
    pub(super) fn intern(&mut self, item: T, bytes: usize) -> (u32, bool) {
        if let Some(&known) = self.ids.get(&item) {
            return (known, false);
        }
        // Held twice, by number and for look-up.
        self.bytes += with_room(size_of::<T>() + size_of::<(T, u32)>() + 1) + 2 * allocated(bytes);
        let id = self.items.len() as u32;
        self.items.push(item.clone());
        self.ids.insert(item, id);
        (id, true)
    }

    pub(super) fn get(&self, id: u32) -> &T {
        &self.items[id as usize]
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The values that may come next, told apart by what follows them: nodes that are disjoint, or
/// such as `joint` makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct GoalsId(pub(super) u32);

/// What an array is still to meet, a formula per goal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ArrayId(pub(super) u32);

/// The frames that may follow a value, one per goal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct OutcomesId(pub(super) u32);

/// Languages that every grammar needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    /// `null`, `false`, `true`.
    pub(super) words: [ExprId; 3],
    /// Any number.
    pub(super) number: ExprId,
    /// Any string, in quotes.
    pub(super) string: ExprId,
    /// Numbers under a constraint: what is excluded by value is a complement relative to these.
    pub(super) decimal: ExprId,
    /// Strings under a constraint, in quotes.
    pub(super) constrained: ExprId,
}

/// All that the frames of a generation refer to.
pub(crate) struct Programs {
    pub(super) logic: Logic,
    pub(super) shapes: HashMap<NodeId, Shape>,
    pub(super) styles: Interner<Style>,
    pub(super) goals: Interner<Box<[NodeId]>>,
    pub(super) arrays: Interner<Box<[FormulaId]>>,
    pub(super) outcomes: Interner<Box<[Frame]>>,
    /// See `several`: by the goals that were met, the frame after them.
    pub(super) joint_frames: HashMap<Goals, Frame>,
    pub(super) objects: Interner<Object>,
    /// By object: what it is where it is a plain list of properties.
    pub(super) plain: Vec<Option<Arc<Plain>>>,
    pub(super) plans: Vec<Plan>,
    pub(super) plan_ids: HashMap<Box<[FormulaId]>, PlanId>,
    /// Sets of names that an object has, as bits.
    pub(super) done: Interner<Box<[u64]>>,
    /// Sets of keys that an object has beside them.
    pub(super) seen: SeenKeys,
    pub(super) derived: HashMap<(FormulaId, Event), FormulaId>,
    pub(super) outcomes_of: OutcomesOf,
    pub(super) ways_of: WaysOf,
    pub(super) items_of: HashMap<ArrayId, Option<Arc<Items>>>,
    pub(super) values_of: HashMap<(ObjectAt, ObjectId, u32), Values>,
    /// By goals and the white space within brackets.
    pub(super) value_lexemes: HashMap<(GoalsId, ExprId), ExprId>,
    /// Names after their opening quote, with what follows them up to the value, by plan and colon, then by
    /// number; [`EMPTY`] where one was not asked for.
    pub(super) key_lexemes: HashMap<(PlanId, ExprId), Vec<ExprId>>,
    pub(super) costs: Costs,
    pub(super) values: AllValues,
    /// See `relation`: languages that list strings.
    pub(super) listed: HashMap<ExprId, Arc<Listed>>,
    /// See `overlap`: by language of numbers, its values where these are few.
    pub(super) few_numbers: HashMap<ExprId, FewNumbers>,
    texts: Option<Texts>,
    /// Bytes of what is not counted by its interner.
    pub(super) bytes: usize,
}

impl Default for Programs {
    fn default() -> Self {
        let mut programs = Self {
            logic: Logic::new(),
            shapes: HashMap::new(),
            styles: Interner::default(),
            goals: Interner::default(),
            arrays: Interner::default(),
            outcomes: Interner::default(),
            joint_frames: HashMap::new(),
            objects: Interner::default(),
            plain: Vec::new(),
            plans: Vec::new(),
            plan_ids: HashMap::new(),
            done: Interner::default(),
            seen: SeenKeys::default(),
            derived: HashMap::new(),
            outcomes_of: HashMap::new(),
            ways_of: HashMap::new(),
            items_of: HashMap::new(),
            values_of: HashMap::new(),
            value_lexemes: HashMap::new(),
            key_lexemes: HashMap::new(),
            costs: Costs::default(),
            values: AllValues::default(),
            listed: HashMap::new(),
            few_numbers: HashMap::new(),
            texts: None,
            bytes: 0,
        };
        programs.done.intern(Box::default(), 0);
        programs
    }
}

impl Programs {
    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.logic.memory_bytes()
            + with_room(
                self.shapes.len() * (size_of::<(NodeId, Shape)>() + 1)
                    + self.derived.len() * (size_of::<(FormulaId, Event, FormulaId)>() + 1)
                    + self.ways_of.len() * (size_of::<((FormulaId, Event), Ways)>() + 1)
                    + self.value_lexemes.len() * 13
                    + self.key_lexemes.len() * 37
                    + self.joint_frames.len() * (size_of::<(Goals, Frame)>() + 1)
                    + self.items_of.len() * (size_of::<(ArrayId, Option<Arc<Items>>)>() + 1)
                    + self.values_of.len() * (size_of::<((ObjectAt, ObjectId, u32), Values)>() + 1)
                    + self.outcomes_of.len() * (size_of::<OutcomesEntry>() + 1)
                    + self.listed.len() * (size_of::<(ExprId, Arc<Listed>)>() + 1)
                    + self.few_numbers.len() * (size_of::<(ExprId, FewNumbers)>() + 1)
                    + self.plans.len()
                        * (size_of::<Plan>() + size_of::<(Box<[FormulaId]>, PlanId)>())
                    + self.plain.len() * size_of::<Option<Arc<Plain>>>(),
            )
            + self.styles.bytes
            + self.goals.bytes
            + self.arrays.bytes
            + self.outcomes.bytes
            + self.objects.bytes
            + self.done.bytes
            + self.seen.memory_bytes()
            + self.costs.memory_bytes()
            + self.values.memory_bytes()
    }

    /// Takes the steps of the formulas and nodes that were made since this was called last, and looks
    /// whether there is room for them and for what else was made, beside `bytes`.
    pub(super) fn charge(&mut self, bytes: usize, fuel: &mut Fuel) -> Result<(), Stop> {
        self.logic.charge(fuel)?;
        fuel.check_bytes(self.memory_bytes() + bytes)
    }

    /// The nodes, for the front end.
    pub(crate) fn nodes(&mut self) -> &mut super::node::Nodes {
        &mut self.logic.nodes
    }

    /// Languages that every grammar needs.
    pub(super) fn texts(&mut self, lexicon: &mut Lexicon) -> Texts {
        *self.texts.get_or_insert_with(|| {
            let words = [&b"null"[..], b"false", b"true"].map(|word| lexicon.literal(word));
            let char = lexicon.json_char();
            let body = lexicon.star(char);
            let string = lexicon.json_quoted(body);
            let char = lexicon.json_constrained_char();
            let body = lexicon.star(char);
            let constrained = lexicon.json_quoted(body);
            Texts {
                words,
                number: lexicon.json_number(),
                string,
                decimal: lexicon.json_decimal(),
                constrained,
            }
        })
    }

    /// The frames of a grammar: texts that are one value of a node. `None` where the node holds of
    /// itself in place, by way of references.
    pub(crate) fn start(
        &mut self,
        root: NodeId,
        style: Style,
        fuel: &mut Fuel,
    ) -> Result<Option<[Frame; 2]>, Stop> {
        if self.has_cycle_in_place(root, fuel)? {
            return Ok(None);
        }
        let style = StyleId(self.styles.intern(style, 0).0);
        let goals = self.goals_of(&[root]);
        let value = match self.style(style).spacing.outer {
            EPSILON => Frame::Value { goals, style },
            _ => Frame::Root { goals, style },
        };
        Ok(Some([Frame::End { style }, value]))
    }

    /// The frames of a text that is one value of a node, which is known not to hold of itself in place.
    pub(crate) fn value_frames(&mut self, node: NodeId, style: Style) -> [Frame; 2] {
        let style = StyleId(self.styles.intern(style, 0).0);
        let goals = self.goals_of(&[node]);
        [Frame::End { style }, Frame::Value { goals, style }]
    }

    /// Finds out whether a node has a value, so that this is known when what it is in is looked at.
    pub(crate) fn know(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        self.cost(lexicon, node, fuel).map(drop)
    }

    /// The node of any JSON object.
    pub(crate) fn any_object(&mut self) -> NodeId {
        self.logic.nodes.kinds(Kinds::OBJECT)
    }

    pub(super) fn style(&self, style: StyleId) -> Style {
        *self.styles.get(style.0)
    }

    /// Goals, references resolved.
    pub(super) fn goals_of(&mut self, nodes: &[NodeId]) -> GoalsId {
        let nodes: Box<[NodeId]> = nodes.iter().map(|&node| self.resolved(node)).collect();
        let bytes = nodes.len() * size_of::<NodeId>();
        GoalsId(self.goals.intern(nodes, bytes).0)
    }

    pub(super) fn array_of(&mut self, formulas: Box<[FormulaId]>) -> ArrayId {
        let bytes = formulas.len() * size_of::<FormulaId>();
        ArrayId(self.arrays.intern(formulas, bytes).0)
    }

    pub(super) fn outcomes_id(&mut self, frames: Box<[Frame]>) -> OutcomesId {
        let bytes = frames.len() * size_of::<Frame>();
        OutcomesId(self.outcomes.intern(frames, bytes).0)
    }

    pub(super) fn object(&self, object: ObjectId) -> &Object {
        self.objects.get(object.0)
    }

    pub(super) fn plan(&self, plan: PlanId) -> &Plan {
        &self.plans[plan.0 as usize]
    }

    /// Things, each once, in the order in which they are met.
    pub(super) fn each_once<T: Copy + Eq + Hash>(list: impl Iterator<Item = T>) -> Vec<T> {
        let mut seen = HashSet::new();
        list.filter(|&item| seen.insert(item)).collect()
    }
}
