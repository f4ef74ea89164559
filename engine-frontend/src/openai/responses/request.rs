//! What `/v1/responses` takes: the stateless part of the API, in the words of a chat request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::input::InputMessages;
use super::namespaces::{Namespaces, named_in};
use super::response::Told;
use crate::error::{ValidationError, cut_short};
use crate::openai::chat::ChatCompletionRequest;
use crate::openai::fields::{Fields, parse};
use crate::openai::ignored_fields::{self, Api, INCLUDES, METADATA};
use crate::openai::known_keys::{self, RESPONSES_TOOL_CHOICE_OF_ONE, SEARCH_TOOL};
use crate::openai::own_words::{OwnWords, Renamed};
use crate::openai::request::take_max_tokens;
use crate::openai::tool_choice::ALLOWED_TOOLS;
use crate::openai::tools::check_number;

/// What `include` may ask for.
const LOGPROBS: &str = "message.output_text.logprobs";

/// What this API calls fields of chat requests.
pub(in crate::openai) const OWN_NAMES: [Renamed; 7] = [
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("messages", "input"),
    ("reasoning_effort", "reasoning.effort"),
    ("tool_choice.allowed_tools", "tool_choice"),
];

/// What is said of a chat request's field for which this API's answer has no place.
const NO_PLACE: &str = "this API has no place for it; /v1/chat/completions has";

/// Fields of chat requests that this API spells in another way, or has no place for in its answer.
const OF_CHAT: [(&str, &str); 22] = [
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
    ("include_trace", NO_PLACE),
    ("continue_final_message", NO_PLACE),
    ("add_generation_prompt", NO_PLACE),
    ("best_of", "send the request several times"),
    ("audio", "the engine reads and writes text alone"),
    ("verbosity", "use text.verbosity"),
    ("prediction", NO_PLACE),
];

/// Tools of OpenAI's servers without which an answer is still one that the model may give.
const SEARCHES: [&str; 2] = ["web_search", "web_search_preview"];

/// A request for `/v1/responses`.
#[derive(Debug, Clone)]
pub struct ResponsesRequest {
    /// What it asks for, as a conversation.
    pub chat: ChatCompletionRequest,
    /// What the answer repeats of the request.
    pub(super) told: Told,
    /// What this API calls the chat request's fields.
    pub(super) words: OwnWords,
    /// Functions that stand in namespaces.
    pub(super) namespaces: Namespaces,
}

impl ResponsesRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Responses, body, false)?)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); and what has no effect.
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Responses, body, true)?)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, ValidationError> {
        let is_strict = fields.is_strict();
        refuse_unsupported(&mut fields)?;
        take_stream_options(&mut fields)?;
        let mut told = Told::default();
        let mut chat = Map::new();
        let instructions: Option<String> = fields.take("instructions")?;
        let input = fields.require_value("input")?;
        let mut input = InputMessages::new(instructions.as_deref(), input)?;
        let messages = std::mem::take(&mut input.messages);
        chat.insert("messages".to_owned(), messages.into());
        told.tell("instructions", &instructions);
        let text = fields.take_object("text")?.unwrap_or_default();
        take_text(text, &mut chat, &mut told, is_strict)?;
        let choice = fields.take_value("tool_choice");
        let tools = fields.take_list("tools")?;
        if is_strict {
            refuse_idle(&tools, choice.as_ref())?;
        }
        let tools = tools.unwrap_or_default();
        told.tell("tools", &tools);
        let mut namespaces = Namespaces::default();
        let words = OwnWords {
            names: OWN_NAMES.to_vec(),
            tool_places: take_tools(
                tools,
                choice.as_ref(),
                &mut namespaces,
                &mut fields,
                &mut chat,
            )?,
            ..OwnWords::default()
        };
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
        told.tell("tool_choice", &choice.unwrap_or(json!("auto")));
        let parallel = fields.take::<bool>("parallel_tool_calls")?.unwrap_or(true);
        chat.insert("parallel_tool_calls".to_owned(), parallel.into());
        told.tell("parallel_tool_calls", &parallel);
        let max_output_tokens = take_max_tokens(&mut fields, "max_output_tokens")?;
        chat.insert("max_completion_tokens".to_owned(), json!(max_output_tokens));
        told.tell("max_output_tokens", &max_output_tokens);
        told.tell("reasoning", &take_reasoning(&mut fields, &mut chat)?);
        take_logprobs(&mut fields, &mut chat, &mut told)?;
        let metadata = fields.take_value(METADATA).unwrap_or(json!({}));
        told.tell(METADATA, &metadata);
        ignored_fields::check(METADATA, metadata, is_strict)?;
        if let Some(user) = fields.take::<String>("user")? {
            told.tell("user", &user);
        }
        fields.take_ignored()?;
        let mut warnings = std::mem::take(fields.warnings());
        chat.extend(fields.rest());
        let chat = Fields::of(Api::Chat, chat.into(), is_strict);
        let mut chat = chat
            .and_then(ChatCompletionRequest::from_fields)
            .map_err(|error| words.of_error(error, |field| input.own_field(field)))?;
        let of_chat = &mut chat.common.warnings;
        of_chat.rename(|field| words.of_field(field));
        warnings.extend(std::mem::take(of_chat));
        *of_chat = warnings;
        Ok(Self {
            chat,
            told,
            words,
            namespaces,
        })
    }
}

