//! Languages of which it is plain that one holds the other: any text and then an end holds whatever
//! is a text and ends so.
//!
//! `c* t` holds `f1 f2 t` where `f1` and `f2` are made of `c`. So what was searched for in a string
//! and has been found leaves any string, and not any string or another one with the same word in it:
//! states that a pattern can't tell apart any more are one.

use hashbrown::HashMap;

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};
use super::byte_set::ByteSet;

/// Ends have at most so many parts: a quote, and what follows a string up to the next mark.
const MAX_END: usize = 3;

/// So many parts of an expression are looked at.
const MAX_PARTS: u32 = 64;

/// So many texts are compared with each alternative.
const FEW_TEXTS: usize = 4;

/// So many parts are looked at for a step.
const PARTS_A_STEP: u64 = 4;

/// `c* t`: any text, then an end.
struct AnyText {
    expr: ExprId,
    character: ExprId,
    /// The bytes that are each a character.
    bytes: ByteSet,
    end: ExprId,
}

impl Lexicon {
    /// Drops alternatives that others hold: see [`AnyText`]. `list` stays ascending.
    pub(super) fn drop_held(&mut self, list: &mut Vec<ExprId>) {
        let all = self.any_texts(list);
        let by_end = self.by_end(list, &all);
        for any in all {
            // Another one may have held it.
            if list.binary_search(&any.expr).is_err() {
                continue;
            }
            match &by_end {
                None => list.retain(|&expr| expr == any.expr || !self.is_held(expr, &any)),
                Some(by_end) => {
                    for &expr in by_end.get(&any.end).into_iter().flatten() {
                        if expr != any.expr
                            && let Ok(at) = list.binary_search(&expr)
                            && self.is_held(expr, &any)
                        {
                            list.remove(at);
                        }
                    }
                }
            }
        }
    }

    /// Drops operands of an intersection that hold others. `list` stays ascending.
    pub(super) fn drop_holding(&mut self, list: &mut Vec<ExprId>) {
        let all = self.any_texts(list);
        let by_end = self.by_end(list, &all);
        for any in all {
            let is_holding = |expr: ExprId| expr != any.expr && self.is_held(expr, &any);
            let is_dropped = match &by_end {
                None => list.iter().any(|&expr| is_holding(expr)),
                Some(by_end) => {
                    let mut such = by_end.get(&any.end).into_iter().flatten();
                    such.any(|&expr| list.binary_search(&expr).is_ok() && is_holding(expr))
                }
            };
            if is_dropped {
                list.retain(|&expr| expr != any.expr);
            }
        }
    }

    /// For each end of some texts, the expressions of a list that may end so: no others are held by the
    /// texts. `None` where there are so few that each may be compared with each.
    fn by_end(&mut self, list: &[ExprId], all: &[AnyText]) -> Option<HashMap<ExprId, Vec<ExprId>>> {
        if all.len() <= FEW_TEXTS {
            return None;
        }
        let mut by_end: HashMap<ExprId, Vec<ExprId>> = HashMap::with_capacity(all.len());
        by_end.extend(all.iter().map(|any| (any.end, Vec::new())));
        let mut looked_at = 0;
        for &expr in list {
            // Of alternatives each would have to be held.
            let one = match self.node(expr) {
                Node::Or(at) => self.operands(at)[0],
                _ => expr,
            };
            let ways = match self.node(one) {
                Node::And(at) => self.operands(at),
                _ => &[one],
            };
            for &way in ways {
                let mut rest = way;
                for _ in 0..=MAX_PARTS {
                    looked_at += 1;
                    if let Some(such) = by_end.get_mut(&rest)
                        && such.last() != Some(&expr)
                    {
                        such.push(expr);
                    }
                    if rest == EPSILON {
                        break;
                    }
                    rest = self.first_part(rest).1;
                }
            }
        }
        self.work += looked_at / PARTS_A_STEP;
        Some(by_end)
    }

    /// Whether an expression makes no difference before another one: it may be empty, and any text may
    /// follow that it is a part of.
    pub(super) fn is_idle_before(&self, head: ExprId, tail: ExprId) -> bool {
        self.is_nullable(head)
            && self
                .any_text_then(tail)
                .is_some_and(|any| self.is_made_of(head, &any, &mut { MAX_PARTS }))
    }

    /// Those of some expressions that are any text and then a short end.
    fn any_texts(&self, list: &[ExprId]) -> Vec<AnyText> {
        let all = list.iter().filter_map(|&expr| self.any_text_then(expr));
        all.filter(|any| self.is_short(any.end)).collect()
    }

    fn any_text_then(&self, expr: ExprId) -> Option<AnyText> {
        let (head, end) = self.first_part(expr);
        let Node::Repeat {
            body: character,
            min: 0,
            max: UNBOUNDED,
        } = self.node(head)
        else {
            return None;
        };
        Some(AnyText {
            expr,
            character,
            bytes: self.bytes_that_are(character),
            end,
        })
    }

    fn is_short(&self, mut end: ExprId) -> bool {
        for _ in 1..MAX_END {
            end = self.first_part(end).1;
        }
        !matches!(self.node(end), Node::Concat(..))
    }

    fn first_part(&self, expr: ExprId) -> (ExprId, ExprId) {
        match self.node(expr) {
            Node::Concat(head, rest) => (head, rest),
            _ => (expr, EPSILON),
        }
    }

