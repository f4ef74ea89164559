//! Long enumerations, as trees of what their values begin with: some tens of bytes for each byte of text.
//!
//! Of a short one each value is a language of its own, and lists of them are compared by that. Of many
//! values that would take too much memory, and their first mask too long.

use crate::lexical::{ChoiceTree, ExprId, Lexicon};

/// Fewer values are each a language of their own.
pub(super) const MANY: usize = 1_024;

impl Lexicon {
    /// The spellings of any of some strings under a constraint, quotes included.
    pub(super) fn json_strings(&mut self, mut strings: Vec<&str>) -> ExprId {
        strings.sort_unstable();
        strings.dedup();
        let quote = self.byte(b'"');
        if self.any_escapes() {
            let mut tree =
                ChoiceTree::new(|lexicon, char, rest| lexicon.json_char_then(char, rest, true));
            for string in strings {
                let chars: Vec<char> = string.chars().collect();
                tree.push_then(self, &chars, quote);
            }
            let rest = tree.finish(self);
            return self.concat(quote, rest);
        }
        let mut tree = ChoiceTree::new(|lexicon, byte: u8, rest| match byte {
            // Signs that have, or are, escapes.
            0..=0x1f | b'"' | b'\\' | b'/' => lexicon.json_char_then(byte.into(), rest, false),
            _ => {
                let byte = lexicon.byte(byte);
                lexicon.concat(byte, rest)
            }
        });
        for string in strings {
            tree.push_then(self, string.as_bytes(), quote);
        }
        let rest = tree.finish(self);
        self.concat(quote, rest)
    }

    /// The spellings of any of some numbers that are [plain](is_plain), as
    /// [`json_number_value`](Self::json_number_value) has them.
    pub(super) fn json_numbers(&mut self, mut numbers: Vec<&str>) -> ExprId {
        numbers.sort_unstable();
        numbers.dedup();
        let mut tree = ChoiceTree::default();
        let fraction_zeros = self.more_zeros(0, false);
        let zeros = self.more_zeros(0, true);
        let point = self.byte(b'.');
        let zeros = self.concat(point, zeros);
        let whole_end = self.optional(zeros);
        for number in numbers {
            let end = match number.contains('.') {
                true => fraction_zeros,
                false => whole_end,
            };
            tree.push_then(self, number.as_bytes(), end);
        }
        tree.finish(self)
    }
}

/// Whether a number that JSON has is written with digits alone, without any that could be left out: not zero,
/// without exponent, and with no zero at a fraction's end.
pub(super) fn is_plain(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_written_out = digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    is_written_out
        && whole.len() + fraction.len() <= 1_000
        && match digits.contains('.') {
            true => !fraction.is_empty() && !fraction.ends_with('0'),
            false => whole != "0",
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::accepts;
    use super::*;
    use crate::lexical::Fuel;

    /// What the languages of single values accept, of some texts.
    fn same(
        lexicon: &mut Lexicon,
        tree: ExprId,
        single: &[ExprId],
        texts: &[String],
    ) -> Result<(), TestCaseError> {
        for text in texts {
            let expected = single
                .iter()
                .any(|&one| accepts(lexicon, one, text.as_bytes()));
            let found = accepts(lexicon, tree, text.as_bytes());
            prop_assert_eq!(found, expected, "{}", text);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn strings_are_those_that_are_listed(
            strings in prop::collection::vec(r#"[ab/\\"\né日\x01]{0,4}"#, 1..20),
            others in prop::collection::vec(r#""([ab/"é日]|\\[/\\n"]|\\u0001|\\u0061|\\u000[aA]){0,4}""#, 30),
        ) {
            let mut lexicon = Lexicon::new(Vec::new(), 8);
            let tree = lexicon.json_strings(strings.iter().map(String::as_str).collect());
            let single: Vec<ExprId> = strings.iter().map(|one| lexicon.json_string(one, false)).collect();
            let mut texts: Vec<String> = others;
            for string in &strings {
                let text = serde_json::to_string(string).unwrap();
                texts.push(text.replace('/', "\\/"));
                texts.push(text);
            }
            same(&mut lexicon, tree, &single, &texts)?;
        }

        #[test]
        fn numbers_are_those_that_are_listed(
            numbers in prop::collection::vec(r"-?(0\.0{0,5}|[12][012]{0,2}\.?0{0,5})[0-2]{0,2}", 1..20),
            zeros in 0..6_usize,
        ) {
            let mut lexicon = Lexicon::new(Vec::new(), 8);
            let plain: Vec<&str> = numbers
                .iter()
                .map(String::as_str)
                .filter(|number| serde_json::from_str::<f64>(number).is_ok() && is_plain(number))
                .collect();
            let single: Vec<ExprId> = plain.iter().map(|one| lexicon.json_number_value(one).unwrap()).collect();
            // Alternatives of one number have no text in common.
            for &number in &single {
                let parts = lexicon.alternatives(number);
                for (at, &one) in parts.iter().enumerate() {
                    for &other in &parts[..at] {
                        let both = lexicon.and(&[one, other]);
                        prop_assert!(!lexicon.is_live(both, &mut Fuel::new(10_000)).unwrap());
                    }
                }
            }
            let tree = lexicon.json_numbers(plain);
            let mut texts = Vec::new();
            for number in numbers {
                let zeros = "0".repeat(zeros);
                texts.push(format!("{number}{zeros}"));
                texts.push(format!("{number}.{zeros}"));
                texts.push(format!("{number}.{zeros}1"));
                texts.push(format!("{number}e0"));
                texts.push(format!("-{number}"));
                texts.push(number);
            }
            same(&mut lexicon, tree, &single, &texts)?;
        }
    }
}
