//! Counters cut to what one token can tell apart.
//!
//! The mask of `x{0,300}` and that of `x{0,299}` are the same as long as no token reaches the
//! bound. So a mask is kept under the *saturated* state: a lower bound that no token can reach
//! becomes the smallest such bound, an upper bound that no token can exceed becomes none. A long
//! string far from its bound then has the key of a string without one.
//!
//! Saturation keeps, for every string of at most one token's length, whether it is in the language
//! and whether it is the beginning of a string of the language (by induction over concatenation,
//! union and repetition), which is all that a mask asks. Below `And` or `Not` it could turn an empty
//! intersection into one that is not; so these stay as they are, but for one case.
//!
//! That case is a pattern `P` of characters together with a length, `And(P, c{0,n})`, where `P` is
//! within `c*`: such intersections are known by how they are made (`Lexicon::sized`). Whatever a
//! token leaves of `P` can be completed by some bytes, of which `Facts::farthest` is a bound. With
//! as many characters left as a token and that completion have bytes, the length excludes no token,
//! and `P` has the same mask.

use super::arena::{EMPTY, ExprId, Lexicon, NOT_CUT, Node, UNBOUNDED};

impl Lexicon {
    /// The state under which this state's token mask is kept.
    pub(crate) fn saturated(&mut self, expr: ExprId) -> ExprId {
        if let Some(known) = self.known_cut(expr) {
            return known;
        }
        let mut pending = self.take_list();
        pending.push(expr);
        while let Some(&next) = pending.last() {
            let before = pending.len();
            if self.known_cut(next).is_none() {
                match self.node(next) {
                    Node::Concat(head, tail) => pending.extend([head, tail]),
                    Node::Or(at) => pending.extend_from_slice(self.operands(at)),
                    Node::Repeat { body, .. } => pending.push(body),
                    Node::And(_) => pending.extend(self.of_any_length(next)),
                    _ => {}
                }
            }
            let mut unknown = before;
            for at in before..pending.len() {
                let operand = pending[at];
                if self.known_cut(operand).is_none() {
                    pending[unknown] = operand;
                    unknown += 1;
                }
            }
            pending.truncate(unknown);
            if unknown == before {
                pending.pop();
                if self.known_cut(next).is_none() {
                    self.cut(next);
                }
            }
        }
        self.give_list(pending);
        self.known_cut(expr).unwrap_or(expr)
    }

    /// Strings of a language that have `min..=max` characters, where all its strings consist of
    /// such characters.
    pub(crate) fn sized(&mut self, text: ExprId, char: ExprId, min: u32, max: u32) -> ExprId {
        let length = self.repeat(char, min, max);
        let sized = self.and(&[text, length]);
        if self.sized_by == EMPTY {
            self.sized_by = char;
        }
        if self.sized_by == char {
            self.note_sized(sized);
        }
        sized
    }

    /// Notes an intersection as one of strings with their length.
    pub(super) fn note_sized(&mut self, expr: ExprId) {
        if matches!(self.node(expr), Node::And(_)) {
            self.sized.insert(expr);
        }
    }

    /// Where an intersection is that of strings with a length so far away that no token can tell:
    /// these strings.
    fn of_any_length(&self, expr: ExprId) -> Option<ExprId> {
        let Node::And(at) = self.node(expr) else {
            return None;
        };
        let &[a, b] = self.operands(at) else {
            return None;
        };
        if !self.is_sized(expr) {
            return None;
        }
        let is_far = |(text, length): (ExprId, ExprId)| {
            let left = self.characters_left(length)?;
            let facts = self.facts(text);
            let needed = facts.farthest.saturating_add(self.max_token_bytes);
            (facts.exact && needed <= left).then_some(text)
        };
        is_far((a, b)).or_else(|| is_far((b, a)))
    }

    /// Whether an intersection is known as one of strings with their length.
    pub(super) fn is_sized(&self, expr: ExprId) -> bool {
        self.sized.contains(&expr)
    }

    /// The bounds of a length. `None` where a character was begun, or where it is no length: a pattern
    /// may be any characters too.
    pub(super) fn length(&self, length: ExprId) -> Option<(u32, u32)> {
        match self.node(length) {
            Node::Repeat { body, min, max } if body == self.sized_by => Some((min, max)),
            _ => None,
        }
    }

    /// How many more characters a length allows. `None` where it asks for some, or
    /// see [`Lexicon::length`].
    fn characters_left(&self, length: ExprId) -> Option<u32> {
        self.length(length)
            .and_then(|(min, max)| (min == 0).then_some(max))
    }

