//! Values of a style that writes arrays and objects as tags within tags.
//!
//! Strings stand as they are, other scalars are JSON. What a schema says of arrays and objects becomes
//! rules, one for each place of the schema, so that schemas may refer back to themselves.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::ast::{NodeId, NodeKind, RuleBuilder, RuleId};
use super::fields::{Fields, refuse};
use super::xml::{Called, Kind, space};
use super::xml_scope::Scope;
use super::xml_value::{Way, listed, strings};
use super::{Parser, TagError};
use crate::json::Value;
use crate::lexical::UNBOUNDED;

const SCALARS: [&str; 4] = ["null", "boolean", "integer", "number"];

/// What a schema may say of numbers, and what it says to no effect.
const OF_NUMBERS: [&str; 6] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "format",
];

const OF_ARRAYS: [&str; 4] = ["prefixItems", "items", "minItems", "maxItems"];

const OF_OBJECTS: [&str; 6] = [
    "properties",
    "patternProperties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
];

/// The rules of arrays (`list`) and objects (`dict`), by their place in the schema.
pub(super) type NestedRules = HashMap<(String, &'static str), RuleId>;

impl Parser<'_> {
    /// The ways to write a value of some types, any if there are none.
    pub(super) fn nested_values(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        mut fields: Fields<'_>,
        types: Option<&[&str]>,
        rule: &mut RuleBuilder,
    ) -> Result<Vec<Way>, TagError> {
        let may_be = |kind: &str| types.is_none_or(|types| types.contains(&kind));
        let scalars: Vec<&str> = SCALARS.into_iter().filter(|kind| may_be(kind)).collect();
        let pointer = fields.pointer;
        let mut ways = Vec::new();
        if let Some(values) = listed(&mut fields)? {
            let mut others = Vec::new();
            for value in values {
                match value {
                    Value::String(text) if may_be("string") => {
                        let node = rule.push(0, NodeKind::Literal(text.as_str().into()));
                        let kind = Kind::String;
                        ways.push(Way { kind, node });
                    }
                    Value::String(_) => {}
                    Value::Array(_) | Value::Object(_) => {
                        let message = "arrays and objects in `enum` and `const` are not supported \
                                       in this style";
                        return refuse(fields.pointer, message);
                    }
                    scalar => others.push(scalar.clone()),
                }
            }
            fields.finish()?;
            if !others.is_empty() && !scalars.is_empty() {
                let anything = Value::Object(Arc::default());
                let place = (&anything, pointer);
                ways.push(scalar(scope, place, &scalars, Some(others), rule));
            }
            return Ok(ways);
        }
        if let Some(ways) = self.xml_branches(scope, &mut fields, types.is_some(), rule)? {
            fields.finish()?;
            return Ok(ways);
        }
        let says_nothing = fields.left().is_none();
        if types.is_none()
            && let Some(name) = fields.left()
        {
            return fields.refuse(&name, "without `type` is not supported in this style");
        }
        if may_be("string") {
            let node = self.xml_string(scope, &mut fields, rule)?;
            let kind = Kind::String;
            ways.push(Way { kind, node });
        }
        if !scalars.is_empty() {
            ways.push(scalar(scope, (schema, pointer), &scalars, None, rule));
        }
        if may_be("integer") || may_be("number") {
            fields.take(&OF_NUMBERS);
        }
        // What says nothing is the same everywhere.
        let place = match says_nothing {
            true => "",
            false => fields.pointer,
        };
        for (kind, name) in [("array", "list"), ("object", "dict")] {
            if may_be(kind) {
                let inner = self.nested_rule(scope, &mut fields, place, name)?;
                let node = rule.push(0, NodeKind::Rule(inner));
                let kind = Kind::Other(Some(name));
                ways.push(Way { kind, node });
            }
        }
        fields.finish()?;
        Ok(ways)
    }

    /// The rule of the arrays (`list`) or objects (`dict`) of a place in the schema.
    fn nested_rule(
        &mut self,
        scope: &Scope<'_>,
        fields: &mut Fields<'_>,
        place: &str,
        name: &'static str,
    ) -> Result<RuleId, TagError> {
        let key = (place.to_owned(), name);
        if let Some(&rule) = self.nested_rules.get(&key) {
            match name {
                "list" => fields.take(&OF_ARRAYS),
                _ => fields.take(&OF_OBJECTS),
            }
            return Ok(rule);
        }
        self.depth.enter(fields.pointer)?;
        let rule = self.declare(fields.pointer)?;
        self.nested_rules.insert(key, rule);
        let mut builder = RuleBuilder::default();
        let body = match name {
            "list" => self.xml_array(scope, fields, &mut builder)?,
            _ => self.xml_object(scope, fields, &mut builder)?,
        };
        self.depth.leave();
        self.define(rule, fields.pointer, builder, body)?;
        Ok(rule)
    }

    /// The items of an array, by its schema's fields.
    fn xml_array(
        &mut self,
        scope: &Scope<'_>,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let most = i32::MAX as u32;
        let min = fields.count("minItems", most)?.unwrap_or(0);
        let max = fields.count("maxItems", most)?.unwrap_or(UNBOUNDED);
        let mut prefix = Vec::new();
        for (index, schema) in fields.optional_array("prefixItems")?.iter().enumerate() {
            let at = format!("{}/{index}", fields.at("prefixItems"));
            prefix.push(self.xml_member(scope, Called::Unnamed, schema, &at)?);
        }
        let num_first = prefix.len() as u32;
        let rest = match fields.optional("items") {
            Some(Value::Bool(false)) => None,
            Some(Value::Array(_)) => {
                return fields.refuse("items", "must be a schema in this style");
            }
            schema => {
                let all = Value::Bool(true);
                let at = fields.at("items");
                let schema = schema.unwrap_or(&all);
                Some(self.xml_member(scope, Called::Unnamed, schema, &at)?)
            }
        };
        if min > max || (rest.is_none() && min > num_first) {
            return refuse(fields.pointer, "no array meets this schema");
        }
        let mut items = space(scope, rule);
        if let Some(rest) = rest.filter(|_| max > num_first) {
            let inner = rule.push(0, NodeKind::Rule(rest));
            let max = match max {
                UNBOUNDED => UNBOUNDED,
                max => max - num_first,
            };
            let min = min.saturating_sub(num_first);
            let more = rule.push(0, NodeKind::Repeat { inner, min, max });
            items = rule.concat(0, vec![more, items]);
        }
        for (index, first) in (0..num_first.min(max)).zip(prefix).rev() {
            let first = rule.push(0, NodeKind::Rule(first));
            let with = rule.concat(0, vec![first, items]);
            items = match index < min {
                true => with,
                false => {
                    let none = space(scope, rule);
                    rule.alternate(0, vec![with, none])
                }
            };
        }
        Ok(items)
    }
}

/// A scalar of some types, and if given, of a list, under a schema at a pointer.
fn scalar(
    scope: &Scope<'_>,
    (schema, pointer): (&Value, &str),
    types: &[&str],
    values: Option<Vec<Value>>,
    rule: &mut RuleBuilder,
) -> Way {
    let mut more = vec![("type", strings(types))];
    more.extend(values.map(|values| ("enum", Value::Array(Arc::new(values)))));
    Way {
        kind: Kind::Other(Some("json")),
        node: rule.push(0, NodeKind::Json(scope.document(schema, pointer, more))),
    }
}
