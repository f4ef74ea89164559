//! Counts: of counts as one, and of alternatives that differ in one.

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};

/// `low..=high` times, `min..=max` times: as one count, where the counts have no gap between them.
/// Counts that don't fit have no bound: no text is that long.
pub(crate) fn product(low: u32, high: u32, min: u32, max: u32) -> Option<(u32, u32)> {
    let (least, most) = (u64::from(low), u64::from(high));
    // The counts of k times and of k + 1 times meet: k = `min` is the worst.
    let meets = match min {
        0 => low <= 1,
        _ => high == UNBOUNDED || u64::from(min) * (most - least) + 1 >= least,
    };
    let product = least * u64::from(min);
    if !meets || low > high || product >= u64::from(UNBOUNDED) {
        return None;
    }
    let is_unbounded = high == UNBOUNDED || max == UNBOUNDED;
    let most = match (high, max) {
        (0, _) | (_, 0) => 0,
        _ if is_unbounded => UNBOUNDED,
        _ => u32::try_from(most * u64::from(max)).unwrap_or(UNBOUNDED),
    };
    Some((product as u32, most))
}

/// Factors before a counter that are looked at.
const MAX_BEFORE: usize = 8;

/// `R B{min,max} Z`: `before` are the factors of `R`, and [`EPSILON`] after them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Later {
    before: [ExprId; MAX_BEFORE],
    body: ExprId,
    rest: ExprId,
    min: u32,
    max: u32,
    expr: ExprId,
}

impl Later {
    /// What those have in common that may become one.
    fn key(&self) -> ([ExprId; MAX_BEFORE], ExprId, ExprId) {
        (self.before, self.body, self.rest)
    }
}

impl Lexicon {
    /// Alternatives `R B{a,b} Z` and `R B{c,d} Z` become one where the counters meet. So text that can be shared
    /// out among repetitions in many ways, such as letters among words without a sign between them, is read in
    /// as many ways as there are places within one, whatever the number of repetitions begun. `list` is
    /// ascending, before and after.
    pub(super) fn merge_later_counters(&mut self, list: &mut Vec<ExprId>) {
        /// Fewer are left as they are: it is long lists that grow.
        const LEAST: usize = 8;
        if list.len() <= LEAST {
            return;
        }
        let mut counted: Vec<Later> = Vec::new();
        for &expr in list.iter().filter(|&&expr| self.facts(expr).counted) {
            counted.extend(self.later_counter(expr));
        }
        counted.sort_unstable();
        let mut merged = Vec::new();
        for same in counted.chunk_by(|a, b| a.key() == b.key()) {
            let [first, others @ ..] = same else {
                continue;
            };
            let mut whole = *first;
            let mut parts = vec![first.expr];
            for next in others {
                if next.min <= whole.max.saturating_add(1) {
                    whole.max = whole.max.max(next.max);
                    parts.push(next.expr);
                } else {
                    merged.push((whole, std::mem::replace(&mut parts, vec![next.expr])));
                    whole = *next;
                }
            }
            merged.push((whole, parts));
        }
        merged.retain(|(_, parts)| parts.len() > 1);
        if merged.is_empty() {
            return;
        }
        let mut gone: Vec<ExprId> = merged.iter().flat_map(|(_, parts)| parts.clone()).collect();
        gone.sort_unstable();
        list.retain(|expr| gone.binary_search(expr).is_err());
        for (whole, _) in merged {
            let counter = self.repeat(whole.body, whole.min, whole.max);
            let mut expr = self.concat(counter, whole.rest);
            for &factor in whole
                .before
                .iter()
                .rev()
                .filter(|&&factor| factor != EPSILON)
            {
                expr = self.concat(factor, expr);
            }
            list.push(expr);
        }
        list.sort_unstable();
        list.dedup();
    }

    /// The last bounded counter among the first factors of an expression, if it isn't the first factor.
    fn later_counter(&self, expr: ExprId) -> Option<Later> {
        let Node::Concat(head, mut at) = self.node(expr) else {
            return None;
        };
        let mut factors = [EPSILON; MAX_BEFORE];
        factors[0] = head;
        let mut found = None;
        for len in 1..=MAX_BEFORE {
            let (factor, rest) = match self.node(at) {
                Node::Concat(factor, rest) => (factor, rest),
                _ => (at, EPSILON),
            };
            if let Node::Repeat { body, min, max } = self.node(factor)
                && max != UNBOUNDED
            {
                let mut before = factors;
                before[len..].fill(EPSILON);
                found = Some(Later {
                    before,
                    body,
                    rest,
                    min,
                    max,
                    expr,
                });
            }
            if rest == EPSILON || len == MAX_BEFORE {
                break;
            }
            factors[len] = factor;
            at = rest;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::byte_set::ByteSet;
    use super::super::fuel::Fuel;
    use super::super::testing::{numbers_below, short_texts};
    use super::*;

    fn accepts(l: &mut Lexicon, mut expr: ExprId, text: &[u8]) -> bool {
        for &byte in text {
            let mut fuel = Fuel::new(100_000);
            expr = l.derivative(expr, byte, &mut fuel).unwrap();
        }
        l.is_nullable(expr)
    }

    /// Long lists of alternatives that differ in counters mean what each of them means.
    #[test]
    fn merged_alternatives_mean_what_they_meant() {
        let mut next = numbers_below(7);
        let texts = short_texts();
        let mut num_merged = 0;
        for _ in 0..150 {
            let mut l = Lexicon::new(Vec::new(), 8);
            let [a, b, ab] = [&b"a"[..], b"b", b"ab"].map(|text| l.literal(text));
            let either = l.class(ByteSet::range(b'a', b'b'));
            let few = l.repeat(either, 0, 2);
            let many = l.star(b);
            let factors = [few, many, a];
            let bodies = [ab, either];
            let list: Vec<ExprId> = (0..9 + next(20))
                .map(|_| {
                    let mut expr = factors[next(3) as usize];
                    for _ in 0..=next(6) / 5 {
                        let low = next(4);
                        let body = bodies[next(2) as usize];
                        let counter = l.repeat(body, low, low + next(3));
                        expr = l.concat(counter, expr);
                        expr = l.concat(factors[next(3) as usize], expr);
                    }
                    expr
                })
                .collect();
            let mut merged = list.clone();
            merged.sort_unstable();
            merged.dedup();
            let before = merged.len();
            l.merge_later_counters(&mut merged);
            num_merged += before - merged.len();
            let all = l.or(&list);
            for text in &texts {
                let expected = list.iter().any(|&expr| accepts(&mut l, expr, text));
                let found = merged.iter().any(|&expr| accepts(&mut l, expr, text));
                assert_eq!(found, expected, "{text:?}");
                assert_eq!(accepts(&mut l, all, text), expected, "{text:?}");
            }
        }
        assert!(num_merged > 100, "{num_merged}");
    }
}
