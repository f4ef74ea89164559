//! A call's arguments as JSON, whatever they are written in.

use super::parameter_kinds::ParameterKinds;
use super::python_arguments::PythonArguments;
use super::xml_arguments::{XmlArguments, XmlStyle};
use crate::openai::tool_format::ArgumentStyle;

/// What a character did to the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// More is to come.
    More,
    /// They are over. So many bytes of what closes the call have been read.
    Over { closed: usize },
}

/// Reads a call's arguments, character by character.
#[derive(Debug)]
pub(super) enum ArgumentReader {
    Json(JsonText),
    Xml(Box<XmlArguments>),
    Python(PythonArguments),
}

impl ArgumentReader {
    /// The reader of arguments in a style, which `close` follows.
    pub(super) fn new(style: ArgumentStyle, kinds: ParameterKinds, close: &str) -> Self {
        let xml = |style| Self::Xml(Box::new(XmlArguments::new(style, kinds, close)));
        match style {
            ArgumentStyle::Json => Self::Json(JsonText::default()),
            ArgumentStyle::Python => Self::Python(PythonArguments::default()),
            ArgumentStyle::QwenXml => xml(XmlStyle::QWEN),
            ArgumentStyle::MinimaxXml => xml(XmlStyle::MINIMAX),
            ArgumentStyle::GlmXml => xml(XmlStyle::GLM),
            ArgumentStyle::DeepseekXml => xml(XmlStyle::DEEPSEEK),
        }
    }

    /// Takes the next character, and adds what it makes of the JSON text to `json`.
    pub(super) fn push(&mut self, c: char, json: &mut String) -> Step {
        match self {
            Self::Json(text) => {
                json.push(c);
                match text.push(c) {
                    true => Step::Over { closed: 0 },
                    false => Step::More,
                }
            }
            Self::Xml(arguments) => arguments.push(c, json),
            Self::Python(arguments) => arguments.push(c, json),
        }
    }
}

/// The place in a JSON value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JsonText {
    /// Open brackets and braces.
    depth: u32,
    pub(super) in_string: bool,
    escaped: bool,
}

impl JsonText {
    /// Takes the next character; true if it is the last of an object or array.
    pub(super) fn push(&mut self, c: char) -> bool {
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
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// True outside of strings, objects and arrays.
    pub(super) fn is_outside(self) -> bool {
        self.depth == 0 && !self.in_string
    }
}
