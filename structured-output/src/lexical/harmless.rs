//! Texts that are too short, or want for a letter, to bring a state to a dead one.
//!
//! What says that a string has exactly one of some words in it, or none of them, may become dead by
//! a text, but only by one that completes a word. Most tokens don't, and a trie of tokens knows of
//! each node how long the texts below it are and which bytes they have. So nearly all of a
//! vocabulary need not be walked, nor the states met that partly read words lead to.
//!
//! Why that is so: take a boolean combination of languages `c* X` (`X` is searched for) and `X` (of
//! which a beginning was read), and a character `z` that no `X` has. As long as no `X` is read to its
//! end or to a `c*` in it, a text leaves each `c* X` as it was, beside remainders of `X`; and `z`
//! after it ends the remainders. So after any such text and `z` the combination is the same one. If
//! that one is live, so is each state before `z`.

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};
use super::byte_set::ByteSet;
use super::fuel::{Fuel, Stop};
use super::labels::Others;
use super::lasting::Lasting;

/// Larger combinations are not looked into.
const MAX_PARTS: usize = 256;

/// A repetition of a character is one of text where so many ASCII characters can be it.
const MANY_BYTES: usize = 64;

/// So many sets of a way are looked for.
const MAX_SETS: usize = 2;

/// More ways than these are not worth to be compared with each node.
const MAX_WAYS: usize = 32;

/// What only longer texts, or such with certain bytes, can do to a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Harmless {
    /// The characters that a text may have.
    pub(crate) over: Lasting,
    /// A text of these goes on to a live state but where one of these ways is taken.
    pub(crate) ways: Vec<Way>,
}

/// A way to complete something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    /// ASCII characters that a text has to have for it, all of them.
    pub(crate) needed: ByteSet,
    /// Sets of ASCII characters of which it has to have one each.
    pub(crate) one_of: Vec<ByteSet>,
    /// The fewest bytes it takes.
    pub(crate) bytes: u32,
}

/// What is gathered of a combination's parts.
#[derive(Default)]
struct Gathered {
    /// What is repeated before something is searched for.
    characters: Vec<ExprId>,
    /// Bytes that may be read of something searched for.
    occurring: ByteSet,
    ways: Vec<Way>,
}

