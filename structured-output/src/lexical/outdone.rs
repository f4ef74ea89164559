//! Alternatives that are at one place of counts within counts, and differ in how often each may still come.

use hashbrown::{HashMap, HashSet};

use super::arena::{EPSILON, ExprId, Lexicon, Node};
use super::nested::Nested;

/// Factors that are looked at.
const MAX_FACTORS: usize = 8;

/// Fewer alternatives are left as they are: it is long lists that grow.
const LEAST: usize = 8;

/// With so many of one place each is compared at most.
const MAX_COMPARED: usize = 64;

/// So many expressions are looked at for a step.
const LOOKED_AT_A_STEP: u64 = 4;

/// `x{0,2} y z{3,5}`: `x y z`, and how often each.
struct Place {
    expr: ExprId,
    /// The bodies of the first factors, and what is after them.
    bodies: [ExprId; MAX_FACTORS + 1],
    /// How often each may come, at most and at least: of what is no count once.
    times: [(u32, u32); MAX_FACTORS],
}

impl Place {
    /// Whether each factor may come as often as another one's, and so every string is one of the other's.
    fn is_within(&self, other: &Self) -> bool {
        let mut times = self.times.iter().zip(&other.times);
        times.all(|(own, other)| own.0 <= other.0 && own.1 >= other.1)
    }
}

impl Lexicon {
    /// Drops alternatives that others hold, of those with a count after their first factors. `list` stays
    /// ascending. Two reasons are enough, since `R S` is within `R' S'` if `R` is within `R'` and `S` within `S'`:
    ///
    /// - The first factors are the same, and what is after them is held as in
    ///   [`drop_dominated`](Self::drop_dominated). So of `x{0,p} y B{0,q} T C{0,k} Z`, where `C` is
    ///   `B{0,n} T` and `T` may be empty, for each `p` only the one with most of `C` is left, whatever `q` is.
    /// - All factors are the same but for the counts, and each comes as often in the other one.
    ///
    /// What is held is dropped, whether or not the holder is dropped too: then that one is held by a third. This
    /// comes to an end. For the first reason, read expressions from their last factor: the first difference
    /// between the two is a count that is higher in the holder, so no row of holders comes back to where it
    /// began. For the second, each holder has more of something and less of nothing.
    pub(super) fn drop_outdone(&mut self, list: &mut Vec<ExprId>) {
        if list.len() <= LEAST {
            return;
        }
        let mut counted = list.clone();
        counted.retain(|&expr| self.facts(expr).counted);
        let mut gone = HashSet::new();
        self.outdone_after_first_factors(&counted, &mut gone);
        counted.retain(|expr| !gone.contains(expr));
        self.outdone_at_each_factor(&counted, &mut gone);
        if !gone.is_empty() {
            list.retain(|expr| !gone.contains(expr));
        }
    }

    /// Those of some expressions that others hold by what is after the factors that they have in common.
    fn outdone_after_first_factors(&mut self, list: &[ExprId], gone: &mut HashSet<ExprId>) {
        type First = [ExprId; MAX_FACTORS];
        let mut best: HashMap<(First, Nested), u32> = HashMap::new();
        let mut all = Vec::new();
        let mut looked_at = 0;
        for &expr in list {
            let mut first = [EPSILON; MAX_FACTORS];
            let mut at = expr;
            for slot in 0..MAX_FACTORS {
                looked_at += 1;
                let Node::Concat(factor, rest) = self.node(at) else {
                    break;
                };
                first[slot] = factor;
                at = rest;
                let levels = self.nested_counts(at);
                for (nested, times) in levels.iter() {
                    looked_at += 1;
                    let key = (first, nested);
                    if levels.may_hold {
                        let most = best.entry(key).or_insert(times);
                        *most = times.max(*most);
                    }
                    all.push((expr, key, times));
                }
            }
        }
        self.work += looked_at / LOOKED_AT_A_STEP;
        let is_more = |key, times| best.get(key).is_some_and(|most| most > times);
        let outdone = all.iter().filter(|(_, key, times)| is_more(key, times));
        gone.extend(outdone.map(|(expr, ..)| *expr));
    }

