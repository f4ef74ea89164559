//! Unions of contexts: a node that is returned to in several contexts is returned to in one.
//!
//! A context is a set of stacks of nodes, written as an automaton that reads a stack from the top
//! down. With one return for each node that automaton is deterministic, and since contexts are
//! interned from the bottom up it is the smallest one (Daciuk et al. 2000): equal sets are equal
//! contexts, however they came about, and a context has no more returns than its grammar has nodes.
//! Nobody knows how deep in `t ::= ("*" t "*" | [a-z])*` a text is; the depths that it may have
//! become one chain, and one star more is one link more, since the unions below it are known.
//!
//! Sets of stacks may have no small deterministic automaton. So one set is made with few new unions:
//! where that isn't enough, the contexts that were there stay side by side, which means the same. None of
//! them is made half a union, since each such set would be one more that is equal to no other: a text of
//! `n` bytes has at most `n` places where a rule began, and so has a node contexts side by side.

use hashbrown::HashMap;

use super::context::{ContextId, Return};
use super::parser::Parser;
use super::reads::FAR;
use crate::lexical::{Fuel, Stop};

/// So many unions are made for one set of returns. Where unions of what lies below are known one mostly
/// does; sets that need many have no small automaton, and more of them only makes more of such sets.
const MAX_NEW: u32 = 8;

/// A union that looked into more contexts counts as one that looked into any.
const MAX_READS: usize = 32;

/// Unions that were made.
#[derive(Default)]
pub(super) struct Unions {
    /// By the contexts, ascending.
    known: HashMap<Box<[ContextId]>, Union>,
    /// Contexts in the keys.
    num_keyed: usize,
    /// Contexts looked into.
    reads: Vec<ContextId>,
}

/// The union of some contexts.
#[derive(Clone, Copy)]
struct Union {
    /// `None` where it would be too large.
    context: Option<ContextId>,
    /// Where the contexts lie that had to be looked into, apart from those united.
    reads: (u32, u32),
}

/// Returns, at most one for each node, or the contexts whose union is needed first.
enum Merged {
    Returns(Vec<Return>),
    Needs(Box<[ContextId]>),
}

/// Whether some of sorted returns lead to one node.
fn has_pair(returns: &[Return]) -> bool {
    returns.windows(2).any(|pair| pair[0].node == pair[1].node)
}

impl Unions {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.known.capacity() * (size_of::<(Box<[ContextId]>, Union)>() + 1)
            + (self.num_keyed + self.reads.capacity()) * size_of::<ContextId>()
    }

    fn insert(&mut self, key: Box<[ContextId]>, context: Option<ContextId>, reads: Vec<ContextId>) {
        let start = self.reads.len() as u32;
        match reads.len() > MAX_READS || reads.contains(&FAR) {
            true => self.reads.push(FAR),
            false => self.reads.extend(reads),
        }
        let reads = (start, self.reads.len() as u32);
        self.num_keyed += key.len();
        self.known.insert(key, Union { context, reads });
    }
}

impl Parser {
    /// Of the contexts that one node is returned to in those that no other one holds: a context holds one
    /// that it returns to where a rule may end. Others may hold each other too. What had to be looked into
    /// goes to `reads`.
    fn not_held(&self, group: &[Return], reads: &mut Vec<ContextId>) -> Vec<ContextId> {
        let mut contexts: Vec<ContextId> = group.iter().map(|place| place.context).collect();
        let held: Vec<ContextId> = contexts
            .iter()
            .flat_map(|&whole| {
                let returns = self.contexts.returns(whole).iter();
                returns.filter(|place| {
                    **place != Return::END && self.program.node(place.node).accepting
                })
            })
            .map(|place| place.context)
            .filter(|part| contexts.binary_search(part).is_ok())
            .collect();
        if !held.is_empty() {
            reads.extend_from_slice(&contexts);
            contexts.retain(|context| !held.contains(context));
        }
        contexts
    }

    /// Joins those of sorted returns that lead to one node. A union that isn't known is asked for. What had
    /// to be looked into goes to `reads`.
    fn try_merge(&self, returns: &[Return], reads: &mut Vec<ContextId>) -> Merged {
        let mut merged = Vec::with_capacity(returns.len());
        for group in returns.chunk_by(|a, b| a.node == b.node) {
            if let [only] = group {
                merged.push(*only);
                continue;
            }
            let node = group[0].node;
            let contexts = self.not_held(group, reads);
            if let [only] = contexts[..] {
                merged.push(Return {
                    node,
                    context: only,
                });
                continue;
            }
            let Some(union) = self.unions.known.get(&contexts[..]) else {
                return Merged::Needs(contexts.into());
            };
            let (start, end) = union.reads;
            reads.extend_from_slice(&self.unions.reads[start as usize..end as usize]);
            match union.context {
                Some(context) => {
                    reads.extend_from_slice(&contexts);
                    merged.push(Return { node, context });
                }
                None => merged.extend(contexts.iter().map(|&context| Return { node, context })),
            }
        }
        merged.sort_unstable();
        Merged::Returns(merged)
    }

    /// Joins those of sorted returns that lead to one node. What had to be looked into goes to
    /// `reads`.
    pub(super) fn merge(
        &mut self,
        returns: &mut Vec<Return>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if !has_pair(returns) {
            return Ok(());
        }
        let mut left = MAX_NEW;
        fuel.burn(returns.len() as u64)?;
        let known = reads.len();
        loop {
            match self.try_merge(returns, reads) {
                Merged::Returns(merged) => {
                    *returns = merged;
                    return Ok(());
                }
                Merged::Needs(contexts) => {
                    reads.truncate(known);
                    self.unite(contexts, &mut left, fuel)?;
                }
            }
        }
    }

    /// Makes the union of some contexts known, with at most `left` unions more of what lies below; where
    /// that isn't enough, that it is too large.
    fn unite(
        &mut self,
        contexts: Box<[ContextId]>,
        left: &mut u32,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let mut pending = vec![contexts];
        while let Some(contexts) = pending.last() {
            let returns = contexts
                .iter()
                .map(|&context| self.contexts.returns(context));
            let mut returns: Vec<Return> = returns.flatten().copied().collect();
            fuel.burn(1 + returns.len() as u64)?;
            returns.sort_unstable();
            returns.dedup();
            let mut reads = Vec::new();
            match self.try_merge(&returns, &mut reads) {
                Merged::Returns(mut merged) => {
                    self.drop_implied(&mut merged);
                    let union = self.interned_context(&merged);
                    reads.sort_unstable();
                    reads.dedup();
                    if let Some(contexts) = pending.pop() {
                        self.unions.insert(contexts, Some(union), reads);
                    }
                }
                Merged::Needs(contexts) if *left > 0 => {
                    *left -= 1;
                    pending.push(contexts);
                }
                Merged::Needs(_) => {
                    // Side by side they mean the same, wherever that is decided.
                    if let Some(contexts) = pending.drain(..).next() {
                        self.unions.insert(contexts, None, Vec::new());
                    }
                }
            }
        }
        Ok(())
    }
}
