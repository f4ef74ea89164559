//! The plan of an object: which keys there are.
//!
//! When an object is opened, all names that its formulas speak of get numbers, and the languages of
//! keys are split into disjoint classes.

use std::sync::Arc;

use hashbrown::HashMap;

use super::facts::bit_of_name;
use super::formula::{Formula, FormulaId};
use super::node::{ANYTHING, NOTHING, Node, NodeId, OPERANDS_PER_STEP};
use super::programs::Programs;
use crate::bound::Bound;
use crate::held::{allocated, shared, with_room};
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// What assertions about members, by number, say of a key because of its patterns.
type Outcome = Vec<(usize, NodeId)>;

/// A plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct PlanId(pub(super) u32);

/// The keys of an object.
#[derive(Default)]
pub(super) struct Plan {
    names: Vec<(Box<str>, ExprId)>,
    /// By name, the node that says that it is there, if the formulas have it.
    has: Vec<Option<NodeId>>,
    /// By name, its bit in what is known of formulas.
    bits: Vec<u64>,
    numbers: HashMap<Box<str>, u32>,
    /// Disjoint languages of keys, none of them a name.
    pub(super) classes: Vec<ExprId>,
    /// Whether keys are spelled in any way, since nothing tells them apart.
    pub(super) is_free: bool,
    /// By assertion about members: what it says of each name, then of each class.
    values: HashMap<NodeId, Arc<[NodeId]>>,
    /// By assertion about members, the only key that it says something of, where it is only one.
    only_keys: HashMap<NodeId, u32>,
    /// Expressions that it asked for when it was made.
    num_asked: u64,
}

impl Plan {
    pub(super) fn num_names(&self) -> u32 {
        self.names.len() as u32
    }

    /// A name by its number.
    pub(super) fn name(&self, key: u32) -> Option<&str> {
        self.names.get(key as usize).map(|name| &*name.0)
    }

    /// The node that says that a name is there, if the formulas have it.
    pub(super) fn has(&self, key: u32) -> Option<NodeId> {
        self.has.get(key as usize).copied().flatten()
    }

    /// The bit of a name in `Facts::member_names`; none of a class.
    pub(super) fn bit_of(&self, key: u32) -> u64 {
        self.bits.get(key as usize).copied().unwrap_or(0)
    }

    /// A name's spellings, in quotes.
    pub(super) fn key(&self, name: u32) -> ExprId {
        self.names[name as usize].1
    }

    /// Whether an assertion about members says nothing any more once a name is over.
    pub(super) fn is_only_of(&self, members: NodeId, name: u32) -> bool {
        name < self.num_names() && self.only_keys.get(&members) == Some(&name)
    }

    /// The only key that an assertion about members says something of, if it is only one.
    pub(super) fn only_key(&self, members: NodeId) -> Option<u32> {
        self.only_keys.get(&members).copied()
    }

    /// What an assertion about members says of those with a key.
    pub(super) fn value(&self, members: NodeId, key: u32) -> NodeId {
        let values = self.values.get(&members);
        values.map_or(NOTHING, |values| values[key as usize])
    }

    /// A name's number.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Names and classes.
    pub(super) fn num_keys(&self) -> usize {
        self.names.len() + self.classes.len()
    }

    /// What an assertion about members says of each name, then of each class.
    pub(super) fn values(&self, members: NodeId) -> Option<&Arc<[NodeId]>> {
        self.values.get(&members)
    }

    /// Bytes of what it has, itself apart.
    fn memory_bytes(&self) -> usize {
        let names = self.names.iter().map(|name| 2 * allocated(name.0.len()));
        let values = self
            .values
            .values()
            .map(|values| shared(size_of_val(&**values)));
        names.sum::<usize>()
            + values.sum::<usize>()
            + with_room(
                self.names.len()
                    * (size_of::<(Box<str>, ExprId, Option<NodeId>, u64)>()
                        + size_of::<(Box<str>, u32)>()
                        + 1)
                    + self.classes.len() * size_of::<ExprId>()
                    + self.values.len() * (size_of::<(NodeId, Arc<[NodeId]>)>() + 1)
                    + self.only_keys.len() * (size_of::<(NodeId, u32)>() + 1),
            )
    }

