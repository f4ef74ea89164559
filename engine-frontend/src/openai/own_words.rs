//! What another API calls the fields of chat requests, in whose words its own requests are read.

use super::error::ServingError;
use crate::error::{GenerateError, ValidationError};
use crate::input_processor::GenerateRequest;

/// A chat request's name of a field, and another API's.
pub(crate) type Renamed = (&'static str, &'static str);

/// What an API calls the fields of the chat request that one of its requests was made into.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OwnWords {
    /// Names of fields, or what they begin with. The first that fits counts.
    pub(crate) names: Vec<Renamed>,
    /// Names of a function's fields, which stand in the tool itself.
    pub(crate) of_function: &'static [Renamed],
    /// Where the chat request's tools stand, such as `tools[3]`; those behind the last have the same number.
    pub(crate) tool_places: Vec<String>,
}

/// A field by its name in a list, if the list has what it begins with.
fn renamed(names: &[Renamed], field: &str) -> Option<String> {
    names.iter().find_map(|(chat, own)| {
        let rest = field.strip_prefix(chat)?;
        let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
        is_whole.then(|| format!("{own}{rest}"))
    })
}

impl OwnWords {
    /// What the API calls a chat request's field.
    pub(crate) fn of_field(&self, field: &str) -> String {
        if let Some(own) = renamed(&self.names, field) {
            return own;
        }
        let tool = field
            .strip_prefix("tools[")
            .and_then(|rest| rest.split_once(']'));
        let Some((index, rest)) = tool else {
            return field.to_owned();
        };
        let place = index
            .parse()
            .ok()
            .and_then(|index: usize| self.tool_places.get(index).cloned())
            .unwrap_or_else(|| format!("tools[{index}]"));
        let rest = rest.strip_prefix(".function").unwrap_or(rest);
        let rest = renamed(self.of_function, rest).unwrap_or_else(|| rest.to_owned());
        format!("{place}{rest}")
    }

    /// An error about a chat request's field, by the name that it has here; `of_message` is where the fields of
    /// messages stand.
    pub(crate) fn of_error(
        &self,
        mut error: ValidationError,
        of_message: impl FnOnce(&str) -> Option<String>,
    ) -> ValidationError {
        if let Some(field) = &error.parameter {
            let own = of_message(field).unwrap_or_else(|| self.of_field(field));
            error.message = error.message.replace(field, &own);
            error.parameter = Some(own);
        }
        // Where a constraint stands, or could, may be told in an error about any field.
        for before in ["constraints go into ", "multiple are specified: "] {
            if let Some((start, names)) = error.message.split_once(before) {
                let names: Vec<String> =
                    names.split(", ").map(|name| self.of_field(name)).collect();
                error.message = format!("{start}{before}{}", names.join(", "));
            }
        }
        error
    }

    /// The same of an error that may be about a field.
    pub(crate) fn of_serving_error(&self, error: ServingError) -> ServingError {
        match error {
            ServingError::Generate(GenerateError::Validation(error)) => {
                self.of_error(error, |_| None).into()
            }
            other => other,
        }
    }

    /// Names a request's fields as they are called here.
    pub(crate) fn of_request(&self, request: &mut GenerateRequest) {
        let parts = request.constraint_parts.iter_mut();
        let fields = parts
            .map(|part| &mut part.field)
            .chain(&mut request.constraint_field)
            .chain(&mut request.whitespace_field)
            .chain(&mut request.max_tokens_field);
        for field in fields {
            *field = self.of_field(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::responses::OWN_NAMES;

    fn words(tool_places: &[&str]) -> OwnWords {
        OwnWords {
            names: OWN_NAMES.to_vec(),
            tool_places: tool_places
                .iter()
                .map(|place| (*place).to_owned())
                .collect(),
            ..OwnWords::default()
        }
    }

    #[test]
    fn fields_have_this_apis_names() {
        for (chat, own) in [
            ("response_format.json_schema.schema", "text.format.schema"),
            ("response_format.type", "text.format.type"),
            ("max_completion_tokens", "max_output_tokens"),
            ("max_tokens_x", "max_tokens_x"),
            ("messages", "input"),
            (
                "tools[2].function.parameters.type",
                "tools[2].parameters.type",
            ),
            ("tool_choice.allowed_tools.mode", "tool_choice.mode"),
            ("guided_json", "guided_json"),
            ("tools", "tools"),
        ] {
            assert_eq!(words(&[]).of_field(chat), own);
        }
        let parameters = "tools[1].function.parameters";
        assert_eq!(
            words(&["tools[0]", "tools[3]"]).of_field(parameters),
            "tools[3].parameters"
        );
        let of_function = OwnWords {
            of_function: &[(".parameters", ".input_schema")],
            ..OwnWords::default()
        };
        assert_eq!(of_function.of_field(parameters), "tools[1].input_schema");
    }

    #[test]
    fn constraints_are_sent_to_this_apis_place() {
        let body = serde_json::json!({"input": "a", "guided_foo": 1});
        let error = crate::openai::ResponsesRequest::from_json(body).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("guided_foo"));
        assert!(error.message.contains(" text.format, "), "{error}");
        assert!(!error.message.contains("response_format"), "{error}");
        let format = serde_json::json!({"format": {"type": "json_object"}});
        let body = serde_json::json!({"input": "a", "text": format, "guided_regex": "a"});
        let error = crate::openai::ResponsesRequest::from_json(body).unwrap_err();
        assert!(
            error.message.ends_with(": text.format, guided_regex"),
            "{error}"
        );
    }

    #[test]
    fn a_message_keeps_what_is_not_the_fields_name() {
        let message = "messages[0].content must be a string; see the messages";
        let error = ValidationError::field("messages[0].content", "[]", message);
        let error =
            words(&[]).of_error(error, |field| Some(field.replacen("messages", "input", 1)));
        assert_eq!(
            error.message,
            "input[0].content must be a string; see the messages"
        );
        assert_eq!(error.parameter.as_deref(), Some("input[0].content"));
    }

    #[test]
    fn an_error_names_the_item_that_has_it() {
        let refused = |body: serde_json::Value| {
            let error = crate::openai::ResponsesRequest::from_json(body).unwrap_err();
            let field = error.parameter.clone().unwrap_or_default();
            assert!(error.message.contains(&field), "{error}");
            field
        };
        let call = |arguments: &str| serde_json::json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments});
        let bogus = serde_json::json!({"role": "bogus", "content": "a"});
        let user = serde_json::json!({"role": "user", "content": "a"});
        let body = serde_json::json!({"instructions": "x", "input": [bogus.clone()]});
        assert_eq!(refused(body), "input[0].role");
        let body = serde_json::json!({"input": [user.clone(), call("{}"), call("[")]});
        assert_eq!(refused(body), "input[2].arguments");
        // Thinking and a second call make no message.
        let reasoning = serde_json::json!({"type": "reasoning", "summary": []});
        let input = serde_json::json!([user, reasoning, call("{}"), call("{}"), bogus]);
        let body = serde_json::json!({"instructions": "x", "input": input});
        assert_eq!(refused(body), "input[4].role");
    }
}
