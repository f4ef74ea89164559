//! Calls out of the text of an answer, as it comes.

use std::mem;

use super::tool_format::Openings;

/// What an answer is made of, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerPart {
    /// More text for the reader.
    Content(String),
    /// A call of this function begins.
    Call(String),
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
    /// Whether text for the reader has come.
    has_content: bool,
    /// Whether nothing but white space has come since the last call.
    beside_call: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Outside of calls.
    Text,
    /// In a call's arguments.
    Arguments(Value),
    /// In what closes a call: this many of its bytes have come.
    Closing(usize),
}

/// Where a JSON value is being read.
#[derive(Debug, Clone, Copy, Default)]
struct Value {
    /// Open brackets and braces.
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Value {
    /// Takes the next character of an object; whether it is the last.
    fn push(&mut self, c: char) -> bool {
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
        }
    }

    /// Whether a call has begun.
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
            let taken = match self.state {
                State::Text => self.text(rest, &mut parts),
                State::Arguments(value) => self.arguments(value, rest, &mut parts),
                State::Closing(at) => self.closing(at, rest),
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
    fn text(&mut self, text: &str, parts: &mut Vec<AnswerPart>) -> Option<usize> {
        let is_first = self.num_calls == 0;
        for (at, _) in text.char_indices() {
            let text_before = at > 0 || self.has_content || !self.white_space.is_empty();
            if !self.openings.may_begin(is_first, text_before) {
                break;
            }
            let rest = text.get(at..).unwrap_or_default();
            let mut openings = self.openings.get(is_first).iter();
            let whole = openings
                .clone()
                .find(|(opening, _)| rest.starts_with(opening.as_str()));
            if let Some((opening, name)) = whole {
                let (len, name) = (opening.len(), name.clone());
                self.content(text.get(..at).unwrap_or_default(), parts);
                self.white_space.clear();
                self.beside_call = true;
                self.num_calls += 1;
                self.state = State::Arguments(Value::default());
                parts.push(AnswerPart::Call(name));
                return Some(at + len);
            }
            if openings.any(|(opening, _)| opening.starts_with(rest)) {
                self.content(text.get(..at).unwrap_or_default(), parts);
                return (at > 0).then_some(at);
            }
        }
        self.content(text, parts);
        Some(text.len())
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
        mut value: Value,
        text: &str,
        parts: &mut Vec<AnswerPart>,
    ) -> Option<usize> {
        let last = text.char_indices().find(|(_, c)| value.push(*c));
        let end = last.map_or(text.len(), |(at, c)| at + c.len_utf8());
        self.state = match last {
            Some(_) => State::Closing(0),
            None => State::Arguments(value),
        };
        let arguments = text.get(..end).unwrap_or_default();
        parts.push(AnswerPart::Arguments(arguments.to_owned()));
        Some(end)
    }

    /// Takes what closes a call; returns how many bytes that was.
    fn closing(&mut self, at: usize, text: &str) -> Option<usize> {
        let left = self.openings.close().len().saturating_sub(at);
        let taken = left.min(text.len());
        self.state = if taken == left {
            State::Text
        } else {
            State::Closing(at + taken)
        };
        Some(taken)
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

#[cfg(test)]
mod tests {
    use super::super::tool_format::ToolCallFormat;
    use super::*;

    /// Content, and calls with their arguments.
    type Answer = (String, Vec<(String, String)>);

    fn read(format: ToolCallFormat, pieces: &[&str]) -> Answer {
        let mut parser = ToolParser::new(Openings::new(format, ["a", "say \"hi\""]));
        let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
        for (i, piece) in pieces.iter().enumerate() {
            for part in parser.push(piece, i + 1 == pieces.len()) {
                match part {
                    AnswerPart::Content(text) => content.push_str(&text),
                    AnswerPart::Call(name) => calls.push((name, String::new())),
                    AnswerPart::Arguments(text) => calls.last_mut().unwrap().1.push_str(&text),
                }
            }
        }
        assert_eq!(parser.has_calls(), !calls.is_empty());
        (content, calls)
    }

    fn answer(content: &str, calls: &[(&str, &str)]) -> Answer {
        let calls = calls
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        (content.to_owned(), calls.collect())
    }

    const HARD: &str = r#"{"x": "}],\"{", "y": [1, {}]}"#;

    fn cases() -> Vec<(ToolCallFormat, String, Answer)> {
        use ToolCallFormat::{Hermes, List, Llama3Json, Mistral, MistralArgs};
        let both = &[("a", HARD), ("say \"hi\"", "{}")];
        let (one, two) = (
            format!(r#"{{"name": "a", "arguments": {HARD}}}"#),
            r#"{"name": "say \"hi\"", "arguments": {}}"#,
        );
        let parameters = |call: &str| call.replacen("arguments", "parameters", 1);
        let (one_p, two_p) = (parameters(&one), parameters(two));
        vec![
            (
                Hermes,
                format!(
                    "Well \n\n<tool_call>\n{one}\n</tool_call>\n<tool_call>\n{two}\n</tool_call> \nDone. "
                ),
                answer("WellDone. ", both),
            ),
            (
                Hermes,
                format!("<tool_call>\n{one}\n</tool_call>"),
                answer("", &both[..1]),
            ),
            (
                Hermes,
                " A <tool_cal>, <b> and {\"name\": \"a\", \"arguments\": <tool_".to_owned(),
                answer(
                    " A <tool_cal>, <b> and {\"name\": \"a\", \"arguments\": <tool_",
                    &[],
                ),
            ),
            (Hermes, " \n ".to_owned(), answer(" \n ", &[])),
            (Llama3Json, format!("{one_p}; {two_p}"), answer("", both)),
            (
                Llama3Json,
                format!("<|python_tag|>{one_p}"),
                answer("", &both[..1]),
            ),
            (
                Llama3Json,
                format!("So: {one_p}"),
                answer(&format!("So: {one_p}"), &[]),
            ),
            (
                Mistral,
                format!("Hm\n[TOOL_CALLS] [{one}, {two}]"),
                answer("Hm", both),
            ),
            (
                Mistral,
                format!("[TOOL_CALLS][{two}]"),
                answer("", &both[1..]),
            ),
            (
                MistralArgs,
                format!("[TOOL_CALLS]a[ARGS]{HARD}[TOOL_CALLS]say \"hi\"[ARGS]{{}}"),
                answer("", both),
            ),
            (List, format!("[{one_p}, {two_p}]"), answer("", both)),
        ]
    }

    #[test]
    fn calls_are_the_same_however_the_text_is_cut() {
        for (format, text, wanted) in cases() {
            assert_eq!(read(format, &[&text]), wanted, "{text}");
            for cut in 1..text.len() {
                let (a, b) = text.split_at(cut);
                assert_eq!(read(format, &[a, b]), wanted, "{a}|{b}");
            }
            let characters: Vec<String> = text.chars().map(String::from).collect();
            let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
            assert_eq!(read(format, &characters), wanted, "{text}");
        }
    }

    #[test]
    fn what_has_come_of_a_cut_off_answer_is_there() {
        for (format, text, (_, calls)) in cases() {
            for end in 0..text.len() {
                let (_, so_far) = read(format, &[&text[..end]]);
                for ((name, arguments), whole) in so_far.iter().zip(&calls) {
                    assert_eq!(name, &whole.0);
                    assert!(whole.1.starts_with(arguments.as_str()), "{}", &text[..end]);
                }
            }
        }
        let cut = read(ToolCallFormat::Hermes, &["Well.\n<tool_call>\n{\"na"]);
        assert_eq!(cut, answer("Well.", &[]));
    }
}
