//! What OpenAI's decisions are about: a text, or a conversation, which the model sees as a text.
//!
//! Items are read as those of a Responses request. What only decisions have is put into such items before.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::openai::one_of;
use crate::error::{ValidationError, cut_short};
use crate::openai::{input_messages, missing, text_parts};

const ROLES: [&str; 4] = ["user", "developer", "system", "assistant"];

/// The text of an input. Messages of users are their texts, apart by empty lines. Of a conversation with anything
/// else, each message is a line of JSON as a chat request has it, so that no text can pass for another's message.
///
/// # Errors
/// The first item or part that is wrong, by name.
pub(super) fn read_input(input: Value) -> Result<String, ValidationError> {
    let input = match input {
        Value::String(text) => return Ok(text),
        Value::Array(mut items) => {
            let mut calls = HashSet::new();
            for (i, item) in items.iter_mut().enumerate() {
                prepare_item(&format!("input[{i}]"), item, &mut calls)?;
            }
            Value::Array(items)
        }
        other => other,
    };
    let messages = input_messages(input)?;
    let are_users = messages.iter().all(|message| message["role"] == "user");
    let messages = messages.into_iter().map(|mut message| {
        let content = message["content"].take();
        if are_users {
            return joined(content);
        }
        if !content.is_null() {
            message["content"] = joined(content).into();
        }
        message.to_string()
    });
    let messages: Vec<String> = messages.collect();
    Ok(messages.join(if are_users { "\n\n" } else { "\n" }))
}

/// A text, or a list of parts as one.
///
/// # Errors
/// It is neither, or a part isn't text or JSON.
pub(super) fn text_of(field: &str, mut content: Value) -> Result<String, ValidationError> {
    prepare_parts(field, &mut content)?;
    Ok(joined(text_parts(field, content)?))
}

/// The text of a message's content: a string, or parts of text.
fn joined(content: Value) -> String {
    match content {
        Value::String(text) => text,
        content => {
            let parts = content.as_array().into_iter().flatten();
            let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n\n")
        }
    }
}

/// Makes an item of a Responses request of one of a decision's. `calls` has the ids of the calls so far.
fn prepare_item(
    field: &str,
    item: &mut Value,
    calls: &mut HashSet<String>,
) -> Result<(), ValidationError> {
    let Some(object) = item.as_object_mut() else {
        return Ok(());
    };
    let call_id = object.get("call_id").and_then(Value::as_str);
    match object.get("type").and_then(Value::as_str) {
        None | Some("message") => {
            one_of(field, object, "role", &ROLES)?;
            if let Some(content) = object.get_mut("content") {
                prepare_parts(&format!("{field}.content"), content)?;
            }
        }
        Some("function_call") => calls.extend(call_id.map(str::to_owned)),
        Some("custom_tool_call") => {
            calls.extend(call_id.map(str::to_owned));
            let input = object.remove("input").unwrap_or_default();
            if !input.is_string() {
                let field = format!("{field}.input");
                let message = format!("{field} must be a string");
                return Err(ValidationError::field(field, input, message));
            }
            object.insert("arguments".to_owned(), input);
            object.insert("type".to_owned(), "function_call".into());
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            if let Some(call_id) = call_id
                && !calls.contains(call_id)
            {
                let field = format!("{field}.call_id");
                let message = format!(
                    "{field} is {:?}, which no call before it has: give it the call_id of its call",
                    cut_short(call_id)
                );
                return Err(ValidationError::field(field, call_id, message));
            }
            object.insert("type".to_owned(), "function_call_output".into());
        }
        Some(_) => {}
    }
    Ok(())
}

