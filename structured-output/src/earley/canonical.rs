//! Contexts and states in one form, so that fewer are told apart that mean the same.
//!
//! A state is a set of texts that may follow, and so is a context; how they came about makes no
//! difference. Four equations keep ambiguous texts from making ever more of them:
//! * What returns to a node where its rule may end returns to that rule's callers too, so these need
//!   no mention beside it: `C(n) c + c = C(n) c` where `C(n)` holds the empty text.
//! * A node that is a loop, such as that of `("," item)*`, is as good once as many times one after
//!   the other: `C(n) C(n) = C(n)`.
//! * A node that is returned to in several contexts is returned to in their union (see `union`):
//!   `n c + n d = n (c + d)`.
//! * A lexeme that is read for several contexts is read once for their union, and counts that are read
//!   for one context are one language.

use hashbrown::HashSet;

use super::context::{ContextId, Return};
use super::parser::{Item, Parser};
use super::program::{Lexeme, NodeId};
use crate::lexical::{ExprId, Fuel, Stop};
use crate::pushdown::{EMPTY_STACK, Machine};

/// Returns up to which what others imply is looked for, in all contexts that are looked into.
const MAX_IMPLIED: usize = 1 << 14;

impl Parser {
    /// The context of some returns. What had to be looked into goes to `reads`.
    pub(super) fn context(
        &mut self,
        mut returns: Vec<Return>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<ContextId, Stop> {
        self.reduce(&mut returns, reads, fuel)?;
        Ok(self.interned_context(&returns))
    }

    /// The context of one return.
    pub(super) fn context_of(&mut self, place: Return) -> ContextId {
        self.interned_context(&[place])
    }

    /// The context of returns that are reduced.
    pub(super) fn interned_context(&mut self, returns: &[Return]) -> ContextId {
        let program = &self.program;
        self.contexts
            .intern(returns, |node| program.node(node).min_length)
    }

    /// Sorts returns, joins those to one node and drops those that others imply. What had to be
    /// looked into goes to `reads`.
    pub(super) fn reduce(
        &mut self,
        returns: &mut Vec<Return>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        returns.sort_unstable();
        returns.dedup();
        self.merge(returns, reads, fuel)?;
        self.drop_implied(returns);
        Ok(())
    }

    /// Drops those of sorted returns that others imply.
    pub(super) fn drop_implied(&mut self, returns: &mut Vec<Return>) {
        if returns.len() < 2 {
            return;
        }
        let mut implied: HashSet<Return> = HashSet::new();
        let mut looked_at = 0;
        for place in returns.iter() {
            if *place == Return::END || !self.program.node(place.node).accepting {
                continue;
            }
            let outer = self.contexts.returns(place.context);
            looked_at += outer.len();
            if looked_at > MAX_IMPLIED {
                break;
            }
            implied.extend(outer);
        }
        if !implied.is_empty() {
            returns.retain(|place| !implied.contains(place));
        }
    }

    /// What follows a lexeme or a call that leads to a node: a rule that is over returns at once.
    /// What had to be looked into goes to `reads`.
    pub(super) fn after(
        &mut self,
        node: NodeId,
        context: ContextId,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<ContextId, Stop> {
        if self.program.is_last(node) {
            return Ok(context);
        }
        let place = self.return_to(node, context, reads, fuel)?;
        Ok(self.context_of(place))
    }

    /// The place of a node with the context of its rule.
    pub(super) fn return_to(
        &mut self,
        node: NodeId,
        context: ContextId,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<Return, Stop> {
        let mut context = context;
        let is_same = |place: &Return| place.node == node;
        if self.program.node(node).is_loop && self.contexts.returns(context).iter().any(is_same) {
            reads.push(context);
            let mut flat = Vec::new();
            for place in self.contexts.returns(context) {
                if place.node == node {
                    // None of these returns to the loop itself: it was made here too.
                    reads.push(place.context);
                    flat.extend_from_slice(self.contexts.returns(place.context));
                } else {
                    flat.push(*place);
                }
            }
            context = self.context(flat, reads, fuel)?;
        }
        Ok(Return { node, context })
    }

    /// Sorts items and joins those of one lexeme. What had to be looked into goes to `reads`.
    pub(super) fn join(
        &mut self,
        items: &mut Vec<Item>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        items.sort_unstable();
        items.dedup();
        if items
            .windows(2)
            .all(|pair| pair[0].lexeme != pair[1].lexeme)
        {
            return Ok(());
        }
        let mut joined = Vec::with_capacity(items.len());
        for group in items.chunk_by(|a, b| a.lexeme == b.lexeme) {
            let context = match group {
                [only] => only.context,
                _ => {
                    let contexts = group.iter().map(|item| item.context);
                    let returns = self.gathered(contexts, reads, fuel)?;
                    self.interned_context(&returns)
                }
            };
            joined.push(Item {
                lexeme: group[0].lexeme,
                context,
            });
        }
        *items = joined;
        Ok(())
    }

    /// Joins languages with counts in them that are read for one context: where they differ only in
    /// what is left of a count, one holds the other.
    pub(super) fn join_counted(&self, machine: &mut Machine, items: &mut Vec<Item>) {
        let counted = |machine: &Machine, item: &Item| match item.lexeme {
            Lexeme::Text(text) if text.stack == EMPTY_STACK => machine
                .lexicon
                .is_counted(text.lexeme)
                .then_some(text.lexeme),
            _ => None,
        };
        let mut languages: Vec<(ContextId, ExprId)> = items
            .iter()
            .filter_map(|item| Some((item.context, counted(machine, item)?)))
            .collect();
        languages.sort_unstable();
        languages.dedup();
        if languages.windows(2).all(|pair| pair[0].0 != pair[1].0) {
            return;
        }
        items.retain(|item| counted(machine, item).is_none());
        for group in languages.chunk_by(|a, b| a.0 == b.0) {
            let exprs: Vec<ExprId> = group.iter().map(|language| language.1).collect();
            let expr = machine.lexicon.or(&exprs);
            items.push(Item {
                lexeme: Lexeme::Text(machine.start_of_expression(expr)),
                context: group[0].0,
            });
        }
    }

    /// The returns of all contexts.
    pub(super) fn gathered(
        &mut self,
        contexts: impl Iterator<Item = ContextId>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<Vec<Return>, Stop> {
        let mut returns = Vec::new();
        for context in contexts {
            reads.push(context);
            let own = self.contexts.returns(context);
            fuel.burn(1 + own.len() as u64)?;
            returns.extend_from_slice(own);
        }
        self.reduce(&mut returns, reads, fuel)?;
        if returns.len() > self.max_items {
            return Err(Stop::Items);
        }
        Ok(returns)
    }
}
