//! Counts within counts.

use hashbrown::HashMap;

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};

/// What alternatives of [`Lexicon::drop_dominated`] have in common: `B` and `Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nested {
    body: ExprId,
    rest: ExprId,
    /// How many counts are within it: those with as many begin alike.
    level: usize,
}

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

/// Counts within each other that are looked at.
const MAX_LEVELS: usize = 4;

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

/// What an expression has in common with others, level by level, and how often each may still come.
pub(super) type Levels = [Option<(Nested, u32)>; MAX_LEVELS];

impl Lexicon {
    /// Drops alternatives of counts within counts that others hold: with `B = x{1,m} T`, where `T`
    /// may be empty, `x{0,p} T B{0,q} Z` is within `x{0,r} T B{0,s} Z` if `q < s`. What of the first
    /// `x` is too much for `r` is one more `B`. So of `(\w{1,100},?){1,100}` one alternative is
    /// left, not one for each way to share out what was read.
    ///
    /// The same holds further out: with `C = B{1,n} U`, `x{0,p} T B{0,q} U C{0,k} Z` is within any other
    /// such with more of `C`, whatever it has left of `x` and `B`, if `q < n`: what begins before the first
    /// `C` ends is in what may be empty of the other one, or is one more `C`.
    pub(super) fn drop_dominated(&self, list: &mut Vec<ExprId>) {
        let mut best: HashMap<Nested, u32> = HashMap::new();
        for &expr in list.iter() {
            for (nested, times) in self.nested_counts(expr).into_iter().flatten() {
                let known = best.entry(nested).or_insert(times);
                *known = times.max(*known);
            }
        }
        if best.is_empty() {
            return;
        }
        list.retain(|&expr| {
            let mut levels = self.nested_counts(expr).into_iter().flatten();
            levels.all(|(nested, times)| best.get(&nested) == Some(&times))
        });
    }

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

    /// `x{0,p} T B{0,q} Z` with `B = x{1,m} T` or `x{0,m} T`, where `T` may be empty and `p` is at
    /// most `m`: what they are, and `q`. Then, with `Z = U C{0,k} Y` and `C = B{1,n} U` or `B{0,n} U`, where
    /// `U` may be empty and `q` is below `n`: what these are, and `k`; and so on.
    pub(super) fn nested_counts(&self, expr: ExprId) -> Levels {
        /// Factors of `T`.
        const MAX_FACTORS: usize = 4;
        let mut levels = Levels::default();
        let Node::Concat(head, middle) = self.node(expr) else {
            return levels;
        };
        let Node::Repeat {
            body: mut inner,
            min: 0,
            max: mut left,
        } = self.node(head)
        else {
            return levels;
        };
        let mut at = middle;
        let mut factors = Vec::new();
        let mut num_levels = 0;
        while factors.len() <= MAX_FACTORS && num_levels < MAX_LEVELS {
            let (factor, rest) = match self.node(at) {
                Node::Concat(factor, rest) => (factor, rest),
                _ => (at, EPSILON),
            };
            match self.node(factor) {
                Node::Repeat {
                    body,
                    min: 0,
                    max: times,
                } if self.goes_on_in(body, inner, left, num_levels > 0, &factors) => {
                    let level = num_levels;
                    levels[num_levels] = Some((Nested { body, rest, level }, times));
                    num_levels += 1;
                    (inner, left) = (body, times);
                    factors.clear();
                }
                _ => factors.push(factor),
            }
            if rest == EPSILON {
                break;
            }
            at = rest;
        }
        levels
    }

    /// Whether a body is `inner{1,m} T` or `inner{0,m} T`, where `T` has these factors and may be empty, and
    /// `left` is at most `m`, or below it.
    fn goes_on_in(
        &self,
        body: ExprId,
        inner: ExprId,
        left: u32,
        is_below: bool,
        factors: &[ExprId],
    ) -> bool {
        let Node::Concat(first, mut tail) = self.node(body) else {
            return false;
        };
        let Node::Repeat {
            body: counted,
            min: 0..=1,
            max,
        } = self.node(first)
        else {
            return false;
        };
        let fits = if is_below { left < max } else { left <= max };
        if counted != inner || !fits || !self.is_nullable(tail) {
            return false;
        }
        for &factor in factors {
            let (own, rest) = match self.node(tail) {
                Node::Concat(own, rest) => (own, rest),
                _ => (tail, EPSILON),
            };
            if own != factor {
                return false;
            }
            tail = rest;
        }
        tail == EPSILON
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
