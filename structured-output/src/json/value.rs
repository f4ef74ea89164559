//! JSON as it is written: members in order, numbers as text.

use std::sync::Arc;

use hashbrown::HashSet;

/// A JSON value, cheap to clone. Nesting is bounded by the parser, so it may be read and dropped by
/// recursion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// The number's text.
    Number(String),
    String(String),
    Array(Arc<Vec<Value>>),
    /// Members in order, each key once.
    Object(Arc<Vec<(String, Value)>>),
}

/// Values in a text, with those in lists and objects. A value of a schema takes a kilobyte until it is compiled, so
/// that a text of two bytes a value would take hundreds of megabytes before any other limit is met.
const MAX_VALUES: usize = 150_000;

/// Why a text is not JSON, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError {
    pub(crate) message: String,
    pub(crate) offset: usize,
}

impl Value {
    /// A member of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|m| m.0 == key).map(|m| &m.1),
            _ => None,
        }
    }

    /// The value as JSON, without white space. Recursion is bounded by the value's nesting.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Number(text) => text.clone(),
            Self::String(text) => quoted(text),
            Self::Array(items) => {
                let items: Vec<String> = items.iter().map(Self::to_text).collect();
                format!("[{}]", items.join(","))
            }
            Self::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!("{}:{}", quoted(key), value.to_text()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// Bytes that it takes, as it was parsed. Recursion is bounded by the value's nesting.
    pub(crate) fn memory_bytes(&self) -> usize {
        // An allocation has a header, and at least four words.
        let text = |text: &String| (text.len() + 8).max(32);
        // Counts of references and the list's own fields.
        let list = 2 * size_of::<usize>() + size_of::<Vec<Self>>() + 16;
        let within = match self {
            Self::Null | Self::Bool(_) => 0,
            Self::Number(number) => text(number),
            Self::String(string) => text(string),
            Self::Array(items) => list + items.iter().map(Self::memory_bytes).sum::<usize>(),
            Self::Object(members) => {
                let members = members.iter();
                let member = |(key, value): &(String, Self)| {
                    size_of::<String>() + text(key) + value.memory_bytes()
                };
                list + members.map(member).sum::<usize>()
            }
        };
        size_of::<Self>() + within
    }

    /// Parses a text in which values are nested at most `max_nesting` deep and no object has a key twice, and
    /// which has at most 150,000 values.
    pub(crate) fn parse(text: &str, max_nesting: usize) -> Result<Self, ParseError> {
        let mut parser = Parser { text, offset: 0 };
        let mut open: Vec<Open> = Vec::new();
        let mut num_values = 0;
        loop {
            parser.skip_blanks();
            num_values += 1;
            if num_values > MAX_VALUES {
                return Err(parser.error(format!("more than {MAX_VALUES} values in one text")));
            }
            // A value, or the end of an array or object that has none.
            let mut value = match parser.peek() {
                Some(bracket @ (b'[' | b'{')) => {
                    parser.offset += 1;
                    if open.len() >= max_nesting {
                        return Err(parser.error(format!(
                            "values are nested deeper than {max_nesting} (limit `max_nesting`)"
                        )));
                    }
                    parser.skip_blanks();
                    let outer = match bracket {
                        b'[' => Open::Array(Vec::new()),
                        _ => Open::Object(Members::default()),
                    };
                    if parser.peek() != Some(outer.close()) {
                        open.push(outer.with_key(&mut parser)?);
                        continue;
                    }
                    parser.offset += 1;
                    outer.finish()?
                }
                _ => parser.scalar()?,
            };
            // Values that end with this one.
            loop {
                parser.skip_blanks();
                let Some(mut outer) = open.pop() else {
                    if parser.offset < text.len() {
                        return Err(parser.error("text after the value".into()));
                    }
                    return Ok(value);
                };
                outer.push(value);
                match parser.peek() {
                    Some(b',') => {
                        parser.offset += 1;
                        parser.skip_blanks();
                        open.push(outer.with_key(&mut parser)?);
                        break;
                    }
                    Some(byte) if byte == outer.close() => {
                        parser.offset += 1;
                        value = outer.finish()?;
                    }
                    _ => {
                        let close = char::from(outer.close());
                        return Err(parser.error(format!("expected `,` or `{close}`")));
                    }
                }
            }
        }
    }
}

/// A string as JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\0'..='\x1f' => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// An array or object that is open.
enum Open {
    Array(Vec<Value>),
    Object(Members),
}

/// The members of an object that is open.
#[derive(Default)]
struct Members {
    list: Vec<(String, Value)>,
    /// Where their keys begin.
    offsets: Vec<usize>,
    /// The key of the next value.
    key: String,
}

impl Open {
    fn close(&self) -> u8 {
        match self {
            Self::Array(_) => b']',
            Self::Object(_) => b'}',
        }
    }

