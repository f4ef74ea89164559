//! Functions that a model may be made to call: `tools` and `tool_choice`.
//!
//! Every choice but `none` is a constraint, a structural tag on the model's own format for calls
//! ([`ToolCallFormat`]): calls and nothing else for `required` and named functions, text in which a
//! call, once begun, is valid for `auto`.

use std::collections::HashSet;
use std::sync::Arc;

use protocol::{StructuredOutputsConstraint, StructuredOutputsParams};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::fields::{Fields, check_type};
use super::known_keys::{self, FUNCTION, TOOL};
use super::structured_outputs::{RequestConstraint, warn_of_schema};
use super::tool_choice::{TOOL_CHOICE, ToolChoice};
use super::tool_format::python_grammar;
use super::tool_format::{ArgumentStyle, CallableFunction, Calls, Openings, ToolCallFormat};
use crate::error::{ValidationError, cut_short};
use crate::input_processor::{ConstraintPart, num_bytes};
use crate::structured_outputs::tag_format;

/// About how many bytes of tools and constraint there are to read.
pub(super) fn bytes_to_read(
    tools: Option<&[Value]>,
    constraint: Option<&RequestConstraint>,
) -> usize {
    let sources = constraint.map_or(&[][..], |c| c.params.constraint.specification().1);
    let tools = tools.unwrap_or_default();
    tools.iter().map(num_bytes).sum::<usize>() + sources.iter().map(String::len).sum::<usize>()
}

/// Takes `tools`.
pub(super) fn take_tools(fields: &mut Fields) -> Result<Option<Vec<Value>>, ValidationError> {
    let Some(tools) = fields.take_list("tools")? else {
        return Ok(None);
    };
    if tools.is_empty() && fields.is_strict() {
        let message = "tools must be absent or hold at least one tool";
        return Err(ValidationError::field("tools", "[]", message));
    }
    if tools.is_empty() {
        return Ok(None);
    }
    check_number("tools", &tools)?;
    let mut known = HashSet::new();
    for (i, tool) in tools.iter().enumerate() {
        let named = tool.get("type") == Some(&Value::from("function")) && name_of(tool).is_some();
        if !named {
            return Err(ValidationError::field(
                format!("tools[{i}]"),
                tool,
                format!(
                    "tools[{i}] must look like \
                     {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}"
                ),
            ));
        }
        check_keys(i, tool)?;
        let name = name_of(tool).unwrap_or_default();
        check_function_name(&format!("tools[{i}].function.name"), name)?;
        if let Some(parameters) = tool.pointer("/function/parameters") {
            let field = format!("tools[{i}].function.parameters");
            warn_of_schema(fields.warnings(), &field, parameters);
        }
        if !known.insert(name) {
            let field = format!("tools[{i}].function.name");
            return Err(ValidationError::field(
                field.clone(),
                name,
                format!("{field} {name:?} is another tool's too; names must differ"),
            ));
        }
    }
    Ok(Some(tools))
}

/// Refuses unknown keys of a tool.
fn check_keys(i: usize, tool: &Value) -> Result<(), ValidationError> {
    if let Some(tool) = tool.as_object() {
        known_keys::check(&format!("tools[{i}]"), tool, TOOL)?;
    }
    if let Some(function) = tool.get("function").and_then(Value::as_object) {
        let field = format!("tools[{i}].function");
        known_keys::check(&field, function, FUNCTION)?;
        check_type::<String>(&field, "description", function)?;
        check_type::<bool>(&field, "strict", function)?;
    }
    Ok(())
}

/// Most tools of a request. Each is a schema, and all of them are one constraint.
const MAX_TOOLS: usize = 1024;

/// Refuses a list of more tools than a request may have, before anything is made of them.
pub(crate) fn check_number(field: &str, tools: &[Value]) -> Result<(), ValidationError> {
    if tools.len() <= MAX_TOOLS {
        return Ok(());
    }
    let message = format!("{field} must be at most {MAX_TOOLS}, got {}", tools.len());
    Err(ValidationError::field(field, tools.len(), message))
}

/// Longest name of a function: Anthropic's limit, which is twice OpenAI's. Servers of tools put their own name before it.
const MAX_NAME_CHARS: usize = 128;

