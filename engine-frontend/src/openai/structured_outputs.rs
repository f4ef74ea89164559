//! Constraints as requests spell them: `structured_outputs`, `response_format`, the older `guided_*`
//! fields, and llama.cpp's `grammar` and `json_schema`.

mod nested_schemas;

use protocol::{
    PropertyOrder, Shared, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(super) use self::nested_schemas::warn_of_schema;
use self::nested_schemas::{warn_of_grammar, warn_of_tag};
use super::fields::{Fields, check_type, missing, object, parse};
use super::known_keys;
use super::warnings::Warnings;
use crate::error::ValidationError;
use crate::input_processor::ConstraintPart;
use crate::structured_outputs::BackendOptions;
use structured_output::did_you_mean;

/// The fields of `structured_outputs`.
const FIELDS: [&str; 14] = [
    "json",
    "json_object",
    "regex",
    "choice",
    "grammar",
    "structural_tag",
    "whitespace",
    "whitespace_pattern",
    "disable_any_whitespace",
    "disable_additional_properties",
    "property_order",
    "backend",
    "complete_within_max_tokens",
    "enable_in_reasoning",
];

const RESPONSE_FORMAT: &str = "response_format";
const RESPONSE_FORMAT_TYPES: &str = "text, json_object, json_schema or structural_tag";

/// A request's constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestConstraint {
    /// What it says.
    pub params: Shared<StructuredOutputsParams>,
    /// The field that has the constraint, as the request spells it.
    pub field: String,
    /// What it was put together from: where it is refused, the part at fault is named. Empty where it
    /// is one thing.
    pub parts: Vec<ConstraintPart>,
    /// The field that has the pattern for white space, as the request spells it.
    pub whitespace_field: Option<String>,
}

/// What a request says about a constraint that its other fields may put on the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintSettings {
    /// The field that says it.
    field: String,
    complete_within_max_tokens: Option<bool>,
    enable_in_reasoning: Option<bool>,
}

impl ConstraintSettings {
    /// Brings these into a constraint.
    pub(super) fn apply(&self, params: &mut StructuredOutputsParams) {
        if let Some(complete) = self.complete_within_max_tokens {
            params.complete_within_max_tokens = complete;
        }
        if let Some(enable) = self.enable_in_reasoning {
            params.enable_in_reasoning = enable;
        }
    }

    /// There is no constraint to bring these into.
    pub(super) fn without_constraint(&self) -> ValidationError {
        let message = "You must use one kind of structured outputs constraint but none are \
                       specified: json, regex, choice, grammar, json_object or structural_tag";
        ValidationError::about(&self.field, message)
    }
}

/// What a request's fields say about constraints.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Its constraint; `None` is free text.
    pub(super) constraint: Option<RequestConstraint>,
    /// Without a constraint of its own: settings for one that tools make.
    pub(super) settings: Option<ConstraintSettings>,
}

/// Everything that the fields of one request say, before it is put together.
#[derive(Debug, Default)]
struct Gathered {
    constraints: Vec<(String, StructuredOutputsConstraint)>,
    /// Whether `structured_outputs` or an option asks for a constraint: the name of the field.
    wants_constraint: Option<String>,
    whitespace: Option<(String, Whitespace)>,
    property_order: Option<(String, PropertyOrder)>,
    disable_additional_properties: Option<String>,
    complete_within_max_tokens: Option<bool>,
    enable_in_reasoning: Option<bool>,
    warnings: Warnings,
}