    fn known_cut(&self, expr: ExprId) -> Option<ExprId> {
        if !self.facts(expr).counted {
            return Some(expr);
        }
        let id = *self.saturated.get(expr.index())?;
        (id != NOT_CUT).then_some(ExprId(id))
    }

    /// Cuts an expression whose operands are cut.
    fn cut(&mut self, expr: ExprId) {
        let of = |lexicon: &Self, operand| lexicon.known_cut(operand).unwrap_or(EMPTY);
        let cut = match self.node(expr) {
            Node::Concat(head, tail) => {
                let (head, tail) = (of(self, head), of(self, tail));
                self.concat(head, tail)
            }
            Node::Or(at) => {
                let operands = self.operands(at);
                let list: Vec<ExprId> = operands.iter().map(|&expr| of(self, expr)).collect();
                self.or(&list)
            }
            Node::Repeat { body, min, max } => {
                // At most this many times within one token, and one more.
                let times = self.max_token_bytes / self.facts(body).min_bytes.max(1);
                let beyond = times.saturating_add(1);
                let max = if max >= beyond { UNBOUNDED } else { max };
                let body = of(self, body);
                self.repeat(body, min.min(beyond), max)
            }
            Node::And(_) => match self.of_any_length(expr) {
                Some(text) => of(self, text),
                None => expr,
            },
            _ => expr,
        };
        if self.saturated.len() <= expr.index() {
            self.saturated.resize(expr.index() + 1, NOT_CUT);
        }
        self.saturated[expr.index()] = cut.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::{ANY, EPSILON};
    use super::super::byte_set::ByteSet;
    use super::*;

    #[test]
    fn far_from_its_bounds_a_counter_is_no_counter() {
        let mut l = Lexicon::new(Vec::new(), 4);
        let (x, q) = (l.class(ByteSet::range(b'a', b'z')), l.literal(b"\""));
        let mut key = |min, max| {
            let body = l.repeat(x, min, max);
            let string = l.concat(body, q);
            l.saturated(string)
        };
        let free = key(0, UNBOUNDED);
        assert_eq!(key(0, 300), free);
        assert_eq!(key(0, 5), free);
        assert_ne!(
            key(0, 4),
            free,
            "a token of four may be followed by a fifth letter or not"
        );
        assert_eq!(key(100, 300), key(5, UNBOUNDED));
        assert_ne!(key(4, 300), key(5, 300));
        // Two bytes a time: at most two times in a token.
        let xx = l.concat(x, q);
        let two = l.repeat(xx, 7, 9);
        assert_eq!(l.saturated(two), l.repeat(xx, 3, UNBOUNDED));
    }

    #[test]
    fn a_length_far_away_is_none() {
        let mut l = Lexicon::new(Vec::new(), 4);
        let (x, a) = (l.class(ByteSet::range(b'a', b'z')), l.literal(b"a"));
        // Any letters, then "aaa": three bytes complete whatever a token of four leaves; the bound
        // that is known says four.
        let (body, end) = (l.star(x), l.repeat(a, 3, 3));
        let pattern = l.concat(body, end);
        let quote = l.literal(b"\"");
        let key = |l: &mut Lexicon, min, max| {
            let sized = l.sized(pattern, x, min, max);
            let string = l.concat(sized, quote);
            (l.saturated(string), string)
        };
        let free = l.concat(pattern, quote);
        assert_eq!(key(&mut l, 0, 300).0, free);
        assert_eq!(key(&mut l, 0, 8).0, free);
        for (min, max) in [(0, 7), (1, 300)] {
            let (cut, string) = key(&mut l, min, max);
            assert_eq!(cut, string);
        }
        // After a byte it is still known what it is.
        let (_, string) = key(&mut l, 0, 300);
        let mut fuel = super::super::Fuel::new(1000);
        let next = l.derivative(string, b'a', &mut fuel).unwrap();
        let cut = l.saturated(next);
        assert!(!l.is_exact(next) && l.is_exact(cut));
    }

    #[test]
    fn intersections_keep_their_counters() {
        let mut l = Lexicon::new(Vec::new(), 4);
        let x = l.class(ByteSet::range(b'a', b'z'));
        let (fifty, sixty) = (l.repeat(x, 50, 50), l.repeat(x, 60, 60));
        let never = l.and(&[fifty, sixty]);
        assert_eq!(l.saturated(never), never);
        for plain in [EPSILON, ANY, x] {
            assert_eq!(l.saturated(plain), plain);
        }
    }
}
