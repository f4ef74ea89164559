//! What `/v1/responses` takes: the stateless part of the API, in the words of a chat request.

use serde_json::{Map, Value, json};

use super::input::InputMessages;
use super::own_words;
use crate::error::ValidationError;
use crate::openai::chat::ChatCompletionRequest;
use crate::openai::fields::Fields;
use crate::openai::request::take_max_tokens;
use crate::openai::tool_choice::ALLOWED_TOOLS;

/// What `include` may ask for.
const LOGPROBS: &str = "message.output_text.logprobs";

/// What is said of a chat request's field for which this API's answer has no place.
const NO_PLACE: &str = "this API has no place for it; /v1/chat/completions has";

/// Fields of chat requests that this API spells in another way, or has no place for in its answer.
const OF_CHAT: [(&str, &str); 19] = [
    ("messages", "use input"),
    ("response_format", "use text.format"),
    ("max_tokens", "use max_output_tokens"),
    ("n_predict", "use max_output_tokens"),
    ("max_completion_tokens", "use max_output_tokens"),
    (
        "logprobs",
        "use include with message.output_text.logprobs, and top_logprobs",
    ),
    ("n", NO_PLACE),
    ("functions", "use tools"),
    ("function_call", "use tool_choice"),
    ("reasoning_effort", "use reasoning.effort"),
    ("include_reasoning", NO_PLACE),
    ("modalities", "the engine reads and writes text alone"),
    ("echo", "/v1/completions has it"),
    ("prompt_logprobs", NO_PLACE),
    ("return_token_ids", NO_PLACE),
    ("continue_final_message", NO_PLACE),
    ("add_generation_prompt", NO_PLACE),
    ("best_of", "send the request several times"),
    ("audio", "the engine reads and writes text alone"),
];

/// A request for `/v1/responses`.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesRequest {
    /// What it asks for, as a conversation.
    pub chat: ChatCompletionRequest,
    /// What the answer repeats of the request.
    pub(super) told: Map<String, Value>,
}

impl ResponsesRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        let mut fields = Fields::new(body)?;
        refuse_unsupported(&mut fields)?;
        let mut told = Map::new();
        let mut chat = Map::new();
        let instructions: Option<String> = fields.take("instructions")?;
        let input = fields.require("input")?;
        let mut input = InputMessages::new(instructions.as_deref(), input)?;
        let messages = std::mem::take(&mut input.messages);
        chat.insert("messages".to_owned(), messages.into());
        told.insert("instructions".to_owned(), json!(instructions));
        let text: Map<String, Value> = fields.take("text")?.unwrap_or_default();
        told.insert("text".to_owned(), take_text(text, &mut chat)?);
        let tools: Vec<Value> = fields.take("tools")?.unwrap_or_default();
        if !tools.is_empty() {
            let tools = tools.iter().enumerate().map(|(i, tool)| chat_tool(i, tool));
            chat.insert("tools".to_owned(), tools.collect::<Result<Value, _>>()?);
        }
        told.insert("tools".to_owned(), tools.into());
        let choice: Option<Value> = fields.take("tool_choice")?;
        if let Some(choice) = &choice {
            // Without tools there is nothing to choose; clients send "auto" all the same.
            if chat.contains_key("tools") || choice != "auto" {
                chat.insert("tool_choice".to_owned(), chat_tool_choice(choice)?);
            }
        }
        if choice.as_ref().is_some_and(forces_a_call) {
            // The format is of messages, and the answer has none.
            let kind = chat.get("response_format").and_then(|f| f.get("type"));
            if kind.is_some_and(|kind| kind == "json_schema" || kind == "json_object") {
                chat.remove("response_format");
            }
        }
        told.insert("tool_choice".to_owned(), choice.unwrap_or(json!("auto")));
        let parallel = fields.take::<bool>("parallel_tool_calls")?.unwrap_or(true);
        chat.insert("parallel_tool_calls".to_owned(), parallel.into());
        told.insert("parallel_tool_calls".to_owned(), parallel.into());
        let max_output_tokens = take_max_tokens(&mut fields, "max_output_tokens")?;
        chat.insert("max_completion_tokens".to_owned(), json!(max_output_tokens));
        told.insert("max_output_tokens".to_owned(), json!(max_output_tokens));
        told.insert(
            "reasoning".to_owned(),
            take_reasoning(&mut fields, &mut chat)?,
        );
        take_logprobs(&mut fields, &mut chat, &mut told)?;
        told.insert("metadata".to_owned(), fields.take_metadata()?.into());
        if let Some(user) = fields.take::<String>("user")? {
            told.insert("user".to_owned(), user.into());
        }
        chat.extend(fields.rest());
        let chat = ChatCompletionRequest::from_json(chat.into())
            .map_err(|error| own_words::of_error(error, |field| input.own_field(field)))?;
        Ok(Self { chat, told })
    }
}

