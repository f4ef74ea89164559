//! Sets of code points as languages of UTF-8.

use regex_syntax::utf8::Utf8Sequences;

use super::arena::{EMPTY, EPSILON, ExprId, Lexicon};
use super::byte_set::ByteSet;

impl Lexicon {
    /// One code point of a set, as UTF-8. `ranges` are ascending and apart; surrogates can't occur
    /// in a `char`.
    ///
    /// Sequences that begin alike are factored, and first bytes with equal rests share them, so
    /// `.` takes a dozen expressions and `\w` some hundred.
    pub(crate) fn code_points(&mut self, ranges: impl Iterator<Item = (char, char)>) -> ExprId {
        /// So many sets, and ranges of all together, are remembered: `.`, a string's characters, `\w`.
        const MAX_SETS: usize = 256;
        const MAX_RANGES: usize = 4096;
        let ranges: Vec<(char, char)> = ranges.collect();
        if let Some(&known) = self.code_points.get(&ranges) {
            return known;
        }
        let expr = self.utf8_of(&ranges);
        let num_ranges: usize = self.code_points.keys().map(Vec::len).sum();
        if num_ranges + ranges.len() <= MAX_RANGES && self.code_points.len() < MAX_SETS {
            self.code_points.insert(ranges, expr);
        }
        expr
    }

    fn utf8_of(&mut self, ranges: &[(char, char)]) -> ExprId {
        // Byte ranges of all sequences; two that overlap at a position are equal there.
        let mut sequences: Vec<Vec<(u8, u8)>> = Vec::new();
        for &(low, high) in ranges {
            for sequence in Utf8Sequences::new(low, high) {
                let bytes = sequence.as_slice().iter();
                sequences.push(bytes.map(|range| (range.start, range.end)).collect());
            }
        }
        sequences.sort_unstable();
        // A UTF-8 sequence has at most four bytes: from the last position to the first.
        let mut level: Vec<(Vec<(u8, u8)>, ExprId)> =
            sequences.into_iter().map(|s| (s, EPSILON)).collect();
        for length in (1..=4).rev() {
            level = self.fold_position(level, length);
        }
        match level[..] {
            [(_, expr)] => expr,
            _ => EMPTY,
        }
    }

    /// Moves position `length` of the sequences that reach it into their expressions, and joins
    /// sequences that are then equal.
    fn fold_position(
        &mut self,
        level: Vec<(Vec<(u8, u8)>, ExprId)>,
        length: usize,
    ) -> Vec<(Vec<(u8, u8)>, ExprId)> {
        let mut folded = Vec::new();
        let mut rest = level.into_iter().peekable();
        while let Some((mut prefix, expr)) = rest.next() {
            if prefix.len() < length {
                folded.push((prefix, expr));
                continue;
            }
            // All with the same prefix are neighbours, since the list is sorted.
            let last = prefix.pop();
            let mut branches: Vec<(ByteSet, ExprId)> = Vec::new();
            let mut add = |(low, high): (u8, u8), expr: ExprId| {
                let bytes = ByteSet::range(low, high);
                match branches.iter_mut().find(|branch| branch.1 == expr) {
                    Some(branch) => branch.0 = branch.0.union(&bytes),
                    None => branches.push((bytes, expr)),
                }
            };
            if let Some(range) = last {
                add(range, expr);
            }
            while let Some((sequence, expr)) =
                rest.next_if(|(s, _)| s.len() == length && s[..length - 1] == prefix[..])
            {
                add(sequence[length - 1], expr);
            }
            let mut options = Vec::with_capacity(branches.len());
            for (bytes, expr) in branches {
                let head = self.class(bytes);
                options.push(self.concat(head, expr));
            }
            folded.push((prefix, self.or(&options)));
        }
        folded
    }

    /// Any string of UTF-8.
    #[cfg(test)]
    pub(crate) fn any_text(&mut self) -> ExprId {
        let any = self.code_points([('\0', char::MAX)].into_iter());
        self.star(any)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fuel::Fuel;
    use super::*;

    fn accepts(l: &mut Lexicon, mut expr: ExprId, text: &[u8]) -> bool {
        for &byte in text {
            expr = l.derivative(expr, byte, &mut Fuel::new(10_000)).unwrap();
        }
        l.is_nullable(expr)
    }

    #[test]
    fn no_range_is_no_language() {
        let mut l = Lexicon::new(Vec::new(), 8);
        assert_eq!(l.code_points(std::iter::empty()), EMPTY);
    }

    #[test]
    fn any_text_is_well_formed_utf8() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let any = l.any_text();
        for good in ["", "a", "é€😀\0", "\u{d7ff}\u{e000}\u{10ffff}"] {
            assert!(accepts(&mut l, any, good.as_bytes()), "{good:?}");
        }
        let bad: [&[u8]; 6] = [
            b"\xff",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xe2\x82",
            b"\x80",
        ];
        for bad in bad {
            assert!(!accepts(&mut l, any, bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_code_point_is_in_or_out(
            bounds in prop::collection::btree_set(any::<char>(), 2..8),
            probes in prop::collection::vec(any::<char>(), 8),
        ) {
            let bounds: Vec<char> = bounds.into_iter().collect();
            let ranges: Vec<(char, char)> =
                bounds.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            let mut l = Lexicon::new(Vec::new(), 8);
            let expr = l.code_points(ranges.iter().copied());
            for probe in probes.into_iter().chain(bounds) {
                let inside = ranges.iter().any(|&(low, high)| (low..=high).contains(&probe));
                let utf8 = probe.to_string();
                prop_assert_eq!(accepts(&mut l, expr, utf8.as_bytes()), inside, "{:?}", probe);
            }
        }
    }
}
