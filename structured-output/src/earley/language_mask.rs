//! What a language allows by itself, whatever follows it.
//!
//! A text of the language may end wherever it can, also where it could go on. So a token that leaves
//! the language has as many ways to go on after it as there are places where a text ends on the way,
//! and each leaves another rest of the token to what follows.

use std::ops::Range;
use std::sync::Arc;

use crate::index::Trie;
use crate::lexical::{ExprId, Fuel, Lexicon, OutOfFuel};
use crate::mask::Mask;
use crate::mask::walk::{DEAD, Labelled, Table};

/// What a language allows by itself, of the tokens below a node of the trie of bytes.
pub(crate) struct LanguageMask {
    /// Tokens that begin a text of the language, or are one.
    pub(crate) inside: Arc<Mask>,
    /// What the other tokens go on with after a text of the language.
    pub(crate) rests: Rests,
}

impl LanguageMask {
    /// Bytes of memory held, the tokens inside apart.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.rests {
                Rests::Trie(trie) => trie.memory_bytes(),
                Rests::Places(places) => places.memory_bytes(),
            }
    }
}

/// Rests of tokens.
pub(crate) enum Rests {
    /// Few: a trie of their own.
    Trie(Trie),
    /// Places in the trie of bytes.
    Places(Places),
}

/// Rests of tokens as places in the trie of bytes.
#[derive(Default)]
pub(crate) struct Places {
    /// By the first byte of the rest.
    pub(crate) leaves: Vec<Leave>,
    /// Each first byte, and where its leaves end.
    pub(crate) first_bytes: Vec<(u8, u32)>,
    /// Nodes where a text of the language ends and many tokens leave it, such as that of a space,
    /// which half of all tokens begin with.
    pub(crate) large: Vec<End>,
}

/// Tokens at and below `node` end a text of the language after `depth` bytes. The node's own byte
/// comes after `at` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leave {
    pub(crate) node: u32,
    pub(crate) depth: u32,
    pub(crate) at: u32,
}

/// A node of a trie, and how many bytes lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct End {
    pub(crate) node: u32,
    pub(crate) depth: u32,
}

/// As many tokens as make an end a large one.
const MANY: u32 = 512;

/// What a walk of a language found.
#[derive(Default)]
pub(crate) struct Walked {
    /// Tokens that begin a text of the language, or are one, as ranges of [`Trie::tokens`].
    pub(crate) inside: Vec<Range<u32>>,
    /// Where tokens leave it, but for those at large ends.
    pub(crate) leaves: Vec<Leave>,
    /// Ends at which many tokens leave it.
    pub(crate) large: Vec<End>,
    /// Where it differs from the language beside it, as ranges of [`Trie::tokens`]: all else that was
    /// found is within these.
    pub(crate) apart: Vec<Range<u32>>,
}

/// An end on the way to a node.
struct OpenEnd {
    end: End,
    num_leaving: u32,
    leaves: Vec<Leave>,
}

impl Walked {
    fn close(&mut self, open: OpenEnd) {
        if open.num_leaving >= MANY {
            self.large.push(open.end);
        } else {
            self.leaves.extend(open.leaves);
        }
    }
}

