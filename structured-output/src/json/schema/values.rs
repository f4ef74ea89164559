//! The values that a schema speaks of, each under a schema of its own; and the schemas within one. To look
//! at them one by one, where the whole is dear.

use std::sync::Arc;

use hashbrown::HashSet;

use super::super::node::NodeId;
use super::super::value::Value;
use super::draft::{Dialect, member};
use super::place::{Place, ScopeId};
use super::registry::ResourceId;
use super::subschemas::{applied, is_schema};
use super::{SchemaCompiler, State};
use crate::error::ProblemPlace;

/// A schema that is compiled.
#[derive(Clone)]
pub(crate) struct Part {
    place: Place,
    pub(crate) node: NodeId,
}

impl Part {
    /// What tells it from others.
    pub(crate) fn key(&self) -> (usize, u32) {
        self.place.key()
    }
}

/// A schema with its surroundings.
type Inner = (Value, ResourceId, ScopeId);

/// From this weight on it may be dear to find out whether a schema has a value. Less than that is decided in
/// some thousands of ways at most.
const DEAR_WEIGHT: u32 = 24;

/// From so many patterns of keys on a mask within a key may be dear.
const MANY_PATTERNS: u32 = 5;

/// What a schema weighs, with those in it that speak of the same value.
#[derive(Clone, Copy, Default)]
pub(super) struct Weight {
    /// How many ways there are to meet it, as a rough guess at their logarithm.
    ways: u32,
    /// Patterns of keys.
    num_patterns: u32,
}

impl Weight {
    fn add(&mut self, other: Self) {
        self.ways = self.ways.saturating_add(other.ways);
        self.num_patterns = self.num_patterns.saturating_add(other.num_patterns);
    }
}

/// What a keyword adds to the weight of its schema by itself: how many more ways there are to meet it, as a
/// rough guess at their logarithm. All other keywords cost as they are written.
fn own_weight(keyword: &str, value: &Value, schema: &[(String, Value)]) -> u32 {
    const SOME: u32 = 4;
    let number = |name: &str| match member(schema, name) {
        Some(Value::Number(text)) => text.parse::<f64>().unwrap_or(0.0),
        _ => 0.0,
    };
    let weight = match (keyword, value) {
        ("uniqueItems", Value::Bool(true)) => {
            match number("minItems") > 2.0 || number("minContains") > 1.0 {
                true => DEAR_WEIGHT,
                false => 0,
            }
        }
        ("contains", _) if number("minContains") > 100.0 => DEAR_WEIGHT,
        // Elsewhere they may be said to be distinct.
        ("minItems", _) if number(keyword) > 1_000.0 => DEAR_WEIGHT,
        ("minProperties", _) if number(keyword) > 100.0 => DEAR_WEIGHT,
        ("contains" | "unevaluatedItems" | "unevaluatedProperties" | "minProperties", _) => SOME,
        ("patternProperties", Value::Object(map)) => (SOME + 1).saturating_mul(length(map.len())),
        ("dependentRequired" | "dependentSchemas" | "dependencies", Value::Object(map)) => {
            length(map.len())
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => length(list.len()),
        ("not" | "if", _) => 1,
        ("multipleOf", Value::Number(text)) => weight_of_step(text),
        // Languages that may have to be searched for something that they have in common.
        ("pattern", _) => match member(schema, "minLength").or(member(schema, "maxLength")) {
            Some(_) => DEAR_WEIGHT,
            None => DEAR_WEIGHT / 2,
        },
        _ => 0,
    };
    weight.min(DEAR_WEIGHT)
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}

/// Whether a keyword's schemas speak of the value itself.
fn is_in_place(keyword: &str) -> bool {
    matches!(
        keyword,
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "dependentSchemas" | "dependencies"
    ) || is_reference(keyword)
}

/// Whether a keyword beside one of those has a say in members and items, or in which of them there may be.
fn restricts(keyword: &str) -> bool {
    matches!(
        keyword,
        "type"
            | "enum"
            | "const"
            | "properties"
            | "patternProperties"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "maxProperties"
            | "prefixItems"
            | "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "maxItems"
    )
}

/// Whether a schema's `type` allows one.
fn allows(members: &[(String, Value)], kind: &str) -> bool {
    match member(members, "type") {
        Some(Value::String(name)) => name == kind,
        Some(Value::Array(names)) => names
            .iter()
            .any(|name| matches!(name, Value::String(name) if name == kind)),
        _ => true,
    }
}

/// How many remainders a number's digits may leave, as a rough guess at the logarithm: 16 bits are dear.
fn weight_of_step(text: &str) -> u32 {
    let digits = text.split(['e', 'E']).next().unwrap_or(text);
    let digits: f64 = digits.replace('.', "").parse().unwrap_or(0.0);
    (1.5 * digits.max(1.0).log2()) as u32
}

/// Whether a schema allows neither arrays nor objects for a plain reason.
fn is_of_scalars(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => !allows(members, "array") && !allows(members, "object"),
        schema => *schema == Value::Bool(false),
    }
}

