//! Calls out of the text of an answer, as it comes.

mod arguments;
mod parameter_kinds;
mod python_arguments;
#[cfg(test)]
mod tests;
mod validator;
mod xml_arguments;

use std::mem;
use std::sync::Arc;

use super::tool_format::{Found, Match, Openings};
use crate::random::random_u64;
use arguments::{ArgumentReader, Step};
pub(super) use parameter_kinds::ParameterKinds;

/// What an answer is made of, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerPart {
    /// More text for the reader.
    Content(String),
    /// A call begins.
    Call {
        /// Of this function.
        name: String,
        /// Its id, where the model's template wants one of a form of its own.
        id: Option<String>,
    },
    /// More of the last call's arguments: a JSON text in the end.
    Arguments(String),
}

/// Reads calls out of one answer, whose constraint guarantees the form of each. The answer may come
/// in any pieces and end anywhere.
///
/// White space beside a call is no content. Linear in the answer, times the number of functions where
/// a call may begin.
#[derive(Debug)]
pub(crate) struct ToolParser {
    openings: Openings,
    state: State,
    /// Text that may be the beginning of a call.
    pending: String,
    /// White space that is content if more content follows, or nothing.
    white_space: String,
    num_calls: usize,
    /// True if text for the reader has come.
    has_content: bool,
    /// True if nothing but white space has come since the last call.
    beside_call: bool,
    /// True if a preamble has just ended.
    is_behind_preamble: bool,
}

#[derive(Debug)]
enum State {
    /// Outside of calls.
    Text,
    /// In text for the user before the answer or calls.
    Preamble,
    /// In the arguments of a call in this spelling.
    Arguments(ArgumentReader, usize),
    /// In what closes a call: so many of its bytes are to come.
    Closing(usize),
}

impl ToolParser {
    /// The parser of an answer whose calls open like this.
    pub(crate) fn new(openings: Openings) -> Self {
        Self {
            openings,
            state: State::Text,
            pending: String::new(),
            white_space: String::new(),
            num_calls: 0,
            has_content: false,
            beside_call: false,
            is_behind_preamble: false,
        }
    }

    /// True if a call has begun.
    pub(crate) fn has_calls(&self) -> bool {
        self.num_calls > 0
    }

