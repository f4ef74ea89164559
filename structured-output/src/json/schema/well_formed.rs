//! Whether a schema's keywords have the form that the meta-schemas ask for, also where they say nothing: a
//! `then` without `if`, or schemas under `$defs` that nobody refers to. Keywords that no draft knows and
//! annotations may be anything.

use hashbrown::HashSet;

use super::super::value::Value;
use super::build::whole_number;
use super::draft::{Dialect, member};
use super::pointer::escaped;
use super::refusal::{Refusal, malformed, refuse};
use super::scalar::is_type;
use super::subschemas::is_schema;
use crate::options::Draft;

const SCHEMA: &str = "a schema, which is an object or a boolean";
const NAMES: &str = "a list of names";

/// Refuses a schema with a malformed keyword; what is within the schemas in it is not looked at.
pub(super) fn check(schema: &[(String, Value)], dialect: Dialect) -> Result<(), Refusal> {
    for (keyword, value) in schema.iter().filter(|member| dialect.knows(&member.0)) {
        check_keyword(keyword, value, dialect)?;
    }
    Ok(())
}

/// Visits the schemas in a schema that its keywords don't apply, and that are read only if a reference leads
/// there. `is_hidden`: a `$ref` hides all others.
pub(super) fn unapplied(
    schema: &[(String, Value)],
    dialect: Dialect,
    is_hidden: bool,
    visit: &mut impl FnMut(&Value),
) {
    let has = |keyword| member(schema, keyword).is_some();
    for (keyword, value) in schema {
        let is_applied = match keyword.as_str() {
            "then" | "else" => has("if"),
            "additionalItems" => matches!(member(schema, "items"), Some(Value::Array(_))),
            "$defs" | "definitions" => {
                if let (Value::Object(map), true) = (value, dialect.knows(keyword)) {
                    map.iter().for_each(|entry| visit(&entry.1));
                }
                true
            }
            _ => true,
        };
        if !is_applied && !is_hidden && dialect.knows(keyword) {
            visit(value);
        }
    }
}

fn check_keyword(keyword: &str, value: &Value, dialect: Dialect) -> Result<(), Refusal> {
    let at = || format!("/{keyword}");
    let is_right = match keyword {
        "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "not"
        | "if"
        | "then"
        | "else" => {
            return schema(&at, value);
        }
        "allOf" if matches!(value, Value::Array(list) if list.is_empty()) => Ok(()),
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
            return schemas(&at, value, "a list of at least one schema");
        }
        "items" => match value {
            Value::Array(_) => return schemas(&at, value, "a schema or a list of at least one"),
            _ => return schema(&at, value),
        },
        "properties" | "patternProperties" | "$defs" | "definitions" => {
            return entries(&at, value, "an object of schemas", schema);
        }
        "dependentSchemas" => return entries(&at, value, "an object of schemas", schema),
        "dependentRequired" => return entries(&at, value, "an object of lists of names", names),
        "dependencies" => {
            let right = "an object of schemas and lists of names";
            return entries(&at, value, right, |at, needs| match needs {
                Value::Array(_) => names(at, needs),
                _ => schema(at, needs),
            });
        }
        "required" => return names(&at, value),
        "type" => return types(value),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => match value {
            Value::Number(text) if whole_number(text).is_some() => Ok(()),
            _ => Err("a whole number from 0"),
        },
        "minimum" | "maximum" => match value {
            Value::Number(_) => Ok(()),
            _ => Err("a number"),
        },
        "exclusiveMinimum" | "exclusiveMaximum" => match value {
            Value::Number(_) | Value::Bool(_) => Ok(()),
            _ => Err("a number"),
        },
        "multipleOf" => match value {
            Value::Number(text) if is_above_zero(text) => Ok(()),
            Value::Number(_) => Err("a number above 0"),
            _ => Err("a number"),
        },
        "uniqueItems" => match value {
            Value::Bool(_) => Ok(()),
            _ => Err("true or false"),
        },
        "enum" => match value {
            Value::Array(_) => Ok(()),
            _ => Err("a list of values"),
        },
        "pattern" | "format" | "$id" | "$schema" => match value {
            Value::String(_) => Ok(()),
            _ => Err("a string"),
        },
        "$ref" | "$dynamicRef" | "$recursiveRef" => match value {
            Value::String(_) => Ok(()),
            _ => Err("a URI reference"),
        },
        "$anchor" | "$dynamicAnchor" if dialect.since(Draft::Draft2019_09) => match value {
            Value::String(name) if is_anchor(name) => Ok(()),
            Value::String(_) => Err("a name: a letter or `_`, then letters, digits, `-`, `_`, `.`"),
            _ => Err("a string"),
        },
        "$recursiveAnchor" if dialect.knows("$recursiveRef") => match value {
            Value::Bool(_) => Ok(()),
            _ => Err("true or false"),
        },
        "$vocabulary" if dialect.since(Draft::Draft2019_09) => match value {
            Value::Object(map) if map.iter().all(|entry| matches!(entry.1, Value::Bool(_))) => {
                Ok(())
            }
            _ => Err("an object of booleans by URI"),
        },
        _ => Ok(()),
    };
    is_right.map_err(|right| malformed(&at(), value, right))
}