    /// Adds a name where it isn't there.
    fn add_name(&mut self, lexicon: &mut Lexicon, name: &str) {
        if !self.numbers.contains_key(name) {
            let number = self.names.len() as u32;
            self.numbers.insert(name.into(), number);
            let spellings = lexicon.json_string(name, false);
            self.names.push((name.into(), spellings));
            self.has.push(None);
            self.bits.push(bit_of_name(name));
        }
    }
}

/// The text of a string under a constraint, in quotes.
pub(super) fn spelled(string: &str) -> Vec<u8> {
    let mut text = vec![b'"'];
    for char in string.chars() {
        let mut utf8 = [0; 4];
        match char {
            '"' | '\\' => text.extend([b'\\', char as u8]),
            '\x08' => text.extend(b"\\b"),
            '\x0c' => text.extend(b"\\f"),
            '\n' => text.extend(b"\\n"),
            '\r' => text.extend(b"\\r"),
            '\t' => text.extend(b"\\t"),
            '\0'..='\x1f' => text.extend(format!("\\u{:04x}", char as u32).bytes()),
            _ => text.extend(char.encode_utf8(&mut utf8).bytes()),
        }
    }
    text.push(b'"');
    text
}

impl Programs {
    /// The plan of an object that is to meet some formulas.
    pub(super) fn plan_of(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<PlanId, Stop> {
        if let Some(&known) = self.plan_ids.get(formulas) {
            lexicon.ask_again(self.plan(known).num_asked);
            return Ok(known);
        }
        let num_asked = lexicon.num_asked();
        let mut plan = Plan::default();
        let (members, patterns) = self.add_names(lexicon, &mut plan, formulas, fuel)?;
        if plan.names.len() > Bound::Names.max() {
            return Err(fuel.exhaust(Bound::Names));
        }
        if patterns.len() > Bound::KeyPatterns.max() {
            return Err(fuel.exhaust(Bound::KeyPatterns));
        }
        let classes = self.classes_of(lexicon, &mut plan, &members, &patterns, fuel)?;
        let of_names = patterns_of_names(lexicon, &plan, &patterns, fuel)?;
        for &node in &members {
            fuel.burn((plan.names.len() + classes.len()) as u64)?;
            let values = self.values_by_key(&plan, node, &patterns, &of_names, &classes);
            let mut told = (0_u32..).zip(&values).filter(|value| *value.1 != ANYTHING);
            if let (Some((key, _)), None) = (told.next(), told.next()) {
                plan.only_keys.insert(node, key);
            }
            plan.values.insert(node, values.into());
        }
        plan.classes = classes.into_iter().map(|class| class.0).collect();
        self.bytes += plan.memory_bytes() + 2 * allocated(size_of_val(formulas));
        plan.num_asked = lexicon.num_asked() - num_asked;
        let id = PlanId(self.plans.len() as u32);
        self.plans.push(plan);
        self.plan_ids.insert(formulas.into(), id);
        Ok(id)
    }

    /// Adds an assertion that says something of one name alone to a plan.
    pub(super) fn add_to_plan(
        &mut self,
        plan: PlanId,
        assertion: NodeId,
        name: u32,
        value: NodeId,
    ) {
        let plan = &mut self.plans[plan.0 as usize];
        if assertion == ANYTHING || plan.values.contains_key(&assertion) {
            return;
        }
        let mut values = vec![ANYTHING; plan.num_keys()];
        values[name as usize] = value;
        self.bytes += shared(size_of_val(&*values))
            + with_room(size_of::<(NodeId, Arc<[NodeId]>)>() + size_of::<(NodeId, u32)>() + 2);
        plan.values.insert(assertion, values.into());
        plan.only_keys.insert(assertion, name);
    }

    /// Adds the node that says that a name is there, where none of a plan's formulas had it.
    pub(super) fn add_has_to_plan(&mut self, plan: PlanId, has: NodeId, name: u32) {
        self.plans[plan.0 as usize].has[name as usize] = Some(has);
    }

    /// Adds all names that formulas speak of to a plan. What the formulas assert about members, and
    /// the patterns of keys in that, each once.
    fn add_names(
        &self,
        lexicon: &mut Lexicon,
        plan: &mut Plan,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<(Vec<NodeId>, Vec<ExprId>), Stop> {
        let (mut members, mut has) = (Vec::new(), Vec::new());
        for leaf in self.logic.leaves(formulas, fuel)? {
            let (Formula::Is(node) | Formula::Not(node)) = *self.logic.formula(leaf) else {
                continue;
            };
            match self.logic.nodes.node(node) {
                Node::Members(_) => members.push(node),
                Node::Has(name) => has.push((name, node)),
                _ => {}
            }
        }
        let members = Self::each_once(members.into_iter());
        let mut patterns = Vec::new();
        for &node in &members {
            if let Node::Members(said) = self.logic.nodes.node(node) {
                fuel.burn(said.named.len() as u64)?;
                for (name, _) in &said.named {
                    plan.add_name(lexicon, name);
                }
                patterns.extend(said.patterns.iter().map(|pattern| pattern.0));
            }
        }
        for (name, node) in has {
            plan.add_name(lexicon, name);
            if let Some(number) = plan.number(name) {
                plan.has[number as usize] = Some(node);
            }
        }
        Ok((members, Self::each_once(patterns.into_iter())))
    }

    /// The disjoint classes of the keys that are no names, each with the patterns that some of its keys are
    /// in, as bits: what is asserted about members says the same of all of them.
    fn classes_of(
        &mut self,
        lexicon: &mut Lexicon,
        plan: &mut Plan,
        members: &[NodeId],
        patterns: &[ExprId],
        fuel: &mut Fuel,
    ) -> Result<Vec<(ExprId, u64)>, Stop> {
        let said = self.said_of_patterns(members, patterns);
        // What is said of keys that are in some of the patterns.
        let outcome = |bits: u64| -> Outcome {
            let said = said.iter().filter(|(bit, _)| bits & bit != 0);
            let mut all: Vec<_> = said.map(|&(_, outcome)| outcome).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let texts = self.texts(lexicon);
        plan.is_free = plan.names.is_empty() && patterns.is_empty();
        let universe = if plan.is_free {
            texts.string
        } else {
            let names: Vec<ExprId> = plan.names.iter().map(|name| name.1).collect();
            let names = lexicon.or(&names);
            let unnamed = lexicon.not(names);
            lexicon.and(&[texts.constrained, unnamed])
        };
        let mut classes = vec![(universe, 0_u64)];
        for (bit, &pattern) in patterns.iter().enumerate() {
            // By what is said of them.
            let mut split: Vec<(Outcome, Vec<ExprId>, u64)> = Vec::new();
            let not = lexicon.not(pattern);
            for (class, bits) in classes {
                fuel.burn(1 + said.len() as u64 / OPERANDS_PER_STEP)?;
                let (within, beside) = (outcome(bits | 1 << bit), outcome(bits));
                let parts = match within == beside {
                    true => vec![(class, bits, beside)],
                    false => vec![
                        (lexicon.and(&[class, pattern]), bits | 1 << bit, within),
                        (lexicon.and(&[class, not]), bits, beside),
                    ],
                };
                for (class, bits, outcome) in parts {
                    if !lexicon.is_live(class, fuel)? {
                        continue;
                    }
                    match split.iter_mut().find(|known| known.0 == outcome) {
                        Some(known) => known.1.push(class),
                        None => split.push((outcome, vec![class], bits)),
                    }
                }
            }
            let split = split.into_iter();
            classes = split
                .map(|(_, parts, bits)| (lexicon.or(&parts), bits))
                .collect();
            if classes.len() > Bound::KeyClasses.max() {
                return Err(fuel.exhaust(Bound::KeyClasses));
            }
        }
        if patterns.is_empty() && !plan.is_free && !lexicon.is_live(universe, fuel)? {
            classes.clear();
        }
        Ok(classes)
    }

    /// By a pattern's bit, what assertions about members say of the keys in it, each with the number of the
    /// assertion.
    fn said_of_patterns(
        &self,
        members: &[NodeId],
        patterns: &[ExprId],
    ) -> Vec<(u64, (usize, NodeId))> {
        let mut said_of_patterns = Vec::new();
        for (number, &node) in members.iter().enumerate() {
            if let Node::Members(said) = self.logic.nodes.node(node) {
                for (pattern, value) in &said.patterns {
                    let bit = patterns.iter().position(|known| known == pattern);
                    said_of_patterns.push((1 << bit.unwrap_or(0), (number, *value)));
                }
            }
        }
        said_of_patterns
    }

    /// What an assertion about members says of each name, then of each class.
    fn values_by_key(
        &mut self,
        plan: &Plan,
        members: NodeId,
        patterns: &[ExprId],
        patterns_of_names: &[u64],
        classes: &[(ExprId, u64)],
    ) -> Vec<NodeId> {
        let Node::Members(said) = self.logic.nodes.node(members).clone() else {
            return Vec::new();
        };
        let mut named: Vec<Option<NodeId>> = vec![None; plan.names.len()];
        for (text, value) in &said.named {
            if let Some(number) = plan.number(text) {
                let value = match named[number as usize] {
                    Some(before) => self.logic.nodes.all_of(&[before, *value]),
                    None => *value,
                };
                named[number as usize] = Some(value);
            }
        }
        let bit_of = |pattern: &ExprId| patterns.iter().position(|known| known == pattern);
        let of_patterns: Vec<(u64, NodeId)> = said
            .patterns
            .iter()
            .map(|(pattern, value)| (1 << bit_of(pattern).unwrap_or(0), *value))
            .collect();
        let keys = named.into_iter().zip(patterns_of_names.iter().copied());
        let keys = keys.chain(classes.iter().map(|class| (None, class.1)));
        let mut values = Vec::with_capacity(plan.names.len() + classes.len());
        for (named, bits) in keys {
            let mut all: Vec<NodeId> = named.into_iter().collect();
            let inside = of_patterns.iter().filter(|(bit, _)| bits & bit != 0);
            all.extend(inside.map(|pattern| pattern.1));
            values.push(match all[..] {
                [] => said.additional,
                [only] => only,
                _ => self.logic.nodes.all_of(&all),
            });
        }
        values
    }
}

/// The patterns that each name of a plan is in, as bits.
fn patterns_of_names(
    lexicon: &mut Lexicon,
    plan: &Plan,
    patterns: &[ExprId],
    fuel: &mut Fuel,
) -> Result<Vec<u64>, Stop> {
    if patterns.is_empty() {
        return Ok(vec![0; plan.names.len()]);
    }
    let mut found = Vec::with_capacity(plan.names.len());
    for (text, _) in &plan.names {
        let mut bits = 0_u64;
        let text = spelled(text);
        for (bit, &pattern) in patterns.iter().enumerate() {
            let mut at = pattern;
            for &byte in &text {
                fuel.burn(1)?;
                at = lexicon.derivative(at, byte, fuel)?;
            }
            bits |= u64::from(lexicon.is_nullable(at)) << bit;
        }
        found.push(bits);
    }
    Ok(found)
}