/// Runs a language over every word of a trie that goes on from a node, as far as it survives. Where
/// it can't go on, tokens leave it at each place on the way where a text of it ends, the beginning
/// apart. A step of fuel per node looked at; what is below a node is not looked at where no byte of
/// it leads away from the state. `None` where a state tells apart bytes that the trie's alphabet
/// doesn't.
///
/// With another language `beside` it, only what differs between the two is found: where both are in
/// the same state, what follows is the same.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    labelled: Labelled<'_>,
    from: End,
    start: ExprId,
    beside: Option<ExprId>,
    fuel: &mut Fuel,
) -> Result<Option<Walked>, OutOfFuel> {
    let trie = labelled.trie;
    let mut walked = Walked::default();
    let mut table = Table::default();
    let start = table.state(lexicon, start);
    let beside = beside.map(|beside| table.state(lexicon, beside));
    // On the way to the node.
    let mut ends: Vec<OpenEnd> = Vec::new();
    let mut pending = vec![(from, start, beside)];
    while let Some((at, state, beside)) = pending.pop() {
        let End { node, depth } = at;
        while let Some(open) = ends.pop_if(|open| open.end.depth >= depth) {
            walked.close(open);
        }
        let children = trie.children(node);
        if !children.is_empty() {
            table.expand(lexicon, state, fuel)?;
            if !table.fits(lexicon, state, labelled) {
                return Ok(None);
            }
        }
        if at != from && beside.is_none() {
            let below = trie.labels_below(node);
            if below.is_some_and(|below| table.stays(state, below)) {
                walked.inside.push(trie.below(node));
                continue;
            }
            let own = trie.own(node);
            if !own.is_empty() {
                walked.inside.push(own);
            }
        }
        if children.is_empty() {
            continue;
        }
        if at != from && lexicon.is_nullable(table.expr(state)) {
            ends.push(OpenEnd {
                end: at,
                num_leaving: 0,
                leaves: Vec::new(),
            });
        }
        // The bytes that matter, where they are few.
        let bytes = match beside {
            Some(beside) => {
                table.expand(lexicon, beside, fuel)?;
                Some(table.apart(lexicon, state, beside))
            }
            // What can't go on leaves nothing.
            None if ends.is_empty() && labelled.alphabet.is_none() => {
                let has_few = table.has_few(state, children.len());
                has_few.then(|| table.bytes(lexicon, state))
            }
            None => None,
        };
        let listed = bytes.filter(|bytes| bytes.len() * 4 < children.len());
        let mut nodes: Vec<u32> = Vec::new();
        match listed {
            Some(bytes) => nodes.extend(bytes.iter().filter_map(|byte| trie.child(node, byte))),
            None => nodes.extend(children),
        }
        fuel.burn(1 + nodes.len() as u64)?;
        for &child in nodes.iter().rev() {
            let byte = labelled.byte(trie.label(child));
            let next = table.step(lexicon, state, byte, fuel)?;
            let mut next_beside = None;
            if let Some(beside) = beside {
                let other = table.step(lexicon, beside, byte, fuel)?;
                if next == other {
                    continue;
                }
                let ends = |state| state != DEAD && lexicon.is_nullable(table.expr(state));
                if next != DEAD && other != DEAD && ends(next) == ends(other) {
                    next_beside = Some(other);
                } else {
                    walked.apart.push(trie.below(child));
                }
            }
            if next != DEAD {
                let child = End {
                    node: child,
                    depth: depth + 1,
                };
                pending.push((child, next, next_beside));
                continue;
            }
            fuel.burn(ends.len() as u64)?;
            let leaving = trie.below(child).len() as u32;
            for open in &mut ends {
                open.num_leaving += leaving;
                if open.num_leaving < MANY {
                    open.leaves.push(Leave {
                        node: child,
                        depth: open.end.depth,
                        at: depth,
                    });
                }
            }
        }
    }
    for open in ends.into_iter().rev() {
        walked.close(open);
    }
    Ok(Some(walked))
}

impl Places {
    /// What a walk through the trie of bytes found. `byte_at` is a byte of the tokens below a node.
    pub(crate) fn new(walked: Walked, byte_at: impl Fn(u32, u32) -> u8) -> Self {
        let mut sorted: Vec<(u8, Leave)> = walked
            .leaves
            .into_iter()
            .map(|leave| (byte_at(leave.node, leave.depth), leave))
            .collect();
        sorted.sort_by_key(|&(byte, leave)| (byte, leave.node));
        let mut first_bytes: Vec<(u8, u32)> = Vec::new();
        for (count, &(byte, _)) in (1..).zip(&sorted) {
            match first_bytes.last_mut() {
                Some((last, end)) if *last == byte => *end = count,
                _ => first_bytes.push((byte, count)),
            }
        }
        Self {
            leaves: sorted.into_iter().map(|(_, leave)| leave).collect(),
            first_bytes,
            large: walked.large,
        }
    }

    fn memory_bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leave>()
            + self.first_bytes.capacity() * size_of::<(u8, u32)>()
            + self.large.capacity() * size_of::<End>()
    }
}