impl SchemaCompiler {
    /// Takes note of what a schema weighs that is done, with those in it that speak of the same value.
    pub(super) fn weigh(&mut self, place: &Place) {
        let dialect = self.dialect(place);
        let members = match self.hiding(place) {
            Some(reference) => Arc::new(vec![reference]),
            None => Arc::clone(&place.members),
        };
        let mut weight = Weight::default();
        for (keyword, value) in members.iter() {
            if !dialect.knows(keyword) {
                continue;
            }
            weight.add(Weight {
                ways: own_weight(keyword, value, &members),
                num_patterns: match (keyword.as_str(), value) {
                    ("patternProperties", Value::Object(map)) => length(map.len()),
                    _ => 0,
                },
            });
            if is_reference(keyword) {
                if let Ok(Some(site)) = self.referred(place, keyword, value) {
                    weight.add(self.weight_of(&site.value, site.resource, place.scope));
                }
            } else if is_in_place(keyword) {
                let mut inner = Vec::new();
                match (keyword.as_str(), value) {
                    ("if", _) => inner.extend(
                        [
                            Some(value),
                            member(&members, "then"),
                            member(&members, "else"),
                        ]
                        .into_iter()
                        .flatten(),
                    ),
                    ("not", _) => inner.push(value),
                    (_, Value::Array(list)) => inner.extend(list.iter()),
                    (_, Value::Object(map)) => inner.extend(map.iter().map(|entry| &entry.1)),
                    _ => {}
                }
                let scope = self.scope_under(place.scope, keyword);
                for schema in inner {
                    weight.add(self.weight_of(schema, place.resource, scope));
                }
            }
        }
        if weight.ways > 0 {
            weight.ways = weight.ways.min(DEAR_WEIGHT);
            self.weights.insert(place.key(), weight);
            self.may_be_dear |= weight.ways >= DEAR_WEIGHT;
        }
    }

    fn weight_of(&mut self, schema: &Value, around: ResourceId, scope: ScopeId) -> Weight {
        if self.weights.is_empty() || !matches!(schema, Value::Object(_)) {
            return Weight::default();
        }
        match self.place(schema, around, scope) {
            Ok(Some(place)) => self.weights.get(&place.key()).copied().unwrap_or_default(),
            _ => Weight::default(),
        }
    }

    /// The whole schema; `None` where it says nothing.
    pub(crate) fn whole(&mut self) -> Option<Part> {
        let root = self.root.clone();
        self.part(&root, 0, 0)
    }

    /// Whether some schema may be dear.
    pub(crate) fn may_be_dear(&self) -> bool {
        self.may_be_dear || self.is_deep
    }

    /// Whether the whole schema allows scalars only, for a plain reason.
    pub(crate) fn is_of_scalars(&self) -> bool {
        is_of_scalars(&self.root)
    }

    /// Whether masks within the keys of one may be.
    pub(crate) fn may_keys_be_dear(&self, part: &Part) -> bool {
        let weight = self.weights.get(&part.place.key());
        weight.is_some_and(|weight| weight.num_patterns >= MANY_PATTERNS)
    }

    /// Whether one may be by itself, the values in it apart.
    pub(crate) fn may_part_be_dear(&self, part: &Part) -> bool {
        if self.is_deep {
            return true;
        }
        let weight = self.weights.get(&part.place.key());
        weight.is_some_and(|weight| weight.ways >= DEAR_WEIGHT)
    }

    /// Where a schema is, as an error names it.
    pub(crate) fn place_of(&self, part: &Part) -> ProblemPlace {
        self.place_of_key(Some(part.place.key()))
    }

    fn part(&mut self, schema: &Value, around: ResourceId, scope: ScopeId) -> Option<Part> {
        let place = self.place(schema, around, scope).ok().flatten()?;
        match self.states.get(&place.key()) {
            Some(&State::Done(node)) => Some(Part { place, node }),
            _ => None,
        }
    }

    fn parts(&mut self, inner: Vec<Inner>) -> Vec<Part> {
        let parts = inner
            .iter()
            .filter_map(|&(ref schema, around, scope)| self.part(schema, around, scope));
        parts.collect()
    }

