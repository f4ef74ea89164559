//! Characters by so many of which a state comes to no dead state.
//!
//! Of `[^,]{0,30},?([^,]{1,40},?){0,9}` thirty more characters are left, and forty for each of the nine that may
//! follow: no text of 390 such characters leads to a dead state, however it is shared out. A trie of tokens knows
//! of each node how long the words below it are, so of few tokens the states have to be looked at.
//!
//! Of each part two things are found. With how many characters it may be over: a range such that each text of so
//! many is one of its own. And how many may be read, be it over then or not. A sequence may read as many as its
//! first part at most is, and as many as may be read of the second.

use hashbrown::HashMap;

use super::arena::{ExprId, Lexicon, Node, UNBOUNDED};
use super::byte_set::ByteSet;
use super::fuel::{Fuel, Stop};
use super::labels::Others;
use super::lasting::Lasting;

/// Parts in parts that are looked into.
const MAX_DEPTH: u32 = 24;

/// So many parts are looked at for characters that are counted.
const MAX_PARTS: usize = 96;

/// So many sets of characters are looked at.
const MAX_SETS: usize = 4;

/// Fewer ASCII characters are no text.
const MANY_BYTES: usize = 40;

/// Characters, and how many of them go on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enduring {
    pub(crate) over: Lasting,
    pub(crate) num_chars: u32,
}

impl Enduring {
    const NONE: Self = Self {
        over: Lasting {
            bytes: ByteSet::EMPTY,
            others: Others::Some,
        },
        num_chars: 0,
    };
}

/// What is read of a part, in characters of some set.
#[derive(Clone, Copy)]
struct Reach {
    /// Each text of so many, from the first to the second number, is a text of the part.
    whole: Option<(u32, u32)>,
    /// Each text of no more than so many goes on to one.
    most: u32,
}

impl Reach {
    const NOTHING: Self = Self {
        whole: None,
        most: 0,
    };

    fn of(least: u32, most: u32) -> Self {
        Self {
            whole: Some((least, most)),
            most,
        }
    }

    fn then(self, next: Self) -> Self {
        let Some((least, most)) = self.whole else {
            return self;
        };
        let whole = next.whole.map(|(least_next, most_next)| {
            (
                least.saturating_add(least_next),
                most.saturating_add(most_next),
            )
        });
        let both = most.saturating_add(next.most);
        Self {
            whole,
            most: self.most.max(both),
        }
    }

    fn or(self, other: Self) -> Self {
        let whole = match (self.whole, other.whole) {
            (Some(a), Some(b)) => {
                let meet = a.0 <= b.1.saturating_add(1) && b.0 <= a.1.saturating_add(1);
                Some(match meet {
                    true => (a.0.min(b.0), a.1.max(b.1)),
                    false if a.1 > b.1 => a,
                    false => b,
                })
            }
            (a, b) => a.or(b),
        };
        Self {
            whole,
            most: self.most.max(other.most),
        }
    }

    /// So many times, at least and at most.
    fn times(self, min: u32, max: u32) -> Self {
        let Some((least, most)) = self.whole else {
            return Self {
                whole: (min == 0).then_some((0, 0)),
                most: self.most,
            };
        };
        let all = match max {
            UNBOUNDED if most > 0 => u32::MAX,
            _ => most.saturating_mul(max),
        };
        // From so many times on the numbers of characters have no gap between them.
        let from = match (least, most - least) {
            (0 | 1, _) => min,
            (_, 0) => max,
            (_, more) => min.max((least - 1).div_ceil(more)),
        };
        let whole = match from <= max && from != UNBOUNDED {
            true => Some((from.saturating_mul(least), all)),
            false => (min == 0).then_some((0, 0)),
        };
        // The last one may be begun.
        let begun = match max {
            0 => 0,
            UNBOUNDED => all,
            _ => most.saturating_mul(max - 1).saturating_add(self.most),
        };
        Self {
            whole,
            most: begun.max(all),
        }
    }
}

