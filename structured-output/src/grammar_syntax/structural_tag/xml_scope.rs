//! A schema within the schema of a whole object: what it refers to, and which kinds of values it may allow.

use std::cell::Cell;
use std::sync::Arc;

use super::super::ast::{EmbeddedSchema, SchemaPlace};
use super::TagError;
use super::fields::{Fields, refuse};
use super::format::Written;
use super::xml::XmlStyle;
use crate::json::Value;

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

/// The schema of a whole object, which its parts may refer to.
pub(super) struct Scope<'a> {
    root: &'a Value,
    pub(super) style: XmlStyle,
    pub(super) written: Written,
    /// The pointer of the schema.
    pub(super) pointer: String,
    /// That of the format it stands in.
    pub(super) format: String,
    /// Bytes of schemas that were written out and aren't counted yet.
    pub(super) num_bytes: Cell<usize>,
    /// Schemas of which it was asked what kinds of values they allow.
    num_looked_at: Cell<usize>,
}

impl<'a> Scope<'a> {
    /// That of a format's `json_schema`.
    pub(super) fn new(
        root: &'a Value,
        style: XmlStyle,
        written: Written,
        format: &Fields<'_>,
    ) -> Self {
        Self {
            root,
            style,
            written,
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
    pub(super) fn other_kinds(
        &self,
        schema: &Value,
        pointer: &str,
        within: usize,
    ) -> Result<u8, TagError> {
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

    /// Whether no value meets two of some schemas, which is told by the kinds of values that each may allow.
    pub(super) fn are_apart(&self, branches: &[Value], pointer: &str) -> Result<bool, TagError> {
        let (mut seen, mut has_string) = (0, false);
        for (index, branch) in branches.iter().enumerate() {
            let (schema, at) = self.resolved(branch, format!("{pointer}/{index}"))?;
            let others = self.other_kinds(schema, &at, 0)?;
            let is_string = |kind: &Value| matches!(kind, Value::String(kind) if kind == "string");
            let may_be_string = match (schema.get("type"), schema.get("const"), schema.get("enum"))
            {
                (Some(Value::Array(kinds)), _, _) => kinds.iter().any(is_string),
                (Some(kind), _, _) => is_string(kind),
                (None, Some(value), _) => matches!(value, Value::String(_)),
                (None, None, Some(Value::Array(values))) => {
                    values.iter().any(|value| matches!(value, Value::String(_)))
                }
                _ => *schema != Value::Bool(false),
            };
            if seen & others != 0 || (has_string && may_be_string) {
                return Ok(false);
            }
            seen |= others;
            has_string |= may_be_string;
        }
        Ok(true)
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
            options: Box::new(self.written.options()),
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

/// Kinds of values but strings, as bits.
pub(super) mod kinds {
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
    pub(in super::super) fn names(kinds: u8) -> Vec<&'static str> {
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
