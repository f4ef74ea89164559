//! What is known of an expression from its operands alone.

use super::arena::{ExprId, Lexicon, MANY_MARKS, NO_MARK, Node, SetId, UNBOUNDED};
use super::byte_set::ByteSet;

/// `Facts::needs` where nothing is known to be needed.
const NO_SET: SetId = SetId(u32::MAX);

/// Of so many operands of an intersection it is looked at what bytes they need.
const MAX_NEEDS: usize = 64;

/// What is known of an expression from its operands alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Contains the empty string.
    pub(super) nullable: bool,
    /// Free of `And` and `Not`: then it is empty only as [`EMPTY`](super::arena::EMPTY), and `min_bytes` is exact.
    pub(super) exact: bool,
    /// Known to contain a string, without a search.
    pub(super) live: bool,
    /// Known to contain finitely many strings.
    pub(super) finite: bool,
    /// Known to contain infinitely many.
    pub(super) infinite: bool,
    /// Contains a bounded repetition.
    pub(super) counted: bool,
    /// Contains a mark.
    pub(super) marked: bool,
    /// A mark, or several of them, and nothing else.
    pub(super) over: bool,
    /// The only mark it contains, or [`NO_MARK`]; [`MANY_MARKS`] where it ends in several ways.
    pub(super) sole_mark: u16,
    /// The mark that the empty string ends with, or [`NO_MARK`].
    pub(super) end_mark: u16,
    /// A lower bound on the length of its strings.
    pub(super) min_bytes: u32,
    /// Bytes of which each of its strings has one, or [`NO_SET`].
    pub(super) needs: SetId,
    /// An upper bound on the shortest string of any of its derivatives; `u32::MAX` where that would
    /// have to be searched for.
    pub(super) farthest: u32,
}

impl Lexicon {
    /// The facts of a node whose operands are interned.
    pub(super) fn facts_of(&self, node: Node, list: &[ExprId]) -> Facts {
        let all = |of: fn(&Facts) -> bool| list.iter().all(|&expr| of(&self.facts(expr)));
        let any = |of: fn(&Facts) -> bool| list.iter().any(|&expr| of(&self.facts(expr)));
        let lengths = || list.iter().map(|&expr| self.facts(expr).min_bytes);
        let plain = Facts {
            nullable: false,
            exact: true,
            live: true,
            finite: false,
            infinite: false,
            counted: false,
            marked: false,
            over: false,
            sole_mark: NO_MARK,
            end_mark: NO_MARK,
            min_bytes: 0,
            needs: NO_SET,
            farthest: 0,
        };
        match node {
            Node::Empty => Facts {
                live: false,
                finite: true,
                min_bytes: u32::MAX,
                ..plain
            },
            Node::Epsilon => Facts {
                nullable: true,
                finite: true,
                ..plain
            },
            Node::Mark(mark) => Facts {
                nullable: true,
                finite: true,
                marked: true,
                over: true,
                sole_mark: mark,
                end_mark: mark,
                ..plain
            },
            Node::Class(set) => Facts {
                finite: true,
                min_bytes: 1,
                needs: set,
                farthest: 1,
                ..plain
            },
            Node::Concat(head, tail) => {
                let (a, b) = (self.facts(head), self.facts(tail));
                Facts {
                    nullable: a.nullable && b.nullable,
                    exact: a.exact && b.exact,
                    live: a.live && b.live,
                    finite: a.finite && b.finite,
                    infinite: (a.infinite && b.live) || (a.live && b.infinite),
                    counted: a.counted || b.counted,
                    marked: b.marked,
                    over: false,
                    sole_mark: b.sole_mark,
                    end_mark: if a.nullable { b.end_mark } else { NO_MARK },
                    needs: self.fewer_bytes(a.needs, b.needs),
                    min_bytes: a.min_bytes.saturating_add(b.min_bytes),
                    farthest: b.farthest.max(a.farthest.saturating_add(b.min_bytes)),
                }
            }
            Node::Or(_) => Facts {
                nullable: any(|facts| facts.nullable),
                exact: all(|facts| facts.exact),
                live: any(|facts| facts.live),
                finite: all(|facts| facts.finite),
                infinite: any(|facts| facts.infinite),
                counted: any(|facts| facts.counted),
                marked: any(|facts| facts.marked),
                over: all(|facts| facts.over),
                sole_mark: list
                    .iter()
                    .map(|&expr| self.facts(expr).sole_mark)
                    .reduce(|a, b| if a == b { a } else { MANY_MARKS })
                    .unwrap_or(NO_MARK),
                end_mark: list
                    .iter()
                    .map(|&expr| self.facts(expr).end_mark)
                    .min()
                    .unwrap_or(NO_MARK),
                min_bytes: lengths().min().unwrap_or(u32::MAX),
                needs: self.needs_of_one(list),
                farthest: list
                    .iter()
                    .map(|&expr| self.facts(expr).farthest)
                    .max()
                    .unwrap_or(0),
            },
            Node::And(_) => Facts {
                nullable: all(|facts| facts.nullable),
                exact: false,
                live: all(|facts| facts.nullable) || self.is_infinite_less_finite(list),
                finite: any(|facts| facts.finite),
                infinite: self.is_infinite_less_finite(list),
                counted: any(|facts| facts.counted),
                min_bytes: lengths().max().unwrap_or(0).max(self.num_apart(list)),
                needs: list
                    .iter()
                    .map(|&expr| self.facts(expr).needs)
                    .reduce(|one, other| self.fewer_bytes(one, other))
                    .unwrap_or(NO_SET),
                farthest: u32::MAX,
                ..plain
            },
            Node::Not(inner) => {
                let inner = self.facts(inner);
                Facts {
                    nullable: !inner.nullable,
                    exact: false,
                    live: !inner.nullable || inner.finite,
                    counted: inner.counted,
                    min_bytes: u32::from(inner.nullable),
                    farthest: u32::MAX,
                    ..plain
                }
            }
            Node::Repeat { body, min, max } => {
                let inner = self.facts(body);
                Facts {
                    nullable: min == 0 || inner.nullable,
                    live: min == 0 || inner.live,
                    finite: inner.finite && max != UNBOUNDED,
                    infinite: (inner.infinite && max > 0)
                        || (max == UNBOUNDED && inner.live && inner.min_bytes > 0),
                    counted: inner.counted || max != UNBOUNDED || min > 1,
                    min_bytes: min.saturating_mul(inner.min_bytes),
                    needs: if min > 0 { inner.needs } else { NO_SET },
                    farthest: min
                        .saturating_mul(inner.min_bytes)
                        .saturating_add(inner.farthest),
                    ..inner
                }
            }
            Node::FreeText(id) => self.facts_of_text(self.free_texts.get(id), plain),
            Node::Residue(id) => {
                let residue = self.residues.get(id);
                Facts {
                    nullable: residue.is_nullable(),
                    min_bytes: residue.min_bytes().unwrap_or(u32::MAX),
                    farthest: u32::MAX,
                    ..plain
                }
            }
        }
    }

