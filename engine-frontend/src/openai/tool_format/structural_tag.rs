//! The constraint that a format for calls puts on an answer: a structural tag.

use serde::Serialize;
use serde_json::value::RawValue;

use super::call_text::{CallText, NAME};
use super::{ArgumentStyle, Position, ToolCallFormat};

/// A function that may be called.
#[derive(Debug)]
pub(in crate::openai) struct CallableFunction<'a> {
    pub(in crate::openai) name: &'a str,
    /// The schema of its parameters.
    pub(in crate::openai) schema: &'a RawValue,
    /// The grammar of its arguments where they are Python's.
    pub(in crate::openai) grammar: Option<String>,
}

/// Whether an answer must have calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::openai) enum Calls {
    /// Where the model begins one.
    Possible,
    /// Nothing else.
    Only,
}

impl ArgumentStyle {
    /// The style's name in structural tags.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Json | Self::Python => None,
            Self::QwenXml => Some("qwen_xml"),
            Self::MinimaxXml => Some("minimax_xml"),
            Self::GlmXml => Some("glm_xml"),
            Self::DeepseekXml => Some("deepseek_xml"),
        }
    }

    /// True if only a schema says what the text of an argument is.
    pub(super) fn is_typed_by_schema(self) -> bool {
        matches!(
            self,
            Self::QwenXml | Self::MinimaxXml | Self::GlmXml | Self::DeepseekXml
        )
    }
}

