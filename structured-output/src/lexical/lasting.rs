//! Characters by any number of which a state comes to no dead state.
//!
//! Within a string that a pattern is searched for in, many states are met, and all go on with any
//! character. Which of them a token comes to makes no difference for a mask. So where a node of the
//! trie has only such characters below it, all tokens there are allowed, and nothing is walked.
//!
//! A language is *stable* under some characters if what is left of it after any text over them holds
//! the whole language again. So is a repetition without bound of any of the characters, and what
//! begins with it; so are unions and intersections of stable languages. A state that holds a stable
//! language with a string in it goes on with these characters for ever; so does one that holds an
//! infinite one but for finitely many strings.

use super::arena::{EMPTY, EPSILON, ExprId, Lexicon, Node, UNBOUNDED};
use super::byte_set::ByteSet;
use super::fuel::{Fuel, Stop};
use super::labels::Others;

/// Within a character a language is in no more states than these, or is not looked at further.
const MOST_STATES: usize = 16;

/// Characters that last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lasting {
    /// ASCII characters.
    pub(crate) bytes: ByteSet,
    /// Characters beyond ASCII.
    pub(crate) others: Others,
}

impl Lasting {
    const NONE: Self = Self {
        bytes: ByteSet::EMPTY,
        others: Others::Some,
    };

    fn is_none(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self {
            bytes: self.bytes.intersection(&other.bytes),
            others: self.others.min(other.others),
        }
    }
}

/// Parts in parts that are looked into.
const MAX_DEPTH: u32 = 8;

