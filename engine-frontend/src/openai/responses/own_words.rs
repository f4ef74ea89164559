//! What this API calls the fields of chat requests, in whose words its own are read.

use crate::error::{GenerateError, ValidationError};
use crate::input_processor::GenerateRequest;
use crate::openai::error::ServingError;

/// Names of a chat request's fields, or what they begin with, and this API's. The first that fits counts.
const NAMES: [(&str, &str); 7] = [
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("messages", "input"),
    ("reasoning_effort", "reasoning.effort"),
    ("tool_choice.allowed_tools", "tool_choice"),
];

/// What this API calls a chat request's field. `tool_places` is where the chat request's tools stand here, such as
/// `tools[3]`.
pub(super) fn of_field(field: &str, tool_places: &[String]) -> String {
    for (chat, own) in NAMES {
        let Some(rest) = field.strip_prefix(chat) else {
            continue;
        };
        if rest.is_empty() || rest.starts_with(['.', '[']) {
            return format!("{own}{rest}");
        }
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
        .and_then(|index: usize| tool_places.get(index));
    // Functions stand in the tool itself.
    let rest = rest.strip_prefix(".function").unwrap_or(rest);
    match place {
        Some(place) => format!("{place}{rest}"),
        None => format!("tools[{index}]{rest}"),
    }
}

/// An error about a chat request's field, by the name that it has here; `of_message` is where the fields of
/// messages stand.
pub(super) fn of_error(
    mut error: ValidationError,
    tool_places: &[String],
    of_message: impl FnOnce(&str) -> Option<String>,
) -> ValidationError {
    if let Some(field) = &error.parameter {
        let own = of_message(field).unwrap_or_else(|| of_field(field, tool_places));
        error.message = error.message.replace(field, &own);
        error.parameter = Some(own);
    }
    // Where a constraint stands, or could, may be told in an error about any field.
    for before in ["constraints go into ", "multiple are specified: "] {
        if let Some((start, names)) = error.message.split_once(before) {
            let names: Vec<String> = names
                .split(", ")
                .map(|name| of_field(name, tool_places))
                .collect();
            error.message = format!("{start}{before}{}", names.join(", "));
        }
    }
    error
}

/// The same of an error that may be about a field.
pub(super) fn of_serving_error(error: ServingError, tool_places: &[String]) -> ServingError {
    match error {
        ServingError::Generate(GenerateError::Validation(error)) => {
            of_error(error, tool_places, |_| None).into()
        }
        other => other,
    }
}

/// Names a request's fields as they are called here.
pub(super) fn of_request(request: &mut GenerateRequest, tool_places: &[String]) {
    let parts = request.constraint_parts.iter_mut();
    let fields = parts
        .map(|part| &mut part.field)
        .chain(&mut request.constraint_field)
        .chain(&mut request.whitespace_field)
        .chain(&mut request.max_tokens_field);
    for field in fields {
        *field = of_field(field, tool_places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(
                of_field(
                    chat,
                    &["tools[0]", "tools[1]", "tools[2]"].map(str::to_owned)
                ),
                own
            );
        }
        let parameters = "tools[1].function.parameters";
        assert_eq!(
            of_field(parameters, &["tools[0]", "tools[3]"].map(str::to_owned)),
            "tools[3].parameters"
        );
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
        let error = of_error(error, &[], |field| {
            Some(field.replacen("messages", "input", 1))
        });
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
