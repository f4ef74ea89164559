//! Schemas as boolean combinations of assertions, each distinct one once.
//!
//! This is what a schema says, without how it is enforced: the front end (`schema`) makes nodes, the
//! machine (`shape`, `frame`) turns them into what may come next. As in JSON Schema, an assertion
//! about one type holds of every value of another type.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::number::is_canonical;
use super::value::Value;
use crate::held::{allocated, shared, with_room};
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// An interned node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId(pub(super) u32);

/// Holds of every value: all of nothing.
pub(super) const ANYTHING: NodeId = NodeId(0);
/// Holds of no value: any of nothing.
pub(super) const NOTHING: NodeId = NodeId(1);

/// A set of kinds of values. The booleans are two kinds, so that each can be listed; `integer` is a
/// number with a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kinds(pub(super) u8);

impl Kinds {
    pub(super) const NULL: Self = Self(1);
    pub(super) const FALSE: Self = Self(2);
    pub(super) const TRUE: Self = Self(4);
    pub(super) const BOOLEAN: Self = Self(6);
    pub(super) const NUMBER: Self = Self(8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn contains(self, kind: Self) -> bool {
        self.0 & kind.0 == kind.0
    }

    pub(super) fn complement(self) -> Self {
        Self(Self::ALL.0 & !self.0)
    }
}

/// What an object's members must be, by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Members {
    /// By name, in the order in which they are written.
    pub(super) named: Box<[(Box<str>, NodeId)]>,
    /// By languages of keys, which are spelled as strings under a constraint, in quotes. A key
    /// that is in several, or named as well, has to meet all.
    pub(super) patterns: Box<[(ExprId, NodeId)]>,
    /// All members that are neither named nor in a language.
    pub(super) additional: NodeId,
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// All hold. In the order of the source, which is the order in which properties are written.
    AllOf(Arc<[NodeId]>),
    /// At least one holds.
    AnyOf(Arc<[NodeId]>),
    /// Exactly one holds. Operands may be equal.
    OneOf(Arc<[NodeId]>),
    Not(NodeId),
    /// The value is of one of these kinds.
    Kinds(Kinds),
    /// A number is spelled in this language, which keeps to `Lexicon::json_decimal` and the
    /// spellings that a schema itself uses.
    Number(ExprId),
    /// A string is spelled in this language, quotes included, which keeps to strings of
    /// [`Lexicon::json_constrained_char`].
    String(ExprId),
    /// The items of an array, by position.
    Items {
        prefix: Box<[NodeId]>,
        rest: NodeId,
    },
    /// An array has at least that many items.
    MinItems(u32),
    /// At least `min` items of an array are such.
    Contains {
        item: NodeId,
        min: u32,
    },
    /// No two items of an array are equal.
    UniqueItems,
    /// What an object's members are.
    Members(Members),
    /// An object has this key.
    Has(Box<str>),
    /// An object has at least that many members.
    MinProperties(u32),
    /// A node that was defined after its first use, for recursion: [`Nodes::definition`].
    Reference(u32),
}

/// All nodes of a generation.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    ids: HashMap<Node, NodeId>,
    definitions: Vec<NodeId>,
    /// The languages of single strings, and the alternatives of those of single numbers: different ones
    /// are disjoint, and none is empty.
    single_values: HashSet<ExprId>,
    bytes: usize,
    /// Operands that were looked at, see [`Nodes::charge`].
    work: u64,
}

/// Operands of nodes or formulas that are as much work as one step.
pub(super) const OPERANDS_PER_STEP: u64 = 8;

impl Default for Nodes {
    fn default() -> Self {
        let mut nodes = Self {
            nodes: Vec::new(),
            ids: HashMap::new(),
            definitions: Vec::new(),
            single_values: HashSet::new(),
            bytes: 0,
            work: 0,
        };
        nodes.intern(Node::AllOf(Arc::default()));
        nodes.intern(Node::AnyOf(Arc::default()));
        nodes
    }
}