impl Lexicon {
    /// Characters of which any text leads from a state to a live one. There may be more: only what
    /// the expression shows is found.
    ///
    /// # Errors
    /// Out of fuel: a step per part looked at, and the search for a string where an intersection has
    /// to be told from an empty one.
    pub(crate) fn lasting(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Lasting, Stop> {
        if let Some(&learned) = self.learned_lasting.get(&expr) {
            return Ok(learned);
        }
        self.find_lasting(expr, fuel)
    }

    /// Finds that and remembers it: for languages that most grammars have.
    ///
    /// # Errors
    /// Out of fuel.
    pub(crate) fn learn_lasting(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<(), Stop> {
        let found = self.find_lasting(expr, fuel)?;
        self.learned_lasting.insert(expr, found);
        Ok(())
    }

    fn find_lasting(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Lasting, Stop> {
        if let Some((rest, tail)) = self.less_finite(expr) {
            // Whatever is read, finitely many strings less leave some of infinitely many.
            let (core, lasting) = self.stable(rest, MAX_DEPTH, fuel)?;
            let is_left = self.is_infinite(core) && self.is_live(tail, fuel)?;
            return Ok(if is_left { lasting } else { Lasting::NONE });
        }
        let (core, lasting) = self.stable(expr, MAX_DEPTH, fuel)?;
        match !lasting.is_none() && self.is_live(core, fuel)? {
            true => Ok(lasting),
            false => Ok(Lasting::NONE),
        }
    }

    /// Where an expression is `A & ~B` or `(A & ~B) C` with a finite `B`, `A` and `C`.
    fn less_finite(&mut self, expr: ExprId) -> Option<(ExprId, ExprId)> {
        let (head, tail) = match self.node(expr) {
            Node::Concat(head, tail) => (head, tail),
            _ => (expr, EPSILON),
        };
        let Node::And(at) = self.node(head) else {
            return None;
        };
        let mut rest = self.operands(at).to_vec();
        let num_operands = rest.len();
        rest.retain(|&operand| match self.node(operand) {
            Node::Not(inner) => !self.facts(inner).finite,
            _ => true,
        });
        (rest.len() < num_operands).then(|| (self.and(&rest), tail))
    }

    /// A stable language within one, and the characters under which it is.
    fn stable(
        &mut self,
        expr: ExprId,
        depth: u32,
        fuel: &mut Fuel,
    ) -> Result<(ExprId, Lasting), Stop> {
        const NOTHING: (ExprId, Lasting) = (EMPTY, Lasting::NONE);
        fuel.burn(1)?;
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(NOTHING);
        };
        Ok(match self.node(expr) {
            Node::Repeat { body, max, .. } if max == UNBOUNDED => {
                (expr, self.characters_of(body, fuel)?)
            }
            Node::Concat(head, tail) => {
                let (core, lasting) = self.stable(head, depth, fuel)?;
                match lasting.is_none() {
                    false => (self.concat(core, tail), lasting),
                    true if self.is_nullable(head) => self.stable(tail, depth, fuel)?,
                    true => NOTHING,
                }
            }
            // Of several, that with the most characters.
            Node::Or(at) => {
                let mut best = NOTHING;
                for operand in self.operands(at).to_vec() {
                    let found = self.stable(operand, depth, fuel)?;
                    let size = |lasting: &Lasting| (lasting.others, lasting.bytes.len());
                    if size(&found.1) > size(&best.1) {
                        best = found;
                    }
                }
                best
            }
            Node::And(at) => {
                let mut all: Option<Lasting> = None;
                let mut cores = Vec::new();
                for operand in self.operands(at).to_vec() {
                    let (core, lasting) = self.stable(operand, depth, fuel)?;
                    cores.push(core);
                    let common = all.map_or(lasting, |all| all.intersection(&lasting));
                    if common.is_none() {
                        return Ok(NOTHING);
                    }
                    all = Some(common);
                }
                (self.and(&cores), all.unwrap_or(Lasting::NONE))
            }
            _ => NOTHING,
        })
    }

    /// The characters that are each a string of a language.
    pub(super) fn characters_of(&mut self, body: ExprId, fuel: &mut Fuel) -> Result<Lasting, Stop> {
        if let Some(&known) = self.lasting_of.get(&body) {
            return Ok(known);
        }
        let mut bytes = ByteSet::EMPTY;
        for (class, to) in self.derivatives(body, fuel)? {
            if self.is_nullable(to) {
                bytes = bytes.union(&class);
            }
        }
        let found = Lasting {
            bytes: bytes.intersection(&ByteSet::range(0, 0x7f)),
            others: self.other_characters(body, fuel)?,
        };
        self.lasting_of.insert(body, found);
        Ok(found)
    }

    /// The characters beyond ASCII that are strings of a language.
    fn other_characters(&mut self, body: ExprId, fuel: &mut Fuel) -> Result<Others, Stop> {
        Others::all_that(|sequence| {
            let mut states = vec![body];
            for range in sequence {
                let mut next = Vec::new();
                for state in states {
                    let mut left = *range;
                    for (class, to) in self.derivatives(state, fuel)? {
                        if !class.intersection(range).is_empty() {
                            left = left.intersection(&class.complement());
                            next.push(to);
                        }
                    }
                    if !left.is_empty() {
                        return Ok(false);
                    }
                }
                next.sort_unstable();
                next.dedup();
                if next.len() > MOST_STATES {
                    return Ok(false);
                }
                states = next;
            }
            Ok(states.iter().all(|&state| self.is_nullable(state)))
        })
    }

    /// The characters beyond ASCII that lead from a state to itself.
    pub(crate) fn others_that_stay(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Others, Stop> {
        if let Some(&known) = self.others_that_stay.get(&expr) {
            return Ok(known);
        }
        let found = Others::all_that(|sequence| {
            let mut at = expr;
            for range in sequence {
                let mut bytes = range.iter();
                let Some(first) = bytes.next() else {
                    return Ok(false);
                };
                let next = self.derivative(at, first, fuel)?;
                for byte in bytes {
                    if self.derivative(at, byte, fuel)? != next {
                        return Ok(false);
                    }
                }
                if next == EMPTY {
                    return Ok(false);
                }
                at = next;
            }
            Ok(at == expr)
        })?;
        self.others_that_stay.insert(expr, found);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A string body with a text somewhere in it, then the quote.
    fn search(l: &mut Lexicon, text: &[u8]) -> ExprId {
        let char = l.json_constrained_char();
        let any = l.star(char);
        let text = l.literal(text);
        let quote = l.literal(b"\"");
        let rest = l.concat(any, quote);
        let rest = l.concat(text, rest);
        l.concat(any, rest)
    }

    fn fuel() -> Fuel {
        Fuel::new(10_000_000)
    }

    fn plain() -> ByteSet {
        let bytes = (b' '..128).filter(|byte| !b"\"\\".contains(byte));
        bytes.collect()
    }

    #[test]
    fn a_search_lasts_for_all_characters_also_beside_a_least_length() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let start = search(&mut l, b"shader");
        let char = l.json_constrained_char();
        let long = l.repeat(char, 35, UNBOUNDED);
        let quote = l.literal(b"\"");
        let long = l.concat(long, quote);
        let both = l.and(&[start, long]);
        for mut state in [start, both] {
            for byte in *b"a shad" {
                let found = l.lasting(state, &mut fuel()).unwrap();
                assert_eq!(found.bytes, plain());
                assert_eq!(found.others, Others::All);
                state = l.derivative(state, byte, &mut fuel()).unwrap();
            }
        }
        let short = l.repeat(char, 0, 35);
        assert!(l.lasting(short, &mut fuel()).unwrap().is_none());
        // All keys but those of a pattern.
        let any = l.star(char);
        let any = l.concat(any, quote);
        let letters = l.class(ByteSet::range(b'a', b'z'));
        let word = l.repeat(letters, 1, 255);
        let word = l.concat(word, quote);
        let no_word = l.not(word);
        let others = l.and(&[any, no_word]);
        let colon = l.literal(b":");
        let mut state = l.concat(others, colon);
        for byte in *b"ab" {
            assert_eq!(l.lasting(state, &mut fuel()).unwrap().bytes, plain());
            state = l.derivative(state, byte, &mut fuel()).unwrap();
        }
        // Of finitely many strings nothing may be left.
        let few = l.concat(short, quote);
        let more = l.repeat(char, 0, 36);
        let more = l.concat(more, quote);
        let none = l.not(more);
        let none = l.and(&[few, none]);
        assert!(l.lasting(none, &mut fuel()).unwrap().is_none());
        // Nothing is both.
        let letters = l.class(ByteSet::range(b'a', b'z'));
        let letters = l.star(letters);
        let digit = l.literal(b"1");
        let digits = l.concat(letters, digit);
        let none = l.and(&[digits, letters]);
        assert!(l.lasting(none, &mut fuel()).unwrap().is_none());
    }

    proptest! {
        /// Any text over characters that last leaves a state that goes on.
        #[test]
        fn texts_over_lasting_characters_are_live(
            words in prop::collection::vec("[a-c]{1,3}", 1..4),
            others in prop::collection::vec("[a-c]{1,3}", 0..3),
            least in 0..4_u32,
            most in prop_oneof![Just(UNBOUNDED), 4..9_u32],
            no_word in prop_oneof![Just(None), (0..5_u32).prop_map(Some)],
            before in "[a-c]{0,4}",
            text in "[a-d é]{0,12}",
        ) {
            let mut l = Lexicon::new(Vec::new(), 8);
            let some: Vec<_> = words.iter().map(|word| search(&mut l, word.as_bytes())).collect();
            let mut parts = vec![l.or(&some)];
            parts.extend(others.iter().map(|word| search(&mut l, word.as_bytes())));
            let char = l.class(ByteSet::range(b'a', b'z'));
            let length = l.repeat(char, least, most);
            let quote = l.literal(b"\"");
            parts.push(l.concat(length, quote));
            if let Some(most) = no_word {
                let word = l.repeat(char, 0, most);
                let word = l.concat(word, quote);
                parts.insert(0, l.not(word));
            }
            for parts in [&parts[..parts.len() - 1], &parts] {
                let mut state = l.and(parts);
                for &byte in before.as_bytes() {
                    state = l.derivative(state, byte, &mut fuel()).unwrap();
                }
                let found = l.lasting(state, &mut fuel()).unwrap();
                for char in text.chars() {
                    let lasts = match u8::try_from(char) {
                        Ok(byte) if byte.is_ascii() => found.bytes.contains(byte),
                        _ => found.others != Others::Some,
                    };
                    if !lasts {
                        break;
                    }
                    let mut utf8 = [0; 4];
                    for &byte in char.encode_utf8(&mut utf8).as_bytes() {
                        state = l.derivative(state, byte, &mut fuel()).unwrap();
                    }
                    prop_assert!(l.is_live(state, &mut fuel()).unwrap());
                }
            }
        }
    }
}
