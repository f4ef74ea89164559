//! Alternatives that others hold, shown from their factors.
//!
//! Of a text that may be shared out among counts in many ways most ways are no better than another one. What
//! `nested` and `outdone` look for are forms of that; here it is proved, step by step, by few rules: each takes a
//! part off both sides, or writes one of them otherwise. With `x` within `y`:
//!
//! * `x{a,b} A` is within `y{c,d} B` if `c <= a`, `b <= d` and `A` is within `B`;
//! * where `b > d`, if that holds for up to `d` of `x`, and what is too much, `x{n,b-d} A`, is within `B`;
//! * `A` is within `C{0,d} B` if it is within `B`, or within `C C{0,d-1} B`;
//! * `x{0,b} A` is, if `A` is and `x{1,b} A` is; an alternative is enough on the right, on the left each must be.
//!
//! A proof is given up after so many steps. What it doesn't find stays, which costs time and is no mistake.

use hashbrown::{HashMap, HashSet};

use super::arena::{ExprId, Lexicon, Node, UNBOUNDED};
use super::factors::{END, Factors, Link, Links};

/// Steps after which a proof is given up.
const MAX_STEPS: u32 = 160;

/// Rules within rules.
const MAX_DEPTH: u32 = 40;

/// Alternatives of a factor that are looked at.
const MAX_OPERANDS: usize = 8;

/// Factors that an expression is looked at for its last one.
const MAX_FACTORS: usize = 32;

/// So many alternatives are compared with each other.
const MAX_COMPARED: usize = 48;

/// Sequences that a proof looks at that count as an expression that is looked up.
const STEPS_OF_WORK: u64 = 16;

/// Sequences up to which they are kept for the next proof: more of them are no longer at hand.
const MAX_LINKS: usize = 512;

/// Pairs of expressions up to which it is kept which is within which.
const MAX_KNOWN: usize = 1 << 16;

/// What proofs have shown.
#[derive(Clone, Default)]
pub(super) struct KnownInclusions {
    /// Whether characters are among others.
    characters: HashMap<(ExprId, ExprId), bool>,
    /// Whether expressions are within others: what no limit on proofs has part in.
    within: HashMap<(ExprId, ExprId), bool>,
    /// Expressions of which proofs were given up.
    given_up: HashSet<(ExprId, ExprId)>,
    /// The bytes of the longest text.
    longest: HashMap<ExprId, u64>,
    /// Room for sequences, and what is shown of them.
    links: Links,
    shown: HashMap<(u32, u32), bool>,
}

impl KnownInclusions {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.characters.len() + self.within.len() + self.given_up.len())
            * (size_of::<(ExprId, ExprId, bool)>() + 1)
            + self.longest.len() * (size_of::<(ExprId, u64)>() + 1)
    }
}

/// Proofs over sequences of factors.
struct Proofs<'a> {
    factors: Factors<'a>,
    /// What is known of sequences.
    shown: &'a mut HashMap<(u32, u32), bool>,
    characters: &'a mut HashMap<(ExprId, ExprId), bool>,
    within: &'a mut HashMap<(ExprId, ExprId), bool>,
    given_up: &'a mut HashSet<(ExprId, ExprId)>,
    /// What the proof may still take.
    left: u32,
    /// Whether a limit ended a part of it.
    is_cut: bool,
    /// What all proofs have taken.
    num_steps: u64,
}

impl Lexicon {
    /// Drops alternatives with counts that others hold. `list` stays ascending.
    pub(super) fn drop_included(&mut self, list: &mut Vec<ExprId>) {
        // By what they end with: others are rarely within each other.
        let mut counted: Vec<(ExprId, u16, u32, ExprId)> = Vec::new();
        for &expr in list.iter().filter(|&&expr| self.begins_with_count(expr)) {
            let (last, times) = self.last_factor(expr);
            counted.push((last, self.facts(expr).sole_mark, u32::MAX - times, expr));
        }
        if counted.len() < 2 {
            return;
        }
        counted.sort_unstable();
        let mut known = std::mem::take(&mut self.known_inclusions);
        let mut proofs = Proofs::new(self, &mut known);
        let mut gone: Vec<ExprId> = Vec::new();
        for same in counted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let mut left: Vec<ExprId> = same.iter().map(|of| of.3).collect();
            let mut at = left.len();
            // Those with the fewest repetitions left first.
            while let Some(before) = at.checked_sub(1) {
                at = before;
                let expr = left[at];
                let mut others = left.iter().take(MAX_COMPARED);
                if others.any(|&other| other != expr && proofs.is_within(expr, other)) {
                    left.remove(at);
                    gone.push(expr);
                }
            }
        }
        let num_steps = proofs.num_steps + proofs.factors.num_steps;
        self.known_inclusions = known;
        self.work += num_steps / STEPS_OF_WORK;
        if !gone.is_empty() {
            list.retain(|expr| !gone.contains(expr));
        }
    }

    /// Whether an expression begins with a count. Others, as those within a character, are compared after it.
    fn begins_with_count(&self, expr: ExprId) -> bool {
        let first = match self.node(expr) {
            Node::Concat(head, _) => head,
            _ => expr,
        };
        self.facts(expr).counted && matches!(self.node(first), Node::Repeat { .. })
    }

    /// What an expression ends with, and how often; of long ones what is after the first factors.
    fn last_factor(&self, mut expr: ExprId) -> (ExprId, u32) {
        for _ in 0..MAX_FACTORS {
            let Node::Concat(_, rest) = self.node(expr) else {
                break;
            };
            expr = rest;
        }
        let (body, _, max) = self.as_repeat(expr);
        (body, max)
    }
}

