//! Counts within counts, of which one alternative may hold another.

use hashbrown::HashMap;

use super::arena::{EPSILON, ExprId, Lexicon, Node};

/// What alternatives of [`Lexicon::drop_dominated`] have in common: their factors up to a count of a count, of
/// which the counts are their bodies, and what is after them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nested {
    factors: [ExprId; MAX_NESTED],
    /// Which of the factors are counts, as bits.
    counters: u16,
    rest: ExprId,
}

/// Factors of [`Nested`].
const MAX_NESTED: usize = 12;

/// Counts within each other that are looked at.
const MAX_LEVELS: usize = 4;

/// `x{1,m} T` or `x{0,m} T` within a body: `x`, `m` and what is to be read of `T`, from the last to the first.
struct Piece<'a> {
    body: ExprId,
    max: u32,
    rest: &'a [ExprId],
}

/// What an expression has in common with others, level by level, and how often each may still come.
#[derive(Default)]
pub(super) struct Levels {
    found: [Option<(Nested, u32)>; MAX_LEVELS],
    /// Whether it may hold others: its first count may be over at once.
    pub(super) may_hold: bool,
}

impl Levels {
    pub(super) fn iter(&self) -> impl Iterator<Item = (Nested, u32)> {
        self.found.iter().copied().flatten()
    }
}

impl Lexicon {
    /// Drops alternatives of counts within counts that others hold: where `T` may be empty and `B` holds
    /// `x{1,m} T`, `x{o,p} T B{0,q} Z` with `p` up to `m` is within `x{0,r} T B{0,s} Z` if `q < s`. What of the
    /// first `x` is too much for `r` is one more `B`. So of `(\w{1,100},?){1,100}` one alternative is left, not
    /// one for each way to share out what was read, and of `((\w{1,16}=)?[^,]{1,40},?){1,12}` one for the
    /// values and few for the keys.
    ///
    /// The same holds further out: where `C` holds `B{1,n} U`, `x{0,p} T B{0,q} U C{0,k} Z` is within any other
    /// such with more of `C`, whatever it has left of `x` and `B`, if `q < n`: what begins before the first
    /// `C` ends is in what may be empty of the other one, or is one more `C`.
    pub(super) fn drop_dominated(&self, list: &mut Vec<ExprId>) {
        let mut best: HashMap<Nested, u32> = HashMap::new();
        let mut is_any = false;
        for &expr in list.iter() {
            let levels = self.nested_counts(expr);
            for (nested, times) in levels.iter() {
                is_any = true;
                if levels.may_hold {
                    let known = best.entry(nested).or_insert(times);
                    *known = times.max(*known);
                }
            }
        }
        if !is_any {
            return;
        }
        list.retain(|&expr| {
            let levels = self.nested_counts(expr);
            let is_best = |(nested, times)| best.get(&nested).is_none_or(|&most| most <= times);
            levels.iter().all(is_best)
        });
    }

    /// Writes alternatives `(R | S) B` as `R B | S B` where there are counts in both parts, so that those with
    /// one count after them are compared. `list` stays ascending.
    pub(super) fn spread_counted(&mut self, list: &mut Vec<ExprId>) {
        /// More in parentheses are left as they are.
        const MAX_SPREAD: usize = 8;
        let parts = |lexicon: &Self, expr: ExprId| {
            let Node::Concat(head, tail) = lexicon.node(expr) else {
                return None;
            };
            let Node::Or(at) = lexicon.node(head) else {
                return None;
            };
            let is_counted = lexicon.facts(head).counted && lexicon.facts(tail).counted;
            (is_counted && lexicon.operands(at).len() <= MAX_SPREAD).then_some((at, tail))
        };
        if list.iter().all(|&expr| parts(self, expr).is_none()) {
            return;
        }
        let mut spread = Vec::with_capacity(list.len() + MAX_SPREAD);
        for &expr in list.iter() {
            let Some((at, tail)) = parts(self, expr) else {
                spread.push(expr);
                continue;
            };
            for head in self.operands(at).to_vec() {
                self.work += 1;
                let one = self.concat(head, tail);
                match self.node(one) {
                    Node::Or(at) => spread.extend_from_slice(self.operands(at)),
                    _ => spread.push(one),
                }
            }
        }
        spread.sort_unstable();
        spread.dedup();
        *list = spread;
    }

