//! How JSON is written: white space and strings, as languages.

use std::collections::BTreeMap;

use crate::lexical::{ByteSet, EMPTY, EPSILON, ExprId, Lexicon};
use crate::options::Whitespace;

/// Most spaces and tabs after a line break under [`Whitespace::Usual`]: eight levels of two spaces.
const MAX_USUAL_INDENT: u32 = 16;

/// Most spaces and tabs after a line break under [`Whitespace::Flexible`].
const MAX_FLEXIBLE_INDENT: u32 = 64;

impl Whitespace {
    /// The names of the options' values.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("usual", Self::Usual),
        ("flexible", Self::Flexible),
        ("spaced", Self::Spaced),
        ("compact", Self::Compact),
    ];
}

/// The white space at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Spacing {
    /// Around the text.
    pub(crate) outer: ExprId,
    /// After an opening bracket, whatever follows.
    pub(crate) inner: ExprId,
    /// Before the first item or member.
    pub(crate) first: ExprId,
    /// Before a closing bracket that isn't just after the opening one.
    pub(crate) close: ExprId,
    pub(crate) comma: ExprId,
    /// Up to the colon; what follows it belongs to the value.
    pub(crate) colon: ExprId,
    pub(crate) after_colon: ExprId,
}

/// How deep the members of an array or object stand, where each is on a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Indent {
    /// Spaces for each array and object around them.
    pub(super) width: u32,
    /// Arrays and objects around it.
    pub(super) depth: u32,
    /// The comma, without the line end after it.
    pub(super) comma: ExprId,
}

impl Lexicon {
    pub(crate) fn spacing(&mut self, whitespace: Whitespace) -> Spacing {
        let space = self.literal(b" ");
        match whitespace {
            Whitespace::Usual => {
                let line = self.line_break(MAX_USUAL_INDENT);
                let gap = self.or(&[space, line]);
                let after_comma = self.optional(gap);
                let inner = self.optional(line);
                Spacing {
                    outer: EPSILON,
                    inner,
                    first: EPSILON,
                    close: inner,
                    comma: self.padded(EPSILON, b',', after_comma),
                    colon: self.byte(b':'),
                    after_colon: self.optional(space),
                }
            }
            Whitespace::Flexible => {
                let line = self.line_break(MAX_FLEXIBLE_INDENT);
                let gap = self.or(&[space, line]);
                let pad = self.optional(gap);
                self.padded_by(pad)
            }
            Whitespace::Spaced | Whitespace::Compact => {
                let after = match whitespace {
                    Whitespace::Spaced => space,
                    _ => EPSILON,
                };
                Spacing {
                    outer: EPSILON,
                    inner: EPSILON,
                    first: EPSILON,
                    close: EPSILON,
                    comma: self.padded(EPSILON, b',', after),
                    colon: self.byte(b':'),
                    after_colon: after,
                }
            }
        }
    }

    /// The same white space wherever JSON allows some.
    pub(super) fn padded_by(&mut self, pad: ExprId) -> Spacing {
        Spacing {
            outer: pad,
            inner: pad,
            first: EPSILON,
            close: pad,
            comma: self.padded(pad, b',', pad),
            colon: self.padded(pad, b':', EPSILON),
            after_colon: pad,
        }
    }

    /// White space within an array or object that is so deep in others, each item and member on a line of its own.
    pub(super) fn indented(&mut self, indent: Indent, mut spacing: Spacing) -> Spacing {
        let mut line = |depth: u32| {
            let spaces = " ".repeat((indent.width * depth) as usize);
            self.literal(format!("\n{spaces}").as_bytes())
        };
        spacing.close = line(indent.depth);
        spacing.first = line(indent.depth + 1);
        spacing.comma = self.concat(indent.comma, spacing.first);
        spacing
    }

    /// A line break and at most `max_indent` spaces and tabs.
    fn line_break(&mut self, max_indent: u32) -> ExprId {
        let blank = self.class(ByteSet::from_iter([b' ', b'\t']));
        let indent = self.repeat(blank, 0, max_indent);
        let line_end = self.literal(b"\n");
        self.concat(line_end, indent)
    }