impl<'a> Proofs<'a> {
    fn new(lexicon: &'a Lexicon, known: &'a mut KnownInclusions) -> Self {
        if known.within.len() + known.given_up.len() > MAX_KNOWN {
            known.within.clear();
            known.given_up.clear();
            known.longest.clear();
        }
        known.links.clear();
        known.shown.clear();
        Self {
            factors: Factors::new(lexicon, &mut known.links, &mut known.longest),
            shown: &mut known.shown,
            characters: &mut known.characters,
            within: &mut known.within,
            given_up: &mut known.given_up,
            left: 0,
            is_cut: false,
            num_steps: 0,
        }
    }

    /// Whether it can be shown that one expression is within another.
    fn is_within(&mut self, expr: ExprId, of: ExprId) -> bool {
        let (own, other) = (
            self.factors.lexicon.facts(expr),
            self.factors.lexicon.facts(of),
        );
        self.num_steps += 1;
        if own.min_bytes < other.min_bytes || (own.nullable && !other.nullable) {
            return false;
        }
        if self.given_up.contains(&(expr, of)) {
            return false;
        }
        if self.factors.links.len() > MAX_LINKS {
            self.factors.links.clear();
            self.shown.clear();
        }
        self.left = MAX_STEPS;
        self.is_cut = false;
        let (own, other) = (self.factors.push(expr, END), self.factors.push(of, END));
        let found = self.holds(own, other, MAX_DEPTH);
        if !found && self.is_cut {
            self.given_up.insert((expr, of));
        }
        found
    }

    /// Whether a sequence is known to be within another.
    fn holds(&mut self, own: u32, other: u32, depth: u32) -> bool {
        self.num_steps += 1;
        if own == other {
            return true;
        }
        if let Some(&known) = self.shown.get(&(own, other)) {
            return known;
        }
        // A longest text is at least not shorter than it is, so this may miss what holds.
        let (lengths, of_other) = (
            self.factors.lengths_from(own),
            self.factors.lengths_from(other),
        );
        if lengths.0 < of_other.0 || lengths.1 > of_other.1 {
            return false;
        }
        let (Some(left), Some(depth)) = (self.left.checked_sub(1), depth.checked_sub(1)) else {
            self.is_cut = true;
            return false;
        };
        self.left = left;
        let exprs = self.factors.expr_at(own).zip(self.factors.expr_at(other));
        if let Some(known) = exprs.and_then(|exprs| self.within.get(&exprs)) {
            return *known;
        }
        let was_cut = std::mem::take(&mut self.is_cut);
        let found = self.is_shown(own, other, depth);
        if found || !self.is_cut {
            self.shown.insert((own, other), found);
            if let Some(exprs) = exprs {
                self.within.insert(exprs, found);
            }
        }
        self.is_cut |= was_cut;
        found
    }

    fn is_shown(&mut self, own: u32, other: u32, depth: u32) -> bool {
        let Some(a) = self.factors.first(own) else {
            return self.factors.may_be_nothing(other);
        };
        let Some(b) = self.factors.first(other) else {
            return false;
        };
        if self.is_among(a.body, b.body) && self.matches(a, b, depth) {
            return true;
        }
        if self.factors.is_optional(&b) && self.holds(own, b.next, depth) {
            return true;
        }
        self.is_rewritten(a, b, (own, other), depth)
    }

