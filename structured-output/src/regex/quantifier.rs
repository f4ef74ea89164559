//! How often something is repeated.

use super::ecma::Dialect;
use super::parser::Parser;
use super::python;
use super::syntax::RegexError;
use crate::lexical::UNBOUNDED;

/// How often a repetition is tried first, which only matters where nothing is tried again.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Greedy,
    Lazy,
    Possessive,
}

impl Parser<'_> {
    /// A quantifier that starts with `next`, as its bounds; `None` where it is none.
    pub(super) fn quantifier(
        &mut self,
        offset: usize,
        next: char,
    ) -> Result<Option<(u32, u32, Mode)>, RegexError> {
        let bounds = match next {
            '*' => (0, UNBOUNDED),
            '+' => (1, UNBOUNDED),
            '?' => (0, 1),
            '{' => match self.counted(offset)? {
                Some(bounds) => bounds,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        if self.dialect == Dialect::Python && self.rest().starts_with('+') {
            self.note(self.offset(), || python::ATOMIC.to_owned());
            self.skip(1);
            return Ok(Some((bounds.0, bounds.1, Mode::Possessive)));
        }
        if self.rest().starts_with('+') {
            return Err(RegexError::new(
                self.offset(),
                "a possessive quantifier is a repeated repetition in some dialects: \
                 put the inner one in a group, or leave the `+` out",
            ));
        }
        // Lazy: the same strings match.
        let mode = match self.take_if('?') {
            true => Mode::Lazy,
            false => Mode::Greedy,
        };
        Ok(Some((bounds.0, bounds.1, mode)))
    }

    /// `m}`, `m,}`, `m,n}` or `,n}` after `{`; `None`, with nothing taken, where a brace is a sign.
    fn counted(&mut self, offset: usize) -> Result<Option<(u32, u32)>, RegexError> {
        let Some((inside, _)) = self.rest().split_once('}') else {
            return Ok(None);
        };
        let ecma = self.dialect == Dialect::Ecma;
        if self.dialect == Dialect::Python && inside.contains(char::is_whitespace) {
            self.note(offset, || python::BLANKS_IN_COUNT.to_owned());
            return Ok(None);
        }
        let (low, high) = match inside.split_once(',') {
            // Without a lower bound, or with blanks, the brace is a sign.
            _ if ecma && (inside.starts_with(',') || inside.contains(' ')) => return Ok(None),
            Some((low, high)) => (low.trim(), Some(high.trim())),
            None => (inside.trim(), None),
        };
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        // Python takes `{,}` for any number of times.
        let some = !low.is_empty()
            || high.is_some_and(|high| !high.is_empty() || self.dialect == Dialect::Python);
        if !some || !digits(low) || !high.is_none_or(digits) {
            return Ok(None);
        }
        let limit = self.limits.max_repetition;
        let shown = |text: &str| match text.get(..20) {
            Some(digits) => format!("{digits}..."),
            None => text.to_owned(),
        };
        let number = |text: &str| match text.parse::<u32>() {
            Ok(number) if number <= limit => Ok(number),
            _ => Err(RegexError::new(
                offset,
                format!(
                    "the count `{}` is above {limit} (limit `max_repetition`)",
                    shown(text)
                ),
            )),
        };
        let min = if low.is_empty() { 0 } else { number(low)? };
        let max = match high {
            None => min,
            Some("") => UNBOUNDED,
            Some(high) => number(high)?,
        };
        if min > max {
            return Err(RegexError::new(
                offset,
                format!("the counts {{{inside}}} run backwards"),
            ));
        }
        self.skip(inside.len() + 1);
        Ok(Some((min, max)))
    }
}
