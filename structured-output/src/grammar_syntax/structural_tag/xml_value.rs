//! The values of members that are written as tags: strings as they stand, all else as JSON.

use std::sync::Arc;

use super::super::Words;
use super::super::ast::{NodeId, NodeKind, RuleBuilder};
use super::fields::Fields;
use super::xml::Kind;
use super::xml_scope::{KEYWORDS, Scope, keywords, kinds};
use super::xml_strings::{Strings, and};
use super::{Parser, TagError};
use crate::json::Value;

/// A way to write a value.
pub(super) struct Way {
    pub(super) kind: Kind,
    pub(super) node: NodeId,
}

/// Of these, what a string's schema may have beside its type to be read without boolean operators.
const OF_STRINGS: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];

/// All types but strings.
const OTHER_TYPES: [&str; 6] = ["null", "boolean", "integer", "number", "array", "object"];

pub(super) fn strings(names: &[&str]) -> Value {
    let names = names.iter().map(|name| Value::String((*name).to_owned()));
    Value::Array(Arc::new(names.collect()))
}

impl Parser<'_> {
    /// The ways to write a value, those apart that are known already: a branch may lead where another
    /// one led. Recursion is bounded by [`Depth`].
    pub(super) fn xml_values(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        pointer: &str,
        rule: &mut RuleBuilder,
    ) -> Result<Vec<Way>, TagError> {
        self.depth.count(pointer)?;
        let (schema, pointer) = scope.resolved(schema, pointer.to_owned())?;
        if self.read.contains(&pointer) {
            return Ok(Vec::new());
        }
        let ways = self.xml_ways(scope, schema, &pointer, rule)?;
        self.depth.write(scope.num_bytes.take(), &pointer)?;
        self.read.insert(pointer);
        Ok(ways)
    }

    fn xml_ways(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        pointer: &str,
        rule: &mut RuleBuilder,
    ) -> Result<Vec<Way>, TagError> {
        if *schema == Value::Bool(false) {
            return Ok(Vec::new());
        }
        let anything = Value::Object(Arc::default());
        let schema = match schema {
            Value::Bool(_) => &anything,
            schema => schema,
        };
        let mut fields = Fields::new(schema, pointer)?;
        fields.take_others(&KEYWORDS);
        let mut types: Option<Vec<&str>> = None;
        match fields.optional("type") {
            None => {}
            Some(Value::String(kind)) => types = Some(vec![kind]),
            Some(Value::Array(kinds)) => {
                let mut list = Vec::with_capacity(kinds.len());
                for kind in kinds.iter() {
                    match kind {
                        Value::String(kind) => list.push(kind.as_str()),
                        _ => return fields.refuse("type", "holds strings"),
                    }
                }
                types = Some(list);
            }
            Some(_) => return fields.refuse("type", "must be a string or an array of strings"),
        }
        let may_be = |kind: &str| types.as_ref().is_none_or(|types| types.contains(&kind));
        let others: Vec<&str> = match &types {
            None => OTHER_TYPES.to_vec(),
            Some(types) => types
                .iter()
                .copied()
                .filter(|kind| *kind != "string")
                .collect(),
        };
        if scope.style.nests() {
            return self.nested_values(scope, schema, fields, types.as_deref(), rule);
        }
        let mut ways = Vec::new();
        if !may_be("string") {
            add_json(scope, (schema, pointer), &others, None, rule, &mut ways);
            return Ok(ways);
        }
        if !is_plain(&keywords(schema), types.is_some() && !others.is_empty()) {
            return self.combined_ways(scope, schema, pointer, rule);
        }
        if let Some(values) = listed(&mut fields)? {
            let mut rest = Vec::new();
            for value in values {
                match value {
                    Value::String(text) => {
                        let node = rule.push(0, NodeKind::Literal(text.as_str().into()));
                        let kind = Kind::String;
                        ways.push(Way { kind, node });
                    }
                    other => rest.push(other.clone()),
                }
            }
            fields.finish()?;
            if !rest.is_empty() && !others.is_empty() {
                let place = (&anything, pointer);
                add_json(scope, place, &others, Some(rest), rule, &mut ways);
            }
            return Ok(ways);
        }
        if let Some(ways) = self.xml_branches(scope, &mut fields, types.is_some(), rule)? {
            fields.finish()?;
            return Ok(ways);
        }
        let node = self.xml_string(scope, &mut fields, rule)?;
        let kind = Kind::String;
        ways.push(Way { kind, node });
        // Of any other type, the schema says what it says; where that is nothing, the text of a
        // string is read the same.
        let says_nothing = types.is_none() && !scope.style.tells_strings();
        let left = fields.left();
        match left {
            Some(name) if types.is_none() => {
                return fields.refuse(&name, "without `type` is not supported in this style");
            }
            _ if others.is_empty() || (says_nothing && left.is_none()) => fields.finish()?,
            _ => add_json(scope, (schema, pointer), &others, None, rule, &mut ways),
        }
        Ok(ways)
    }

    /// The ways of all branches of `anyOf`, or of `oneOf` where their types tell them apart, if there is one.
    pub(super) fn xml_branches(
        &mut self,
        scope: &Scope<'_>,
        fields: &mut Fields<'_>,
        has_type: bool,
        rule: &mut RuleBuilder,
    ) -> Result<Option<Vec<Way>>, TagError> {
        let found = ["anyOf", "oneOf"]
            .into_iter()
            .find_map(|name| Some((name, fields.optional(name)?)));
        let (name, branches) = match found {
            None => return Ok(None),
            Some((name, Value::Array(branches))) => (name, branches),
            Some((name, _)) => return fields.refuse(name, "must be an array"),
        };
        if has_type {
            return fields.refuse(name, "beside `type` is not supported in this style");
        }
        if name == "oneOf" && !scope.are_apart(branches, &fields.at(name))? {
            let message = "is supported in this style where the types of its branches tell them apart: write so, or \
                           `anyOf` where any may hold";
            return fields.refuse(name, message);
        }
        self.depth.enter(fields.pointer)?;
        let mut ways = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at(name));
            ways.extend(self.xml_values(scope, branch, &pointer, rule)?);
        }
        self.depth.leave();
        Ok(Some(ways))
    }

    /// A string as it stands, which doesn't contain what ends it.
    pub(super) fn xml_string(
        &mut self,
        scope: &Scope<'_>,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let mut parts = vec![any_string(scope, rule)];
        parts.extend(self.string_parts(fields, rule)?);
        Ok(and(rule, parts))
    }

    /// The ways of a schema with boolean operators: its strings as they stand, all else as JSON under the same schema.
    fn combined_ways(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        pointer: &str,
        rule: &mut RuleBuilder,
    ) -> Result<Vec<Way>, TagError> {
        let mut ways = Vec::new();
        let strings = self.xml_strings(scope, schema, pointer)?;
        if strings != Strings::None {
            let mut parts = vec![any_string(scope, rule)];
            if let Strings::Of(strings) = strings {
                parts.push(rule.push(0, NodeKind::Rule(strings)));
            }
            let node = and(rule, parts);
            let kind = Kind::String;
            ways.push(Way { kind, node });
        }
        let others = kinds::names(scope.other_kinds(schema, pointer, 0)?);
        if !others.is_empty() {
            add_json(scope, (schema, pointer), &others, None, rule, &mut ways);
        }
        Ok(ways)
    }
}

