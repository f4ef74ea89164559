//! Lexemes that differ in their mark only.
//!
//! What a lexeme allows by itself doesn't depend on the mark with which it ends. So that is known
//! under mark 0: the rest of the name `type` is one expression whichever property it names.

use super::arena::{ExprId, Lexicon, MANY_MARKS, NO_MARK, Node};

impl Lexicon {
    /// The only mark that an expression contains, [`NO_MARK`] where it has none, and
    /// [`MANY_MARKS`] where it may end in several ways.
    pub(crate) fn sole_mark(&self, expr: ExprId) -> u16 {
        self.facts(expr).sole_mark
    }

    /// The marks of a lexeme that has ended, where these are several: what was read is in the languages of
    /// all of them. Else none.
    pub(crate) fn joint_marks(&self, expr: ExprId) -> Vec<u16> {
        match self.node(expr) {
            Node::Or(at) if self.facts(expr).over => {
                let marks = self.operands(at).iter();
                marks.map(|&mark| self.facts(mark).end_mark).collect()
            }
            _ => Vec::new(),
        }
    }

    /// An expression that has one mark, with mark 0 in its place. Costs a step per part of its end
    /// that was not asked for before.
    pub(crate) fn with_first_mark(&mut self, expr: ExprId) -> ExprId {
        if let Some(known) = self.first_marked(expr) {
            return known;
        }
        let mut pending = self.take_list();
        pending.push(expr);
        while let Some(&next) = pending.last() {
            if self.first_marked(next).is_some() {
                pending.pop();
                continue;
            }
            let before = pending.len();
            match self.node(next) {
                Node::Concat(_, tail) => pending.push(tail),
                Node::Or(at) => pending.extend_from_slice(self.operands(at)),
                _ => {}
            }
            let mut unknown = before;
            for at in before..pending.len() {
                let operand = pending[at];
                if self.first_marked(operand).is_none() {
                    pending[unknown] = operand;
                    unknown += 1;
                }
            }
            pending.truncate(unknown);
            if unknown > before {
                continue;
            }
            let of = |lexicon: &Self, expr| lexicon.first_marked(expr).unwrap_or(expr);
            let marked = match self.node(next) {
                Node::Mark(_) => self.mark(0),
                Node::Concat(head, tail) => {
                    let tail = of(self, tail);
                    self.concat(head, tail)
                }
                Node::Or(at) => {
                    let operands = self.operands(at);
                    let list: Vec<ExprId> = operands.iter().map(|&expr| of(self, expr)).collect();
                    self.or(&list)
                }
                _ => next,
            };
            self.first_marked.insert(next, marked);
        }
        self.give_list(pending);
        self.first_marked(expr).unwrap_or(expr)
    }

    fn first_marked(&self, expr: ExprId) -> Option<ExprId> {
        match self.sole_mark(expr) {
            0 | NO_MARK | MANY_MARKS => Some(expr),
            _ => self.first_marked.get(&expr).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::byte_set::ByteSet;
    use super::*;

    #[test]
    fn lexemes_that_differ_in_their_mark_become_one() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let mut name = |mark| {
            let (a, bc) = (l.literal(b"a"), l.literal(b"bc"));
            let digit = l.class(ByteSet::range(b'0', b'9'));
            let either = [l.marked(a, mark), l.marked(bc, mark)];
            let either = l.or(&either);
            let digits = l.repeat(digit, 2, 5);
            let lexeme = l.concat(digits, either);
            assert_eq!(l.sole_mark(lexeme), mark);
            l.with_first_mark(lexeme)
        };
        let (first, fourth, ninth) = (name(0), name(4), name(9));
        assert_eq!(first, fourth);
        assert_eq!(first, ninth);

        let x = l.literal(b"x");
        assert_eq!(l.sole_mark(x), NO_MARK);
        assert_eq!(l.with_first_mark(x), x);
        let (one, two) = (l.marked(x, 1), l.mark(2));
        let both = l.or(&[one, two]);
        assert_eq!(l.sole_mark(both), MANY_MARKS);
        assert_eq!(l.with_first_mark(both), both);
        let partly = l.or(&[one, x]);
        assert_eq!(l.sole_mark(partly), MANY_MARKS);
    }
}
