//! The arena of expressions: each distinct expression once, under a stable id.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};

use super::byte_set::ByteSet;
use super::facts::Facts;
use super::free_text::{FreeTextId, FreeTexts};
use super::labels::Others;
use super::residue::{ResidueId, Residues};
use super::row_scratch::RowScratch;
use super::rows::Rows;
use crate::held::with_room;

/// An expression, and at once the automaton state that it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ExprId(pub(super) u32);

impl ExprId {
    /// Position in tables that have one entry per expression.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The empty language: no string at all.
pub(crate) const EMPTY: ExprId = ExprId(0);
/// The empty string.
pub(crate) const EPSILON: ExprId = ExprId(1);
/// Any one byte.
pub(super) const BYTE: ExprId = ExprId(2);
/// Every string of bytes.
pub(crate) const ANY: ExprId = ExprId(3);

/// No upper bound on a repetition.
pub(crate) const UNBOUNDED: u32 = u32::MAX;

/// `Facts::end_mark` where there is none. Marks are below.
pub(crate) const NO_MARK: u16 = u16::MAX;

/// Bytes after which a token is read byte by byte, whatever the alphabet: what begins an escape in
/// JSON, a percent-encoding and an address literal in a URI.
pub(crate) const TURNING_BYTES: [u8; 3] = *b"\\[%";

/// `Facts::sole_mark` of expressions that may end with different marks, or with and without.
pub(crate) const MANY_MARKS: u16 = u16::MAX - 1;

/// An interned set of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SetId(pub(super) u32);

/// Where the operands of `Or` and `And` lie in [`Lexicon::operands`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Operands {
    start: u32,
    len: u32,
}

/// What an expression is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    Empty,
    Epsilon,
    /// One byte of a set.
    Class(SetId),
    /// The first is never a `Concat` itself.
    Concat(ExprId, ExprId),
    /// At least two, ascending, none an `Or`.
    Or(Operands),
    /// At least two, ascending, none an `And`.
    And(Operands),
    Not(ExprId),
    /// The empty string, marked: the end of a lexeme, and of which. Marks end an expression; they
    /// stand at the end of concatenations and in alternatives, never under other operators.
    Mark(u16),
    /// `min..=max` times the body; `max` may be [`UNBOUNDED`].
    Repeat {
        body: ExprId,
        min: u32,
        max: u32,
    },
    /// Decimals that are multiples of a number. Never without any string.
    Residue(ResidueId),
    /// Text among many words.
    FreeText(FreeTextId),
}

/// All expressions of one generation of the engine, with their derivatives and distances.
///
/// Memory: about 60 bytes per expression and as much again once its row is known.
#[derive(Clone)]
pub(crate) struct Lexicon {
    nodes: Vec<Node>,
    facts: Vec<Facts>,
    operands: Vec<ExprId>,
    node_ids: HashTable<u32>,
    sets: Vec<ByteSet>,
    set_ids: HashTable<u32>,
    pub(super) residues: Residues,
    pub(super) free_texts: FreeTexts,
    hasher: DefaultHashBuilder,
    pub(super) rows: Rows,
    /// What the last row was put together from, for its room.
    pub(super) row_scratch: Option<Box<RowScratch>>,
    /// Empty lists with room, for what is being made.
    lists: Vec<Vec<ExprId>>,
    pub(super) memo: super::completion::Memo,
    /// See `marks`: the expression with mark 0 in place of its own.
    pub(super) first_marked: HashMap<ExprId, ExprId>,
    /// See `saturate`: the expression with its counters cut, or [`NOT_CUT`].
    pub(super) saturated: Vec<u32>,
    /// See `saturate`: intersections of spelled strings with a length.
    pub(super) sized: HashSet<ExprId>,
    /// What such a length counts, or [`EMPTY`].
    pub(super) sized_by: ExprId,
    /// See `lasting`: the characters that are each a string of a language.
    pub(super) lasting_of: HashMap<ExprId, super::lasting::Lasting>,
    /// Characters that last after languages that most grammars have.
    pub(super) learned_lasting: HashMap<ExprId, super::lasting::Lasting>,
    /// See `lasting`: the characters that lead from a state to itself.
    pub(super) others_that_stay: HashMap<ExprId, Others>,
    /// See `inclusion`.
    pub(super) known_inclusions: super::inclusion::KnownInclusions,
    /// Small sets of code points met so far, see `unicode`.
    pub(super) code_points: HashMap<Vec<(char, char)>, ExprId>,
    /// The expression of each byte; [`EMPTY`] where it wasn't asked for.
    pub(super) bytes: Vec<ExprId>,
    /// Formats of strings met so far, with bounds on their length: see `json::format`.
    pub(crate) formats: HashMap<(String, super::chars::Chars), ExprId>,
    /// Nodes looked up so far: what constructors have cost.
    pub(super) work: u64,
    /// The longest token, in bytes: how far one step of a matcher can go.
    pub(super) max_token_bytes: u32,
    /// See [`Self::any_escapes`].
    any_escapes: bool,
}

