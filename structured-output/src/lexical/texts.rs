//! Which languages hold runs of many characters: names, strings, free text.

use hashbrown::HashSet;

use super::arena::{EPSILON, ExprId, Lexicon, Node};
use super::fuel::{Fuel, Stop};

/// A class of so many bytes, repeated, is text.
const MANY_BYTES: usize = 16;

/// A count above this is a run.
const MANY_TIMES: u32 = 16;

/// A character has fewer states: what has more is not taken for one.
const MOST_STATES: usize = 64;

/// Longer texts are not looked at.
const MAX_PLAIN_BYTES: usize = 256;

/// Of larger expressions it is not looked at whether they hold text: they are taken to.
const MAX_PARTS: usize = 4096;

impl Lexicon {
    /// Whether an expression has a bounded count in it.
    pub(crate) fn is_counted(&self, expr: ExprId) -> bool {
        self.facts(expr).counted
    }

    /// Whether no text of a language is the beginning of another one, as that of a character. False too
    /// where that takes more states than a character has.
    ///
    /// # Errors
    /// Out of fuel, by the derivatives of these states.
    pub(crate) fn is_prefix_free(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        if self.is_nullable(expr) {
            return Ok(expr == EPSILON);
        }
        let mut states = vec![expr];
        let mut at = 0;
        while let Some(&state) = states.get(at) {
            at += 1;
            for (_, next) in self.derivatives(state, fuel)? {
                if next == EPSILON || self.is_mark(next) || states.contains(&next) {
                    continue;
                }
                if self.is_nullable(next) || states.len() == MOST_STATES {
                    return Ok(false);
                }
                states.push(next);
            }
        }
        Ok(true)
    }

    /// Whether a language is one text, of characters that JSON strings spell in one way only.
    pub(crate) fn is_plain_text(&self, mut expr: ExprId) -> bool {
        let is_plain = |expr: ExprId| match self.node(expr) {
            Node::Class(set) => {
                let set = self.set(set);
                set.len() == 1 && !set.contains(b'\\') && !set.contains(b'/')
            }
            _ => false,
        };
        for _ in 0..MAX_PLAIN_BYTES {
            match self.node(expr) {
                Node::Concat(head, tail) if is_plain(head) => expr = tail,
                _ => return is_plain(expr),
            }
        }
        false
    }

    /// Whether a language holds runs of many different bytes. What is larger than some thousand parts
    /// is taken for one that does.
    pub(crate) fn holds_text(&self, expr: ExprId) -> bool {
        let mut seen: HashSet<(ExprId, bool)> = HashSet::new();
        let mut pending = vec![(expr, false)];
        while let Some((expr, is_run)) = pending.pop() {
            if !seen.insert((expr, is_run)) {
                continue;
            }
            if seen.len() > MAX_PARTS {
                return true;
            }
            match self.node(expr) {
                Node::Empty | Node::Epsilon | Node::Mark(_) | Node::Residue(_) => {}
                Node::Class(set) => {
                    if is_run && self.set(set).len() >= MANY_BYTES {
                        return true;
                    }
                }
                Node::Not(_) | Node::FreeText(_) => return true,
                Node::Concat(head, tail) => pending.extend([(head, is_run), (tail, is_run)]),
                Node::Or(at) | Node::And(at) => {
                    pending.extend(self.operands(at).iter().map(|&expr| (expr, is_run)));
                }
                Node::Repeat { body, max, .. } => pending.push((body, is_run || max > MANY_TIMES)),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ByteSet, Lexicon, UNBOUNDED};

    #[test]
    fn names_are_text_and_words_are_not() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let letter = l.class(ByteSet::range(b'a', b'z'));
        let digit = l.class(ByteSet::range(b'0', b'9'));
        let name = l.repeat(letter, 1, UNBOUNDED);
        let number = l.repeat(digit, 1, UNBOUNDED);
        let word = l.literal(b"select");
        let few = l.repeat(letter, 1, 3);
        for (expr, expected) in [(name, true), (number, false), (word, false), (few, false)] {
            assert_eq!(l.holds_text(expr), expected);
            let longer = l.concat(word, expr);
            assert_eq!(l.holds_text(longer), expected);
        }
    }
}
