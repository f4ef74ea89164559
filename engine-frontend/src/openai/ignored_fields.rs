//! Fields that clients send by habit and that can't change an answer here: accepted, without effect.
//!
//! One table, which `docs/ignored-fields.md` repeats. Everything else is honoured or refused.

use std::collections::HashMap;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::fields::{Fields, parse};
use crate::error::{ValidationError, cut_short, cut_short_display};

/// Notes of a client on its request.
pub(crate) const METADATA: &str = "metadata";
/// Names that `include` may list without effect: the answer never has what they ask for.
pub(crate) const INCLUDES: [&str; 7] = [
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// A route whose requests have a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`, in Anthropic's words.
    Messages,
}

/// Values that a field may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Anything.
    Any,
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// A whole number.
    Count,
    /// An object whose values are strings.
    Texts,
    /// An object.
    Object,
    /// One of some strings.
    OneOf(&'static [&'static str]),
    /// Checked where the field is read; in words.
    Words(&'static str),
}

/// A field that is accepted and has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgnoredField {
    /// Its name, or its path.
    pub name: &'static str,
    /// Requests that may have it.
    pub apis: &'static [Api],
    /// Its values.
    pub accepted: Accepted,
    /// Why it can't change the answer.
    pub reason: &'static str,
    /// Under `--strict-requests`: what the refusal says. `None` is accepted there too.
    pub strict: Option<&'static str>,
}

const ALL: &[Api] = &[Api::Completions, Api::Chat, Api::Responses, Api::Messages];
const OPENAI: &[Api] = &[Api::Completions, Api::Chat, Api::Responses];
const CHATS: &[Api] = &[Api::Chat, Api::Responses];
const CONVERSATIONS: &[Api] = &[Api::Chat, Api::Responses, Api::Messages];
const CHAT: &[Api] = &[Api::Chat];
const RESPONSES: &[Api] = &[Api::Responses];
const MESSAGES: &[Api] = &[Api::Messages];
const VERBOSITIES: &[&str] = &["low", "medium", "high"];

const fn field(
    name: &'static str,
    apis: &'static [Api],
    accepted: Accepted,
    reason: &'static str,
) -> IgnoredField {
    IgnoredField {
        name,
        apis,
        accepted,
        reason,
        strict: None,
    }
}

const fn lenient(mut field: IgnoredField, strict: &'static str) -> IgnoredField {
    field.strict = Some(strict);
    field
}

/// Fields that are accepted and have no effect.
pub const IGNORED_FIELDS: &[IgnoredField] = &[
    field("user", ALL, Accepted::Text, "says who asks"),
    field(
        METADATA,
        ALL,
        Accepted::Texts,
        "the client's notes; Responses repeat them",
    ),
    field("service_tier", ALL, Accepted::Text, "there is one tier"),
    field("safety_identifier", ALL, Accepted::Text, "says who asks"),
    field(
        "prompt_cache_key",
        ALL,
        Accepted::Text,
        "prompts are cached by their content",
    ),
    field(
        "prompt_cache_retention",
        ALL,
        Accepted::Text,
        "prompts are cached while there is room",
    ),
    field(
        "prompt_cache_options",
        OPENAI,
        Accepted::Object,
        "every prefix is cached; parts may have `prompt_cache_breakpoint` too",
    ),
    lenient(
        field(
            "store",
            ALL,
            Accepted::Flag,
            "nothing is stored; an answer says `store: false`",
        ),
        "nothing is kept; each request brings its whole conversation",
    ),
    field(
        "cache_control",
        MESSAGES,
        Accepted::Object,
        "every prefix is cached; blocks and tools may have it too",
    ),
    lenient(
        field(
            "client_metadata",
            RESPONSES,
            Accepted::Object,
            "the client's notes on itself",
        ),
        "leave it out",
    ),
    lenient(
        field(
            "verbosity",
            CHAT,
            Accepted::OneOf(VERBOSITIES),
            "a wish about style: models other than OpenAI's don't read it",
        ),
        "say in the messages how long an answer is to be",
    ),
    lenient(
        field(
            "text.verbosity",
            RESPONSES,
            Accepted::OneOf(VERBOSITIES),
            "a wish about style: models other than OpenAI's don't read it",
        ),
        "say in the instructions how long an answer is to be",
    ),
    lenient(
        field(
            "prediction",
            CHAT,
            Accepted::Object,
            "a guess that makes an answer faster, not another one",
        ),
        "the server drafts by itself with --speculative-config; leave it out",
    ),
    lenient(
        field(
            "reasoning.summary",
            RESPONSES,
            Accepted::OneOf(&["auto", "concise", "detailed", "none"]),
            "thinking comes whole, not as a summary",
        ),
        "reasoning has effort alone; thinking comes as it is",
    ),
    lenient(
        field(
            "reasoning.generate_summary",
            RESPONSES,
            Accepted::OneOf(&["auto", "concise", "detailed"]),
            "the older name of reasoning.summary",
        ),
        "reasoning has effort alone; thinking comes as it is",
    ),
    lenient(
        field(
            "include",
            RESPONSES,
            Accepted::Words(
                "`reasoning.encrypted_content` and the `*_call` names of OpenAI's tools; `message.output_text.logprobs` is honoured",
            ),
            "the answer never has these parts",
        ),
        "only message.output_text.logprobs is",
    ),
    lenient(
        field(
            "max_tool_calls",
            RESPONSES,
            Accepted::Count,
            "it bounds tools that the server runs, and it runs none",
        ),
        "the server calls no tools itself; parallel_tool_calls: false allows one call",
    ),
    lenient(
        field(
            "tools",
            CONVERSATIONS,
            Accepted::Words("`[]`"),
            "as good as absent",
        ),
        "tools must be absent or hold at least one tool",
    ),
    lenient(
        field(
            "tools[].type",
            RESPONSES,
            Accepted::Words(
                "`web_search`, `web_search_preview`, unless `tool_choice` forces a call; the answer has a warning",
            ),
            "the model may search, and needn't; here it can't",
        ),
        "the server has no tools of its own",
    ),
    lenient(
        field(
            "tool_choice",
            CONVERSATIONS,
            Accepted::Words("`auto` without `tools`"),
            "there is nothing to choose",
        ),
        "tool_choice needs tools",
    ),
    field(
        "parallel_tool_calls",
        CHATS,
        Accepted::Words("any, without `tools`"),
        "there is nothing to call",
    ),
    lenient(
        field(
            "stream_options",
            OPENAI,
            Accepted::Words("any that a stream may have, without `stream`"),
            "there is no stream",
        ),
        "stream_options is only allowed with stream=true",
    ),
    lenient(
        field(
            "stream_options.include_obfuscation",
            OPENAI,
            Accepted::Flag,
            "streams bear no padding",
        ),
        "streams bear no obfuscation; leave it out",
    ),
    lenient(
        field(
            "n",
            &[Api::Completions, Api::Chat],
            Accepted::Words("above 1 at temperature 0"),
            "honoured: all answers are equal",
        ),
        "n must be 1 with temperature 0: all answers would be the same",
    ),
    field(
        "cache_prompt",
        ALL,
        Accepted::Any,
        "llama.cpp's: every prefix is cached",
    ),
    field(
        "id_slot",
        ALL,
        Accepted::Any,
        "llama.cpp's: there are no slots",
    ),
    field(
        "n_keep",
        ALL,
        Accepted::Any,
        "llama.cpp's: a context is never shifted",
    ),
    field(
        "n_discard",
        ALL,
        Accepted::Any,
        "llama.cpp's: a context is never shifted",
    ),
];

