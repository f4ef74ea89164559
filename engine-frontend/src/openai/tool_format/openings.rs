//! Where the calls of an answer begin.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::ToolCallFormat;
use super::call_text::CallNumber;
use crate::openai::tool_parser::ParameterKinds;

/// A function that may be called.
#[derive(Debug)]
pub(in crate::openai) struct Function {
    pub(in crate::openai) name: String,
    /// What its parameters may be, where the text of an argument doesn't tell.
    pub(in crate::openai) kinds: ParameterKinds,
}

/// What stands before the arguments of one function's call, in one spelling.
#[derive(Debug)]
struct Opening {
    /// All of it, or what stands before a number.
    text: String,
    /// The number behind it, and what stands behind that.
    number: Option<(CallNumber, String)>,
    function: usize,
    /// Which spelling of the format's calls.
    spelling: usize,
}

/// An opening in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::openai) struct Found<'a> {
    /// Its bytes.
    pub(in crate::openai) len: usize,
    /// The number of the call as it is written, if it is.
    pub(in crate::openai) number: Option<(CallNumber, &'a str)>,
    pub(in crate::openai) function: usize,
    pub(in crate::openai) spelling: usize,
}

/// How a text compares with openings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::openai) enum Match<'a> {
    /// It begins with none.
    No,
    /// It is the beginning of one, or of a longer one than it has.
    Begun,
    /// It begins with this one.
    Full(Found<'a>),
}

/// The openings of the calls in an answer, by a format and the functions that may be called.
#[derive(Debug, Clone)]
pub(crate) struct Openings {
    pub(in crate::openai) format: Arc<ToolCallFormat>,
    functions: Arc<[Function]>,
    /// What certainly begins a call.
    triggers: Arc<[String]>,
    first: Arc<[Opening]>,
    next: Arc<[Opening]>,
}

impl Openings {
    /// The openings of these functions' calls, each with the schema of its parameters.
    pub(crate) fn new<'a>(
        format: Arc<ToolCallFormat>,
        functions: impl IntoIterator<Item = (&'a str, &'a RawValue)>,
    ) -> Self {
        let functions = functions.into_iter().map(|(name, schema)| Function {
            name: name.to_owned(),
            kinds: match format.arguments.is_typed_by_schema() {
                true => {
                    ParameterKinds::new(serde_json::from_str(schema.get()).unwrap_or(Value::Null))
                }
                false => ParameterKinds::default(),
            },
        });
        let functions: Arc<[Function]> = functions.collect();
        let before_next = match format.position {
            super::Position::Anywhere => "",
            super::Position::End | super::Position::Whole => &format.separator,
        };
        let openings = |before: &str| {
            let mut openings = Vec::new();
            for (spelling, call) in format.call.iter().enumerate() {
                openings.extend(functions.iter().enumerate().map(|(i, function)| Opening {
                    text: format!("{before}{}", call.head_of(&function.name)),
                    number: (call.number()).map(|(kind, after)| (kind, after.to_owned())),
                    function: i,
                    spelling,
                }));
            }
            openings
        };
        let first = format.begin.iter().flat_map(|begin| openings(begin));
        let names = functions.iter().map(|function| function.name.as_str());
        Self {
            first: first.collect(),
            next: openings(before_next).into(),
            triggers: format.triggers(names).into(),
            functions: Arc::clone(&functions),
            format,
        }
    }

    /// A function by its number.
    pub(in crate::openai) fn function(&self, i: usize) -> Option<&Function> {
        self.functions.get(i)
    }

    /// What stands after the arguments of a call in this spelling.
    pub(in crate::openai) fn close(&self, spelling: usize) -> &str {
        let call = self.format.call.get(spelling);
        call.map_or("", |call| &call.close)
    }

    /// How a text compares with the openings of the first call, or of a later one. Linear in their number.
    pub(in crate::openai) fn find<'a>(
        &self,
        text: &'a str,
        is_first: bool,
        finished: bool,
    ) -> Match<'a> {
        let openings = if is_first { &self.first } else { &self.next };
        let mut best = Match::No;
        for opening in openings.iter() {
            match (opening.compare(text), &best) {
                (Match::No, _) => {}
                // A longer one may come.
                (Match::Begun, _) if !finished => return Match::Begun,
                (Match::Begun, Match::No) => best = Match::Begun,
                (Match::Begun, _) => {}
                (Match::Full(found), Match::Full(other)) if found.len <= other.len => {}
                (full @ Match::Full(_), _) => best = full,
            }
        }
        best
    }

    /// True if a call may begin after `text_before` has come.
    pub(in crate::openai) fn may_begin(&self, is_first: bool, text_before: bool) -> bool {
        !(is_first && text_before && self.format.position == super::Position::Whole)
    }

    /// True if what stands between calls, and after them, is text for the reader.
    pub(in crate::openai) fn has_text_after(&self) -> bool {
        self.format.position == super::Position::Anywhere
    }

    /// True if the beginning of a call can be nothing else any more.
    pub(in crate::openai) fn is_certain(&self, beginning: &str) -> bool {
        let mut triggers = self.triggers.iter();
        triggers.any(|trigger| beginning.starts_with(trigger.as_str()))
    }
}

impl Opening {
    fn compare<'a>(&self, text: &'a str) -> Match<'a> {
        let Some(rest) = text.strip_prefix(self.text.as_str()) else {
            return match self.text.starts_with(text) {
                true => Match::Begun,
                false => Match::No,
            };
        };
        let found = |len, number| {
            Match::Full(Found {
                len,
                number,
                function: self.function,
                spelling: self.spelling,
            })
        };
        let Some((kind, after)) = &self.number else {
            return found(self.text.len(), None);
        };
        let (number, rest) = kind.split(rest);
        if rest.is_empty() {
            return Match::Begun;
        }
        if !kind.is_whole(number) {
            return Match::No;
        }
        match rest.starts_with(after.as_str()) {
            true => found(
                self.text.len() + number.len() + after.len(),
                Some((*kind, number)),
            ),
            false if after.starts_with(rest) => Match::Begun,
            false => Match::No,
        }
    }
}
