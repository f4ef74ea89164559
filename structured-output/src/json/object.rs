//! Objects: which keys there are, and which of them an object may still have.
//!
//! When an object is opened, all names that its formulas speak of get numbers, and the languages of
//! keys are split into disjoint classes: that is its *plan*. An object's place is how far it is in
//! its plan and what remains of its formulas. A *plain* object, a list of properties of which some
//! are required, as most are, keeps its formula as it is at the start.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::derive::Event;
use super::formula::{FALSE, Formula, FormulaId};
use super::live::{DEAD, WayMember};
use super::node::{ANYTHING, NOTHING, Node, NodeId};
use super::programs::Programs;
use super::seen::{NOTHING_SEEN, SeenId};
use super::value::unquote;
use crate::lexical::search::FARTHEST;
use crate::lexical::{ExprId, Fuel, Lexicon, OutOfFuel};
use crate::options::PropertyOrder;

/// The most names that an object's formulas may speak of.
pub(super) const MAX_NAMES: usize = 50_000;
/// The most languages of keys, and of their disjoint classes.
const MAX_CLASSES: usize = 64;

/// A plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct PlanId(pub(super) u32);

/// An interned [`Object`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ObjectId(pub(super) u32);

/// What an object is to meet, a formula per goal. Of a plain one, all of it; of others, what
/// remains.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) plan: PlanId,
    pub(super) rest: Box<[FormulaId]>,
}

/// How far an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ObjectAt {
    pub(super) plan: PlanId,
    pub(super) order: PropertyOrder,
    /// In the order of the schema, the number of the name up to which all are over; else a set of
    /// names that the object has.
    pub(super) done: u32,
    /// The other keys that it has.
    pub(super) seen: SeenId,
}

/// The keys of an object.
pub(super) struct Plan {
    names: Vec<(Box<str>, ExprId)>,
    numbers: HashMap<Box<str>, u32>,
    /// Disjoint languages of keys, none of them a name.
    pub(super) classes: Vec<ExprId>,
    /// Whether keys are spelled in any way, since nothing tells them apart.
    is_free: bool,
    /// By assertion about members: what it says of each name, then of each class.
    values: HashMap<NodeId, Arc<[NodeId]>>,
    /// By assertion about members, the only key that it says something of, where it is only one.
    only_keys: HashMap<NodeId, u32>,
    /// Expressions that it asked for when it was made.
    num_asked: u64,
}

/// A list of properties.
pub(super) struct Plain {
    /// What the members are: each name, then each class.
    pub(super) values: Vec<NodeId>,
    pub(super) required: Vec<bool>,
    pub(super) min: u32,
    pub(super) max: Option<u32>,
}

impl Plain {
    /// Whether the number of members matters.
    pub(super) fn counts(&self) -> bool {
        self.min > 0 || self.max.is_some()
    }
}

impl Plan {
    pub(super) fn num_names(&self) -> u32 {
        self.names.len() as u32
    }

    /// A name by its number.
    pub(super) fn name(&self, key: u32) -> Option<&str> {
        self.names.get(key as usize).map(|name| &*name.0)
    }

    /// A name's spellings, in quotes.
    pub(super) fn key(&self, name: u32) -> ExprId {
        self.names[name as usize].1
    }

    /// Whether an assertion about members says nothing any more once a name is over.
    pub(super) fn is_only_of(&self, members: NodeId, name: u32) -> bool {
        name < self.num_names() && self.only_keys.get(&members) == Some(&name)
    }

    /// What an assertion about members says of those with a key.
    pub(super) fn value(&self, members: NodeId, key: u32) -> NodeId {
        let values = self.values.get(&members);
        values.map_or(NOTHING, |values| values[key as usize])
    }
}

