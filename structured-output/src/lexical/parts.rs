//! What an expression is made of, where that is of a certain form.

use super::arena::{EPSILON, ExprId, Lexicon, MANY_MARKS, Node, Operands, UNBOUNDED};

/// A text of a bounded number of characters, and what follows it.
#[derive(Clone, Copy)]
pub(crate) struct Characters {
    pub(crate) character: ExprId,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) rest: ExprId,
    /// The same with a text of any number of characters.
    pub(crate) any_number: ExprId,
    /// The same with any characters in any number: holds `any_number`, and is it where the text may be
    /// any characters.
    pub(crate) all: ExprId,
}

/// A language less finitely many texts, and what follows.
pub(crate) struct Less {
    /// Infinite.
    pub(crate) whole: ExprId,
    pub(crate) texts: ExprId,
    pub(crate) rest: ExprId,
}

impl Lexicon {
    /// An expression as (body, min, max), itself once where it is no repetition.
    pub(super) fn as_repeat(&self, expr: ExprId) -> (ExprId, u32, u32) {
        match self.node(expr) {
            Node::Repeat { body, min, max } => (body, min, max),
            _ => (expr, 1, 1),
        }
    }

    /// What an expression repeats any number of times, or once or more.
    pub(crate) fn repeated(&self, expr: ExprId) -> Option<ExprId> {
        match self.as_repeat(expr) {
            (body, 0 | 1, UNBOUNDED) => Some(body),
            _ => None,
        }
    }

    /// An expression as its first part and the rest, which a repetition that is not optional is
    /// opened for. The first part is neither a sequence nor such a repetition.
    pub(crate) fn split_first(&mut self, expr: ExprId) -> (ExprId, ExprId) {
        let (mut first, mut rest) = (expr, EPSILON);
        loop {
            match self.node(first) {
                Node::Concat(head, tail) => {
                    rest = self.concat(tail, rest);
                    first = head;
                }
                Node::Repeat { body, min, max } if min > 0 => {
                    let fewer = if max == UNBOUNDED { max } else { max - 1 };
                    let more = self.repeat(body, min - 1, fewer);
                    rest = self.concat(more, rest);
                    first = body;
                }
                _ => return (first, rest),
            }
        }
    }

    /// The alternatives of an expression, itself where it is no `Or`.
    pub(crate) fn alternatives(&self, expr: ExprId) -> Vec<ExprId> {
        match self.node(expr) {
            Node::Or(at) => self.operands(at).to_vec(),
            _ => vec![expr],
        }
    }

    /// The alternatives of an expression, where one is a byte and then alternatives that end with marks of
    /// their own, such as the names after a quote, each of these after the byte; as long as that makes
    /// no more than so many.
    pub(crate) fn marked_alternatives(&mut self, expr: ExprId, at_most: usize) -> Vec<ExprId> {
        let alternatives = self.alternatives(expr);
        let mut found = Vec::with_capacity(alternatives.len());
        let mut after_bytes = Vec::new();
        for &expr in &alternatives {
            match self.byte_and_marks(expr) {
                Some((byte, ways)) => {
                    let ways = self.operands(ways).iter();
                    after_bytes.extend(ways.map(|&way| (byte, way)));
                }
                None => found.push(expr),
            }
        }
        if found.len() + after_bytes.len() > at_most {
            return alternatives;
        }
        for (byte, way) in after_bytes {
            found.push(self.concat(byte, way));
        }
        found
    }

    /// Where an expression is one byte and then alternatives with different marks: these.
    fn byte_and_marks(&self, expr: ExprId) -> Option<(ExprId, Operands)> {
        if self.facts(expr).sole_mark != MANY_MARKS {
            return None;
        }
        self.first_byte(expr)?;
        let Node::Concat(byte, rest) = self.node(expr) else {
            return None;
        };
        match self.node(rest) {
            Node::Or(at) => Some((byte, at)),
            _ => None,
        }
    }

    /// The operands of an intersection; an expression itself where it is none.
    pub(crate) fn conjuncts(&self, expr: ExprId) -> Vec<ExprId> {
        match self.node(expr) {
            Node::And(at) => self.operands(at).to_vec(),
            _ => vec![expr],
        }
    }

    /// Where an expression is `~A`, this.
    pub(crate) fn complemented(&self, expr: ExprId) -> Option<ExprId> {
        match self.node(expr) {
            Node::Not(inner) => Some(inner),
            _ => None,
        }
    }

    /// Where an expression is `A B{min,max} C`, these.
    pub(crate) fn framed_repeat(&self, expr: ExprId) -> Option<(ExprId, ExprId, u32, u32, ExprId)> {
        let Node::Concat(first, rest) = self.node(expr) else {
            return None;
        };
        let Node::Concat(head, last) = self.node(rest) else {
            return None;
        };
        let (body, min, max) = self.as_repeat(head);
        Some((first, body, min, max, last))
    }

    /// Where an expression is `(A & ~B) C` or `A & ~B` with an infinite `A` and a finite `B` without
    /// counted repetitions, these: names, but no pattern with a bound on its length.
    pub(crate) fn less_texts(&mut self, expr: ExprId) -> Option<Less> {
        let (head, rest) = match self.node(expr) {
            Node::Concat(head, rest) => (head, rest),
            _ => (expr, EPSILON),
        };
        let Node::And(at) = self.node(head) else {
            return None;
        };
        let (mut whole, mut texts) = (Vec::new(), Vec::new());
        for &operand in self.operands(at) {
            match self.node(operand) {
                Node::Not(inner) if self.facts(inner).counted => return None,
                Node::Not(inner) if self.facts(inner).finite => texts.push(inner),
                _ => whole.push(operand),
            }
        }
        if texts.is_empty() || whole.is_empty() {
            return None;
        }
        let (whole, texts) = (self.and(&whole), self.or(&texts));
        self.facts(whole)
            .infinite
            .then_some(Less { whole, texts, rest })
    }

    /// Where an expression is `A{min,max} B` with bounds, or `(P & A{min,max}) B` with a `P` within `A*`
    /// (see [`Lexicon::sized`]), these.
    pub(crate) fn characters(&mut self, expr: ExprId) -> Option<Characters> {
        let Node::Concat(head, rest) = self.node(expr) else {
            return None;
        };
        let (character, min, max, text) = match self.node(head) {
            Node::Repeat { body, min, max } => (body, min, max, self.star(body)),
            Node::And(at) if self.is_sized(head) => {
                let mut operands = self.operands(at).to_vec();
                let lengths = operands.iter().enumerate();
                let (at, length) = lengths
                    .filter_map(|(at, &operand)| Some((at, self.length(operand)?)))
                    .min_by_key(|&(_, (_, max))| max)?;
                operands.remove(at);
                let mut text = self.and(&operands);
                if !self.facts(text).exact {
                    // Any characters may have been dropped beside the length.
                    let any = self.star(self.sized_by);
                    text = self.and(&[text, any]);
                }
                (self.sized_by, length.0, length.1, text)
            }
            _ => return None,
        };
        if (min, max) == (0, UNBOUNDED) {
            return None;
        }
        let any = self.star(character);
        Some(Characters {
            character,
            min,
            max,
            rest,
            any_number: self.concat(text, rest),
            all: self.concat(any, rest),
        })
    }

    /// Whether an expression is something and then another one, which is no part of a repetition
    /// at its end.
    pub(crate) fn ends_with(&self, mut expr: ExprId, end: ExprId) -> bool {
        while let Node::Concat(_, rest) = self.node(expr) {
            if rest == end {
                return true;
            }
            expr = rest;
        }
        false
    }
}
