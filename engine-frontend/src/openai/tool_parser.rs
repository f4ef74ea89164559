//! Calls out of the text of an answer, as it comes.

use std::mem;

use serde::{Deserialize, Serialize};

use super::tools::ToolChoice;
use crate::random::random_u64;

/// A function that the model calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// `call_...`.
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
    /// `call_...`; with its first piece.
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

/// Reads calls out of one answer. The answer's constraint guarantees its form: arguments alone, or
/// a list of objects with `name` first and `parameters` second. It may end anywhere.
#[derive(Debug)]
pub(super) struct ToolParser {
    state: State,
    num_calls: u32,
    /// Open brackets and braces of the value being read.
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// A string that isn't complete, with its quotes.
    string: String,
    last_key: String,
}

#[derive(Debug)]
enum State {
    /// The whole answer is the arguments of this function.
    Named(String),
    /// Between calls, or in a call outside of its arguments.
    Outside,
    /// In a call's arguments.
    Arguments,
}

impl ToolParser {
    /// The parser of an answer to a request with this choice; `None` where it has no calls.
    pub(super) fn new(choice: &ToolChoice) -> Option<Self> {
        let state = match choice {
            ToolChoice::None => return None,
            ToolChoice::Named(name) => State::Named(name.clone()),
            ToolChoice::Required => State::Outside,
        };
        Some(Self {
            state,
            num_calls: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            string: String::new(),
            last_key: String::new(),
        })
    }

    /// Takes the next text of the answer; returns what is new of its calls.
    pub(super) fn push(&mut self, text: &str) -> Vec<DeltaToolCall> {
        let mut deltas = Vec::new();
        if let State::Named(name) = &self.state {
            let name = name.clone();
            if text.is_empty() {
                return deltas;
            }
            if self.num_calls == 0 {
                self.begin(name, &mut deltas);
            }
            self.arguments(text.to_owned(), &mut deltas);
            return deltas;
        }
        let mut arguments = String::new();
        for c in text.chars() {
            if matches!(self.state, State::Arguments) {
                if self.is_over(c) {
                    self.arguments(mem::take(&mut arguments), &mut deltas);
                    self.state = State::Outside;
                } else if !arguments.is_empty() || self.depth > 0 || !c.is_whitespace() {
                    arguments.push(c);
                }
            } else if let Some(name) = self.outside(c) {
                self.begin(name, &mut deltas);
            }
        }
        self.arguments(arguments, &mut deltas);
        deltas
    }