/// Refuses what neither OpenAI's nor Anthropic's API would take for the name of a function, or of a namespace of functions.
pub(super) fn check_function_name(field: &str, name: &str) -> Result<(), ValidationError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let message = format!(
        "{field} must have 1 to {MAX_NAME_CHARS} letters of ASCII, digits, underscores and \
         hyphens, got {:?}",
        cut_short(name)
    );
    Err(ValidationError::field(field, name, message))
}

/// The name of a tool, or of a choice that looks like one.
pub(super) fn name_of(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

/// What a request's tools make of its answer.
#[derive(Debug)]
pub(super) struct ToolConstraint {
    /// What the answer must be.
    pub(super) constraint: RequestConstraint,
    /// Where its calls begin.
    pub(super) openings: Openings,
    /// True if it has what stands before the text of an answer without calls.
    pub(super) has_header: bool,
}

/// The constraint that `choice` puts on an answer. `format` is the model's own for calls, where it is
/// known; `answer` the request's other constraint; `parallel` says whether several calls will do.
///
/// # Errors
/// `auto` without a known format, calls that leave nothing to the other constraint, parameters that
/// are no object's schema.
pub(super) fn constraint(
    choice: &ToolChoice,
    tools: &[Value],
    parallel: bool,
    format: Option<Arc<ToolCallFormat>>,
    answer: Option<&RequestConstraint>,
) -> Result<Option<ToolConstraint>, ValidationError> {
    if *choice == ToolChoice::None {
        return Ok(None);
    }
    let fallback = || ToolCallFormat::fallback().filter(|_| choice.forces_a_call());
    let format = format.or_else(fallback).ok_or_else(unknown_format)?;
    if let Some(other) = answer.filter(|_| choice.forces_a_call()) {
        let message = format!(
            "tool_choice that forces a call leaves nothing to {}",
            other.field
        );
        return Err(ValidationError::field(TOOL_CHOICE, &other.field, message));
    }
    let mut called = Vec::with_capacity(tools.len());
    let mut parts = Vec::new();
    for (i, tool) in tools.iter().enumerate() {
        let name = name_of(tool).unwrap_or_default();
        if tool.is_null() || !choice.allows(name) {
            continue;
        }
        let (part, schema) = part(i, tool)?;
        let grammar = grammar(&part, Some(&format))?;
        parts.push(part);
        called.push((name, schema, grammar));
    }
    let functions = called
        .iter()
        .map(|(name, schema, grammar)| CallableFunction {
            name,
            schema,
            grammar: grammar.clone(),
        });
    let functions: Vec<CallableFunction<'_>> = functions.collect();
    let calls = match choice.forces_a_call() {
        true => Calls::Only,
        false => Calls::Possible,
    };
    let parallel = parallel && !matches!(choice, ToolChoice::Named(_));
    let answer_format = answer
        .map(|answer| tag_format(&answer.params, &answer.field, "beside tool_choice \"auto\""));
    let answer_format = answer_format.transpose()?;
    let tag = format.structural_tag(&functions, &calls, answer_format, parallel);
    let place = tag.place_of_functions();
    let tag = serde_json::to_string(&tag)
        .map_err(|error| ValidationError::about("tools", error.to_string()))?;
    for (i, part) in parts.iter_mut().enumerate() {
        part.place = format!("{place}/{i}{}", format.place_of_arguments());
    }
    let mut params = match answer {
        Some(answer) => {
            parts.push(ConstraintPart {
                field: answer.field.clone(),
                constraint: answer.params.constraint.clone(),
                place: format.place_of_answer().to_owned(),
            });
            StructuredOutputsParams::clone(&answer.params)
        }
        None => StructuredOutputsParams::new(StructuredOutputsConstraint::JsonObject),
    };
    params.constraint = StructuredOutputsConstraint::StructuralTag(tag);
    let functions = called.iter();
    let functions = functions.map(|(name, schema, _)| (*name, &**schema));
    let openings = Openings::new(Arc::clone(&format), functions);
    // What is wrong with it is the fault of its one part, or of any.
    let field = match parts.as_slice() {
        [part] => part.field.clone(),
        _ => "tools".to_owned(),
    };
    Ok(Some(ToolConstraint {
        has_header: !format.text.is_empty(),
        openings,
        constraint: RequestConstraint {
            params: params.into(),
            field,
            parts,
            whitespace_field: None,
        },
    }))
}

/// What tool number `i` is of the constraint, and its schema.
///
/// # Errors
/// Its parameters are no object's schema.
pub(super) fn part(
    i: usize,
    tool: &Value,
) -> Result<(ConstraintPart, Box<RawValue>), ValidationError> {
    let field = format!("tools[{i}].function.parameters");
    let schema = serde_json::value::to_raw_value(&Parameters::of(tool, &field)?);
    let schema = schema.map_err(|error| ValidationError::about(&field, error.to_string()))?;
    let part = ConstraintPart {
        field,
        constraint: StructuredOutputsConstraint::Json(schema.get().to_owned()),
        place: String::new(),
    };
    Ok((part, schema))
}

/// The grammar of a tool's arguments, where the model writes them as Python.
///
/// # Errors
/// Its schema says something that can't be enforced there.
pub(super) fn grammar(
    part: &ConstraintPart,
    format: Option<&Arc<ToolCallFormat>>,
) -> Result<Option<String>, ValidationError> {
    let StructuredOutputsConstraint::Json(schema) = &part.constraint else {
        return Ok(None);
    };
    if format.is_none_or(|format| format.arguments != ArgumentStyle::Python) {
        return Ok(None);
    }
    python_grammar::grammar(schema)
        .map(Some)
        .map_err(|problem| {
            let message = format!("{}: schema, {problem}", part.field);
            ValidationError::about(&part.field, message)
        })
}

fn unknown_format() -> ValidationError {
    ValidationError::field(
        TOOL_CHOICE,
        "auto",
        "tool_choice \"auto\", which holds where tools come without it, needs to know how the model \
         writes calls, and its chat template doesn't tell: start the server with --tool-call-parser, \
         or use \"required\", \"none\" or a named function",
    )
}

/// A function's schema: of an object, in any case. Without one, or where it lists no properties, it
/// takes nothing. As it is in the request, and what is added: a copy would take many times its bytes.
#[derive(Debug)]
struct Parameters<'a> {
    given: Option<&'a Map<String, Value>>,
    added: Vec<(&'static str, Value)>,
}

impl<'a> Parameters<'a> {
    fn of(tool: &'a Value, field: &str) -> Result<Self, ValidationError> {
        let map = match tool.pointer("/function/parameters") {
            None | Some(Value::Null) => {
                let added = vec![
                    ("type", "object".into()),
                    ("properties", json!({})),
                    ("additionalProperties", false.into()),
                ];
                return Ok(Self { given: None, added });
            }
            Some(Value::Object(map)) => map,
            Some(other) => {
                let message = format!("{field} must be a JSON schema, as an object");
                return Err(ValidationError::field(field, other, message));
            }
        };
        let mut added = Vec::new();
        match map.get("type") {
            None => added.push(("type", "object".into())),
            Some(Value::String(kind)) if kind == "object" => {}
            Some(other) => {
                let message =
                    format!("{field}.type must be \"object\": a call has arguments by name");
                let field = format!("{field}.type");
                return Err(ValidationError::field(field, other, message));
            }
        }
        let takes_nothing = map
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty);
        let says_more = |keyword: &String| !NO_PROPERTIES.contains(&keyword.as_str());
        if takes_nothing && !map.keys().any(says_more) {
            added.push(("additionalProperties", false.into()));
        }
        Ok(Self {
            given: Some(map),
            added,
        })
    }
}

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let given = self.given.into_iter().flatten();
        let given = given.map(|(keyword, value)| (keyword.as_str(), value));
        let added = self.added.iter().map(|(keyword, value)| (*keyword, value));
        serializer.collect_map(given.chain(added))
    }
}

/// The keywords of a schema by which clients say that a function takes nothing.
const NO_PROPERTIES: [&str; 6] = [
    "$schema",
    "description",
    "properties",
    "required",
    "title",
    "type",
];

#[cfg(test)]
mod tests;
