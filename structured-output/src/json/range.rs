//! Numbers between bounds, as languages.
//!
//! Bounds are compared digit by digit with the decimals that they are written as, never as
//! floating-point numbers. A range is a union by sign and by number of digits before the point; only
//! digits equal to a bound's need expressions of their own.

use super::decimal::Decimal;
use super::number::MAX_TRAILING_ZEROS;
use crate::lexical::{ByteSet, EMPTY, EPSILON, ExprId, Lexicon, UNBOUNDED};

/// A bound on a number: the number as JSON writes it, and whether it is allowed itself.
pub(crate) type Bound<'a> = Option<(&'a str, bool)>;

/// A bound on a magnitude: its value, and whether it is allowed itself.
type Limit = (Decimal, bool);

impl Lexicon {
    /// Numbers between bounds.
    ///
    /// The expression has a few nodes per digit of the bounds.
    ///
    /// # Errors
    /// A bound that is no JSON number, or of more than a thousand digits.
    pub(crate) fn json_number_range(
        &mut self,
        low: Bound<'_>,
        high: Bound<'_>,
    ) -> Result<ExprId, String> {
        let read = |bound: Bound<'_>| -> Result<Option<(bool, Limit)>, String> {
            let Some((text, inclusive)) = bound else {
                return Ok(None);
            };
            let (negative, magnitude) = Decimal::parse(text)?;
            Ok(Some((negative, (magnitude, inclusive))))
        };
        let (low, high) = (read(low)?, read(high)?);
        if low.is_none() && high.is_none() {
            return Ok(self.json_decimal());
        }
        let zero = |inclusive| (Decimal::default(), inclusive);
        // Zero itself, as a bound of the other sign's magnitudes.
        let zero_from = low.as_ref().is_none_or(|(negative, (value, inclusive))| {
            *negative || (value.is_zero() && *inclusive)
        });
        let zero_to = high.as_ref().is_none_or(|(negative, (value, inclusive))| {
            !(*negative || (value.is_zero() && !inclusive))
        });
        let with_zero = zero_from && zero_to;
        let mut ways = Vec::new();
        let from = match &low {
            Some((false, limit)) if !limit.0.is_zero() => limit.clone(),
            _ => zero(with_zero),
        };
        match &high {
            None => ways.push(self.magnitudes(&from, None)),
            Some((false, limit)) => ways.push(self.magnitudes(&from, Some(limit))),
            Some((true, _)) => {}
        }
        let from = match &high {
            Some((true, limit)) => limit.clone(),
            _ => zero(with_zero),
        };
        let minus = self.literal(b"-");
        let below = match &low {
            None => self.magnitudes(&from, None),
            Some((true, limit)) => self.magnitudes(&from, Some(limit)),
            Some((false, (value, _))) if value.is_zero() => {
                self.magnitudes(&from, Some(&zero(with_zero)))
            }
            Some((false, _)) => EMPTY,
        };
        ways.push(self.concat(minus, below));
        Ok(self.or(&ways))
    }

    /// Unsigned decimals between two limits, or above one.
    fn magnitudes(&mut self, low: &Limit, high: Option<&Limit>) -> ExprId {
        let shortest = low.0.whole().len() as u32;
        let mut ways = Vec::new();
        let longest = match high {
            None => UNBOUNDED,
            Some(high) => {
                let order = low.0.cmp(&high.0);
                if order.is_gt() || order.is_eq() && !(low.1 && high.1) {
                    return EMPTY;
                }
                let longest = high.0.whole().len() as u32;
                if shortest == longest {
                    return self.between(Some(low), Some(high), shortest);
                }
                ways.push(self.between(None, Some(high), longest));
                longest
            }
        };
        let tail = self.json_optional_fraction();
        let first = self.class(ByteSet::range(b'1', b'9'));
        let digit = self.class(ByteSet::range(b'0', b'9'));
        // From how many digits on every number is above the lower limit.
        let mut free_from = shortest + 1;
        if low.0.is_zero() && low.1 {
            let zero = self.literal(b"0");
            ways.push(self.concat(zero, tail));
            free_from = 1;
        } else {
            ways.push(self.between(Some(low), None, shortest));
        }
        if free_from < longest {
            let max = match longest {
                UNBOUNDED => UNBOUNDED,
                longest => longest - 2,
            };
            let more = self.repeat(digit, free_from - 1, max);
            let whole = self.concat(first, more);
            ways.push(self.concat(whole, tail));
        }
        self.or(&ways)
    }

    /// Unsigned decimals of `length` digits before the point, between limits that have as many.
    ///
    /// Made from the last digit to the first. At each place three things may be asked of the rest,
    /// given the digits before: it is above the lower limit's rest, below the upper's, or between
    /// both where the limits are equal so far.
    fn between(&mut self, low: Option<&Limit>, high: Option<&Limit>, length: u32) -> ExprId {
        let none = (Decimal::default(), true);
        let (bottom, top) = (low.unwrap_or(&none), high.unwrap_or(&none));
        let fractions = self.fraction_between(bottom, top);
        let point = self.literal(b".");
        let has_fraction = |limit: &Limit| !limit.0.fraction().is_empty();
        // Without a fraction: above the lower limit only if that is the value itself.
        let stop_low = !has_fraction(bottom) && bottom.1;
        let stop_high = has_fraction(top) || top.1;
        let mut after = |fraction: ExprId, stop: bool| {
            let rest = self.concat(point, fraction);
            if stop { self.optional(rest) } else { rest }
        };
        let mut rest = Tight {
            low: after(fractions.low, stop_low),
            high: after(fractions.high, stop_high),
            both: after(fractions.both, stop_low && stop_high),
        };
        let free = self.json_optional_fraction();
        let digit = self.class(ByteSet::range(b'0', b'9'));
        // Whether the lower limit's digits after the place are zeros, and it is allowed.
        let mut zeros_follow = stop_low;
        for at in (0..length as usize).rev() {
            let least = if at == 0 && length > 1 { b'1' } else { b'0' };
            let digit_of = |limit: &Limit| limit.0.whole().as_bytes().get(at).copied();
            let a = low.and_then(digit_of).unwrap_or(least);
            let b = high.and_then(digit_of).unwrap_or(b'9');
            let all = zeros_follow && a == least;
            // Most digits of long limits are zeros, below which there is nothing.
            let needs_free = low.is_some() && (all || a < b'9') || high.is_some() && b > least;
            let free = if needs_free {
                let left = length - 1 - at as u32;
                let more = self.repeat(digit, left, left);
                self.concat(more, free)
            } else {
                EMPTY
            };
            rest = Tight {
                low: match low {
                    None => EMPTY,
                    Some(_) if all => {
                        let any = self.class(ByteSet::range(least, b'9'));
                        self.concat(any, free)
                    }
                    Some(_) => self.above(a, rest.low, free),
                },
                high: match high {
                    None => EMPTY,
                    Some(_) => self.below(least, b, rest.high, free),
                },
                both: match (low, high) {
                    (Some(_), Some(_)) => self.within(a, b, &rest, free),
                    _ => EMPTY,
                },
            };
            zeros_follow &= a == b'0';
        }
        match (low, high) {
            (Some(_), Some(_)) => rest.both,
            (Some(_), None) => rest.low,
            _ => rest.high,
        }
    }

    /// Digits after the point, by what is asked of them.
    fn fraction_between(&mut self, low: &Limit, high: &Limit) -> Tight {
        let (bottom, top) = (low.0.fraction().as_bytes(), high.0.fraction().as_bytes());
        let length = bottom.len().max(top.len());
        // Zeros at the end of the limits' digits before each place.
        let zeros_before = |digits: &[u8]| {
            let mut zeros = vec![0_u32];
            for at in 0..length {
                let digit = digits.get(at).copied().unwrap_or(b'0');
                let last = zeros[at];
                zeros.push(if digit == b'0' { last + 1 } else { 0 });
            }
            zeros
        };
        let (low_zeros, high_zeros) = (zeros_before(bottom), zeros_before(top));
        // After the last digit of both.
        let above = if low.1 {
            self.fraction_digits(low_zeros[length], length == 0)
        } else {
            self.digits_above_zero()
        };
        let equal = if high.1 {
            self.more_zeros(high_zeros[length], length == 0)
        } else {
            EMPTY
        };
        let mut rest = Tight {
            low: above,
            high: equal,
            both: if low.1 { equal } else { EMPTY },
        };
        let free = self.fraction_digits(0, false);
        for at in (0..length).rev() {
            let digit = |digits: &[u8]| digits.get(at).copied().unwrap_or(b'0');
            let (a, b) = (digit(bottom), digit(top));
            let may_end = |zeros: u32| at > 0 && zeros <= MAX_TRAILING_ZEROS;
            // Ending here, the value is the limit cut off here.
            let reaches_low = at >= bottom.len() && low.1;
            let keeps_high = at < top.len() || high.1;
            let mut next = Tight {
                low: self.above(a, rest.low, free),
                high: self.literal(b"0"),
                both: self.within(a, b, &rest, free),
            };
            next.high = if b == b'0' {
                self.concat(next.high, rest.high)
            } else {
                let more = self.fraction_digits(high_zeros[at] + 1, false);
                let zero = self.concat(next.high, more);
                let others = self.below(b'1', b, rest.high, free);
                self.or(&[zero, others])
            };
            for (expr, ends) in [
                (&mut next.low, reaches_low && may_end(low_zeros[at])),
                (&mut next.high, keeps_high && may_end(high_zeros[at])),
                (
                    &mut next.both,
                    reaches_low && keeps_high && may_end(low_zeros[at]),
                ),
            ] {
                if ends {
                    *expr = self.or(&[*expr, EPSILON]);
                }
            }
            rest = next;
        }
        rest
    }

    /// A digit above `digit` and anything, or `digit` and `equal`.
    fn above(&mut self, digit: u8, equal: ExprId, free: ExprId) -> ExprId {
        let greater = self.class(ByteSet::range(digit + 1, b'9'));
        let greater = self.concat(greater, free);
        let same = self.literal(&[digit]);
        let same = self.concat(same, equal);
        self.or(&[greater, same])
    }

    /// A digit from `least` to below `digit` and anything, or `digit` and `equal`.
    fn below(&mut self, least: u8, digit: u8, equal: ExprId, free: ExprId) -> ExprId {
        let less = self.class(ByteSet::range(least, digit.wrapping_sub(1).min(b'9')));
        let less = self.concat(less, free);
        let same = self.literal(&[digit]);
        let same = self.concat(same, equal);
        self.or(&[less, same])
    }

    /// A digit strictly between two and anything, or one of the two and what is asked then.
    fn within(&mut self, low: u8, high: u8, rest: &Tight, free: ExprId) -> ExprId {
        if low == high {
            let same = self.literal(&[low]);
            return self.concat(same, rest.both);
        }
        let inner = self.class(ByteSet::range(low + 1, high.wrapping_sub(1)));
        let inner = self.concat(inner, free);
        let (low, high) = (self.literal(&[low]), self.literal(&[high]));
        let low = self.concat(low, rest.low);
        let high = self.concat(high, rest.high);
        self.or(&[inner, low, high])
    }
}

