//! What a schema says of the members of an object that is written as tags.
//!
//! `allOf` and `$ref` bring their members together, each branch of `anyOf` is a way of its own.

use std::collections::HashSet;

use super::super::ast::{NodeId, NodeKind, RuleBuilder, RuleId};
use super::fields::{Fields, refuse};
use super::xml::{Called, escaped, repeated, space};
use super::xml_value::{KEYWORDS, Scope};
use super::{Parser, TagError};
use crate::json::Value;
use crate::lexical::UNBOUNDED;

/// As many members as may come in any order.
const MAX_ANY_ORDER: usize = 8;

/// As many ways as branches of `anyOf` may make together.
const MAX_WAYS: usize = 256;

/// As many places as members beside how many came before them.
const MAX_COUNTED: usize = 4096;

/// Members as a schema has them.
#[derive(Clone)]
pub(super) struct Members {
    /// Name, schema and its pointer, in order.
    properties: Vec<(String, Value, String)>,
    /// Names, and the pointer of the list.
    required: Vec<(Box<str>, String)>,
    /// Of all other members; `None` where nothing is said of them.
    additional: Option<(Value, String)>,
    /// How many there may be.
    min: u32,
    max: u32,
}

/// A member's rule.
struct Member {
    rule: RuleId,
    is_required: bool,
}

/// Rules of members, and of all others if there may be others.
struct MemberRules {
    named: Vec<Member>,
    additional: Option<RuleId>,
    min: u32,
    max: u32,
}

