//! How far a text fits a grammar, and what might stand where it stops.

use serde::{Deserialize, Serialize};
use structured_output::{CancelFlag, CompiledGrammar, MaskRef, MatcherError};

use super::byte_matcher::ByteMatcher;

/// Most descriptions of what may follow.
const MAX_EXPECTED: usize = 20;
/// Longest text that is shown of what must follow, in characters.
const MAX_FORCED_CHARS: usize = 40;
/// From so many printable characters on, any may follow.
const ANY: usize = 80;
/// Bytes between two looks at whether anybody waits.
const BYTES_PER_LOOK: usize = 1024;

/// How far a text fits a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextFit {
    /// True if it is a whole text of the constraint.
    pub is_complete: bool,
    /// True if it is the beginning of one, or one.
    pub is_prefix: bool,
    /// Bytes before the first character that can't stand there; all of them, if it is a beginning.
    pub accepted_bytes: usize,
    /// The same in characters.
    pub accepted_chars: usize,
    /// What may follow these: characters in quotes, or what they have in common. At most 20, the most
    /// telling first.
    pub expected: Vec<String>,
}

impl TextFit {
    /// Holds a text against a grammar, whose tokens are the 256 bytes in order, and stop and control tokens
    /// behind them. Costs one step of the automaton for each byte, and a mask.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub fn of(grammar: &CompiledGrammar, text: &str) -> Result<Self, MatcherError> {
        Self::from_start(
            &mut ByteMatcher::new(grammar, None),
            text,
            &CancelFlag::new(),
        )
    }

    /// The same with a matcher at the start.
    pub(super) fn from_start(
        matcher: &mut ByteMatcher,
        text: &str,
        cancel: &CancelFlag,
    ) -> Result<Self, MatcherError> {
        let bytes = text.as_bytes();
        let mut end = 0;
        // Bytes of the last character that were accepted.
        let mut num_in_char = 0;
        while end < bytes.len() {
            if end.is_multiple_of(BYTES_PER_LOOK) && cancel.is_cancelled() {
                break;
            }
            if let Some(len) = accept_control(matcher, &bytes[end..])? {
                (end, num_in_char) = (end + len, 0);
                continue;
            }
            if !matcher.matcher.accept_token(u32::from(bytes[end]))? {
                break;
            }
            end += 1;
            num_in_char = if text.is_char_boundary(end) {
                0
            } else {
                num_in_char + 1
            };
        }
        // What stops within a character stops before it.
        matcher.matcher.rollback(num_in_char)?;
        let accepted = text.get(..end - num_in_char).unwrap_or_default();
        let is_prefix = end == bytes.len();
        Ok(Self {
            is_complete: is_prefix && matcher.matcher.is_completed(),
            is_prefix,
            accepted_bytes: accepted.len(),
            accepted_chars: accepted.chars().count(),
            expected: expected(matcher)?,
        })
    }
}

/// Accepts a control token whose text comes next; the length of that.
fn accept_control(matcher: &mut ByteMatcher, rest: &[u8]) -> Result<Option<usize>, MatcherError> {
    let may_begin = rest
        .first()
        .is_some_and(|&byte| matcher.may_begin_control(byte));
    if !may_begin {
        return Ok(None);
    }
    for &token_id in matcher.control_tokens().iter() {
        let bytes = matcher.token_bytes(token_id);
        let len = bytes.len();
        if rest.starts_with(bytes) && matcher.matcher.accept_token(token_id)? {
            return Ok(Some(len));
        }
    }
    Ok(None)
}

/// What may follow where a matcher stands.
fn expected(matcher: &ByteMatcher) -> Result<Vec<String>, MatcherError> {
    let mask = matcher.matcher.next_token_mask()?;
    let may_end = matcher.may_end(&mask);
    let forced = match may_end {
        true => String::new(),
        false => matcher.matcher.find_jump_forward_string()?,
    };
    let mut found = Vec::new();
    if forced.chars().count() > 1 {
        let shown: String = forced.chars().take(MAX_FORCED_CHARS).collect();
        found.push(quoted(&shown));
        return Ok(found);
    }
    for &token_id in matcher.control_tokens().iter() {
        let bytes = matcher.token_bytes(token_id);
        if mask.is_allowed(token_id) {
            found.push(quoted(&String::from_utf8_lossy(bytes)));
        }
    }
    let allowed = |bytes: std::ops::RangeInclusive<u8>| -> Vec<u8> {
        bytes
            .filter(|&byte| mask.is_allowed(u32::from(byte)))
            .collect()
    };
    let end = may_end.then(|| "the end".to_owned());
    let printable = allowed(b' '..=b'~');
    if printable.len() >= ANY {
        let quote = printable.contains(&b'"').then(|| quoted("\""));
        found.extend(quote);
        found.extend(end);
        let other = if found.is_empty() {
            "any character"
        } else {
            "any other character"
        };
        found.push(other.to_owned());
        return Ok(found);
    }
    let punctuation = printable.iter().filter(|byte| byte.is_ascii_punctuation());
    found.extend(punctuation.map(|&byte| quoted(&char::from(byte).to_string())));
    found.extend(end);
    for (class, name) in [
        (b'0'..=b'9', "a digit"),
        (b'a'..=b'z', "a lower-case letter"),
        (b'A'..=b'Z', "an upper-case letter"),
    ] {
        let whole = class.clone().count();
        match allowed(class) {
            bytes if bytes.len() == whole => found.push(name.to_owned()),
            bytes => found.extend(runs(&bytes)),
        }
    }
    found.extend(beyond_ascii(&mask));
    found.extend(white_space(&mask));
    found.truncate(MAX_EXPECTED);
    Ok(found)
}