impl Lexicon {
    /// Texts that bring a state to no dead one. `None` where the state is no combination of searches,
    /// or too large a one; there may be more such texts.
    ///
    /// # Errors
    /// Out of fuel: a step per part looked at, and the search for a string of what is left after one
    /// character.
    pub(crate) fn harmless(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Harmless>, Stop> {
        let (combination, tail) = match self.node(expr) {
            Node::Concat(head, tail) => (head, tail),
            _ => (expr, EPSILON),
        };
        if !self.is_combination(combination) {
            return Ok(None);
        }
        let Some(gathered) = self.gather(combination, fuel)? else {
            return Ok(None);
        };
        let Gathered {
            characters,
            occurring,
            ways,
        } = gathered;
        let mut over: Option<Lasting> = None;
        for character in characters {
            // Else more than one reading of a text would be left.
            if !self.is_prefix_free(character, fuel)? {
                return Ok(None);
            }
            let each = self.characters_of(character, fuel)?;
            over = Some(over.map_or(each, |over| over.intersection(&each)));
        }
        let Some(over) = over else {
            return Ok(None);
        };
        let ends = occurring.complement().intersection(&over.bytes);
        let Some(end) = ends.iter().next() else {
            return Ok(None);
        };
        let rest = self.derivative(combination, end, fuel)?;
        // What follows a combination only adds to what is live.
        let is_live = self.is_live(rest, fuel)? && self.is_live(tail, fuel)?;
        Ok(is_live.then_some(Harmless { over, ways }))
    }

    fn is_combination(&self, expr: ExprId) -> bool {
        matches!(self.node(expr), Node::And(_) | Node::Or(_) | Node::Not(_))
    }

    /// The parts of a combination; `None` where one is neither a search nor a plain text.
    fn gather(&mut self, combination: ExprId, fuel: &mut Fuel) -> Result<Option<Gathered>, Stop> {
        let mut gathered = Gathered::default();
        let mut pending = vec![combination];
        let mut num_parts = 0;
        while let Some(part) = pending.pop() {
            fuel.burn(1)?;
            num_parts += 1;
            if num_parts > MAX_PARTS {
                return Ok(None);
            }
            match self.node(part) {
                Node::And(at) | Node::Or(at) => pending.extend_from_slice(self.operands(at)),
                Node::Not(inner) => pending.push(inner),
                _ => {
                    if !self.add_search(part, &mut gathered, fuel)? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(gathered))
    }

    /// Adds `c* X` or `X`. False where what may be read of `X` isn't plain.
    fn add_search(
        &mut self,
        part: ExprId,
        gathered: &mut Gathered,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let mut rest = part;
        let (first, after) = self.head_and_rest(part);
        if let Some(character) = self.repeated_any(first, fuel)? {
            if !gathered.characters.contains(&character) {
                gathered.characters.push(character);
            }
            rest = after;
        }
        let mut way = Way {
            needed: ByteSet::EMPTY,
            one_of: Vec::new(),
            bytes: 0,
        };
        while rest != EPSILON && way.bytes <= self.max_token_bytes {
            fuel.burn(1)?;
            let (factor, after) = self.head_and_rest(rest);
            if self.repeated_any(factor, fuel)?.is_some() {
                if gathered.ways.len() == MAX_WAYS {
                    return Ok(false);
                }
                if !gathered.ways.contains(&way) {
                    gathered.ways.push(way);
                }
                return Ok(true);
            }
            if !self.add_bytes(factor, &mut gathered.occurring, fuel)? {
                return Ok(false);
            }
            let needs = self.needed_bytes(factor).filter(|set| {
                let ascii = ByteSet::range(1, 0x7e);
                set.intersection(&ascii) == *set
            });
            match needs {
                Some(set) if set.len() == 1 => way.needed = way.needed.union(&set),
                Some(set) if way.one_of.len() < MAX_SETS && !way.one_of.contains(&set) => {
                    way.one_of.push(set);
                }
                _ => {}
            }
            way.bytes = way.bytes.saturating_add(self.facts(factor).min_bytes);
            rest = after;
        }
        // It ends before any text: nothing is left of it then.
        Ok(true)
    }

    fn head_and_rest(&self, expr: ExprId) -> (ExprId, ExprId) {
        match self.node(expr) {
            Node::Concat(head, rest) => (head, rest),
            _ => (expr, EPSILON),
        }
    }

    /// The character that an expression repeats without bound, where that is nearly any.
    fn repeated_any(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Option<ExprId>, Stop> {
        let Node::Repeat {
            body,
            min: 0,
            max: UNBOUNDED,
        } = self.node(expr)
        else {
            return Ok(None);
        };
        let characters = self.characters_of(body, fuel)?;
        let is_any = characters.others == Others::All && characters.bytes.len() >= MANY_BYTES;
        Ok(is_any.then_some(body))
    }

    /// Adds all bytes that may be read of an expression. False where that isn't plain.
    fn add_bytes(&self, expr: ExprId, bytes: &mut ByteSet, fuel: &mut Fuel) -> Result<bool, Stop> {
        let mut pending = vec![expr];
        let mut num_parts = 0;
        while let Some(part) = pending.pop() {
            fuel.burn(1)?;
            num_parts += 1;
            if num_parts > MAX_PARTS {
                return Ok(false);
            }
            match self.node(part) {
                Node::Empty | Node::Epsilon | Node::Mark(_) => {}
                Node::Class(set) => *bytes = bytes.union(&self.set(set)),
                Node::Concat(head, tail) => pending.extend([head, tail]),
                Node::Or(at) => pending.extend_from_slice(self.operands(at)),
                Node::Repeat { body, .. } => pending.push(body),
                Node::And(_) | Node::Not(_) | Node::Residue(_) | Node::FreeText(_) => {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fuel() -> Fuel {
        Fuel::new(10_000_000)
    }

    /// A letter; `D` is one of two, `E` some of two.
    fn part(l: &mut Lexicon, letter: u8) -> ExprId {
        match letter {
            b'D' => l.class(ByteSet::range(b'a', b'b')),
            b'E' => {
                let class = l.class(ByteSet::range(b'b', b'c'));
                l.repeat(class, 1, UNBOUNDED)
            }
            _ => l.literal(&[letter]),
        }
    }

    /// A string's body with a text in it, then the quote.
    fn search(l: &mut Lexicon, text: &str) -> ExprId {
        let char = l.json_constrained_char();
        let any = l.star(char);
        let parts: Vec<ExprId> = text.bytes().map(|byte| part(l, byte)).collect();
        let text = parts
            .iter()
            .rev()
            .fold(EPSILON, |rest, &first| l.concat(first, rest));
        let quote = l.literal(b"\"");
        let rest = l.concat(any, quote);
        let rest = l.concat(text, rest);
        l.concat(any, rest)
    }

    /// Exactly one of some, as schemas make it.
    fn one_of(l: &mut Lexicon, list: &[ExprId]) -> ExprId {
        let (mut some, mut several) = (list[0], Vec::new());
        for &one in &list[1..] {
            several.push(l.and(&[some, one]));
            some = l.or(&[some, one]);
        }
        let several = l.or(&several);
        let not = l.not(several);
        l.and(&[some, not])
    }

    fn after(l: &mut Lexicon, mut state: ExprId, text: &str) -> ExprId {
        for byte in text.bytes() {
            state = l.derivative(state, byte, &mut fuel()).unwrap();
        }
        state
    }

    #[test]
    fn words_are_ways_with_their_letters_and_length() {
        let mut l = Lexicon::new(Vec::new(), 64);
        let words = ["maker", "admin"].map(|word| search(&mut l, word));
        let start = one_of(&mut l, &words);
        let found = l.harmless(start, &mut fuel()).unwrap().unwrap();
        let way = |needed: &[u8], bytes| Way {
            needed: needed.iter().copied().collect(),
            one_of: Vec::new(),
            bytes,
        };
        assert_eq!(found.ways.len(), 2);
        assert!(found.ways.contains(&way(b"maker", 5)) && found.ways.contains(&way(b"admin", 5)));
        let begun = after(&mut l, start, "xmak");
        let found = l.harmless(begun, &mut fuel()).unwrap().unwrap();
        assert_eq!(found.ways.len(), 3);
        assert!(found.ways.contains(&way(b"er", 2)));
        // One is found, and only the other can come.
        let begun = after(&mut l, begun, "er");
        let found = l.harmless(begun, &mut fuel()).unwrap().unwrap();
        assert_eq!(found.ways, [way(b"admin", 5)]);
        assert_eq!(found.over.others, Others::All);

        // A bound on the length is no search.
        let char = l.json_constrained_char();
        let short = l.repeat(char, 0, 9);
        let quote = l.literal(b"\"");
        let short = l.concat(short, quote);
        let both = l.and(&[start, short]);
        assert_eq!(l.harmless(both, &mut fuel()), Ok(None));
    }

    proptest! {
        /// A text that takes none of the ways leaves a state that goes on.
        #[test]
        fn texts_that_take_no_way_are_live(
            words in prop::collection::vec("[a-c]{1,4}", 1..5),
            others in prop::collection::vec("[a-cDE]{1,4}", 0..3),
            before in "[a-cx]{0,5}",
            texts in prop::collection::vec("[a-dx é]{0,6}", 1..8),
        ) {
            let mut l = Lexicon::new(Vec::new(), 64);
            let words: Vec<ExprId> = words.iter().map(|word| search(&mut l, word)).collect();
            let mut all = vec![one_of(&mut l, &words)];
            for other in &others {
                let other = search(&mut l, other);
                all.push(l.not(other));
            }
            let char = l.json_constrained_char();
            let any = l.star(char);
            let quote = l.literal(b"\"");
            all.push(l.concat(any, quote));
            let start = l.and(&all);
            let state = after(&mut l, start, &before);
            let Some(found) = l.harmless(state, &mut fuel()).unwrap() else {
                return Ok(());
            };
            for text in texts {
                let has = |byte| text.bytes().any(|of_text| of_text == byte);
                let takes = |way: &Way| {
                    text.len() >= way.bytes as usize
                        && way.needed.iter().all(has)
                        && way.one_of.iter().all(|set| set.iter().any(has))
                };
                if !found.ways.iter().any(takes) {
                    let state = after(&mut l, state, &text);
                    prop_assert!(l.is_live(state, &mut fuel()).unwrap(), "{before} {text}");
                }
            }
        }
    }
}