impl ToolCallFormat {
    /// The structural tag of an answer with calls of these functions. `answer` is the format of an answer
    /// without: any text where absent. `parallel` says whether several calls will do.
    pub(in crate::openai) fn structural_tag<'a>(
        &'a self,
        functions: &'a [CallableFunction<'a>],
        calls: &Calls,
        answer: Option<Box<RawValue>>,
        parallel: bool,
    ) -> StructuralTag<'a> {
        let parallel = parallel && self.parallel;
        let format = match (calls, answer) {
            (Calls::Only, _) => self.calls_only(functions, parallel),
            (Calls::Possible, Some(answer)) => {
                let answer = self.in_text(Format::Given(answer));
                either(answer, self.calls_only(functions, parallel))
            }
            (Calls::Possible, None) if self.position == Position::Whole => {
                let pattern = match self.text.is_empty() {
                    true => self.no_call(),
                    false => r"[\s\S]*".to_owned(),
                };
                let answer = self.in_text(Format::Regex { pattern });
                let answer = either(answer, self.calls_only(functions, parallel));
                match self.preambles() {
                    Some(preambles) => sequence(vec![preambles, answer]),
                    None => answer,
                }
            }
            (Calls::Possible, None) => self.calls_in_text(functions, parallel),
        };
        StructuralTag::StructuralTag { format }
    }

    /// What an answer is whose text is this.
    fn in_text<'a>(&'a self, text: Format<'a>) -> Format<'a> {
        match self.text.is_empty() {
            true => text,
            false => sequence(vec![const_string(&self.text), text]),
        }
    }

    /// Any number of texts for the user before an answer that is free, or calls. A constraint holds for all that the user
    /// gets, so there are none beside it.
    fn preambles(&self) -> Option<Format<'_>> {
        let preamble = self.preamble.as_ref()?;
        let content = Box::new(Format::Tag(Tag {
            begin: preamble.begin.clone(),
            content: Box::new(Format::AnyText {}),
            end: &preamble.end,
        }));
        Some(Format::Star { content })
    }

    /// A pattern of any text that doesn't begin as a call does, of whatever function.
    fn no_call(&self) -> String {
        let trigger = |text: &String| {
            let parts: Vec<String> = text.split(NAME).map(literal_pattern).collect();
            parts.join("[a-zA-Z0-9_-]+")
        };
        let triggers: Vec<String> = self.trigger.iter().map(trigger).collect();
        format!(r"(?!{})[\s\S]*", triggers.join("|"))
    }

    /// Text with calls in it.
    fn calls_in_text<'a>(
        &'a self,
        functions: &'a [CallableFunction<'a>],
        parallel: bool,
    ) -> Format<'a> {
        let (triggers, tags) = match self.position {
            Position::Anywhere => (self.trigger.iter().collect(), self.tags(functions)),
            Position::End | Position::Whole => self.tags_of_lists(functions, parallel),
        };
        Format::TriggeredTags {
            triggers: triggers.into_iter().map(String::as_str).collect(),
            tags,
            stop_after_first: !parallel || self.position != Position::Anywhere,
        }
    }

    /// A tag for each trigger by which lists of calls begin.
    fn tags_of_lists<'a>(
        &'a self,
        functions: &'a [CallableFunction<'a>],
        parallel: bool,
    ) -> (Vec<&'a String>, Vec<Tag<'a>>) {
        let mut tags = Vec::new();
        let mut used = Vec::new();
        for trigger in &self.trigger {
            let rests = self
                .begin
                .iter()
                .filter_map(|b| b.strip_prefix(trigger.as_str()));
            let rests: Vec<&str> = rests.collect();
            if rests.is_empty() {
                continue;
            }
            let mut elements = vec![spelled(&rests), self.list_of_calls(functions, parallel)];
            let (end, more) = match self.end.as_slice() {
                [end] => (end.as_str(), None),
                ends => ("", Some(ends)),
            };
            if let Some(ends) = more {
                let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
                elements.push(spelled(&ends));
            }
            used.push(trigger);
            tags.push(Tag {
                begin: trigger.clone(),
                content: Box::new(sequence(elements)),
                end,
            });
        }
        (used, tags)
    }

    /// Nothing but calls, at least one.
    fn calls_only<'a>(
        &'a self,
        functions: &'a [CallableFunction<'a>],
        parallel: bool,
    ) -> Format<'a> {
        let texts =
            |list: &'a [String]| spelled(&list.iter().map(String::as_str).collect::<Vec<_>>());
        sequence(vec![
            texts(&self.begin),
            self.list_of_calls(functions, parallel),
            texts(&self.end),
        ])
    }

    /// Calls one after the other.
    fn list_of_calls<'a>(
        &'a self,
        functions: &'a [CallableFunction<'a>],
        parallel: bool,
    ) -> Format<'a> {
        Format::TagsWithSeparator {
            tags: self.tags(functions),
            separator: &self.separator,
            at_least_one: true,
            stop_after_first: !parallel,
        }
    }

    /// A tag per spelling and function, the functions of the first spelling first.
    fn tags<'a>(&'a self, functions: &'a [CallableFunction<'a>]) -> Vec<Tag<'a>> {
        let of_spelling = |call: &'a CallText| {
            functions.iter().map(move |function| Tag {
                begin: call.head_of(function.name),
                content: Box::new(match call.number() {
                    None => self.arguments_of(function),
                    Some((kind, after)) => sequence(vec![
                        Format::Regex {
                            pattern: kind.pattern().to_owned(),
                        },
                        const_string(after),
                        self.arguments_of(function),
                    ]),
                }),
                end: &call.close,
            })
        };
        self.call.iter().flat_map(of_spelling).collect()
    }

    fn arguments_of<'a>(&self, function: &'a CallableFunction<'a>) -> Format<'a> {
        match &function.grammar {
            Some(grammar) => Format::Grammar { grammar },
            None => {
                let style = self.arguments.name();
                Format::JsonSchema {
                    json_schema: function.schema,
                    style,
                    max_whitespace_cnt: style.map(|_| MAX_WHITESPACE_IN_TAGS),
                }
            }
        }
    }

    /// Where the answer without calls stands in a structural tag that has one: a JSON pointer.
    pub(in crate::openai) fn place_of_answer(&self) -> &'static str {
        match self.text.is_empty() {
            true => "/format/elements/0",
            false => "/format/elements/0/elements/1",
        }
    }

    /// Where a function's arguments stand, from its tag on: a JSON pointer.
    pub(in crate::openai) fn place_of_arguments(&self) -> &'static str {
        let is_numbered = self.call.first().is_some_and(|c| c.number().is_some());
        match is_numbered {
            true => "/content/elements/2",
            false => "/content",
        }
    }
}