    /// `x{o,p} T B{0,q} Z` where `B` holds `x{1,m} T`, `T` may be empty and `p` is at most `m`: what they are,
    /// and `q`. Then, with `Z = U C{0,k} Y` where `C` holds `B{1,n} U`, `U` may be empty and `q` is below `n`:
    /// what these are, and `k`; and so on.
    pub(super) fn nested_counts(&self, expr: ExprId) -> Levels {
        /// Factors of `T`.
        const MAX_FACTORS: usize = 4;
        let mut levels = Levels::default();
        let Node::Concat(head, middle) = self.node(expr) else {
            return levels;
        };
        let Node::Repeat {
            body: mut inner,
            min,
            max: mut left,
        } = self.node(head)
        else {
            return levels;
        };
        levels.may_hold = min == 0;
        let mut nested = Nested {
            factors: [EPSILON; MAX_NESTED],
            counters: 1,
            rest: EPSILON,
        };
        nested.factors[0] = inner;
        let mut at = middle;
        // Where `T` begins among the factors.
        let mut start = 1;
        let mut num_levels = 0;
        for slot in 1..MAX_NESTED {
            let (factor, rest) = match self.node(at) {
                Node::Concat(factor, rest) => (factor, rest),
                _ => (at, EPSILON),
            };
            nested.factors[slot] = factor;
            match self.node(factor) {
                Node::Repeat {
                    body,
                    min: 0,
                    max: times,
                } if self.holds_piece(
                    body,
                    inner,
                    left,
                    num_levels > 0,
                    &nested.factors[start..slot],
                ) =>
                {
                    nested.factors[slot] = body;
                    nested.counters |= 1 << slot;
                    nested.rest = rest;
                    levels.found[num_levels] = Some((nested, times));
                    num_levels += 1;
                    (inner, left) = (body, times);
                    start = slot + 1;
                }
                _ => {}
            }
            if rest == EPSILON || num_levels == MAX_LEVELS || slot + 1 - start > MAX_FACTORS {
                break;
            }
            at = rest;
        }
        levels
    }

    /// Whether a body holds `inner{1,m} T`, where `T` has these factors and may be empty, and `left` is at most
    /// `m`, or below it.
    fn holds_piece(
        &self,
        body: ExprId,
        inner: ExprId,
        left: u32,
        is_below: bool,
        factors: &[ExprId],
    ) -> bool {
        factors.iter().all(|&factor| self.is_nullable(factor))
            && self.has_piece(body, |piece| {
                let fits = if is_below {
                    left < piece.max
                } else {
                    left <= piece.max
                };
                fits && piece.body == inner && self.reads(piece.rest.to_vec(), factors)
            })
    }

