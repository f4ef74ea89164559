//! A choice between strings, as a tree of what they begin with: strings with a common beginning share it.

use super::{EPSILON, ExprId, Lexicon};

/// How a byte or character of a string is written, and then more.
pub(crate) type SignThen<T> = fn(&mut Lexicon, T, ExprId) -> ExprId;

/// The tree of strings that come in their order, each once: of bytes, or of characters.
pub(crate) struct ChoiceTree<T = u8> {
    sign_then: SignThen<T>,
    last: Vec<T>,
    /// The places along the last string where others leave it, and its end.
    open: Vec<Fork>,
}

impl Default for ChoiceTree {
    /// Strings as they stand.
    fn default() -> Self {
        Self::new(|lexicon, byte, rest| {
            let byte = lexicon.byte(byte);
            lexicon.concat(byte, rest)
        })
    }
}

/// A place in a string.
struct Fork {
    depth: usize,
    /// What may follow: all that is known of it by now.
    rests: Vec<ExprId>,
}

impl ChoiceTree {
    /// Adds a string. Costs its length, and as many nodes as it has bytes of its own.
    pub(crate) fn push(&mut self, lexicon: &mut Lexicon, word: &[u8]) {
        self.push_then(lexicon, word, EPSILON);
    }
}

impl<T: Copy + PartialEq> ChoiceTree<T> {
    /// No strings yet; of each, bytes or characters are written as is said.
    pub(crate) fn new(sign_then: SignThen<T>) -> Self {
        Self {
            sign_then,
            last: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Adds a string, and what follows it.
    pub(crate) fn push_then(&mut self, lexicon: &mut Lexicon, word: &[T], end: ExprId) {
        let both = self.last.iter().zip(word);
        let common = both.take_while(|(a, b)| a == b).count();
        self.close_to(lexicon, common);
        if self.open.last().is_none_or(|fork| fork.depth < word.len()) {
            self.open.push(Fork {
                depth: word.len(),
                rests: vec![end],
            });
        }
        self.last.truncate(common);
        self.last.extend_from_slice(&word[common..]);
    }

    /// Ends what lies deeper in the last string than a place, at which there is a fork then.
    fn close_to(&mut self, lexicon: &mut Lexicon, depth: usize) {
        while let Some(fork) = self.open.pop_if(|fork| fork.depth > depth) {
            let rest = lexicon.or(&fork.rests);
            if self.open.last().is_none_or(|below| below.depth < depth) {
                self.open.push(Fork {
                    depth,
                    rests: Vec::new(),
                });
            }
            if let Some(below) = self.open.last_mut() {
                let between = self.last.get(below.depth..fork.depth).unwrap_or_default();
                let signs = between.iter().rev();
                let whole = signs.fold(rest, |rest, &sign| (self.sign_then)(lexicon, sign, rest));
                below.rests.push(whole);
            }
        }
    }

    /// The language of all strings.
    pub(crate) fn finish(mut self, lexicon: &mut Lexicon) -> ExprId {
        self.close_to(lexicon, 0);
        let rests = self.open.pop().map(|fork| fork.rests);
        lexicon.or(&rests.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepts(lexicon: &mut Lexicon, expr: ExprId, text: &[u8]) -> bool {
        let mut fuel = crate::lexical::Fuel::new(1_000_000);
        let mut state = expr;
        for &byte in text {
            state = lexicon.derivative(state, byte, &mut fuel).unwrap();
        }
        lexicon.is_nullable(state)
    }

    proptest! {
        #[test]
        fn it_is_the_language_of_its_strings(
            words in prop::collection::btree_set("[ab]{0,5}", 1..20),
            others in prop::collection::vec("[abc]{0,6}", 20),
        ) {
            let mut lexicon = Lexicon::new(Vec::new(), 8);
            let mut tree = ChoiceTree::default();
            for word in &words {
                tree.push(&mut lexicon, word.as_bytes());
            }
            let expr = tree.finish(&mut lexicon);
            for text in words.iter().chain(&others) {
                prop_assert_eq!(
                    accepts(&mut lexicon, expr, text.as_bytes()),
                    words.contains(text),
                    "{}", text
                );
            }
        }
    }
}