    /// Those of some expressions whose factors come as often in another one.
    fn outdone_at_each_factor(&mut self, list: &[ExprId], gone: &mut HashSet<ExprId>) {
        let mut places: Vec<Place> = list.iter().map(|&expr| self.place(expr)).collect();
        // Who holds another one has more of what is the first difference, or less that it needs.
        places.sort_unstable_by(|a, b| {
            let in_turn = |place: &Place| place.times.map(|(max, min)| (max, !min));
            a.bodies
                .cmp(&b.bodies)
                .then_with(|| in_turn(b).cmp(&in_turn(a)))
        });
        let mut looked_at = places.len();
        for same in places.chunk_by(|a, b| a.bodies == b.bodies) {
            let mut left: Vec<&Place> = Vec::new();
            for place in same {
                let mut others = left.iter().take(MAX_COMPARED);
                looked_at += left.len().min(MAX_COMPARED);
                if others.any(|other| place.is_within(other)) {
                    gone.insert(place.expr);
                } else {
                    left.push(place);
                }
            }
        }
        self.work += looked_at as u64 / LOOKED_AT_A_STEP;
    }

    fn place(&self, expr: ExprId) -> Place {
        let mut bodies = [EPSILON; MAX_FACTORS + 1];
        let mut times = [(1, 1); MAX_FACTORS];
        let mut at = expr;
        for slot in 0..MAX_FACTORS {
            let (factor, rest) = match self.node(at) {
                Node::Concat(factor, rest) => (factor, rest),
                _ => (at, EPSILON),
            };
            (bodies[slot], times[slot]) = match self.node(factor) {
                Node::Repeat { body, min, max } => (body, (max, min)),
                _ => (factor, (1, 1)),
            };
            at = rest;
            if at == EPSILON {
                break;
            }
        }
        bodies[MAX_FACTORS] = at;
        Place {
            expr,
            bodies,
            times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::UNBOUNDED;
    use super::super::byte_set::ByteSet;
    use super::super::testing::{ends, numbers_below, short_texts};
    use super::*;

    #[test]
    fn what_is_dropped_is_held() {
        let mut next = numbers_below(11);
        let texts = short_texts();
        let mut num_dropped = [0, 0];
        for _ in 0..250 {
            let mut l = Lexicon::new(Vec::new(), 8);
            let [a, b, ab] = [&b"a"[..], b"b", b"ab"].map(|text| l.literal(text));
            let either = l.class(ByteSet::range(b'a', b'b'));
            let optional = l.optional(b);
            let few = l.repeat(either, 0, 2);
            let all = [EPSILON, optional, few, a, b, ab, either];
            let mut pick = |of: &[ExprId]| of[next(of.len() as u32) as usize];
            let inner = pick(&all[3..]);
            let first = pick(&all);
            // Often what may be empty.
            let [after, after_outer] =
                [(); 2].map(|()| pick(&[&all[..], &all[..3], &all[..3]].concat()));
            let (end, between) = (pick(&all), pick(&all));
            let counts = [(); 3].map(|()| {
                let min = next(7) / 3;
                (
                    min,
                    if next(9) == 0 {
                        UNBOUNDED
                    } else {
                        min + next(4)
                    },
                )
            });
            let words = l.repeat(inner, counts[0].0, counts[0].1);
            let word = l.concat(words, after);
            let lines = l.repeat(word, counts[1].0, counts[1].1);
            let line = l.concat(lines, after_outer);
            let mut list: Vec<ExprId> = Vec::new();
            for _ in 0..10 + next(30) {
                let mut expr = end;
                let parts = [
                    (line, after_outer),
                    (word, after),
                    (inner, [between, EPSILON][next(2) as usize]),
                ];
                for (body, before) in parts {
                    let min = [0, 0, 0, 1, 2][next(5) as usize];
                    let counter = l.repeat(body, min, min + next(5));
                    expr = l.concat(counter, expr);
                    expr = l.concat(before, expr);
                }
                expr = l.concat(first, expr);
                list.push(expr);
            }
            list.sort_unstable();
            list.dedup();
            let mut after_first = HashSet::new();
            l.outdone_after_first_factors(&list, &mut after_first);
            let mut at_each = HashSet::new();
            l.outdone_at_each_factor(&list, &mut at_each);
            num_dropped[0] += after_first.len();
            num_dropped[1] += at_each.len();
            let mut left = list.clone();
            l.drop_outdone(&mut left);
            let without = |gone: &HashSet<ExprId>| {
                let mut left = list.clone();
                left.retain(|expr| !gone.contains(expr));
                left
            };
            let (by_first, by_each) = (without(&after_first), without(&at_each));
            for text in &texts {
                let holds = |list: &[ExprId]| {
                    let mut each = list.iter();
                    each.any(|&expr| ends(&l, expr, text, 1) >> text.len() & 1 == 1)
                };
                let expected = holds(&list);
                assert_eq!(holds(&by_first), expected, "{text:?}");
                assert_eq!(holds(&by_each), expected, "{text:?}");
                assert_eq!(holds(&left), expected, "{text:?}");
            }
        }
        println!("{num_dropped:?}");
        assert!(num_dropped.iter().all(|&num| num > 100), "{num_dropped:?}");
    }
}