    /// Whether a body is, for some `x`, `m` and `T`, `x{1,m} T` or `x{0,m} T` as is asked for. What may be empty
    /// may stand before that, and it may be one of several alternatives.
    fn has_piece(&self, body: ExprId, mut is_such: impl FnMut(Piece<'_>) -> bool) -> bool {
        /// Parts of the body that are looked at.
        const MAX_PARTS: usize = 32;
        // What is to be read, from the last to the first.
        let mut ways = vec![vec![body]];
        let mut num_parts = 0;
        while let Some(mut way) = ways.pop() {
            while let Some(part) = way.pop() {
                num_parts += 1;
                if num_parts > MAX_PARTS {
                    return false;
                }
                match self.node(part) {
                    Node::Concat(head, tail) => {
                        way.extend([tail, head]);
                        continue;
                    }
                    Node::Repeat {
                        body,
                        min: 0..=1,
                        max,
                    } => {
                        let rest = &way;
                        if is_such(Piece { body, max, rest }) {
                            return true;
                        }
                    }
                    Node::Or(at) => {
                        for &one in self.operands(at).iter().take(MAX_PARTS) {
                            if matches!(self.node(one), Node::Concat(..) | Node::Repeat { .. }) {
                                let mut other = way.clone();
                                other.push(one);
                                ways.push(other);
                            }
                        }
                    }
                    _ => {}
                }
                if !self.is_nullable(part) {
                    break;
                }
            }
        }
        false
    }

    /// Whether parts, last first, are these factors.
    fn reads(&self, mut parts: Vec<ExprId>, factors: &[ExprId]) -> bool {
        for &factor in factors {
            loop {
                match parts.pop() {
                    Some(part) if part == factor => break,
                    Some(part) => match self.node(part) {
                        Node::Concat(head, tail) => parts.extend([tail, head]),
                        _ => return false,
                    },
                    None => return false,
                }
            }
        }
        parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::byte_set::ByteSet;
    use super::super::fuel::Fuel;
    use super::super::testing::{ends, numbers_below, short_texts};
    use super::*;

    /// Bodies that a count may stand anywhere in, with others beside it: what is dropped, and what is written
    /// otherwise, mean the same.
    #[test]
    fn what_counts_within_counts_hold_is_dropped() {
        let mut next = numbers_below(5);
        let texts = short_texts();
        let (mut num_dropped, mut num_spread) = (0, 0);
        let num_cases = std::env::var("FORMWORK_CASES").map_or(800, |cases| cases.parse().unwrap());
        for _ in 0..num_cases {
            let mut l = Lexicon::new(Vec::new(), 8);
            let [a, b, ab] = [&b"a"[..], b"b", b"ab"].map(|text| l.literal(text));
            let either = l.class(ByteSet::range(b'a', b'b'));
            let (maybe_a, maybe_b) = (l.optional(a), l.optional(b));
            let few = l.repeat(either, 0, 2);
            let all = [EPSILON, maybe_a, maybe_b, few, a, b, ab];
            let mut pick = |of: &[ExprId]| of[next(of.len() as u32) as usize];
            let inners = [pick(&[a, b, ab, either]), pick(&[a, b, either])];
            let after = pick(&all[..4]);
            let outer_after = pick(&all[..4]);
            let before = pick(&all);
            let end = pick(&all);
            let most = 2 + next(3);
            let mut words: Vec<ExprId> = Vec::new();
            for inner in inners {
                let many = l.repeat(inner, next(2), most + next(2));
                let many = if next(3) == 0 {
                    l.concat(before, many)
                } else {
                    many
                };
                words.push(many);
            }
            let words = if next(2) == 0 { l.or(&words) } else { words[0] };
            let mut word = l.concat(words, after);
            if next(2) == 0 {
                word = l.concat(before, word);
            }
            let least = next(2);
            let lines = l.repeat(word, least, 1 + next(3));
            let line = l.concat(lines, outer_after);
            let mut list: Vec<ExprId> = Vec::new();
            for _ in 0..3 + next(12) {
                let mut expr = end;
                for (body, between) in [(line, outer_after), (word, after)] {
                    let counter = l.repeat(body, 0, next(4));
                    expr = l.concat(counter, expr);
                    expr = l.concat(between, expr);
                }
                let heads: Vec<ExprId> = (0..1 + next(2))
                    .map(|_| {
                        let low = next(2);
                        let head = l.repeat(inners[next(2) as usize], low, low + next(4));
                        match next(4) {
                            0 => l.concat(before, head),
                            _ => head,
                        }
                    })
                    .collect();
                let head = l.or(&heads);
                list.push(l.concat(head, expr));
            }
            list.sort_unstable();
            list.dedup();
            let mut spread = list.clone();
            l.spread_counted(&mut spread);
            num_spread += usize::from(spread != list);
            let mut left = spread.clone();
            l.drop_dominated(&mut left);
            num_dropped += spread.len() - left.len();
            let whole = l.or(&list);
            for text in &texts {
                let holds = |list: &[ExprId]| {
                    let mut each = list.iter();
                    each.any(|&expr| ends(&l, expr, text, 1) >> text.len() & 1 == 1)
                };
                let expected = holds(&list);
                assert_eq!(holds(&spread), expected, "{text:?}");
                assert_eq!(holds(&left), expected, "{text:?}");
                assert_eq!(holds(&[whole]), expected, "{text:?}");
            }
        }
        println!("{num_dropped} dropped, {num_spread} spread");
        assert!(num_dropped > 100 && num_spread > 100);
    }

    /// Keys and values that may stand one after the other without a sign between them: few places are told
    /// apart, whatever was read.
    #[test]
    fn lines_of_keys_and_values_are_few_alternatives() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let [equals, comma] = [b"=", b","].map(|text| l.literal(text));
        let (letter, any) = (ByteSet::range(b'a', b'z'), ByteSet::range(b'-', b'z'));
        let (letter, any) = (l.class(letter), l.class(any));
        let key = l.repeat(letter, 1, 16);
        let key = l.concat(key, equals);
        let value = l.repeat(any, 1, 40);
        let both = l.concat(key, value);
        let pair = l.or(&[both, value]);
        let end = l.optional(comma);
        let pair = l.concat(pair, end);
        let mut expr = l.repeat(pair, 1, 12);
        let text = "some=words-and,more".repeat(12);
        let mut fuel = Fuel::new(1_000_000);
        for byte in text.bytes() {
            expr = l.derivative(expr, byte, &mut fuel).unwrap();
            let num = match l.node(expr) {
                Node::Or(at) => l.operands(at).len(),
                _ => 1,
            };
            assert!(num <= 4, "{num}");
        }
    }
}
