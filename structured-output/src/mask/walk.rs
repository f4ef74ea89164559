//! Walks of an automaton through a trie of tokens.

use std::ops::Range;

use super::table::{Below, DEAD, State, Table};
use crate::index::{ROOT, TokenizerIndex, Trie};
use crate::lexical::{ExprId, Fuel, Lexicon, NO_MARK, Stop};

/// A trie with what its labels stand for.
#[derive(Clone, Copy)]
pub(crate) struct Labelled<'a> {
    pub(crate) trie: &'a Trie,
    /// The number of the coarse alphabet and a byte of each class; `None` where labels are bytes.
    pub(crate) alphabet: Option<(usize, &'a [u8])>,
}

impl<'a> Labelled<'a> {
    /// A trie of single bytes.
    pub(crate) fn of_bytes(trie: &'a Trie) -> Self {
        Self {
            trie,
            alphabet: None,
        }
    }

    /// The tries of the coarse alphabets, from the coarsest on. What they leave out is in the trie
    /// of escapes.
    pub(crate) fn of_coarse(index: &'a TokenizerIndex) -> impl Iterator<Item = Self> {
        let numbered = index.coarse().iter().enumerate();
        numbered.map(|(alphabet, coarse)| Self {
            trie: coarse.trie(),
            alphabet: Some((alphabet, coarse.representatives())),
        })
    }

    /// Whether its alphabet is one of those that [`Lexicon::fitting_alphabets`] found; bytes always
    /// are.
    pub(crate) fn is_among(&self, fitting: u8) -> bool {
        self.alphabet
            .is_none_or(|(alphabet, _)| fitting >> alphabet & 1 == 1)
    }

    /// A byte that a label stands for.
    pub(crate) fn byte(&self, label: u8) -> u8 {
        self.alphabet
            .map_or(label, |(_, bytes)| bytes[usize::from(label)])
    }
}

/// Tokens that end a lexeme before their own end: all at and below `node`, whose bytes from
/// `depth` on follow a lexeme that ended with `mark`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    pub(crate) node: u32,
    pub(crate) parent: u32,
    pub(crate) depth: u32,
    pub(crate) mark: u16,
}

/// In place of a state: all below goes on.
const ALIVE: u32 = DEAD - 1;

/// What a walk meets.
pub(crate) trait Visitor {
    /// Tokens, as a range of [`Trie::tokens`], that end within the lexeme. Ranges ascend.
    fn reached(&mut self, tokens: Range<u32>);
    /// Tokens that end the lexeme.
    fn exit(&mut self, exit: Exit);

    /// The same where the lexeme may have ended with several marks.
    fn exit_in_ways(&mut self, lexicon: &Lexicon, exit: Exit, end: ExprId) {
        match &lexicon.joint_marks(end)[..] {
            [] => self.exit(exit),
            marks => marks
                .iter()
                .for_each(|&mark| self.exit(Exit { mark, ..exit })),
        }
    }
}

/// Runs the automaton from `start` over every word of the trie, as far as it survives. False where
/// a state tells apart bytes that the alphabet doesn't: then what was visited so far means nothing.
///
/// Where the automaton can't go on but a lexeme ends, that is an exit, unless it is before the
/// first byte. Costs a step per node looked at, a few loads. What is below a node is not looked at
/// where no byte of it leads away from the state, or from states that go on with all of it (see
/// [`Lexicon::lasting`]); and where a state has fewer bytes to go on with than a node has children,
/// those are looked up. `table` is that of any walk before, of which it keeps nothing but its room.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    labelled: Labelled<'_>,
    start: ExprId,
    table: &mut Table,
    fuel: &mut Fuel,
    visitor: &mut impl Visitor,
) -> Result<bool, Stop> {
    let Labelled { trie, alphabet } = labelled;
    let mut first = (ROOT, start, 0_u32);
    if alphabet.is_none() {
        match walk_name(lexicon, trie, start, fuel, visitor)? {
            Some(after) => first = after,
            None => return Ok(true),
        }
    }
    table.clear();
    let (node, expr, depth) = first;
    // Nodes whose own tokens are accepted, with the state there and their depth.
    let mut pending = vec![(node, table.state(lexicon, expr), depth)];
    while let Some((node, state, depth)) = pending.pop() {
        let children = trie.children(node);
        if children.is_empty() || state == ALIVE {
            // Most nodes: nothing more is looked at.
            let own = trie.below(node);
            if !own.is_empty() {
                visitor.reached(own);
            }
            continue;
        }
        let below = Below::of(trie, node);
        if below.is_some_and(|below| table.goes_on(state, below)) {
            visitor.reached(trie.below(node));
            continue;
        }
        let own = trie.own(node);
        if !own.is_empty() {
            visitor.reached(own);
        }
        table.expand(lexicon, state, fuel)?;
        if let Some(below) = below
            && table.look_for_lasting(lexicon, state, below, fuel)?
            && table.goes_on(state, below)
        {
            visitor.reached(trie.own(node).end..trie.below(node).end);
            continue;
        }
        let &State {
            end_mark,
            num_bytes,
            ..
        } = table.at(state);
        if !table.fits(lexicon, state, labelled) {
            return Ok(false);
        }
        let exits = end_mark != NO_MARK && depth > 0;
        if !exits && alphabet.is_none() && (num_bytes as usize) * 4 < children.len() {
            fuel.burn(1 + u64::from(num_bytes))?;
            let first = pending.len();
            for byte in table.bytes(lexicon, state).iter() {
                if let Some(child) = trie.child(node, byte) {
                    let next = table.step(lexicon, state, byte, fuel)?;
                    if next != DEAD {
                        pending.push((child, next, depth + 1));
                    }
                }
            }
            pending[first..].reverse();
            continue;
        }
        fuel.burn(children.len() as u64)?;
        let endures = alphabet.is_none() && table.is_enduring(state);
        for child in children.rev() {
            // Then its row, and those of states within characters, need not be made.
            if endures && Below::from(trie, child).is_some_and(|from| table.endures(state, from)) {
                pending.push((child, ALIVE, depth + 1));
                continue;
            }
            let byte = labelled.byte(trie.label(child));
            match table.step(lexicon, state, byte, fuel)? {
                DEAD if exits => {
                    let exit = Exit {
                        node: child,
                        parent: node,
                        depth,
                        mark: end_mark,
                    };
                    visitor.exit_in_ways(lexicon, exit, table.expr(state));
                }
                DEAD => {}
                next => pending.push((child, next, depth + 1)),
            }
        }
    }
    Ok(true)
}

