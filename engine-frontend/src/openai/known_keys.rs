//! Keys of the objects inside a request: messages, content parts, calls, tools, functions, items.
//!
//! An unknown key is refused, since a mistyped one would lose what it holds. Clients send messages back as
//! some server gave them, so the lists have what other servers' answers carry as well. A key whose value
//! is `null` counts as absent.

use serde_json::{Map, Value};

use crate::error::{ValidationError, cut_short};
use structured_output::did_you_mean;

/// A message of a chat request.
pub(super) const MESSAGE: &[&str] = &[
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "refusal",
    "annotations",
    "audio",
    "function_call",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "provider_specific_fields",
    "extra_content",
    "cache_control",
    "citations",
    "images",
    "parsed",
    "id",
    "index",
    "status",
    "timestamp",
];

/// A part of a message's content.
pub(super) const CONTENT_PART: &[&str] = &[
    "type",
    "text",
    "annotations",
    "cache_control",
    "citations",
    "id",
    "logprobs",
    "prompt_cache_breakpoint",
    "provider_specific_fields",
    "refusal",
];

/// A call in a message.
pub(super) const TOOL_CALL: &[&str] = &[
    "id",
    "type",
    "function",
    "index",
    "cache_control",
    "caller",
    "extra_content",
    "provider_specific_fields",
    "thought_signature",
];

/// The function of a call.
pub(super) const CALLED_FUNCTION: &[&str] = &[
    "name",
    "arguments",
    "parsed_arguments",
    "provider_specific_fields",
    "thought_signature",
];

/// A tool of a chat request.
pub(super) const TOOL: &[&str] = &[
    "type",
    "function",
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "input_examples",
    "strict",
];

/// A function of a tool. `return` is of schemas that transformers makes of Python's functions.
pub(super) const FUNCTION: &[&str] = &[
    "name",
    "description",
    "parameters",
    "strict",
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "input_examples",
    "return",
];

/// A search tool of OpenAI's servers.
pub(super) const SEARCH_TOOL: &[&str] = &[
    "type",
    "filters",
    "search_context_size",
    "user_location",
    "external_web_access",
    "search_content_types",
    "return_token_budget",
    "image_settings",
];

/// A message in a Responses request's input.
pub(super) const MESSAGE_ITEM: &[&str] = &[
    "type", "role", "content", "id", "status", "phase", "end_turn", "name",
];

/// A call in a Responses request's input.
pub(super) const CALL_ITEM: &[&str] = &[
    "type",
    "id",
    "call_id",
    "name",
    "arguments",
    "status",
    "caller",
    "created_by",
    "namespace",
    "parsed_arguments",
];

/// A call's output in a Responses request's input.
pub(super) const CALL_OUTPUT_ITEM: &[&str] = &[
    "type",
    "id",
    "call_id",
    "output",
    "status",
    "caller",
    "created_by",
    "name",
];

/// A choice of one tool, as chat requests spell it; the tools of a choice of some.
pub(super) const TOOL_CHOICE_OF_ONE: &[&str] = &["type", "function"];

/// The same, as Responses requests spell it.
pub(super) const RESPONSES_TOOL_CHOICE_OF_ONE: &[&str] = &["type", "name", "namespace"];

/// A group of functions in a Responses request.
pub(super) const NAMESPACE_TOOL: &[&str] = &["type", "name", "description", "tools"];

/// Thinking in a Responses request's input.
pub(super) const REASONING_ITEM: &[&str] = &[
    "type",
    "id",
    "summary",
    "content",
    "encrypted_content",
    "status",
];

/// Refuses a key that is not known. `field` is the object's name in the request.
pub(crate) fn check(
    field: &str,
    object: &Map<String, Value>,
    known: &[&str],
) -> Result<(), ValidationError> {
    let is_unknown =
        |(name, value): &(&String, &Value)| !known.contains(&name.as_str()) && !value.is_null();
    match object.iter().find(is_unknown) {
        Some((name, _)) => Err(unknown(field, name, known)),
        None => Ok(()),
    }
}

