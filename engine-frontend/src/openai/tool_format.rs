//! How models write calls, as data: one file a format, those in `tool_format/builtin` or a user's own.
//!
//! A format gives two things that must agree: the constraint that an answer is under
//! ([`structural_tag`]), and the [`Openings`] by which [`ToolParser`](super::tool_parser::ToolParser)
//! finds the calls in it. Everything of a call but its arguments is fixed text, so the parser compares
//! and never guesses.

mod call_text;
mod openings;
pub(super) mod python_grammar;
pub(super) mod structural_tag;
#[cfg(test)]
pub(super) mod tests;

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use tokenizer::ChatTemplate;

use crate::error::cut_short;
use crate::json_problem::json_problem;
use call_text::CallText;
pub(crate) use openings::Openings;
pub(super) use openings::{Found, Match};
pub(super) use structural_tag::{CallableFunction, Calls, MAX_WHITESPACE_IN_TAGS};

/// The formats that come with the engine.
static BUILTIN: LazyLock<Vec<Arc<ToolCallFormat>>> = LazyLock::new(|| {
    let formats = BUILTIN_FILES.iter();
    let formats = formats.filter_map(|text| ToolCallFormat::from_json(text).ok());
    formats.map(Arc::new).collect()
});

/// Files of the formats that come with the engine, in the order in which a chat template is compared with
/// them.
const BUILTIN_FILES: [&str; 20] = [
    include_str!("tool_format/builtin/hermes.json"),
    include_str!("tool_format/builtin/llama3_json.json"),
    include_str!("tool_format/builtin/llama4_pythonic.json"),
    include_str!("tool_format/builtin/pythonic.json"),
    include_str!("tool_format/builtin/mistral.json"),
    include_str!("tool_format/builtin/mistral_args.json"),
    include_str!("tool_format/builtin/mistral_call_id.json"),
    include_str!("tool_format/builtin/qwen3_coder.json"),
    include_str!("tool_format/builtin/seed_oss.json"),
    include_str!("tool_format/builtin/deepseek_v3.json"),
    include_str!("tool_format/builtin/deepseek_v31.json"),
    include_str!("tool_format/builtin/deepseek_v32.json"),
    include_str!("tool_format/builtin/glm45.json"),
    include_str!("tool_format/builtin/glm47.json"),
    include_str!("tool_format/builtin/kimi_k2.json"),
    include_str!("tool_format/builtin/minimax.json"),
    include_str!("tool_format/builtin/minimax_m2.json"),
    include_str!("tool_format/builtin/phi4_mini_json.json"),
    include_str!("tool_format/builtin/openai.json"),
    include_str!("tool_format/builtin/list.json"),
];

/// The format of forced calls where the model's own isn't known.
const FALLBACK: &str = "list";

/// Where calls stand in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Position {
    /// Each by itself, text before, between and after them.
    Anywhere,
    /// All together, behind text or without; nothing follows.
    End,
    /// An answer is calls, or has none.
    Whole,
}

/// How arguments are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ArgumentStyle {
    /// A JSON object.
    Json,
    /// Members as tags: the style of that name of structural tags.
    QwenXml,
    /// The same, MiniMax's.
    MinimaxXml,
    /// The same, GLM's.
    GlmXml,
    /// The same, DeepSeek's.
    DeepseekXml,
    /// Keyword arguments of a Python call, whose values are literals.
    Python,
}

/// Marks by which a chat template is known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateMarks {
    /// Texts that its source has, all of them.
    has: Vec<String>,
    /// Texts that its source doesn't have.
    #[serde(default)]
    lacks: Vec<String>,
}

/// What stands around text for the user that comes before an answer or calls.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preamble {
    pub(super) begin: String,
    pub(super) end: String,
}