/// The walk along bytes that must come, as those of a name: the node, the expression and the depth where
/// it comes to another choice, or `None` where no token goes so far. A step per byte, and no state is
/// noted for them.
fn walk_name(
    lexicon: &mut Lexicon,
    trie: &Trie,
    start: ExprId,
    fuel: &mut Fuel,
    visitor: &mut impl Visitor,
) -> Result<Option<(u32, ExprId, u32)>, Stop> {
    let (mut node, mut expr, mut depth) = (ROOT, start, 0);
    while let Some((byte, next)) = lexicon.first_byte(expr) {
        fuel.burn(1)?;
        let own = trie.own(node);
        if !own.is_empty() {
            visitor.reached(own);
        }
        let Some(child) = trie.child(node, byte) else {
            return Ok(None);
        };
        if !lexicon.is_live(next, fuel)? {
            return Ok(None);
        }
        (node, expr, depth) = (child, next, depth + 1);
    }
    Ok(Some((node, expr, depth)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::TokenizerInfo;
    use crate::lexical::{ByteSet, numbers_below};

    /// What a token does in a lexeme.
    #[derive(Debug, Clone, PartialEq)]
    enum Does {
        Nothing,
        EndWithin,
        /// After so many bytes, with these marks.
        Leave(u32, Vec<u16>),
    }

    struct Tokens<'a> {
        trie: &'a Trie,
        does: Vec<Does>,
        last: u32,
    }

    impl Visitor for Tokens<'_> {
        fn reached(&mut self, tokens: Range<u32>) {
            assert!(self.last <= tokens.start && !tokens.is_empty(), "ascending");
            self.last = tokens.end;
            for &id in self.trie.ids(tokens) {
                assert_eq!(self.does[id as usize], Does::Nothing, "once");
                self.does[id as usize] = Does::EndWithin;
            }
        }

        fn exit(&mut self, exit: Exit) {
            for &id in self.trie.ids(self.trie.below(exit.node)) {
                match &mut self.does[id as usize] {
                    Does::Leave(depth, marks) => {
                        assert!(*depth == exit.depth && !marks.contains(&exit.mark), "once");
                        marks.push(exit.mark);
                    }
                    does => {
                        assert_eq!(*does, Does::Nothing, "once");
                        *does = Does::Leave(exit.depth, vec![exit.mark]);
                    }
                }
            }
        }
    }

    /// All bytes, and words that have much in common.
    fn vocabulary(random: &mut impl FnMut(u32) -> u32) -> Vec<Vec<u8>> {
        let pieces = [
            "a", "b", "e", "f", "0", "7", "-", "_", " ", "ab", "the", "ing", "é", "日", "\u{a0}",
            "\"", "\\n", "%2", ".", "\n",
        ];
        let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        for _ in 0..1500 {
            let count = 1 + random(6);
            // Some words are of few pieces: these have many others below them.
            let most = [pieces.len() as u32, 4, 10][random(3) as usize];
            let word = (0..count).map(|_| pieces[random(most) as usize]);
            vocab.push(word.collect::<String>().into_bytes());
        }
        vocab
    }

    fn expression(
        lexicon: &mut Lexicon,
        random: &mut impl FnMut(u32) -> u32,
        depth: u32,
    ) -> ExprId {
        let letters = ByteSet::range(b'a', b'z');
        if depth == 0 {
            let set = match random(7) {
                0 => letters,
                1 => letters.union(&ByteSet::range(b'0', b'9')),
                2 => ByteSet::range(b'a', b'f').union(&ByteSet::range(b'0', b'9')),
                3 => ByteSet::single(b'"').complement(),
                4 => ByteSet::FULL,
                5 => return lexicon.literal([&b"the"[..], b"ab", b" ", b"-"][random(4) as usize]),
                _ => ByteSet::single(b"ab-7 "[random(5) as usize]),
            };
            return lexicon.class(set);
        }
        let one = expression(lexicon, random, depth - 1);
        match random(7) {
            0 => lexicon.star(one),
            1 | 2 => {
                let min = random(3);
                lexicon.repeat(one, min, min + random(9))
            }
            3 => {
                let other = expression(lexicon, random, depth - 1);
                lexicon.or(&[one, other])
            }
            4 => {
                let other = expression(lexicon, random, depth - 1);
                let other = lexicon.not(other);
                lexicon.and(&[one, other])
            }
            _ => {
                let other = expression(lexicon, random, depth - 1);
                lexicon.concat(one, other)
            }
        }
    }

    /// What each token does by itself.
    fn one_by_one(lexicon: &mut Lexicon, start: ExprId, vocab: &[Vec<u8>]) -> Vec<Does> {
        let mut fuel = Fuel::new(u64::MAX);
        let mut does = |token: &Vec<u8>| {
            let mut at = start;
            for (depth, &byte) in (0..).zip(token) {
                let next = lexicon.derivative(at, byte, &mut fuel).unwrap();
                if !lexicon.is_live(next, &mut fuel).unwrap() {
                    let mark = lexicon.end_mark(at);
                    if depth == 0 || mark == NO_MARK {
                        return Does::Nothing;
                    }
                    let marks = lexicon.joint_marks(at);
                    return match marks.is_empty() {
                        true => Does::Leave(depth, vec![mark]),
                        false => Does::Leave(depth, marks),
                    };
                }
                at = next;
            }
            Does::EndWithin
        };
        vocab.iter().map(&mut does).collect()
    }

    #[test]
    fn a_walk_finds_what_each_token_does_by_itself() {
        let mut random = numbers_below(20_261_122);
        let vocab = vocabulary(&mut random);
        let info = TokenizerInfo::new(&vocab, vocab.len() + 1, &[vocab.len() as u32], &[]).unwrap();
        let index = TokenizerIndex::new(Arc::new(info), None);
        let (mut num_coarse, mut num_left) = (0, 0);
        let mut table = Table::default();
        for case in 0..400 {
            let mut lexicon = Lexicon::new(index.alphabets(), index.max_token_bytes());
            let mut ends = Vec::new();
            for mark in 0..1 + random(3) as u16 {
                let depth = 1 + random(4);
                let expr = expression(&mut lexicon, &mut random, depth);
                let mark = lexicon.mark(mark);
                ends.push(lexicon.concat(expr, mark));
            }
            let start = lexicon.or(&ends);
            let expected = one_by_one(&mut lexicon, start, &vocab);
            num_left += usize::from(expected.iter().any(|does| matches!(does, Does::Leave(..))));
            let mut fuel = Fuel::new(u64::MAX);
            let escapes = Labelled::of_bytes(index.escape_trie());
            let mut tries = vec![vec![Labelled::of_bytes(index.byte_trie())]];
            tries.extend(Labelled::of_coarse(&index).map(|coarse| vec![coarse, escapes]));
            for tries in tries {
                let mut does = vec![Does::Nothing; vocab.len()];
                let mut fits = true;
                for labelled in &tries {
                    let mut tokens = Tokens {
                        trie: labelled.trie,
                        does: std::mem::take(&mut does),
                        last: 0,
                    };
                    let walked = walk(
                        &mut lexicon,
                        *labelled,
                        start,
                        &mut table,
                        &mut fuel,
                        &mut tokens,
                    );
                    fits &= walked.unwrap();
                    does = tokens.does;
                }
                if fits {
                    num_coarse += tries.len() - 1;
                    for (id, does) in does.iter().enumerate() {
                        assert_eq!(*does, expected[id], "{case}: {:?}", vocab[id]);
                    }
                }
            }
        }
        assert!(num_coarse > 50 && num_left > 50, "{num_coarse} {num_left}");
    }
}
