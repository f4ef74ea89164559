//! Numbers as languages: any, under a constraint, by value.
//!
//! Under a constraint a value is spelled as a decimal without exponent, with at most four zeros
//! after its last digit other than zero; minus zero is zero.

use super::decimal::Scientific;
use super::enumeration;
use crate::lexical::{ByteSet, EMPTY, ExprId, Lexicon, UNBOUNDED};

/// Zeros that a number under a constraint may have after its last other digit of a fraction.
pub(crate) const MAX_TRAILING_ZEROS: u32 = 4;

impl Lexicon {
    /// Any JSON number.
    pub(crate) fn json_number(&mut self) -> ExprId {
        let whole = self.json_whole();
        let digit = self.class(ByteSet::range(b'0', b'9'));
        let digits = self.repeat(digit, 1, UNBOUNDED);
        let point = self.literal(b".");
        let fraction = self.concat(point, digits);
        let fraction = self.optional(fraction);
        let e = self.class(ByteSet::from_iter([b'e', b'E']));
        let sign = self.class(ByteSet::from_iter([b'+', b'-']));
        let sign = self.optional(sign);
        let exponent = self.concat(sign, digits);
        let exponent = self.concat(e, exponent);
        let exponent = self.optional(exponent);
        let rest = self.concat(fraction, exponent);
        self.concat(whole, rest)
    }

    /// Any whole number without exponent, with up to four zeros after a decimal point.
    pub(crate) fn json_integer(&mut self) -> ExprId {
        let whole = self.json_whole();
        let point = self.literal(b".");
        let zero = self.literal(b"0");
        let zeros = self.repeat(zero, 1, MAX_TRAILING_ZEROS);
        let fraction = self.concat(point, zeros);
        let fraction = self.optional(fraction);
        self.concat(whole, fraction)
    }

    /// Any whole number, without exponent and without a fraction.
    pub(crate) fn json_whole(&mut self) -> ExprId {
        let minus = self.literal(b"-");
        let minus = self.optional(minus);
        let zero = self.literal(b"0");
        let first = self.class(ByteSet::range(b'1', b'9'));
        let digit = self.class(ByteSet::range(b'0', b'9'));
        let digits = self.star(digit);
        let other = self.concat(first, digits);
        let whole = self.or(&[zero, other]);
        self.concat(minus, whole)
    }

    /// Any number under a constraint.
    pub(crate) fn json_decimal(&mut self) -> ExprId {
        let whole = self.json_whole();
        let fraction = self.json_optional_fraction();
        self.concat(whole, fraction)
    }

    /// `.` and digits, or nothing.
    pub(super) fn json_optional_fraction(&mut self) -> ExprId {
        let point = self.literal(b".");
        let digits = self.fraction_digits(0, true);
        let fraction = self.concat(point, digits);
        self.optional(fraction)
    }

    /// Any more digits of a fraction that ends in `zeros` zeros so far; with `some` at least one.
    pub(super) fn fraction_digits(&mut self, zeros: u32, some: bool) -> ExprId {
        let only_zeros = self.more_zeros(zeros, some);
        let others = self.digits_above_zero();
        self.or(&[only_zeros, others])
    }

    /// Zeros alone, after `zeros` of them; with `some` at least one.
    pub(super) fn more_zeros(&mut self, zeros: u32, some: bool) -> ExprId {
        match MAX_TRAILING_ZEROS.checked_sub(zeros) {
            Some(left) => {
                let zero = self.literal(b"0");
                self.repeat(zero, u32::from(some), left)
            }
            None => EMPTY,
        }
    }

    /// Digits of a fraction, not all of them zero.
    pub(super) fn digits_above_zero(&mut self) -> ExprId {
        let digit = self.class(ByteSet::range(b'0', b'9'));
        let digits = self.star(digit);
        let last = self.class(ByteSet::range(b'1', b'9'));
        let zeros = self.more_zeros(0, false);
        let end = self.concat(last, zeros);
        self.concat(digits, end)
    }

    /// The spellings of a number's value, and the one given.
    ///
    /// Costs a few nodes per digit of those that are written out to a thousand digits, and for
    /// others as many as they are written with: the zeros that an exponent stands for are a count.
    ///
    /// # Errors
    /// A text that is no JSON number.
    pub(crate) fn json_number_value(&mut self, text: &str) -> Result<ExprId, String> {
        let expr = match self.json_number_range(Some((text, true)), Some((text, true))) {
            Ok(expr) => expr,
            Err(_) => self.json_long_number(&Scientific::parse(text)?),
        };
        // Most are among these already, and are then one language and not two that overlap.
        if is_canonical(text) {
            return Ok(expr);
        }
        let own = self.literal(text.as_bytes());
        Ok(self.or(&[expr, own]))
    }

    /// The decimals that are equal to a number of any length but zero. None where more digits than
    /// can be counted are needed: no answer is that long.
    fn json_long_number(&mut self, number: &Scientific) -> ExprId {
        let most = i64::from(u32::MAX / 4);
        let Some(point) = number.point.filter(|point| point.abs() <= most) else {
            return EMPTY;
        };
        let length = number.digits.len() as i64;
        let split = point.clamp(0, length) as usize;
        let (whole, fraction) = number.digits.split_at(split);
        let zero = self.literal(b"0");
        let zeros = |lexicon: &mut Self, count: i64| {
            let count = count.max(0) as u32;
            lexicon.repeat(zero, count, count)
        };
        let sign = self.literal(if number.is_negative { b"-" } else { b"" });
        let whole = match whole {
            "" => zero,
            whole => {
                let digits = self.literal(whole.as_bytes());
                let zeros = zeros(self, point - length);
                self.concat(digits, zeros)
            }
        };
        let dot = self.literal(b".");
        let fraction = match fraction {
            "" => {
                let zeros = self.more_zeros(0, true);
                let fraction = self.concat(dot, zeros);
                self.optional(fraction)
            }
            fraction => {
                let zeros = zeros(self, -point);
                let digits = self.literal(fraction.as_bytes());
                let more = self.more_zeros(0, false);
                let digits = self.concat(digits, more);
                let digits = self.concat(zeros, digits);
                self.concat(dot, digits)
            }
        };
        let number = self.concat(whole, fraction);
        self.concat(sign, number)
    }
}

/// Whether a number is written as its value is under a constraint, without what could be left out: then its
/// own spelling is among those of its value.
pub(super) fn is_canonical(number: &str) -> bool {
    number == "0" || enumeration::is_plain(number)
}
