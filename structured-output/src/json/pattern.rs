//! Strings under a constraint: by length, by pattern, by both.
//!
//! A pattern speaks of decoded characters, a mask of bytes. Each class of characters becomes the
//! language of its spellings under the constrained spelling, so the pattern's expression is over
//! spelled strings from the start and needs no intersection with them.

use crate::lexical::{ByteSet, EPSILON, ExprId, Lexicon};
use crate::regex::{self, Chars, Dialect, RegexError, RegexLimits, Spelling, Translator};

/// Characters with a short escape, and its letter.
const SHORT_ESCAPES: [(char, u8); 8] = [
    ('"', b'"'),
    ('\\', b'\\'),
    ('/', b'/'),
    ('\x08', b'b'),
    ('\x0c', b'f'),
    ('\n', b'n'),
    ('\r', b'r'),
    ('\t', b't'),
];

impl Lexicon {
    /// A character of a set as it may be spelled under a constraint: literally, by its short escape,
    /// or as `\\uXXXX` where it has neither. `ranges` are ascending and apart.
    pub(crate) fn json_char_of(&mut self, ranges: &[(char, char)]) -> ExprId {
        let has = |char| ranges.iter().any(|&(low, high)| low <= char && char <= high);
        let mut plain = Vec::with_capacity(ranges.len() + 2);
        for &(low, high) in ranges {
            // What needs no escape lies in three ranges.
            for (first, last) in [(' ', '!'), ('#', '['), (']', char::MAX)] {
                let (low, high) = (low.max(first), high.min(last));
                if low <= high {
                    plain.push((low, high));
                }
            }
        }
        let mut ways = vec![self.code_points(plain.into_iter())];
        let letters = SHORT_ESCAPES.iter().filter(|&&(char, _)| has(char));
        let letters = self.class(letters.map(|&(_, letter)| letter).collect());
        let backslash = self.literal(b"\\");
        ways.push(self.concat(backslash, letters));
        for (prefix, row) in [(b"\\u000", 0), (b"\\u001", 16_u8)] {
            let mut digits = ByteSet::EMPTY;
            for low in 0..16 {
                let char = char::from(row + low);
                if has(char) && !SHORT_ESCAPES.iter().any(|&(short, _)| short == char) {
                    let digit = b"0123456789abcdef"[usize::from(low)];
                    digits.insert(digit);
                    digits.insert(digit.to_ascii_uppercase());
                }
            }
            let prefix = self.literal(prefix);
            let digits = self.class(digits);
            ways.push(self.concat(prefix, digits));
        }
        self.or(&ways)
    }

    /// Strings of `min..=max` code points; `max` may be `UNBOUNDED`.
    pub(crate) fn json_string_length(&mut self, min: u32, max: u32) -> ExprId {
        let char = self.json_constrained_char();
        let body = self.repeat(char, min, max);
        self.json_quoted(body)
    }

    /// Strings in which a pattern of ECMA-262 is found.
    ///
    /// # Errors
    /// Where the pattern is no ECMA-262, nor of the dialect of `compile_regex`, or is not regular.
    pub(crate) fn json_string_pattern(
        &mut self,
        pattern: &str,
        limits: &RegexLimits,
    ) -> Result<ExprId, RegexError> {
        self.json_string_pattern_of_length(pattern, Chars::ANY, limits)
    }

    /// Strings of some length in which a pattern of ECMA-262 is found: the same as the
    /// intersection of the two, but made without one where the pattern allows it.
    ///
    /// # Errors
    /// See [`Self::json_string_pattern`].
    pub(crate) fn json_string_pattern_of_length(
        &mut self,
        pattern: &str,
        length: Chars,
        limits: &RegexLimits,
    ) -> Result<ExprId, RegexError> {
        let ecma = regex::parse(pattern, Dialect::Ecma, *limits);
        let ast = ecma.or_else(|error| {
            // The error is about ECMA-262: that is what is asked for.
            regex::parse(pattern, Dialect::Common, *limits).map_err(|_| error)
        })?;
        let ast = ast.search(length);
        let mut translator = Translator::new(ast, Spelling::JsonString);
        let body = translator.run(self, usize::MAX)?;
        Ok(self.json_quoted(body.unwrap_or(EPSILON)))
    }
}
