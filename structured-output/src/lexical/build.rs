//! Constructors of expressions.
//!
//! Each brings what it is given to one form, so that languages that are equal for a plain reason
//! (associativity, commutativity, idempotence, neutral and absorbing operands, adjacent and
//! overlapping counters) are equal as expressions. That keeps the number of derivatives finite
//! (Brzozowski 1964, "Derivatives of Regular Expressions") and small.

use hashbrown::HashSet;

use super::arena::{ANY, EMPTY, EPSILON, ExprId, Lexicon, NO_MARK, Node, UNBOUNDED};
use super::byte_set::ByteSet;
use super::counts::product;

/// `body{min,max} tail`, the shape in which alternatives with counters are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    body: ExprId,
    tail: ExprId,
    min: u32,
    max: u32,
}

impl Lexicon {
    /// One byte of a set.
    pub(crate) fn class(&mut self, set: ByteSet) -> ExprId {
        if set.is_empty() {
            return EMPTY;
        }
        let set = self.intern_set(set);
        self.intern(Node::Class(set), &[])
    }

    /// One byte.
    pub(crate) fn byte(&mut self, byte: u8) -> ExprId {
        let known = self.bytes[byte as usize];
        if known != EMPTY {
            return known;
        }
        let expr = self.class(ByteSet::single(byte));
        self.bytes[byte as usize] = expr;
        expr
    }

    /// The end of a lexeme, and of which.
    pub(crate) fn mark(&mut self, mark: u16) -> ExprId {
        debug_assert_ne!(mark, NO_MARK);
        self.intern(Node::Mark(mark), &[])
    }

    /// A lexeme that ends with a mark.
    pub(crate) fn marked(&mut self, expr: ExprId, mark: u16) -> ExprId {
        let end = self.mark(mark);
        self.concat(expr, end)
    }

    /// A string as it stands.
    pub(crate) fn literal(&mut self, bytes: &[u8]) -> ExprId {
        let mut expr = EPSILON;
        for &byte in bytes.iter().rev() {
            let head = self.byte(byte);
            expr = self.concat(head, expr);
        }
        expr
    }

    /// The first, then the second.
    pub(crate) fn concat(&mut self, first: ExprId, second: ExprId) -> ExprId {
        if first == EMPTY || second == EMPTY {
            return EMPTY;
        }
        if second == EPSILON {
            return first;
        }
        if !matches!(self.node(first), Node::Concat(..)) {
            return self.prepend(first, second);
        }
        let mut spine = self.take_list();
        let mut head = first;
        while let Node::Concat(a, b) = self.node(head) {
            spine.push(a);
            head = b;
        }
        let mut expr = self.prepend(head, second);
        while let Some(head) = spine.pop() {
            expr = self.prepend(head, expr);
        }
        self.give_list(spine);
        expr
    }

    /// `concat` where `head` is no `Concat`.
    fn prepend(&mut self, head: ExprId, tail: ExprId) -> ExprId {
        if head == EPSILON || self.is_idle_before(head, tail) {
            return tail;
        }
        // x{a,b} x{c,d} = x{a+c,b+d}, where one of them is a repetition and the other may be bare.
        let (next, rest) = match self.node(tail) {
            Node::Concat(next, rest) => (next, rest),
            _ => (tail, EPSILON),
        };
        let a = self.as_repeat(head);
        let b = self.as_repeat(next);
        let bare = a.0 == head && b.0 == next;
        if a.0 == b.0 && !bare {
            let max = if a.2 == UNBOUNDED || b.2 == UNBOUNDED {
                Some(UNBOUNDED)
            } else {
                a.2.checked_add(b.2).filter(|&max| max != UNBOUNDED)
            };
            if let (Some(min), Some(max)) = (a.1.checked_add(b.1), max) {
                let merged = self.repeat(a.0, min, max);
                if rest == EPSILON {
                    return merged;
                }
                return self.intern(Node::Concat(merged, rest), &[]);
            }
        }
        self.intern(Node::Concat(head, tail), &[])
    }

    /// `min..=max` times the body; `max` may be [`UNBOUNDED`]. Never unrolled.
    pub(crate) fn repeat(&mut self, body: ExprId, min: u32, max: u32) -> ExprId {
        if min > max {
            return EMPTY;
        }
        if max == 0 || body == EPSILON {
            return EPSILON;
        }
        if body == EMPTY {
            return if min == 0 { EPSILON } else { EMPTY };
        }
        if (min, max) == (1, 1) {
            return body;
        }
        // Times a nullable body, fewer are as good as many.
        let min = if self.is_nullable(body) { 0 } else { min };
        if let Node::Repeat {
            body: inner,
            min: low,
            max: high,
        } = self.node(body)
            && let Some((low, high)) = product(low, high, min, max)
        {
            return self.repeat(inner, low, high);
        }
        self.intern(Node::Repeat { body, min, max }, &[])
    }

    /// Any number of times.
    pub(crate) fn star(&mut self, body: ExprId) -> ExprId {
        self.repeat(body, 0, UNBOUNDED)
    }