/// Bytes in order: three and more in a row as one.
fn runs(bytes: &[u8]) -> Vec<String> {
    let text = |byte: u8| quoted(&char::from(byte).to_string());
    let runs = bytes.chunk_by(|byte, next| byte + 1 == *next);
    let runs = runs.flat_map(|run| match run {
        [first, .., last] if run.len() > 2 => vec![format!("{} to {}", text(*first), text(*last))],
        run => run.iter().map(|&byte| text(byte)).collect(),
    });
    runs.collect()
}

fn beyond_ascii(mask: &MaskRef) -> Option<String> {
    let is_allowed = |byte: u8| mask.is_allowed(u32::from(byte));
    // The bytes with which characters begin, then those with which they go on.
    let begins = (0xc2..=0xf4).any(is_allowed);
    let goes_on = (0x80..=0xbf).any(is_allowed);
    if begins {
        Some("a character beyond ASCII".to_owned())
    } else {
        goes_on.then(|| "the rest of a character".to_owned())
    }
}

fn white_space(mask: &MaskRef) -> Vec<String> {
    let signs = [
        (b' ', "a space"),
        (b'\n', "a line break"),
        (b'\t', "a tab"),
        (b'\r', "\"\\r\""),
    ];
    let allowed = signs
        .iter()
        .filter(|(byte, _)| mask.is_allowed(u32::from(*byte)));
    let names: Vec<String> = allowed.map(|(_, name)| (*name).to_owned()).collect();
    match names.len() {
        0..=2 => names,
        _ => vec!["white space".to_owned()],
    }
}

/// A text as JSON writes it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use structured_output::{CompiledGrammar, CompilerOptions, GrammarCompiler, TokenizerInfo};

    use super::*;
    use crate::structured_outputs::report::shortest_text;

    fn compiler() -> GrammarCompiler {
        let mut vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        vocab.push(b"</s>".to_vec());
        vocab.push(b"<call>".to_vec());
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[256, 257]).unwrap();
        GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
    }

    fn fit(grammar: &CompiledGrammar, text: &str) -> TextFit {
        TextFit::of(grammar, text).unwrap()
    }

    fn expected(grammar: &CompiledGrammar, text: &str) -> Vec<String> {
        fit(grammar, text).expected
    }

    #[test]
    fn a_text_fits_up_to_a_character() {
        let grammar = compiler().compile_regex("(né|nè)+[0-9]{2}").unwrap();
        let whole = fit(&grammar, "nénè12");
        assert!(whole.is_complete && whole.is_prefix);
        assert_eq!((whole.accepted_bytes, whole.accepted_chars), (8, 6));
        assert_eq!(whole.expected, ["the end"]);
        let begun = fit(&grammar, "né1");
        assert!(!begun.is_complete && begun.is_prefix);
        assert_eq!(begun.expected, ["a digit"]);
        // The first byte of the wrong character is that of the right ones.
        let wrong = fit(&grammar, "né\u{6e}à");
        assert!(!wrong.is_prefix);
        assert_eq!((wrong.accepted_bytes, wrong.accepted_chars), (4, 3));
        assert_eq!(wrong.expected, ["a character beyond ASCII"]);
        let longer = fit(&grammar, "né123");
        assert_eq!((longer.accepted_bytes, longer.is_complete), (5, false));
        assert_eq!(longer.expected, ["the end"]);
    }

    #[test]
    fn what_is_expected_is_told_in_few_words() {
        let compiler = compiler();
        let schema = r#"{"type": "object", "properties": {"name": {"type": "string"}, "age":
            {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false}"#;
        let schema = compiler
            .compile_json_schema(schema, &Default::default())
            .unwrap();
        assert_eq!(expected(&schema, "{\"na"), ["\"me\\\":\""]);
        let value = expected(&schema, "{\"name\": ");
        assert_eq!(value[0], "\"\\\"\"");
        assert_eq!(
            expected(&schema, "{\"name\": \"x"),
            ["\"\\\"\"", "any other character"]
        );
        let number = expected(&schema, "{\"name\": \"x\", \"age\": true");
        assert_eq!(number[..2], ["\"-\"", "a digit"]);
        let runs = compiler.compile_regex("[a-fxz]|[0-9]|[+*]|[0-9]?").unwrap();
        assert_eq!(
            expected(&runs, ""),
            [
                "\"*\"",
                "\"+\"",
                "the end",
                "a digit",
                "\"a\" to \"f\"",
                "\"x\"",
                "\"z\""
            ]
        );
    }

    #[test]
    fn a_control_token_is_its_text() {
        let grammar = compiler().compile_lark("start: <call> \"a\"").unwrap();
        // Or the text of it.
        assert_eq!(expected(&grammar, ""), ["\"<call>\"", "\"<\""]);
        assert!(fit(&grammar, "<call>a").is_complete);
        assert_eq!(fit(&grammar, "<call>b").accepted_bytes, 6);
        assert_eq!(shortest_text(&grammar).unwrap(), b"<call>a");
    }
}