    /// Takes a character of the arguments; whether they ended before it.
    fn is_over(&mut self, c: char) -> bool {
        if self.in_string {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match c {
            '"' => self.in_string = true,
            '{' | '[' => self.depth += 1,
            // Those of the call, not of the arguments.
            '}' | ',' if self.depth == 0 => return true,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        false
    }

    /// Takes a character outside of arguments; returns a name that it completes.
    fn outside(&mut self, c: char) -> Option<String> {
        if self.in_string {
            self.string.push(c);
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => {
                    self.in_string = false;
                    let text = mem::take(&mut self.string);
                    let text: String = serde_json::from_str(&text).unwrap_or_default();
                    if self.last_key == "name" {
                        self.last_key.clear();
                        return Some(text);
                    }
                    self.last_key = text;
                }
                _ => {}
            }
            return None;
        }
        match c {
            '"' => {
                self.in_string = true;
                self.string.push(c);
            }
            ':' if self.last_key == "parameters" => {
                self.last_key.clear();
                self.depth = 0;
                self.state = State::Arguments;
            }
            _ => {}
        }
        None
    }

    fn begin(&mut self, name: String, deltas: &mut Vec<DeltaToolCall>) {
        deltas.push(DeltaToolCall {
            index: self.num_calls,
            id: Some(format!("call_{:016x}", random_u64())),
            kind: Some("function".to_owned()),
            function: DeltaFunctionCall {
                name: Some(name),
                arguments: Some(String::new()),
            },
        });
        self.num_calls += 1;
    }

    /// More arguments of the last call.
    fn arguments(&self, text: String, deltas: &mut Vec<DeltaToolCall>) {
        if text.is_empty() {
            return;
        }
        if let Some(DeltaFunctionCall {
            arguments: Some(arguments),
            ..
        }) = deltas.last_mut().map(|delta| &mut delta.function)
        {
            arguments.push_str(&text);
            return;
        }
        deltas.push(DeltaToolCall {
            index: self.num_calls.saturating_sub(1),
            id: None,
            kind: None,
            function: DeltaFunctionCall {
                name: None,
                arguments: Some(text),
            },
        });
    }
}

/// The calls of a whole answer, as far as it goes; `None` where it has no calls.
pub(super) fn tool_calls(choice: &ToolChoice, text: &str) -> Option<Vec<ToolCall>> {
    let mut calls: Vec<ToolCall> = Vec::new();
    for delta in ToolParser::new(choice)?.push(text) {
        if let (Some(id), Some(kind)) = (delta.id, delta.kind) {
            calls.push(ToolCall {
                id,
                kind,
                function: FunctionCall {
                    name: delta.function.name.unwrap_or_default(),
                    arguments: String::new(),
                },
            });
        }
        if let Some(call) = calls.last_mut() {
            let arguments = delta.function.arguments.unwrap_or_default();
            call.function.arguments.push_str(&arguments);
        }
    }
    Some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"[{"name": "get\u0020it", "parameters": {"a": "}],\"{", "b": [1, {}]}}, {"name": "b", "parameters": {}}]"#;

    fn calls(choice: &ToolChoice, pieces: &[&str]) -> Vec<(String, String)> {
        let mut parser = ToolParser::new(choice).unwrap();
        let mut calls: Vec<(String, String)> = Vec::new();
        for piece in pieces {
            for delta in parser.push(piece) {
                if let Some(name) = delta.function.name {
                    assert_eq!(delta.index as usize, calls.len());
                    calls.push((name, String::new()));
                }
                assert_eq!(delta.index as usize + 1, calls.len());
                let arguments = delta.function.arguments.unwrap_or_default();
                calls.last_mut().unwrap().1.push_str(&arguments);
            }
        }
        calls
    }

    #[test]
    fn calls_are_the_same_however_the_text_is_cut() {
        let wanted = [
            (
                "get it".to_owned(),
                r#"{"a": "}],\"{", "b": [1, {}]}"#.to_owned(),
            ),
            ("b".to_owned(), "{}".to_owned()),
        ];
        assert_eq!(calls(&ToolChoice::Required, &[LIST]), wanted);
        for cut in 1..LIST.len() {
            let (a, b) = LIST.split_at(cut);
            assert_eq!(calls(&ToolChoice::Required, &[a, b]), wanted, "{cut}");
        }
        let characters: Vec<String> = LIST.chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        assert_eq!(calls(&ToolChoice::Required, &characters), wanted);
    }

    #[test]
    fn what_has_come_of_a_cut_off_answer_is_there() {
        for end in 0..LIST.len() {
            let calls = tool_calls(&ToolChoice::Required, &LIST[..end]).unwrap();
            for call in calls {
                assert!(LIST.contains(&call.function.arguments), "{call:?}");
            }
        }
        let cut = LIST.find("[1").unwrap();
        let calls = tool_calls(&ToolChoice::Required, &LIST[..cut]).unwrap();
        assert_eq!(calls[0].function.arguments, r#"{"a": "}],\"{", "b": "#);
    }

    #[test]
    fn a_named_function_has_the_whole_text() {
        let named = ToolChoice::Named("f".to_owned());
        let wanted = [("f".to_owned(), "{\"a\": 1}".to_owned())];
        assert_eq!(calls(&named, &["", "{\"a\"", ": 1}"]), wanted);
        assert_eq!(tool_calls(&named, "").unwrap(), []);
        assert_eq!(tool_calls(&ToolChoice::None, "text"), None);
    }
}