/// Refuses what has no effect, as chat requests do: no tools, and a choice among none.
fn refuse_idle(tools: &Option<Vec<Value>>, choice: Option<&Value>) -> Result<(), ValidationError> {
    if tools.as_ref().is_some_and(Vec::is_empty) {
        let message = "tools must be absent or hold at least one tool";
        return Err(ValidationError::field("tools", "[]", message));
    }
    match choice {
        Some(choice) if tools.is_none() => {
            let message = "tool_choice needs tools";
            Err(ValidationError::field("tool_choice", choice, message))
        }
        _ => Ok(()),
    }
}

/// Fields that only pass where they ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    const KEEPS_NOTHING: &str = "the server keeps nothing; bring the whole conversation as input";
    for (name, instead) in OF_CHAT {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    let is_off = |value: &Value| value == false;
    let instead = "the server keeps nothing; with stream the answer comes as it is made";
    fields.refuse_unless("background", instead, is_off)?;
    let instead = "\"disabled\" is; truncate_prompt_tokens cuts a prompt's tokens";
    fields.refuse_unless("truncation", instead, |v| v == "disabled")?;
    let instead = "shorten the input yourself";
    fields.refuse_unless("context_management", instead, |v| v == &json!([]))?;
    for (name, instead) in [
        ("previous_response_id", KEEPS_NOTHING),
        ("conversation", KEEPS_NOTHING),
        (
            "prompt",
            "there are no templates; use instructions and input",
        ),
        ("moderation", "the server asks no other service"),
        ("image", "the engine reads and writes text alone"),
    ] {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    Ok(())
}

/// `stream_options`: of a stream that always ends with the usage.
fn take_stream_options(fields: &mut Fields) -> Result<(), ValidationError> {
    const FIELD: &str = "stream_options";
    const OBFUSCATION: &str = "stream_options.include_obfuscation";
    let Some(options) = fields.take_object(FIELD)? else {
        return Ok(());
    };
    if fields.is_strict() && !fields.is_true("stream") {
        let message = "stream_options is only allowed with stream=true";
        return Err(ValidationError::about(FIELD, message));
    }
    known_keys::check(FIELD, &options, &["include_obfuscation", "include_usage"])?;
    for (name, value) in options.into_iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "include_obfuscation" => ignored_fields::check(OBFUSCATION, value, fields.is_strict())?,
            _ if fields.is_strict() => {
                let instead = "streams always end with the usage; leave it out";
                return Err(ValidationError::not_supported(FIELD, &value, instead));
            }
            _ => drop(parse::<bool>(&format!("{FIELD}.{name}"), value)?),
        }
    }
    Ok(())
}

