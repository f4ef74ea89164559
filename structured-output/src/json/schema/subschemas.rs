//! Where a schema has schemas in it.

use super::super::value::Value;
use super::draft::{Dialect, member};

/// Whether a value can be a schema.
pub(super) fn is_schema(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Bool(_))
}

/// Visits the schemas that a schema's keywords hold and apply, with the keyword, those of `$ref` aside. What is no
/// schema is passed over: the keyword itself complains of it.
pub(super) fn applied(
    schema: &[(String, Value)],
    dialect: Dialect,
    visit: &mut impl FnMut(&str, &Value),
) {
    for (keyword, value) in schema {
        let applies = match keyword.as_str() {
            "then" | "else" => member(schema, "if").is_some(),
            "additionalItems" => matches!(member(schema, "items"), Some(Value::Array(_))),
            _ => true,
        };
        if applies && dialect.knows(keyword) {
            of_keyword(keyword, value, &mut |schema| visit(keyword, schema));
        }
    }
}

/// Visits the schemas in a schema, those that only references reach too.
pub(super) fn held(schema: &[(String, Value)], visit: &mut impl FnMut(&Value)) {
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("$defs" | "definitions", Value::Object(map)) => {
                map.iter().map(|entry| &entry.1).for_each(&mut *visit);
            }
            _ => of_keyword(keyword, value, visit),
        }
    }
}

fn of_keyword(keyword: &str, value: &Value, visit: &mut impl FnMut(&Value)) {
    let mut schema = |value: &Value| {
        if is_schema(value) {
            visit(value);
        }
    };
    match (keyword, value) {
        (
            "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else",
            Value::Object(_) | Value::Bool(_),
        ) => schema(value),
        (
            "properties" | "patternProperties" | "dependentSchemas" | "dependencies",
            Value::Object(map),
        ) => map.iter().for_each(|entry| schema(&entry.1)),
        ("items" | "prefixItems" | "allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
            list.iter().for_each(schema);
        }
        _ => {}
    }
}
