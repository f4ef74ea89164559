//! Which keywords of a schema hold, and which say nothing about a text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};
use structured_output::GrammarCompiler;

use crate::constraint::{Constraint, Kind};

/// Keywords that hold one schema, or a list of them.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "dependencies",
];
/// Keywords that hold schemas by name.
const NAMED_SCHEMAS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
    "dependencies",
];
/// Keywords that are enforced and hold no schema.
const ASSERTIONS: [&str; 23] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "const",
    "dependentRequired",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "type",
];
/// Keywords that are about the schema itself.
const STRUCTURE: [&str; 10] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$recursiveAnchor",
    "$schema",
    "$vocabulary",
    "definitions",
    "id",
];
/// Texts of which every format that is enforced refuses one.
const NO_FORMAT: [&str; 3] = ["\"\"", "\"~ ~\"", "\"(\""];

/// How often which keyword stands in a schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Keywords {
    enforced: BTreeMap<String, usize>,
    annotations: BTreeMap<String, usize>,
}

impl Keywords {
    /// Counts them; `None` where the text is no schema.
    pub(super) fn of(kind: Kind, text: &str, compiler: &GrammarCompiler) -> Option<Self> {
        if kind != Kind::Json {
            return None;
        }
        let schema: Value = serde_json::from_str(text).ok()?;
        let mut keywords = Self::default();
        let mut formats = BTreeSet::new();
        // Depth is limited by the reader, and the stack is this one.
        let mut schemas = vec![&schema];
        while let Some(schema) = schemas.pop() {
            for (keyword, value) in schema.as_object().into_iter().flatten() {
                keywords.count(keyword, value, &mut formats, compiler);
                push_schemas(keyword, value, &mut schemas);
            }
        }
        Some(keywords)
    }

    fn count<'a>(
        &mut self,
        keyword: &str,
        value: &'a Value,
        formats: &mut BTreeSet<&'a str>,
        compiler: &GrammarCompiler,
    ) {
        let is_enforced = match value.as_str() {
            Some(format) if keyword == "format" => {
                formats.contains(format) || is_enforced(format, compiler)
            }
            _ => {
                ASSERTIONS.contains(&keyword)
                    || keyword == "uniqueItems"
                    || SCHEMAS.contains(&keyword)
                    || (NAMED_SCHEMAS.contains(&keyword) && !STRUCTURE.contains(&keyword))
            }
        };
        if is_enforced {
            if let (Some(format), "format") = (value.as_str(), keyword) {
                formats.insert(format);
            }
            *self.enforced.entry(keyword.to_owned()).or_default() += 1;
        } else if !STRUCTURE.contains(&keyword) {
            let name = match value.as_str() {
                Some(format) if keyword == "format" => format!("format {format:?}"),
                _ => keyword.to_owned(),
            };
            *self.annotations.entry(name).or_default() += 1;
        }
    }
}

impl fmt::Display for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |keywords: &BTreeMap<String, usize>| {
            let counted = keywords.iter().map(|(keyword, count)| match count {
                1 => keyword.clone(),
                count => format!("{keyword} ({count})"),
            });
            counted.collect::<Vec<String>>().join(", ")
        };
        if !self.enforced.is_empty() {
            writeln!(f, "keywords  {}", list(&self.enforced))?;
        }
        if !self.annotations.is_empty() {
            writeln!(f, "no effect {} (annotations)", list(&self.annotations))?;
        }
        Ok(())
    }
}

/// The schemas that a keyword's value holds.
fn push_schemas<'a>(keyword: &str, value: &'a Value, schemas: &mut Vec<&'a Value>) {
    match value {
        Value::Array(items) if SCHEMAS.contains(&keyword) => schemas.extend(items),
        Value::Object(members) if NAMED_SCHEMAS.contains(&keyword) => {
            schemas.extend(Map::values(members));
        }
        Value::Object(_) if SCHEMAS.contains(&keyword) => schemas.push(value),
        _ => {}
    }
}

/// Whether a format says anything: then it refuses some text.
fn is_enforced(format: &str, compiler: &GrammarCompiler) -> bool {
    let constraint = Constraint::Json(json!({"type": "string", "format": format}));
    let Ok(grammar) = constraint.compile(compiler) else {
        return true;
    };
    NO_FORMAT
        .iter()
        .any(|text| constraint.verify(&grammar, text).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::byte_compiler;

    #[test]
    fn properties_are_no_keywords_and_annotations_are_named() {
        let text = r##"{
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "t",
            "properties": {"title": {"type": "string", "format": "date"},
                           "b": {"type": "string", "format": "colour", "description": "d"}},
            "items": [{"minimum": 1}, {"$ref": "#/$defs/c"}],
            "$defs": {"c": {"format": "regex", "x-own": {"type": "object"}}}
        }"##;
        let keywords = Keywords::of(Kind::Json, text, &byte_compiler().unwrap()).unwrap();
        assert_eq!(
            keywords.to_string(),
            "keywords  $ref, format (2), items, minimum, properties, type (2)\n\
             no effect description, format \"colour\", title, x-own (annotations)\n"
        );
        assert!(Keywords::of(Kind::Regex, "a", &byte_compiler().unwrap()).is_none());
    }
}
