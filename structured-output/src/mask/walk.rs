//! The walk of an automaton through a trie of tokens.

use std::ops::Range;

use hashbrown::HashMap;

use crate::index::Trie;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, NO_MARK, OutOfFuel};

/// A part of the trie in which tokens end a lexeme before their own end: all tokens at and below
/// `node`, whose bytes from `depth` on follow a lexeme that ended with `mark`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    pub(crate) node: u32,
    pub(crate) depth: u32,
    pub(crate) mark: u16,
}

/// Runs the automaton from `start` over every word of the trie, as far as it survives.
///
/// For each node that it reaches and that has tokens, `reached` is given their range in
/// [`Trie::tokens`] and the state after them. Where it can't go on but a lexeme ends, `exit` is
/// called, unless that is before the first byte. Costs a step per node looked at: a few loads,
/// since transitions by class are gathered in a table as they are met.
///
/// The state's expression must fit the trie's alphabet ([`Lexicon::fits_alphabet`]).
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    trie: &Trie,
    start: ExprId,
    fuel: &mut Fuel,
    mut reached: impl FnMut(Range<u32>, ExprId),
    mut exit: impl FnMut(Exit),
) -> Result<(), OutOfFuel> {
    let mut table = Table::new(trie);
    // The state at each node on the path, and where the nodes below it end.
    let mut path: Vec<(u32, u32)> = Vec::new();
    let (mut state, mut end) = (table.state(lexicon, start), trie.num_nodes());
    let mut node = 0;
    while node < trie.num_nodes() {
        while node == end {
            match path.pop() {
                Some(above) => (state, end) = above,
                None => return Ok(()),
            }
        }
        fuel.burn(1)?;
        let next = match table.transition(state, trie.label(node)) {
            UNSEEN => table.find(lexicon, state, trie.label(node), fuel)?,
            next => next,
        };
        if next == DEAD {
            let mark = table.end_marks[state as usize];
            if mark != NO_MARK && !path.is_empty() {
                exit(Exit {
                    node,
                    depth: path.len() as u32,
                    mark,
                });
            }
            node = trie.end(node);
            continue;
        }
        let tokens = trie.token_start(node)..trie.token_start(node + 1);
        if !tokens.is_empty() {
            reached(tokens, table.exprs[next as usize]);
        }
        if trie.end(node) > node + 1 {
            path.push((state, end));
            (state, end) = (next, trie.end(node));
        }
        node += 1;
    }
    Ok(())
}

/// A transition that was not asked for yet.
const UNSEEN: u32 = u32::MAX;
/// A transition to where no end can be reached.
const DEAD: u32 = u32::MAX - 1;

/// The states met in a walk, numbered, with their transitions by class.
struct Table {
    /// A byte for each label.
    bytes: Vec<u8>,
    exprs: Vec<ExprId>,
    end_marks: Vec<u16>,
    numbers: HashMap<ExprId, u32>,
    transitions: Vec<u32>,
}

impl Table {
    fn new(trie: &Trie) -> Self {
        Self {
            bytes: trie.label_bytes(),
            exprs: Vec::new(),
            end_marks: Vec::new(),
            numbers: HashMap::new(),
            transitions: Vec::new(),
        }
    }

    fn transition(&self, state: u32, class: u16) -> u32 {
        self.transitions[state as usize * self.bytes.len() + usize::from(class)]
    }

    /// The number of a state.
    fn state(&mut self, lexicon: &Lexicon, expr: ExprId) -> u32 {
        *self.numbers.entry(expr).or_insert_with(|| {
            self.exprs.push(expr);
            self.end_marks.push(lexicon.end_mark(expr));
            let len = self.transitions.len() + self.bytes.len();
            self.transitions.resize(len, UNSEEN);
            (self.exprs.len() - 1) as u32
        })
    }

    fn find(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        class: u16,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let byte = self.bytes[usize::from(class)];
        let expr = lexicon.derivative(self.exprs[state as usize], byte, fuel)?;
        let next = if expr == EMPTY || !lexicon.is_live(expr, fuel)? {
            DEAD
        } else {
            self.state(lexicon, expr)
        };
        self.transitions[state as usize * self.bytes.len() + usize::from(class)] = next;
        Ok(next)
    }
}
