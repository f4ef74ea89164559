//! Reading a request's JSON object field by field, so that every error names its field.

use std::borrow::Borrow;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ignored_fields::{self, Api};
use super::warnings::Warnings;
use crate::error::ValidationError;
use crate::json_problem::{json_problem, number_text};
use structured_output::did_you_mean;

/// Names under which clients of other servers send a constraint on the output.
const CONSTRAINT_FIELDS: &[&str] = &[
    "ebnf",
    "lark",
    "regex",
    "json",
    "choice",
    "structural_tag",
    "format",
    "schema",
];

/// The fields of a request that nobody has read yet.
#[derive(Debug)]
pub(crate) struct Fields {
    map: Map<String, Value>,
    api: Api,
    is_strict: bool,
    warnings: Warnings,
    /// The names that were asked for.
    known: Vec<&'static str>,
}

impl Fields {
    /// The fields of a body, less those that are `null`.
    pub(crate) fn new(body: Value) -> Result<Self, ValidationError> {
        Self::of(Api::Completions, body, false)
    }

    /// The fields of a request to `api`. If `is_strict`, what has no effect is refused.
    pub(crate) fn of(api: Api, body: Value, is_strict: bool) -> Result<Self, ValidationError> {
        match body {
            Value::Object(mut map) => {
                map.retain(|_, value| !value.is_null());
                Ok(Self {
                    map,
                    api,
                    is_strict,
                    warnings: Warnings::default(),
                    known: Vec::new(),
                })
            }
            other => Err(ValidationError::field(
                "body",
                &other,
                "the request's body must be a JSON object",
            )),
        }
    }

    /// True if the server refuses what has no effect.
    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Warnings about the fields that were taken.
    pub(crate) fn warnings(&mut self) -> &mut Warnings {
        &mut self.warnings
    }

    /// Takes a field.
    pub(crate) fn take<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, ValidationError> {
        let value = self.take_value(name);
        value.map(|value| parse(name, value)).transpose()
    }

    /// Takes a field as it is.
    pub(crate) fn take_value(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.map.remove(name)
    }

    /// Takes a field that is an object, without a copy of what is in it.
    pub(crate) fn take_object(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Map<String, Value>>, ValidationError> {
        let value = self.take_value(name);
        value.map(|value| object(name, value)).transpose()
    }

    /// Takes a field that is a list, without a copy of what is in it.
    pub(crate) fn take_list(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Vec<Value>>, ValidationError> {
        let value = self.take_value(name);
        value.map(|value| list(name, value)).transpose()
    }

    /// Takes a list that must be there, without a copy of what is in it.
    pub(crate) fn require_list(
        &mut self,
        name: &'static str,
    ) -> Result<Vec<Value>, ValidationError> {
        self.take_list(name)?.ok_or_else(|| missing(name))
    }

    /// Takes an object that must be there, without a copy of what is in it.
    pub(crate) fn require_object(
        &mut self,
        name: &'static str,
    ) -> Result<Map<String, Value>, ValidationError> {
        self.take_object(name)?.ok_or_else(|| missing(name))
    }

    /// Takes a field that must be there, as it is.
    pub(crate) fn require_value(&mut self, name: &'static str) -> Result<Value, ValidationError> {
        self.take_value(name).ok_or_else(|| missing(name))
    }

    /// Whether a field is there that nobody has taken yet, and is `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.map.get(name) == Some(&Value::Bool(true))
    }

    /// Whether a field is there that nobody has taken yet, and is `false`.
    pub(crate) fn is_false(&self, name: &str) -> bool {
        self.map.get(name) == Some(&Value::Bool(false))
    }

    /// Whether a field is there that nobody has taken yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Takes a field that must be there.
    pub(crate) fn require<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
    ) -> Result<T, ValidationError> {
        self.take(name)?.ok_or_else(|| missing(name))
    }

    /// Takes a field that this engine doesn't honour; it may only say `off`. `instead` is for whoever
    /// wants it all the same.
    pub(crate) fn refuse_unless(
        &mut self,
        name: &str,
        instead: &str,
        off: impl FnOnce(&Value) -> bool,
    ) -> Result<(), ValidationError> {
        match self.map.remove(name) {
            Some(value) if !off(&value) => {
                Err(ValidationError::not_supported(name, &value, instead))
            }
            _ => Ok(()),
        }
    }

    /// Takes the fields that have no effect.
    pub(crate) fn take_ignored(&mut self) -> Result<(), ValidationError> {
        ignored_fields::take(self, self.api)
    }

