//! Arguments that are written as tags, as JSON.

use std::mem;

use serde_json::Value;

use super::arguments::{JsonText, Step};
use super::parameter_kinds::{ParameterKind, ParameterKinds};

/// The tags around a parameter: those of `json_schema`'s styles in structural tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct XmlStyle {
    /// Stands before the name.
    open: &'static str,
    /// Ends the name.
    after_name: &'static str,
    /// Stands before the value, where white space may come before it or a word tells strings from all else.
    before_value: Option<&'static str>,
    /// True if that word, `true` or `false`, stands before `before_value`: whether the value is a string.
    tells_strings: bool,
    close: &'static str,
    /// True if templates write a string on lines of its own.
    on_own_lines: bool,
}

impl XmlStyle {
    pub(super) const QWEN: Self = Self {
        open: "<parameter=",
        after_name: ">",
        before_value: None,
        tells_strings: false,
        close: "</parameter>",
        on_own_lines: true,
    };
    pub(super) const MINIMAX: Self = Self {
        open: "<parameter name=\"",
        after_name: "\">",
        on_own_lines: false,
        ..Self::QWEN
    };
    pub(super) const GLM: Self = Self {
        open: "<arg_key>",
        after_name: "</arg_key>",
        before_value: Some("<arg_value>"),
        tells_strings: false,
        close: "</arg_value>",
        on_own_lines: false,
    };
    pub(super) const DEEPSEEK: Self = Self {
        open: "<｜DSML｜parameter name=\"",
        after_name: "\" string=\"",
        before_value: Some("\">"),
        tells_strings: true,
        close: "</｜DSML｜parameter>",
        on_own_lines: false,
    };
}

/// Reads parameters, each a tag, up to what closes the call.
#[derive(Debug)]
pub(super) struct XmlArguments {
    style: XmlStyle,
    kinds: ParameterKinds,
    /// What closes the call, without the white space that it begins with.
    close: String,
    close_len: usize,
    state: State,
    /// The parameter that is read.
    name: String,
    /// What was read and isn't told yet.
    held: String,
    has_begun: bool,
    has_parameters: bool,
    /// All that was told, where a member is valid or not beside those before it.
    told: String,
}

#[derive(Debug)]
enum State {
    /// Before a parameter, or before the end.
    Between,
    Name,
    /// Behind the name of a parameter of this kind, before its value.
    BeforeValue(ParameterKind),
    /// In a value that is told when it is whole.
    Whole(ParameterKind),
    /// In a string; true if a character of it was told.
    Text {
        has_begun: bool,
    },
    /// In a value that is JSON; true if a character of it was told.
    Json {
        text: JsonText,
        has_begun: bool,
    },
}

impl XmlArguments {
    /// The reader of arguments which `close` follows.
    pub(super) fn new(style: XmlStyle, kinds: ParameterKinds, close: &str) -> Self {
        Self {
            style,
            kinds,
            close: close.trim_start().to_owned(),
            close_len: close.len(),
            state: State::Between,
            name: String::new(),
            held: String::new(),
            has_begun: false,
            has_parameters: false,
            told: String::new(),
        }
    }

    /// Takes the next character.
    pub(super) fn push(&mut self, c: char, json: &mut String) -> Step {
        let before = json.len();
        let step = self.read(c, json);
        if self.kinds.is_whole() {
            self.told.push_str(json.get(before..).unwrap_or_default());
        }
        step
    }

