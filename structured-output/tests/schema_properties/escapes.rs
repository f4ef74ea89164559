//! Schemas whose strings may be written with any escapes: a text is accepted if and only if what `serde_json` reads in it
//! is valid, however its characters are spelled.

use std::sync::LazyLock;

use serde_json::Value;
use structured_output::{Draft, GrammarCompiler, PropertyOrder};

use crate::place::within_memory;
use crate::random::{self, Random};
use crate::subject::{self, Subject, Validator};
use crate::walks;

pub(crate) static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| subject::compiler(true));

/// A string with each of its characters spelled in one of the ways that JSON has.
fn spelled(random: &mut Random, string: &str, text: &mut String) {
    text.push('"');
    for char in string.chars() {
        let short = match char {
            '"' | '\\' | '/' => Some(char),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            _ => None,
        };
        match (random.below(4), short) {
            (0, Some(letter)) => text.extend(['\\', letter]),
            (0..=1, _) if char >= ' ' && !matches!(char, '"' | '\\') => text.push(char),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let digits = match random.below(2) {
                        0 => format!("\\u{unit:04x}"),
                        _ => format!("\\u{unit:04X}"),
                    };
                    text.push_str(&digits);
                }
            }
        }
    }
    text.push('"');
}

/// A document with its strings and keys spelled so.
fn written(random: &mut Random, document: &Value, text: &mut String) {
    match document {
        Value::String(string) => spelled(random, string, text),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                written(random, item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (at, (key, value)) in members.iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                spelled(random, key, text);
                text.push(':');
                written(random, value, text);
            }
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// A text on which the two don't agree.
pub(crate) fn disagreement(schema: &Value, draft: Draft, seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let validator = Validator::new(schema, draft)?;
    let subject = Subject::by(&COMPILER, schema, draft, PropertyOrder::Any)?;
    let mut documents: Vec<Value> = (0..12).map(|_| random::document(&mut random, 3)).collect();
    if let Err(error) = walks(&subject, &validator, &mut random, 4, 3, &mut documents) {
        return Some(error);
    }
    for document in documents {
        let Some(document) = subject::document(&document.to_string()) else {
            continue;
        };
        let valid = validator.is_valid(&document);
        for _ in 0..3 {
            let mut text = String::new();
            written(&mut random, &document, &mut text);
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read, document, "{text}");
            if let Some(accepted) = within_memory(subject.accepts(&text, &mut random))
                && accepted != valid
            {
                let not = if valid { "" } else { "not " };
                return Some(format!("{text} is {not}valid"));
            }
        }
    }
    None
}
