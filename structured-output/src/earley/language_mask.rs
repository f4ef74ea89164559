//! What a language allows by itself, whatever follows it.
//!
//! A text of the language may end wherever it can, also where it could go on. So a token that leaves
//! the language has as many ways to go on after it as there are places where a text ends on the way,
//! and each leaves another rest of the token to what follows.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::index::Trie;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, OutOfFuel};
use crate::mask::Mask;

/// What a language allows by itself.
pub(crate) struct LanguageMask {
    /// Tokens that begin a text of the language, or are one.
    pub(crate) inside: Arc<Mask>,
    /// What the other tokens go on with after a text of the language.
    pub(crate) rests: Rests,
}

/// Rests of tokens.
pub(crate) enum Rests {
    /// Few: a trie of their own.
    Trie(Trie),
    /// Many, as after white space, which half of all tokens begin with: places in the trie of bytes.
    Places(Vec<Leave>),
}

/// Tokens of the subtree at `node` end a text of the language after `depth` bytes. The node's own
/// byte comes after `at` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leave {
    pub(crate) node: u32,
    pub(crate) depth: u32,
    pub(crate) at: u32,
}

/// Runs a language over every word of a trie, as far as it survives. `inside` is given the tokens of
/// each node that it reaches. Where it can't go on, `leave` is called for each place on the way where
/// a text of it ends, the first byte's beginning apart. A step of fuel per node looked at.
///
/// The language must fit the trie's alphabet.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    trie: &Trie,
    start: ExprId,
    fuel: &mut Fuel,
    mut inside: impl FnMut(Range<u32>),
    mut leave: impl FnMut(Leave),
) -> Result<(), OutOfFuel> {
    let mut table = Table::new(trie);
    let mut path: Vec<(u32, u32)> = Vec::new();
    // Depths on the path at which a text ends.
    let mut ends: Vec<u32> = Vec::new();
    let (mut state, mut end) = (table.state(lexicon, start), trie.num_nodes());
    let mut node = 0;
    while node < trie.num_nodes() {
        while node == end {
            if ends.last() == Some(&(path.len() as u32)) {
                ends.pop();
            }
            match path.pop() {
                Some(above) => (state, end) = above,
                None => return Ok(()),
            }
        }
        fuel.burn(1)?;
        let next = table.next(lexicon, state, trie.label(node), fuel)?;
        if next == DEAD {
            fuel.burn(ends.len() as u64)?;
            let at = path.len() as u32;
            for &depth in &ends {
                leave(Leave { node, depth, at });
            }
            node = trie.end(node);
            continue;
        }
        let tokens = trie.token_start(node)..trie.token_start(node + 1);
        if !tokens.is_empty() {
            inside(tokens);
        }
        if trie.end(node) > node + 1 {
            path.push((state, end));
            (state, end) = (next, trie.end(node));
            if table.is_end[state as usize] {
                ends.push(path.len() as u32);
            }
        }
        node += 1;
    }
    Ok(())
}

/// A transition that was not asked for yet.
const UNSEEN: u32 = u32::MAX;
/// A transition to where no end can be reached.
const DEAD: u32 = u32::MAX - 1;

/// The states met in a walk, numbered, with their transitions by label.
struct Table {
    /// A byte for each label.
    bytes: Vec<u8>,
    exprs: Vec<ExprId>,
    is_end: Vec<bool>,
    numbers: HashMap<ExprId, u32>,
    transitions: Vec<u32>,
}

impl Table {
    fn new(trie: &Trie) -> Self {
        Self {
            bytes: trie.label_bytes(),
            exprs: Vec::new(),
            is_end: Vec::new(),
            numbers: HashMap::new(),
            transitions: Vec::new(),
        }
    }

    fn state(&mut self, lexicon: &Lexicon, expr: ExprId) -> u32 {
        *self.numbers.entry(expr).or_insert_with(|| {
            self.exprs.push(expr);
            self.is_end.push(lexicon.is_nullable(expr));
            let len = self.transitions.len() + self.bytes.len();
            self.transitions.resize(len, UNSEEN);
            (self.exprs.len() - 1) as u32
        })
    }

    fn next(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        label: u16,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let at = state as usize * self.bytes.len() + usize::from(label);
        let known = self.transitions[at];
        if known != UNSEEN {
            return Ok(known);
        }
        let byte = self.bytes[usize::from(label)];
        let expr = lexicon.derivative(self.exprs[state as usize], byte, fuel)?;
        let next = if expr == EMPTY || !lexicon.is_live(expr, fuel)? {
            DEAD
        } else {
            self.state(lexicon, expr)
        };
        self.transitions[at] = next;
        Ok(next)
    }
}
