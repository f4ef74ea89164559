//! Strings, ranges, regular expressions, tokens, embedded JSON and grammars.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::super::ast::{EmbeddedSchema, NodeKind, SyntaxError, TokenSet};
use super::super::cursor::cut;
use super::super::substring::Substrings;
use super::{Parser, parse_nested};
use crate::json::Value;
use crate::options::{JsonSchemaOptions, Whitespace};

/// A name in the source.
pub(super) type Name<'a> = &'a str;

impl<'a> Parser<'a, '_> {
    /// A rule's or terminal's name.
    pub(super) fn take_name(&mut self) -> Option<Name<'a>> {
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !self.cursor.peek().is_some_and(is_first) {
            return None;
        }
        let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let rest = self.cursor.rest();
        let len = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        // In `name->other` the arrow is no part of the name.
        let len = rest[..len].find("->").unwrap_or(len);
        let len = match rest[len..].starts_with('>') && rest[..len].ends_with('-') {
            true => len - 1,
            false => len,
        };
        self.cursor.skip(len);
        Some(&rest[..len])
    }

    /// What a single part of an expression is.
    pub(super) fn value(&mut self, in_terminal: bool) -> Result<NodeKind, SyntaxError> {
        let offset = self.cursor.offset();
        let only_in_rules = |what: &str| -> Result<NodeKind, SyntaxError> {
            let message = format!("{what} can't be part of a terminal: write it in a rule");
            Err(SyntaxError::new(offset, message))
        };
        match self.cursor.peek() {
            Some('"') => self.string_or_range(),
            Some('/') => self.regex(),
            Some('<') if self.only_text == Some("lazy") => self.cursor.error(
                "a token can't be part of a `lazy` rule: leave `lazy` out, since a token ends the \
                 text before it",
            ),
            Some('<') if self.only_text.is_some() => self.cursor.error(format!(
                "a token can't be part of a rule with `{}`",
                self.only_text.unwrap_or_default()
            )),
            Some('<') if in_terminal => only_in_rules("a token"),
            Some('<') => self.token(),
            Some('@') => self.cursor.error(
                "a grammar named by `@` is not supported: write it in place, with `%lark { … }`",
            ),
            Some('\'') => self.cursor.error("strings stand in double quotes"),
            Some('%') if self.cursor.rest().starts_with("%regex") => {
                self.cursor.skip("%regex".len());
                self.structured_regex()
            }
            Some('%') if self.cursor.rest().starts_with("%json") => {
                if in_terminal {
                    return only_in_rules("JSON");
                }
                self.cursor.skip("%json".len());
                self.skip_lines();
                let start = self.cursor.offset();
                let (schema, _) = self.json()?;
                let options = own_options(&schema)
                    .map_err(|message| SyntaxError::new(start, message))?
                    .unwrap_or_default();
                let text = &self.cursor.source()[start..self.cursor.offset()];
                Ok(NodeKind::Json(EmbeddedSchema {
                    text: text.into(),
                    options: Box::new(options),
                    place: None,
                }))
            }
            Some('%') if self.cursor.rest().starts_with("%lark") => {
                if in_terminal {
                    return only_in_rules("a grammar");
                }
                self.cursor.skip("%lark".len());
                self.skip_lines();
                if !self.cursor.take_str("{") {
                    return self.cursor.error("expected `{` after `%lark`");
                }
                let cursor = self.cursor.clone();
                let nested = parse_nested(cursor, self.nesting + 1, self.limits, self.grammar)?;
                self.cursor = nested.1;
                Ok(NodeKind::Rule(nested.0))
            }
            _ => {
                let Some(name) = self.take_name() else {
                    let found = self.cursor.found();
                    return self.cursor.error(format!(
                        "expected a string, a regular expression, a name or a group, found {found}"
                    ));
                };
                let rest = self.cursor.rest();
                let counts = rest.strip_prefix('{').map(str::trim_start);
                let is_template = counts.is_some_and(|counts| {
                    !counts.starts_with(|c: char| c.is_ascii_digit() || c == ',')
                });
                if is_template && in_terminal {
                    return only_in_rules("a template");
                }
                if is_template {
                    return self.template_use(name, offset);
                }
                if rest.starts_with("::") {
                    return self
                        .cursor
                        .error("rules with a parameter (`::`) are not supported");
                }
                if let Some(rule) = self.templates.bound(name) {
                    return Ok(NodeKind::Rule(rule));
                }
                Ok(NodeKind::Rule(self.rule_named(name, offset)?))
            }
        }
    }

    /// A string with JSON's escapes and `\xHH`.
    pub(super) fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.cursor.offset();
        self.cursor.skip(1);
        let mut text = String::new();
        loop {
            let offset = self.cursor.offset();
            let next = match self.cursor.take() {
                Some('"') => return Ok(text),
                Some('\\') => match self.cursor.take() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some('b') => '\x08',
                    Some('f') => '\x0c',
                    Some(sign @ ('"' | '\\' | '/')) => sign,
                    Some('x') => self.cursor.take_hex(2, 2)?,
                    Some('u') => self.code_unit(offset)?,
                    other => {
                        let other = other.map_or(String::new(), |c| c.escape_default().to_string());
                        let message = format!("unknown escape `\\{other}`");
                        return Err(SyntaxError::new(offset, message));
                    }
                },
                Some('\n' | '\r') | None => {
                    return Err(SyntaxError::new(
                        start,
                        "this string has no end on its line: write a line end as `\\n`",
                    ));
                }
                Some(plain) => plain,
            };
            text.push(next);
        }
    }

    /// The digits of `\uXXXX`, two of them where the first is half a character.
    fn code_unit(&mut self, offset: usize) -> Result<char, SyntaxError> {
        let unit = |parser: &mut Self| {
            let digits = parser.cursor.rest().get(..4)?;
            let value = u16::from_str_radix(digits, 16).ok()?;
            parser.cursor.skip(4);
            Some(value)
        };
        let first = unit(self);
        let is_half = first.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
        let second = match is_half && self.cursor.take_str("\\u") {
            true => unit(self),
            false => None,
        };
        let units = first.into_iter().chain(second);
        match char::decode_utf16(units).next() {
            Some(Ok(char)) => Ok(char),
            _ => Err(SyntaxError::new(
                offset,
                "`\\u` needs four hexadecimal digits, and a pair of them beyond U+FFFF",
            )),
        }
    }

    /// `"text"`, `"text"i` or `"a".."z"`.
    fn string_or_range(&mut self) -> Result<NodeKind, SyntaxError> {
        let offset = self.cursor.offset();
        let text = self.string()?;
        let mut ahead = self.cursor.clone();
        ahead.take_while(|c| c == ' ' || c == '\t');
        if ahead.take_str("..") {
            ahead.take_while(|c| c == ' ' || c == '\t');
            self.cursor = ahead;
            if self.cursor.peek() != Some('"') {
                return self
                    .cursor
                    .error("expected the range's last character in quotes");
            }
            let last = self.string()?;
            let only = |text: &str| {
                let mut chars = text.chars();
                chars.next().filter(|_| chars.next().is_none())
            };
            return match (only(&text), only(&last)) {
                (Some(low), Some(high)) if low <= high => Ok(NodeKind::Class(ClassUnicode::new([
                    ClassUnicodeRange::new(low, high),
                ]))),
                _ => Err(SyntaxError::new(
                    offset,
                    "a range goes from one character to a later one, as `\"a\"..\"z\"`",
                )),
            };
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let rest = self.cursor.rest();
        if rest.starts_with('i') && !rest[1..].starts_with(is_name) {
            self.cursor.skip(1);
            // As the regular expression that it is in Lark and llguidance: `s` is `ſ` too.
            if text.is_ascii() && text.len() + 2 <= self.limits.regex.max_nodes {
                return Ok(NodeKind::AnyCase(text.into()));
            }
            let escaped = |c: char| format!("\\U{:08x}", u32::from(c));
            let pattern: String = text.chars().map(escaped).collect();
            return self
                .limits
                .regex(&pattern, "i", offset)
                .map_err(|error| match error {
                    SyntaxError::At { message, .. } => SyntaxError::new(offset, message),
                    limit => limit,
                });
        }
        Ok(NodeKind::Literal(text.into()))
    }

    /// `/pattern/flags`.
    fn regex(&mut self) -> Result<NodeKind, SyntaxError> {
        let start = self.cursor.offset();
        self.cursor.skip(1);
        let pattern_start = self.cursor.offset();
        loop {
            match self.cursor.take() {
                Some('\\') => {
                    self.cursor.take();
                }
                Some('/') => break,
                Some('\n' | '\r') | None => {
                    return Err(SyntaxError::new(
                        start,
                        "this regular expression has no end on its line",
                    ));
                }
                Some(_) => {}
            }
        }
        let pattern = &self.cursor.source()[pattern_start..self.cursor.offset() - 1];
        let at = self.cursor.offset();
        let flags = self.cursor.take_while(|c| c.is_ascii_alphabetic());
        if let Some(other) = flags.chars().find(|c| !"imsux".contains(*c)) {
            return Err(SyntaxError::new(
                at,
                format!("flag `{other}` is not supported: flags are i, m, s, u and x"),
            ));
        }
        if pattern.is_empty() {
            return Err(SyntaxError::new(start, "an empty regular expression"));
        }
        self.limits.regex(pattern, flags, pattern_start)
    }

    /// `<[1,3-8]>`, `<[^1]>`, `<[*]>` or `<name>`.
    fn token(&mut self) -> Result<NodeKind, SyntaxError> {
        let start = self.cursor.offset();
        self.cursor.skip(1);
        if !self.cursor.take_str("[") {
            let name = self
                .cursor
                .take_while(|c| !matches!(c, '<' | '>') && !c.is_whitespace());
            if name.is_empty() || !self.cursor.take_str(">") {
                return Err(SyntaxError::new(start, "`<` without `>`"));
            }
            return Ok(NodeKind::NamedToken(format!("<{name}>").into()));
        }
        let mut set = TokenSet {
            negated: self.cursor.take_str("^"),
            ..TokenSet::default()
        };
        if !set.negated && self.cursor.take_str("*") {
            set.negated = true;
        } else {
            loop {
                self.skip_blanks();
                let at = self.cursor.offset();
                let first = self.cursor.take_number(u32::MAX - 1, "token id")?;
                let mut last = first;
                if self.cursor.take_str("-") {
                    last = self.cursor.take_number(u32::MAX - 1, "token id")?;
                }
                if last < first {
                    let message = format!("the range {first}-{last} runs backwards");
                    return Err(SyntaxError::new(at, message));
                }
                set.ranges.push((first, last));
                self.skip_blanks();
                if !self.cursor.take_str(",") {
                    break;
                }
            }
        }
        if !self.cursor.take_str("]>") {
            let found = self.cursor.found();
            return self.cursor.error(format!(
                "expected `,` or `]>` among token ids, found {found}"
            ));
        }
        Ok(NodeKind::Tokens(set))
    }

    /// A JSON value, and where it starts.
    pub(super) fn json(&mut self) -> Result<(Value, usize), SyntaxError> {
        self.skip_lines();
        let start = self.cursor.offset();
        let text = self.cursor.rest();
        for (word, flag) in [("true", true), ("false", false)] {
            if self.cursor.take_str(word) {
                return Ok((Value::Bool(flag), start));
            }
        }
        if !text.starts_with('{') {
            return self
                .cursor
                .error("expected a JSON object, `true` or `false`");
        }
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        let mut end = None;
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = Some(at + 1);
                break;
            }
        }
        let Some(end) = end else {
            return Err(SyntaxError::new(start, "this JSON object has no end"));
        };
        let value = Value::parse(&text[..end], self.limits.max_nesting)
            .map_err(|error| SyntaxError::new(start + error.offset, error.message))?;
        self.cursor.skip(end);
        Ok((value, start))
    }

    /// `%regex { "substring_chunks": […] }` and its kin.
    fn structured_regex(&mut self) -> Result<NodeKind, SyntaxError> {
        self.skip_lines();
        if self.cursor.peek() != Some('{') {
            let found = self.cursor.found();
            return self.cursor.error(format!(
                "expected a JSON object after `%regex`, found {found}"
            ));
        }
        let (value, offset) = self.json()?;
        let chunks: Option<Vec<Box<str>>> = match &value {
            Value::Object(members) => match &members[..] {
                [(name, Value::Array(items))] if name == "substring_chunks" => items
                    .iter()
                    .map(|item| match item {
                        Value::String(text) => Some(text.as_str().into()),
                        _ => None,
                    })
                    .collect(),
                [(name, Value::String(text))] if name == "substring_words" => Some(words(text)),
                [(name, Value::String(text))] if name == "substring_chars" => {
                    Some(text.chars().map(|c| c.to_string().into()).collect())
                }
                _ => None,
            },
            _ => None,
        };
        match chunks {
            Some(chunks) => {
                self.grammar.charge(chunks.len(), offset, self.limits)?;
                Ok(NodeKind::Substring(Substrings::new(&chunks)))
            }
            None => Err(SyntaxError::new(
                offset,
                format!(
                    "`%regex` is an object with one of `substring_chunks` (strings), \
                     `substring_words` and `substring_chars` (a string), not `{}`",
                    cut(&self.cursor.source()[offset..self.cursor.offset()])
                ),
            )),
        }
    }
}

