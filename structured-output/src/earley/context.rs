//! Contexts: what follows a rule, interned.
//!
//! A context is the set of places that a rule returns to: nodes of its callers, each with the
//! context of that caller. In a parser's words it is a node of a graph-structured stack (Tomita
//! 1985), but one that is equal to every other with the same future, at whatever position of the
//! text it was made. Contexts are made callers first, so there are no cycles among them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::program::NodeId;

/// An interned context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ContextId(pub(super) u32);

/// A place to return to: a node of a caller, with the caller's context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Return {
    pub(crate) node: NodeId,
    pub(crate) context: ContextId,
}

impl Return {
    /// The end of the whole text, which is no node.
    pub(super) const END: Self = Self {
        node: NodeId(u32::MAX),
        context: AT_END,
    };
}

/// The context of the whole text.
pub(super) const AT_END: ContextId = ContextId(0);

/// So many are to come soon: tables that grow from nothing do so within masks.
const SOME: usize = 192;

/// All contexts of a generation.
pub(super) struct Contexts {
    returns: Vec<Return>,
    /// Where each context's returns end, and the least that is read from there to the end.
    entries: Vec<(u32, u32)>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Default for Contexts {
    fn default() -> Self {
        let mut contexts = Self {
            returns: Vec::with_capacity(SOME),
            entries: Vec::with_capacity(SOME),
            ids: HashTable::with_capacity(SOME),
            hasher: DefaultHashBuilder::default(),
        };
        contexts.intern(&[Return::END], |_| 0);
        contexts
    }
}

impl Contexts {
    /// The returns of a context, ascending.
    pub(super) fn returns(&self, context: ContextId) -> &[Return] {
        let at = context.0 as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
        &self.returns[start as usize..self.entries[at].0 as usize]
    }

    /// The least that is read from there to the end of the text: bytes, and 1 for a token.
    pub(super) fn min_length(&self, context: ContextId) -> u32 {
        self.entries[context.0 as usize].1
    }

    /// The context of some returns, ascending and each once. `to_end` is the least that is read
    /// from a node to the end of its rule.
    pub(super) fn intern(
        &mut self,
        returns: &[Return],
        to_end: impl Fn(NodeId) -> u32,
    ) -> ContextId {
        let (all, entries, hasher) = (&self.returns, &self.entries, &self.hasher);
        let of = |id: u32| {
            let at = id as usize;
            let start = at.checked_sub(1).map_or(0, |before| entries[before].0);
            &all[start as usize..entries[at].0 as usize]
        };
        let entry = self.ids.entry(
            hasher.hash_one(returns),
            |&id| of(id) == returns,
            |&id| hasher.hash_one(of(id)),
        );
        let id = *entry.or_insert(self.entries.len() as u32).get();
        if id as usize == self.entries.len() {
            let lengths = returns.iter().map(|place| match *place {
                Return::END => 0,
                Return { node, context } => {
                    super::length::add(to_end(node), self.min_length(context))
                }
            });
            let least = lengths.min().unwrap_or(u32::MAX);
            self.returns.extend_from_slice(returns);
            self.entries.push((self.returns.len() as u32, least));
        }
        ContextId(id)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.returns.capacity() * size_of::<Return>()
            + self.entries.capacity() * 8
            + self.ids.capacity() * 5
    }
}