/// Puts the functions among the tools into a chat request; returns where each stands among the tools. A
/// tool of OpenAI's servers that the model may use and needn't is left out, with a warning.
fn take_tools(
    tools: Vec<Value>,
    choice: Option<&Value>,
    namespaces: &mut Namespaces,
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
) -> Result<Vec<String>, ValidationError> {
    check_number("tools", &tools)?;
    let is_free = choice.is_none_or(|choice| choice == "auto" || choice == "none");
    let (mut functions, mut places) = (Vec::new(), Vec::new());
    for (i, tool) in tools.into_iter().enumerate() {
        let kind = tool.get("type").and_then(Value::as_str);
        if is_free
            && !fields.is_strict()
            && let Some(kind) = kind.filter(|kind| SEARCHES.contains(kind))
        {
            if let Some(tool) = tool.as_object() {
                known_keys::check(&format!("tools[{i}]"), tool, SEARCH_TOOL)?;
            }
            let message = format!(": {kind} has no effect: the server runs no tools of its own");
            fields.warnings().push(&format!("tools[{i}]"), &message);
            continue;
        }
        let field = format!("tools[{i}]");
        if kind == Some("namespace") {
            for (place, function) in namespaces.take(&field, tool, chat_tool)? {
                functions.push(function);
                places.push(place);
            }
            continue;
        }
        functions.push(chat_tool(&field, tool)?);
        places.push(field);
    }
    if !functions.is_empty() {
        chat.insert("tools".to_owned(), functions.into());
    }
    Ok(places)
}

/// `text`: the answer's format.
fn take_text(
    mut text: Map<String, Value>,
    chat: &mut Map<String, Value>,
    told: &mut Told,
    is_strict: bool,
) -> Result<(), ValidationError> {
    text.retain(|_, value| !value.is_null());
    let format = text.remove("format").unwrap_or(json!({"type": "text"}));
    if let Some(verbosity) = text.remove("verbosity") {
        ignored_fields::check("text.verbosity", verbosity, is_strict)?;
    }
    known_keys::check("text", &text, &["format", "verbosity"])?;
    told.tell("text", &BTreeMap::from([("format", &format)]));
    let format = match format {
        Value::Object(mut format) if format.get("type").is_some_and(|t| t == "json_schema") => {
            // Moved, as it may be large.
            let kind = format.remove("type").unwrap_or_default();
            object([("type", kind), ("json_schema", format.into())])
        }
        format => format,
    };
    chat.insert("response_format".to_owned(), format);
    Ok(())
}

/// `reasoning`: how much. Summaries are not made.
fn take_reasoning(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
) -> Result<Value, ValidationError> {
    let given = fields.take_object("reasoning")?.unwrap_or_default();
    let mut effort = None;
    for (name, value) in given.into_iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "effort" => {
                effort = value.as_str().map(str::to_owned);
                chat.insert("reasoning_effort".to_owned(), value);
            }
            "summary" | "generate_summary" => {
                let field = format!("reasoning.{name}");
                ignored_fields::check(&field, value, fields.is_strict())?;
            }
            _ => {
                return Err(known_keys::unknown(
                    "reasoning",
                    &name,
                    &["effort", "summary"],
                ));
            }
        }
    }
    Ok(json!({"effort": effort, "summary": null}))
}

/// `include` and `top_logprobs`.
fn take_logprobs(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    told: &mut Told,
) -> Result<(), ValidationError> {
    let include: Vec<String> = fields.take("include")?.unwrap_or_default();
    for name in &include {
        if name == LOGPROBS {
            continue;
        }
        if fields.is_strict() {
            return Err(ignored_fields::refused("include", &json!(name)));
        }
        if !INCLUDES.contains(&name.as_str()) {
            let message = format!(
                "include: {:?} is not known; use {LOGPROBS} or leave it out",
                cut_short(name)
            );
            return Err(ValidationError::field("include", name, message));
        }
    }
    let has_logprobs = include.iter().any(|name| name == LOGPROBS);
    let top_logprobs: Option<i32> = fields.take("top_logprobs")?;
    if has_logprobs || top_logprobs.is_some_and(|top| top != 0) {
        chat.insert("logprobs".to_owned(), true.into());
        chat.insert("top_logprobs".to_owned(), json!(top_logprobs.unwrap_or(0)));
    }
    told.tell("top_logprobs", &top_logprobs.unwrap_or(0));
    Ok(())
}