    /// Where the first factor of the one is of what the other one's is.
    fn matches(&mut self, a: Link, b: Link, depth: u32) -> bool {
        if a.max <= b.max {
            let least = b.min.saturating_sub(a.min);
            if least == 0 && self.holds(a.next, b.next, depth) {
                return true;
            }
            // Some of the other one's are left for what comes next.
            let most = match b.max {
                UNBOUNDED => UNBOUNDED,
                max => max - a.max,
            };
            if a.max == UNBOUNDED || most == 0 || least > most {
                return false;
            }
            let next = self.factors.first(a.next);
            let goes_on = next.is_some_and(|next| self.is_among(next.body, b.body));
            let left = self.factors.push_link(Link {
                min: least,
                max: most,
                ..b
            });
            return goes_on && self.holds(a.next, left, depth);
        }
        // What is too much for the other one, up to `a.max - b.max`, is to be read of what follows it.
        if a.max == UNBOUNDED || b.min > a.min {
            return false;
        }
        if a.min <= b.max && !self.holds(a.next, b.next, depth) {
            return false;
        }
        let least = a.min.max(b.max + 1);
        for piece in self.least_pieces(b.next, a.body) {
            // So many are read of what follows, the others before.
            if least.checked_sub(piece).is_none_or(|rest| rest < b.min) {
                continue;
            }
            let too_much = self.factors.push_link(Link {
                min: piece.max(least - b.max),
                max: piece.max(a.max - b.max),
                ..a
            });
            if self.holds(too_much, b.next, depth) {
                return true;
            }
        }
        false
    }

    /// With one of them written otherwise.
    fn is_rewritten(&mut self, a: Link, b: Link, whole: (u32, u32), depth: u32) -> bool {
        let (own, other) = whole;
        if a.is_one()
            && let Node::Or(at) = self.factors.lexicon.node(a.body)
        {
            let lexicon = self.factors.lexicon;
            let operands = lexicon.operands(at);
            if operands.len() <= MAX_OPERANDS
                && operands.iter().all(|&operand| {
                    let one = self.factors.push(operand, a.next);
                    self.holds(one, other, depth)
                })
            {
                return true;
            }
        }
        if b.is_one() {
            if let Node::Or(at) = self.factors.lexicon.node(b.body) {
                let lexicon = self.factors.lexicon;
                let mut operands = lexicon.operands(at).iter().take(MAX_OPERANDS);
                if operands.any(|&operand| {
                    let one = self.factors.push(operand, b.next);
                    self.holds(own, one, depth)
                }) {
                    return true;
                }
            }
        } else if self.factors.is_compound(b.body) {
            let fewer = self.factors.push_link(b.less_one());
            let one = self.factors.push(b.body, fewer);
            if self.holds(own, one, depth) {
                return true;
            }
        }
        if a.is_one() {
            return false;
        }
        if a.min == 0 {
            let some = Link { min: 1, ..a };
            let some = self.factors.push_link(some);
            return self.holds(a.next, other, depth) && self.holds(some, other, depth);
        }
        if self.factors.is_compound(a.body) {
            let fewer = self.factors.push_link(a.less_one());
            let one = self.factors.push(a.body, fewer);
            return self.holds(one, other, depth);
        }
        false
    }

    /// 1, and the least number of a body that a sequence begins with where that is asked for, if another.
    fn least_pieces(&mut self, at: u32, body: ExprId) -> impl Iterator<Item = u32> + use<> {
        /// Factors that are looked at.
        const MAX_PIECES: usize = 24;
        let mut pending = vec![at];
        let mut found = None;
        for _ in 0..MAX_PIECES {
            let Some(link) = pending.pop().and_then(|at| self.factors.first(at)) else {
                break;
            };
            if link.min > 1 && self.is_among(body, link.body) {
                found = Some(link.min);
                break;
            }
            if self.factors.is_optional(&link) {
                pending.push(link.next);
            }
            if let Node::Or(at) = self.factors.lexicon.node(link.body) {
                let lexicon = self.factors.lexicon;
                for &operand in lexicon.operands(at).iter().take(MAX_OPERANDS) {
                    let one = self.factors.push(operand, END);
                    pending.push(one);
                }
            } else if !link.is_one() {
                let one = self.factors.push(link.body, END);
                pending.push(one);
            }
        }
        std::iter::once(1).chain(found)
    }

    /// Whether a factor is within another, as far as they are equal, or characters.
    fn is_among(&mut self, expr: ExprId, of: ExprId) -> bool {
        if expr == of {
            return true;
        }
        let lexicon = self.factors.lexicon;
        if let (Node::Class(own), Node::Class(other)) = (lexicon.node(expr), lexicon.node(of)) {
            let own = lexicon.set(own);
            return own.intersection(&lexicon.set(other)) == own;
        }
        let is_plain = |expr| {
            let facts = lexicon.facts(expr);
            facts.exact && facts.finite && !facts.counted && !facts.marked && facts.min_bytes == 1
        };
        if !is_plain(expr) || !is_plain(of) {
            return false;
        }
        let num_steps = &mut self.num_steps;
        *self
            .characters
            .entry((expr, of))
            .or_insert_with(|| lexicon.are_among(expr, of, num_steps))
    }
}

#[cfg(test)]
#[path = "inclusion_tests.rs"]
mod tests;