/// The error about an unknown key of `field`.
pub(crate) fn unknown(field: &str, name: &str, known: &[&str]) -> ValidationError {
    let name = cut_short(name);
    let hint = match name.as_str() {
        _ if let Some(meant) = did_you_mean(&name, known.iter().copied()) => {
            format!("did you mean `{meant}`?")
        }
        "prefix" | "partial" if known.contains(&"role") => {
            "use continue_final_message for an answer that goes on".to_owned()
        }
        _ if known.contains(&"function") && FUNCTION.contains(&name.as_str()) => {
            format!("it belongs into {field}.function")
        }
        _ => "remove it or correct its name".to_owned(),
    };
    let field = format!("{field}.{name}");
    let message = format!("unknown field {field}; {hint}");
    ValidationError::about(field, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::openai::{ChatCompletionRequest, ResponsesRequest};

    fn chat(body: Value) -> Option<(String, String)> {
        let error = ChatCompletionRequest::from_json(body).err()?;
        Some((error.parameter.unwrap(), error.message))
    }

    fn refused(at: &str, hint: &str) -> Option<(String, String)> {
        Some((at.to_owned(), format!("unknown field {at}; {hint}")))
    }

    #[test]
    fn an_unknown_key_is_named_wherever_it_is() {
        let user = json!({"role": "user", "content": "a"});
        let message = |message: Value| chat(json!({"messages": [message]}));
        let tool = |tool: Value| chat(json!({"messages": [user], "tools": [tool]}));
        let remove = "remove it or correct its name";
        assert_eq!(
            tool(json!({"type": "function", "function": {"name": "f", "paramters": {}}})),
            refused("tools[0].function.paramters", "did you mean `parameters`?")
        );
        assert_eq!(
            tool(json!({"type": "function", "function": {"name": "f"}, "parameters": {}})),
            refused("tools[0].parameters", "it belongs into tools[0].function")
        );
        assert_eq!(
            message(json!({"role": "user", "content": "a", "colour": 1})),
            refused("messages[0].colour", remove)
        );
        assert_eq!(
            message(json!({"role": "assistant", "content": "a", "prefix": true})),
            refused(
                "messages[0].prefix",
                "use continue_final_message for an answer that goes on"
            )
        );
        assert_eq!(
            message(
                json!({"role": "user", "content": [{"type": "text", "text": "a", "txt": "b"}]})
            ),
            refused("messages[0].content[0].txt", "did you mean `text`?")
        );
        let call = |call: Value| message(json!({"role": "assistant", "tool_calls": [call]}));
        assert_eq!(
            call(json!({"function": {"name": "f", "argument": "{}"}})),
            refused(
                "messages[0].tool_calls[0].function.argument",
                "did you mean `arguments`?"
            )
        );
        assert_eq!(
            call(json!({"function": {"name": "f"}, "parameters": {}})),
            refused(
                "messages[0].tool_calls[0].parameters",
                "it belongs into messages[0].tool_calls[0].function"
            )
        );
        let format = json!({"type": "json_schema", "json_schema": {"schema": {}, "schem": {}}});
        assert_eq!(
            chat(json!({"messages": [user], "response_format": format})),
            refused(
                "response_format.json_schema.schem",
                "did you mean `schema`?"
            )
        );
    }

    #[test]
    fn responses_have_names_of_their_own() {
        let refused = |body: Value| {
            let error = ResponsesRequest::from_json(body).unwrap_err();
            let field = error.parameter.unwrap();
            assert!(error.message.contains(&field), "{}", error.message);
            assert!(!error.message.contains(".function."), "{}", error.message);
            field
        };
        let tool = |tool: Value| refused(json!({"input": "a", "tools": [tool]}));
        let f = json!({"type": "function", "name": "f", "paramters": {}});
        assert_eq!(tool(f), "tools[0].paramters");
        let chats = json!({"type": "function", "function": {"name": "f"}});
        assert_eq!(tool(chats), "tools[0].function");
        let item = |item: Value| refused(json!({"input": [item]}));
        assert_eq!(
            item(json!({"role": "user", "content": "a", "contnt": "b"})),
            "input[0].contnt"
        );
        let part = json!({"type": "input_text", "text": "a", "txt": "b"});
        assert_eq!(
            item(json!({"role": "user", "content": [part]})),
            "input[0].content[0].txt"
        );
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}",
                          "args": {}});
        assert_eq!(item(call), "input[0].args");
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "a", "x": 1});
        assert_eq!(item(output), "input[0].x");
        let summary = json!([{"type": "summary_text", "text": "a", "txt": "b"}]);
        assert_eq!(
            item(json!({"type": "reasoning", "summary": summary})),
            "input[0].summary[0].txt"
        );
        assert_eq!(
            item(json!({"type": "reasoning", "text": "a"})),
            "input[0].text"
        );
    }

    #[test]
    fn what_servers_answer_may_be_sent_back() {
        let answer = json!({
            "role": "assistant", "content": "a", "refusal": null, "annotations": [], "audio": null,
            "function_call": null, "reasoning": "r", "reasoning_content": "r", "images": [],
            "thinking_blocks": [], "provider_specific_fields": {"refusal": null},
            "some_new_key": null,
            "tool_calls": [{"id": "c", "type": "function", "index": 0,
                            "function": {"name": "f", "arguments": "{}"}}],
        });
        let result = json!({"role": "tool", "tool_call_id": "c", "name": "f", "content": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        ]});
        let tool = json!({"type": "function", "cache_control": {"type": "ephemeral"},
                          "function": {"name": "f", "strict": true, "defer_loading": false}});
        let body = json!({"messages": [answer, result], "tools": [tool]});
        assert_eq!(chat(body), None);
    }
}
