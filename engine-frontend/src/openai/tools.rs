//! Functions that a model may be made to call: `tools` and `tool_choice`.
//!
//! A call that is asked for is a constraint. Of a named function the whole answer is the arguments;
//! with `required` it is a list of `{"name": ..., "parameters": ...}`, as in vLLM. So a call that is
//! complete is valid. `auto`, where the model decides, needs a constraint that begins in the middle of
//! free text; it is refused until there is one.

use protocol::{PropertyOrder, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace};
use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::structured_outputs::RequestConstraint;
use crate::error::ValidationError;

const TOOL_CHOICE: &str = "tool_choice";

/// `tool_choice`: whether the answer is a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// No calls.
    None,
    /// One call or more.
    Required,
    /// One call of this function.
    Named(String),
}

/// Takes `tools`.
pub(super) fn take_tools(fields: &mut Fields) -> Result<Option<Vec<Value>>, ValidationError> {
    let Some(tools) = fields.take::<Vec<Value>>("tools")? else {
        return Ok(None);
    };
    if tools.is_empty() {
        return Err(ValidationError::field(
            "tools",
            "[]",
            "tools must be absent or hold at least one tool",
        ));
    }
    for (i, tool) in tools.iter().enumerate() {
        let named = tool.get("type") == Some(&Value::from("function"))
            && tool.pointer("/function/name").is_some_and(Value::is_string);
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
        if names(&tools)
            .take(i)
            .any(|name| Some(name) == name_of(tool))
        {
            return Err(ValidationError::field(
                format!("tools[{i}].function.name"),
                name_of(tool).unwrap_or_default(),
                "two tools have this name",
            ));
        }
    }
    Ok(Some(tools))
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name").and_then(Value::as_str)
}

fn names(tools: &[Value]) -> impl Iterator<Item = &str> {
    tools.iter().filter_map(name_of)
}

/// Takes `tool_choice`.
pub(super) fn take_tool_choice(
    fields: &mut Fields,
    tools: Option<&[Value]>,
) -> Result<ToolChoice, ValidationError> {
    let Some(choice) = fields.take::<Value>(TOOL_CHOICE)? else {
        return match tools {
            None => Ok(ToolChoice::None),
            Some(_) => Err(auto_is_not_available()),
        };
    };
    let wrong = |message: String| Err(ValidationError::field(TOOL_CHOICE, &choice, message));
    let tools = match (choice.as_str(), tools) {
        (Some("none"), _) => return Ok(ToolChoice::None),
        (_, None) => return wrong("tool_choice needs tools".to_owned()),
        (_, Some(tools)) => tools,
    };
    match choice.as_str() {
        Some("auto") => return Err(auto_is_not_available()),
        Some("required") => return Ok(ToolChoice::Required),
        _ => {}
    }
    let is_function = choice.get("type") == Some(&Value::from("function"));
    match name_of(&choice).filter(|_| is_function) {
        None => wrong(
            "tool_choice must be \"none\", \"required\" or {\"type\": \"function\", \"function\": \
             {\"name\": ...}}"
                .to_owned(),
        ),
        Some(name) if names(tools).all(|known| known != name) => {
            let known: Vec<&str> = names(tools).collect();
            wrong(format!(
                "tool_choice names {name:?}, which is none of the tools: {}",
                known.join(", ")
            ))
        }
        Some(name) => Ok(ToolChoice::Named(name.to_owned())),
    }
}

fn auto_is_not_available() -> ValidationError {
    ValidationError::field(
        TOOL_CHOICE,
        "auto",
        "tool_choice \"auto\", which holds where tools come without it, is not available yet: use \
         \"required\", \"none\" or a named function",
    )
}

/// The constraint that a choice is; `parallel` says whether several calls will do.
pub(super) fn constraint(
    choice: &ToolChoice,
    tools: &[Value],
    parallel: bool,
) -> Option<RequestConstraint> {
    let (schema, field) = match choice {
        ToolChoice::None => return None,
        ToolChoice::Named(name) => {
            let index = names(tools).position(|tool| tool == name)?;
            let field = format!("tools[{index}].function.parameters");
            (parameters(tools.get(index)?), field)
        }
        ToolChoice::Required => (list_schema(tools, parallel), "tools".to_owned()),
    };
    let json = StructuredOutputsConstraint::Json(schema.to_string());
    Some(RequestConstraint {
        params: StructuredOutputsParams {
            whitespace: Whitespace::Spaced,
            // The parser of calls wants the name first.
            property_order: PropertyOrder::Schema,
            ..StructuredOutputsParams::new(json)
        },
        field,
    })
}

/// A function's schema. Without one it takes nothing.
fn parameters(tool: &Value) -> Value {
    tool.pointer("/function/parameters")
        .filter(|schema| !schema.is_null())
        .cloned()
        .unwrap_or_else(
            || json!({"type": "object", "properties": {}, "additionalProperties": false}),
        )
}