/// So many lists are kept for their room, see [`Lexicon::give_list`].
const MOST_LISTS: usize = 8;
/// Longer lists aren't kept.
const MOST_ROOM: usize = 4096;

/// `Lexicon::saturated` of an expression that was not asked for yet.
pub(super) const NOT_CUT: u32 = u32::MAX;

impl Lexicon {
    /// An empty arena. `alphabets` are partitions of the bytes, at most eight;
    /// `max_token_bytes` is the length of the longest token.
    pub(crate) fn new(alphabets: Vec<Vec<ByteSet>>, max_token_bytes: u32) -> Self {
        debug_assert!(alphabets.len() <= 8, "`ClassMap::fits` has eight bits");
        let mut lexicon = Self {
            nodes: Vec::new(),
            facts: Vec::new(),
            operands: Vec::new(),
            node_ids: HashTable::new(),
            sets: Vec::new(),
            set_ids: HashTable::new(),
            residues: Residues::default(),
            free_texts: FreeTexts::default(),
            hasher: DefaultHashBuilder::default(),
            rows: Rows::new(alphabets),
            row_scratch: None,
            lists: Vec::new(),
            memo: Default::default(),
            first_marked: HashMap::new(),
            saturated: Vec::new(),
            sized: HashSet::new(),
            sized_by: EMPTY,
            lasting_of: HashMap::new(),
            learned_lasting: HashMap::new(),
            others_that_stay: HashMap::new(),
            known_inclusions: Default::default(),
            code_points: HashMap::new(),
            bytes: vec![EMPTY; 256],
            formats: HashMap::new(),
            work: 0,
            max_token_bytes,
            any_escapes: false,
        };
        lexicon.intern(Node::Empty, &[]);
        lexicon.intern(Node::Epsilon, &[]);
        let byte = lexicon.class(ByteSet::FULL);
        let any = lexicon.intern(
            Node::Repeat {
                body: byte,
                min: 0,
                max: UNBOUNDED,
            },
            &[],
        );
        debug_assert_eq!((byte, any), (BYTE, ANY));
        lexicon
    }

    /// Whether strings of JSON under a constraint may have any escapes: languages of all of them are spelled so.
    pub(crate) fn any_escapes(&self) -> bool {
        self.any_escapes
    }

    /// Says so, before any language of strings was made.
    pub(crate) fn set_any_escapes(&mut self, any_escapes: bool) {
        self.any_escapes = any_escapes;
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        with_room(
            self.nodes.len() * Self::BYTES_PER_EXPR
                + self.operands.len() * size_of::<ExprId>()
                + self.sets.len() * (size_of::<ByteSet>() + 2 * size_of::<u32>())
                + self.residues.memory_bytes()
                + self.free_texts.memory_bytes()
                + self.sized.len() * (size_of::<ExprId>() + 1)
                + (self.lasting_of.len() + self.learned_lasting.len())
                    * (size_of::<(ExprId, super::lasting::Lasting)>() + 1)
                + self.known_inclusions.memory_bytes()
                + self.others_that_stay.len() * (size_of::<(ExprId, Others)>() + 1)
                + self.first_marked.len() * (size_of::<(ExprId, ExprId)>() + 1)
                + self.rows.memory_bytes(),
        )
    }

    /// Of an expression: what it is, and its places in the tables that have one for each.
    const BYTES_PER_EXPR: usize = size_of::<Node>()
        + size_of::<Facts>()
        + super::rows::BYTES_PER_EXPR
        // `node_ids`, `saturated` and `memo`.
        + 3 * size_of::<u32>()
        + 1;

