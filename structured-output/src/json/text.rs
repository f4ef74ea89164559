//! How JSON is written: white space, strings, numbers, as languages.

use crate::lexical::{ByteSet, EPSILON, ExprId, Lexicon};

/// White space in JSON texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Whitespace {
    /// Where JSON allows white space: nothing, one space, or a line end with at most 64 spaces and
    /// tabs. A model may indent, but never loop.
    #[default]
    Flexible,
    /// As Python's `json.dumps` writes it: a space after `,` and `:`.
    Spaced,
    /// None.
    Compact,
}

/// The white space at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Spacing {
    /// Around the text.
    pub(crate) outer: ExprId,
    /// After an opening and before a closing bracket.
    pub(crate) inner: ExprId,
    pub(crate) comma: ExprId,
    /// Up to the colon; what follows it belongs to the value.
    pub(crate) colon: ExprId,
    pub(crate) after_colon: ExprId,
}

/// Digits of zero that a whole number may have after a decimal point.
const MAX_TRAILING_ZEROS: u32 = 4;

impl Lexicon {
    pub(crate) fn spacing(&mut self, whitespace: Whitespace) -> Spacing {
        let pad = match whitespace {
            Whitespace::Flexible => {
                let space = self.literal(b" ");
                let line_end = self.literal(b"\n");
                let blank = self.class(ByteSet::from_iter([b' ', b'\t']));
                let indent = self.repeat(blank, 0, 64);
                let line = self.concat(line_end, indent);
                let some = self.or(&[space, line]);
                self.optional(some)
            }
            Whitespace::Spaced | Whitespace::Compact => EPSILON,
        };
        let after = match whitespace {
            Whitespace::Spaced => self.literal(b" "),
            _ => pad,
        };
        let mut sign = |byte: u8, after: ExprId| {
            let sign = self.literal(&[byte]);
            let rest = self.concat(sign, after);
            self.concat(pad, rest)
        };
        Spacing {
            outer: pad,
            inner: pad,
            comma: sign(b',', after),
            colon: sign(b':', EPSILON),
            after_colon: after,
        }
    }

