//! Walks of an automaton through a trie of tokens.

use std::ops::Range;

use super::table::{Below, DEAD, State, Table};
use crate::index::{ROOT, TokenizerIndex, Trie};
use crate::lexical::{ExprId, Fuel, Lexicon, NO_MARK, OutOfFuel};

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
/// those are looked up.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    labelled: Labelled<'_>,
    start: ExprId,
    fuel: &mut Fuel,
    visitor: &mut impl Visitor,
) -> Result<bool, OutOfFuel> {
    let Labelled { trie, alphabet } = labelled;
    let mut first = (ROOT, start, 0_u32);
    if alphabet.is_none() {
        match walk_name(lexicon, trie, start, fuel, visitor)? {
            Some(after) => first = after,
            None => return Ok(true),
        }
    }
    let mut table = Table::default();
    let (node, expr, depth) = first;
    // Nodes whose own tokens are accepted, with the state there and their depth.
    let mut pending = vec![(node, table.state(lexicon, expr), depth)];
    while let Some((node, state, depth)) = pending.pop() {
        let children = trie.children(node);
        if children.is_empty() {
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
        for child in children.rev() {
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
) -> Result<Option<(u32, ExprId, u32)>, OutOfFuel> {
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
