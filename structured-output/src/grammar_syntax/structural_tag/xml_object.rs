//! What a schema says of the members of an object that is written as tags.
//!
//! `allOf` and `$ref` bring their members together, each branch of `anyOf` is a way of its own.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::ast::{NodeId, NodeKind, RuleBuilder};
use super::fields::{Fields, refuse};
use super::xml::{Called, escaped};
use super::xml_order::{Member, MemberRules, in_order};
use super::xml_patterns::{Pattern, Patterns};
use super::xml_scope::{KEYWORDS, Scope, keywords};
use super::{Parser, TagError};
use crate::json::Value;
use crate::lexical::UNBOUNDED;

/// As many ways as branches of `anyOf` may make together.
const MAX_WAYS: usize = 256;

/// Members as a schema has them.
#[derive(Clone)]
pub(super) struct Members {
    /// Name, schema and its pointer, in order.
    properties: Vec<(String, Value, String)>,
    /// Names, and the pointer of the list.
    required: Vec<(Box<str>, String)>,
    /// Of all other members; `None` where nothing is said of them.
    additional: Option<(Value, String)>,
    /// By patterns of names.
    patterns: Vec<Pattern>,
    /// How many there may be.
    min: u32,
    max: u32,
}

impl Members {
    /// All but one.
    fn without(name: &str, at: &str) -> Result<Self, TagError> {
        let mut members = Self::read(&mut Fields::of_none(at))?;
        members
            .properties
            .push((name.to_owned(), Value::Bool(false), at.to_owned()));
        Ok(members)
    }

    /// Those of a schema's own fields.
    fn read(object: &mut Fields<'_>) -> Result<Self, TagError> {
        let at = object.at("required");
        let required = object.texts("required")?;
        let required = required.into_iter().map(|name| (name, at.clone()));
        let mut members = Self {
            properties: Vec::new(),
            required: required.collect(),
            additional: None,
            patterns: Vec::new(),
            min: 0,
            max: UNBOUNDED,
        };
        match object.optional("properties") {
            None => {}
            Some(Value::Object(list)) => {
                for (name, schema) in list.iter() {
                    let at = format!("{}/{}", object.at("properties"), escaped(name));
                    members.properties.push((name.clone(), schema.clone(), at));
                }
            }
            Some(_) => return object.refuse("properties", "must be an object"),
        }
        let at = object.at("patternProperties");
        members.patterns = Pattern::list(object.optional("patternProperties"), &at, escaped)?;
        let at = object.at("additionalProperties");
        members.additional = object
            .optional("additionalProperties")
            .map(|schema| (schema.clone(), at));
        let most = i32::MAX as u32;
        members.min = object.count("minProperties", most)?.unwrap_or(0);
        members.max = object.count("maxProperties", most)?.unwrap_or(UNBOUNDED);
        Ok(members)
    }

