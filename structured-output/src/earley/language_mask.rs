//! What a language allows by itself, whatever follows it.
//!
//! A text of the language may end wherever it can, also where it could go on. So a token that leaves
//! the language has as many ways to go on after it as there are places where a text ends on the way,
//! and each leaves another rest of the token to what follows.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::tokens::Tokens;
use crate::index::{ROOT, Trie};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, Stop};
use crate::mask::table::{DEAD, Table};
use crate::mask::walk::Labelled;

/// What a language allows by itself, of the tokens below a node of the trie of bytes.
pub(crate) struct LanguageMask {
    /// Different for each.
    pub(crate) number: u32,
    /// Tokens that begin a text of the language, or are one.
    pub(crate) inside: Tokens,
    /// What the other tokens go on with after a text of the language.
    pub(crate) rests: Rests,
    /// The same where the text ends with a tag, which says what follows: without tokens inside.
    pub(crate) tagged: Box<[(u16, Arc<LanguageMask>)]>,
}

impl LanguageMask {
    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.inside.memory_bytes()
            + self
                .tagged
                .iter()
                .map(|(_, of)| of.memory_bytes() + 16)
                .sum::<usize>()
            + match &self.rests {
                Rests::Trie(trie) => trie.memory_bytes(),
                Rests::Places(places) => places.memory_bytes(),
            }
    }

    /// How many places in the trie of bytes there are at which few tokens leave.
    pub(crate) fn num_places(&self) -> usize {
        match &self.rests {
            Rests::Trie(_) => 0,
            Rests::Places(places) => places.leaves.len(),
        }
    }
}

impl Rests {
    /// Whether a rest may begin with a byte of a set, large ends apart.
    pub(crate) fn may_begin_with(&self, bytes: &ByteSet) -> bool {
        match self {
            Self::Trie(rests) => {
                let mut firsts = rests.children(ROOT);
                firsts.any(|child| bytes.contains(rests.label(child)))
            }
            Self::Places(places) => !places.firsts.intersection(bytes).is_empty(),
        }
    }

    /// Whether rests are so few that what goes on with them is found as fast as it is remembered.
    pub(crate) fn are_few(&self) -> bool {
        match self {
            Self::Trie(rests) => rests.tokens().len() <= FEW_LEAVES,
            Self::Places(places) => places.large.is_empty() && places.leaves.len() <= FEW_LEAVES,
        }
    }

    /// Places at which many tokens leave the language.
    pub(crate) fn large(&self) -> &[End] {
        match self {
            Self::Trie(_) => &[],
            Self::Places(places) => &places.large,
        }
    }
}

/// See [`Rests::are_few`].
const FEW_LEAVES: usize = 16;

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
    /// These bytes.
    firsts: ByteSet,
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
    /// The first bytes of the rest, up to the node's own: most rests are told by these, without a look
    /// at the trie.
    pub(crate) rest: [u8; NUM_KNOWN],
    /// Where its tokens lie, as a range of [`Trie::tokens`]; empty where other nodes are below this one.
    pub(crate) last: (u32, u32),
}

/// As many bytes of a rest are kept.
pub(crate) const NUM_KNOWN: usize = 4;

/// Bytes of a rest that weren't looked up yet; looked up again where they are these.
pub(crate) const UNKNOWN_REST: [u8; NUM_KNOWN] = [0; NUM_KNOWN];

impl Leave {
    /// The tokens of a node below which there is no other one; `None` where there are.
    pub(crate) fn last_tokens(&self) -> Option<Range<u32>> {
        let (start, end) = self.last;
        (start < end).then_some(start..end)
    }

    /// Its tokens, of the trie of bytes.
    pub(crate) fn tokens(&self, trie: &Trie) -> Range<u32> {
        self.last_tokens().unwrap_or_else(|| trie.below(self.node))
    }

    /// How many bytes the rest has up to the node's own, at least 1.
    pub(crate) fn num_bytes(&self) -> usize {
        (self.at - self.depth) as usize + 1
    }

    /// Those that aren't kept; `text_below` is a token below a node.
    pub(crate) fn later_bytes<'a>(&self, text_below: impl Fn(u32) -> &'a [u8]) -> &'a [u8] {
        if self.num_bytes() <= NUM_KNOWN {
            return &[];
        }
        let later = self.depth as usize + NUM_KNOWN..=self.at as usize;
        text_below(self.node).get(later).unwrap_or_default()
    }
}

/// A node of a trie, and how many bytes lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct End {
    pub(crate) node: u32,
    pub(crate) depth: u32,
}

/// From so many children on a state's classes are copied.
const MANY_CHILDREN: usize = 16;

impl End {
    /// As many tokens as make an end a large one.
    pub(crate) const MANY: u32 = 512;
}

