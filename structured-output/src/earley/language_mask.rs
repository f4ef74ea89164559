//! What a language allows by itself, whatever follows it.
//!
//! A text of the language may end wherever it can, also where it could go on. So a token that leaves
//! the language has as many ways to go on after it as there are places where a text ends on the way,
//! and each leaves another rest of the token to what follows.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::bitmask::BITS_PER_WORD;
use crate::index::{ROOT, Trie};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, OutOfFuel};
use crate::mask::table::{DEAD, Table};
use crate::mask::walk::Labelled;
use crate::mask::{ids_of, set_bits};

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
}

/// A set of tokens that is added to others. Unlike a mask it isn't counted, nor kept once only.
#[derive(Debug)]
pub(crate) enum Tokens {
    Ids(Box<[u32]>),
    /// A bit per id.
    Words(Box<[u32]>),
}

impl Default for Tokens {
    fn default() -> Self {
        Self::Ids(Box::default())
    }
}

impl Tokens {
    /// Up to so many tokens are listed.
    pub(crate) const MAX_LISTED: usize = 1024;

    /// The tokens whose bits are set.
    pub(crate) fn from_words(words: Vec<u32>) -> Self {
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        if count as usize > Self::MAX_LISTED {
            return Self::Words(words.into());
        }
        let mut ids = Vec::with_capacity(count as usize);
        for (chunk, first) in words
            .chunks(CHUNK)
            .zip((0..).step_by(CHUNK * BITS_PER_WORD))
        {
            // Mostly nothing is set.
            if chunk.iter().fold(0, |all, word| all | word) != 0 {
                ids.extend(ids_of(chunk).map(|id| first + id));
            }
        }
        Self::Ids(ids.into())
    }

    /// Sets the tokens' bits.
    pub(crate) fn add_to(&self, words: &mut [u32]) {
        match self {
            Self::Ids(ids) => set_bits(words, ids),
            Self::Words(own) => {
                for (word, own) in words.iter_mut().zip(own) {
                    *word |= own;
                }
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let (Self::Ids(numbers) | Self::Words(numbers)) = self;
        size_of_val(&**numbers)
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
    /// Whether no node is below this one.
    pub(crate) is_last: bool,
}

/// As many bytes of a rest are kept.
pub(crate) const NUM_KNOWN: usize = 4;

/// Bytes of a rest that weren't looked up yet; looked up again where they are these.
pub(crate) const UNKNOWN_REST: [u8; NUM_KNOWN] = [0; NUM_KNOWN];

impl Leave {
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

/// So many words are looked at at once.
const CHUNK: usize = 16;

/// From so many children on a state's classes are copied.
const MANY_CHILDREN: usize = 16;

/// As many tokens as make an end a large one.
pub(super) const MANY: u32 = 512;

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

    /// Tokens below a node leave at all open ends. Its own byte comes after `at` bytes.
    fn leave(&mut self, node: u32, at: u32, num_tokens: u32, is_last: bool) {
        for &(end, number) in &self.open {
            let num_leaving = &mut self.all[number as usize].1;
            *num_leaving += num_tokens;
            if *num_leaving < MANY {
                let depth = end.depth;
                let leave = Leave {
                    node,
                    depth,
                    at,
                    rest: UNKNOWN_REST,
                    is_last,
                };
                self.leaves.push((number, leave));
            }
        }
    }

    fn finish(self, walked: &mut Walked) {
        let is_large = |number: u32| self.all[number as usize].1 >= MANY;
        let leaves = self.leaves.iter().filter(|(number, _)| !is_large(*number));
        walked.leaves = leaves.map(|&(_, leave)| leave).collect();
        let large = self.all.iter().filter(|(_, count)| *count >= MANY);
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
) -> Result<Option<Walked>, OutOfFuel> {
    let trie = labelled.trie;
    let mut walked = Walked::default();
    let Walks { table, apart } = walks;
    // All that is stepped to has texts; the start may be an alternative that has none.
    let is_live = lexicon.is_live(start, fuel)?;
    let start = table.state(lexicon, start);
    let beside = beside.map(|beside| table.state(lexicon, beside));
    let mut ends = Ends::default();
    let mut few = Vec::new();
    let mut pending = vec![(from, start, beside)];
    while let Some((at, state, beside)) = pending.pop() {
        let End { node, depth } = at;
        ends.close(depth);
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
                let num_tokens = trie.below(child).len() as u32;
                ends.leave(child, depth, num_tokens, trie.children(child).is_empty());
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
        // Sorted by counting.
        let mut starts = [0_u32; 257];
        for leave in &walked.leaves {
            starts[usize::from(leave.rest[0]) + 1] += 1;
        }
        for at in 0..256 {
            starts[at + 1] += starts[at];
        }
        let mut next = starts;
        let mut leaves = walked.leaves.clone();
        for leave in walked.leaves {
            let at = &mut next[usize::from(leave.rest[0])];
            leaves[*at as usize] = leave;
            *at += 1;
        }
        let first_bytes = (0..=255_u8).zip(starts.windows(2));
        let first_bytes = first_bytes.filter(|(_, ends)| ends[0] < ends[1]);
        let first_bytes: Vec<_> = first_bytes.map(|(byte, ends)| (byte, ends[1])).collect();
        Self {
            leaves,
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