impl Members {
    /// Those of a schema's own fields.
    fn read(object: &mut Fields<'_>) -> Result<Self, TagError> {
        let at = object.at("required");
        let required = object.texts("required")?;
        let required = required.into_iter().map(|name| (name, at.clone()));
        let mut members = Self {
            properties: Vec::new(),
            required: required.collect(),
            additional: None,
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
            let Some((schema, at)) = &one.additional else {
                continue;
            };
            let has = |name: &str| one.properties.iter().any(|(known, _, _)| known == name);
            let new = other.properties.iter().find(|(name, _, _)| !has(name));
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
                Some((_, own, _)) if *own == *schema || *schema == Value::Bool(true) => {}
                Some((_, own, place)) if *own == Value::Bool(true) => {
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
        both.min = self.min.max(more.min);
        both.max = self.max.min(more.max);
        Ok(both)
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
            for (index, branch) in branches.iter().enumerate() {
                let ways = self.alternatives(scope, branch, format!("{at}/{index}"), false)?;
                match name {
                    "allOf" => all = both(&all, &ways, &at)?,
                    _ => any.extend(ways),
                }
            }
            match name {
                "anyOf" => all = both(&all, &any, &at)?,
                "oneOf" if branches.len() == 1 => all = both(&all, &any, &at)?,
                "oneOf" => {
                    let message = "of a whole object is not supported in this style: write `anyOf` where any may hold";
                    return object.refuse(name, message);
                }
                _ => {}
            }
        }
        self.depth.leave();
        match object.left() {
            Some(left) => object.refuse(&left, "of a whole object is not supported in this style"),
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
        for (name, schema, at) in &members.properties {
            let is_required = is_listed.contains(name.as_str());
            if *schema == Value::Bool(false) && !is_required {
                names.push(name);
                continue;
            }
            let rule = self.xml_member(scope, Called::By(name), schema, at)?;
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
        let all = Value::Bool(true);
        let additional = match &members.additional {
            Some((Value::Bool(false), _)) => None,
            schema => {
                let (schema, at) = match schema {
                    Some((schema, at)) => (schema, at.as_str()),
                    None => (&all, scope.pointer.as_str()),
                };
                Some(self.xml_member(scope, Called::ByOther(&names), schema, at)?)
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
        match (scope.any_order, is_counted) {
            (true, _) => self.in_any_order(scope, &rules, is_counted, rule),
            (false, true) => self.counted(scope, &rules, rule),
            (false, false) => Ok(in_order(&rules, rule)),
        }
    }

    /// A rule for each member and number of members before it.
    fn counted(
        &mut self,
        scope: &Scope<'_>,
        members: &MemberRules,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let num_named = members.named.len();
        if (num_named + 1) * (num_named + 2) / 2 > MAX_COUNTED {
            return refuse(
                &scope.pointer,
                "`minProperties` and `maxProperties` are supported for up to 89 properties in this style",
            );
        }
        // Of those after the last one that is named.
        let mut after: Vec<Option<RuleId>> = Vec::with_capacity(num_named + 1);
        for written in 0..=num_named as u32 {
            let (min, max) = (members.min.saturating_sub(written), members.max);
            if written > max || (members.additional.is_none() && min > 0) {
                after.push(None);
                continue;
            }
            let mut builder = RuleBuilder::default();
            let mut items = Vec::new();
            if let Some(additional) = members.additional {
                let inner = builder.push(0, NodeKind::Rule(additional));
                let max = match max {
                    UNBOUNDED => UNBOUNDED,
                    max => max - written,
                };
                items.push(builder.push(0, NodeKind::Repeat { inner, min, max }));
            }
            items.push(space(&mut builder));
            let body = builder.concat(0, items);
            after.push(Some(self.tag_rule(scope, builder, body)?));
        }
        for (at, member) in members.named.iter().enumerate().rev() {
            let mut here = Vec::with_capacity(at + 1);
            for written in 0..=at {
                let mut builder = RuleBuilder::default();
                let mut ways = Vec::new();
                if let Some(next) = after[written + 1] {
                    let own = builder.push(0, NodeKind::Rule(member.rule));
                    let next = builder.push(0, NodeKind::Rule(next));
                    ways.push(builder.concat(0, vec![own, next]));
                }
                if let Some(next) = after[written].filter(|_| !member.is_required) {
                    ways.push(builder.push(0, NodeKind::Rule(next)));
                }
                here.push(match ways.is_empty() {
                    true => None,
                    false => {
                        let body = builder.alternate(0, ways);
                        Some(self.tag_rule(scope, builder, body)?)
                    }
                });
            }
            after = here;
        }
        match after.first().copied().flatten() {
            Some(first) => Ok(rule.push(0, NodeKind::Rule(first))),
            None => refuse(&scope.pointer, "no object has as many members"),
        }
    }

    /// A rule of the whole's.
    fn tag_rule(
        &mut self,
        scope: &Scope<'_>,
        builder: RuleBuilder,
        body: NodeId,
    ) -> Result<RuleId, TagError> {
        let rule = self.declare(&scope.format)?;
        self.define(rule, &scope.format, builder, body)?;
        Ok(rule)
    }

    /// A rule for each set of members that have been written.
    fn in_any_order(
        &mut self,
        scope: &Scope<'_>,
        members: &MemberRules,
        is_counted: bool,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let MemberRules {
            named,
            additional,
            min,
            max,
        } = members;
        if named.len() > MAX_ANY_ORDER {
            return refuse(
                &format!("{}/any_order", scope.format),
                format!(
                    "`any_order` is supported for up to {MAX_ANY_ORDER} properties in this style, \
                     not for {}",
                    named.len()
                ),
            );
        }
        if is_counted && additional.is_some() {
            return refuse(
                &format!("{}/any_order", scope.format),
                "`any_order` beside `minProperties` or `maxProperties` needs \
                 `additionalProperties: false` in this style",
            );
        }
        let mut after = Vec::with_capacity(1 << named.len());
        for _ in 0..1_usize << named.len() {
            after.push(self.declare(&scope.format)?);
        }
        // Whether a whole object may end there.
        let may_end = |written: usize| {
            let mut required = named.iter().enumerate();
            let is_all = required.all(|(at, member)| written >> at & 1 == 1 || !member.is_required);
            is_all && (!is_counted || (*min..=*max).contains(&written.count_ones()))
        };
        let mut leads_on = vec![false; after.len()];
        for written in (0..after.len()).rev() {
            let more = (0..named.len()).map(|at| written | 1 << at);
            let can_grow = !is_counted || written.count_ones() < *max;
            leads_on[written] = may_end(written)
                || (can_grow
                    && more
                        .filter(|more| *more != written)
                        .any(|more| leads_on[more]));
        }
        for (written, &own) in after.iter().enumerate() {
            let mut builder = RuleBuilder::default();
            let mut ways = Vec::new();
            let is_written = |at: usize| written >> at & 1 == 1;
            let mut next = |member: RuleId, after: RuleId, builder: &mut RuleBuilder| {
                let member = builder.push(0, NodeKind::Rule(member));
                let after = builder.push(0, NodeKind::Rule(after));
                ways.push(builder.concat(0, vec![member, after]));
            };
            for (at, member) in named.iter().enumerate() {
                if !is_written(at) && leads_on[written] && leads_on[written | 1 << at] {
                    next(member.rule, after[written | 1 << at], &mut builder);
                }
            }
            if let Some(additional) = *additional {
                next(additional, own, &mut builder);
            }
            // One from where no object ends is led to by no other.
            if may_end(written) || ways.is_empty() {
                ways.push(space(&mut builder));
            }
            let body = builder.alternate(0, ways);
            self.define(own, &scope.format, builder, body)?;
        }
        let first = after.first().copied().unwrap_or_default();
        Ok(rule.push(0, NodeKind::Rule(first)))
    }
}

/// Members one after the other.
fn in_order(members: &MemberRules, rule: &mut RuleBuilder) -> NodeId {
    let mut items = Vec::with_capacity(members.named.len() + 2);
    for member in &members.named {
        let inner = rule.push(0, NodeKind::Rule(member.rule));
        items.push(match member.is_required {
            true => inner,
            false => repeated(rule, inner, 1),
        });
    }
    if let Some(additional) = members.additional {
        let inner = rule.push(0, NodeKind::Rule(additional));
        items.push(repeated(rule, inner, UNBOUNDED));
    }
    items.push(space(rule));
    rule.concat(0, items)
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
            all.push(one.with(other)?);
        }
    }
    Ok(all)
}