/// The text of a string under a constraint, in quotes.
fn spelled(string: &str) -> Vec<u8> {
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
    ) -> Result<PlanId, OutOfFuel> {
        if let Some(&known) = self.plan_ids.get(formulas) {
            lexicon.ask_again(self.plan(known).num_asked);
            return Ok(known);
        }
        let num_asked = lexicon.num_asked();
        let mut members = Vec::new();
        let mut has = Vec::new();
        for leaf in self.logic.leaves(formulas) {
            let (Formula::Is(node) | Formula::Not(node)) = *self.logic.formula(leaf) else {
                continue;
            };
            match self.logic.nodes.node(node) {
                Node::Members(_) => members.push(node),
                Node::Has(_) => has.push(node),
                _ => {}
            }
        }
        let members = Self::each_once(members.into_iter());
        let mut plan = Plan {
            names: Vec::new(),
            numbers: HashMap::new(),
            classes: Vec::new(),
            is_free: false,
            values: HashMap::new(),
            only_keys: HashMap::new(),
            num_asked: 0,
        };
        let mut patterns = Vec::new();
        let name = |plan: &mut Plan, name: &str, lexicon: &mut Lexicon| {
            if !plan.numbers.contains_key(name) {
                let number = plan.names.len() as u32;
                plan.numbers.insert(name.into(), number);
                plan.names
                    .push((name.into(), lexicon.json_string(name, false)));
            }
        };
        for &node in &members {
            if let Node::Members(said) = self.logic.nodes.node(node) {
                fuel.burn(said.named.len() as u64)?;
                for (text, _) in &said.named {
                    name(&mut plan, text, lexicon);
                }
                patterns.extend(said.patterns.iter().map(|pattern| pattern.0));
            }
        }
        for &node in &has {
            if let Node::Has(text) = self.logic.nodes.node(node) {
                name(&mut plan, text, lexicon);
            }
        }
        let patterns = Self::each_once(patterns.into_iter());
        if plan.names.len() > MAX_NAMES || patterns.len() > MAX_CLASSES {
            return Err(fuel.exhaust());
        }
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
        // The patterns that each class is in, as bits.
        let mut classes = vec![(universe, 0_u64)];
        for (bit, &pattern) in patterns.iter().enumerate() {
            let mut split = Vec::with_capacity(classes.len() * 2);
            let not = lexicon.not(pattern);
            for (class, bits) in classes {
                let inside = lexicon.and(&[class, pattern]);
                let outside = lexicon.and(&[class, not]);
                for (class, bits) in [(inside, bits | 1 << bit), (outside, bits)] {
                    if lexicon.is_live(class, fuel)? {
                        split.push((class, bits));
                    }
                }
            }
            classes = split;
            if classes.len() > MAX_CLASSES {
                return Err(fuel.exhaust());
            }
        }
        if patterns.is_empty() && !plan.is_free && !lexicon.is_live(universe, fuel)? {
            classes.clear();
        }
        let mut patterns_of_names = Vec::with_capacity(plan.names.len());
        for (text, _) in &plan.names {
            let mut bits = 0_u64;
            if !patterns.is_empty() {
                let text = spelled(text);
                for (bit, &pattern) in patterns.iter().enumerate() {
                    let mut at = pattern;
                    for &byte in &text {
                        fuel.burn(1)?;
                        at = lexicon.derivative(at, byte, fuel)?;
                    }
                    bits |= u64::from(lexicon.is_nullable(at)) << bit;
                }
            }
            patterns_of_names.push(bits);
        }
        for &node in &members {
            let Node::Members(said) = self.logic.nodes.node(node).clone() else {
                continue;
            };
            fuel.burn((plan.names.len() + classes.len()) as u64)?;
            let mut named: Vec<Option<NodeId>> = vec![None; plan.names.len()];
            for (text, value) in &said.named {
                if let Some(&number) = plan.numbers.get(text) {
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
            let mut told = (0_u32..).zip(&values).filter(|value| *value.1 != ANYTHING);
            if let (Some((key, _)), None) = (told.next(), told.next()) {
                plan.only_keys.insert(node, key);
            }
            plan.values.insert(node, values.into());
        }
        plan.classes = classes.into_iter().map(|class| class.0).collect();
        let keys = plan.names.len() + plan.classes.len();
        self.bytes += keys * (80 + 4 * plan.values.len());
        plan.num_asked = lexicon.num_asked() - num_asked;
        let id = PlanId(self.plans.len() as u32);
        self.plans.push(plan);
        self.plan_ids.insert(formulas.into(), id);
        Ok(id)
    }

    /// An object at its start, in the order of the schema.
    pub(super) fn object_start(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<ObjectAt, OutOfFuel> {
        Ok(ObjectAt {
            plan: self.plan_of(lexicon, formulas, fuel)?,
            order: PropertyOrder::Schema,
            done: 0,
            seen: NOTHING_SEEN,
        })
    }

    pub(super) fn object_of(&mut self, plan: PlanId, rest: Box<[FormulaId]>) -> ObjectId {
        let bytes = rest.len() * size_of::<FormulaId>();
        let object = Object { plan, rest };
        let plain = self.plain_of(&object);
        let (id, is_new) = self.objects.intern(object, bytes);
        if is_new {
            self.bytes += plain
                .as_ref()
                .map_or(0, |plain| 5 * plain.values.len() + 64);
            self.plain.push(plain.map(Arc::new));
        }
        ObjectId(id)
    }

    /// An object that is a plain list of properties.
    fn plain_of(&mut self, object: &Object) -> Option<Plain> {
        let [formula] = object.rest[..] else {
            return None;
        };
        let list = match self.logic.formula(formula) {
            Formula::All(list) => list.to_vec(),
            Formula::Is(_) | Formula::Not(_) => vec![formula],
            _ => return None,
        };
        let plan = self.plan(object.plan);
        let mut required = vec![false; plan.names.len()];
        let (mut min, mut max) = (0, None);
        let mut members = Vec::new();
        for &id in &list {
            match self.logic.formula(id) {
                Formula::Is(node) => match self.logic.nodes.node(*node) {
                    Node::Members(_) => members.push(*node),
                    Node::Has(name) => {
                        if let Some(&number) = plan.numbers.get(name) {
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
        let keys = plan.names.len() + plan.classes.len();
        let tables: Vec<Arc<[NodeId]>> = members
            .iter()
            .filter_map(|node| plan.values.get(node).cloned())
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
        })
    }

    /// Whether a name may still come.
    pub(super) fn is_open(&self, at: ObjectAt, name: u32) -> bool {
        match at.order {
            PropertyOrder::Schema => name >= at.done,
            PropertyOrder::Any => {
                let words = self.done.get(at.done);
                let word = words.get(name as usize / 64).copied().unwrap_or(0);
                word >> (name % 64) & 1 == 0
            }
        }
    }

    /// An object's place after a member with a name.
    pub(super) fn after_name(&mut self, at: ObjectAt, name: u32) -> ObjectAt {
        let done = match at.order {
            PropertyOrder::Schema => name + 1,
            PropertyOrder::Any => {
                let mut words = self.done.get(at.done).to_vec();
                let word = name as usize / 64;
                if words.len() <= word {
                    words.resize(word + 1, 0);
                }
                words[word] |= 1 << (name % 64);
                let bytes = words.len() * 8;
                self.done.intern(words.into(), bytes).0
            }
        };
        ObjectAt { done, ..at }
    }

    /// The keys of a class that an object doesn't have yet.
    pub(super) fn keys_of_class(
        &mut self,
        lexicon: &mut Lexicon,
        plan: PlanId,
        class: usize,
        seen: SeenId,
        fuel: &mut Fuel,
    ) -> Result<ExprId, OutOfFuel> {
        let plan = self.plan(plan);
        let (language, all_spellings) = (plan.classes[class], plan.is_free);
        if seen == NOTHING_SEEN {
            return Ok(language);
        }
        let spellings = self.seen.language(lexicon, seen, all_spellings, fuel)?;
        let unseen = lexicon.not(spellings);
        Ok(lexicon.and(&[language, unseen]))
    }

    /// A key of a class that an object doesn't have yet, as it is written, and the object's place
    /// with it.
    pub(super) fn fresh_key(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        class: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<(Vec<u8>, ObjectAt)>, OutOfFuel> {
        let keys = self.keys_of_class(lexicon, at.plan, class, at.seen, fuel)?;
        if !lexicon.is_live(keys, fuel)? {
            return Ok(None);
        }
        let mut text = Vec::new();
        Self::write_shortest(lexicon, keys, &mut text, fuel)?;
        let Ok((key, _)) = unquote(&String::from_utf8_lossy(&text)) else {
            return Ok(None);
        };
        let done = match at.order {
            PropertyOrder::Schema => self.plan(at.plan).num_names(),
            PropertyOrder::Any => at.done,
        };
        let seen = self.seen.with(at.seen, &key);
        Ok(Some((text, ObjectAt { seen, done, ..at })))
    }

    /// Members with which an object may end, in the order of the plan. `None` where there are none.
    ///
    /// Goes through the names in their order, each of them with each value that makes a difference
    /// and without a member, then through fresh keys of each class; depth first, where the least
    /// remains first, and what has failed is not tried again.
    pub(super) fn members_to_end(
        &mut self,
        lexicon: &mut Lexicon,
        start: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<WayMember>>, OutOfFuel> {
        let object = self.object_of(start.plan, [formula].into());
        if let Some(plain) = self.plain[object.0 as usize].clone() {
            return self.plain_members_to_end(lexicon, start, &plain, 0, fuel);
        }
        let mut failed: HashSet<(u32, FormulaId, SeenId)> = HashSet::new();
        let mut levels = vec![Level::new(0, formula, start.seen, None)];
        while let Some(level) = levels.last() {
            fuel.burn(1)?;
            let (name, formula, seen) = (level.name, level.formula, level.seen);
            if self.logic.facts(formula).closes {
                return Ok(Some(
                    levels
                        .into_iter()
                        .filter_map(|level| level.member)
                        .collect(),
                ));
            }
            let is_new = level.options.is_none();
            if is_new && failed.contains(&(name, formula, seen)) {
                levels.pop();
                continue;
            }
            if is_new {
                let at = ObjectAt { seen, ..start };
                let options = self.options(lexicon, at, name, formula, fuel)?;
                if let Some(level) = levels.last_mut() {
                    level.options = Some(options);
                }
            }
            let next = match levels.last_mut().and_then(|level| level.options.as_mut()) {
                Some(options) => self.next_option(lexicon, options, fuel)?,
                None => None,
            };
            match next {
                Some(next) => levels.push(next),
                None => {
                    failed.insert((name, formula, seen));
                    levels.pop();
                }
            }
        }
        Ok(None)
    }

    /// What to try next in a search for members.
    fn options(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        from: u32,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Options, OutOfFuel> {
        let num_names = self.plan(at.plan).num_names();
        let name = self.next_name(at, formula, from);
        let mut options = Options::default();
        if name < num_names {
            let without = self.derive(formula, Event::Without(at.plan, name), fuel)?;
            let text = spelled(self.plan(at.plan).name(name).unwrap_or_default());
            let key = Event::Key(at.plan, name);
            if self.is_splitting(formula, key) {
                // Within a value of this very member: by all ways.
                for outcome in self.outcomes(lexicon, &[formula], key, fuel)?.iter() {
                    if outcome.rest[0] != without {
                        let member = Some((text.clone(), outcome.value));
                        let level = Level::new(name + 1, outcome.rest[0], at.seen, member);
                        options.ready.push(level);
                    }
                }
            } else {
                let mut named = Named {
                    level: (name + 1, at.seen),
                    text,
                    without,
                    key: (formula, key),
                    next: 0,
                };
                self.more_values(lexicon, &mut named, &mut options.ready, fuel)?;
                options.named = Some(named);
            }
            if without != FALSE {
                let without = Level::new(name + 1, without, at.seen, None);
                options.ready.push(without);
            }
            self.sort_options(&mut options.ready);
        } else if self.logic.facts(formula).wants_members {
            for class in 0..self.plan(at.plan).classes.len() {
                let key = Event::Key(at.plan, num_names + class as u32);
                let outcomes = self.outcomes(lexicon, &[formula], key, fuel)?;
                if !outcomes.iter().any(|outcome| outcome.rest[0] != formula) {
                    continue;
                }
                let Some((text, after)) = self.fresh_key(lexicon, at, class, fuel)? else {
                    continue;
                };
                for outcome in outcomes.iter().filter(|o| o.rest[0] != formula) {
                    let member = Some((text.clone(), outcome.value));
                    let level = Level::new(num_names, outcome.rest[0], after.seen, member);
                    options.ready.push(level);
                }
            }
            self.sort_options(&mut options.ready);
        }
        Ok(options)
    }

    /// Puts the options with which the least remains last, and of equals, that without a member.
    fn sort_options(&self, options: &mut [Level]) {
        options.sort_by_key(|level| {
            let size = self.logic.facts(level.formula).size;
            std::cmp::Reverse((size, level.member.is_some()))
        });
    }

    /// The next option of a place in the search, whose member's value exists.
    fn next_option(
        &mut self,
        lexicon: &mut Lexicon,
        options: &mut Options,
        fuel: &mut Fuel,
    ) -> Result<Option<Level>, OutOfFuel> {
        loop {
            if options.ready.is_empty()
                && let Some(named) = &mut options.named
            {
                self.more_values(lexicon, named, &mut options.ready, fuel)?;
                self.sort_options(&mut options.ready);
            }
            let Some(next) = options.ready.pop() else {
                return Ok(None);
            };
            let is_possible = match next.member {
                Some((_, value)) => self.cost(lexicon, value, fuel)? != DEAD,
                None => true,
            };
            if is_possible {
                return Ok(Some(next));
            }
        }
    }

    /// Adds some of a name's values, so that the one with which the least remains can be tried first.
    fn more_values(
        &mut self,
        lexicon: &mut Lexicon,
        named: &mut Named,
        ready: &mut Vec<Level>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        for _ in 0..VALUES_AT_ONCE {
            match self.next_value(lexicon, named, fuel)? {
                Some(level) => ready.push(level),
                None => break,
            }
        }
        Ok(())
    }

    /// The next of a name's values with which something else remains than without the name. Of
    /// hundreds of alternatives the first mostly does, and what the others are is not asked.
    fn next_value(
        &mut self,
        lexicon: &mut Lexicon,
        named: &mut Named,
        fuel: &mut Fuel,
    ) -> Result<Option<Level>, OutOfFuel> {
        while let Some((value, rest)) = self.way(lexicon, named.key, named.next, fuel)? {
            named.next += 1;
            if rest != named.without {
                let (name, seen) = named.level;
                let member = Some((named.text.clone(), value));
                return Ok(Some(Level::new(name, rest, seen, member)));
            }
        }
        Ok(None)
    }

    /// The first name from one on that may still come and makes a difference.
    fn next_name(&self, at: ObjectAt, formula: FormulaId, from: u32) -> u32 {
        let plan = self.plan(at.plan);
        if self.logic.facts(formula).wants_members {
            return (from..plan.num_names())
                .find(|&name| self.is_open(at, name))
                .unwrap_or(plan.num_names());
        }
        let mut first = plan.num_names();
        for leaf in self.logic.leaves(&[formula]) {
            if let Formula::Is(node) = self.logic.formula(leaf)
                && let Node::Has(name) = self.logic.nodes.node(*node)
                && let Some(&name) = plan.numbers.get(name)
                && name >= from
                && self.is_open(at, name)
            {
                first = first.min(name);
            }
        }
        first
    }

    /// Members with which a plain object may end, `count` being there already: the required ones,
    /// then as many others as there must be. `None` where there are none.
    pub(super) fn plain_members_to_end(
        &mut self,
        lexicon: &mut Lexicon,
        mut at: ObjectAt,
        plain: &Plain,
        count: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<WayMember>>, OutOfFuel> {
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
        let mut class = 0;
        while needed > 0 {
            fuel.burn(1)?;
            if class >= self.plan(at.plan).classes.len() {
                return Ok(None);
            }
            let value = plain.values[num_names as usize + class];
            let fresh = match self.cost(lexicon, value, fuel)? {
                DEAD => None,
                _ => self.fresh_key(lexicon, at, class, fuel)?,
            };
            match fresh {
                None => class += 1,
                Some((text, after)) => {
                    members.push((text, value));
                    (needed, at) = (needed - 1, after);
                }
            }
        }
        Ok(Some(members))
    }

    /// Length of members and of the bracket after them.
    pub(super) fn cost_of_members(
        &mut self,
        lexicon: &mut Lexicon,
        members: &[WayMember],
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let mut bytes = 1_u32;
        for (key, value) in members {
            let value = self.cost(lexicon, *value, fuel)?;
            let member = value.saturating_add(key.len() as u32 + 2);
            bytes = bytes.saturating_add(member).min(FARTHEST);
        }
        Ok(bytes)
    }

    /// Whether a plain object whose values all exist where they are required can end.
    pub(super) fn plain_can_end(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        plain: &Plain,
        count: u32,
        fuel: &mut Fuel,
    ) -> Result<bool, OutOfFuel> {
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
        let members = self.plain_members_to_end(lexicon, at, plain, count, fuel)?;
        Ok(members.is_some())
    }
}

/// A place in the search for members.
struct Level {
    /// Names before it are decided.
    name: u32,
    formula: FormulaId,
    seen: SeenId,
    /// The member that leads here.
    member: Option<WayMember>,
    /// What is left to try; `None` where nothing was tried yet.
    options: Option<Options>,
}

/// How many of a name's values are looked for at once.
const VALUES_AT_ONCE: usize = 4;

/// What is left to try at a place.
#[derive(Default)]
struct Options {
    /// The last first.
    ready: Vec<Level>,
    /// Then, with the next name.
    named: Option<Named>,
}

/// A name's values, as far as they are asked for.
struct Named {
    /// The name after it, and the other keys that there are.
    level: (u32, SeenId),
    /// As it is written.
    text: Vec<u8>,
    /// What remains without the name: values that leave the same are not tried.
    without: FormulaId,
    /// What the member's values are ways of.
    key: (FormulaId, Event),
    /// The number of the way that is tried next.
    next: usize,
}

impl Level {
    fn new(name: u32, formula: FormulaId, seen: SeenId, member: Option<WayMember>) -> Self {
        Self {
            name,
            formula,
            seen,
            member,
            options: None,
        }
    }
}