    /// How many expressions have been asked for, whether they were there or not: no fewer than have
    /// been added.
    pub(crate) fn num_asked(&self) -> u64 {
        self.work
    }

    /// Counts expressions as asked for that were asked for when something that is known was made.
    pub(crate) fn ask_again(&mut self, num_asked: u64) {
        self.work += num_asked;
    }

    /// Bytes that so many expressions take at most, but for long lists of alternatives.
    pub(crate) fn bytes_of(num_exprs: usize) -> usize {
        with_room(num_exprs.saturating_mul(Self::BYTES_PER_EXPR))
    }

    /// Makes room for as many expressions as half of some bytes have room for (their rows mostly take
    /// the other half): to move them all to a larger table would take milliseconds, and somebody waits for
    /// whoever makes the next one. Room that is never used is never touched.
    pub(crate) fn expect_bytes(&mut self, bytes: usize) {
        let num_exprs = bytes / 2 / Self::bytes_of(1);
        let (nodes, operands, hasher) = (&self.nodes, &self.operands, &self.hasher);
        let num_more = num_exprs.saturating_sub(self.node_ids.len());
        self.node_ids.reserve(num_more, |&id| {
            let (node, list) = stored(nodes, operands, id);
            hash_node(hasher, node, list)
        });
        let num_more = num_exprs.saturating_sub(self.nodes.len());
        self.nodes.reserve(num_more);
        self.facts.reserve(num_more);
    }

    /// Expressions held.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the language contains the empty string: in an automaton's words, whether the state
    /// accepts.
    pub(crate) fn is_nullable(&self, expr: ExprId) -> bool {
        self.facts(expr).nullable
    }

    /// Whether the language is known to have finitely many strings.
    pub(crate) fn is_finite(&self, expr: ExprId) -> bool {
        self.facts(expr).finite
    }

    /// Whether the language is known to have infinitely many strings.
    pub(crate) fn is_infinite(&self, expr: ExprId) -> bool {
        self.facts(expr).infinite
    }

    /// Whether an expression is free of intersections and complements.
    #[cfg(test)]
    pub(crate) fn is_exact(&self, expr: ExprId) -> bool {
        self.facts(expr).exact
    }

    /// A lower bound on the length of the language's strings, exact without `And` and `Not`.
    #[cfg(test)]
    pub(crate) fn min_bytes(&self, expr: ExprId) -> u32 {
        self.facts(expr).min_bytes
    }

    /// The mark with which the empty string ends a lexeme here; [`NO_MARK`] where it doesn't.
    pub(crate) fn end_mark(&self, expr: ExprId) -> u16 {
        self.facts(expr).end_mark
    }

    /// Whether the expression is a mark, or several, and nothing else: the lexeme has ended, and can't
    /// go on.
    pub(crate) fn is_mark(&self, expr: ExprId) -> bool {
        self.facts(expr).over
    }

    pub(super) fn node(&self, expr: ExprId) -> Node {
        self.nodes[expr.index()]
    }

    pub(super) fn facts(&self, expr: ExprId) -> Facts {
        self.facts[expr.index()]
    }

    pub(super) fn set(&self, id: SetId) -> ByteSet {
        self.sets[id.0 as usize]
    }

    pub(super) fn operands(&self, operands: Operands) -> &[ExprId] {
        &self.operands[operands.start as usize..][..operands.len as usize]
    }

    /// An empty list, for [`Lexicon::give_list`] to take back: expressions are made by the thousand, and
    /// the allocator's time showed.
    pub(super) fn take_list(&mut self) -> Vec<ExprId> {
        self.lists.pop().unwrap_or_default()
    }

    /// Takes a list back, of which nothing but its room is kept, and that only where it is of the usual size.
    pub(super) fn give_list(&mut self, mut list: Vec<ExprId>) {
        if self.lists.len() < MOST_LISTS && list.capacity() <= MOST_ROOM {
            list.clear();
            self.lists.push(list);
        }
    }