    /// The schemas of members and items that alone say what these may be, where some may be there: of others
    /// what is asked is another question than what they ask by themselves. Or the one schema that says all
    /// that is said of arrays and objects.
    pub(crate) fn values_within(&mut self, part: &Part) -> Vec<Part> {
        let place = &part.place;
        let (dialect, around, scope) = (self.dialect(place), place.resource, place.scope);
        let members = match self.hiding(place) {
            Some(reference) => Arc::new(vec![reference]),
            None => Arc::clone(&place.members),
        };
        let known = || members.iter().filter(|member| dialect.knows(&member.0));
        let mut in_place = known().filter(|member| is_in_place(&member.0));
        let inner = match (in_place.next(), in_place.next()) {
            (None, _) => own_values(&members, dialect, around, scope),
            (Some((keyword, value)), None) if !known().any(|member| restricts(&member.0)) => {
                match (keyword.as_str(), value) {
                    ("allOf", Value::Array(list)) if list.len() == 1 => list
                        .iter()
                        .map(|only| (only.clone(), around, scope))
                        .collect(),
                    ("anyOf" | "oneOf", Value::Array(list)) => {
                        let mut rest = list.iter().filter(|&schema| !is_of_scalars(schema));
                        match (rest.next(), rest.next()) {
                            (Some(only), None) => vec![(only.clone(), around, scope)],
                            _ => Vec::new(),
                        }
                    }
                    _ => match self.referred(place, keyword, value) {
                        Ok(Some(site)) => vec![(site.value, site.resource, scope)],
                        _ => Vec::new(),
                    },
                }
            }
            _ => Vec::new(),
        };
        self.parts(inner)
    }

    /// The schemas in a schema, itself the last: each after those in it, else in the order of the source.
    pub(crate) fn parts_within(&mut self, part: &Part) -> Vec<Part> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        let mut pending = vec![(part.clone(), false)];
        while let Some((part, is_over)) = pending.pop() {
            if is_over {
                found.push(part);
                continue;
            }
            if !seen.insert(part.place.key()) {
                continue;
            }
            let inner = self.inner_of(&part.place);
            let inner = self.parts(inner);
            pending.push((part, true));
            pending.extend(inner.into_iter().rev().map(|part| (part, false)));
        }
        found
    }

    /// The schemas that a schema holds and applies, and those that it refers to.
    fn inner_of(&mut self, place: &Place) -> Vec<Inner> {
        let members = match self.hiding(place) {
            Some(reference) => Arc::new(vec![reference]),
            None => Arc::clone(&place.members),
        };
        let mut inner = Vec::new();
        let dialect = self.dialect(place);
        applied(&members, dialect, &mut |keyword, schema| {
            let scope = self.scope_under(place.scope, keyword);
            inner.push((schema.clone(), place.resource, scope));
        });
        for (keyword, value) in members.iter() {
            if let Ok(Some(site)) = self.referred(place, keyword, value) {
                inner.push((site.value, site.resource, place.scope));
            }
        }
        inner
    }
}

/// The schemas of members and items of a schema without any that speak of the value itself.
fn own_values(
    members: &[(String, Value)],
    dialect: Dialect,
    around: ResourceId,
    scope: ScopeId,
) -> Vec<Inner> {
    let keyword = |keyword: &str| match dialect.knows(keyword) {
        true => member(members, keyword),
        false => None,
    };
    let says = |name: &str| keyword(name).is_some();
    let mut inner = Vec::new();
    let mut add = |schema: &Value| {
        if is_schema(schema) {
            inner.push((schema.clone(), around, scope));
        }
    };
    if ["enum", "const", "unevaluatedProperties", "unevaluatedItems"]
        .into_iter()
        .any(says)
    {
        return inner;
    }
    let is_free = !says("maxProperties") && !says("propertyNames") && !says("patternProperties");
    if is_free && allows(members, "object") {
        if let Some(Value::Object(named)) = keyword("properties") {
            named.iter().for_each(|(_, schema)| add(schema));
        }
        keyword("additionalProperties")
            .into_iter()
            .for_each(&mut add);
    }
    // A position may be beyond what there is room for.
    let has_room = match keyword("maxItems") {
        Some(Value::Number(max)) => {
            let is_none = max.parse::<f64>().is_ok_and(|max| max < 1.0);
            let is_list = matches!(keyword("items"), Some(Value::Array(_)));
            !is_none && !is_list && !says("prefixItems")
        }
        _ => true,
    };
    if has_room && !says("contains") && allows(members, "array") {
        for name in ["prefixItems", "items"] {
            match keyword(name) {
                Some(Value::Array(list)) => list.iter().for_each(&mut add),
                Some(schema) => add(schema),
                None => {}
            }
        }
    }
    inner
}
