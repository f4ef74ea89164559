//! The values of members that are written as tags: strings as they stand, all else as JSON.

use std::cell::Cell;
use std::sync::Arc;

use super::super::Words;
use super::super::ast::{EmbeddedSchema, NodeId, NodeKind, RuleBuilder, SchemaPlace};
use super::fields::{Fields, refuse};
use super::xml::{Kind, XmlStyle};
use super::xml_strings::{Strings, and};
use super::{Parser, TagError};
use crate::json::Value;

/// A way to write a value.
pub(super) struct Way {
    pub(super) kind: Kind,
    pub(super) node: NodeId,
}

/// Fields of a schema that say something of the value. All others are annotations, as in JSON.
pub(super) const KEYWORDS: [&str; 40] = [
    "type",
    "enum",
    "const",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "minItems",
    "maxItems",
    "unevaluatedItems",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "$ref",
    "$dynamicRef",
];

/// Of these, what a string's schema may have beside its type to be read without boolean operators.
const OF_STRINGS: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];

/// All types but strings.
const OTHER_TYPES: [&str; 6] = ["null", "boolean", "integer", "number", "array", "object"];

/// The schema of a whole object, which its parts may refer to.
pub(super) struct Scope<'a> {
    root: &'a Value,
    pub(super) style: XmlStyle,
    pub(super) any_order: bool,
    /// The pointer of the schema.
    pub(super) pointer: String,
    /// That of the format it stands in.
    pub(super) format: String,
    /// Bytes of schemas that were written out and aren't counted yet.
    num_bytes: Cell<usize>,
    /// Schemas of which it was asked what kinds of values they allow.
    num_looked_at: Cell<usize>,
}

impl<'a> Scope<'a> {
    /// That of a format's `json_schema`.
    pub(super) fn new(
        root: &'a Value,
        style: XmlStyle,
        any_order: bool,
        format: &Fields<'_>,
    ) -> Self {
        Self {
            root,
            style,
            any_order,
            pointer: format.at("json_schema"),
            format: format.pointer.to_owned(),
            num_bytes: Cell::default(),
            num_looked_at: Cell::default(),
        }
    }

    /// What a schema is that only refers to another one, or has a single branch, with its pointer.
    pub(super) fn resolved<'b>(
        &'b self,
        mut schema: &'b Value,
        mut pointer: String,
    ) -> Result<(&'b Value, String), TagError> {
        const MAX_REFERENCES: usize = 64;
        for _ in 0..MAX_REFERENCES {
            (schema, pointer) = match keywords(schema)[..] {
                ["$ref"] => self.referred(schema, &pointer)?,
                [name @ ("allOf" | "anyOf" | "oneOf")] => match schema.get(name) {
                    Some(Value::Array(branches)) if branches.len() == 1 => {
                        (&branches[0], format!("{pointer}/{name}/0"))
                    }
                    _ => return Ok((schema, pointer)),
                },
                _ => return Ok((schema, pointer)),
            };
        }
        refuse(&pointer, "`$ref` leads back to itself")
    }

    /// What the `$ref` of a schema leads to, with its pointer.
    pub(super) fn referred(
        &self,
        schema: &Value,
        pointer: &str,
    ) -> Result<(&'a Value, String), TagError> {
        let at = format!("{pointer}/$ref");
        let Some(Value::String(reference)) = schema.get("$ref") else {
            return refuse(&at, "`$ref` must be a string");
        };
        // Up to draft 7 what stands beside it says nothing.
        let is_old =
            |draft: &&Value| matches!(draft, Value::String(uri) if uri.contains("draft-0"));
        if keywords(schema).len() > 1 && self.root.get("$schema").filter(is_old).is_some() {
            return refuse(
                &at,
                "`$ref` beside other keywords is not supported in this style under draft 7 and earlier",
            );
        }
        let Some(path) = reference.strip_prefix("#/") else {
            let message = "`$ref` must be a pointer within this schema, such as `#/$defs/name`";
            return refuse(&at, message);
        };
        let mut found = Some(self.root);
        for part in path.split('/') {
            let name = part.replace("~1", "/").replace("~0", "~");
            found = found.and_then(|value| value.get(&name));
        }
        match found {
            Some(found) => Ok((found, format!("{}/{path}", self.pointer))),
            None => refuse(&at, format!("there is nothing at `{reference}`")),
        }
    }

    /// Kinds of values but strings that a schema may allow, or more.
    fn other_kinds(&self, schema: &Value, pointer: &str, within: usize) -> Result<u8, TagError> {
        const MAX_WITHIN: usize = 64;
        /// A bound on the work: references may lead to one schema again and again.
        const MAX_LOOKED_AT: usize = 100_000;
        let Value::Object(members) = schema else {
            return Ok(if *schema == Value::Bool(false) {
                0
            } else {
                kinds::ALL
            });
        };
        self.num_looked_at.set(self.num_looked_at.get() + 1);
        if within > MAX_WITHIN || self.num_looked_at.get() > MAX_LOOKED_AT {
            return Ok(kinds::ALL);
        }
        let mut all = kinds::ALL;
        for (name, value) in members.iter() {
            all &= match (name.as_str(), value) {
                ("type", kind) => kinds::of_type(kind),
                ("enum", Value::Array(values)) => {
                    values.iter().map(kinds::of_value).fold(0, |a, b| a | b)
                }
                ("const", value) => kinds::of_value(value),
                ("$ref", _) => {
                    let (schema, at) = self.referred(schema, pointer)?;
                    self.other_kinds(schema, &at, within + 1)?
                }
                ("allOf", Value::Array(branches)) => {
                    let mut each = kinds::ALL;
                    for branch in branches.iter() {
                        each &= self.other_kinds(branch, pointer, within + 1)?;
                    }
                    each
                }
                ("anyOf" | "oneOf", Value::Array(branches)) => {
                    let mut any = 0;
                    for branch in branches.iter() {
                        any |= self.other_kinds(branch, pointer, within + 1)?;
                    }
                    any
                }
                ("not", Value::Bool(true)) => 0,
                ("not", not) => match (&keywords(not)[..], not.get("type")) {
                    ([], _) if matches!(not, Value::Object(_)) => 0,
                    (["type"], Some(kind)) => !kinds::of_type(kind),
                    _ => kinds::ALL,
                },
                _ => kinds::ALL,
            };
        }
        Ok(all)
    }

    /// A schema as a document of its own, with the definitions of the whole.
    pub(super) fn document(
        &self,
        schema: &Value,
        pointer: &str,
        more: Vec<(&str, Value)>,
    ) -> EmbeddedSchema {
        let mut members: Vec<(String, Value)> = match schema {
            Value::Object(members) => members.to_vec(),
            _ => Vec::new(),
        };
        for (name, value) in more {
            members.retain(|member| member.0 != name);
            members.push((name.to_owned(), value));
        }
        let mut are_added = false;
        for name in ["$defs", "definitions"] {
            if let Some(definitions) = self.root.get(name)
                && schema.get(name).is_none()
            {
                members.push((name.to_owned(), definitions.clone()));
                are_added = true;
            }
        }
        let text = Value::Object(Arc::new(members)).to_text();
        self.num_bytes.set(self.num_bytes.get() + text.len());
        EmbeddedSchema {
            text: text.into(),
            any_order: false,
            place: Some(SchemaPlace {
                own: pointer.into(),
                definitions: are_added.then(|| self.pointer.as_str().into()),
            }),
        }
    }
}

