//! Strings, classes and tokens in EBNF.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::ast::{NodeKind, SyntaxError, TokenSet};
use super::cursor::cut;
use super::ebnf::Parser;

impl Parser<'_, '_> {
    /// A string in quotes.
    pub(super) fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.cursor.offset();
        self.cursor.skip(1);
        let mut text = String::new();
        loop {
            let offset = self.cursor.offset();
            match self.cursor.take() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(offset, "\"\\/'?[]-")?),
                // A line end stands for itself, as in llama.cpp.
                None => return Err(SyntaxError::new(start, "this string has no end")),
                Some(plain) => text.push(plain),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, offset: usize, signs: &str) -> Result<char, SyntaxError> {
        Ok(match self.cursor.take() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('a') => '\x07',
            Some('v') => '\x0b',
            Some('0') => '\0',
            Some('e') => '\x1b',
            Some('x') => {
                let start = self.cursor.offset();
                let code = self.cursor.take_hex(1, usize::MAX)?;
                let digits = &self.cursor.source()[start..self.cursor.offset()];
                if digits.len() > 2 {
                    let written = match u32::from(code) {
                        code @ ..0x1_0000 => format!("\\u{code:04X}"),
                        code => format!("\\U{code:08X}"),
                    };
                    let message = format!(
                        "`\\x{}` is one character in XGrammar's EBNF and two digits with text \
                         after them in GBNF: write `{written}`, or `\\u00{}` and the text",
                        cut(digits),
                        &digits[..2],
                    );
                    return Err(SyntaxError::new(offset, message));
                }
                code
            }
            Some('u') => self.cursor.take_hex(4, 4)?,
            Some('U') => self.cursor.take_hex(8, 8)?,
            Some(sign) if signs.contains(sign) => sign,
            Some(other) => {
                return Err(SyntaxError::new(
                    offset,
                    format!("unknown escape `\\{}`", other.escape_default()),
                ));
            }
            None => return Err(SyntaxError::new(offset, "`\\` at the end")),
        })
    }

    /// A class in brackets.
    pub(super) fn class(&mut self) -> Result<NodeKind, SyntaxError> {
        const SIGNS: &str = "\"\\/'?^$.*+()[]{}|-";
        let start = self.cursor.offset();
        self.cursor.skip(1);
        let negated = self.cursor.take_str("^");
        let mut class = ClassUnicode::empty();
        let one = |parser: &mut Self| -> Result<char, SyntaxError> {
            let offset = parser.cursor.offset();
            match parser.cursor.take() {
                Some('\\') => parser.escape(offset, SIGNS),
                None => Err(SyntaxError::new(start, "`[` without `]`")),
                Some(plain) => Ok(plain),
            }
        };
        while !self.cursor.take_str("]") {
            let offset = self.cursor.offset();
            let low = one(self)?;
            let mut high = low;
            let rest = self.cursor.rest();
            if rest.starts_with('-') && !rest.starts_with("-]") {
                self.cursor.skip(1);
                high = one(self)?;
            }
            if low > high {
                return Err(SyntaxError::new(
                    offset,
                    format!("the range `{low}-{high}` runs backwards"),
                ));
            }
            class.push(ClassUnicodeRange::new(low, high));
        }
        if negated {
            class.negate();
        }
        Ok(NodeKind::Class(class))
    }

    /// llama.cpp's `<[123]>`, `<think>`, and `!` before either: any other token.
    pub(super) fn token(&mut self) -> Result<NodeKind, SyntaxError> {
        let offset = self.cursor.offset();
        let negated = self.cursor.take_str("!");
        if !self.cursor.take_str("<") {
            return self
                .cursor
                .error("expected a token, as `<[123]>`, after `!`");
        }
        let mut set = TokenSet {
            negated,
            ..TokenSet::default()
        };
        if self.cursor.take_str("[") {
            let id = self.cursor.take_number(u32::MAX - 1, "token id")?;
            set.ranges.push((id, id));
            if !self.cursor.take_str("]>") {
                let found = self.cursor.found();
                return self
                    .cursor
                    .error(format!("expected `]>` after the token's id, found {found}"));
            }
            return Ok(NodeKind::Tokens(set));
        }
        let name = self.cursor.take_while(|c| c != '>' && !c.is_whitespace());
        if name.is_empty() || !self.cursor.take_str(">") {
            return Err(SyntaxError::new(offset, "`<` without `>`"));
        }
        let name: Box<str> = format!("<{name}>").into();
        if negated {
            set.names.push(name);
            return Ok(NodeKind::Tokens(set));
        }
        Ok(NodeKind::NamedToken(name))
    }
}

/// Any code point.
pub(super) fn any_char() -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)])
}
