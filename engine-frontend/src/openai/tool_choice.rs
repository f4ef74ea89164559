//! `tool_choice`: whether the answer is a call, and of which functions.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::fields::Fields;
use super::known_keys::{self, FUNCTION, TOOL_CHOICE_OF_ONE};
use super::tools::name_of;
use crate::error::{ValidationError, cut_short};

pub(super) const TOOL_CHOICE: &str = "tool_choice";

/// The type of a choice between some of the tools.
pub(super) const ALLOWED_TOOLS: &str = "allowed_tools";

const CHOICES: &str = "tool_choice must be \"none\", \"auto\", \"required\", \
                       {\"type\": \"function\", \"function\": {\"name\": ...}} or \
                       {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": ..., \
                       \"tools\": [...]}}";

/// Whether the answer is a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// No calls.
    None,
    /// Calls where the model wants to.
    Auto,
    /// One call or more.
    Required,
    /// One call of this function.
    Named(String),
    /// Calls of some of the tools: as for `Auto`, or as for `Required`.
    Allowed {
        /// Their names, at least one.
        names: HashSet<String>,
        /// Whether there must be a call.
        required: bool,
    },
}

impl ToolChoice {
    /// Whether the answer is calls and nothing else.
    pub(super) fn forces_a_call(&self) -> bool {
        match self {
            Self::None | Self::Auto => false,
            Self::Required | Self::Named(_) => true,
            Self::Allowed { required, .. } => *required,
        }
    }

    /// Whether the function with this name may be called.
    pub(super) fn allows(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Auto | Self::Required => true,
            Self::Named(named) => named == name,
            Self::Allowed { names, .. } => names.contains(name),
        }
    }
}

/// Takes `tool_choice`. Linear in the tools and in the choice.
///
/// # Errors
/// It is none of the choices, or names a function that is none of the tools.
pub(super) fn take_tool_choice(
    fields: &mut Fields,
    tools: Option<&[Value]>,
) -> Result<ToolChoice, ValidationError> {
    let Some(choice) = fields.take_value(TOOL_CHOICE) else {
        return match tools {
            None => Ok(ToolChoice::None),
            Some(_) => Ok(ToolChoice::Auto),
        };
    };
    let wrong = |message: &str| Err(ValidationError::field(TOOL_CHOICE, &choice, message));
    let tools = match (choice.as_str(), tools) {
        (Some("none"), _) => return Ok(ToolChoice::None),
        (Some("auto"), None) if !fields.is_strict() => return Ok(ToolChoice::None),
        (_, None) => return wrong("tool_choice needs tools"),
        (_, Some(tools)) => tools,
    };
    match choice.as_str() {
        Some("auto") => return Ok(ToolChoice::Auto),
        Some("required") => return Ok(ToolChoice::Required),
        _ => {}
    }
    let known: HashSet<&str> = tools.iter().filter_map(name_of).collect();
    match choice.get("type").and_then(Value::as_str) {
        Some("function") => match name_of(&choice) {
            Some(name) => {
                check_keys(TOOL_CHOICE, &choice)?;
                check_known(TOOL_CHOICE, name, &known, tools)?;
                Ok(ToolChoice::Named(name.to_owned()))
            }
            None => wrong(CHOICES),
        },
        Some(ALLOWED_TOOLS) => {
            if let Value::Object(choice) = &choice {
                known_keys::check(TOOL_CHOICE, choice, &["type", ALLOWED_TOOLS])?;
            }
            allowed_tools(choice.get(ALLOWED_TOOLS), &known, tools)
        }
        _ => wrong(CHOICES),
    }
}

/// Refuses what is unknown in the choice of a function. A whole tool may stand there.
fn check_keys(field: &str, choice: &Value) -> Result<(), ValidationError> {
    if let Value::Object(choice) = choice {
        known_keys::check(field, choice, TOOL_CHOICE_OF_ONE)?;
        if let Some(Value::Object(function)) = choice.get("function") {
            known_keys::check(&format!("{field}.function"), function, FUNCTION)?;
        }
    }
    Ok(())
}

