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
//! where that isn't enough, returns to one node stay side by side, which means the same.

use hashbrown::HashMap;

use super::context::{ContextId, Return};
use super::parser::Parser;
use super::reads::FAR;
use crate::lexical::{Fuel, OutOfFuel};

/// So many unions are made for one set of returns.
const MAX_NEW: u32 = 256;

/// A union that looked into more contexts counts as one that looked into any.
const MAX_READS: usize = 32;

/// Unions that were made.
#[derive(Default)]
pub(super) struct Unions {
    /// By the two contexts, the smaller one first.
    known: HashMap<(ContextId, ContextId), Union>,
    /// Contexts looked into.
    reads: Vec<ContextId>,
}

/// The union of two contexts.
#[derive(Clone, Copy)]
struct Union {
    context: ContextId,
    /// Where the contexts lie that had to be looked into, apart from the two.
    reads: (u32, u32),
}

/// Returns, at most one for each node, or the union that is needed first.
enum Merged {
    Returns(Vec<Return>),
    Needs(ContextId, ContextId),
}

fn pair(a: ContextId, b: ContextId) -> (ContextId, ContextId) {
    (a.min(b), a.max(b))
}

/// Whether some of sorted returns lead to one node.
fn has_pair(returns: &[Return]) -> bool {
    returns.windows(2).any(|pair| pair[0].node == pair[1].node)
}

impl Unions {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.known.capacity() * (size_of::<((ContextId, ContextId), Union)>() + 1)
            + self.reads.capacity() * size_of::<ContextId>()
    }

    fn insert(&mut self, key: (ContextId, ContextId), context: ContextId, reads: Vec<ContextId>) {
        let start = self.reads.len() as u32;
        match reads.len() > MAX_READS || reads.contains(&FAR) {
            true => self.reads.push(FAR),
            false => self.reads.extend(reads),
        }
        let reads = (start, self.reads.len() as u32);
        self.known.insert(key, Union { context, reads });
    }
}

impl Parser {
    /// Whether one context holds another one: it is the same, or returns to it where a rule may end.
    /// Others may hold each other too.
    fn absorbs(&self, whole: ContextId, part: ContextId) -> bool {
        let returns_to_part = |place: &Return| {
            *place != Return::END
                && place.context == part
                && self.program.node(place.node).accepting
        };
        whole == part || self.contexts.returns(whole).iter().any(returns_to_part)
    }

    /// The union of two contexts, where it is known. What had to be looked into goes to `reads`.
    fn known_union(
        &self,
        a: ContextId,
        b: ContextId,
        reads: &mut Vec<ContextId>,
    ) -> Option<ContextId> {
        // The later one may hold the earlier one.
        let (earlier, later) = pair(a, b);
        let known = self.unions.known.get(&(earlier, later));
        if let Some(union) = known {
            let (start, end) = union.reads;
            reads.extend([a, b]);
            reads.extend_from_slice(&self.unions.reads[start as usize..end as usize]);
            return Some(union.context);
        }
        self.absorbs(later, earlier).then(|| {
            reads.push(later);
            later
        })
    }

    /// Joins those of sorted returns that lead to one node. A union that isn't known is asked for,
    /// or done without. What had to be looked into goes to `reads`.
    fn try_merge(&self, returns: &[Return], may_ask: bool, reads: &mut Vec<ContextId>) -> Merged {
        let mut merged = Vec::with_capacity(returns.len());
        for group in returns.chunk_by(|a, b| a.node == b.node) {
            let mut whole = group[0];
            for place in &group[1..] {
                match self.known_union(whole.context, place.context, reads) {
                    Some(union) => whole.context = union,
                    None if may_ask => return Merged::Needs(whole.context, place.context),
                    None => merged.push(*place),
                }
            }
            merged.push(whole);
        }
        merged.sort_unstable();
        merged.dedup();
        Merged::Returns(merged)
    }

    /// Joins those of sorted returns that lead to one node. What had to be looked into goes to
    /// `reads`.
    pub(super) fn merge(
        &mut self,
        returns: &mut Vec<Return>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        if !has_pair(returns) {
            return Ok(());
        }
        let mut left = MAX_NEW;
        fuel.burn(returns.len() as u64)?;
        let mut merged = Vec::with_capacity(returns.len());
        for group in returns.chunk_by(|a, b| a.node == b.node) {
            let mut whole = group[0];
            for place in &group[1..] {
                let (a, b) = (whole.context, place.context);
                let mut union = self.known_union(a, b, reads);
                if union.is_none() && left > 0 {
                    self.unite(a, b, &mut left, fuel)?;
                    union = self.known_union(a, b, reads);
                }
                match union {
                    Some(union) => whole.context = union,
                    None => merged.push(*place),
                }
            }
            merged.push(whole);
        }
        merged.sort_unstable();
        merged.dedup();
        *returns = merged;
        Ok(())
    }

    /// Makes the union of two contexts known, with at most `left` unions more of what lies below.
    fn unite(
        &mut self,
        a: ContextId,
        b: ContextId,
        left: &mut u32,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        *left = left.saturating_sub(1);
        let mut pending = vec![pair(a, b)];
        while let Some(&(a, b)) = pending.last() {
            let mut returns = [self.contexts.returns(a), self.contexts.returns(b)].concat();
            fuel.burn(1 + returns.len() as u64)?;
            returns.sort_unstable();
            returns.dedup();
            let mut reads = Vec::new();
            match self.try_merge(&returns, *left > 0, &mut reads) {
                Merged::Returns(mut merged) => {
                    self.drop_implied(&mut merged);
                    let union = self.interned_context(&merged);
                    reads.sort_unstable();
                    reads.dedup();
                    self.unions.insert((a, b), union, reads);
                    pending.pop();
                }
                Merged::Needs(a, b) => {
                    *left -= 1;
                    pending.push(pair(a, b));
                }
            }
        }
        Ok(())
    }
}