    /// Ends the reading, and leaves what is left to another reader.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.map
    }

    /// The fields of a chat request: `chat`, and what is left of these. Warnings and known names stay.
    pub(crate) fn into_chat(mut self, chat: Map<String, Value>) -> Self {
        self.map.extend(chat);
        self.api = Api::Chat;
        self
    }

    /// Ends the reading: what is left is unknown, and refused. Returns the warnings.
    pub(crate) fn finish(mut self) -> Result<Warnings, ValidationError> {
        self.take_ignored()?;
        let Some((name, value)) = self.map.into_iter().next() else {
            return Ok(self.warnings);
        };
        if name.starts_with("guided_") || CONSTRAINT_FIELDS.contains(&name.as_str()) {
            let message = format!(
                "{name} looks like a constraint on the output, and is no field of this API: \
                 constraints go into response_format, structured_outputs, grammar, json_schema, \
                 guided_json, guided_json_object, guided_regex, guided_choice or guided_grammar"
            );
            return Err(ValidationError::field(name, &value, message));
        }
        let hint = match did_you_mean(&name, self.known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "remove it or correct its name".to_owned(),
        };
        let message = format!("unknown field {name}; {hint}");
        Err(ValidationError::about(name, message))
    }
}

/// Checks the type of an object's field that says nothing else here; absent and null are right.
pub(crate) fn check_type<T: DeserializeOwned>(
    field: &str,
    name: &str,
    map: &Map<String, Value>,
) -> Result<(), ValidationError> {
    match map.get(name) {
        Some(value) if !value.is_null() => {
            parse::<T>(&format!("{field}.{name}"), value).map(|_| ())
        }
        _ => Ok(()),
    }
}

/// A field that must be there is not.
pub(crate) fn missing(name: &str) -> ValidationError {
    ValidationError::about(name, format!("{name} is missing"))
}

/// The members of an object, without a copy of them; the error names the field.
pub(crate) fn object(name: &str, value: Value) -> Result<Map<String, Value>, ValidationError> {
    match value {
        Value::Object(members) => Ok(members),
        other => parse(name, other),
    }
}

/// The elements of a list, without a copy of them; the error names the field.
pub(crate) fn list(name: &str, value: Value) -> Result<Vec<Value>, ValidationError> {
    match value {
        Value::Array(elements) => Ok(elements),
        other => parse(name, other),
    }
}

/// Turns JSON into a type; the error names the field.
pub(crate) fn parse<T: DeserializeOwned>(
    name: &str,
    value: impl Borrow<Value>,
) -> Result<T, ValidationError> {
    let value = value.borrow();
    T::deserialize(value).map_err(|error| {
        let message = format!("{name}: {}", json_problem(&error));
        ValidationError::field(name, number_text(value), message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn left(body: Value) -> ValidationError {
        Fields::new(body).unwrap().finish().unwrap_err()
    }

    #[test]
    fn unknown_fields_are_named() {
        let error = left(json!({"temprature": 1}));
        assert_eq!(error.parameter.as_deref(), Some("temprature"));
        assert!(error.message.contains("unknown field temprature"));
        let mut fields = Fields::new(json!({"temprature": 1, "x": 1})).unwrap();
        assert_eq!(fields.take::<f64>("temperature").unwrap(), None);
        let error = fields.finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown field temprature; did you mean `temperature`?"
        );
        let error = left(json!({"nn": 1}));
        assert_eq!(
            error.to_string(),
            "unknown field nn; remove it or correct its name"
        );
        let error = left(json!({"guided_yaml": "x"}));
        assert!(error.message.contains("no field of this API"), "{error}");
    }

    #[test]
    fn null_and_inert_fields_pass() {
        let fields = Fields::new(json!({"guided_json": null, "user": "u"})).unwrap();
        assert!(fields.finish().is_ok());
    }

    #[test]
    fn type_errors_name_the_field_and_the_value() {
        let mut fields = Fields::new(json!({"n": "two"})).unwrap();
        let error = fields.take::<u32>("n").unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("n"));
        assert_eq!(error.value.as_deref(), Some("\"two\""));
        assert_eq!(
            error.message,
            "n: expected a whole number from 0 to 4294967295, got \"two\""
        );
    }

    #[test]
    fn inert_fields_have_types() {
        let error = left(json!({"service_tier": 3}));
        assert_eq!(error.parameter.as_deref(), Some("service_tier"));
        for metadata in [json!("a"), json!(["a"]), json!(1)] {
            let error = left(json!({"metadata": metadata}));
            assert_eq!(error.parameter.as_deref(), Some("metadata"));
        }
        let error = left(json!({"metadata": {"a": "b", "c": 1}}));
        assert_eq!(error.parameter.as_deref(), Some("metadata.c"));
        assert_eq!(error.value.as_deref(), Some("1"));
        let fields = Fields::new(json!({"service_tier": "auto", "metadata": {"a": "b"}})).unwrap();
        assert!(fields.finish().is_ok());
    }

    #[test]
    fn a_body_is_an_object() {
        assert!(Fields::new(json!([1])).is_err());
    }
}