/// An object of these values, which are moved into it.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter();
    let fields = fields.map(|(field, value)| (field.to_owned(), value));
    Value::Object(fields.collect())
}

/// A function as chat requests spell it.
fn chat_tool(field: &str, tool: Value) -> Result<Value, ValidationError> {
    if tool.get("type") != Some(&json!("function")) {
        let field = format!("{field}.type");
        let value = tool.get("type").unwrap_or(&Value::Null);
        let message = format!("{field} must be \"function\": the server has no tools of its own");
        return Err(ValidationError::field(field, value, message));
    }
    if !tool.get("name").is_some_and(Value::is_string) && tool.get("function").is_none() {
        let field = format!("{field}.name");
        let message = format!("{field} must be the function's name, a string");
        return Err(ValidationError::about(field, message));
    }
    let Value::Object(mut function) = tool else {
        return Ok(tool);
    };
    let kind = function.remove("type").unwrap_or_default();
    function.retain(|_, value| !value.is_null());
    if function.contains_key("function") {
        let field = format!("{field}.function");
        let message = format!(
            "unknown field {field}; name, description and parameters stand in the tool itself, as in \
             {{\"type\": \"function\", \"name\": ..., \"parameters\": {{...}}}}"
        );
        return Err(ValidationError::about(field, message));
    }
    // Moved, as it may be large.
    Ok(object([("type", kind), ("function", function.into())]))
}

/// A choice as chat requests spell it.
fn chat_tool_choice(choice: &Value) -> Result<Value, ValidationError> {
    let kind = choice.get("type").and_then(Value::as_str);
    if kind == Some("function") && !choice.get("name").is_some_and(Value::is_string) {
        if let Value::Object(choice) = choice {
            known_keys::check("tool_choice", choice, RESPONSES_TOOL_CHOICE_OF_ONE)?;
        }
        let message = "tool_choice.name must be the name of one of the tools";
        return Err(ValidationError::about("tool_choice.name", message));
    }
    let known = match kind {
        Some(ALLOWED_TOOLS) => &["type", "mode", "tools"][..],
        _ => RESPONSES_TOOL_CHOICE_OF_ONE,
    };
    if let Value::Object(choice) = choice
        && kind.is_some_and(|kind| kind == "function" || kind == ALLOWED_TOOLS)
    {
        known_keys::check("tool_choice", choice, known)?;
    }
    match (choice, kind) {
        (Value::String(_), _) => Ok(choice.clone()),
        (_, Some("function")) => Ok(chat_choice_of(choice)),
        (_, Some(ALLOWED_TOOLS)) => {
            let tools = choice.get("tools").and_then(Value::as_array);
            let tools = tools.map_or(&[][..], Vec::as_slice);
            check_number("tool_choice.tools", tools)?;
            let tools: Vec<Value> = tools.iter().map(chat_choice_of).collect();
            let mode = choice.get("mode");
            if let Some(mode) = mode.filter(|mode| !mode.is_string()) {
                let field = "tool_choice.mode";
                let message = format!("{field} must be auto or required");
                return Err(ValidationError::field(field, mode, message));
            }
            let allowed = json!({"mode": mode, "tools": tools});
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
    let kind = function.get("type").and_then(Value::as_str);
    let name = function.get("name").and_then(Value::as_str);
    let name = name.map(|name| named_in(function.get("namespace"), name));
    json!({"type": kind, "function": {"name": name}})
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
                assert_eq!(request.told.value("text"), json!({"format": format}));
            }
            let error = request(choice, json!({"type": "xml"})).unwrap_err();
            assert!(error.message.contains("text.format"), "{error}");
        }
        let auto = request(json!("auto"), schema).unwrap();
        assert!(auto.chat.common.constraint.is_some());
    }
}