impl Lexicon {
    /// Characters of which any text, up to a length, leads from a state to a live one. There may be more: only
    /// what the expression shows is found.
    ///
    /// # Errors
    /// Out of fuel: a step per part looked at.
    pub(crate) fn enduring(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Enduring, Stop> {
        let facts = self.facts(expr);
        // Then each part is alive, and so is what is left after it.
        if !facts.exact || !facts.live || !facts.counted {
            return Ok(Enduring::NONE);
        }
        let mut best = Enduring::NONE;
        let key = |of: &Enduring| (of.over.others, of.over.bytes.len(), of.num_chars);
        for over in self.counted_characters(expr, fuel)? {
            let mut known = HashMap::new();
            let reach = self.reach(expr, &over, MAX_DEPTH, &mut known, fuel)?;
            let found = Enduring {
                over,
                num_chars: reach.most,
            };
            if reach.most > 1 && key(&found) > key(&best) {
                best = found;
            }
        }
        Ok(best)
    }

    /// Sets of characters that parts of an expression repeat.
    fn counted_characters(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Vec<Lasting>, Stop> {
        let mut found: Vec<Lasting> = Vec::new();
        let mut pending = vec![expr];
        for _ in 0..MAX_PARTS {
            let Some(part) = pending.pop() else { break };
            fuel.burn(1)?;
            match self.node(part) {
                Node::Concat(head, tail) => pending.extend([tail, head]),
                Node::Or(at) => pending.extend(self.operands(at).iter().take(MAX_PARTS)),
                Node::Repeat { body, .. } if self.is_character(body) => {
                    let over = self.characters_of(body, fuel)?;
                    if over.bytes.len() >= MANY_BYTES && !found.contains(&over) {
                        found.push(over);
                        if found.len() == MAX_SETS {
                            break;
                        }
                    }
                }
                Node::Repeat { body, .. } => pending.push(body),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Whether an expression may be a set of characters.
    fn is_character(&self, expr: ExprId) -> bool {
        let facts = self.facts(expr);
        facts.exact && facts.finite && !facts.counted && !facts.marked && facts.min_bytes == 1
    }

    /// Recurses into parts of parts, no deeper than that.
    fn reach(
        &mut self,
        expr: ExprId,
        over: &Lasting,
        depth: u32,
        known: &mut HashMap<ExprId, Reach>,
        fuel: &mut Fuel,
    ) -> Result<Reach, Stop> {
        if let Some(&known) = known.get(&expr) {
            return Ok(known);
        }
        fuel.burn(1)?;
        let is_nullable = self.is_nullable(expr);
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(match is_nullable {
                true => Reach::of(0, 0),
                false => Reach::NOTHING,
            });
        };
        let mut found = Reach::NOTHING;
        if self.is_character(expr) {
            let own = self.characters_of(expr, fuel)?;
            if own.intersection(over) == *over {
                found = Reach::of(1, 1);
            }
        } else {
            match self.node(expr) {
                Node::Concat(mut head, mut tail) => {
                    // From the last to the first.
                    let mut parts = Vec::new();
                    loop {
                        parts.push(self.reach(head, over, depth, known, fuel)?);
                        match self.node(tail) {
                            Node::Concat(next, rest) => (head, tail) = (next, rest),
                            _ => break,
                        }
                    }
                    found = self.reach(tail, over, depth, known, fuel)?;
                    for part in parts.into_iter().rev() {
                        found = part.then(found);
                    }
                }
                Node::Or(at) => {
                    for operand in self.operands(at).to_vec() {
                        found = found.or(self.reach(operand, over, depth, known, fuel)?);
                    }
                }
                Node::Repeat { body, min, max } => {
                    found = self.reach(body, over, depth, known, fuel)?.times(min, max);
                }
                _ => {}
            }
        }
        if is_nullable {
            // Also beside longer ones that don't begin there.
            found.whole = found.whole.or(Some((0, 0)));
        }
        known.insert(expr, found);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::numbers_below;
    use super::*;

    fn fuel() -> Fuel {
        Fuel::new(10_000_000)
    }

    #[test]
    fn what_is_left_of_counts_of_counts_is_added_up() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let char = l.class(ByteSet::range(b'-', b'z'));
        let comma = l.literal(b",");
        let value = l.repeat(char, 1, 40);
        let end = l.optional(comma);
        let pair = l.concat(value, end);
        let mut state = l.repeat(pair, 1, 10);
        for (byte, num_chars) in [(b'a', 39 + 9 * 40), (b'b', 38 + 9 * 40), (b',', 9 * 40)] {
            state = l.derivative(state, byte, &mut fuel()).unwrap();
            let found = l.enduring(state, &mut fuel()).unwrap();
            assert_eq!(found.num_chars, num_chars);
            assert_eq!(found.over.bytes, ByteSet::range(b'-', b'z'));
        }
        let dots = l.literal(b"..");
        let state = l.concat(dots, state);
        assert_eq!(l.enduring(state, &mut fuel()).unwrap().num_chars, 0);
    }

    /// Any text over these characters, not longer, leaves a state that goes on.
    #[test]
    fn texts_over_enduring_characters_are_live() {
        let mut next = numbers_below(77);
        let cases = std::env::var("FORMWORK_CASES").map_or(3000, |cases| cases.parse().unwrap());
        let (mut num_found, mut num_longest) = (0, 0);
        for _ in 0..cases {
            let mut l = Lexicon::new(Vec::new(), 8);
            let some = l.class(ByteSet::range(b'0', b'z'));
            let more = l.class(ByteSet::range(b' ', b'z'));
            let accented = l.literal("é".as_bytes());
            let with_accented = l.or(&[some, accented]);
            let comma = l.literal(b",");
            let word = l.literal(b"ab");
            let few = l.repeat(some, 0, 2);
            let mut parts = vec![some, more, with_accented, comma, word, few];
            for _ in 0..3 + next(7) {
                let mut pick = || {
                    let from = parts.len().saturating_sub(6).min(next(9) as usize);
                    parts[from + next((parts.len() - from) as u32) as usize]
                };
                let (one, other) = (pick(), pick());
                let made = match next(5) {
                    0 => l.or(&[one, other]),
                    1 | 2 => {
                        let min = next(4);
                        l.repeat(one, min, min + next(4))
                    }
                    _ => l.concat(one, other),
                };
                parts.push(made);
            }
            let Some(&state) = parts.last() else { continue };
            let found = l.enduring(state, &mut fuel()).unwrap();
            if found.num_chars == 0 {
                continue;
            }
            num_found += 1;
            for _ in 0..6 {
                let mut state = state;
                for length in 1..=found.num_chars.min(24) {
                    let chars = ["a", "0", "z", "b", "é", ",", " "];
                    let is_over = |char: &&str| match char.as_bytes() {
                        [byte] => found.over.bytes.contains(*byte),
                        _ => found.over.others == Others::All,
                    };
                    let chars: Vec<&str> = chars.into_iter().filter(is_over).collect();
                    for &byte in chars[next(chars.len() as u32) as usize].as_bytes() {
                        state = l.derivative(state, byte, &mut fuel()).unwrap();
                    }
                    assert!(l.is_live(state, &mut fuel()).unwrap(), "{length}");
                    num_longest = num_longest.max(length);
                }
            }
        }
        assert!(
            num_found > cases / 20 && num_longest > 9,
            "{num_found} {num_longest}"
        );
    }
}