    /// Or nothing.
    pub(crate) fn optional(&mut self, body: ExprId) -> ExprId {
        self.repeat(body, 0, 1)
    }

    /// Any of them.
    pub(crate) fn or(&mut self, exprs: &[ExprId]) -> ExprId {
        if let [only] = *exprs {
            return only;
        }
        let mut list = self.take_list();
        let expr = self.or_with(exprs, &mut list);
        self.give_list(list);
        expr
    }

    fn or_with(&mut self, exprs: &[ExprId], list: &mut Vec<ExprId>) -> ExprId {
        let mut bytes = ByteSet::EMPTY;
        for &expr in exprs {
            match self.node(expr) {
                Node::Or(at) => list.extend_from_slice(self.operands(at)),
                _ => list.push(expr),
            }
        }
        list.retain(|&expr| match self.node(expr) {
            Node::Empty => false,
            Node::Class(set) => {
                bytes = bytes.union(&self.set(set));
                false
            }
            _ => true,
        });
        if list.contains(&ANY) {
            return ANY;
        }
        if !bytes.is_empty() {
            list.push(self.class(bytes));
        }
        list.sort_unstable();
        list.dedup();
        if list.len() > 1 {
            self.spread_counted(list);
            self.merge_counters(list);
            self.drop_dominated(list);
            self.merge_later_counters(list);
            self.drop_outdone(list);
            self.drop_included(list);
            self.absorb(list);
            self.drop_held(list);
        }
        if list.len() > 1 && list[0] <= EPSILON {
            // Where another holds the empty string already.
            if list[1..].iter().any(|&expr| self.is_nullable(expr)) {
                list.remove(0);
            }
        }
        match list[..] {
            [] => EMPTY,
            [only] => only,
            _ => self.intern(Node::Or(Default::default()), list),
        }
    }

    /// An alternative `(x & y) t` goes where there is `x t`: names that are no keywords, beside any
    /// names.
    fn absorb(&self, list: &mut Vec<ExprId>) {
        let parts = |expr| match self.node(expr) {
            Node::Concat(head, tail) => (head, tail),
            _ => (expr, EPSILON),
        };
        let is_and = |expr: &ExprId| matches!(self.node(parts(*expr).0), Node::And(_));
        if !list.iter().any(is_and) {
            return;
        }
        let all: HashSet<(ExprId, ExprId)> = list.iter().map(|&expr| parts(expr)).collect();
        list.retain(|&expr| {
            let (head, tail) = parts(expr);
            match self.node(head) {
                Node::And(at) => {
                    let operands = self.operands(at);
                    !operands
                        .iter()
                        .any(|&operand| all.contains(&(operand, tail)))
                }
                _ => true,
            }
        });
    }

    /// Alternatives `x{a,b} t` and `x{c,d} t` become one where the counters meet, and `t` goes
    /// where there is `x{0,b} t`. `list` is ascending, before and after.
    fn merge_counters(&mut self, list: &mut Vec<ExprId>) {
        let mut counted: Vec<Counted> = Vec::new();
        for &expr in list.iter() {
            let (head, tail) = match self.node(expr) {
                Node::Concat(head, tail) => (head, tail),
                _ => (expr, EPSILON),
            };
            if let Node::Repeat { body, min, max } = self.node(head) {
                counted.push(Counted {
                    body,
                    tail,
                    min,
                    max,
                });
            }
        }
        if counted.is_empty() {
            return;
        }
        counted.sort_unstable();
        let mut optional: Vec<ExprId> = Vec::new();
        optional.extend(counted.iter().filter(|c| c.min == 0).map(|c| c.tail));
        optional.sort_unstable();
        list.retain(|&expr| {
            let (head, tail) = match self.node(expr) {
                Node::Concat(head, tail) => (head, tail),
                _ => (expr, EPSILON),
            };
            // t beside x{0,b} t, and x t beside x{1,b} t or x{0,b} t: of equal ones, the first has
            // the least bound.
            let at = counted.partition_point(|c| (c.body, c.tail) < (head, tail));
            let is_one = |c: &Counted| (c.body, c.tail) == (head, tail) && c.min <= 1;
            optional.binary_search(&expr).is_err() && !counted.get(at).is_some_and(is_one)
        });
        if counted.len() < 2 {
            return;
        }
        let before = counted.len();
        counted.dedup_by(|next, kept| {
            let meets = (next.body, next.tail) == (kept.body, kept.tail)
                && next.min <= kept.max.saturating_add(1);
            if meets {
                kept.max = kept.max.max(next.max);
            }
            meets
        });
        if counted.len() == before {
            return;
        }
        list.retain(|&expr| {
            let head = match self.node(expr) {
                Node::Concat(head, _) => head,
                _ => expr,
            };
            !matches!(self.node(head), Node::Repeat { .. })
        });
        for c in counted {
            let head = self.repeat(c.body, c.min, c.max);
            let merged = self.concat(head, c.tail);
            list.push(merged);
        }
        list.sort_unstable();
        list.dedup();
    }

    /// All of them.
    pub(crate) fn and(&mut self, exprs: &[ExprId]) -> ExprId {
        let mut list = self.take_list();
        let expr = self.and_with(exprs, &mut list);
        self.give_list(list);
        expr
    }