    /// What both say.
    fn with(&self, more: &Self) -> Result<Self, TagError> {
        for (one, other) in [(self, more), (more, self)] {
            let says = other.additional.is_some()
                || !other.properties.is_empty()
                || !other.patterns.is_empty();
            if let Some(pattern) = one.patterns.first().filter(|_| says) {
                return refuse(
                    &pattern.at,
                    "`patternProperties` beside members of another branch is not supported in this style",
                );
            }
        }
        for (one, other) in [(self, more), (more, self)] {
            let Some((schema, at)) = &one.additional else {
                continue;
            };
            let has = |name: &str| one.properties.iter().any(|(known, _, _)| known == name);
            // One that mustn't be there is none of the others.
            let new = other.properties.iter();
            let mut new =
                new.filter(|(name, schema, _)| !has(name) && *schema != Value::Bool(false));
            let new = new.next();
            if *schema != Value::Bool(true)
                && let Some((name, _, _)) = new
            {
                let message = format!(
                    "holds for `{name}` too, which another branch names; that is not supported in this style"
                );
                return refuse(at, format!("`additionalProperties` {message}"));
            }
        }
        let mut both = self.clone();
        for (name, schema, at) in &more.properties {
            let known = both
                .properties
                .iter_mut()
                .find(|(known, _, _)| known == name);
            match known {
                None => both
                    .properties
                    .push((name.clone(), schema.clone(), at.clone())),
                Some((_, own, _))
                    if *own == *schema
                        || *schema == Value::Bool(true)
                        || *own == Value::Bool(false) => {}
                Some((_, own, place))
                    if *own == Value::Bool(true) || *schema == Value::Bool(false) =>
                {
                    (*own, *place) = (schema.clone(), at.clone());
                }
                Some(_) => {
                    let message =
                        "is named by several branches, which is not supported in this style";
                    return refuse(at, format!("`{name}` {message}"));
                }
            }
        }
        both.required.extend(more.required.iter().cloned());
        both.additional = match (&self.additional, &more.additional) {
            (Some((one, at)), Some((other, _))) if one == other || *other == Value::Bool(true) => {
                Some((one.clone(), at.clone()))
            }
            (Some((Value::Bool(true), _)), other) => other.clone(),
            (Some(_), Some((_, at))) => {
                return refuse(
                    at,
                    "`additionalProperties` of several branches is not supported in this style",
                );
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        both.patterns.extend(more.patterns.iter().cloned());
        both.min = self.min.max(more.min);
        both.max = self.max.min(more.max);
        Ok(both)
    }
}

impl Members {
    /// Whether a member has to be there and must not.
    fn is_contradicted(&self) -> bool {
        let mut forbidden = self.properties.iter();
        forbidden.any(|(name, schema, _)| *schema == Value::Bool(false) && self.requires(name))
    }

    /// All names, with their places in the schema.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        (self.properties.iter()).map(|(name, _, at)| (name.as_str(), at.as_str()))
    }

    fn requires(&self, name: &str) -> bool {
        self.required.iter().any(|(known, _)| **known == *name)
    }

    /// Whether no object with a member is valid.
    fn forbids(&self, name: &str) -> bool {
        let own = self.properties.iter().find(|(known, _, _)| known == name);
        match (own, &self.additional) {
            (Some((_, schema, _)), _) => *schema == Value::Bool(false),
            (None, Some((schema, _))) => *schema == Value::Bool(false) && self.patterns.is_empty(),
            (None, None) => false,
        }
    }

    /// Whether no object is valid under both, which is told by a member that one requires and the other forbids, or that
    /// both require and of which they list other values.
    fn is_apart(&self, other: &Self) -> bool {
        let forbids =
            |one: &Self, two: &Self| two.required.iter().any(|(name, _)| one.forbids(name));
        if forbids(self, other) || forbids(other, self) {
            return true;
        }
        self.properties.iter().any(|(name, schema, _)| {
            let theirs = other.properties.iter().find(|(known, _, _)| known == name);
            let (Some(own), Some((_, theirs, _))) = (listed_values(schema), theirs) else {
                return false;
            };
            let Some(theirs) = listed_values(theirs) else {
                return false;
            };
            let differ = |one: &Value, other: &Value| match (one, other) {
                // Equal numbers may be written in several ways.
                (Value::Number(one), Value::Number(other)) => {
                    matches!((one.parse::<f64>(), other.parse::<f64>()), (Ok(one), Ok(other)) if one != other)
                }
                (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
                _ => one != other,
            };
            self.requires(name)
                && other.requires(name)
                && own.iter().all(|one| theirs.iter().all(|other| differ(one, other)))
        })
    }
}

/// The values of `const` or `enum`.
fn listed_values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

impl Parser<'_> {
    /// The members of objects that are valid under a schema, in all ways. The schema of the whole says that it is an object.
    pub(super) fn alternatives(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        pointer: String,
        is_whole: bool,
    ) -> Result<Vec<Members>, TagError> {
        self.depth.count(&pointer)?;
        self.depth.enter(&pointer)?;
        let (schema, pointer) = scope.resolved(schema, pointer)?;
        if *schema == Value::Bool(true) && !is_whole {
            self.depth.leave();
            return Ok(vec![Members::read(&mut Fields::of_none(&pointer))?]);
        }
        let mut object = Fields::new(schema, &pointer)?;
        object.take_others(&KEYWORDS);
        let has = |name: &str| schema.get(name).is_some();
        match object.optional("type") {
            Some(Value::String(kind)) if kind == "object" => {}
            None if !is_whole
                || ["properties", "allOf", "anyOf", "$ref"]
                    .into_iter()
                    .any(has) => {}
            Some(_) => return object.refuse("type", "must be `object` in this style"),
            None => return refuse(&pointer, "`type` must be `object` in this style"),
        }
        let mut all = vec![Members::read(&mut object)?];
        if object.optional("$ref").is_some() {
            let (referred, at) = scope.referred(schema, &pointer)?;
            all = both(
                &all,
                &self.alternatives(scope, referred, at, false)?,
                &pointer,
            )?;
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            let at = object.at(name);
            let branches = match object.optional(name) {
                None => continue,
                Some(Value::Array(branches)) => branches,
                Some(_) => return object.refuse(name, "must be an array"),
            };
            let mut any = Vec::new();
            if name == "oneOf"
                && let Some(ways) = one_of_required(branches, &at)?
            {
                all = both(&all, &ways, &at)?;
                continue;
            }
            for (index, branch) in branches.iter().enumerate() {
                let ways = self.alternatives(scope, branch, format!("{at}/{index}"), false)?;
                let is_apart = |way: &Members| any.iter().all(|other| way.is_apart(other));
                if name == "oneOf" && !ways.iter().all(is_apart) {
                    let message = "of a whole object is supported in this style where a member that is required tells all \
                                   branches apart by its `const` or `enum`, or is none that the others allow, or where all \
                                   say `required` alone: write so, or `anyOf` where any may hold";
                    return object.refuse(name, message);
                }
                match name {
                    "allOf" => all = both(&all, &ways, &at)?,
                    _ => any.extend(ways),
                }
            }
            match name {
                "anyOf" | "oneOf" => all = both(&all, &any, &at)?,
                _ => {}
            }
        }
        if let Some(not) = object.optional("not") {
            let at = object.at("not");
            match without_one(not, &at)? {
                Some(ways) => all = both(&all, &ways, &at)?,
                None => {
                    let message = "of a whole object is supported in this style where it says `required` alone";
                    return object.refuse("not", message);
                }
            }
        }
        if let Some(needs) = object.optional("dependentRequired") {
            let at = object.at("dependentRequired");
            let Value::Object(needs) = needs else {
                return object.refuse("dependentRequired", "must be an object");
            };
            for (name, needed) in needs.iter() {
                let at = format!("{at}/{}", escaped(name));
                let schema = Value::Object(Arc::new(vec![("required".to_owned(), needed.clone())]));
                let mut with = Members::read(&mut Fields::new(&schema, &at)?)?;
                with.required.push((name.as_str().into(), at.clone()));
                let ways = [Members::without(name, &at)?, with];
                all = both(&all, &ways, &at)?;
            }
        }
        self.depth.leave();
        match object.left() {
            Some(left) => object.refuse(&left, "of a whole object is not supported in this style"),
            None if all.is_empty() && is_whole => refuse(&pointer, "no object meets this schema"),
            None => Ok(all),
        }
    }

    /// The members of an object that is a value, by its schema's fields.
    pub(super) fn xml_object(
        &mut self,
        scope: &Scope<'_>,
        object: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let members = Members::read(object)?;
        self.members_in_order(scope, &members, rule)
    }

    /// Members in their order, or in any.
    pub(super) fn members_in_order(
        &mut self,
        scope: &Scope<'_>,
        members: &Members,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let is_listed: HashSet<&str> = members.required.iter().map(|(name, _)| &**name).collect();
        let mut named = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        let mut patterns = Patterns::new(&members.patterns, self.limits)?;
        for (name, schema, at) in &members.properties {
            let is_required = is_listed.contains(name.as_str());
            let matched = patterns.of_name(name)?;
            let (schema, at) = patterns.schema(matched, Some((schema, at)));
            if schema == Value::Bool(false) && !is_required {
                names.push(name);
                continue;
            }
            let rule = self.xml_member(scope, Called::By(name), &schema, &at)?;
            names.push(name);
            named.push(Member { rule, is_required });
        }
        let known: HashSet<&str> = names.iter().copied().collect();
        if let Some((unknown, at)) = members
            .required
            .iter()
            .find(|(name, _)| !known.contains(&**name))
        {
            return refuse(
                at,
                format!(
                    "`required` names `{unknown}`, which must be one of `properties` in this style"
                ),
            );
        }
        // A tag that begins like that of a known name is read as that. Names that the schema doesn't have hold no signs of
        // tags, so it is the shortest that could be one.
        let before = (names.iter()).filter_map(|name| scope.style.names_before(name).next());
        let before: Vec<&str> = before.collect();
        names.extend(before);
        let mut others = Vec::new();
        for matched in patterns.sets(&names, self.limits)? {
            let (schema, at) = patterns.schema(matched, None);
            if schema != Value::Bool(false) {
                others.push((matched, schema, at));
            }
        }
        match &members.additional {
            Some((Value::Bool(false), _)) => {}
            Some((schema, at)) => others.push((0, schema.clone(), at.clone())),
            None => others.push((0, Value::Bool(true), scope.pointer.clone())),
        }
        let mut rules = Vec::with_capacity(others.len());
        for (matched, schema, at) in others {
            let called = Called::ByOther {
                but: &names,
                patterns: &patterns,
                matched,
            };
            rules.push(self.xml_member(scope, called, &schema, &at)?);
        }
        let additional = match rules[..] {
            [] => None,
            [only] => Some(only),
            _ => {
                let mut builder = RuleBuilder::default();
                let ways = rules
                    .iter()
                    .map(|&rule| builder.push(0, NodeKind::Rule(rule)));
                let ways = ways.collect();
                let body = builder.alternate(0, ways);
                Some(self.tag_rule(scope, builder, body)?)
            }
        };
        let rules = MemberRules {
            named,
            additional,
            min: members.min,
            max: members.max,
        };
        let num_required = rules
            .named
            .iter()
            .filter(|member| member.is_required)
            .count() as u32;
        let most = match additional {
            Some(_) => UNBOUNDED,
            None => rules.named.len() as u32,
        };
        if rules.min > most || rules.max < num_required || rules.min > rules.max {
            return refuse(&scope.pointer, "no object has as many members");
        }
        let is_counted = rules.min > num_required || rules.max < most;
        match (scope.written.any_order, is_counted) {
            (true, _) => self.in_any_order(scope, &rules, is_counted, rule),
            (false, true) => self.counted(scope, &rules, rule),
            (false, false) => Ok(in_order(scope, &rules, rule)),
        }
    }
}

/// Each of some ways with each of others.
fn both(some: &[Members], others: &[Members], pointer: &str) -> Result<Vec<Members>, TagError> {
    if some.len().saturating_mul(others.len()) > MAX_WAYS {
        return refuse(
            pointer,
            format!("branches make more than {MAX_WAYS} ways together"),
        );
    }
    let mut all = Vec::new();
    for one in some {
        for other in others {
            let members = one.with(other)?;
            if !members.is_contradicted() {
                all.push(members);
            }
        }
    }
    Ok(all)
}

/// The ways not to meet a schema that says `required` and nothing else: each without one of its members. `None` where it
/// says anything else.
fn without_one(schema: &Value, pointer: &str) -> Result<Option<Vec<Members>>, TagError> {
    let is_object = |kind: &Value| matches!(kind, Value::String(kind) if kind == "object");
    let says = keywords(schema);
    let is_known = says.iter().all(|name| match *name {
        "required" => true,
        "type" => schema.get("type").is_some_and(is_object),
        _ => false,
    });
    if !is_known || !says.contains(&"required") {
        return Ok(None);
    }
    let mut fields = Fields::new(schema, pointer)?;
    let at = fields.at("required");
    let names = fields.texts("required")?;
    let ways = names.iter().map(|name| Members::without(name, &at));
    ways.collect::<Result<_, _>>().map(Some)
}

/// The ways to meet exactly one of some schemas that say `required` and nothing else; `None` where one says more.
fn one_of_required(branches: &[Value], pointer: &str) -> Result<Option<Vec<Members>>, TagError> {
    let mut without = Vec::with_capacity(branches.len());
    for (index, branch) in branches.iter().enumerate() {
        match without_one(branch, &format!("{pointer}/{index}"))? {
            Some(ways) => without.push(ways),
            None => return Ok(None),
        }
    }
    let mut all = Vec::new();
    for (index, branch) in branches.iter().enumerate() {
        let at = format!("{pointer}/{index}");
        let mut ways = vec![Members::read(&mut Fields::new(branch, &at)?)?];
        for (_, other) in without.iter().enumerate().filter(|(at, _)| *at != index) {
            ways = both(&ways, other, pointer)?;
        }
        all.extend(ways);
    }
    Ok(Some(all))
}