/// Takes the fields of `api` that have no effect.
///
/// # Errors
/// One of them has a value of the wrong kind, or is refused under `--strict-requests`.
pub(crate) fn take(fields: &mut Fields, api: Api) -> Result<(), ValidationError> {
    for field in IGNORED_FIELDS {
        let is_taken_here =
            !field.name.contains('.') && !matches!(field.accepted, Accepted::Words(_));
        if !is_taken_here || !field.apis.contains(&api) {
            continue;
        }
        if let Some(value) = fields.take_value(field.name) {
            check(field.name, value, fields.is_strict())?;
        }
    }
    Ok(())
}

/// Checks the value of a field of the table.
pub(crate) fn check(name: &str, value: Value, is_strict: bool) -> Result<(), ValidationError> {
    let Some(field) = IGNORED_FIELDS.iter().find(|field| field.name == name) else {
        return Ok(());
    };
    match field.accepted {
        Accepted::Any | Accepted::Words(_) => {}
        Accepted::Flag => drop(parse::<bool>(name, &value)?),
        Accepted::Text => drop(parse::<String>(name, &value)?),
        Accepted::Count => drop(parse::<u32>(name, &value)?),
        Accepted::Object => drop(parse::<AnyObject>(name, &value)?),
        Accepted::Texts => check_texts(name, &value)?,
        Accepted::OneOf(names) => {
            if !value.as_str().is_some_and(|text| names.contains(&text)) {
                let message = format!("{name} must be one of {}", names.join(", "));
                return Err(ValidationError::field(name, &value, message));
            }
        }
    }
    // As before: what asks for nothing passes.
    let asks_for_nothing = value == false || value == "medium" || value == "none";
    match field.strict {
        Some(_) if is_strict && !asks_for_nothing => Err(refused(name, &value)),
        _ => Ok(()),
    }
}

/// The refusal of a field of the table under `--strict-requests`.
pub(crate) fn refused(name: &str, value: &Value) -> ValidationError {
    let field = IGNORED_FIELDS.iter().find(|field| field.name == name);
    let instead = field
        .and_then(|field| field.strict)
        .unwrap_or("leave it out");
    ValidationError::not_supported(name, value, instead)
}

/// An object, whatever is in it: nothing of it is copied.
type AnyObject = HashMap<String, IgnoredAny>;

