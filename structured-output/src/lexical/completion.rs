//! Whether a state can still reach an end, and in how few bytes.
//!
//! For expressions free of `And` and `Not` both are known from the operands. For the others a
//! search over the derivatives finds the nearest accepting state; its lower bound is the length
//! that the operands promise, which leads it straight to the end in most cases. Where it finds
//! none, the languages of all the states it saw are empty.

use super::arena::{EMPTY, ExprId, Lexicon, MANY_MARKS, NO_MARK, Node};
use super::fuel::{Fuel, Stop};
use super::search::{DEAD, FARTHEST, Graph, UNKNOWN, nearest_end};

/// What searches have found.
#[derive(Clone, Default)]
pub(crate) struct Memo {
    distance: Vec<u32>,
}

impl Memo {
    fn get(&self, expr: ExprId) -> u32 {
        self.distance.get(expr.index()).copied().unwrap_or(UNKNOWN)
    }

    fn set(&mut self, expr: ExprId, distance: u32) {
        if self.distance.len() <= expr.index() {
            self.distance.resize(expr.index() + 1, UNKNOWN);
        }
        self.distance[expr.index()] = distance;
    }
}

impl Lexicon {
    /// Whether some string is in the language: whether the state can reach an end.
    pub(crate) fn is_live(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        let facts = self.facts(expr);
        if facts.live || expr == EMPTY {
            return Ok(facts.live);
        }
        if let Node::Or(at) = self.node(expr)
            && facts.sole_mark == MANY_MARKS
            && self.memo.get(expr) == UNKNOWN
        {
            // One alternative by itself is enough: what they are together is not looked at.
            for number in 0..self.operands(at).len() {
                fuel.burn(1)?;
                let alternative = self.operands(at)[number];
                if self.distance(alternative, fuel)? != DEAD {
                    return Ok(true);
                }
            }
            self.memo.set(expr, DEAD);
            return Ok(false);
        }
        Ok(self.distance(expr, fuel)? != DEAD)
    }

    /// Whether it is known without a search that some string is in the language.
    pub(crate) fn is_plainly_live(&self, expr: ExprId) -> bool {
        self.facts(expr).live
    }