/// A format as its file has it; `docs/tool-formats.md` describes the fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCallFormatFile {
    names: Vec<String>,
    #[serde(default, rename = "models")]
    _models: String,
    #[serde(default, rename = "source")]
    _source: String,
    #[serde(default)]
    template: Vec<TemplateMarks>,
    position: Position,
    #[serde(default)]
    trigger: Vec<String>,
    #[serde(default = "nothing")]
    begin: Vec<String>,
    call: Vec<String>,
    #[serde(default)]
    separator: String,
    #[serde(default = "nothing")]
    end: Vec<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    preamble: Option<Preamble>,
    arguments: ArgumentStyle,
    #[serde(default)]
    id: Option<String>,
    #[serde(default = "yes")]
    parallel: bool,
}

fn nothing() -> Vec<String> {
    vec![String::new()]
}

fn yes() -> bool {
    true
}

/// How a model writes calls.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolCallFormat {
    /// Its names for `--tool-call-parser`, at least one.
    names: Vec<String>,
    template: Vec<TemplateMarks>,
    pub(super) position: Position,
    /// Texts by which a call has begun for certain, each perhaps with `{name}`.
    trigger: Vec<String>,
    /// Spellings of what stands before all calls.
    begin: Vec<String>,
    /// Spellings of a call.
    call: Vec<CallText>,
    separator: String,
    /// Spellings of what stands after all calls.
    end: Vec<String>,
    /// What stands before the text of an answer that isn't calls.
    pub(super) text: String,
    pub(super) preamble: Option<Preamble>,
    pub(super) arguments: ArgumentStyle,
    /// How calls' ids are spelled, with `{name}`, `{index}` and `{letters}`; `None` for the API's own.
    pub(super) id: Option<String>,
    /// True if an answer may have several calls.
    parallel: bool,
}

impl ToolCallFormat {
    /// The format that comes with the engine under this name of `--tool-call-parser`.
    ///
    /// # Errors
    /// The names that there are.
    pub fn from_name(name: &str) -> Result<Arc<Self>, String> {
        let has_name = |format: &&Arc<Self>| format.names.iter().any(|known| known == name);
        let found = BUILTIN.iter().find(has_name);
        found.cloned().ok_or_else(|| {
            let names = Self::names().collect::<Vec<_>>().join(", ");
            format!("must be one of auto, {names}; or give a format by --tool-format-file")
        })
    }

