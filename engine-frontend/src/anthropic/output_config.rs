//! `thinking`, `output_config` and its older half `output_format`.

use serde_json::{Map, Value, json};

use crate::error::ValidationError;
use crate::openai::{Fields, OwnWords, check_keys, missing, object, parse, unknown_key};

const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];
/// The effort of thinking that a request asks for without saying how much, as Anthropic's API has it.
const DEFAULT_EFFORT: &str = "high";
const CONTINUE_FINAL_MESSAGE: &str = "continue_final_message";
const EFFORT: &str = "output_config.effort";
const FORMAT: &str = "output_config.format";
const OUTPUT_FORMAT: &str = "output_format";
const THINKING: &str = "thinking";
const REASONING_EFFORT: &str = "reasoning_effort";
const RESPONSE_FORMAT: &str = "response_format";

/// What a request says of the model's thinking, beside its effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Thinking {
    /// Most tokens of it, if the request has a budget.
    pub(super) token_budget: Option<u32>,
    /// True if the answer has it without its text.
    pub(super) is_omitted: bool,
}

/// Takes all of them. `forces_a_call` says that the answer has no text, for which a format would be.
///
/// # Errors
/// A key is unknown, missing or has a value that it can't have.
pub(super) fn take(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    words: &mut OwnWords,
    forces_a_call: bool,
) -> Result<Thinking, ValidationError> {
    let mut config = fields.take_object("output_config")?.unwrap_or_default();
    check_keys("output_config", &config, &["effort", "format"])?;
    config.retain(|_, value| !value.is_null());
    let older = fields.take_value(OUTPUT_FORMAT);
    let format = match (config.remove("format"), older) {
        (Some(_), Some(_)) => {
            let message =
                format!("{OUTPUT_FORMAT} is an older name of {FORMAT}: give one of the two");
            return Err(ValidationError::about(OUTPUT_FORMAT, message));
        }
        (format, older) => format
            .map(|format| (FORMAT, format))
            .or(older.map(|format| (OUTPUT_FORMAT, format))),
    };
    if let Some((field, format)) = format {
        words.names.push((RESPONSE_FORMAT, field));
        if chat.get(CONTINUE_FINAL_MESSAGE) == Some(&json!(true)) {
            let message = format!(
                "{field} can't go with a last message of the assistant, which the answer would continue: the \
                 two together would not have the format; leave out one of them"
            );
            return Err(ValidationError::about(field, message));
        }
        let format = json_schema(field, format)?;
        if !forces_a_call {
            chat.insert(RESPONSE_FORMAT.to_owned(), format);
        }
    } else {
        words.names.push((RESPONSE_FORMAT, FORMAT));
    }
    let effort = config.remove("effort").map(effort).transpose()?;
    let thinking = fields.take_object(THINKING)?;
    let asked_in = match thinking {
        Some(_) => THINKING,
        None => EFFORT,
    };
    words.names.push((REASONING_EFFORT, asked_in));
    let (effort, thinking) = match thinking {
        None => (effort, Thinking::default()),
        Some(thinking) => {
            let (is_on, thinking) = read_thinking(thinking)?;
            let effort = match is_on {
                true => effort.unwrap_or_else(|| DEFAULT_EFFORT.to_owned()),
                false => "none".to_owned(),
            };
            (Some(effort), thinking)
        }
    };
    if let Some(effort) = effort {
        chat.insert(REASONING_EFFORT.to_owned(), effort.into());
    }
    Ok(thinking)
}

fn effort(value: Value) -> Result<String, ValidationError> {
    match value.as_str() {
        Some(effort) if EFFORTS.contains(&effort) => Ok(effort.to_owned()),
        _ => {
            let message = format!("{EFFORT} must be one of {}", EFFORTS.join(", "));
            Err(ValidationError::field(EFFORT, value, message))
        }
    }
}

/// `{"type": "json_schema", "schema": ...}` as a chat request's format.
fn json_schema(field: &str, format: Value) -> Result<Value, ValidationError> {
    let mut format = object(field, format)?;
    format.retain(|_, value| !value.is_null());
    let kind = format.remove("type").unwrap_or_default();
    if kind != "json_schema" {
        let field = format!("{field}.type");
        let message = format!("{field} must be json_schema");
        return Err(ValidationError::field(field, kind, message));
    }
    let at_schema = format!("{field}.schema");
    let schema = format.remove("schema").ok_or_else(|| missing(&at_schema))?;
    if let Some(key) = format.keys().next() {
        return Err(unknown_key(field, key, &["type", "schema"]));
    }
    let schema = object(&at_schema, schema)?;
    let mut format = json!({"type": "json_schema"});
    format["schema"] = schema.into();
    Ok(format)
}

/// True if thinking is on, and the rest that is said of it.
fn read_thinking(mut thinking: Map<String, Value>) -> Result<(bool, Thinking), ValidationError> {
    const BUDGET: &str = "thinking.budget_tokens";
    const DISPLAY: &str = "thinking.display";
    thinking.retain(|_, value| !value.is_null());
    let kind = thinking.remove("type").unwrap_or_default();
    let (is_on, known): (bool, &[&str]) = match kind.as_str() {
        Some("enabled") => (true, &["budget_tokens", "display"]),
        Some("adaptive") => (true, &["display"]),
        Some("disabled") => (false, &[]),
        _ => {
            let field = "thinking.type";
            let message = format!("{field} must be enabled, adaptive or disabled");
            return Err(ValidationError::field(field, kind, message));
        }
    };
    check_keys(THINKING, &thinking, known)?;
    let token_budget = match thinking.remove("budget_tokens") {
        Some(budget) => Some(parse::<u32>(BUDGET, budget)?),
        None if kind == "enabled" => return Err(missing(BUDGET)),
        None => None,
    };
    let is_omitted = match thinking.remove("display") {
        None => false,
        Some(Value::String(display)) if display == "summarized" => false,
        Some(Value::String(display)) if display == "omitted" => true,
        Some(other) => {
            let message = format!("{DISPLAY} must be summarized or omitted");
            return Err(ValidationError::field(DISPLAY, other, message));
        }
    };
    let thinking = Thinking {
        token_budget,
        is_omitted,
    };
    Ok((is_on, thinking))
}