/// A list of calls of any of the tools.
fn list_schema(tools: &[Value], parallel: bool) -> Value {
    let only = tools.len() == 1;
    let calls = tools.iter().enumerate().map(|(i, tool)| {
        let mut schema = parameters(tool);
        let place = if only {
            "#/items/properties/parameters".to_owned()
        } else {
            format!("#/items/anyOf/{i}/properties/parameters")
        };
        move_references(&mut schema, &place);
        json!({
            "type": "object",
            "properties": {"name": {"const": name_of(tool)}, "parameters": schema},
            "required": ["name", "parameters"],
            "additionalProperties": false,
        })
    });
    let mut calls: Vec<Value> = calls.collect();
    let items = match calls.pop() {
        Some(call) if only => call,
        last => {
            calls.extend(last);
            json!({"anyOf": calls})
        }
    };
    let mut schema = json!({"type": "array", "minItems": 1, "items": items});
    if !parallel && let Some(schema) = schema.as_object_mut() {
        schema.insert("maxItems".to_owned(), Value::from(1));
    }
    schema
}

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 15] = [
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
];
/// Keywords whose value is an object of schemas.
const MAPS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Lets a schema's references to itself mean the same at another place of a larger one.
fn move_references(schema: &mut Value, place: &str) {
    // Linear in the schema, without recursion.
    let mut open: Vec<&mut Value> = vec![schema];
    while let Some(schema) = open.pop() {
        let map: &mut Map<String, Value> = match schema {
            Value::Object(map) => map,
            Value::Array(schemas) => {
                open.extend(schemas);
                continue;
            }
            _ => continue,
        };
        for (keyword, value) in map {
            let keyword = keyword.as_str();
            if SCHEMAS.contains(&keyword) {
                open.push(value);
            } else if MAPS.contains(&keyword)
                && let Value::Object(schemas) = value
            {
                open.extend(schemas.values_mut());
            } else if keyword == "$ref"
                && let Value::String(target) = value
                && let Some(pointer) = target.strip_prefix('#')
                && (pointer.is_empty() || pointer.starts_with('/'))
            {
                *target = format!("{place}{pointer}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Value> {
        let tool = |name, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        vec![
            tool(
                "a",
                json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
            ),
            tool("b", Value::Null),
        ]
    }

    fn schema(choice: ToolChoice, tools: &[Value], parallel: bool) -> (Value, String) {
        let constraint = constraint(&choice, tools, parallel).unwrap();
        let StructuredOutputsConstraint::Json(schema) = constraint.params.constraint else {
            panic!("a schema");
        };
        (serde_json::from_str(&schema).unwrap(), constraint.field)
    }

    #[test]
    fn a_named_function_is_its_arguments() {
        let named = schema(ToolChoice::Named("a".to_owned()), &tools(), true);
        let wanted = tools()[0]["function"]["parameters"].clone();
        assert_eq!(named, (wanted, "tools[0].function.parameters".to_owned()));
        let (nothing, _) = schema(ToolChoice::Named("b".to_owned()), &tools(), true);
        assert_eq!(nothing["additionalProperties"], false);
        assert_eq!(constraint(&ToolChoice::None, &tools(), true), None);
    }

    #[test]
    fn a_required_call_is_one_of_the_tools() {
        let (list, field) = schema(ToolChoice::Required, &tools(), false);
        assert_eq!(
            (list["minItems"].as_u64(), list["maxItems"].as_u64()),
            (Some(1), Some(1))
        );
        let calls = list["items"]["anyOf"].as_array().unwrap();
        let names: Vec<_> = calls
            .iter()
            .map(|c| &c["properties"]["name"]["const"])
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(field, "tools");
        let (one, _) = schema(ToolChoice::Required, &tools()[..1], true);
        assert_eq!(one["items"]["properties"]["name"]["const"], "a");
        assert!(one.get("maxItems").is_none());
    }

    #[test]
    fn references_move_with_their_schema() {
        let mut schema = json!({
            "$defs": {"n": {"$ref": "#"}},
            "properties": {"$ref": {"$ref": "#/$defs/n"}, "x": {"$ref": "other.json#/a"}},
            "anyOf": [{"$ref": "#anchor"}, {"items": [{"$ref": "#/$defs/n"}]}],
            "const": {"$ref": "#/$defs/n"},
        });
        move_references(&mut schema, "#/p");
        assert_eq!(
            schema,
            json!({
                "$defs": {"n": {"$ref": "#/p"}},
                "properties": {"$ref": {"$ref": "#/p/$defs/n"}, "x": {"$ref": "other.json#/a"}},
                "anyOf": [{"$ref": "#anchor"}, {"items": [{"$ref": "#/p/$defs/n"}]}],
                "const": {"$ref": "#/$defs/n"},
            })
        );
    }
}