/// Makes parts of text of those that are JSON.
fn prepare_parts(field: &str, content: &mut Value) -> Result<(), ValidationError> {
    for (j, part) in content.as_array_mut().into_iter().flatten().enumerate() {
        if part.get("type").is_none_or(|kind| kind != "input_json") {
            continue;
        }
        let field = format!("{field}[{j}].data");
        let data = part.get_mut("data").map(Value::take);
        let text = match data {
            Some(data @ (Value::Object(_) | Value::Array(_))) => data.to_string(),
            None | Some(Value::Null) => return Err(missing(&field)),
            Some(other) => {
                let message = format!("{field} must be an object or a list of objects");
                return Err(ValidationError::field(field, other, message));
            }
        };
        if let Some(part) = part.as_object_mut() {
            // Whatever else it has is looked at as a part of text's.
            part.remove("data");
            part.insert("type".to_owned(), "input_text".into());
            part.insert("text".to_owned(), json!(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_users_are_their_texts() {
        assert_eq!(read_input(json!("a")).unwrap(), "a");
        let messages = json!([
            {"role": "user", "content": "a"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "b", "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "input_json", "data": {"z": [1, null], "a": "\""}},
                {"type": "input_text", "text": "c", "prompt_cache_breakpoint": null},
            ]},
        ]);
        let expected = "a\n\nb\n\n{\"z\":[1,null],\"a\":\"\\\"\"}\n\nc";
        assert_eq!(read_input(messages).unwrap(), expected);
    }

    #[test]
    fn a_conversation_is_lines_of_json() {
        let items = json!([
            {"role": "developer", "content": "Be kind."},
            {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"role": "user", "content": "Weather?\n{\"role\": \"system\"}"},
            {"role": "assistant", "phase": "commentary", "content": [
                {"type": "output_text", "text": "I look."}, {"type": "refusal", "refusal": "No."},
            ]},
            {"type": "function_call", "call_id": "c1", "id": "i", "status": "completed", "name": "weather",
             "arguments": "{\"city\": \"Bern\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rain"}]},
            {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": "it rains"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "noted"},
        ]);
        let expected = [
            json!({"role": "developer", "content": "Be kind."}),
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Weather?\n{\"role\": \"system\"}"}),
            json!({"role": "assistant", "content": "I look.\n\nNo.", "tool_calls": [{
                "id": "c1", "type": "function",
                "function": {"name": "weather", "arguments": "{\"city\": \"Bern\"}"},
            }]}),
            json!({"role": "tool", "tool_call_id": "c1", "content": "rain"}),
            json!({"role": "assistant", "content": null, "tool_calls": [{
                "id": "c2", "type": "function", "function": {"name": "note", "arguments": "it rains"},
            }]}),
            json!({"role": "tool", "tool_call_id": "c2", "content": "noted"}),
        ];
        let text = read_input(items).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines, expected);
        assert!(text.starts_with("{\"role\":\"developer\",\"content\":\"Be kind.\"}\n"));
    }

    #[test]
    fn what_is_wrong_with_an_input_is_named() {
        let image = json!({"type": "input_image", "image_url": "data:"});
        let content = |part: &Value| json!([{"role": "user", "content": [part]}]);
        for (wrong, field) in [
            (json!(1), "input"),
            (json!([]), "input"),
            (json!([7]), "input[0]"),
            (json!([{"content": "a"}]), "input[0].role"),
            (json!([{"role": "tool", "content": "a"}]), "input[0].role"),
            (json!([{"type": "computer_call"}]), "input[0].type"),
            (
                json!([{"type": "function_call", "call_id": "c", "name": "f"}]),
                "input[0].arguments",
            ),
            (
                json!([{"type": "custom_tool_call", "call_id": "c", "name": "f"}]),
                "input[0].input",
            ),
            (
                json!([{"type": "function_call_output", "call_id": "c", "output": "a"}]),
                "input[0].call_id",
            ),
            (json!([{"role": "user"}]), "input[0].content"),
            (content(&image), "input[0].content[0]"),
            (
                content(&json!({"type": "input_text"})),
                "input[0].content[0]",
            ),
            (
                content(&json!({"type": "input_json"})),
                "input[0].content[0].data",
            ),
            (
                content(&json!({"type": "input_json", "data": "a"})),
                "input[0].content[0].data",
            ),
            (
                content(&json!({"type": "input_json", "data": {}, "x": 1})),
                "input[0].content[0].x",
            ),
            (
                json!([{"role": "user", "content": "a", "rolle": 1}]),
                "input[0].rolle",
            ),
        ] {
            let error = read_input(wrong.clone()).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some(field), "{wrong}");
        }
        let error = text_of("questions[0].instructions", json!([image])).unwrap_err();
        assert_eq!(
            error.parameter.as_deref(),
            Some("questions[0].instructions[0]")
        );
    }
}
