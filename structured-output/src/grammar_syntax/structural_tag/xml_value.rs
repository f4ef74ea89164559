//! The values of members that are written as tags: strings as they stand, all else as JSON.

use std::cell::Cell;
use std::sync::Arc;

use super::super::Words;
use super::super::ast::{EmbeddedSchema, NodeId, NodeKind, RuleBuilder, SchemaPlace};
use super::super::ebnf_atom::any_char;
use super::fields::{Fields, refuse, shown};
use super::xml::{Kind, XmlStyle};
use super::{Parser, TagError};
use crate::json::Value;
use crate::lexical::UNBOUNDED;
use crate::regex::{self, Chars, Dialect};

/// A way to write a value.
pub(super) struct Way {
    pub(super) kind: Kind,
    pub(super) node: NodeId,
}

/// Fields of a schema that say nothing of the value.
pub(super) const ANNOTATIONS: [&str; 12] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Formats that are enforced in JSON.
const FORMATS: [&str; 19] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uuid",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

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
        }
    }

    /// What a schema is that only refers to another one, with its pointer.
    pub(super) fn resolved<'b>(
        &'b self,
        mut schema: &'b Value,
        mut pointer: String,
    ) -> Result<(&'b Value, String), TagError> {
        const MAX_REFERENCES: usize = 64;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema.get("$ref") else {
                return Ok((schema, pointer));
            };
            let at = format!("{pointer}/$ref");
            let Value::String(reference) = reference else {
                return refuse(&at, "`$ref` must be a string");
            };
            let has_more = matches!(schema, Value::Object(members) if members
                .iter()
                .any(|(name, _)| name != "$ref" && !ANNOTATIONS.contains(&&**name)));
            if has_more {
                return refuse(
                    &at,
                    "`$ref` beside other keywords is not supported in this style",
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
            let Some(found) = found else {
                return refuse(&at, format!("there is nothing at `{reference}`"));
            };
            schema = found;
            pointer = format!("{}/{path}", self.pointer);
        }
        refuse(&pointer, "`$ref` leads back to itself")
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
        for annotation in ANNOTATIONS {
            fields.optional(annotation);
        }
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
        let most = i32::MAX as u32;
        let min = fields.count("minLength", most)?;
        let max = fields.count("maxLength", most)?;
        let pattern = fields.optional("pattern");
        for name in [
            "format",
            "contentEncoding",
            "contentMediaType",
            "contentSchema",
        ] {
            if let Some(Value::String(format)) = fields.optional(name)
                && name == "format"
                && FORMATS.contains(&format.as_str())
            {
                return fields.refuse(
                    name,
                    &format!("`{format}` of a string is not supported in this style: say it by a `pattern`"),
                );
            }
        }
        let close: Box<str> = scope.style.close().into();
        let mut parts = vec![rule.push(0, NodeKind::TextWithout(Words::new(vec![close])))];
        if min.is_some() || max.is_some() {
            let any = rule.push(0, NodeKind::Class(any_char()));
            parts.push(rule.push(
                0,
                NodeKind::Repeat {
                    inner: any,
                    min: min.unwrap_or(0),
                    max: max.unwrap_or(UNBOUNDED),
                },
            ));
        }
        if let Some(pattern) = pattern {
            let pointer = fields.at("pattern");
            let Value::String(pattern) = pattern else {
                return refuse(&pointer, format!("{} is no pattern", shown(pattern)));
            };
            let ast = regex::parse(pattern, Dialect::Ecma, self.limits.regex).map_err(|error| {
                let (_, column) = crate::error::line_and_column(pattern, error.offset);
                TagError::At {
                    pointer,
                    message: format!("column {column}: {}", error.message),
                }
            })?;
            parts.push(rule.push(0, NodeKind::Regex(ast.search(Chars::ANY).0)));
        }
        Ok(match parts[..] {
            [only] => only,
            _ => rule.push(0, NodeKind::And(parts)),
        })
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
