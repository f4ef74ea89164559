//! Keyword arguments of a Python call as JSON. Strings are JSON strings, as the constraint has them, which
//! are Python's too; `True`, `False` and `None` are the only words.

use super::arguments::{JsonText, Step};

/// Reads `a="x", b=[True]` up to the closing parenthesis.
#[derive(Debug, Default)]
pub(super) struct PythonArguments {
    state: State,
    /// A parameter's name, or a word of a value.
    word: String,
    /// True if the opening brace is written.
    has_begun: bool,
    /// True if a parameter is written.
    has_parameters: bool,
}

#[derive(Debug, Default)]
enum State {
    /// In a parameter's name, or before it.
    #[default]
    Name,
    Value(JsonText),
}

impl PythonArguments {
    /// Takes the next character.
    pub(super) fn push(&mut self, c: char, json: &mut String) -> Step {
        if !std::mem::replace(&mut self.has_begun, true) {
            json.push('{');
        }
        match &mut self.state {
            State::Name => self.name(c, json),
            State::Value(text) => {
                let is_outside = text.is_outside();
                if !text.in_string {
                    if c.is_ascii_alphabetic() {
                        self.word.push(c);
                        return Step::More;
                    }
                    let word = std::mem::take(&mut self.word);
                    json.push_str(json_word(&word));
                }
                match c {
                    ')' if is_outside => {
                        json.push('}');
                        return Step::Over { closed: 1 };
                    }
                    ',' if is_outside => self.state = State::Name,
                    c => {
                        text.push(c);
                        json.push(c);
                    }
                }
                Step::More
            }
        }
    }

    fn name(&mut self, c: char, json: &mut String) -> Step {
        match c {
            ')' => {
                json.push('}');
                return Step::Over { closed: 1 };
            }
            '=' => {
                if std::mem::replace(&mut self.has_parameters, true) {
                    json.push_str(", ");
                }
                let name = serde_json::Value::from(std::mem::take(&mut self.word));
                json.push_str(&format!("{name}: "));
                self.state = State::Value(JsonText::default());
            }
            c if c.is_whitespace() => {}
            c => self.word.push(c),
        }
        Step::More
    }
}

/// A word of Python as JSON has it. Other letters are the exponents of numbers.
fn json_word(word: &str) -> &str {
    match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    }
}