/// What a walk of a language found.
#[derive(Default)]
pub(crate) struct Walked {
    /// Tokens that begin a text of the language, or are one, as ranges of [`Trie::tokens`], in no
    /// order.
    pub(crate) inside: Vec<Range<u32>>,
    /// Where tokens leave it, but for those at large ends.
    pub(crate) leaves: Vec<Leave>,
    /// Ends at which many tokens leave it.
    pub(crate) large: Vec<End>,
    /// Where it differs from the language beside it, as ranges of [`Trie::tokens`]: all else that was
    /// found is within these.
    pub(crate) apart: Vec<Range<u32>>,
}

/// The ends that a walk met, with what left there.
#[derive(Default)]
struct Ends {
    /// On the way to the node that is looked at, with their numbers.
    open: Vec<(End, u32)>,
    /// By number: the end, and how many tokens leave there.
    all: Vec<(End, u32)>,
    /// Each with the number of its end.
    leaves: Vec<(u32, Leave)>,
}

impl Ends {
    /// Forgets ends that aren't on the way to a node of a depth.
    fn close(&mut self, depth: u32) {
        while self.open.last().is_some_and(|(end, _)| end.depth >= depth) {
            self.open.pop();
        }
    }

    fn push(&mut self, end: End) {
        self.open.push((end, self.all.len() as u32));
        self.all.push((end, 0));
    }

    /// Tokens at and below a node leave at all open ends. Its own byte comes after `at` bytes; `path` are the
    /// last bytes up to it, if they are known.
    fn leave(&mut self, node: u32, at: u32, tokens: &Range<u32>, is_last: bool, path: &[u8]) {
        for &(end, number) in &self.open {
            let num_leaving = &mut self.all[number as usize].1;
            *num_leaving += tokens.len() as u32;
            if *num_leaving < End::MANY {
                let depth = end.depth;
                let mut rest = UNKNOWN_REST;
                let start = path.len().checked_sub((at - depth) as usize + 1);
                let known = start.and_then(|start| path.get(start..));
                for (rest, &byte) in rest.iter_mut().zip(known.unwrap_or_default()) {
                    *rest = byte;
                }
                let last = if is_last {
                    (tokens.start, tokens.end)
                } else {
                    (0, 0)
                };
                let leave = Leave {
                    node,
                    depth,
                    at,
                    rest,
                    last,
                };
                self.leaves.push((number, leave));
            }
        }
    }

    fn finish(self, walked: &mut Walked) {
        let is_large = |number: u32| self.all[number as usize].1 >= End::MANY;
        let leaves = self.leaves.iter().filter(|(number, _)| !is_large(*number));
        walked.leaves = leaves.map(|&(_, leave)| leave).collect();
        let large = self.all.iter().filter(|(_, count)| *count >= End::MANY);
        walked.large = large.map(|&(end, _)| end).collect();
    }
}

/// What walks of languages met of the automaton's states. Those of the same language from different
/// nodes meet the same ones, and are short. All are for one alphabet.
#[derive(Default)]
pub(crate) struct Walks {
    table: Table,
    /// By which bytes two states differ.
    apart: HashMap<(u32, u32), ByteSet>,
}