    /// Any JSON number.
    pub(crate) fn json_number(&mut self) -> ExprId {
        let whole = self.json_whole();
        let digit = self.class(ByteSet::range(b'0', b'9'));
        let digits = self.repeat(digit, 1, crate::lexical::UNBOUNDED);
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

    fn json_whole(&mut self) -> ExprId {
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

    /// One character of a string, literally or by an escape of any kind.
    pub(crate) fn json_char(&mut self) -> ExprId {
        let mut ways = vec![self.json_plain_char(), self.json_short_escape()];
        let hex = self.class(ByteSet::from_iter(*b"0123456789abcdefABCDEF"));
        let two = self.repeat(hex, 2, 2);
        let three = self.repeat(hex, 3, 3);
        let u = self.literal(b"\\u");
        let d = self.class(ByteSet::from_iter(*b"dD"));
        let not_d = self.class(ByteSet::from_iter(*b"0123456789abcefABCEF"));
        let below = self.class(ByteSet::range(b'0', b'7'));
        let high = self.class(ByteSet::from_iter(*b"89abAB"));
        let low = self.class(ByteSet::from_iter(*b"cdefCDEF"));
        // No surrogate: the first digit is no d, or the second below 8.
        let plain = self.concat(not_d, three);
        let below = self.concat(below, two);
        let below = self.concat(d, below);
        let low = self.concat(low, two);
        let low = self.concat(d, low);
        let low = self.concat(u, low);
        let pair = self.concat(two, low);
        let pair = self.concat(high, pair);
        let pair = self.concat(d, pair);
        for rest in [plain, below, pair] {
            ways.push(self.concat(u, rest));
        }
        self.or(&ways)
    }

    /// One character of a string under a constraint: literally, by its short escape, or as `\uXXXX`
    /// where it has neither.
    pub(crate) fn json_constrained_char(&mut self) -> ExprId {
        self.json_char_of(&[('\0', char::MAX)])
    }

    fn json_plain_char(&mut self) -> ExprId {
        let ranges = [(' ', '!'), ('#', '['), (']', char::MAX)];
        self.code_points(ranges.into_iter())
    }

    fn json_short_escape(&mut self) -> ExprId {
        let backslash = self.literal(b"\\");
        let letter = self.class(ByteSet::from_iter(*b"\"\\/bfnrt"));
        self.concat(backslash, letter)
    }

    /// `\uXXXX`, the digits' letters in either case.
    fn json_long_escape(&mut self, unit: u32) -> ExprId {
        let mut expr = EPSILON;
        for digit in format!("{unit:04x}").bytes().rev() {
            let cases = [digit, digit.to_ascii_uppercase()];
            let digit = self.class(ByteSet::from_iter(cases));
            expr = self.concat(digit, expr);
        }
        let u = self.literal(b"\\u");
        self.concat(u, expr)
    }

    /// A string in quotes.
    pub(crate) fn json_quoted(&mut self, body: ExprId) -> ExprId {
        let quote = self.literal(b"\"");
        let rest = self.concat(body, quote);
        self.concat(quote, rest)
    }

    /// The spellings of one string under a constraint, quotes included; with `all`, every spelling.
    pub(crate) fn json_string(&mut self, string: &str, all: bool) -> ExprId {
        let mut body = EPSILON;
        for char in string.chars().rev() {
            let mut ways = Vec::new();
            if char >= ' ' && char != '"' && char != '\\' {
                let mut utf8 = [0; 4];
                ways.push(self.literal(char.encode_utf8(&mut utf8).as_bytes()));
            }
            if let Some(letter) = short_escape(char) {
                ways.push(self.literal(&[b'\\', letter]));
            }
            if all || ways.is_empty() {
                let mut units = [0; 2];
                let mut long = EPSILON;
                for unit in char.encode_utf16(&mut units).iter().rev() {
                    let unit = self.json_long_escape(u32::from(*unit));
                    long = self.concat(unit, long);
                }
                ways.push(long);
            }
            let char = self.or(&ways);
            body = self.concat(char, body);
        }
        self.json_quoted(body)
    }
}

/// The letter of a character's short escape.
fn short_escape(char: char) -> Option<u8> {
    Some(match char {
        '"' => b'"',
        '\\' => b'\\',
        '/' => b'/',
        '\x08' => b'b',
        '\x0c' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        _ => return None,
    })
}

impl Lexicon {
    /// The spellings of a number's value without exponent, with up to four more zeros after the
    /// decimal point, and the one given; and whether it is whole. `None` where that takes more than
    /// 1,000 digits.
    pub(crate) fn json_number_value(&mut self, text: &str) -> Option<(ExprId, bool)> {
        const MAX_DIGITS: i64 = 1000;
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        // The value is 0.digits times ten to the power of `point`.
        let zeros = digits.len() - digits.trim_start_matches('0').len();
        let point = (whole.len() as i64 - zeros as i64).checked_add(exponent)?;
        let digits = digits.trim_matches('0');
        if point.abs() > MAX_DIGITS || digits.len() as i64 > MAX_DIGITS {
            return None;
        }
        let (whole, fraction) = if point <= 0 || digits.is_empty() {
            let lead = if digits.is_empty() {
                0
            } else {
                -point as usize
            };
            ("0".to_owned(), format!("{}{digits}", "0".repeat(lead)))
        } else if digits.len() as i64 <= point {
            let trail = point as usize - digits.len();
            (format!("{digits}{}", "0".repeat(trail)), String::new())
        } else {
            let (whole, fraction) = digits.split_at(point as usize);
            (whole.to_owned(), fraction.to_owned())
        };
        let zero = self.literal(b"0");
        let tail = if fraction.is_empty() {
            let zeros = self.repeat(zero, 1, MAX_TRAILING_ZEROS);
            let point = self.literal(b".");
            let tail = self.concat(point, zeros);
            self.optional(tail)
        } else {
            let zeros = self.repeat(zero, 0, MAX_TRAILING_ZEROS);
            let digits = self.literal(format!(".{fraction}").as_bytes());
            self.concat(digits, zeros)
        };
        let whole = self.literal(whole.as_bytes());
        let mut expr = self.concat(whole, tail);
        let minus = self.literal(b"-");
        if digits.is_empty() {
            let minus = self.optional(minus);
            expr = self.concat(minus, expr);
        } else if negative {
            expr = self.concat(minus, expr);
        }
        let own = self.literal(text.as_bytes());
        Some((self.or(&[expr, own]), fraction.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexical::Fuel;

    fn accepts(l: &mut Lexicon, mut expr: ExprId, text: &[u8]) -> bool {
        for &byte in text {
            expr = l.derivative(expr, byte, &mut Fuel::new(10_000)).unwrap();
        }
        l.is_nullable(expr)
    }

    #[test]
    fn each_character_has_its_spellings() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let (free, constrained) = (l.json_char(), l.json_constrained_char());
        for unit in 0..=0xffff_u32 {
            let long = format!("\\u{unit:04x}");
            let char = char::from_u32(unit);
            assert_eq!(
                accepts(&mut l, free, long.as_bytes()),
                char.is_some(),
                "{long}"
            );
            let needs = char.is_some_and(|c| c < ' ' && short_escape(c).is_none());
            assert_eq!(
                accepts(&mut l, constrained, long.as_bytes()),
                needs,
                "{long}"
            );
        }
        for unit in 0..=0x7f_u8 {
            let plain = unit >= b' ' && unit != b'"' && unit != b'\\';
            let short = b"\"\\/bfnrt".contains(&unit);
            for expr in [free, constrained] {
                assert_eq!(accepts(&mut l, expr, &[unit]), plain);
                assert_eq!(accepts(&mut l, expr, &[b'\\', unit]), short);
            }
        }
        assert!(
            accepts(&mut l, free, b"\\uD83d\\uDe00")
                && !accepts(&mut l, constrained, b"\\uD83d\\uDe00")
        );
        assert!(!accepts(&mut l, free, b"\\ud83d\\u0041"));
    }

    #[test]
    fn strings_are_written_over_a_coarse_alphabet() {
        let vocab = [b"a".to_vec(), b"<eos>".to_vec()];
        let info = crate::TokenizerInfo::new(&vocab, 2, &[1], &[]).unwrap();
        let index = crate::index::TokenizerIndex::new(std::sync::Arc::new(info));
        let mut l = Lexicon::new(index.alphabets(), 8);
        for expr in [
            l.json_char(),
            l.json_constrained_char(),
            l.json_number(),
            l.json_integer(),
        ] {
            let fits =
                (0..index.num_alphabets() - 1).any(|alphabet| l.fits_alphabet(expr, alphabet));
            assert!(fits);
        }
    }
}
