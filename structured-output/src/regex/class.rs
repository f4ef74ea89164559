//! Character classes: brackets, escapes, Unicode properties.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::ecma::{self, Dialect};
use super::parser::Parser;
use super::python;
use super::syntax::RegexError;

/// What an escape stands for within or outside of brackets.
pub(super) enum Escape {
    Char(char),
    Class(ClassUnicode),
}

/// A class of the code points in some ranges.
pub(super) fn class_of(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(
        ranges
            .iter()
            .map(|&(low, high)| ClassUnicodeRange::new(low, high)),
    )
}

/// A class by its notation in `regex-syntax`, such as `\p{Greek}`.
fn notated(notation: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(notation).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        HirKind::Class(Class::Bytes(class)) => class.to_unicode_class(),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            let one = text.chars().next()?;
            Some(class_of(&[(one, one)]))
        }
        // A property that no code point has.
        HirKind::Empty => None,
        _ => None,
    }
}

impl Parser<'_> {
    /// `\d`, `\w` or `\s`, by the flag Unicode or ASCII.
    pub(super) fn perl_class(&self, letter: char) -> ClassUnicode {
        if self.dialect == Dialect::Ecma {
            return ecma::perl_class(letter);
        }
        if self.dialect == Dialect::Python
            && !self.flags.ascii
            && let Some(class) = python::perl_class(letter)
        {
            return class;
        }
        let ascii: &[(char, char)] = match letter {
            'd' => &[('0', '9')],
            'w' => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            _ => &[('\t', '\r'), (' ', ' ')],
        };
        let unicode = (!self.flags.ascii).then(|| notated(&format!("\\{letter}")));
        unicode.flatten().unwrap_or_else(|| class_of(ascii))
    }

    /// The rest of an escape after the backslash at `offset`, as far as it means the same within
    /// and outside of brackets.
    pub(super) fn escape(&mut self, offset: usize) -> Result<Escape, RegexError> {
        match self.dialect {
            Dialect::Common | Dialect::Python => self.shared_escape(offset),
            Dialect::Ecma => self.ecma_escape(offset),
        }
    }

    /// An escape, but for those that only one dialect has.
    pub(super) fn shared_escape(&mut self, offset: usize) -> Result<Escape, RegexError> {
        let error = |message: String| RegexError::new(offset, message);
        let Some(next) = self.take() else {
            return Err(error(
                "a backslash ends the pattern: write `\\\\` for it".into(),
            ));
        };
        let escape = match next {
            't' => Escape::Char('\t'),
            'n' => Escape::Char('\n'),
            'r' => Escape::Char('\r'),
            'f' => Escape::Char('\x0c'),
            'v' => Escape::Char('\x0b'),
            'a' => Escape::Char('\x07'),
            '0' => Escape::Char(self.octal(offset, 0, 2)?),
            '1'..='7' if self.dialect != Dialect::Ecma && self.octal_digits(2) == 2 => {
                Escape::Char(self.octal(offset, u32::from(next) - u32::from('0'), 2)?)
            }
            'x' => Escape::Char(self.code_point(offset, 2)?),
            'u' => Escape::Char(self.code_point(offset, 4)?),
            'U' => Escape::Char(self.code_point(offset, 8)?),
            'd' | 'w' | 's' => Escape::Class(self.perl_class(next)),
            'D' | 'W' | 'S' => {
                let mut class = self.perl_class(next.to_ascii_lowercase());
                class.negate();
                Escape::Class(class)
            }
            'p' | 'P' => Escape::Class(self.property(offset, next)?),
            '1'..='9' => {
                return Err(error(format!(
                    "back-reference `\\{next}`: a back-reference is not regular and can't be enforced"
                )));
            }
            'k' => {
                return Err(error(
                    "back-reference `\\k`: a back-reference is not regular and can't be enforced"
                        .into(),
                ));
            }
            _ if next.is_ascii_alphanumeric() => {
                return Err(error(format!(
                    "unknown escape `\\{next}`: only signs are escaped to themselves"
                )));
            }
            _ => Escape::Char(next),
        };
        Ok(escape)
    }

    /// How many octal digits come next, up to a number.
    fn octal_digits(&self, max: usize) -> usize {
        let digits = self.rest().bytes().take(max);
        digits
            .take_while(|digit| (b'0'..=b'7').contains(digit))
            .count()
    }

    /// The code point of an octal escape, as Python reads it: a number read so far and up to `max`
    /// more digits.
    fn octal(&mut self, offset: usize, first: u32, max: usize) -> Result<char, RegexError> {
        let count = self.octal_digits(max);
        let digits = self.rest().bytes().take(count);
        let number = digits.fold(first, |number, digit| number * 8 + u32::from(digit - b'0'));
        self.skip(count);
        let byte = u8::try_from(number).map_err(|_| {
            RegexError::new(
                offset,
                format!("the octal escape `\\{number:o}` is above `\\377`: write it as `\\x{{{number:x}}}`"),
            )
        })?;
        Ok(char::from(byte))
    }

    /// `{1f600}` or that many hexadecimal digits.
    fn code_point(&mut self, offset: usize, digits: usize) -> Result<char, RegexError> {
        let text = if self.take_if('{') {
            self.take_through('}')
        } else {
            let rest = self.rest();
            let end = rest
                .char_indices()
                .nth(digits)
                .map_or(rest.len(), |(at, _)| at);
            let text = &rest[..end];
            self.skip(end);
            Some(text).filter(|text| text.len() == digits)
        };
        text.filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|text| u32::from_str_radix(text, 16).ok())
            .and_then(char::from_u32)
            .ok_or_else(|| {
                RegexError::new(
                    offset,
                    format!("not a code point: write {digits} hexadecimal digits, or any number in braces"),
                )
            })
    }

    /// `\p{Name}`, `\pL`, and their negations.
    fn property(&mut self, offset: usize, letter: char) -> Result<ClassUnicode, RegexError> {
        let name = if self.take_if('{') {
            self.take_through('}')
        } else {
            let rest = self.rest();
            let end = rest.chars().next().map_or(0, char::len_utf8);
            self.skip(end);
            Some(&rest[..end])
        };
        let plain = |name: &&str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-= :^".contains(c);
            !name.is_empty() && name.len() <= 64 && name.chars().all(allowed)
        };
        let class = name.filter(plain).and_then(|name| {
            let positive = notated(&format!("\\p{{{name}}}"));
            // A property of every code point has an empty complement, which has no notation.
            positive.map(|mut class| {
                if letter == 'P' {
                    class.negate();
                }
                class
            })
        });
        class.ok_or_else(|| {
            RegexError::new(
                offset,
                "unknown Unicode property: write a general category, a script or a binary \
                 property, as in `\\p{L}`, `\\p{Greek}` or `\\p{Alphabetic}`",
            )
        })
    }

    /// The rest of `[...]` after the bracket at `offset`.
    pub(super) fn bracket(&mut self, offset: usize) -> Result<ClassUnicode, RegexError> {
        if self.dialect == Dialect::Ecma {
            return self.ecma_bracket(offset);
        }
        let negated = self.take_if('^');
        let mut class = ClassUnicode::empty();
        let mut first = true;
        loop {
            let at = self.offset();
            let Some(next) = self.take() else {
                return Err(RegexError::new(offset, "`[` without `]`"));
            };
            let low = match next {
                ']' if !first => break,
                '[' => match self.posix(at) {
                    Ok(inner) => {
                        self.note(at, || python::POSIX.to_owned());
                        class.union(&inner);
                        first = false;
                        continue;
                    }
                    Err(error) if self.dialect == Dialect::Common => return Err(error),
                    Err(_) => {
                        self.note(at, || python::sign_in_class("["));
                        next
                    }
                },
                '&' | '-' | '~'
                    if self.dialect == Dialect::Python && self.rest().starts_with(next) =>
                {
                    self.note(at, || python::sign_in_class(&format!("{next}{next}")));
                    next
                }
                '&' | '-' | '~' if self.rest().starts_with(next) => {
                    return Err(RegexError::new(
                        at,
                        format!(
                            "`{next}{next}` in a class is an operation in some dialects and two \
                             signs in others: escape it as `\\{next}`"
                        ),
                    ));
                }
                '\\' => match self.class_escape(at)? {
                    Escape::Char(low) => low,
                    Escape::Class(inner) => {
                        if self.dialect == Dialect::Python && self.rest().starts_with("--") {
                            return Err(RegexError::new(at, "a range can't begin with a class"));
                        }
                        class.union(&inner);
                        first = false;
                        continue;
                    }
                },
                low => low,
            };
            first = false;
            let high = self.range_end(low)?;
            if low > high {
                return Err(RegexError::new(
                    at,
                    format!("the range `{low}-{high}` runs backwards"),
                ));
            }
            class.push(ClassUnicodeRange::new(low, high));
        }
        if self.flags.ignore_case {
            fold_case(&mut class, offset)?;
        }
        if negated {
            class.negate();
        }
        Ok(class)
    }

    /// The end of a range after its start, or the start itself where there is no range.
    fn range_end(&mut self, low: char) -> Result<char, RegexError> {
        let rest = self.rest();
        let is_sign = self.dialect == Dialect::Common && rest.starts_with("--");
        if !rest.starts_with('-') || rest.starts_with("-]") || is_sign {
            return Ok(low);
        }
        self.skip(1);
        let at = self.offset();
        match self.take() {
            Some('\\') => match self.class_escape(at)? {
                Escape::Char(high) => Ok(high),
                Escape::Class(_) => Err(RegexError::new(at, "a range can't end in a class")),
            },
            Some('[') if self.dialect == Dialect::Common => Err(RegexError::new(
                at,
                "a range can't end in `[`: escape it as `\\[`",
            )),
            Some(high) => Ok(high),
            None => Ok(low),
        }
    }

    /// An escape in brackets, where `\b` is the backspace.
    pub(super) fn class_escape(&mut self, offset: usize) -> Result<Escape, RegexError> {
        if self.take_if('b') {
            return Ok(Escape::Char('\x08'));
        }
        if self.dialect != Dialect::Ecma && self.octal_digits(1) == 1 {
            // No group can be referred to in here.
            return Ok(Escape::Char(self.octal(offset, 0, 3)?));
        }
        self.escape(offset)
    }

    /// `[:alpha:]` within brackets, after its bracket at `offset`.
    fn posix(&mut self, offset: usize) -> Result<ClassUnicode, RegexError> {
        let name = self
            .rest()
            .strip_prefix(':')
            .and_then(|rest| rest.split_once(":]"))
            .map(|(name, _)| name);
        let class = name.and_then(|name| notated(&format!("[[:{name}:]]")));
        match (name, class) {
            (Some(name), Some(class)) => {
                self.skip(name.len() + 3);
                Ok(class)
            }
            _ => Err(RegexError::new(
                offset,
                "`[` in a class is a class within it in some dialects and a sign in others: \
                 escape it as `\\[`",
            )),
        }
    }
}

