//! What a schema's other keywords leave to `unevaluatedProperties` and `unevaluatedItems`.
//!
//! A member or item is evaluated where a schema that applies in place to the same value, and holds,
//! speaks of it. Each such schema gives a contribution: what it evaluates, and the node under which
//! it does. Then for each group of keys or positions: one of the conditions of their contributions
//! holds, or they are what the keyword asks for. That is as long as the schema; only conditional
//! patterns and `contains` that overlap are told apart by combinations.

use hashbrown::HashMap;

use super::super::node::{self, ANYTHING, NodeId};
use super::super::value::Value;
use super::Task;
use super::build::Builder;
use super::evaluated::Evaluated;
use super::key_language::{self, matches_key};
use super::refusal::{Refusal, refuse};
use crate::lexical::ExprId;

/// Conditional patterns of keys, or conditional `contains`, at most: all combinations are told
/// apart.
const MAX_CONDITIONAL: usize = 6;

/// Members by name.
type Named = Vec<(Box<str>, NodeId)>;

/// The conditions under which something is evaluated, any of them; [`ANYTHING`] is always.
type Conditions = Vec<NodeId>;

/// Adds a condition for a thing to a list of things.
fn add<T: PartialEq>(list: &mut Vec<(T, Conditions)>, thing: T, condition: NodeId) {
    match list.iter_mut().find(|entry| entry.0 == thing) {
        Some(entry) => entry.1.push(condition),
        None => list.push((thing, vec![condition])),
    }
}

fn is_always(conditions: &Conditions) -> bool {
    conditions.contains(&ANYTHING)
}