    /// Reads the key before a value, where there is one.
    fn with_key(self, parser: &mut Parser<'_>) -> Result<Self, ParseError> {
        Ok(match self {
            Self::Array(items) => Self::Array(items),
            Self::Object(mut members) => {
                members.offsets.push(parser.offset);
                members.key = parser.key()?;
                Self::Object(members)
            }
        })
    }

    fn push(&mut self, value: Value) {
        match self {
            Self::Array(items) => items.push(value),
            Self::Object(members) => {
                let key = std::mem::take(&mut members.key);
                members.list.push((key, value));
            }
        }
    }

    fn finish(self) -> Result<Value, ParseError> {
        match self {
            Self::Array(mut items) => {
                items.shrink_to_fit();
                Ok(Value::Array(Arc::new(items)))
            }
            Self::Object(mut members) => {
                if let Some(twice) = first_repeated(&members.list) {
                    return Err(ParseError {
                        message: format!(
                            "the key {} is there already",
                            shown(&members.list[twice].0)
                        ),
                        offset: members.offsets.get(twice).copied().unwrap_or_default(),
                    });
                }
                members.list.shrink_to_fit();
                Ok(Value::Object(Arc::new(members.list)))
            }
        }
    }
}

/// The first member whose key another one before it has.
fn first_repeated(members: &[(String, Value)]) -> Option<usize> {
    if members.len() <= 8 {
        return (1..members.len()).find(|&at| {
            let key = &members[at].0;
            members[..at].iter().any(|member| member.0 == *key)
        });
    }
    let mut seen = HashSet::with_capacity(members.len());
    members.iter().position(|member| !seen.insert(&member.0))
}

/// A key as a message shows it, cut short.
fn shown(key: &str) -> String {
    const MOST: usize = 40;
    match key.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", quoted(&key[..at])),
        None => quoted(key),
    }
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
}

impl Parser<'_> {
    fn error(&self, message: String) -> ParseError {
        ParseError {
            message,
            offset: self.offset,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.offset += 1;
        }
    }

    fn key(&mut self) -> Result<String, ParseError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a key in quotes".into()));
        }
        let key = self.string()?;
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.error("expected `:` after the key".into()));
        }
        self.offset += 1;
        Ok(key)
    }

    fn scalar(&mut self) -> Result<Value, ParseError> {
        let rest = &self.text[self.offset..];
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
        ];
        for (word, value) in words {
            if rest.starts_with(word) {
                self.offset += word.len();
                return Ok(value);
            }
        }
        match self.peek() {
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.error("expected a JSON value".into())),
        }
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.offset;
        let digits = |parser: &mut Self| {
            let from = parser.offset;
            while matches!(parser.peek(), Some(b'0'..=b'9')) {
                parser.offset += 1;
            }
            parser.offset - from
        };
        if self.peek() == Some(b'-') {
            self.offset += 1;
        }
        let zero = self.peek() == Some(b'0');
        let whole = digits(self);
        if whole == 0 || (zero && whole > 1) {
            return Err(self.error("a number's whole part is 0 or starts with 1 to 9".into()));
        }
        if self.peek() == Some(b'.') {
            self.offset += 1;
            if digits(self) == 0 {
                return Err(self.error("expected digits after the decimal point".into()));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.offset += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.offset += 1;
            }
            if digits(self) == 0 {
                return Err(self.error("expected digits in the exponent".into()));
            }
        }
        Ok(Value::Number(self.text[start..self.offset].to_owned()))
    }

    /// A string after its opening quote is seen.
    fn string(&mut self) -> Result<String, ParseError> {
        let rest = &self.text[self.offset..];
        let (string, length) = unquote(rest).map_err(|at| ParseError {
            message: what_is_wrong(rest.get(at..).unwrap_or_default()),
            offset: self.offset + at,
        })?;
        self.offset += length;
        Ok(string)
    }
}

/// What is wrong with a string, from there on.
fn what_is_wrong(rest: &str) -> String {
    let escape: String = rest.chars().take(6).collect();
    let surrogate = escape
        .strip_prefix("\\u")
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .is_some_and(|code| (0xd800..0xe000).contains(&code));
    match rest.chars().next() {
        None => "this string has no closing quote".into(),
        Some('\\') if surrogate => format!(
            "`{escape}` is one half of a surrogate pair, without the other: it is no character, and no text \
             in UTF-8 can have it"
        ),
        Some('\\') if escape.starts_with("\\u") => {
            "`\\u` needs four hexadecimal digits after it".into()
        }
        Some('\\') => format!(
            "`{}` is no escape of JSON",
            escape.chars().take(2).collect::<String>()
        ),
        Some(control) => format!(
            "a control character in a string is written as an escape: `\\u{:04x}`",
            u32::from(control)
        ),
    }
}