    /// The set's one id.
    pub(super) fn intern_set(&mut self, set: ByteSet) -> SetId {
        let (sets, hasher) = (&self.sets, &self.hasher);
        let entry = self.set_ids.entry(
            hasher.hash_one(set),
            |&id| sets[id as usize] == set,
            |&id| hasher.hash_one(sets[id as usize]),
        );
        let id = *entry.or_insert(sets.len() as u32).get();
        if id as usize == self.sets.len() {
            self.sets.push(set);
        }
        SetId(id)
    }

    /// The node's one id. `list` holds the operands of `Or` and `And`, whose `Operands` are
    /// ignored on the way in.
    pub(super) fn intern(&mut self, node: Node, list: &[ExprId]) -> ExprId {
        self.work += 1 + list.len() as u64;
        let (nodes, operands, hasher) = (&self.nodes, &self.operands, &self.hasher);
        let stored = |id| stored(nodes, operands, id);
        let entry = self.node_ids.entry(
            hash_node(hasher, node, list),
            |&id| {
                let (other, other_list) = stored(id);
                same_node(node, other) && list == other_list
            },
            |&id| {
                let (node, list) = stored(id);
                hash_node(hasher, node, list)
            },
        );
        let id = *entry.or_insert(nodes.len() as u32).get();
        if id as usize == self.nodes.len() {
            let at = Operands {
                start: self.operands.len() as u32,
                len: list.len() as u32,
            };
            self.operands.extend_from_slice(list);
            let node = match node {
                Node::Or(_) => Node::Or(at),
                Node::And(_) => Node::And(at),
                node => node,
            };
            let facts = self.facts_of(node, list);
            self.nodes.push(node);
            self.facts.push(facts);
        }
        ExprId(id)
    }
}

/// A node with its operands.
fn stored<'a>(nodes: &[Node], operands: &'a [ExprId], id: u32) -> (Node, &'a [ExprId]) {
    let node = nodes[id as usize];
    let list = match node {
        Node::Or(at) | Node::And(at) => &operands[at.start as usize..][..at.len as usize],
        _ => &[],
    };
    (node, list)
}

/// Equality but for the place of the operands, which the caller compares.
fn same_node(a: Node, b: Node) -> bool {
    match (a, b) {
        (Node::Empty, Node::Empty)
        | (Node::Epsilon, Node::Epsilon)
        | (Node::Or(_), Node::Or(_))
        | (Node::And(_), Node::And(_)) => true,
        (Node::Class(a), Node::Class(b)) => a == b,
        (Node::Mark(a), Node::Mark(b)) => a == b,
        (Node::Residue(a), Node::Residue(b)) => a == b,
        (Node::FreeText(a), Node::FreeText(b)) => a == b,
        (Node::Concat(a, b), Node::Concat(c, d)) => (a, b) == (c, d),
        (Node::Not(a), Node::Not(b)) => a == b,
        (
            Node::Repeat { body, min, max },
            Node::Repeat {
                body: other,
                min: low,
                max: high,
            },
        ) => (body, min, max) == (other, low, high),
        _ => false,
    }
}

/// Agrees with `same_node` and the equality of lists.
fn hash_node(hasher: &DefaultHashBuilder, node: Node, list: &[ExprId]) -> u64 {
    match node {
        Node::Empty => hasher.hash_one(0_u8),
        Node::Epsilon => hasher.hash_one(1_u8),
        Node::Class(set) => hasher.hash_one((2_u8, set.0)),
        Node::Concat(head, tail) => hasher.hash_one((3_u8, head.0, tail.0)),
        Node::Or(_) => hash_list(hasher, 4, list),
        Node::And(_) => hash_list(hasher, 5, list),
        Node::Not(inner) => hasher.hash_one((6_u8, inner.0)),
        Node::Mark(mark) => hasher.hash_one((8_u8, mark)),
        Node::Repeat { body, min, max } => hasher.hash_one((7_u8, body.0, min, max)),
        Node::Residue(residue) => hasher.hash_one((9_u8, residue.0)),
        Node::FreeText(text) => hasher.hash_one((10_u8, text.0)),
    }
}

fn hash_list(hasher: &DefaultHashBuilder, kind: u8, list: &[ExprId]) -> u64 {
    use std::hash::Hasher;
    let mut state = hasher.build_hasher();
    kind.hash(&mut state);
    list.hash(&mut state);
    state.finish()
}
