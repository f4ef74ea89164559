//! What ECMA-262 writes otherwise: the dialect of JSON Schema's `pattern`.
//!
//! `\\d` and `\\w` are ASCII, `.` stops at four line ends, `[]` is a class of nothing, `[` and `&&` in a
//! class are signs, surrogates may be escaped in pairs (and alone in a class, where they are no text's), and
//! there are no flags in the pattern. Where
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
    /// Python's `re`, with what only Rust's `regex` has where it isn't read otherwise there.
    Python,
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
        let rest = self.rest();
        let first = utf16_unit(rest);
        let second = rest.get(4..).and_then(|rest| rest.strip_prefix("\\u"));
        let units = [first, second.and_then(utf16_unit)];
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
                Some('\\') => self.member_escape(at)?,
                Some(one) => Member::Code(one.into()),
            };
            // A `-` next to a class, or last, is a sign.
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let low = match low {
                Member::Class(inner) => {
                    class.union(&inner);
                    continue;
                }
                Member::Code(low) => low,
            };
            if !is_range {
                push_codes(&mut class, low, low);
                continue;
            }
            self.skip(1);
            let end = self.offset();
            let high = match self.take() {
                None => return Err(RegexError::new(offset, "`[` without `]`")),
                Some('\\') => self.member_escape(end)?,
                Some(one) => Member::Code(one.into()),
            };
            match high {
                Member::Code(high) if low > high => {
                    let name = |code: u32| {
                        char::from_u32(code).map_or(format!("\\u{code:04x}"), String::from)
                    };
                    let range = format!("{}-{}", name(low), name(high));
                    return Err(RegexError::new(
                        at,
                        format!("the range `{range}` runs backwards"),
                    ));
                }
                Member::Code(high) => push_codes(&mut class, low, high),
                Member::Class(inner) => {
                    push_codes(&mut class, low, low);
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

    /// An escape in brackets, where half a surrogate pair may stand alone.
    fn member_escape(&mut self, offset: usize) -> Result<Member, RegexError> {
        let half = self.rest().strip_prefix('u').and_then(utf16_unit);
        if let Some(half @ 0xd800..=0xdfff) = half {
            let second = self
                .rest()
                .get(5..)
                .and_then(|rest| rest.strip_prefix("\\u"));
            let pair = [Some(half), second.and_then(utf16_unit)];
            let mut decoded = char::decode_utf16(pair.into_iter().flatten());
            if let Some(Err(_)) = decoded.next() {
                self.skip(5);
                return Ok(Member::Code(half.into()));
            }
        }
        Ok(match self.class_escape(offset)? {
            Escape::Char(one) => Member::Code(one.into()),
            Escape::Class(class) => Member::Class(class),
        })
    }
}

/// What is in brackets: a code point, which may be half a surrogate pair, or a class.
enum Member {
    Code(u32),
    Class(ClassUnicode),
}

/// The number that a text begins with, of four hexadecimal digits.
fn utf16_unit(text: &str) -> Option<u16> {
    let digits = text.get(..4)?;
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

/// Adds what is between two code points, but the halves of surrogate pairs: no text has them.
fn push_codes(class: &mut ClassUnicode, low: u32, high: u32) {
    for (from, to) in [(low, high.min(0xd7ff)), (low.max(0xe000), high)] {
        if from <= to
            && let (Some(from), Some(to)) = (char::from_u32(from), char::from_u32(to))
        {
            class.push(ClassUnicodeRange::new(from, to));
        }
    }
}