    fn and_with(&mut self, exprs: &[ExprId], list: &mut Vec<ExprId>) -> ExprId {
        let mut bytes: Option<ByteSet> = None;
        for &expr in exprs {
            match self.node(expr) {
                Node::And(at) => list.extend_from_slice(self.operands(at)),
                _ => list.push(expr),
            }
        }
        list.retain(|&expr| match self.node(expr) {
            Node::Class(set) => {
                let set = self.set(set);
                bytes = Some(bytes.map_or(set, |bytes| bytes.intersection(&set)));
                false
            }
            _ => expr != ANY,
        });
        if let Some(bytes) = bytes {
            list.push(self.class(bytes));
        }
        if list.len() > 1 {
            self.join_residues(list);
        }
        list.sort_unstable();
        list.dedup();
        if list.first() == Some(&EMPTY) {
            return EMPTY;
        }
        if list.first() == Some(&EPSILON) {
            let all = list.iter().all(|&expr| self.is_nullable(expr));
            return if all { EPSILON } else { EMPTY };
        }
        let contradicts = |expr: &ExprId| match self.node(*expr) {
            Node::Not(inner) => list.binary_search(&inner).is_ok(),
            _ => false,
        };
        if list.iter().any(contradicts) {
            return EMPTY;
        }
        if list.len() > 1 {
            self.drop_holding(list);
        }
        match list[..] {
            [] => ANY,
            [only] => only,
            _ => self.intern(Node::And(Default::default()), list),
        }
    }

    /// Every other string of bytes, well-formed UTF-8 or not.
    pub(crate) fn not(&mut self, expr: ExprId) -> ExprId {
        match self.node(expr) {
            Node::Not(inner) => inner,
            Node::Empty => ANY,
            _ if expr == ANY => EMPTY,
            _ => self.intern(Node::Not(expr), &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_languages_are_equal_expressions() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let [a, b, c] = [b"a", b"b", b"c"].map(|s| l.literal(s));
        let bc = l.concat(b, c);
        let ab = l.concat(a, b);
        let left = l.concat(ab, c);
        let right = l.concat(a, bc);
        assert_eq!(left, right);
        assert_eq!(right, l.literal(b"abc"));

        let abc_set = l.class(ByteSet::range(b'a', b'c'));
        assert_eq!(l.or(&[a, b, c]), abc_set);
        let star = l.star(abc_set);
        assert_eq!(l.star(star), star);
        assert_eq!(l.or(&[star, EPSILON]), star);
        assert_eq!(l.or(&[ANY, a]), ANY);
        assert_eq!(l.and(&[ANY, a]), a);
        assert_eq!(l.and(&[a, b]), EMPTY);
        let not_a = l.not(a);
        assert_eq!(l.not(not_a), a);
        let contradiction = l.concat(ab, c);
        let other = l.not(contradiction);
        assert_eq!(l.and(&[other, contradiction]), EMPTY);
    }

    #[test]
    fn counters_are_added_and_merged() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let [x, t] = [b"x", b"t"].map(|s| l.literal(s));
        let three = l.repeat(x, 3, 3);
        let few = l.repeat(x, 0, 2);
        let both = l.concat(three, few);
        assert_eq!(both, l.repeat(x, 3, 5));
        let six = l.repeat(x, 4, 6);
        let one = l.concat(x, both);
        assert_eq!(one, six);

        // x{0,2} t | x{3,5} t | t = x{0,5} t
        let [left, right] = [few, both].map(|head| l.concat(head, t));
        let merged = l.or(&[left, right, t]);
        let upto = l.repeat(x, 0, 5);
        assert_eq!(merged, l.concat(upto, t));
        // With a gap they stay apart.
        let far = l.repeat(x, 7, 9);
        let far = l.concat(far, t);
        assert_ne!(l.or(&[left, far]), left);

        let plus = l.repeat(x, 1, UNBOUNDED);
        let star = l.star(x);
        assert_eq!(l.optional(plus), star);
        assert_eq!(l.repeat(plus, 2, 7), l.repeat(x, 2, UNBOUNDED));
        let maybe = l.optional(x);
        assert_eq!(l.repeat(maybe, 2, 7), l.repeat(x, 0, 7));
        let few = l.repeat(x, 2, 3);
        assert_eq!(l.repeat(few, 2, 7), l.repeat(x, 4, 21));
        assert_ne!(l.repeat(few, 0, 7), l.repeat(x, 0, 21));
        let gaps = l.repeat(x, 3, 4);
        assert_ne!(l.repeat(gaps, 1, 7), l.repeat(x, 3, 28));
        assert_eq!(l.repeat(gaps, 2, 7), l.repeat(x, 6, 28));
        let many = l.repeat(x, 0, i32::MAX as u32);
        assert_eq!(l.repeat(many, 0, i32::MAX as u32), star);
        assert_eq!(l.repeat(x, 3, 2), EMPTY);
        assert_eq!(l.repeat(x, 0, 0), EPSILON);
    }
}