/// The names in a schema that say something of a value.
pub(super) fn keywords(schema: &Value) -> Vec<&str> {
    let Value::Object(members) = schema else {
        return Vec::new();
    };
    let names = members.iter().map(|(name, _)| name.as_str());
    names.filter(|name| KEYWORDS.contains(name)).collect()
}

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

    /// The ways of all branches of `anyOf`, if there is one.
    pub(super) fn xml_branches(
        &mut self,
        scope: &Scope<'_>,
        fields: &mut Fields<'_>,
        has_type: bool,
        rule: &mut RuleBuilder,
    ) -> Result<Option<Vec<Way>>, TagError> {
        let branches = match fields.optional("anyOf") {
            None => return Ok(None),
            Some(Value::Array(branches)) => branches,
            Some(_) => return fields.refuse("anyOf", "must be an array"),
        };
        if has_type {
            return fields.refuse("anyOf", "beside `type` is not supported in this style");
        }
        self.depth.enter(fields.pointer)?;
        let mut ways = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at("anyOf"));
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
        _ => is_more || keywords.iter().all(|name| is_of_strings(name)),
    }
}

/// Kinds of values but strings, as bits.
mod kinds {
    use crate::json::Value;

    const NULL: u8 = 1;
    const BOOLEAN: u8 = 2;
    const INTEGER: u8 = 4;
    /// Numbers that are no integers.
    const FRACTION: u8 = 8;
    const ARRAY: u8 = 16;
    const OBJECT: u8 = 32;
    pub(super) const ALL: u8 = 63;

    fn named(name: &str) -> u8 {
        match name {
            "null" => NULL,
            "boolean" => BOOLEAN,
            "integer" => INTEGER,
            "number" => INTEGER | FRACTION,
            "array" => ARRAY,
            "object" => OBJECT,
            _ => 0,
        }
    }

    /// Of a `type`.
    pub(super) fn of_type(kind: &Value) -> u8 {
        match kind {
            Value::String(name) => named(name),
            Value::Array(names) => names.iter().map(of_type).fold(0, |a, b| a | b),
            _ => 0,
        }
    }

    pub(super) fn of_value(value: &Value) -> u8 {
        match value {
            Value::Null => NULL,
            Value::Bool(_) => BOOLEAN,
            Value::Number(_) => INTEGER | FRACTION,
            Value::Array(_) => ARRAY,
            Value::Object(_) => OBJECT,
            Value::String(_) => 0,
        }
    }

    /// The names of their types.
    pub(super) fn names(kinds: u8) -> Vec<&'static str> {
        let number = match kinds & (INTEGER | FRACTION) {
            INTEGER => "integer",
            _ => "number",
        };
        let all = [
            (NULL, "null"),
            (BOOLEAN, "boolean"),
            (INTEGER | FRACTION, number),
            (ARRAY, "array"),
            (OBJECT, "object"),
        ];
        let some = all.into_iter().filter(|(kind, _)| kinds & kind != 0);
        some.map(|(_, name)| name).collect()
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
