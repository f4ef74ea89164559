//! `tools` and `tool_choice` as chat requests have them.

use serde_json::{Map, Value, json};

use crate::error::{ValidationError, cut_short_display};
use crate::openai::{Fields, Warnings, check_keys, check_number_of_tools, missing, object, parse};

/// Names of a function's fields in this API.
pub(super) const OF_FUNCTION: &[(&str, &str)] = &[(".parameters", ".input_schema")];

const TOOL: &[&str] = &[
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "cache_control",
    "allowed_callers",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
];

/// Keys of a tool that its function has in a chat request.
const SHARED: [&str; 4] = ["name", "description", "strict", "input_examples"];

const TOOL_CHOICE: &str = "tool_choice";

/// Takes both; returns true if the answer must be a call.
///
/// # Errors
/// A tool that the server would have to run, a key that is unknown or missing.
pub(super) fn take(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
) -> Result<bool, ValidationError> {
    if let Some(tools) = fields.take_list("tools")? {
        check_number_of_tools("tools", &tools)?;
        let functions = tools.into_iter().enumerate();
        let warnings = fields.warnings();
        let functions = functions.map(|(i, tool)| function(&format!("tools[{i}]"), tool, warnings));
        let functions: Vec<Value> = functions.collect::<Result<_, _>>()?;
        chat.insert("tools".to_owned(), functions.into());
    }
    let Some(choice) = fields.take_value(TOOL_CHOICE) else {
        return Ok(false);
    };
    let given = cut_short_display(&choice);
    let forces_a_call = take_choice(object(TOOL_CHOICE, choice)?, chat)?;
    let has_tools = chat.get("tools").and_then(Value::as_array);
    if forces_a_call && has_tools.is_none_or(Vec::is_empty) {
        let message = format!("{TOOL_CHOICE} needs tools");
        return Err(ValidationError::field(TOOL_CHOICE, given, message));
    }
    Ok(forces_a_call)
}

/// A tool as a chat request has it.
fn function(field: &str, tool: Value, warnings: &mut Warnings) -> Result<Value, ValidationError> {
    let mut tool = object(field, tool)?;
    tool.retain(|_, value| !value.is_null());
    if let Some(kind) = tool.get("type").filter(|kind| *kind != "custom") {
        let field = format!("{field}.type");
        let instead = "the server has no tools of its own; give a tool of the type \"custom\" with its \
                       input_schema, and run it yourself";
        return Err(ValidationError::not_supported(field, kind, instead));
    }
    check_keys(field, &tool, TOOL)?;
    for name in ["name", "input_schema"] {
        if !tool.contains_key(name) {
            return Err(missing(&format!("{field}.{name}")));
        }
    }
    if let Some(name) = tool.get("name").filter(|name| !name.is_string()) {
        let field = format!("{field}.name");
        let message = format!("{field} must be the tool's name, a string");
        return Err(ValidationError::field(field, name, message));
    }
    if let Some(callers) = tool.remove("allowed_callers")
        && !callers
            .as_array()
            .is_some_and(|names| names.contains(&json!("direct")))
    {
        let field = format!("{field}.allowed_callers");
        let message =
            format!("{field} must have \"direct\": no program of the server's calls tools");
        return Err(ValidationError::field(field, callers, message));
    }
    if tool.remove("defer_loading") == Some(json!(true)) {
        let message = " has no effect: the model is told of every tool";
        warnings.push(&format!("{field}.defer_loading"), message);
    }
    let mut function = Map::new();
    for name in SHARED {
        if let Some(value) = tool.remove(name) {
            function.insert(name.to_owned(), value);
        }
    }
    let schema = tool.remove("input_schema").unwrap_or_default();
    function.insert("parameters".to_owned(), schema);
    let mut tool = json!({"type": "function"});
    tool["function"] = function.into();
    Ok(tool)
}

fn take_choice(
    mut choice: Map<String, Value>,
    chat: &mut Map<String, Value>,
) -> Result<bool, ValidationError> {
    choice.retain(|_, value| !value.is_null());
    let kind = choice.remove("type").unwrap_or_default();
    let (known, chat_choice): (&[&str], _) = match kind.as_str() {
        Some("auto") => (&["disable_parallel_tool_use"], json!("auto")),
        Some("any") => (&["disable_parallel_tool_use"], json!("required")),
        Some("none") => (&[], json!("none")),
        Some("tool") => {
            let field = "tool_choice.name";
            let name = choice.remove("name").ok_or_else(|| missing(field))?;
            let name: String = parse(field, name)?;
            let named = json!({"type": "function", "function": {"name": name}});
            (&["name", "disable_parallel_tool_use"], named)
        }
        _ => {
            let field = "tool_choice.type";
            let message = format!("{field} must be auto, any, tool or none");
            return Err(ValidationError::field(field, kind, message));
        }
    };
    check_keys(TOOL_CHOICE, &choice, known)?;
    if let Some(disable) = choice.remove("disable_parallel_tool_use") {
        let disable: bool = parse("tool_choice.disable_parallel_tool_use", disable)?;
        chat.insert("parallel_tool_calls".to_owned(), (!disable).into());
    }
    let forces_a_call = chat_choice != "auto" && chat_choice != "none";
    chat.insert(TOOL_CHOICE.to_owned(), chat_choice);
    Ok(forces_a_call)
}