impl Walks {
    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.apart.capacity() * (size_of::<((u32, u32), ByteSet)>() + 1)
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
///
/// # Errors
/// Out of fuel. What `walks` holds is of no use then.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    walks: &mut Walks,
    labelled: Labelled<'_>,
    from: End,
    start: ExprId,
    beside: Option<ExprId>,
    fuel: &mut Fuel,
) -> Result<Option<Walked>, Stop> {
    let trie = labelled.trie;
    let mut walked = Walked::default();
    let Walks { table, apart } = walks;
    // All that is stepped to has texts; the start may be an alternative that has none.
    let is_live = lexicon.is_live(start, fuel)?;
    let start = table.state(lexicon, start);
    let beside = beside.map(|beside| table.state(lexicon, beside));
    let mut ends = Ends::default();
    let mut few = Vec::new();
    // The bytes from there to the node that is looked at, where labels are bytes.
    let mut path = Vec::new();
    let is_of_bytes = labelled.alphabet.is_none();
    let mut pending = vec![(from, start, beside)];
    while let Some((at, state, beside)) = pending.pop() {
        let End { node, depth } = at;
        ends.close(depth);
        if is_of_bytes && at != from {
            path.truncate((depth - from.depth - 1) as usize);
            path.push(trie.label(node));
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
            ends.push(at);
        }
        // The bytes that matter, where they are few.
        let bytes = match beside {
            Some(beside) => {
                table.expand(lexicon, beside, fuel)?;
                let known = apart.entry((state, beside));
                Some(*known.or_insert_with(|| table.apart(lexicon, state, beside)))
            }
            // What can't go on leaves nothing.
            None if ends.open.is_empty() && labelled.alphabet.is_none() => {
                let has_few = table.has_few(state, children.len());
                has_few.then(|| table.bytes(lexicon, state))
            }
            None => None,
        };
        let listed = bytes.filter(|bytes| bytes.len() * 4 < children.len());
        few.clear();
        let is_few = listed.is_some();
        let listed = listed.iter().flat_map(ByteSet::iter);
        few.extend(listed.filter_map(|byte| trie.child(node, byte)));
        let num_nodes = if is_few { few.len() } else { children.len() };
        fuel.burn(1 + num_nodes as u64)?;
        // A copy is worth its while where it is read often.
        let classes = match num_nodes > MANY_CHILDREN {
            true => table.classes(lexicon, state),
            false => None,
        };
        let stays = beside.is_none() && table.stays_by_many(state) && (is_live || at != from);
        let first = pending.len();
        for at in 0..num_nodes {
            let listed = few.get(at).copied();
            let child = listed.unwrap_or(children.start + at as u32);
            if stays
                && trie
                    .labels_from(child)
                    .is_some_and(|labels| table.stays(state, labels))
            {
                // Nothing of it leads away.
                let below = trie.below(child);
                match walked.inside.last_mut() {
                    Some(last) if last.end == below.start => last.end = below.end,
                    _ => walked.inside.push(below),
                }
                continue;
            }
            let byte = labelled.byte(trie.label(child));
            let class = match &classes {
                Some(classes) => classes[usize::from(byte)],
                None => table.class(lexicon, state, byte),
            };
            let next = table.step_by_class(lexicon, state, class, fuel)?;
            let mut next_beside = None;
            if let Some(beside) = beside {
                let other = table.step(lexicon, beside, byte, fuel)?;
                if next == other {
                    continue;
                }
                let may_end = |state| state != DEAD && lexicon.is_nullable(table.expr(state));
                if next != DEAD && other != DEAD && may_end(next) == may_end(other) {
                    next_beside = Some(other);
                } else {
                    walked.apart.push(trie.below(child));
                }
            }
            if next != DEAD {
                if trie.children(child).is_empty() {
                    // Most nodes: no token goes on after it.
                    if next_beside.is_none() {
                        let own = trie.own(child);
                        match walked.inside.last_mut() {
                            Some(last) if last.end == own.start => last.end = own.end,
                            _ => walked.inside.push(own),
                        }
                    }
                    continue;
                }
                let child = End {
                    node: child,
                    depth: depth + 1,
                };
                pending.push((child, next, next_beside));
                continue;
            }
            if !ends.open.is_empty() {
                fuel.burn(ends.open.len() as u64)?;
                let is_last = trie.children(child).is_empty();
                if is_of_bytes {
                    path.push(byte);
                }
                ends.leave(child, depth, &trie.below(child), is_last, &path);
                if is_of_bytes {
                    path.pop();
                }
            }
        }
        pending[first..].reverse();
    }
    ends.finish(&mut walked);
    Ok(Some(walked))
}

impl Places {
    /// What a walk through the trie of bytes found. `text_below` is a token below a node.
    pub(crate) fn new<'a>(mut walked: Walked, text_below: impl Fn(u32) -> &'a [u8]) -> Self {
        for leave in &mut walked.leaves {
            if leave.rest != UNKNOWN_REST {
                continue;
            }
            let text = text_below(leave.node);
            let num_known = leave.num_bytes().min(NUM_KNOWN);
            let rest = text.iter().skip(leave.depth as usize);
            for (known, &byte) in leave.rest[..num_known].iter_mut().zip(rest) {
                *known = byte;
            }
        }
        if walked.leaves.len() <= FEW_LEAVES {
            walked.leaves.sort_by_key(|leave| leave.rest[0]);
            let mut first_bytes: Vec<(u8, u32)> = Vec::new();
            for (leave, end) in walked.leaves.iter().zip(1..) {
                match first_bytes.last_mut() {
                    Some(last) if last.0 == leave.rest[0] => last.1 = end,
                    _ => first_bytes.push((leave.rest[0], end)),
                }
            }
            return Self::sorted(walked, first_bytes);
        }
        // Sorted by counting.
        let mut firsts = ByteSet::EMPTY;
        let mut next = [0_u32; 256];
        for leave in &walked.leaves {
            firsts.insert(leave.rest[0]);
            next[usize::from(leave.rest[0])] += 1;
        }
        let mut first_bytes = Vec::with_capacity(firsts.len());
        let mut end = 0;
        for byte in firsts.iter() {
            let start = end;
            end += std::mem::replace(&mut next[usize::from(byte)], start);
            first_bytes.push((byte, end));
        }
        let mut leaves = walked.leaves.clone();
        for leave in walked.leaves {
            let at = &mut next[usize::from(leave.rest[0])];
            leaves[*at as usize] = leave;
            *at += 1;
        }
        walked.leaves = leaves;
        Self::sorted(walked, first_bytes)
    }

    /// Of leaves by their first bytes, and where those of each end.
    fn sorted(walked: Walked, first_bytes: Vec<(u8, u32)>) -> Self {
        Self {
            leaves: walked.leaves,
            firsts: ByteSet::from_iter(first_bytes.iter().map(|&(byte, _)| byte)),
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