    /// Takes the answer's next text; with `finished` its last.
    pub(crate) fn push(&mut self, text: &str, finished: bool) -> Vec<AnswerPart> {
        let mut parts = Vec::new();
        let mut rest = mem::take(&mut self.pending);
        rest.push_str(text);
        let mut rest = rest.as_str();
        while !rest.is_empty() {
            let taken = match mem::replace(&mut self.state, State::Text) {
                State::Text => self.text(rest, finished, &mut parts),
                State::Preamble => self.preamble(rest, finished, &mut parts),
                State::Arguments(reader, spelling) => {
                    Some(self.arguments(reader, spelling, rest, &mut parts))
                }
                State::Closing(left) => {
                    let taken = left.min(rest.len());
                    if taken < left {
                        self.state = State::Closing(left - taken);
                    }
                    Some(taken)
                }
            };
            let Some(taken) = taken else {
                self.pending = rest.to_owned();
                break;
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        if finished {
            self.finish(&mut parts);
        }
        parts
    }

    /// Takes text outside of calls: up to the end of the next opening, or as much as can't be part
    /// of one. Returns how many bytes it took; `None` where it takes more to tell.
    fn text(&mut self, text: &str, finished: bool, parts: &mut Vec<AnswerPart>) -> Option<usize> {
        let is_first = self.num_calls == 0;
        if is_first && !self.has_content {
            let format = Arc::clone(&self.openings.format);
            let preamble = format.preamble.as_ref().map(|preamble| &preamble.begin);
            let headers = [Some(&format.text), preamble];
            let mut is_begun = false;
            for header in headers
                .into_iter()
                .flatten()
                .filter(|text| !text.is_empty())
            {
                if text.starts_with(header.as_str()) {
                    // A line end between two texts for the user.
                    if mem::take(&mut self.is_behind_preamble) {
                        self.white_space.push('\n');
                    }
                    self.has_content = true;
                    if Some(header) == preamble {
                        self.state = State::Preamble;
                    }
                    return Some(header.len());
                }
                is_begun |= header.starts_with(text);
            }
            if is_begun && !finished {
                return None;
            }
        }
        for (at, _) in text.char_indices() {
            let text_before = at > 0 || self.has_content || !self.white_space.is_empty();
            if !self.openings.may_begin(is_first, text_before) {
                break;
            }
            let (before, rest) = text.split_at(at);
            match self.openings.find(rest, is_first, finished) {
                Match::No => {}
                Match::Begun => {
                    self.content(before, parts);
                    return (at > 0).then_some(at);
                }
                Match::Full(found) => {
                    self.content(before, parts);
                    self.begin_call(found, parts);
                    return Some(at + found.len);
                }
            }
        }
        self.content(text, parts);
        Some(text.len())
    }

    /// Takes text up to the end of a preamble and that end, or as much as can't be part of it. Returns how many bytes it
    /// took; `None` where it takes more to tell.
    fn preamble(
        &mut self,
        text: &str,
        finished: bool,
        parts: &mut Vec<AnswerPart>,
    ) -> Option<usize> {
        let format = Arc::clone(&self.openings.format);
        let end = format
            .preamble
            .as_ref()
            .map_or("", |preamble| &preamble.end);
        if let Some(at) = text.find(end) {
            self.content(text.get(..at).unwrap_or_default(), parts);
            self.white_space.clear();
            self.has_content = false;
            self.is_behind_preamble = true;
            return Some(at + end.len());
        }
        self.state = State::Preamble;
        let may_end = |at: &usize| {
            let rest = text.get(*at..);
            !finished && rest.is_some_and(|rest| end.starts_with(rest))
        };
        let taken = (0..text.len()).find(may_end).unwrap_or(text.len());
        self.content(text.get(..taken).unwrap_or_default(), parts);
        (taken > 0).then_some(taken)
    }

    /// Begins a call.
    fn begin_call(&mut self, found: Found<'_>, parts: &mut Vec<AnswerPart>) {
        self.white_space.clear();
        self.beside_call = true;
        let close = self.openings.close(found.spelling);
        let Some(function) = self.openings.function(found.function) else {
            return;
        };
        let style = self.openings.format.arguments;
        let reader = ArgumentReader::new(style, function.kinds.clone(), close);
        let name = function.name.clone();
        let id = self.openings.format.id.as_ref().map(|id| {
            let mut id = id.replace("{name}", &name);
            if let Some((kind, number)) = found.number {
                id = id.replace(kind.placeholder(), number);
            }
            id.replace("{index}", &self.num_calls.to_string())
                .replace("{letters}", &nine_letters())
        });
        self.num_calls += 1;
        self.state = State::Arguments(reader, found.spelling);
        parts.push(AnswerPart::Call { name, id });
    }

    /// Takes text for the reader. White space at its end waits for what follows.
    fn content(&mut self, text: &str, parts: &mut Vec<AnswerPart>) {
        if self.num_calls > 0 && !self.openings.has_text_after() {
            return;
        }
        let text = match self.beside_call {
            true => text.trim_start(),
            false => text,
        };
        let (words, white_space) = text.split_at(text.trim_end().len());
        if words.is_empty() {
            self.white_space.push_str(white_space);
            return;
        }
        self.beside_call = false;
        let mut content = mem::take(&mut self.white_space);
        content.push_str(words);
        self.has_content = true;
        self.white_space.push_str(white_space);
        parts.push(AnswerPart::Content(content));
    }

    /// Takes arguments; returns how many bytes they were.
    fn arguments(
        &mut self,
        mut reader: ArgumentReader,
        spelling: usize,
        text: &str,
        parts: &mut Vec<AnswerPart>,
    ) -> usize {
        let mut arguments = String::new();
        let mut over = None;
        for (at, c) in text.char_indices() {
            if let Step::Over { closed } = reader.push(c, &mut arguments) {
                over = Some((at + c.len_utf8(), closed));
                break;
            }
        }
        if !arguments.is_empty() {
            parts.push(AnswerPart::Arguments(arguments));
        }
        let Some((end, closed)) = over else {
            self.state = State::Arguments(reader, spelling);
            return text.len();
        };
        let left = self.openings.close(spelling).len().saturating_sub(closed);
        if left > 0 {
            self.state = State::Closing(left);
        }
        end
    }

    /// Gives out what was held back. The beginning of a call that was cut off before its function's
    /// name was complete is nobody's.
    fn finish(&mut self, parts: &mut Vec<AnswerPart>) {
        let pending = mem::take(&mut self.pending);
        if self.openings.is_certain(&pending) {
            self.white_space.clear();
        } else {
            self.content(&pending, parts);
        }
        let white_space = mem::take(&mut self.white_space);
        if !white_space.is_empty() {
            parts.push(AnswerPart::Content(white_space));
        }
    }
}

/// Nine random letters and digits, as ids of Mistral's templates are.
fn nine_letters() -> String {
    let (mut random, mut letters) = (random_u64(), String::new());
    for _ in 0..9 {
        let digit = u32::try_from(random % 36).unwrap_or_default();
        letters.extend(char::from_digit(digit, 36));
        random /= 36;
    }
    letters
}