/// Most signs of white space in one place of arguments that are tags. Templates write one line end; without a bound a small
/// model may write line ends until its tokens are used up.
pub(in crate::openai) const MAX_WHITESPACE_IN_TAGS: u32 = 2;

/// A text as a pattern of it alone.
fn literal_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            pattern.push('\\');
        }
        match c {
            '\n' => pattern.push_str("\\n"),
            c => pattern.push(c),
        }
    }
    pattern
}

/// A structural tag as it is written. Schemas stand in it as text: as values they would take many times
/// the memory.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::openai) enum StructuralTag<'a> {
    /// The only kind.
    StructuralTag {
        /// What an answer is.
        format: Format<'a>,
    },
}

/// A format of structural tags, of those that calls need.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::openai) enum Format<'a> {
    ConstString {
        value: &'a str,
    },
    Regex {
        pattern: String,
    },
    Grammar {
        grammar: &'a str,
    },
    JsonSchema {
        json_schema: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        style: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_whitespace_cnt: Option<u32>,
    },
    Sequence {
        elements: Vec<Format<'a>>,
    },
    Or {
        elements: Vec<Format<'a>>,
    },
    TagsWithSeparator {
        tags: Vec<Tag<'a>>,
        separator: &'a str,
        at_least_one: bool,
        stop_after_first: bool,
    },
    AnyText {},
    Star {
        content: Box<Format<'a>>,
    },
    Tag(Tag<'a>),
    TriggeredTags {
        triggers: Vec<&'a str>,
        tags: Vec<Tag<'a>>,
        stop_after_first: bool,
    },
    /// The request's own.
    #[serde(untagged)]
    Given(Box<RawValue>),
}

/// Text between two fixed ones.
#[derive(Debug, Serialize)]
pub(in crate::openai) struct Tag<'a> {
    begin: String,
    content: Box<Format<'a>>,
    end: &'a str,
}

impl StructuralTag<'_> {
    /// Where the functions stand, in their order: a JSON pointer to the list.
    pub(in crate::openai) fn place_of_functions(&self) -> String {
        let Self::StructuralTag { format } = self;
        format!("/format{}", format.place_of_functions().unwrap_or_default())
    }
}

impl Format<'_> {
    fn place_of_functions(&self) -> Option<String> {
        match self {
            Self::Sequence { elements } | Self::Or { elements } => {
                let places = elements.iter().enumerate();
                let mut places = places.filter_map(|(i, element)| {
                    Some(format!("/elements/{i}{}", element.place_of_functions()?))
                });
                places.next()
            }
            Self::TagsWithSeparator { .. } => Some("/tags".to_owned()),
            Self::TriggeredTags { tags, .. } => {
                let inner = tags
                    .first()
                    .and_then(|tag| tag.content.place_of_functions());
                Some(inner.map_or_else(
                    || "/tags".to_owned(),
                    |inner| format!("/tags/0/content{inner}"),
                ))
            }
            Self::ConstString { .. }
            | Self::Regex { .. }
            | Self::Grammar { .. }
            | Self::JsonSchema { .. }
            | Self::AnyText {}
            | Self::Star { .. }
            | Self::Tag(_)
            | Self::Given(_) => None,
        }
    }
}

fn const_string(value: &str) -> Format<'_> {
    Format::ConstString { value }
}

/// One of several texts; where it is always the empty one, nothing.
fn spelled<'a>(texts: &[&'a str]) -> Format<'a> {
    let text = |text: &&'a str| match text.is_empty() {
        true => sequence(Vec::new()),
        false => const_string(text),
    };
    match texts {
        [only] => text(only),
        texts => Format::Or {
            elements: texts.iter().map(text).collect(),
        },
    }
}

/// Formats one after another, without those that are nothing.
fn sequence(mut elements: Vec<Format<'_>>) -> Format<'_> {
    let is_nothing = |format: &Format<'_>| matches!(format, Format::Sequence { elements } if elements.is_empty());
    elements.retain(|format| !is_nothing(format));
    match elements.len() {
        1 => elements.swap_remove(0),
        _ => Format::Sequence { elements },
    }
}

fn either<'a>(one: Format<'a>, other: Format<'a>) -> Format<'a> {
    Format::Or {
        elements: vec![one, other],
    }
}
