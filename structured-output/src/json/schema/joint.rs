//! The members of one object of which several schemas say different texts: what these say together is one
//! language for each way to go on, which may be dear though each by itself is not.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::super::node::NodeId;
use super::super::value::Value;
use super::SchemaCompiler;
use super::draft::member;
use super::place::Place;
use super::values::{Inner, Part, is_in_place};

/// Schemas of one value that are looked at.
const MAX_PARTS: usize = 1_000;
/// Schemas of one member that are looked at for what they say of texts.
const MAX_WITHIN_MEMBER: usize = 16;
/// Names of one object that are looked at.
const MAX_NAMES: usize = 8;

/// Whether a keyword says how a string is spelled, other than as one of a list.
pub(super) fn is_of_texts(keyword: &str) -> bool {
    matches!(keyword, "pattern" | "format" | "minLength" | "maxLength")
}

/// Whether a keyword has several schemas speak of one value.
pub(super) fn combines(keyword: &str, value: &Value) -> bool {
    match (keyword, value) {
        ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.len() > 1,
        ("if" | "dependentSchemas" | "dependencies", _) => true,
        _ => false,
    }
}

/// So many different texts of one member may be dear together.
const MANY_TEXTS: usize = 3;

/// What is said of the texts of one member.
struct Said {
    name: String,
    nodes: Vec<NodeId>,
    /// Whether one of them may be dear by itself.
    may_be_dear: bool,
}

impl SchemaCompiler {
    /// Names of which the schemas that speak of an object say different texts, first those of which most
    /// are said.
    pub(crate) fn joint_names(&mut self, part: &Part) -> Vec<String> {
        if !self.may_have_joint_texts() {
            return Vec::new();
        }
        let in_place = self.in_place(part, MAX_PARTS);
        if in_place.len() < 2 {
            return Vec::new();
        }
        let mut said: Vec<Said> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for part in in_place {
            if !self.dialect(part.place()).knows("properties") {
                continue;
            }
            let members = Arc::clone(&part.place().members);
            let Some(Value::Object(properties)) = member(&members, "properties") else {
                continue;
            };
            for (name, schema) in properties.iter() {
                let around = part.place().resource;
                let Some(value) = self.part(schema, around, part.place().scope) else {
                    continue;
                };
                let known = numbers.get(name).copied();
                let is_known = known
                    .and_then(|at| said.get(at))
                    .is_some_and(|said| said.nodes.contains(&value.node));
                if is_known || !self.is_of_texts(&value) {
                    continue;
                }
                let may_be_dear = self.may_part_be_dear(&value);
                match known.and_then(|at| said.get_mut(at)) {
                    Some(said) => {
                        said.nodes.push(value.node);
                        said.may_be_dear |= may_be_dear;
                    }
                    None => {
                        numbers.insert(name.clone(), said.len());
                        said.push(Said {
                            name: name.clone(),
                            nodes: vec![value.node],
                            may_be_dear,
                        });
                    }
                }
            }
        }
        said.retain(|said| {
            said.nodes.len() >= MANY_TEXTS || said.nodes.len() > 1 && said.may_be_dear
        });
        said.sort_by_key(|said| std::cmp::Reverse(said.nodes.len()));
        said.truncate(MAX_NAMES);
        said.into_iter().map(|said| said.name).collect()
    }

    /// Whether a schema says how a string is spelled.
    fn is_of_texts(&mut self, part: &Part) -> bool {
        self.in_place(part, MAX_WITHIN_MEMBER).iter().any(|part| {
            part.place()
                .members
                .iter()
                .any(|(name, _)| is_of_texts(name))
        })
    }

    /// A schema and those in it that speak of the same value, up to so many, each before those in it.
    pub(crate) fn in_place(&mut self, part: &Part, max: usize) -> Vec<Part> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        let mut pending = vec![part.clone()];
        while let Some(part) = pending.pop() {
            if found.len() >= max || !seen.insert(part.key()) {
                continue;
            }
            let inner = self.inner_in_place(part.place());
            let inner = self.parts(inner, part.place().scope);
            found.push(part);
            pending.extend(inner.into_iter().rev());
        }
        found
    }

    /// The schemas directly in a schema that speak of the same value.
    fn inner_in_place(&mut self, place: &Place) -> Vec<Inner> {
        let (dialect, around) = (self.dialect(place), place.resource);
        let members = match self.hiding(place) {
            Some(reference) => Arc::new(vec![reference]),
            None => Arc::clone(&place.members),
        };
        let mut inner = Vec::new();
        for (keyword, value) in members.iter() {
            if !is_in_place(keyword) || !dialect.knows(keyword) {
                continue;
            }
            if let Ok(Some(site)) = self.referred(place, keyword, value) {
                inner.push((site.value, site.resource));
                continue;
            }
            match (keyword.as_str(), value) {
                ("if", _) => {
                    let rest = ["then", "else"].map(|name| member(&members, name));
                    let all = [Some(value)].into_iter().chain(rest).flatten();
                    inner.extend(all.map(|schema| (schema.clone(), around)));
                }
                ("not", _) => inner.push((value.clone(), around)),
                (_, Value::Array(list)) => {
                    inner.extend(list.iter().map(|schema| (schema.clone(), around)));
                }
                (_, Value::Object(map)) => {
                    inner.extend(map.iter().map(|entry| (entry.1.clone(), around)));
                }
                _ => {}
            }
        }
        inner
    }
}
