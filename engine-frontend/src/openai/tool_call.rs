//! Calls as answers carry them.

use serde::{Deserialize, Serialize};

use super::tool_format::Openings;
use super::tool_parser::{AnswerPart, ToolParser};
use crate::random::random_u64;

/// A function that the model calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// `call_...`, or what the model's template wants: nine letters and digits, `functions.f:0`.
    pub id: String,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Which function, with which arguments.
    pub function: FunctionCall,
}

/// Which function, with which arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// Its arguments: a JSON text.
    pub arguments: String,
}

/// What is new of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaToolCall {
    /// Which call.
    pub index: u32,
    /// Its id; with its first piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`; with its first piece.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What is new of its function.
    pub function: DeltaFunctionCall,
}

/// What is new of a call's function.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeltaFunctionCall {
    /// The name; with the call's first piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The next piece of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

/// A new call's id: the format's `own`, or one with this prefix.
pub(crate) fn call_id(prefix: &str, own: Option<String>) -> String {
    own.unwrap_or_else(|| format!("{prefix}_{:016x}", random_u64()))
}

/// A whole answer, or what has come of it: the text for the reader, if any, and the calls.
pub(crate) fn split_answer(openings: &Openings, text: &str) -> (Option<String>, Vec<ToolCall>) {
    let (mut content, mut calls) = (None::<String>, Vec::<ToolCall>::new());
    for part in ToolParser::new(openings.clone()).push(text, true) {
        match part {
            AnswerPart::Content(text) => content.get_or_insert_default().push_str(&text),
            AnswerPart::Call { name, id } => calls.push(ToolCall {
                id: call_id("call", id),
                kind: "function".to_owned(),
                function: FunctionCall {
                    name,
                    arguments: String::new(),
                },
            }),
            AnswerPart::Arguments(text) => {
                if let Some(call) = calls.last_mut() {
                    call.function.arguments.push_str(&text);
                }
            }
        }
    }
    // An answer that is nothing at all is text.
    if content.is_none() && calls.is_empty() {
        content = Some(String::new());
    }
    (content, calls)
}