    /// Length in bytes of the shortest string in the language; [`DEAD`] where there is none.
    pub(crate) fn distance(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<u32, Stop> {
        nearest_end(self, expr, fuel)
    }

    /// The ends of a lexeme, each with the bytes of the shortest way to it, the nearest first. An
    /// end without mark is [`NO_MARK`]. A step where all ends have one mark and nothing has to be
    /// searched for, else one per part before them.
    pub(crate) fn ends(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Vec<(u32, u16)>, Stop> {
        let mut ends = Vec::new();
        let mut pending = vec![(expr, 0_u32)];
        while let Some((expr, cost)) = pending.pop() {
            fuel.burn(1)?;
            let facts = self.facts(expr);
            if facts.exact && facts.sole_mark != MANY_MARKS && expr != EMPTY {
                // All in one: a long literal isn't walked at each of its places.
                ends.push((
                    cost.saturating_add(facts.min_bytes.min(FARTHEST)),
                    facts.sole_mark,
                ));
                continue;
            }
            match self.node(expr) {
                Node::Mark(mark) => ends.push((cost, mark)),
                Node::Or(at) if self.facts(expr).marked => {
                    pending.extend(self.operands(at).iter().map(|&expr| (expr, cost)));
                }
                Node::Concat(head, tail) if self.facts(expr).marked => {
                    let head = self.distance(head, fuel)?;
                    if head != DEAD {
                        pending.push((tail, cost.saturating_add(head)));
                    }
                }
                _ => {
                    let rest = self.distance(expr, fuel)?;
                    if rest != DEAD {
                        ends.push((cost.saturating_add(rest), NO_MARK));
                    }
                }
            }
        }
        ends.sort_unstable();
        Ok(ends)
    }
}

impl Graph for Lexicon {
    type State = ExprId;

    fn known(&self, expr: ExprId) -> u32 {
        let facts = self.facts(expr);
        if expr == EMPTY {
            DEAD
        } else if facts.nullable {
            0
        } else if facts.exact {
            facts.min_bytes.min(FARTHEST)
        } else {
            self.memo.get(expr)
        }
    }

    fn bound(&self, expr: ExprId) -> u32 {
        self.facts(expr).min_bytes
    }

    /// What each operand of an intersection promises: one that is met needs nothing any more.
    fn effort(&self, expr: ExprId) -> u32 {
        let head = match self.node(expr) {
            Node::Concat(head, _) => head,
            _ => expr,
        };
        match self.node(head) {
            Node::And(at) => {
                let operands = self.operands(at).iter();
                operands.fold(0, |sum, &one| sum.saturating_add(self.facts(one).min_bytes))
            }
            _ => 0,
        }
    }

    fn is_end(&mut self, _: ExprId, _: &mut Fuel) -> Result<bool, Stop> {
        // Known of every expression.
        Ok(false)
    }

    fn successors(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Vec<ExprId>, Stop> {
        let derivatives = self.derivatives(expr, fuel)?;
        Ok(derivatives.into_iter().map(|(_, next)| next).collect())
    }

    fn remember(&mut self, expr: ExprId, distance: u32) {
        self.memo.set(expr, distance);
    }
}

#[cfg(test)]
mod tests {
    use super::super::byte_set::ByteSet;
    use super::*;

    fn fuel() -> Fuel {
        Fuel::new(100_000)
    }

    #[test]
    fn an_empty_intersection_is_dead() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let x = l.class(ByteSet::range(b'a', b'z'));
        let (even, odd) = {
            let two = l.repeat(x, 2, 2);
            let even = l.star(two);
            (even, l.concat(x, even))
        };
        let never = l.and(&[even, odd]);
        assert!(!l.is_live(never, &mut fuel()).unwrap());
        assert_eq!(l.distance(never, &mut fuel()).unwrap(), DEAD);
    }

    #[test]
    fn the_shortest_completion_is_found() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let (a, b) = (l.literal(b"a"), l.literal(b"b"));
        // Strings of a and b, at least three long, with a b, but not ending in one.
        let ab = l.or(&[a, b]);
        let any = l.star(ab);
        let long = l.repeat(ab, 3, super::super::arena::UNBOUNDED);
        let with_b = {
            let tail = l.concat(b, any);
            l.concat(any, tail)
        };
        let ends_in_b = l.concat(any, b);
        let other_end = l.not(ends_in_b);
        let mut state = l.and(&[long, with_b, other_end]);
        for (left, byte) in [(3, b'a'), (2, b'b'), (1, b'a')] {
            assert_eq!(l.distance(state, &mut fuel()).unwrap(), left);
            state = l.derivative(state, byte, &mut fuel()).unwrap();
        }
        assert!(l.is_nullable(state));
    }

    /// Each condition needs a character of its own, so the length of what has them all is known, and the
    /// search goes straight there: it doesn't look at all sets of conditions.
    #[test]
    fn many_conditions_are_met_one_after_the_other() {
        let steps = |count: u8| {
            let mut l = Lexicon::new(Vec::new(), 8);
            let any = l.class(ByteSet::FULL);
            let any = l.star(any);
            let conditions: Vec<ExprId> = (0..count)
                .map(|n| {
                    // A letter, in either case where the number is even.
                    let mut letter = ByteSet::single(b'a' + n);
                    if n % 2 == 0 {
                        letter.insert(b'A' + n);
                    }
                    let letter = l.class(letter);
                    let tail = l.concat(letter, any);
                    l.concat(any, tail)
                })
                .collect();
            let all = l.and(&conditions);
            let mut fuel = Fuel::new(1_000_000);
            assert_eq!(l.distance(all, &mut fuel), Ok(u32::from(count)));
            1_000_000 - fuel.left()
        };
        // Each of n places has n ways on, of n conditions each.
        assert!(steps(24) < 30 * steps(8), "{} {}", steps(24), steps(8));
    }

    #[test]
    fn fuel_ends_a_search() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let x = l.class(ByteSet::range(b'a', b'z'));
        let (seven, eleven) = (l.repeat(x, 101, 101), l.repeat(x, 103, 103));
        let (seven, eleven) = (l.star(seven), l.star(eleven));
        let both = l.and(&[seven, eleven]);
        let both = l.concat(both, x);
        let both = {
            let y = l.repeat(x, 2, 2);
            let even = l.star(y);
            l.and(&[both, even])
        };
        assert_eq!(l.distance(both, &mut Fuel::new(50)), Err(Stop::Steps));
        // What was found on the way is kept, so that a larger budget gets there.
        assert_eq!(
            l.distance(both, &mut Fuel::new(10_000_000)),
            Ok(101 * 103 + 1)
        );
    }
}