/// The string that a text starts with, quotes included, and the length of its spelling; else the
/// offset of what is wrong. An escaped surrogate without its other half is an error: it is no
/// character.
pub(crate) fn unquote(text: &str) -> Result<(String, usize), usize> {
    let hex = |at: usize| {
        let digits = text
            .get(at..at + 4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok())
    };
    let is_plain = |&byte: &u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if !text.starts_with('"') {
        return Err(0);
    }
    let plain = text.bytes().skip(1).take_while(is_plain).count();
    let mut string = text[1..=plain].to_owned();
    if text.as_bytes().get(plain + 1) == Some(&b'"') {
        return Ok((string, plain + 2));
    }
    let mut chars = text.char_indices();
    // Quote and plain bytes are behind: the last of these ends a character.
    while chars.offset() <= plain {
        chars.next();
    }
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((string, at + 1)),
            '\\' => {
                let escaped = chars.next().ok_or(at)?.1;
                let mut long = 0;
                string.push(match escaped {
                    '"' | '\\' | '/' => escaped,
                    'b' => '\x08',
                    'f' => '\x0c',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'u' => {
                        let first = hex(at + 2).ok_or(at)?;
                        long = 4;
                        match (first, text.get(at + 6..at + 8)) {
                            (0xd800..=0xdbff, Some("\\u")) => {
                                let second = hex(at + 8).ok_or(at)?;
                                long = 10;
                                let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400);
                                let code = 0x10000 + ((first - 0xd800) << 10) + low.ok_or(at)?;
                                char::from_u32(code).ok_or(at)?
                            }
                            _ => char::from_u32(first).ok_or(at)?,
                        }
                    }
                    _ => return Err(at),
                });
                // What the escape has beyond its letter is ASCII.
                for _ in 0..long {
                    chars.next();
                }
            }
            '\0'..='\x1f' => return Err(at),
            _ => string.push(char),
        }
    }
    Err(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_so_many_values() {
        let list = |len: usize| format!("[{}]", vec!["[]"; len].join(","));
        assert!(Value::parse(&list(MAX_VALUES - 1), 4).is_ok());
        let error = Value::parse(&list(MAX_VALUES), 4).unwrap_err();
        assert_eq!(error.message, "more than 150000 values in one text");
        assert_eq!(error.offset, list(MAX_VALUES).len() - 3);
    }

    #[test]
    fn what_is_read() {
        let text = " {\"b\" : [ ] , \"a\":{} ,\"c\":null} ";
        let value = Value::parse(text, 4).unwrap();
        let members = vec![
            ("b".to_owned(), Value::Array(Arc::default())),
            ("a".to_owned(), Value::Object(Arc::default())),
            ("c".to_owned(), Value::Null),
        ];
        assert_eq!(value, Value::Object(Arc::new(members)));
        let numbers = Value::parse("[1.50,-0e+3,\"\\u00e9\\ud83d\\ude00\\n\"]", 4).unwrap();
        let items = vec![
            Value::Number("1.50".into()),
            Value::Number("-0e+3".into()),
            Value::String("é😀\n".into()),
        ];
        assert_eq!(numbers, Value::Array(Arc::new(items)));
    }

    #[test]
    fn what_is_refused() {
        let bad = [
            "",
            r#"{"a":1,"b":2,"\u0061":3}"#,
            "{",
            "[1",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "01",
            "1.",
            "1e",
            "-",
            "\"\\x\"",
            "\"a",
            "\"\n\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "nul",
            "1 2",
            "[[[[[1]]]]]",
            "[1}",
            "\"\\u00g0\"",
        ];
        for text in bad {
            assert!(Value::parse(text, 4).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_string_is_told() {
        let surrogate = "is one half of a surrogate pair, without the other: it is no character, and no text \
                         in UTF-8 can have it";
        for (text, offset, message) in [
            (r#"["a\ud800"]"#, 3, format!("`\\ud800` {surrogate}")),
            (r#"["\ud83d\u0041"]"#, 2, format!("`\\ud83d` {surrogate}")),
            (r#"["\uDE00"]"#, 2, format!("`\\uDE00` {surrogate}")),
            (
                r#"["\u00g0"]"#,
                2,
                "`\\u` needs four hexadecimal digits after it".into(),
            ),
            (r#"["é\x"]"#, 4, "`\\x` is no escape of JSON".into()),
            (
                "[\"\n\"]",
                2,
                "a control character in a string is written as an escape: `\\u000a`".into(),
            ),
            (r#"["a"#, 3, "this string has no closing quote".into()),
        ] {
            let error = Value::parse(text, 4).unwrap_err();
            assert_eq!((error.offset, error.message), (offset, message), "{text}");
        }
    }
}