    /// The bytes that a language shows to be each a text of it.
    fn bytes_that_are(&self, expr: ExprId) -> ByteSet {
        let of_class = |expr: ExprId| match self.node(expr) {
            Node::Class(set) => Some(self.set(set)),
            _ => None,
        };
        let found = match self.node(expr) {
            Node::Or(at) => self.operands(at).iter().find_map(|&one| of_class(one)),
            _ => of_class(expr),
        };
        found.unwrap_or(ByteSet::EMPTY)
    }

    /// Whether each string of an expression is a text and then the end, as far as that is plain.
    fn is_held(&self, expr: ExprId, any: &AnyText) -> bool {
        if self.facts(expr).sole_mark != self.facts(any.end).sole_mark {
            return false;
        }
        let mut parts_left = MAX_PARTS;
        let mut pending = vec![expr];
        while let Some(expr) = pending.pop() {
            match self.node(expr) {
                Node::Or(at) => pending.extend_from_slice(self.operands(at)),
                // One operand is enough.
                Node::And(at) => {
                    let mut operands = self.operands(at).iter();
                    if !operands.any(|&one| self.is_text_and_end(one, any, &mut parts_left)) {
                        return false;
                    }
                }
                _ => {
                    if !self.is_text_and_end(expr, any, &mut parts_left) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Whether an expression is parts that are made of the character, and then the end.
    fn is_text_and_end(&self, expr: ExprId, any: &AnyText, parts_left: &mut u32) -> bool {
        let mut rest = expr;
        while rest != any.end {
            let (head, tail) = self.first_part(rest);
            if rest == EPSILON || !self.is_made_of(head, any, parts_left) {
                return false;
            }
            rest = tail;
        }
        true
    }

    /// Whether each string of an expression is some characters.
    fn is_made_of(&self, expr: ExprId, any: &AnyText, parts_left: &mut u32) -> bool {
        let mut pending = vec![expr];
        while let Some(part) = pending.pop() {
            let Some(left) = parts_left.checked_sub(1) else {
                return false;
            };
            *parts_left = left;
            match self.node(part) {
                _ if part == any.character => {}
                Node::Epsilon => {}
                Node::Class(set) => {
                    let set = self.set(set);
                    if set.intersection(&any.bytes) != set {
                        return false;
                    }
                }
                Node::Concat(head, tail) => pending.extend([head, tail]),
                Node::Or(at) => pending.extend_from_slice(self.operands(at)),
                Node::Repeat { body, .. } => pending.push(body),
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuel::Fuel;
    use super::*;

    #[test]
    fn what_has_been_found_leaves_any_text() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let char = l.json_constrained_char();
        let any = l.star(char);
        let quote = l.literal(b"\"");
        let text = l.concat(any, quote);
        let letters = l.class(ByteSet::range(b'a', b'z'));
        let letters = l.repeat(letters, 2, 5);
        let digit = l.class(ByteSet::range(b'0', b'9'));
        let ways = l.or(&[letters, digit]);
        let word = l.literal(b"no");
        let rest = l.concat(ways, text);
        let rest = l.concat(word, rest);
        let search = l.concat(any, rest);
        let mut found = search;
        for byte in *b"xnoab" {
            found = l.derivative(found, byte, &mut Fuel::new(100_000)).unwrap();
        }
        assert_eq!(found, text);
        assert_eq!(l.or(&[text, search]), text);
        assert_eq!(l.and(&[text, search]), search);
        let other = l.literal(b"\"!");
        let other = l.concat(word, other);
        assert_ne!(l.or(&[text, other]), text);
        assert_ne!(l.and(&[text, other]), other);
        // Both are there: neither holds the other.
        let control = l.literal(b"\x01\"");
        assert_ne!(l.or(&[text, control]), text);
        let both = l.and(&[search, other]);
        assert_eq!(l.or(&[text, both]), text);
        let (not, not_search) = (l.not(text), l.not(search));
        assert_ne!(l.and(&[not, search]), search);
        assert_ne!(l.or(&[text, not_search]), text);
    }

    /// Of many texts each is compared only with what may end as it does, and misses nothing.
    #[test]
    fn what_is_held_ends_alike() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let letters = l.class(ByteSet::range(b'a', b'e'));
        let texts = [letters, l.literal(b"ab")].map(|one| l.star(one));
        let mut list = Vec::new();
        for n in 0..6 {
            let end = l.literal(&b"abcaab"[n..]);
            let other = l.literal(b"x");
            for text in texts {
                let held = l.concat(text, end);
                let before = l.literal(&b"abdd"[..n.min(4)]);
                let long = l.concat(before, held);
                let not = l.not(long);
                list.extend([held, long, not]);
                let found = l.concat(held, text);
                let both = l.and(&[long, not, found]);
                let either = l.or(&[long, other]);
                list.extend([found, both, either, l.or(&[long, found])]);
            }
        }
        list.sort_unstable();
        list.dedup();
        let all = l.any_texts(&list);
        assert!(all.len() > FEW_TEXTS);
        let by_end = l.by_end(&list, &all).unwrap();
        let mut num_held = 0;
        for any in &all {
            for &expr in list.iter().filter(|&&expr| expr != any.expr) {
                if l.is_held(expr, any) {
                    num_held += 1;
                    assert!(by_end[&any.end].contains(&expr));
                }
            }
        }
        assert!(num_held > 20, "{num_held}");
    }
}