/// What may follow digits that a limit begins with, by limit: the lower, the upper, both at once.
#[derive(Clone, Copy)]
struct Tight {
    low: ExprId,
    high: ExprId,
    both: ExprId,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{accepts, is_decimal, live_after};
    use super::*;

    fn lexicon() -> Lexicon {
        Lexicon::new(Vec::new(), 8)
    }

    /// Times ten to the power of 30: exact for the numbers in these tests.
    fn scaled(text: &str) -> i128 {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let unsigned = mantissa.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let places = fraction.len() as i32 - exponent.parse::<i32>().unwrap();
        let digits: i128 = format!("{whole}{fraction}").parse().unwrap();
        let value = if digits == 0 {
            0
        } else {
            digits * 10_i128.pow((30 - places) as u32)
        };
        if mantissa.starts_with('-') {
            -value
        } else {
            value
        }
    }

    fn in_range(text: &str, low: Bound<'_>, high: Bound<'_>) -> bool {
        is_decimal(text)
            && low.is_none_or(|(low, inclusive)| {
                scaled(low) < scaled(text) || inclusive && scaled(low) == scaled(text)
            })
            && high.is_none_or(|(high, inclusive)| {
                scaled(text) < scaled(high) || inclusive && scaled(high) == scaled(text)
            })
    }

