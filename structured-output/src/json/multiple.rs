//! Numbers that are multiples of a number, as languages.

use super::decimal::Decimal;
use crate::lexical::{ByteSet, ExprId, Lexicon, MAX_MODULUS, MAX_PLACES, Part, Residue};

/// The whole number of whose multiples the whole multiples of a step are: of `m / 10^p` that is `m` without
/// what it has in common with `10^p`. `None` where its digits are too many.
fn whole_step(step: &Decimal) -> Option<u64> {
    let digits = format!("{}{}", step.whole(), step.fraction());
    let mut whole: u128 = digits.trim_start_matches('0').parse().ok()?;
    for factor in [2, 5] {
        for _ in 0..step.fraction().len() {
            if !whole.is_multiple_of(factor) {
                break;
            }
            whole /= factor;
        }
    }
    u64::try_from(whole).ok()
}

impl Lexicon {
    /// As [`Lexicon::json_multiple_of`], where only whole numbers are asked for: more steps can be enforced
    /// for these.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn json_whole_multiple_of(&mut self, step: &str) -> Result<ExprId, String> {
        self.json_multiple_of(step).or_else(|message| {
            match Decimal::parse(step).map(|(is_negative, value)| (is_negative, whole_step(&value)))
            {
                Ok((false, Some(whole))) if whole > 0 => self.json_multiple_of(&whole.to_string()),
                _ => Err(message),
            }
        })
    }

    /// Multiples of a number above zero, given as JSON writes it.
    ///
    /// The digits of `step` without point and leading zeros are a whole number of at most 10^18 after at
    /// most eighteen places: its remainders are computed as they are met.
    ///
    /// # Errors
    /// A step that is no JSON number, not above zero, or beyond these limits.
    pub(crate) fn json_multiple_of(&mut self, step: &str) -> Result<ExprId, String> {
        let shown: String = step.chars().take(40).collect();
        let (negative, value) = Decimal::parse(step)?;
        if negative || value.is_zero() {
            return Err(format!("`{shown}` is not above zero"));
        }
        let places = value.fraction().len();
        let digits = format!("{}{}", value.whole(), value.fraction());
        let modulus = digits.trim_start_matches('0').parse::<u64>().ok();
        let (Some(modulus), Some(places)) = (
            modulus.filter(|&modulus| modulus <= MAX_MODULUS),
            u8::try_from(places)
                .ok()
                .filter(|&places| places <= MAX_PLACES),
        ) else {
            return Err(format!(
                "multiples of `{shown}` can't be enforced: its digits without point may be at most \
                 {MAX_MODULUS} and its places after the point at most {MAX_PLACES}"
            ));
        };
        let state = |remainder: u64, part: Part| Residue {
            modulus,
            remainder,
            places,
            part,
        };
        let zero = self.literal(b"0");
        let after_zero = self.residue(state(0, Part::Zero));
        let mut ways = vec![self.concat(zero, after_zero)];
        for digit in 1..=9_u8 {
            let first = self.class(ByteSet::single(b'0' + digit));
            let rest = self.residue(state(u64::from(digit) % modulus, Part::Whole));
            ways.push(self.concat(first, rest));
        }
        let minus = self.literal(b"-");
        let minus = self.optional(minus);
        let unsigned = self.or(&ways);
        Ok(self.concat(minus, unsigned))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{accepts, is_decimal, live_after};
    use super::*;
    use crate::lexical::Fuel;

    fn lexicon() -> Lexicon {
        Lexicon::new(Vec::new(), 8)
    }

    /// Whether a decimal is a multiple of `digits` / 10^`places`, by the digits written out.
    fn is_multiple(text: &str, digits: u128, places: usize) -> bool {
        let unsigned = text.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let width = places.max(fraction.len());
        let value: u128 = format!("{whole}{fraction:0<width$}").parse().unwrap_or(1);
        let step = digits * 10_u128.pow((width - places) as u32);
        is_decimal(text) && value.is_multiple_of(step)
    }

    #[test]
    fn multiples_by_example() {
        let mut l = lexicon();
        for (step, good, bad) in [
            (
                "7",
                ["0", "-0.0", "-14", "7.0000", "700"],
                ["1", "7.5", "7.00000", "07", "14."],
            ),
            (
                "0.01",
                ["0", "0.01", "1.5", "-12.34", "3.140000"],
                ["0.001", "1.234", "1.", "00", "x"],
            ),
            (
                "2.5",
                ["2.5", "5", "-7.50", "10.0", "0"],
                ["2", "2.55", "1", "0.5", "2.4"],
            ),
            (
                "1e-8",
                ["0.00000001", "12.5", "0", "3", "1.000000010000"],
                ["0.000000001", "1e8", "", "-", "."],
            ),
            (
                "3e2",
                ["300", "0", "-1200", "600.0", "0.0000"],
                ["30", "100", "300.5", "299", "3"],
            ),
            (
                "0.123456789",
                ["0.123456789", "0", "123456789", "0.246913578", "0.0"],
                ["0.1", "1", "0.12345678", "0.2", "9"],
            ),
        ] {
            let expr = l.json_multiple_of(step).unwrap();
            for text in good {
                assert!(accepts(&mut l, expr, text.as_bytes()), "{text} of {step}");
            }
            for text in bad {
                assert!(!accepts(&mut l, expr, text.as_bytes()), "{text} of {step}");
            }
        }
        for bad in [
            "0",
            "-1",
            "1000000000000000001",
            "1e-19",
            "1e400",
            "1e99999999999",
            "x",
        ] {
            assert!(l.json_multiple_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn whole_multiples_by_example() {
        let mut l = lexicon();
        for (step, good, bad) in [
            ("1e-19", ["0", "-7", "12.0"], ["", "-", "01"]),
            ("7e-30", ["0", "14", "-7.0"], ["1", "13", "8"]),
            ("0.00000000000000000025", ["1", "0", "-3"], ["", "x", "1."]),
            (
                "40000000000000000000e-20",
                ["2", "0", "-4"],
                ["1", "-3", "5"],
            ),
        ] {
            let expr = l.json_whole_multiple_of(step).unwrap();
            for text in good {
                assert!(accepts(&mut l, expr, text.as_bytes()), "{text} of {step}");
            }
            for text in bad {
                assert!(!accepts(&mut l, expr, text.as_bytes()), "{text} of {step}");
            }
        }
        for bad in [
            "0",
            "-1e-19",
            "1000000000000000001",
            "1.50000000000000000000000001e-1",
            "1e-1001",
            "x",
        ] {
            assert!(l.json_whole_multiple_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_large_step_costs_nothing_until_it_is_walked() {
        let mut l = lexicon();
        let before = l.len();
        let expr = l.json_multiple_of("4294967291").unwrap();
        assert!(l.len() - before < 60);
        let mut state = expr;
        for &byte in b"12345678901234567890" {
            state = l.derivative(state, byte, &mut Fuel::new(1000)).unwrap();
        }
        assert_eq!(
            l.distance(state, &mut Fuel::new(1000)),
            Ok(u32::from(l.min_bytes(state) as u8))
        );
        assert!(l.min_bytes(state) <= 10);
    }

    proptest! {
        #[test]
        fn a_multiple_leaves_no_remainder(
            digits in prop_oneof![1_u32..40, 1_u32..100_000],
            places in 0_usize..5,
            probes in prop::collection::vec("-?(0|[1-9][0-9]{0,5})(\\.[0-9]{0,4}0{0,6})?", 24),
        ) {
            let mut l = lexicon();
            let step = format!("{digits}e-{places}");
            let expr = l.json_multiple_of(&step).unwrap();
            for probe in probes {
                let good = is_multiple(&probe, u128::from(digits), places);
                prop_assert_eq!(accepts(&mut l, expr, probe.as_bytes()), good, "{} of {}", probe, step);
                // The way that the distances show ends in a multiple of that length.
                for end in 0..=probe.len() {
                    let mut text = probe.as_bytes()[..end].to_vec();
                    if !live_after(&mut l, expr, &text) {
                        break;
                    }
                    let mut state = expr;
                    for &byte in &text {
                        state = l.derivative(state, byte, &mut Fuel::new(1000)).unwrap();
                    }
                    let left = l.min_bytes(state);
                    for step in (0..left).rev() {
                        let next = l.derivatives(state, &mut Fuel::new(1000)).unwrap();
                        let (bytes, to) = *next.iter().find(|n| l.min_bytes(n.1) == step).unwrap();
                        text.push(bytes.iter().next().unwrap());
                        state = to;
                    }
                    let text = String::from_utf8(text).unwrap();
                    prop_assert!(is_multiple(&text, u128::from(digits), places), "{} of {}", text, step);
                }
            }
        }

        /// Multiples of two numbers are those of one, also at each place within.
        #[test]
        fn multiples_of_two_numbers_are_one_state(
            digits in (prop_oneof![1_u64..40, 1_u64..1_000, 10_000_u64..4_000_000], prop_oneof![1_u64..40, 1_u64..1_000, 10_000_u64..100_000]),
            places in (0_usize..5, 0_usize..5),
            probes in prop::collection::vec("-?(0|[1-9][0-9]{0,5})(\\.[0-9]{0,4}0{0,6})?", 16),
            times in prop::collection::vec(0_u128..5_000, 8),
        ) {
            let mut l = lexicon();
            let one = l.json_multiple_of(&format!("{}e-{}", digits.0, places.0)).unwrap();
            let other = l.json_multiple_of(&format!("{}e-{}", digits.1, places.1)).unwrap();
            let both = l.and(&[one, other]);
            let (a, b) = (u128::from(digits.0), u128::from(digits.1));
            // Common multiples, in parts of the smaller places.
            let most = places.0.max(places.1);
            let (x, y) = (a * 10_u128.pow((most - places.0) as u32), b * 10_u128.pow((most - places.1) as u32));
            let (mut divisor, mut rest) = (x, y);
            while rest > 0 {
                (divisor, rest) = (rest, divisor % rest);
            }
            let multiples = times.iter().map(|times| {
                let text = format!("{:0>1$}", times * x * (y / divisor), most + 1);
                let (whole, fraction) = text.split_at(text.len() - most);
                if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
            });
            for probe in probes.into_iter().chain(multiples) {
                let good = is_multiple(&probe, a, places.0) && is_multiple(&probe, b, places.1);
                let zeros = probe.split_once('.').map_or(0, |parts| parts.1.len() - parts.1.trim_end_matches('0').len());
                let good = good && zeros <= 4;
                prop_assert_eq!(accepts(&mut l, both, probe.as_bytes()), good, "{}", probe);
                let mut state = both;
                for (at, &byte) in probe.as_bytes().iter().enumerate() {
                    state = l.derivative(state, byte, &mut Fuel::new(1000)).unwrap();
                    // From the first digit on nothing has to be searched for.
                    prop_assert!(byte == b'-' || l.is_exact(state), "{} at {}", probe, at);
                }
            }
        }

        #[test]
        fn a_dead_end_is_one(digits in 1_u32..900, places in 0_usize..4, text in "[1-9][0-9]{0,2}(\\.[0-9]{0,3})?") {
            let mut l = lexicon();
            let expr = l.json_multiple_of(&format!("{digits}e-{places}")).unwrap();
            // All rests of up to three digits, and a point.
            let rests = (0..=3_usize).flat_map(|len| {
                let numbers = 0..10_u32.pow(len as u32);
                numbers.map(move |n| if len == 0 { String::new() } else { format!("{n:0len$}") })
            });
            let has_point = text.contains('.');
            let completes = rests.into_iter().any(|rest| {
                is_multiple(&format!("{text}{rest}"), u128::from(digits), places)
                    || !has_point && is_multiple(&format!("{text}.{rest}"), u128::from(digits), places)
            });
            prop_assert!(!completes || live_after(&mut l, expr, text.as_bytes()));
            if has_point && !completes {
                prop_assert!(!live_after(&mut l, expr, text.as_bytes()), "{}", text);
            }
        }
    }
}
