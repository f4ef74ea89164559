//! Counts within counts.

use hashbrown::HashMap;

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};

/// What alternatives of [`Lexicon::drop_dominated`] have in common: `B` and `Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Nested {
    body: ExprId,
    rest: ExprId,
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

impl Lexicon {
    /// Drops alternatives of counts within counts that others hold: with `B = x{1,m} T`, where `T`
    /// may be empty, `x{0,p} T B{0,q} Z` is within `x{0,r} T B{0,s} Z` if `q < s`. What of the first
    /// `x` is too much for `r` is one more `B`. So of `(\w{1,100},?){1,100}` one alternative is
    /// left, not one for each way to share out what was read.
    pub(super) fn drop_dominated(&self, list: &mut Vec<ExprId>) {
        let mut best: HashMap<Nested, u32> = HashMap::new();
        for &expr in list.iter() {
            let Some((nested, times)) = self.nested_counts(expr) else {
                continue;
            };
            let known = best.entry(nested).or_insert(times);
            *known = times.max(*known);
        }
        if best.is_empty() {
            return;
        }
        list.retain(|&expr| match self.nested_counts(expr) {
            Some((nested, times)) => best.get(&nested) == Some(&times),
            None => true,
        });
    }

    /// `x{0,p} T B{0,q} Z` with `B = x{1,m} T` or `x{0,m} T`, where `T` may be empty and `p` is at
    /// most `m`: what they are, and `q`.
    fn nested_counts(&self, expr: ExprId) -> Option<(Nested, u32)> {
        /// Factors of `T`.
        const MAX_FACTORS: usize = 4;
        let Node::Concat(head, middle) = self.node(expr) else {
            return None;
        };
        let Node::Repeat {
            body: inner,
            min: 0,
            max: left,
        } = self.node(head)
        else {
            return None;
        };
        let mut at = middle;
        let mut factors = Vec::new();
        while factors.len() <= MAX_FACTORS {
            let (factor, rest) = match self.node(at) {
                Node::Concat(factor, rest) => (factor, rest),
                _ => (at, EPSILON),
            };
            if let Node::Repeat {
                body,
                min: 0,
                max: times,
            } = self.node(factor)
                && let Node::Concat(first, mut tail) = self.node(body)
                && self.is_nullable(tail)
                && let Node::Repeat {
                    body: counted,
                    min: 0..=1,
                    max,
                } = self.node(first)
                && counted == inner
                && left <= max
            {
                let mut same = true;
                for &factor in &factors {
                    let (own, rest) = match self.node(tail) {
                        Node::Concat(own, rest) => (own, rest),
                        _ => (tail, EPSILON),
                    };
                    same &= own == factor;
                    tail = rest;
                }
                if same && tail == EPSILON {
                    return Some((Nested { body, rest }, times));
                }
            }
            if rest == EPSILON {
                break;
            }
            factors.push(factor);
            at = rest;
        }
        None
    }
}