/// Runs of word characters, of white space and of other characters.
fn words(text: &str) -> Vec<Box<str>> {
    let kind = |c: char| (c.is_alphanumeric() || c == '_', c.is_whitespace());
    let mut words: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if last == Some(kind(c)) => word.push(c),
            _ => words.push(c.to_string()),
        }
        last = Some(kind(c));
    }
    words.into_iter().map(Into::into).collect()
}

/// How JSON is written by llguidance's options, which its schema may bring; `None` where it brings none.
fn own_options(schema: &Value) -> Result<Option<JsonSchemaOptions>, String> {
    const NAME: &str = "x-guidance";
    let given = match schema.get(NAME) {
        None => return Ok(None),
        Some(Value::Object(given)) => given,
        Some(_) => return Err(format!("`{NAME}` must be an object")),
    };
    let (mut is_flexible, mut pattern) = (true, None);
    let (mut item, mut key) = (None, None);
    for (name, value) in given.iter() {
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("whitespace_flexible", &Value::Bool(flag)) => is_flexible = flag,
            ("whitespace_pattern", Value::String(text)) => pattern = Some(text.clone()),
            ("item_separator", Value::String(text)) => item = Some(text.clone()),
            ("key_separator", Value::String(text)) => key = Some(text.clone()),
            // What is off says nothing.
            (_, Value::Bool(false)) => {}
            _ => {
                return Err(format!(
                    "`{NAME}` has `{}`, which is not supported or has another type: `whitespace_flexible` is true or false, \
                     `whitespace_pattern`, `item_separator` and `key_separator` are strings",
                    cut(name)
                ));
            }
        }
    }
    let own = |text: Option<String>, usual: &str| text.unwrap_or_else(|| usual.to_owned());
    let are_given = item.is_some() || key.is_some();
    let separators = (own(item, ","), own(key, ":"));
    Ok(Some(match (pattern, is_flexible) {
        (Some(pattern), _) => JsonSchemaOptions {
            whitespace_pattern: Some(pattern),
            ..JsonSchemaOptions::default()
        },
        (None, true) => JsonSchemaOptions {
            whitespace: Whitespace::Flexible,
            separators: are_given.then_some(separators),
            ..JsonSchemaOptions::default()
        },
        (None, false) => JsonSchemaOptions {
            whitespace: Whitespace::Compact,
            separators: Some(separators),
            ..JsonSchemaOptions::default()
        },
    }))
}