fn schema(at: &dyn Fn() -> String, value: &Value) -> Result<(), Refusal> {
    match is_schema(value) {
        true => Ok(()),
        false => Err(malformed(&at(), value, SCHEMA)),
    }
}

fn schemas(at: &dyn Fn() -> String, value: &Value, right: &str) -> Result<(), Refusal> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let mut places = list.iter().enumerate();
            places.try_for_each(|(index, one)| schema(&|| format!("{}/{index}", at()), one))
        }
        _ => Err(malformed(&at(), value, right)),
    }
}

/// The entries of an object.
fn entries(
    at: &dyn Fn() -> String,
    value: &Value,
    right: &str,
    check: impl Fn(&dyn Fn() -> String, &Value) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let Value::Object(map) = value else {
        return Err(malformed(&at(), value, right));
    };
    let mut map = map.iter();
    map.try_for_each(|(name, one)| check(&|| format!("{}/{}", at(), escaped(name)), one))
}

/// A list of different strings.
fn names(at: &dyn Fn() -> String, value: &Value) -> Result<(), Refusal> {
    let Value::Array(list) = value else {
        return Err(malformed(&at(), value, NAMES));
    };
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, name) in list.iter().enumerate() {
        let at = || format!("{}/{index}", at());
        match name {
            Value::String(name) if !is_new(&mut seen, list, index, name) => {
                return Err(twice(&at()));
            }
            Value::String(_) => {}
            _ => return Err(malformed(&at(), name, "a name, which is a string")),
        }
    }
    Ok(())
}

/// Lists up to this length are compared in place.
const FEW: usize = 8;

/// Whether a name of a list is not among those before it.
fn is_new<'a>(seen: &mut HashSet<&'a str>, list: &[Value], at: usize, name: &'a str) -> bool {
    match list.len() <= FEW {
        true => !list[..at]
            .iter()
            .any(|one| matches!(one, Value::String(one) if one == name)),
        false => seen.insert(name),
    }
}

fn twice(at: &str) -> Refusal {
    refuse(at, "this is listed twice: leave one out")
}

fn types(value: &Value) -> Result<(), Refusal> {
    let right = "the name of a type (null, boolean, integer, number, string, array, object)";
    match value {
        Value::String(name) if is_type(name) => Ok(()),
        Value::Array(list) if !list.is_empty() => {
            for (index, name) in list.iter().enumerate() {
                let at = || format!("/type/{index}");
                match name {
                    Value::String(name) if is_type(name) => {}
                    _ => return Err(malformed(&at(), name, right)),
                }
                if list[..index].contains(name) {
                    return Err(twice(&at()));
                }
            }
            Ok(())
        }
        Value::Array(_) => Err(malformed(
            "/type",
            value,
            "the name of a type or a list of such",
        )),
        _ => Err(malformed("/type", value, right)),
    }
}

fn is_above_zero(text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or(text);
    !text.starts_with('-') && digits.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// As both drafts that know them have it.
fn is_anchor(name: &str) -> bool {
    let mut chars = name.chars();
    let first = chars.next();
    first.is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.' | ':'))
}