    fn read(&mut self, c: char, json: &mut String) -> Step {
        if !mem::replace(&mut self.has_begun, true) {
            json.push('{');
        }
        self.held.push(c);
        match &mut self.state {
            State::Between => return self.between(json),
            State::Name => {
                let after_name = self.style.after_name;
                let Some(name) = self.held.strip_suffix(after_name) else {
                    return Step::More;
                };
                if self.kinds.has_longer_name(name, after_name) {
                    return Step::More;
                }
                if mem::replace(&mut self.has_parameters, true) {
                    json.push_str(", ");
                }
                json.push_str(&format!("{}: ", Value::from(name)));
                let kind = self.kinds.of(name);
                name.clone_into(&mut self.name);
                self.held.clear();
                match self.style.before_value {
                    Some(_) => self.state = State::BeforeValue(kind),
                    None => self.begin_value(kind, json),
                }
            }
            State::BeforeValue(_) => {
                let before = self.style.before_value.unwrap_or_default();
                let Some(word) = self.held.strip_suffix(before) else {
                    return Step::More;
                };
                let is_string = word == "true";
                let State::BeforeValue(kind) = mem::replace(&mut self.state, State::Between) else {
                    return Step::More;
                };
                self.held.clear();
                let kind = match self.style.tells_strings {
                    true => kind.narrowed(is_string),
                    false => kind,
                };
                self.begin_value(kind, json);
            }
            State::Whole(kind) => {
                if let Some(text) = self.held.strip_suffix(self.style.close) {
                    let on_own_lines = self.style.on_own_lines;
                    let read = (self.kinds).json(&self.name, kind, text, on_own_lines, &self.told);
                    json.push_str(&read);
                    self.end_value();
                }
            }
            State::Text { .. } => self.text(json),
            State::Json { text, has_begun } => {
                let in_string = text.in_string;
                text.push(c);
                let rest = self.held.trim_start();
                if !in_string && rest.starts_with(self.style.close) {
                    self.end_value();
                } else if in_string || text.in_string || !self.style.close.starts_with(rest) {
                    json.push_str(if *has_begun { &self.held } else { rest });
                    *has_begun = true;
                    self.held.clear();
                }
            }
        }
        Step::More
    }

    /// Reads what a parameter or the end begins with.
    fn between(&mut self, json: &mut String) -> Step {
        if self.held.trim_start().is_empty() {
            self.held.clear();
        } else if self.held == self.style.open {
            self.held.clear();
            self.state = State::Name;
        } else if self.held == self.close {
            json.push('}');
            return Step::Over {
                closed: self.close_len,
            };
        }
        Step::More
    }

    fn begin_value(&mut self, kind: ParameterKind, json: &mut String) {
        self.state = match kind {
            kind if kind.is_told_whole() => State::Whole(kind),
            kind if kind.is_string => {
                json.push('"');
                State::Text { has_begun: false }
            }
            _ => State::Json {
                text: JsonText::default(),
                has_begun: false,
            },
        };
    }

    fn end_value(&mut self) {
        self.held.clear();
        self.state = State::Between;
    }

    /// Tells of a string what can't be a part of its end.
    fn text(&mut self, json: &mut String) {
        let State::Text { has_begun } = &mut self.state else {
            return;
        };
        let on_own_lines = self.style.on_own_lines;
        if on_own_lines && !*has_begun && self.held == "\n" {
            *has_begun = true;
            self.held.clear();
            return;
        }
        *has_begun = true;
        if let Some(text) = self.held.strip_suffix(self.style.close) {
            let text = match on_own_lines {
                true => text.strip_suffix('\n').unwrap_or(text),
                false => text,
            };
            push_escaped(json, text);
            json.push('"');
            self.end_value();
            return;
        }
        let kept = kept_bytes(&self.held, self.style.close, on_own_lines);
        let told = self.held.len() - kept;
        push_escaped(json, self.held.get(..told).unwrap_or_default());
        self.held.drain(..told);
    }
}

/// How many bytes at the end of a text may belong to its end: a part of `close`, and a line end before it.
fn kept_bytes(text: &str, close: &str, on_own_lines: bool) -> usize {
    let mut part = close.len().min(text.len());
    while part > 0 {
        let is_part = |at: &str| close.starts_with(at);
        if text.get(text.len() - part..).is_some_and(is_part) {
            break;
        }
        part -= 1;
    }
    let before = text.get(..text.len() - part).unwrap_or_default();
    part + usize::from(on_own_lines && before.ends_with('\n'))
}

/// Adds a text as a part of a JSON string.
pub(super) fn push_escaped(json: &mut String, text: &str) {
    let is_plain = |c: char| c >= ' ' && c != '"' && c != '\\';
    if text.chars().all(is_plain) {
        return json.push_str(text);
    }
    let quoted = Value::from(text).to_string();
    json.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
}
