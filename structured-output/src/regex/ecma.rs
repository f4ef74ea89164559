//! What ECMA-262 writes otherwise: the dialect of JSON Schema's `pattern`.
//!
//! `\\d` and `\\w` are ASCII, `.` stops at four line ends, `[]` is a class of nothing, `[` and `&&` in a
//! class are signs, surrogates may be escaped in pairs, and there are no flags in the pattern. Where
//! the flag `u` and its absence differ, what either takes is taken: code points are the unit, as
//! with `u`, and braces and escaped signs stand for themselves, as without.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::class::{Escape, class_of};
use super::parser::Parser;
use super::syntax::RegexError;

/// Which syntax a pattern is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// What Rust's `regex` and Python's `re` have in common.
    Common,
    /// ECMA-262.
    Ecma,
}

/// `\\s`: ECMA-262's WhiteSpace and LineTerminator.
const SPACES: &[(char, char)] = &[
    ('\t', '\r'),
    (' ', ' '),
    ('\u{a0}', '\u{a0}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{feff}', '\u{feff}'),
];

/// `.`: all but LineTerminator.
pub(super) fn dot() -> ClassUnicode {
    class_of(&[
        ('\0', '\x09'),
        ('\x0b', '\x0c'),
        ('\x0e', '\u{2027}'),
        ('\u{202a}', char::MAX),
    ])
}

/// `\\d`, `\\w` or `\\s`.
pub(super) fn perl_class(letter: char) -> ClassUnicode {
    class_of(match letter {
        'd' => &[('0', '9')],
        'w' => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        _ => SPACES,
    })
}

impl Parser<'_> {
    /// The rest of an escape after the backslash at `offset`.
    pub(super) fn ecma_escape(&mut self, offset: usize) -> Result<Escape, RegexError> {
        let rest = self.rest();
        let mut chars = rest.chars();
        let (next, after) = (chars.next(), chars.next());
        let one = match next {
            Some('c') => match after {
                Some(letter) if letter.is_ascii_alphabetic() => {
                    self.skip(2);
                    char::from(letter as u8 % 32)
                }
                _ => {
                    return Err(RegexError::new(
                        offset,
                        "`\\c` without a letter: escape the backslash as `\\\\`",
                    ));
                }
            },
            Some('u') if after != Some('{') => {
                self.skip(1);
                self.utf16_escape(offset)?
            }
            Some('0') if after.is_some_and(|digit| digit.is_ascii_digit()) => {
                return Err(RegexError::new(
                    offset,
                    "an octal escape: write the code point as `\\xHH`",
                ));
            }
            Some('a' | 'U') => {
                return Err(RegexError::new(offset, "not an escape of ECMA-262"));
            }
            _ => return self.shared_escape(offset),
        };
        Ok(Escape::Char(one))
    }

    /// The digits after `\\u`, and those of a second escape where the first is half a pair.
    fn utf16_escape(&mut self, offset: usize) -> Result<char, RegexError> {
        let unit = |text: &str| {
            let digits = text.get(..4)?;
            let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
        };
        let rest = self.rest();
        let first = unit(rest);
        let second = rest.get(4..).and_then(|rest| rest.strip_prefix("\\u"));
        let units = [first, second.and_then(unit)];
        let mut decoded = char::decode_utf16(units.into_iter().flatten());
        match decoded.next() {
            Some(Ok(char)) => {
                self.skip(if char.len_utf16() == 2 { 10 } else { 4 });
                Ok(char)
            }
            _ => Err(RegexError::new(
                offset,
                "not a code point: write `\\u` with four hexadecimal digits, surrogates in pairs",
            )),
        }
    }

    /// The rest of `[...]` after the bracket at `offset`.
    pub(super) fn ecma_bracket(&mut self, offset: usize) -> Result<ClassUnicode, RegexError> {
        let negated = self.take_if('^');
        let mut class = ClassUnicode::empty();
        loop {
            let at = self.offset();
            let low = match self.take() {
                None => return Err(RegexError::new(offset, "`[` without `]`")),
                Some(']') => break,
                Some('\\') => self.class_escape(at)?,
                Some(one) => Escape::Char(one),
            };
            // A `-` next to a class, or last, is a sign.
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let low = match low {
                Escape::Class(inner) => {
                    class.union(&inner);
                    continue;
                }
                Escape::Char(low) => low,
            };
            if !is_range {
                class.push(ClassUnicodeRange::new(low, low));
                continue;
            }
            self.skip(1);
            let end = self.offset();
            let high = match self.take() {
                None => return Err(RegexError::new(offset, "`[` without `]`")),
                Some('\\') => self.class_escape(end)?,
                Some(one) => Escape::Char(one),
            };
            match high {
                Escape::Char(high) if low > high => {
                    return Err(RegexError::new(
                        at,
                        format!("the range `{low}-{high}` runs backwards"),
                    ));
                }
                Escape::Char(high) => class.push(ClassUnicodeRange::new(low, high)),
                Escape::Class(inner) => {
                    class.push(ClassUnicodeRange::new(low, low));
                    class.push(ClassUnicodeRange::new('-', '-'));
                    class.union(&inner);
                }
            }
        }
        if negated {
            class.negate();
        }
        Ok(class)
    }
}