/// Fields that only pass where they ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    const KEEPS_NOTHING: &str = "the server keeps nothing; bring the whole conversation as input";
    for (name, instead) in OF_CHAT {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    let is_off = |value: &Value| value == false;
    fields.refuse_unless("store", KEEPS_NOTHING, is_off)?;
    let instead = "the server keeps nothing; with stream the answer comes as it is made";
    fields.refuse_unless("background", instead, is_off)?;
    let instead = "\"disabled\" is; truncate_prompt_tokens cuts a prompt's tokens";
    fields.refuse_unless("truncation", instead, |v| v == "disabled")?;
    let instead = "shorten the input yourself";
    fields.refuse_unless("context_management", instead, |v| v == &json!([]))?;
    let instead = "streams bear no obfuscation, and always end with the usage; leave it out";
    fields.refuse_unless("stream_options", instead, |v| {
        v == &json!({}) || v.get("include_obfuscation") == Some(&Value::Bool(false))
    })?;
    for (name, instead) in [
        ("previous_response_id", KEEPS_NOTHING),
        ("conversation", KEEPS_NOTHING),
        (
            "prompt",
            "there are no templates; use instructions and input",
        ),
        (
            "max_tool_calls",
            "the server calls no tools itself; parallel_tool_calls: false allows one call",
        ),
        ("moderation", "the server asks no other service"),
        ("image", "the engine reads and writes text alone"),
    ] {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    Ok(())
}

/// `text`: the answer's format. Returns what the answer tells of it.
fn take_text(
    mut text: Map<String, Value>,
    chat: &mut Map<String, Value>,
) -> Result<Value, ValidationError> {
    text.retain(|_, value| !value.is_null());
    let format = text.remove("format").unwrap_or(json!({"type": "text"}));
    let verbosity = text.remove("verbosity");
    if let Some(other) = verbosity.filter(|verbosity| verbosity != "medium") {
        let instead = "say in the instructions how long an answer is to be";
        return Err(ValidationError::not_supported(
            "text.verbosity",
            &other,
            instead,
        ));
    }
    if let Some((name, value)) = text.into_iter().next() {
        let name = format!("text.{name}");
        let message = format!("unknown field {name}; remove it or correct its name");
        return Err(ValidationError::field(name, value, message));
    }
    let mut chat_format = format.clone();
    if let Some(map) = chat_format.as_object_mut()
        && map.get("type") == Some(&json!("json_schema"))
    {
        map.remove("type");
        chat_format = json!({"type": "json_schema", "json_schema": chat_format});
    }
    chat.insert("response_format".to_owned(), chat_format);
    Ok(json!({"format": format}))
}

/// `reasoning`: only how much.
fn take_reasoning(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
) -> Result<Value, ValidationError> {
    let given: Map<String, Value> = fields.take("reasoning")?.unwrap_or_default();
    for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
        if name != "effort" {
            let field = format!("reasoning.{name}");
            let instead = "reasoning has effort alone; thinking comes as it is";
            return Err(ValidationError::not_supported(field, value, instead));
        }
        chat.insert("reasoning_effort".to_owned(), value.clone());
    }
    let effort = given.get("effort").cloned().unwrap_or_default();
    Ok(json!({"effort": effort, "summary": null}))
}