impl Builder<'_> {
    /// What one of the two keywords says, once all schemas are compiled.
    pub(super) fn unevaluated(mut self, keyword: &'static str) -> Result<NodeId, Refusal> {
        match self.keyword(keyword) {
            Some(value) if keyword == "unevaluatedItems" => self.unevaluated_items(&value),
            Some(value) => self.unevaluated_properties(&value),
            None => Ok(ANYTHING),
        }
    }

    /// A reference to what a keyword says, which is made once all schemas are compiled.
    fn unevaluated_later(&mut self, keyword: &'static str) -> NodeId {
        let reserved = self.nodes.reserve();
        let place = self.place.clone();
        // A way in place from what it says to itself leads nowhere, as that of a schema.
        self.compiler.references.push((reserved, place.key()));
        self.compiler.last.push(Task::Unevaluated {
            place,
            keyword,
            reserved,
        });
        reserved
    }

    /// `unevaluatedProperties`.
    pub(super) fn unevaluated_properties(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        let other = self.schema("unevaluatedProperties", "", value)?;
        if other == ANYTHING {
            return Ok(ANYTHING);
        }
        let Some(found) = self.evaluated("unevaluatedProperties")? else {
            return Ok(self.unevaluated_later("unevaluatedProperties"));
        };
        let mut all = Conditions::new();
        let mut names: Vec<(String, Conditions)> = Vec::new();
        let mut name_places = HashMap::new();
        let mut patterns: Vec<(ExprId, Conditions)> = Vec::new();
        for (evaluated, condition) in found {
            match evaluated {
                Evaluated::All => all.push(condition),
                Evaluated::Name(name) => {
                    let next = names.len();
                    let at = *name_places.entry(name.clone()).or_insert(next);
                    if at == next {
                        names.push((name, Vec::new()));
                    }
                    names[at].1.push(condition);
                }
                Evaluated::Pattern(keys) => {
                    self.fuel.burn(patterns.len() as u64)?;
                    add(&mut patterns, keys, condition);
                }
                Evaluated::Prefix(_) | Evaluated::Items(_) => {}
            }
        }
        if is_always(&all) {
            return Ok(ANYTHING);
        }
        let always: Vec<ExprId> = patterns
            .iter()
            .filter(|pattern| is_always(&pattern.1))
            .map(|pattern| pattern.0)
            .collect();
        let some: Vec<&(ExprId, Conditions)> = patterns
            .iter()
            .filter(|pattern| !is_always(&pattern.1))
            .collect();
        if some.len() > MAX_CONDITIONAL {
            let message = format!(
                "{} patterns are evaluated by some branches only: at most {MAX_CONDITIONAL} may be",
                some.len()
            );
            return Err(refuse("/unevaluatedProperties", message));
        }
        // Keys of no contribution.
        let free = |name: &(String, Conditions)| (name.0.as_str().into(), ANYTHING);
        let rest = self.nodes.members(node::Members {
            named: names.iter().map(free).collect(),
            patterns: patterns
                .iter()
                .map(|pattern| (pattern.0, ANYTHING))
                .collect(),
            additional: other,
        });
        let mut parts = vec![self.either(&[&all], rest)];
        // Names with the same conditions, together.
        let mut groups: Vec<(Conditions, Named)> = Vec::new();
        let mut group_places = HashMap::new();
        for (name, conditions) in &names {
            let mut conditions = conditions.clone();
            self.fuel.burn(conditions.len() as u64)?;
            for (keys, of_pattern) in &patterns {
                if matches_key(self.lexicon, *keys, name, self.fuel)? {
                    self.fuel.burn(of_pattern.len() as u64)?;
                    conditions.extend_from_slice(of_pattern);
                }
            }
            if is_always(&conditions) {
                continue;
            }
            let next = groups.len();
            let at = *group_places.entry(conditions.clone()).or_insert(next);
            if at == next {
                groups.push((conditions, Vec::new()));
            }
            groups[at].1.push((name.as_str().into(), other));
        }
        for (conditions, named) in groups {
            let members = self.nodes.members(node::Members {
                named: named.into(),
                patterns: Box::default(),
                additional: ANYTHING,
            });
            parts.push(self.either(&[&conditions, &all], members));
        }
        // Keys without a name, by which of the conditional patterns they match.
        let spellings: Vec<ExprId> = names
            .iter()
            .map(|name| self.lexicon.json_string(&name.0, false))
            .collect();
        let named = self.lexicon.or(&spellings);
        for combination in 1..1_usize << some.len() {
            let mut excluded = always.clone();
            excluded.push(named);
            let mut keys = vec![key_language::universe(self.lexicon)];
            let mut conditions: Vec<&Conditions> = vec![&all];
            for (index, pattern) in some.iter().enumerate() {
                if combination >> index & 1 == 1 {
                    keys.push(pattern.0);
                    conditions.push(&pattern.1);
                } else {
                    excluded.push(pattern.0);
                }
            }
            for language in excluded {
                keys.push(self.lexicon.not(language));
            }
            let keys = self.lexicon.and(&keys);
            let members = self.nodes.members(node::Members {
                named: Box::default(),
                patterns: [(keys, other)].into(),
                additional: ANYTHING,
            });
            parts.push(self.either(&conditions, members));
        }
        Ok(self.nodes.all_of(&parts))
    }

    /// `unevaluatedItems`.
    pub(super) fn unevaluated_items(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        let other = self.schema("unevaluatedItems", "", value)?;
        if other == ANYTHING {
            return Ok(ANYTHING);
        }
        let Some(found) = self.evaluated("unevaluatedItems")? else {
            return Ok(self.unevaluated_later("unevaluatedItems"));
        };
        let mut all = Conditions::new();
        let mut prefixes: Vec<(usize, Conditions)> = Vec::new();
        let mut items: Vec<(NodeId, Conditions)> = Vec::new();
        for (evaluated, condition) in found {
            match evaluated {
                Evaluated::All => all.push(condition),
                Evaluated::Prefix(length) => {
                    self.fuel.burn(prefixes.len() as u64)?;
                    add(&mut prefixes, length, condition);
                }
                Evaluated::Items(item) => {
                    self.fuel.burn(items.len() as u64)?;
                    add(&mut items, item, condition);
                }
                Evaluated::Name(_) | Evaluated::Pattern(_) => {}
            }
        }
        if is_always(&all) {
            return Ok(ANYTHING);
        }
        prefixes.sort_unstable_by_key(|prefix| prefix.0);
        let mut always = vec![other];
        always.extend(items.iter().filter(|i| is_always(&i.1)).map(|i| i.0));
        items.retain(|item| !is_always(&item.1));
        if items.len() > MAX_CONDITIONAL {
            let message = format!(
                "{} `contains` evaluate by some branches only: at most {MAX_CONDITIONAL} may",
                items.len()
            );
            return Err(refuse("/unevaluatedItems", message));
        }
        // More evaluated items never make an array worse, so a combination asks only that its
        // conditions hold, not that the others don't.
        let mut ways = Vec::new();
        for combination in 0..1_usize << items.len() {
            let mut allowed = always.clone();
            let mut conditions = Vec::new();
            for (index, (item, when)) in items.iter().enumerate() {
                if combination >> index & 1 == 1 {
                    allowed.push(*item);
                    conditions.push(self.nodes.any_of(when));
                }
            }
            let allowed = self.nodes.any_of(&allowed);
            conditions.push(self.items_left(&prefixes, &all, allowed)?);
            ways.push(self.nodes.all_of(&conditions));
        }
        Ok(self.nodes.any_of(&ways))
    }

    /// Every item that no prefix evaluates is allowed. `prefixes` are ascending.
    fn items_left(
        &mut self,
        prefixes: &[(usize, Conditions)],
        all: &Conditions,
        allowed: NodeId,
    ) -> Result<NodeId, Refusal> {
        let mut parts = Vec::new();
        let mut start = 0;
        for (index, (length, _)) in prefixes.iter().enumerate() {
            self.fuel.burn((prefixes.len() - index + *length) as u64)?;
            let longer = &prefixes[index..];
            let conditions: Vec<&Conditions> = longer.iter().map(|prefix| &prefix.1).collect();
            if !conditions.iter().any(|conditions| is_always(conditions)) {
                let mut prefix = vec![ANYTHING; start];
                prefix.resize(*length, allowed);
                let items = self.nodes.items(prefix, ANYTHING);
                let part = self.either(&conditions, items);
                parts.push(self.either(&[all], part));
            }
            start = *length;
        }
        let rest = self.nodes.items(vec![ANYTHING; start], allowed);
        parts.push(self.either(&[all], rest));
        Ok(self.nodes.all_of(&parts))
    }

    /// One of some conditions holds, or a node.
    fn either(&mut self, conditions: &[&Conditions], node: NodeId) -> NodeId {
        let mut ways: Vec<NodeId> = conditions.iter().flat_map(|c| c.iter().copied()).collect();
        ways.push(node);
        self.nodes.any_of(&ways)
    }
}