/// Checks that an object's values are strings.
fn check_texts(name: &str, value: &Value) -> Result<(), ValidationError> {
    parse::<AnyObject>(name, value)?;
    let mut texts = value.as_object().into_iter().flatten();
    match texts.find(|(_, value)| !value.is_string()) {
        Some((key, value)) => {
            let field = cut_short(&format!("{name}.{key}"));
            let message = format!("{field} must be a string, got {}", cut_short_display(value));
            Err(ValidationError::field(field, value, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::anthropic::AnthropicMessagesRequest;
    use crate::openai::{ChatCompletionRequest, CompletionRequest, ResponsesRequest};

    fn read(api: Api, name: &str, value: Value, is_strict: bool) -> Result<(), ValidationError> {
        let mut body = match api {
            Api::Completions => json!({"prompt": "a"}),
            Api::Chat => json!({"messages": [{"role": "user", "content": "a"}]}),
            Api::Responses => json!({"input": "a"}),
            Api::Messages => {
                json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
            }
        };
        match name.split_once('.') {
            Some((outer, inner)) => body[outer] = json!({inner: value}),
            None => body[name] = value,
        }
        match (api, is_strict) {
            (Api::Completions, false) => CompletionRequest::from_json(body).map(drop),
            (Api::Completions, true) => CompletionRequest::from_json_strict(body).map(drop),
            (Api::Chat, false) => ChatCompletionRequest::from_json(body).map(drop),
            (Api::Chat, true) => ChatCompletionRequest::from_json_strict(body).map(drop),
            (Api::Responses, false) => ResponsesRequest::from_json(body).map(drop),
            (Api::Responses, true) => ResponsesRequest::from_json_strict(body).map(drop),
            (Api::Messages, false) => AnthropicMessagesRequest::from_json(body).map(drop),
            (Api::Messages, true) => AnthropicMessagesRequest::from_json_strict(body).map(drop),
        }
    }

    fn sample(field: &IgnoredField) -> Value {
        match (field.name, field.accepted) {
            ("include", _) => json!(["reasoning.encrypted_content"]),
            ("tools", _) => json!([]),
            ("tools[].type", _) => json!([{"type": "web_search", "external_web_access": false}]),
            ("tool_choice", _) => json!("auto"),
            ("stream_options", _) => json!({"include_usage": true}),
            (_, Accepted::Texts) => json!({"a": "b"}),
            (_, Accepted::Object) => json!({"a": 1}),
            (_, Accepted::Flag) => json!(true),
            (_, Accepted::Text) => json!("auto"),
            (_, Accepted::OneOf(names)) => json!(names[0]),
            _ => json!(2),
        }
    }

    #[test]
    fn every_field_of_the_table_is_accepted_and_refused_where_it_says_so() {
        for field in IGNORED_FIELDS {
            let name = field.name.strip_suffix("[].type").unwrap_or(field.name);
            for api in field.apis {
                let value = match name {
                    "parallel_tool_calls" => json!(false),
                    // Of a stream.
                    "stream_options" if *api == Api::Responses => {
                        json!({"include_obfuscation": true})
                    }
                    "tool_choice" if *api == Api::Messages => json!({"type": "auto"}),
                    // It needs a temperature too: tested below.
                    "n" => continue,
                    _ => sample(field),
                };
                let read = |value, is_strict| read(*api, name, value, is_strict);
                assert_eq!(read(value.clone(), false), Ok(()), "{api:?} {name}");
                let is_refused = read(value, true).is_err();
                assert_eq!(is_refused, field.strict.is_some(), "{api:?} {name}");
                if !matches!(field.accepted, Accepted::Any | Accepted::Words(_)) {
                    let error = read(json!([[]]), false).unwrap_err();
                    assert_eq!(error.parameter.as_deref(), Some(name));
                }
            }
        }
    }

    #[test]
    fn several_equal_answers_are_for_lenient_servers() {
        let body = json!({"prompt": "a", "n": 3, "temperature": 0});
        assert!(CompletionRequest::from_json(body.clone()).is_ok());
        let error = CompletionRequest::from_json_strict(body).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("n"));
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../docs/ignored-fields.md");
        let line = |field: &IgnoredField| {
            let apis = field.apis.iter().map(|api| match api {
                Api::Completions => "completions",
                Api::Chat => "chat",
                Api::Responses => "Responses",
                Api::Messages => "Messages",
            });
            let apis = apis.collect::<Vec<_>>().join(", ");
            let accepted = match field.accepted {
                Accepted::Any => "anything".to_owned(),
                Accepted::Flag => "`true`, `false`".to_owned(),
                Accepted::Text => "a string".to_owned(),
                Accepted::Count => "a whole number".to_owned(),
                Accepted::Texts => "an object of strings".to_owned(),
                Accepted::Object => "an object".to_owned(),
                Accepted::OneOf(names) => format!("`{}`", names.join("`, `")),
                Accepted::Words(words) => words.to_owned(),
            };
            let strict = if field.strict.is_some() {
                "refused"
            } else {
                "accepted"
            };
            let (name, reason) = (field.name, field.reason);
            format!("| `{name}` | {apis} | {accepted} | {reason} | {strict} |")
        };
        let table: Vec<String> = IGNORED_FIELDS.iter().map(line).collect();
        let found: Vec<&str> = page
            .lines()
            .take_while(|line| !line.starts_with("## "))
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(found, table, "write:\n{}", table.join("\n"));
    }
}