/// `{"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name": ...}}]}`
fn allowed_tools(
    given: Option<&Value>,
    known: &HashSet<&str>,
    tools: &[Value],
) -> Result<ToolChoice, ValidationError> {
    const FIELD: &str = "tool_choice.allowed_tools";
    let empty = Map::new();
    let allowed = given.and_then(Value::as_object).unwrap_or(&empty);
    known_keys::check(FIELD, allowed, &["mode", "tools"])?;
    let required = match allowed.get("mode").and_then(Value::as_str) {
        Some("auto") => false,
        Some("required") => true,
        _ => {
            let field = format!("{FIELD}.mode");
            let value = allowed.get("mode").unwrap_or(&Value::Null);
            let message = format!("{field} must be \"auto\" or \"required\"");
            return Err(ValidationError::field(field, value, message));
        }
    };
    let field = format!("{FIELD}.tools");
    let list = allowed.get("tools").and_then(Value::as_array);
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        let value = allowed.get("tools").unwrap_or(&Value::Null);
        let message = format!("{field} must list at least one of the tools");
        return Err(ValidationError::field(field, value, message));
    };
    let mut names = HashSet::with_capacity(list.len());
    for (i, tool) in list.iter().enumerate() {
        let field = format!("{field}[{i}]");
        let is_function = tool.get("type").is_some_and(|kind| kind == "function");
        let Some(name) = name_of(tool).filter(|_| is_function) else {
            let message = format!(
                "{field} must look like {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}"
            );
            return Err(ValidationError::field(field, tool, message));
        };
        check_keys(&field, tool)?;
        check_known(&field, name, known, tools)?;
        names.insert(name.to_owned());
    }
    Ok(ToolChoice::Allowed { names, required })
}

/// Whether a name is one of the tools'.
fn check_known(
    field: &str,
    name: &str,
    known: &HashSet<&str>,
    tools: &[Value],
) -> Result<(), ValidationError> {
    if known.contains(name) {
        return Ok(());
    }
    let all: Vec<&str> = tools.iter().filter_map(name_of).collect();
    let message = format!(
        "{field} names {:?}, which is none of the tools: {}",
        cut_short(name),
        cut_short(&all.join(", "))
    );
    Err(ValidationError::field(field, name, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn choose(choice: Value) -> Result<ToolChoice, ValidationError> {
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        let tools = [tool("f"), tool("g"), tool("h")];
        let mut fields = Fields::new(json!({"tool_choice": choice}))?;
        take_tool_choice(&mut fields, Some(&tools))
    }

    fn allowed(mode: &str, names: &[&str]) -> Value {
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
        let tools: Vec<Value> = names.iter().map(tool).collect();
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    }

    #[test]
    fn some_of_the_tools_are_allowed() {
        for (mode, required) in [("auto", false), ("required", true)] {
            let choice = choose(allowed(mode, &["f", "h"])).unwrap();
            assert_eq!(choice.forces_a_call(), required);
            let may: Vec<bool> = ["f", "g", "h"].map(|name| choice.allows(name)).into();
            assert_eq!(may, [true, false, true]);
        }
    }

    #[test]
    fn what_is_wrong_with_a_choice_is_named() {
        let field = "tool_choice.allowed_tools";
        for (choice, parameter, says) in [
            (
                allowed("never", &["f"]),
                format!("{field}.mode"),
                "\"auto\" or \"required\"",
            ),
            (
                allowed("auto", &[]),
                format!("{field}.tools"),
                "at least one",
            ),
            (
                allowed("auto", &["f", "x"]),
                format!("{field}.tools[1]"),
                "names \"x\", which is none of the tools: f, g, h",
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["f"]}}),
                format!("{field}.tools[0]"),
                "must look like",
            ),
            (
                json!({"type": "allowed_tools"}),
                format!("{field}.mode"),
                "must be",
            ),
            (
                json!({"type": "function", "function": {"name": "x"}}),
                TOOL_CHOICE.to_owned(),
                "names \"x\"",
            ),
            (
                json!({"type": "custom"}),
                TOOL_CHOICE.to_owned(),
                "allowed_tools",
            ),
            (json!("some"), TOOL_CHOICE.to_owned(), "must be"),
            (
                json!({"type": "function", "function": {"name": "f"}, "nme": 1}),
                format!("{TOOL_CHOICE}.nme"),
                "unknown field",
            ),
            (
                json!({"type": "function", "function": {"name": "f", "x": 1}}),
                format!("{TOOL_CHOICE}.function.x"),
                "unknown field",
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tool": []}}),
                format!("{field}.tool"),
                "did you mean `tools`?",
            ),
        ] {
            let error = choose(choice).unwrap_err();
            assert_eq!(error.parameter, Some(parameter));
            assert!(error.message.contains(says), "{error}");
        }
    }
}