impl Nodes {
    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + with_room(
                self.definitions.len() * size_of::<NodeId>()
                    + self.single_values.len() * (size_of::<ExprId>() + 1),
            )
    }

    /// Takes the steps of what was made since this was called last.
    pub(crate) fn charge(&mut self, fuel: &mut Fuel) -> Result<(), Stop> {
        let steps = self.work / OPERANDS_PER_STEP;
        self.work %= OPERANDS_PER_STEP;
        fuel.burn(steps)
    }

    /// Whether a language is known to be that of one string, or an alternative of that of one number.
    pub(super) fn is_single_value(&self, language: ExprId) -> bool {
        self.single_values.contains(&language)
    }

    /// The language of one string under a constraint, quotes included.
    pub(super) fn single_string(&mut self, lexicon: &mut Lexicon, text: &str) -> ExprId {
        let language = lexicon.json_string(text, false);
        self.note_single_value(language);
        language
    }

    /// The language of one number, see [`Lexicon::json_number_value`].
    ///
    /// # Errors
    /// A text that is no JSON number.
    pub(super) fn single_number(
        &mut self,
        lexicon: &mut Lexicon,
        text: &str,
    ) -> Result<ExprId, String> {
        let language = lexicon.json_number_value(text)?;
        // Others have a spelling of their own beside those of their value.
        if is_canonical(text) {
            // Without a point and with one: parts that no other number has, nor each other.
            self.single_values.extend(lexicon.alternatives(language));
        }
        Ok(language)
    }

    /// Takes note of a language that is that of one string under a constraint.
    pub(super) fn note_single_value(&mut self, language: ExprId) {
        self.single_values.insert(language);
    }

    /// What a node says.
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn intern(&mut self, node: Node) -> NodeId {
        if let Some(&known) = self.ids.get(&node) {
            return known;
        }
        // Held twice, by number and for look-up, but for lists, which are shared.
        let heap = match &node {
            Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => {
                shared(size_of_val(&**list))
            }
            Node::Items { prefix, .. } => 2 * allocated(size_of_val(&**prefix)),
            Node::Members(members) => {
                let names = members.named.iter().map(|named| allocated(named.0.len()));
                let lists = allocated(size_of_val(&*members.named))
                    + allocated(size_of_val(&*members.patterns));
                2 * (names.sum::<usize>() + lists)
            }
            Node::Has(name) => 2 * allocated(name.len()),
            _ => 0,
        };
        self.bytes += with_room(size_of::<Node>() + size_of::<(Node, NodeId)>() + 1) + heap;
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        self.ids.insert(node, id);
        id
    }

    /// A node that says what [`Nodes::define`] will make it say.
    pub(super) fn reserve(&mut self) -> NodeId {
        let number = self.definitions.len() as u32;
        self.definitions.push(NOTHING);
        self.intern(Node::Reference(number))
    }

    /// Says what a reserved node says.
    pub(super) fn define(&mut self, reserved: NodeId, node: NodeId) {
        if let Node::Reference(number) = *self.node(reserved) {
            self.definitions[number as usize] = node;
        }
    }

    /// What a [`Node::Reference`] stands for.
    pub(super) fn definition(&self, number: u32) -> NodeId {
        self.definitions[number as usize]
    }

    /// All of some nodes hold.
    pub(super) fn all_of(&mut self, nodes: &[NodeId]) -> NodeId {
        let mut flat = Vec::with_capacity(nodes.len());
        for &id in nodes {
            match self.node(id) {
                Node::AllOf(inner) => flat.extend_from_slice(inner),
                _ => flat.push(id),
            }
        }
        self.work += flat.len() as u64;
        keep_first(&mut flat);
        match flat[..] {
            _ if flat.contains(&NOTHING) => NOTHING,
            [only] => only,
            _ => self.intern(Node::AllOf(flat.into())),
        }
    }

    /// At least one of some nodes holds.
    pub(super) fn any_of(&mut self, nodes: &[NodeId]) -> NodeId {
        let mut flat = Vec::with_capacity(nodes.len());
        for &id in nodes {
            match self.node(id) {
                Node::AnyOf(inner) => flat.extend_from_slice(inner),
                _ => flat.push(id),
            }
        }
        self.work += flat.len() as u64;
        keep_first(&mut flat);
        match flat[..] {
            _ if flat.contains(&ANYTHING) => ANYTHING,
            [only] => only,
            _ => self.intern(Node::AnyOf(flat.into())),
        }
    }

    /// Exactly one of some nodes holds.
    pub(super) fn one_of(&mut self, nodes: &[NodeId]) -> NodeId {
        self.work += nodes.len() as u64;
        let some: Vec<NodeId> = nodes.iter().copied().filter(|&id| id != NOTHING).collect();
        match some[..] {
            [] => NOTHING,
            [only] => only,
            _ => self.intern(Node::OneOf(some.into())),
        }
    }

    /// The node does not hold. Operands that are negated themselves are taken out, so that what is
    /// negated twice is an assertion again, of which more is known than of a complement.
    pub(super) fn not(&mut self, node: NodeId) -> NodeId {
        match self.node(node) {
            _ if node == ANYTHING => NOTHING,
            _ if node == NOTHING => ANYTHING,
            Node::Not(inner) => *inner,
            Node::Kinds(kinds) => self.kinds(kinds.complement()),
            Node::AllOf(list) => match self.without_negated(&list.clone()) {
                Some((mut ways, rest)) => {
                    let rest = self.all_of(&rest);
                    ways.push(self.not(rest));
                    self.any_of(&ways)
                }
                None => self.intern(Node::Not(node)),
            },
            Node::AnyOf(list) => match self.without_negated(&list.clone()) {
                Some((mut all, rest)) => {
                    let rest = self.any_of(&rest);
                    all.push(self.not(rest));
                    self.all_of(&all)
                }
                None => self.intern(Node::Not(node)),
            },
            _ => self.intern(Node::Not(node)),
        }
    }

    /// What the negated ones of some nodes negate, and the other nodes; `None` where none is
    /// negated.
    fn without_negated(&self, list: &[NodeId]) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
        let (mut negated, mut others) = (Vec::new(), Vec::new());
        for &id in list {
            match self.node(id) {
                Node::Not(inner) => negated.push(*inner),
                _ => others.push(id),
            }
        }
        (!negated.is_empty()).then_some((negated, others))
    }

    /// The value is of one of some kinds.
    pub(super) fn kinds(&mut self, kinds: Kinds) -> NodeId {
        match kinds {
            Kinds::ALL => ANYTHING,
            Kinds(0) => NOTHING,
            _ => self.intern(Node::Kinds(kinds)),
        }
    }

    /// If it is a number, it is spelled so.
    pub(super) fn number(&mut self, language: ExprId) -> NodeId {
        self.intern(Node::Number(language))
    }

    /// If it is a string, it is spelled so.
    pub(super) fn string(&mut self, language: ExprId) -> NodeId {
        self.intern(Node::String(language))
    }

    /// If it is an array, its items are such.
    pub(super) fn items(&mut self, mut prefix: Vec<NodeId>, rest: NodeId) -> NodeId {
        self.work += prefix.len() as u64;
        while prefix.last() == Some(&rest) {
            prefix.pop();
        }
        if prefix.is_empty() && rest == ANYTHING {
            return ANYTHING;
        }
        self.intern(Node::Items {
            prefix: prefix.into(),
            rest,
        })
    }

    /// If it is an array, it has at least that many items.
    pub(super) fn min_items(&mut self, min: u32) -> NodeId {
        match min {
            0 => ANYTHING,
            _ => self.intern(Node::MinItems(min)),
        }
    }

    /// If it is an array, it has at most that many items.
    pub(super) fn max_items(&mut self, max: u32) -> NodeId {
        let Some(more) = max.checked_add(1) else {
            return ANYTHING;
        };
        let more = self.min_items(more);
        self.unless(Kinds::ARRAY, more)
    }

    /// If it is an array, at least `min` items are such.
    pub(super) fn contains(&mut self, item: NodeId, min: u32) -> NodeId {
        match (item, min) {
            (_, 0) => ANYTHING,
            (ANYTHING, _) => self.min_items(min),
            _ => self.intern(Node::Contains { item, min }),
        }
    }

    /// If it is an array, at most `max` items are such.
    pub(super) fn max_contains(&mut self, item: NodeId, max: u32) -> NodeId {
        let Some(more) = max.checked_add(1) else {
            return ANYTHING;
        };
        let more = self.contains(item, more);
        self.unless(Kinds::ARRAY, more)
    }

    /// If it is an array, no two items are equal.
    pub(super) fn unique_items(&mut self) -> NodeId {
        self.intern(Node::UniqueItems)
    }

    /// If it is an object, its members are such.
    pub(super) fn members(&mut self, members: Members) -> NodeId {
        self.work += (members.named.len() + members.patterns.len()) as u64;
        let mut all = members.named.iter().map(|named| named.1);
        let free = all.all(|node| node == ANYTHING)
            && members.patterns.iter().all(|pattern| pattern.1 == ANYTHING)
            && members.additional == ANYTHING;
        // Names that say nothing still say in which order they come.
        if free && members.named.is_empty() {
            return ANYTHING;
        }
        self.intern(Node::Members(members))
    }

    /// If it is an object, it has this key.
    pub(super) fn has(&mut self, name: &str) -> NodeId {
        self.intern(Node::Has(name.into()))
    }

    /// If it is an object, it has at least that many members.
    pub(super) fn min_properties(&mut self, min: u32) -> NodeId {
        match min {
            0 => ANYTHING,
            _ => self.intern(Node::MinProperties(min)),
        }
    }

    /// If it is an object, it has at most that many members.
    pub(super) fn max_properties(&mut self, max: u32) -> NodeId {
        let Some(more) = max.checked_add(1) else {
            return ANYTHING;
        };
        let more = self.min_properties(more);
        self.unless(Kinds::OBJECT, more)
    }

    /// If it is of a kind, a node doesn't hold.
    pub(super) fn unless(&mut self, kind: Kinds, node: NodeId) -> NodeId {
        let other = self.kinds(kind.complement());
        let not = self.not(node);
        self.any_of(&[other, not])
    }

    /// The values that are equal to one. `None` where a number is not spelled as JSON has it.
    /// Recursion is bounded by the value's nesting.
    pub(super) fn constant(&mut self, lexicon: &mut Lexicon, value: &Value) -> Option<NodeId> {
        let kind = match value {
            Value::Null => Kinds::NULL,
            Value::Bool(false) => Kinds::FALSE,
            Value::Bool(true) => Kinds::TRUE,
            Value::Number(_) => Kinds::NUMBER,
            Value::String(_) => Kinds::STRING,
            Value::Array(_) => Kinds::ARRAY,
            Value::Object(_) => Kinds::OBJECT,
        };
        let mut all = vec![self.kinds(kind)];
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(text) => {
                let language = self.single_number(lexicon, text).ok()?;
                all.push(self.number(language));
            }
            Value::String(text) => {
                let language = self.single_string(lexicon, text);
                all.push(self.string(language));
            }
            Value::Array(items) => {
                let prefix: Option<Vec<NodeId>> = items
                    .iter()
                    .map(|item| self.constant(lexicon, item))
                    .collect();
                all.push(self.items(prefix?, NOTHING));
                all.push(self.min_items(items.len() as u32));
            }
            Value::Object(entries) => {
                let mut named = Vec::with_capacity(entries.len());
                for (name, value) in entries.iter() {
                    let value = self.constant(lexicon, value)?;
                    named.push((name.as_str().into(), value));
                }
                all.push(self.members(Members {
                    named: named.into(),
                    patterns: Box::default(),
                    additional: NOTHING,
                }));
                for (name, _) in entries.iter() {
                    all.push(self.has(name));
                }
            }
        }
        Some(self.all_of(&all))
    }
}

/// Keeps the first of equal nodes.
fn keep_first(nodes: &mut Vec<NodeId>) {
    let mut seen = HashSet::with_capacity(nodes.len());
    nodes.retain(|&node| seen.insert(node));
}
