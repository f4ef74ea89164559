//! A place in a grammar's source, and what can be read there in every dialect.

use super::ast::SyntaxError;
use crate::error::BYTE_ORDER_MARK;
use crate::lexical::UNBOUNDED;

/// A place in a source.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    source: &'a str,
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// At the start, after a byte order mark.
    pub(super) fn new(source: &'a str) -> Self {
        let offset = match source.starts_with(BYTE_ORDER_MARK) {
            true => BYTE_ORDER_MARK.len_utf8(),
            false => 0,
        };
        Self { source, offset }
    }

    pub(super) fn source(&self) -> &'a str {
        self.source
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.source[self.offset..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.offset += next.len_utf8();
        Some(next)
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.offset += bytes;
    }

    pub(super) fn take_str(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.offset += wanted.len();
        }
        found
    }

    /// The longest run of such characters.
    pub(super) fn take_while(&mut self, is_such: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !is_such(c)).unwrap_or(rest.len());
        self.offset += len;
        &rest[..len]
    }

    /// A number of digits.
    pub(super) fn take_number(
        &mut self,
        max: u32,
        limit: &'static str,
    ) -> Result<u32, SyntaxError> {
        let offset = self.offset;
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(SyntaxError::new(offset, "expected a number"));
        }
        match digits.parse::<u32>() {
            Ok(number) if number <= max => Ok(number),
            _ => Err(SyntaxError::new(
                offset,
                format!("`{}` is above {max} (limit `{limit}`)", cut(digits)),
            )),
        }
    }

    /// `{m}`, `{m,}` or `{m,n}`, from its bracket on; also `{,n}` where the dialect has it. `skip`
    /// moves over what may stand between the parts.
    pub(super) fn take_counts(
        &mut self,
        max_repetition: u32,
        has_no_least: bool,
        skip: fn(&mut Self),
    ) -> Result<(u32, u32), SyntaxError> {
        const LIMIT: &str = "max_repetition";
        let offset = self.offset;
        self.skip(1);
        skip(self);
        let min = match self.peek() {
            Some(',') if has_no_least => 0,
            Some(',') => return self.error("a repetition needs its lower bound: write `{0,n}`"),
            _ => self.take_number(max_repetition, LIMIT)?,
        };
        skip(self);
        let mut max = min;
        if self.take_str(",") {
            skip(self);
            max = match self.peek() {
                Some('}') => UNBOUNDED,
                // As XGrammar prints it.
                Some('-') if !has_no_least && self.take_str("-1") => UNBOUNDED,
                _ => self.take_number(max_repetition, LIMIT)?,
            };
            skip(self);
        }
        if !self.take_str("}") {
            let found = self.found();
            return self.error(format!("expected `}}` after the counts, found {found}"));
        }
        ascending(offset, min, max)
    }

    /// The code point of hexadecimal digits, at least `min` and at most `max` of them.
    pub(super) fn take_hex(&mut self, min: usize, max: usize) -> Result<char, SyntaxError> {
        let offset = self.offset;
        let digits: usize = self
            .rest()
            .bytes()
            .take(max)
            .take_while(u8::is_ascii_hexdigit)
            .count();
        let text = &self.rest()[..digits];
        self.offset += digits;
        if digits < min {
            return Err(SyntaxError::new(
                offset,
                format!("expected {min} hexadecimal digits, found `{text}`"),
            ));
        }
        let significant = text.trim_start_matches('0');
        let code = match significant {
            "" => Some(0),
            digits => u32::from_str_radix(digits, 16).ok(),
        };
        code.and_then(char::from_u32)
            .ok_or_else(|| SyntaxError::new(offset, format!("`{}` is no code point", cut(text))))
    }

    /// An error here.
    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(self.offset, message))
    }

    /// What is here, for an error.
    pub(super) fn found(&self) -> String {
        match self.peek() {
            Some(found) => format!("`{}`", found.escape_default()),
            None => "the end".to_owned(),
        }
    }
}

/// Two counts, if the first isn't above the second.
pub(super) fn ascending(offset: usize, min: u32, max: u32) -> Result<(u32, u32), SyntaxError> {
    if min > max {
        let message = format!("the counts {min} to {max} run backwards");
        return Err(SyntaxError::new(offset, message));
    }
    Ok((min, max))
}

/// At most 40 characters of a text.
pub(super) fn cut(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