    /// All names of the formats that come with the engine.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let names = BUILTIN.iter().flat_map(|format| &format.names);
        names.map(String::as_str)
    }

    /// The format of forced calls where the model's own isn't known.
    pub(super) fn fallback() -> Option<Arc<Self>> {
        Self::from_name(FALLBACK).ok()
    }

    /// The format that a chat template writes earlier calls in; `None` where it is none of those
    /// known here.
    pub fn of_template(template: &ChatTemplate) -> Option<Arc<Self>> {
        let is_met = |marks: &TemplateMarks| {
            marks.has.iter().all(|text| template.mentions(text))
                && !marks.lacks.iter().any(|text| template.mentions(text))
        };
        let found = BUILTIN.iter().find(|f| f.template.iter().any(is_met));
        found.cloned()
    }

    /// Reads a format's file.
    ///
    /// # Errors
    /// The field at fault, and what would be right.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let file: ToolCallFormatFile =
            serde_json::from_str(text).map_err(|error| json_problem(&error))?;
        Self::from_file(file)
    }

    fn from_file(file: ToolCallFormatFile) -> Result<Self, String> {
        for (field, list) in [
            ("names", &file.names),
            ("begin", &file.begin),
            ("call", &file.call),
            ("end", &file.end),
        ] {
            if list.is_empty() {
                return Err(format!("`{field}` is empty: give at least one text"));
            }
        }
        let mut call = Vec::with_capacity(file.call.len());
        for (i, text) in file.call.iter().enumerate() {
            let read = CallText::parse(text, file.arguments);
            call.push(read.map_err(|problem| format!("`call[{i}]` {problem}"))?);
        }
        let mut format = Self {
            names: file.names,
            template: file.template,
            position: file.position,
            trigger: file.trigger,
            begin: file.begin,
            call,
            separator: file.separator,
            end: file.end,
            text: file.text,
            preamble: file.preamble,
            arguments: file.arguments,
            id: file.id,
            parallel: file.parallel,
        };
        format.check()?;
        if format.trigger.is_empty() {
            format.trigger = format.own_trigger();
        }
        format.check_triggers()?;
        Ok(format)
    }

    /// Refuses fields that don't go together.
    fn check(&self) -> Result<(), String> {
        if self.position == Position::Anywhere {
            for (field, list) in [("begin", &self.begin), ("end", &self.end)] {
                if let Some(text) = list.iter().find(|text| !text.is_empty()) {
                    return Err(format!(
                        "`{field}` has {:?}, but calls stand by themselves where `position` is \
                         \"anywhere\": put it into `call`, or use \"end\"",
                        cut_short(text)
                    ));
                }
            }
        }
        if self.position == Position::Anywhere && !self.separator.trim().is_empty() {
            return Err(format!(
                "`separator` is {:?}, but must be white space where `position` is \"anywhere\": \
                 other text between calls is the answer's",
                cut_short(&self.separator)
            ));
        }
        if !self.text.is_empty() && self.position != Position::Whole {
            return Err("`text` needs the `position` \"whole\"".to_owned());
        }
        if let Some(preamble) = &self.preamble {
            if self.text.is_empty() {
                return Err("`preamble` needs `text`, which tells an answer from it".to_owned());
            }
            for (field, text) in [("begin", &preamble.begin), ("end", &preamble.end)] {
                if text.is_empty() {
                    return Err(format!("`preamble.{field}` is empty: give a text"));
                }
            }
        }
        if self.call.iter().any(CallText::begins_with_name)
            && self.begin.iter().any(String::is_empty)
        {
            return Err(
                "`call` begins with {name}: give a text before it, or a `begin`".to_owned(),
            );
        }
        Ok(())
    }

    /// The texts by which a call is known, where the file doesn't give them.
    fn own_trigger(&self) -> Vec<String> {
        let mut triggers: Vec<String> = match self.position {
            Position::Anywhere => self.call.iter().map(CallText::before_name).collect(),
            Position::End => self.begin.clone(),
            Position::Whole => {
                let heads = self.call.iter().map(CallText::head);
                let spelled = heads.flat_map(|head| {
                    let begin = self.begin.iter();
                    begin.map(move |begin| format!("{begin}{head}"))
                });
                spelled.collect()
            }
        };
        triggers.sort();
        triggers.dedup();
        triggers
    }

    /// Each call begins with one of the triggers, as the constraint needs it.
    fn check_triggers(&self) -> Result<(), String> {
        if self.trigger.iter().any(String::is_empty) {
            return Err("`trigger` has an empty text, which is everywhere".to_owned());
        }
        let heads: Vec<String> = match self.position {
            Position::Anywhere => self.call.iter().map(CallText::before_name).collect(),
            Position::End => self.begin.clone(),
            Position::Whole => return Ok(()),
        };
        for head in heads {
            let triggers = self.trigger.iter().filter(|t| head.starts_with(*t));
            if triggers.count() != 1 {
                return Err(format!(
                    "`trigger` must have one text with which {:?} begins, no more and no fewer",
                    cut_short(&head)
                ));
            }
        }
        Ok(())
    }

    /// The triggers with the names of these functions in them.
    fn triggers<'a>(&self, names: impl IntoIterator<Item = &'a str> + Clone) -> Vec<String> {
        let mut triggers = Vec::new();
        for trigger in &self.trigger {
            if trigger.contains(call_text::NAME) {
                let named = names.clone().into_iter();
                triggers.extend(named.map(|name| trigger.replace(call_text::NAME, name)));
            } else {
                triggers.push(trigger.clone());
            }
        }
        triggers
    }
}