    /// ASCII or other bytes of which each string of an expression has one, where that is known.
    pub(super) fn needed_bytes(&self, expr: ExprId) -> Option<ByteSet> {
        match self.facts(expr).needs {
            NO_SET => None,
            set => Some(self.set(set)),
        }
    }

    /// Whether an intersection is one infinite language less finite ones, such as any string but
    /// some: then something is left.
    fn is_infinite_less_finite(&self, list: &[ExprId]) -> bool {
        let mut infinite = 0;
        list.iter().all(|&expr| match self.node(expr) {
            Node::Not(inner) => self.facts(inner).finite,
            _ => {
                infinite += 1;
                self.facts(expr).infinite && infinite == 1
            }
        })
    }

    /// The set with fewer bytes.
    fn fewer_bytes(&self, one: SetId, other: SetId) -> SetId {
        match (one, other) {
            (NO_SET, other) => other,
            (one, NO_SET) => one,
            _ if self.set(other).len() < self.set(one).len() => other,
            _ => one,
        }
    }

    /// What each of some alternatives needs, as far as one of them says so.
    fn needs_of_one(&self, list: &[ExprId]) -> SetId {
        let mut all = list.iter().map(|&expr| self.facts(expr).needs);
        let Some(first) = all.next() else {
            return NO_SET;
        };
        let wider = |one: SetId, other: SetId| {
            if one == NO_SET || other == NO_SET || one == other {
                return (one == other).then_some(one);
            }
            let (own, beside) = (self.set(one), self.set(other));
            let both = own.intersection(&beside);
            match (both == beside, both == own) {
                (true, _) => Some(one),
                (_, true) => Some(other),
                _ => None,
            }
        };
        all.try_fold(first, wider).unwrap_or(NO_SET)
    }

    /// A lower bound on the length of strings of an intersection: how many of its operands need bytes
    /// that none of the others of them has any use for.
    fn num_apart(&self, list: &[ExprId]) -> u32 {
        let mut sets: Vec<ByteSet> = Vec::new();
        let needs = list.iter().map(|&expr| self.facts(expr).needs);
        for id in needs.take(MAX_NEEDS).filter(|&id| id != NO_SET) {
            let set = self.set(id);
            if sets.iter().all(|known| known.intersection(&set).is_empty()) {
                sets.push(set);
            }
        }
        sets.len() as u32
    }
}