    #[test]
    fn ranges_by_example() {
        let mut l = lexicon();
        let ports = l
            .json_number_range(Some(("0", true)), Some(("65535", true)))
            .unwrap();
        for good in [
            "0",
            "-0",
            "0.0",
            "-0.0000",
            "65535",
            "65535.0000",
            "65534.99",
            "7",
            "59999",
        ] {
            assert!(accepts(&mut l, ports, good.as_bytes()), "{good}");
        }
        for bad in [
            "-1",
            "-0.1",
            "65536",
            "65535.00000",
            "65535.1",
            "00",
            "1e3",
            "+1",
            ".5",
            "1.",
        ] {
            assert!(!accepts(&mut l, ports, bad.as_bytes()), "{bad}");
        }
        assert!(l.len() < 200, "{}", l.len());
        let one = l
            .json_number_range(Some(("1.50", true)), Some(("15e-1", true)))
            .unwrap();
        assert!(accepts(&mut l, one, b"1.5") && accepts(&mut l, one, b"1.50000"));
        assert!(!accepts(&mut l, one, b"1.500000") && !accepts(&mut l, one, b"1.501"));
        for (low, high) in [(("2", true), ("1", true)), (("1", true), ("1", false))] {
            assert_eq!(l.json_number_range(Some(low), Some(high)), Ok(EMPTY));
        }
        assert_eq!(l.json_number_range(None, None), Ok(l.json_decimal()));
        for bad in ["1e1001", "-1e-1001", "1e99999999999999999999", "x", "1e"] {
            assert!(
                l.json_number_range(Some((bad, true)), None).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn bounds_of_hundreds_of_digits_stay_small() {
        let mut l = lexicon();
        let before = l.len();
        let wide = l
            .json_number_range(Some(("-1e308", true)), Some(("1e308", true)))
            .unwrap();
        assert!(l.len() - before < 400, "{}", l.len() - before);
        let digits = |first: &str, count: usize| format!("{first}{}", "0".repeat(count));
        assert!(accepts(&mut l, wide, digits("1", 308).as_bytes()));
        assert!(accepts(&mut l, wide, digits("-9", 307).as_bytes()));
        assert!(!accepts(&mut l, wide, digits("1", 309).as_bytes()));
        assert!(!accepts(&mut l, wide, digits("-2", 308).as_bytes()));
        let max = "1.7976931348623157e308";
        let before = l.len();
        let double = l.json_number_range(None, Some((max, true))).unwrap();
        assert!(l.len() - before < 400, "{}", l.len() - before);
        assert!(!live_after(&mut l, double, digits("18", 307).as_bytes()));
        assert!(accepts(&mut l, double, digits("17", 307).as_bytes()));
    }

    fn decimals() -> impl Strategy<Value = String> {
        let plain = "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,4})?";
        let tens = "-?[1-9](\\.[0-9]{1,2})?e[+-]?[0-5]";
        prop_oneof![
            plain.boxed(),
            tens.boxed(),
            "-?(0|1|10|99|0\\.05|0\\.95)".boxed()
        ]
    }

    proptest! {
        #[test]
        fn a_range_has_the_spellings_of_its_values(
            low in proptest::option::of((decimals(), any::<bool>())),
            high in proptest::option::of((decimals(), any::<bool>())),
            probes in prop::collection::vec("-?(0|[1-9][0-9]{0,4})(\\.[0-9]{0,3}0{0,6})?", 24),
        ) {
            let mut l = lexicon();
            let low = low.as_ref().map(|(text, inclusive)| (text.as_str(), *inclusive));
            let high = high.as_ref().map(|(text, inclusive)| (text.as_str(), *inclusive));
            let range = l.json_number_range(low, high).unwrap();
            let near = [low, high].into_iter().flatten().flat_map(|(text, _)| {
                let mantissa = text.split('e').next().unwrap_or(text);
                ["", "0", ".0", "0000", "1", ".00001", ".1", "5"]
                    .map(|end| format!("{mantissa}{end}"))
            });
            for probe in near.chain(probes) {
                let good = in_range(&probe, low, high);
                prop_assert_eq!(accepts(&mut l, range, probe.as_bytes()), good, "{}", probe);
                for end in 0..probe.len() {
                    // Every beginning can go on: there are no dead ends without an intersection.
                    prop_assert!(!good || live_after(&mut l, range, &probe.as_bytes()[..end]));
                }
            }
        }
    }
}
