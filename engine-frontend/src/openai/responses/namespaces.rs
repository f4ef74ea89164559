//! Functions in namespaces. A tool of the type `namespace` holds functions, as Codex groups those of an MCP
//! server. Chat requests have no groups: there a function's name begins with that of its namespace.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::ValidationError;
use crate::openai::known_keys::{self, NAMESPACE_TOOL};
use crate::openai::tools::check_function_name;

/// Stands between the two names in a chat request.
const SEPARATOR: &str = "__";

/// The functions of a request that stand in namespaces: by their names in the chat request, the namespace and the
/// name in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Namespaces(HashMap<String, (String, String)>);

impl Namespaces {
    /// The fields of a call of a chat request's function: its name here, and its namespace if it has one.
    pub(super) fn call_fields(&self, chat_name: &str) -> Map<String, Value> {
        let fields = match self.0.get(chat_name) {
            None => vec![("name", chat_name)],
            Some((namespace, name)) => vec![("name", name.as_str()), ("namespace", namespace)],
        };
        let fields = fields.into_iter();
        fields
            .map(|(field, value)| (field.to_owned(), value.into()))
            .collect()
    }

    /// Takes the functions of a namespace apart, each with its place in the request. `chat_tool` makes one a chat
    /// request's. The first is told the description of the namespace too, which the model would not see else.
    ///
    /// # Errors
    /// A key is unknown or has another type, or a function is none.
    pub(super) fn take(
        &mut self,
        field: &str,
        tool: Value,
        chat_tool: impl Fn(&str, Value) -> Result<Value, ValidationError>,
    ) -> Result<Vec<(String, Value)>, ValidationError> {
        let mut tool = match tool {
            Value::Object(tool) => tool,
            _ => Map::new(),
        };
        known_keys::check(field, &tool, NAMESPACE_TOOL)?;
        let at_name = format!("{field}.name");
        let Some(namespace) = tool.get("name").and_then(Value::as_str) else {
            let message = format!("{at_name} must be the namespace's name, a string");
            return Err(ValidationError::about(at_name, message));
        };
        check_function_name(&at_name, namespace)?;
        let namespace = namespace.to_owned();
        let Some(Value::Array(functions)) = tool.remove("tools") else {
            let field = format!("{field}.tools");
            return Err(ValidationError::about(
                &*field,
                format!("{field} must be a list of functions"),
            ));
        };
        let mut description = tool.get("description").and_then(Value::as_str);
        let mut taken = Vec::with_capacity(functions.len());
        for (i, function) in functions.into_iter().enumerate() {
            let place = format!("{field}.tools[{i}]");
            let mut tool = chat_tool(&place, function)?;
            if let Some(Value::Object(function)) = tool.get_mut("function") {
                let name = function
                    .get("name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let (chat_name, name) = (chat_name(&namespace, name), name.to_owned());
                function.insert("name".to_owned(), chat_name.as_str().into());
                if let Some(of_all) = description.take() {
                    let own = function.get("description").and_then(Value::as_str);
                    let text = own.map_or(of_all.to_owned(), |own| format!("{of_all}\n\n{own}"));
                    function.insert("description".to_owned(), text.into());
                }
                self.0.insert(chat_name, (namespace.clone(), name));
            }
            taken.push((place, tool));
        }
        Ok(taken)
    }
}

/// The name of a namespace's function in a chat request.
fn chat_name(namespace: &str, name: &str) -> String {
    format!("{namespace}{SEPARATOR}{name}")
}

/// The name in a chat request of a function that an item or a choice names, by itself or with a namespace.
pub(super) fn named_in(namespace: Option<&Value>, name: &str) -> String {
    match namespace.and_then(Value::as_str) {
        Some(namespace) => chat_name(namespace, name),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::openai::ResponsesRequest;

    #[test]
    fn functions_of_a_namespace_are_functions() {
        let function = |name: &str| json!({"type": "function", "name": name, "description": "b"});
        let namespace = json!({
            "type": "namespace", "name": "ns", "description": "a", "tools": [function("f"), function("g")],
        });
        let body = json!({
            "input": [
                {"role": "user", "content": "c"},
                {"type": "function_call", "call_id": "1", "namespace": "ns", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "d"},
            ],
            "tools": [function("f"), namespace],
            "tool_choice": {"type": "function", "name": "g", "namespace": "ns"},
        });
        let request = ResponsesRequest::from_json(body).unwrap();
        assert_eq!(
            request.words.tool_places,
            ["tools[0]", "tools[1].tools[0]", "tools[1].tools[1]"]
        );
        let tools = request.chat.tools.unwrap();
        let functions: Vec<_> = tools.iter().map(|tool| &tool["function"]).collect();
        assert_eq!(functions[0]["name"], "f");
        assert_eq!(functions[1]["name"], "ns__f");
        // The first tells what all are for.
        assert_eq!(functions[1]["description"], "a\n\nb");
        assert_eq!(functions[2]["description"], "b");
        let call = &request.chat.messages[1]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "ns__f");
        let named = request.namespaces.call_fields("ns__g");
        assert_eq!(json!(named), json!({"name": "g", "namespace": "ns"}));
        assert_eq!(
            json!(request.namespaces.call_fields("f")),
            json!({"name": "f"})
        );
    }

    #[test]
    fn errors_name_the_function_in_its_namespace() {
        let refused = |namespace| {
            let body = json!({"input": "a", "tools": [namespace]});
            ResponsesRequest::from_json(body)
                .unwrap_err()
                .parameter
                .unwrap()
        };
        let with = |function| json!({"type": "namespace", "name": "ns", "tools": [function]});
        for (namespace, at) in [
            (json!({"type": "namespace", "tools": []}), "tools[0].name"),
            (
                json!({"type": "namespace", "name": "a b", "tools": []}),
                "tools[0].name",
            ),
            (json!({"type": "namespace", "name": "a"}), "tools[0].tools"),
            (
                json!({"type": "namespace", "name": "a", "tools": [], "x": 1}),
                "tools[0].x",
            ),
            (
                with(json!({"type": "custom", "name": "f"})),
                "tools[0].tools[0].type",
            ),
            (with(json!({"type": "function"})), "tools[0].tools[0].name"),
            (
                with(json!({"type": "function", "name": "f", "paramters": {}})),
                "tools[0].tools[0].paramters",
            ),
        ] {
            assert_eq!(refused(namespace), at);
        }
    }
}