/// An ASCII character in any case, as Unicode folds it: of `k` there is the Kelvin sign too, and of `s` `ſ`.
pub(crate) fn ascii_in_any_case(one: char) -> ClassUnicode {
    let (upper, lower) = (one.to_ascii_uppercase(), one.to_ascii_lowercase());
    match lower {
        'k' => class_of(&[('K', 'K'), ('k', 'k'), ('\u{212a}', '\u{212a}')]),
        's' => class_of(&[('S', 'S'), ('s', 's'), ('\u{17f}', '\u{17f}')]),
        'a'..='z' => class_of(&[(upper, upper), (lower, lower)]),
        _ => class_of(&[(one, one)]),
    }
}

/// Adds the other cases of each code point.
pub(super) fn fold_case(class: &mut ClassUnicode, offset: usize) -> Result<(), RegexError> {
    // Mostly it is one letter, and the general way takes a microsecond.
    if let [only] = class.ranges()
        && only.start() == only.end()
        && only.start().is_ascii()
    {
        *class = ascii_in_any_case(only.start());
        return Ok(());
    }
    class
        .try_case_fold_simple()
        .map_err(|error| RegexError::new(offset, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_folded_as_unicode_folds_it() {
        for one in '\0'..='\x7f' {
            let mut class = class_of(&[(one, one)]);
            class.try_case_fold_simple().unwrap();
            assert_eq!(ascii_in_any_case(one), class, "{one:?}");
        }
    }
}