/// `include` and `top_logprobs`.
fn take_logprobs(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    told: &mut Map<String, Value>,
) -> Result<(), ValidationError> {
    let include: Vec<String> = fields.take("include")?.unwrap_or_default();
    if let Some(other) = include.iter().find(|name| *name != LOGPROBS) {
        let instead = format!("only {LOGPROBS} is");
        return Err(ValidationError::not_supported("include", other, &instead));
    }
    let top_logprobs: Option<i32> = fields.take("top_logprobs")?;
    if !include.is_empty() || top_logprobs.is_some_and(|top| top != 0) {
        chat.insert("logprobs".to_owned(), true.into());
        chat.insert("top_logprobs".to_owned(), json!(top_logprobs.unwrap_or(0)));
    }
    told.insert("top_logprobs".to_owned(), json!(top_logprobs.unwrap_or(0)));
    Ok(())
}

/// A function as chat requests spell it.
fn chat_tool(i: usize, tool: &Value) -> Result<Value, ValidationError> {
    if tool.get("type") != Some(&json!("function")) {
        let field = format!("tools[{i}].type");
        let value = tool.get("type").cloned().unwrap_or_default();
        let message = format!("{field} must be \"function\": the server has no tools of its own");
        return Err(ValidationError::field(field, value, message));
    }
    let mut function = tool.as_object().cloned().unwrap_or_default();
    function.remove("type");
    function.retain(|_, value| !value.is_null());
    Ok(json!({"type": "function", "function": function}))
}

/// A choice as chat requests spell it.
fn chat_tool_choice(choice: &Value) -> Result<Value, ValidationError> {
    let kind = choice.get("type").and_then(Value::as_str);
    match (choice, kind) {
        (Value::String(_), _) => Ok(choice.clone()),
        (_, Some("function")) => Ok(chat_choice_of(choice)),
        (_, Some(ALLOWED_TOOLS)) => {
            let tools = choice.get("tools").and_then(Value::as_array);
            let tools: Vec<Value> = tools.into_iter().flatten().map(chat_choice_of).collect();
            let allowed = json!({"mode": choice.get("mode"), "tools": tools});
            Ok(json!({"type": ALLOWED_TOOLS, ALLOWED_TOOLS: allowed}))
        }
        _ => {
            let instead = "the server has no tools of its own; name a function";
            Err(ValidationError::not_supported(
                "tool_choice",
                choice,
                instead,
            ))
        }
    }
}

/// `{"type": "function", "name": ...}` as chat requests spell it.
fn chat_choice_of(function: &Value) -> Value {
    let kind = function.get("type");
    json!({"type": kind, "function": {"name": function.get("name")}})
}

fn forces_a_call(choice: &Value) -> bool {
    match choice.get("type").and_then(Value::as_str) {
        Some(ALLOWED_TOOLS) => choice.get("mode").is_some_and(|mode| mode == "required"),
        kind => choice == "required" || kind.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_call_leaves_the_format_aside() {
        let request = |choice: Value, format: Value| {
            ResponsesRequest::from_json(json!({
                "input": "a", "tools": [{"type": "function", "name": "f"}],
                "tool_choice": choice, "text": {"format": format},
            }))
        };
        let schema = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}});
        let named = json!({"type": "function", "name": "f"});
        for choice in [json!("required"), named] {
            for format in [&schema, &json!({"type": "json_object"})] {
                let request = request(choice.clone(), format.clone()).unwrap();
                assert_eq!(request.chat.common.constraint, None);
                assert_eq!(request.told["text"], json!({"format": format}));
            }
            let error = request(choice, json!({"type": "xml"})).unwrap_err();
            assert!(error.message.contains("text.format"), "{error}");
        }
        let auto = request(json!("auto"), schema).unwrap();
        assert!(auto.chat.common.constraint.is_some());
    }
}
