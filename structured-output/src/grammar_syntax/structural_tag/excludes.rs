//! JSON whose strings and keys hold none of some marks: the field `excludes` of `json_schema`.
//!
//! What a value is to meet beside its schema is a schema too, which leads on to items and members. It is denied twice,
//! so that it evaluates none of these: `unevaluatedProperties` and its kin say what they said before.

use std::sync::Arc;

use super::fields::{Fields, refuse};
use super::{Parser, TagError};
use crate::json::Value;
use crate::regex::{self, Dialect};

/// The name of the definition, with a number behind it where the schema has one of that name.
const NAME: &str = "excludes";

impl Parser<'_> {
    /// A schema whose values also hold no mark in a string or a key, at any depth, however its characters are spelled.
    pub(super) fn without_marks(
        &self,
        schema: &Value,
        fields: &mut Fields<'_>,
    ) -> Result<Value, TagError> {
        let marks = fields.texts("excludes")?;
        let members = match schema {
            _ if marks.is_empty() => return Ok(schema.clone()),
            Value::Object(members) => members.to_vec(),
            Value::Bool(true) => Vec::new(),
            other => return Ok(other.clone()),
        };
        let at = fields.at("excludes");
        let pattern = any_of(&marks);
        if let Err(error) = regex::parse(&pattern, Dialect::Ecma, self.limits.regex) {
            return refuse(&at, format!("`excludes` is too much: {}", error.message));
        }
        let is_old = matches!(schema.get("$schema"), Some(Value::String(draft)) if draft.contains("draft-0"));
        if is_old && schema.get("$ref").is_some() {
            return refuse(
                &at,
                "`excludes` is not supported where `$ref` stands alone in the schema under draft 7 and earlier",
            );
        }
        Ok(with(members, &pattern, is_old))
    }
}

/// A pattern of ECMA-262 that is found where a mark is.
fn any_of(marks: &[Box<str>]) -> String {
    let mut pattern = String::new();
    for mark in marks {
        pattern.push_str(if pattern.is_empty() { "(?:" } else { "|" });
        for char in mark.chars() {
            if "^$\\.*+?()[]{}|/".contains(char) {
                pattern.push('\\');
            }
            pattern.push(char);
        }
    }
    pattern + ")"
}

fn object(members: Vec<(&str, Value)>) -> Value {
    let members = members.into_iter();
    Value::Object(Arc::new(
        members
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    ))
}

fn with(mut members: Vec<(String, Value)>, pattern: &str, is_old: bool) -> Value {
    let definitions = if is_old { "definitions" } else { "$defs" };
    let mut name = NAME.to_owned();
    let known = members.iter().find(|member| member.0 == definitions);
    for number in 1.. {
        match known {
            Some((_, known)) if known.get(&name).is_some() => name = format!("{NAME}{number}"),
            _ => break,
        }
    }
    let refer = object(vec![(
        "$ref",
        Value::String(format!("#/{definitions}/{name}")),
    )]);
    let not = |schema| object(vec![("not", schema)]);
    let found = object(vec![
        ("type", Value::String("string".to_owned())),
        ("pattern", Value::String(pattern.to_owned())),
    ]);
    let nothing = not(object(Vec::new()));
    let own = object(vec![
        ("not", found),
        ("items", refer.clone()),
        ("patternProperties", object(vec![(pattern, nothing)])),
        ("additionalProperties", refer.clone()),
    ]);
    let mut add = |name: &str, more: &dyn Fn(&Value) -> Option<Value>, alone: Value| match members
        .iter_mut()
        .find(|member| member.0 == name)
    {
        // What is malformed stays, to be refused.
        Some((_, value)) => *value = more(value).unwrap_or(value.clone()),
        None => members.push((name.to_owned(), alone)),
    };
    let all = not(not(refer));
    let appended = |value: &Value| match value {
        Value::Array(list) => Some(Value::Array(Arc::new(
            [list.as_slice(), std::slice::from_ref(&all)].concat(),
        ))),
        _ => None,
    };
    add(
        "allOf",
        &appended,
        Value::Array(Arc::new(vec![all.clone()])),
    );
    let defined = |value: &Value| match value {
        Value::Object(list) => {
            let definition = (name.clone(), own.clone());
            Some(Value::Object(Arc::new(
                [list.as_slice(), &[definition]].concat(),
            )))
        }
        _ => None,
    };
    add(
        definitions,
        &defined,
        object(vec![(name.as_str(), own.clone())]),
    );
    Value::Object(Arc::new(members))
}
