//! What a language allows by itself, whatever follows it.
//!
//! A text of the language may end wherever it can, also where it could go on. So a token that leaves
//! the language has as many ways to go on after it as there are places where a text ends on the way,
//! and each leaves another rest of the token to what follows.

use std::ops::Range;
use std::sync::Arc;

use crate::index::{ROOT, Trie};
use crate::lexical::{ExprId, Fuel, Lexicon, OutOfFuel};
use crate::mask::Mask;
use crate::mask::walk::{DEAD, Labelled, Table};

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

/// Tokens at and below `node` end a text of the language after `depth` bytes. The node's own byte
/// comes after `at` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leave {
    pub(crate) node: u32,
    pub(crate) depth: u32,
    pub(crate) at: u32,
}

/// What a walk of a language found.
#[derive(Default)]
pub(crate) struct Walked {
    /// Tokens that begin a text of the language, or are one, as ranges of [`Trie::tokens`].
    pub(crate) inside: Vec<Range<u32>>,
    /// Where tokens leave it.
    pub(crate) leaves: Vec<Leave>,
}

/// Runs a language over every word of a trie, as far as it survives. Where it can't go on, tokens
/// leave it at each place on the way where a text of it ends, the first byte's beginning apart. A
/// step of fuel per node looked at. `None` where a state tells apart bytes that the trie's alphabet
/// doesn't.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    labelled: Labelled<'_>,
    start: ExprId,
    fuel: &mut Fuel,
) -> Result<Option<Walked>, OutOfFuel> {
    let trie = labelled.trie;
    let mut walked = Walked::default();
    let mut table = Table::default();
    let start = table.state(lexicon, start);
    // Depths on the way to the node at which a text ends.
    let mut ends: Vec<u32> = Vec::new();
    let mut pending = vec![(ROOT, start, 0_u32)];
    while let Some((node, state, depth)) = pending.pop() {
        while ends.last().is_some_and(|&end| end >= depth) {
            ends.pop();
        }
        let own = trie.own(node);
        if !own.is_empty() {
            walked.inside.push(own);
        }
        let children = trie.children(node);
        if children.is_empty() {
            continue;
        }
        table.expand(lexicon, state, fuel)?;
        if !table.fits(lexicon, state, labelled) {
            return Ok(None);
        }
        if depth > 0 && lexicon.is_nullable(table.expr(state)) {
            ends.push(depth);
        }
        for child in children.rev() {
            fuel.burn(1)?;
            let byte = labelled.byte(trie.label(child));
            match table.step(lexicon, state, byte, fuel)? {
                DEAD => {
                    fuel.burn(ends.len() as u64)?;
                    let leave = |&end: &u32| Leave {
                        node: child,
                        depth: end,
                        at: depth,
                    };
                    walked.leaves.extend(ends.iter().map(leave));
                }
                next => pending.push((child, next, depth + 1)),
            }
        }
    }
    Ok(Some(walked))
}