/// Takes all fields about constraints out of a request.
///
/// # Errors
/// The first field that is wrong, by name; more than one constraint, or options for JSON without any.
pub(super) fn take(fields: &mut Fields) -> Result<Taken, ValidationError> {
    let mut gathered = Gathered::default();
    if let Some(value) = fields.take_object("structured_outputs")? {
        gathered.wants_constraint = Some("structured_outputs".to_owned());
        for (name, value) in value {
            gathered.take_field("structured_outputs.", &name, value)?;
        }
    }
    if let Some(value) = fields.take_object(RESPONSE_FORMAT)? {
        gathered.take_response_format(value)?;
    }
    for (name, as_name) in [
        ("guided_json", "json"),
        ("guided_json_object", "json_object"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
        ("guided_whitespace_pattern", "whitespace_pattern"),
        ("guided_decoding_backend", "backend"),
        ("json_schema", "json"),
        ("grammar", "grammar"),
    ] {
        if let Some(value) = fields.take_value(name) {
            gathered.take_named(name.to_owned(), as_name, value)?;
        }
    }
    fields
        .warnings()
        .extend(std::mem::take(&mut gathered.warnings));
    gathered.finish()
}

impl Gathered {
    fn take_field(
        &mut self,
        prefix: &str,
        name: &str,
        value: Value,
    ) -> Result<(), ValidationError> {
        if value.is_null() {
            return Ok(());
        }
        self.take_named(format!("{prefix}{name}"), name, value)
    }

    /// Takes a value that means what `name` of `structured_outputs` does; `field` is its name in
    /// the request.
    fn take_named(
        &mut self,
        field: String,
        name: &str,
        value: Value,
    ) -> Result<(), ValidationError> {
        use StructuredOutputsConstraint as Constraint;
        let constraint = match name {
            "json" => {
                warn_of_schema(&mut self.warnings, &field, &value);
                Constraint::Json(schema_text(&field, value)?)
            }
            "json_object" => {
                self.require_true(&field, value)?;
                Constraint::JsonObject
            }
            "regex" => Constraint::Regex(parse(&field, value)?),
            "choice" => Constraint::Choice(parse(&field, value)?),
            "grammar" => {
                warn_of_grammar(&mut self.warnings, &field, &value);
                let grammar: String = parse(&field, value)?;
                if grammar.trim().is_empty() {
                    let message = format!("{field} is empty: give a grammar, or leave it out");
                    return Err(ValidationError::about(field, message));
                }
                Constraint::Grammar(grammar)
            }
            "structural_tag" => {
                warn_of_tag(&mut self.warnings, &field, &value);
                Constraint::StructuralTag(structural_tag_text(&field, value)?)
            }
            _ => return self.take_option(field, name, value),
        };
        self.constraints.push((field, constraint));
        Ok(())
    }

    fn require_true(&self, field: &str, value: Value) -> Result<(), ValidationError> {
        if parse(field, value)? {
            return Ok(());
        }
        let message = format!("{field} must be true, or left out");
        Err(ValidationError::field(field, false, message))
    }

    fn take_option(
        &mut self,
        field: String,
        name: &str,
        value: Value,
    ) -> Result<(), ValidationError> {
        match name {
            "whitespace" => {
                let whitespace = match value.as_str() {
                    Some("usual") => Whitespace::Usual,
                    Some("flexible") => Whitespace::Flexible,
                    Some("spaced") => Whitespace::Spaced,
                    Some("compact") => Whitespace::Compact,
                    _ => {
                        let message = format!(
                            "{field} must be \"usual\", \"flexible\", \"spaced\" or \"compact\""
                        );
                        return Err(ValidationError::field(field, &value, message));
                    }
                };
                self.set_whitespace(field, whitespace)
            }
            "whitespace_pattern" => {
                let pattern: String = parse(&field, value)?;
                let whitespace = match pattern.as_str() {
                    "" => Whitespace::Compact,
                    _ => Whitespace::Pattern(pattern),
                };
                self.set_whitespace(field, whitespace)
            }
            "disable_any_whitespace" => {
                if parse(&field, value)? {
                    self.set_whitespace(field, Whitespace::Compact)?;
                }
                Ok(())
            }
            "disable_additional_properties" => {
                if parse(&field, value)? {
                    self.disable_additional_properties = Some(field);
                }
                Ok(())
            }
            "property_order" => {
                let order = match value.as_str() {
                    Some("schema") => PropertyOrder::Schema,
                    Some("any") => PropertyOrder::Any,
                    _ => {
                        let message = format!("{field} must be \"schema\" or \"any\"");
                        return Err(ValidationError::field(field, &value, message));
                    }
                };
                self.property_order = Some((field, order));
                Ok(())
            }
            "backend" => {
                let name: String = parse(&field, value)?;
                let options = BackendOptions::parse(&field, &name)?;
                self.wants_constraint.get_or_insert_with(|| field.clone());
                if options.disable_any_whitespace {
                    self.set_whitespace(field.clone(), Whitespace::Compact)?;
                }
                if options.disable_additional_properties {
                    self.disable_additional_properties = Some(field);
                }
                Ok(())
            }
            "complete_within_max_tokens" => {
                set(&mut self.complete_within_max_tokens, &field, value)
            }
            "enable_in_reasoning" => set(&mut self.enable_in_reasoning, &field, value),
            _ => {
                let hint = match did_you_mean(name, FIELDS.iter().copied()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "remove it or correct its name".to_owned(),
                };
                let message = format!("unknown field {field}; {hint}");
                Err(ValidationError::about(field, message))
            }
        }
    }

    fn set_whitespace(
        &mut self,
        field: String,
        whitespace: Whitespace,
    ) -> Result<(), ValidationError> {
        if let Some((other, already)) = &self.whitespace
            && *already != whitespace
        {
            let message = format!("{field} and {other} ask for different white space");
            return Err(ValidationError::about(field, message));
        }
        self.wants_constraint.get_or_insert_with(|| field.clone());
        self.whitespace = Some((field, whitespace));
        Ok(())
    }

    fn take_response_format(
        &mut self,
        mut format: Map<String, Value>,
    ) -> Result<(), ValidationError> {
        use StructuredOutputsConstraint as Constraint;
        const SCHEMA: &str = "schema";
        const TYPES: [&str; 4] = ["text", "json_object", "json_schema", "structural_tag"];
        let kind = format.get("type").and_then(Value::as_str);
        let kind = kind.and_then(|kind| TYPES.into_iter().find(|known| *known == kind));
        let allowed: &[&str] = match kind {
            Some("text") => &["type"],
            // llama.cpp has the schema beside the type.
            Some("json_object") => &["type", SCHEMA],
            Some("json_schema") if format.contains_key(SCHEMA) => &["type", SCHEMA],
            Some("json_schema") => &["type", "json_schema"],
            Some("structural_tag") => {
                let field = RESPONSE_FORMAT.to_owned();
                let tag = Value::Object(format);
                warn_of_tag(&mut self.warnings, &field, &tag);
                let text = tag.to_string();
                self.constraints
                    .push((field, Constraint::StructuralTag(text)));
                return Ok(());
            }
            _ => {
                let message = format!("response_format.type must be {RESPONSE_FORMAT_TYPES}");
                let value = format.get("type").unwrap_or(&Value::Null);
                return Err(ValidationError::field(
                    "response_format.type",
                    value,
                    message,
                ));
            }
        };
        known_keys::check(RESPONSE_FORMAT, &format, allowed)?;
        match kind {
            Some("json_object" | "json_schema") if format.contains_key(SCHEMA) => {
                let schema = format.remove(SCHEMA).unwrap_or_default();
                let field = format!("{RESPONSE_FORMAT}.{SCHEMA}");
                self.take_named(field, "json", schema)
            }
            Some("json_object") => {
                let field = RESPONSE_FORMAT.to_owned();
                self.constraints.push((field, Constraint::JsonObject));
                Ok(())
            }
            Some("json_schema") => self.take_json_schema(format),
            _ => Ok(()),
        }
    }

    /// `{"name", "description", "schema", "strict"}`. `strict` changes nothing: every schema is
    /// enforced.
    fn take_json_schema(&mut self, mut format: Map<String, Value>) -> Result<(), ValidationError> {
        const FIELD: &str = "response_format.json_schema";
        let Some(value) = format
            .remove("json_schema")
            .filter(|value| !value.is_null())
        else {
            return Err(missing(FIELD));
        };
        let mut json_schema = object(FIELD, value)?;
        known_keys::check(
            FIELD,
            &json_schema,
            &["name", "description", "schema", "strict"],
        )?;
        json_schema.retain(|_, value| !value.is_null());
        check_type::<String>(FIELD, "name", &json_schema)?;
        check_type::<String>(FIELD, "description", &json_schema)?;
        check_type::<bool>(FIELD, "strict", &json_schema)?;
        let field = format!("{FIELD}.schema");
        let Some(schema) = json_schema.remove("schema") else {
            return Err(missing(&field));
        };
        warn_of_schema(&mut self.warnings, &field, &schema);
        let text = schema_text(&field, schema)?;
        self.constraints
            .push((field, StructuredOutputsConstraint::Json(text)));
        Ok(())
    }

    /// Puts the constraint and its options together.
    fn finish(mut self) -> Result<Taken, ValidationError> {
        if self.constraints.len() > 1 {
            let names: Vec<&str> = self.constraints.iter().map(|(f, _)| f.as_str()).collect();
            let message = format!(
                "You can only use one kind of structured outputs constraint but multiple are \
                 specified: {}",
                names.join(", ")
            );
            return Err(ValidationError::about(names[1], message));
        }
        let Some((field, constraint)) = self.constraints.pop() else {
            let Some(field) = self.wants_constraint else {
                return Ok(Taken::default());
            };
            let settings = ConstraintSettings {
                field,
                complete_within_max_tokens: self.complete_within_max_tokens,
                enable_in_reasoning: self.enable_in_reasoning,
            };
            let is_for_json = self.whitespace.is_some()
                || self.property_order.is_some()
                || self.disable_additional_properties.is_some();
            if is_for_json {
                return Err(settings.without_constraint());
            }
            return Ok(Taken {
                constraint: None,
                settings: Some(settings),
            });
        };
        let mut params = StructuredOutputsParams::new(constraint);
        let mut whitespace_field = None;
        if let Some((option, whitespace)) = self.whitespace {
            require(
                params.constraint.is_json(),
                &option,
                "a JSON constraint",
                &params,
            )?;
            params.whitespace = whitespace;
            whitespace_field = Some(option);
        }
        let is_schema = params.constraint.kind() == "json";
        if let Some((option, order)) = self.property_order {
            require(is_schema, &option, "a JSON schema", &params)?;
            params.property_order = order;
        }
        if let Some(option) = self.disable_additional_properties {
            require(is_schema, &option, "a JSON schema", &params)?;
            params.disable_additional_properties = true;
        }
        if let Some(complete) = self.complete_within_max_tokens {
            params.complete_within_max_tokens = complete;
        }
        if let Some(enable) = self.enable_in_reasoning {
            params.enable_in_reasoning = enable;
        }
        Ok(Taken {
            constraint: Some(RequestConstraint {
                params: params.into(),
                field,
                parts: Vec::new(),
                whitespace_field,
            }),
            settings: None,
        })
    }
}

/// An option that would be ignored is refused.
fn require(
    is_met: bool,
    option: &str,
    needs: &str,
    params: &StructuredOutputsParams,
) -> Result<(), ValidationError> {
    if is_met {
        return Ok(());
    }
    let kind = params.constraint.kind();
    let message = format!("{option} needs {needs}, and this request's constraint is {kind}");
    Err(ValidationError::about(option, message))
}

fn set<T: DeserializeOwned>(
    slot: &mut Option<T>,
    field: &str,
    value: Value,
) -> Result<(), ValidationError> {
    *slot = Some(parse(field, value)?);
    Ok(())
}

/// A schema's text: as it is, or of an object. An object's numbers have gone through 64 bits.
fn schema_text(field: &str, value: Value) -> Result<String, ValidationError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(_) | Value::Bool(_) => Ok(value.to_string()),
        other => {
            let message = format!("{field} must be a JSON schema: an object, or its text");
            Err(ValidationError::field(field, other, message))
        }
    }
}

fn structural_tag_text(field: &str, value: Value) -> Result<String, ValidationError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(_) => Ok(value.to_string()),
        other => {
            let message = format!("{field} must be a structural tag: an object, or its text");
            Err(ValidationError::field(field, other, message))
        }
    }
}

#[cfg(test)]
mod tests;