/// Any string as it stands, up to what ends it.
fn any_string(scope: &Scope<'_>, rule: &mut RuleBuilder) -> NodeId {
    let close: Box<str> = scope.style.close().into();
    rule.push(0, NodeKind::TextWithout(Words::new(vec![close])))
}

/// Whether a schema that strings may meet is read without boolean operators. `is_more` says whether it has a type that
/// other values meet as well.
fn is_plain(keywords: &[&str], is_more: bool) -> bool {
    const COMBINING: [&str; 8] = [
        "allOf",
        "oneOf",
        "not",
        "if",
        "$ref",
        "$dynamicRef",
        "anyOf",
        "enum",
    ];
    let is_of_strings = |name: &&str| *name == "type" || OF_STRINGS.contains(name);
    match keywords {
        ["anyOf"] => true,
        _ if keywords.contains(&"enum") || keywords.contains(&"const") => {
            let others = keywords.iter().filter(|name| **name != "type");
            others.count() == 1
        }
        _ if keywords.iter().any(|name| COMBINING.contains(name)) => false,
        _ => is_more || keywords.iter().all(is_of_strings),
    }
}

/// Adds the ways to write values that are no strings, of some types and, if given, of a list: one way,
/// or one for each type where the style tells them apart. The schema comes with its pointer.
fn add_json(
    scope: &Scope<'_>,
    (schema, pointer): (&Value, &str),
    types: &[&str],
    values: Option<Vec<Value>>,
    rule: &mut RuleBuilder,
    ways: &mut Vec<Way>,
) {
    let mut add = |kind: Option<&'static str>, types: &[&str], values: Option<Vec<Value>>| {
        let mut more = vec![("type", strings(types))];
        more.extend(values.map(|values| ("enum", Value::Array(Arc::new(values)))));
        let node = rule.push(0, NodeKind::Json(scope.document(schema, pointer, more)));
        let kind = Kind::Other(kind);
        ways.push(Way { kind, node });
    };
    if !scope.style.tells_types() {
        return add(None, types, values);
    }
    if keywords(schema).is_empty() && values.is_none() {
        // What says nothing of a value says nothing of what it is called either.
        add(Some("integer"), &["integer"], None);
    }
    for kind in ["null", "boolean", "number", "array", "object"] {
        // An integer is a number.
        let own: Vec<&str> = types
            .iter()
            .copied()
            .filter(|name| *name == kind || (*name == "integer" && kind == "number"))
            .collect();
        let of_kind = |value: &&Value| match value {
            Value::Null => kind == "null",
            Value::Bool(_) => kind == "boolean",
            Value::Number(_) => kind == "number",
            Value::Array(_) => kind == "array",
            Value::Object(_) => kind == "object",
            Value::String(_) => false,
        };
        let values = values
            .as_ref()
            .map(|values| values.iter().filter(of_kind).cloned().collect::<Vec<_>>());
        if !own.is_empty() && values.as_ref().is_none_or(|values| !values.is_empty()) {
            add(Some(kind), &own, values);
        }
    }
}

/// The values of `enum` or `const`.
pub(super) fn listed<'a>(fields: &mut Fields<'a>) -> Result<Option<Vec<&'a Value>>, TagError> {
    if let Some(values) = fields.optional("enum") {
        let Value::Array(values) = values else {
            return fields.refuse("enum", "must be an array");
        };
        return Ok(Some(values.iter().collect()));
    }
    Ok(fields.nullable("const").map(|value| vec![value]))
}