    /// A sign with white space before and after it.
    fn padded(&mut self, before: ExprId, sign: u8, after: ExprId) -> ExprId {
        let sign = self.byte(sign);
        let rest = self.concat(sign, after);
        self.concat(before, rest)
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
    /// where it has neither; with [`any_escapes`](Self::any_escapes), by an escape of any kind.
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

    /// A character of a set as `\uXXXX`, or as two of these beyond U+FFFF (RFC 8259). `ranges` are ascending and apart.
    pub(super) fn json_long_escape_of(&mut self, ranges: &[(char, char)]) -> ExprId {
        const SURROGATES: (u32, u32) = (0xd800, 0xdfff);
        let mut units = Vec::with_capacity(ranges.len() + 1);
        // First halves whose characters are all in the set; of others, by number, the second halves.
        let mut whole: Vec<(u32, u32)> = Vec::new();
        let mut some: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for &(low, high) in ranges {
            let (low, high) = (u32::from(low), u32::from(high));
            let within = [(0, SURROGATES.0 - 1), (SURROGATES.1 + 1, 0xffff)];
            for (first, last) in within {
                if low.max(first) <= high.min(last) {
                    units.push((low.max(first), high.min(last)));
                }
            }
            if high < 0x1_0000 {
                continue;
            }
            let (low, high) = (low.max(0x1_0000) - 0x1_0000, high - 0x1_0000);
            let (mut first, mut last) = (low >> 10, high >> 10);
            let (begins, ends) = (low & 0x3ff, high & 0x3ff);
            if first == last && (begins, ends) != (0, 0x3ff) {
                some.entry(first).or_default().push((begins, ends));
                continue;
            }
            if begins > 0 {
                some.entry(first).or_default().push((begins, 0x3ff));
                first += 1;
            }
            if ends < 0x3ff {
                some.entry(last).or_default().push((0, ends));
                last -= 1;
            }
            if first <= last {
                whole.push((first, last));
            }
        }
        let u = self.literal(b"\\u");
        let mut pairs = vec![(whole, vec![(0, 0x3ff)])];
        for (half, lows) in some {
            match pairs.iter_mut().find(|pair| pair.1 == lows) {
                Some(pair) => pair.0.push((half, half)),
                None => pairs.push((vec![(half, half)], lows)),
            }
        }
        let mut ways = vec![self.hex_of(&units, 4)];
        for (mut halves, mut lows) in pairs {
            halves.iter_mut().for_each(|half| {
                *half = (half.0 + SURROGATES.0, half.1 + SURROGATES.0);
            });
            lows.iter_mut().for_each(|low| {
                *low = (low.0 + 0xdc00, low.1 + 0xdc00);
            });
            let low = self.hex_of(&lows, 4);
            let low = self.concat(u, low);
            let half = self.hex_of(&halves, 4);
            ways.push(self.concat(half, low));
        }
        let unit = self.or(&ways);
        self.concat(u, unit)
    }

    /// Numbers of a set by so many hexadecimal digits, their letters in either case.
    fn hex_of(&mut self, ranges: &[(u32, u32)], num_digits: u32) -> ExprId {
        if ranges.is_empty() {
            return EMPTY;
        }
        let Some(num_rest) = num_digits.checked_sub(1) else {
            return EPSILON;
        };
        // Digits after which the same may follow, as many as that may be.
        let mut groups: Vec<(Vec<(u32, u32)>, ByteSet)> = Vec::new();
        for (digit, sign) in (0..).zip(*b"0123456789abcdef") {
            let low = digit << (4 * num_rest);
            let high = low + (1 << (4 * num_rest)) - 1;
            let within = ranges
                .iter()
                .filter(|range| range.0 <= high && low <= range.1);
            let within = within.map(|range| (range.0.max(low) - low, range.1.min(high) - low));
            let within: Vec<_> = within.collect();
            let signs = ByteSet::from_iter([sign, sign.to_ascii_uppercase()]);
            match groups.iter_mut().find(|group| group.0 == within) {
                Some(group) => group.1 = group.1.union(&signs),
                None => groups.push((within, signs)),
            }
        }
        let mut ways = Vec::with_capacity(groups.len());
        for (within, signs) in groups {
            let sign = self.class(signs);
            let rest = self.hex_of(&within, num_rest);
            ways.push(self.concat(sign, rest));
        }
        self.or(&ways)
    }

    /// A string in quotes.
    pub(crate) fn json_quoted(&mut self, body: ExprId) -> ExprId {
        let quote = self.literal(b"\"");
        let rest = self.concat(body, quote);
        self.concat(quote, rest)
    }

    /// The spellings of one string under a constraint, quotes included; with `all`, or with
    /// [`any_escapes`](Self::any_escapes), every spelling.
    pub(crate) fn json_string(&mut self, string: &str, all: bool) -> ExprId {
        // With the closing quote from the start: else each character would be an expression twice.
        let quote = self.byte(b'"');
        let mut rest = quote;
        for char in string.chars().rev() {
            rest = self.json_char_then(char, rest, all);
        }
        self.concat(quote, rest)
    }

    /// The spellings of one character of a string, as [`Self::json_string`] has them, and then more.
    pub(crate) fn json_char_then(&mut self, char: char, mut rest: ExprId, all: bool) -> ExprId {
        let all = all || self.any_escapes();
        let short = short_escape(char);
        let mut utf8 = [0; 4];
        let literal = char.encode_utf8(&mut utf8).as_bytes();
        if !all && short.is_none() && char >= ' ' {
            // Nearly all characters: spelled one way.
            for &byte in literal.iter().rev() {
                let byte = self.byte(byte);
                rest = self.concat(byte, rest);
            }
            return rest;
        }
        let mut ways = Vec::new();
        if char >= ' ' && char != '"' && char != '\\' {
            ways.push(self.literal(literal));
        }
        if let Some(letter) = short {
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
        self.concat(char, rest)
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
}
