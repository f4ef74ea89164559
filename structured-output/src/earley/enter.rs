//! Entering contexts: the nodes returned to, the rules called there, their first lexemes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::HashSet;

use super::context::{AT_END, ContextId, Return};
use super::parser::{Item, Parser};
use super::program::{Lexeme, NodeId};
use crate::lexical::{Fuel, OutOfFuel};

/// What is read first in a context.
#[derive(Clone)]
pub(super) struct Entered {
    items: Box<[Item]>,
    /// Contexts that had to be looked into, the context itself first.
    reads: Box<[ContextId]>,
}

/// Callers by the rule called, rules that may begin with others first.
type Callers = BTreeMap<(Reverse<u32>, NodeId), Vec<Return>>;

impl Parser {
    /// What is read first in a context.
    pub(super) fn enter(
        &mut self,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<&[Item], OutOfFuel> {
        if !self.entered.contains_key(&context) {
            let entered = self.expand(context, fuel)?;
            self.entered_bytes += size_of::<(ContextId, Entered)>()
                + entered.items.len() * size_of::<Item>()
                + entered.reads.len() * size_of::<ContextId>();
            self.entered.insert(context, entered);
        }
        let Some(entered) = self.entered.get(&context) else {
            return Ok(&[]);
        };
        if let Some(log) = &mut self.log {
            log.extend_from_slice(&entered.reads);
        }
        Ok(&entered.items)
    }

    fn expand(&mut self, context: ContextId, fuel: &mut Fuel) -> Result<Entered, OutOfFuel> {
        let mut reads = vec![context];
        let mut items = Vec::new();
        let mut callers = Callers::new();
        let mut pending: Vec<Return> = self.contexts.returns(context).to_vec();
        let mut seen: HashSet<Return> = pending.iter().copied().collect();
        while let Some(place) = pending.pop() {
            fuel.burn(1)?;
            let Return::To(id, outer) = place else {
                items.push(Item {
                    lexeme: Lexeme::End,
                    context: AT_END,
                });
                continue;
            };
            if self.program.node(id).accepting {
                reads.push(outer);
                for &place in self.contexts.returns(outer) {
                    fuel.burn(1)?;
                    if seen.insert(place) {
                        pending.push(place);
                    }
                }
            }
            self.leave(id, outer, &mut items, &mut callers, &mut reads, fuel)?;
        }
        while let Some(((_, start), returns)) = callers.pop_first() {
            let inner = self.context(returns);
            // What was read to make it is noted already; it has no outer context of its own.
            self.leave(
                start,
                inner,
                &mut items,
                &mut callers,
                &mut Vec::new(),
                fuel,
            )?;
        }
        items.sort_unstable();
        items.dedup();
        if items.len() > self.max_items {
            self.too_many_items = true;
            return Err(OutOfFuel);
        }
        let mut known = HashSet::new();
        reads.retain(|&context| known.insert(context));
        Ok(Entered {
            items: items.into(),
            reads: reads.into(),
        })
    }

    /// Adds a node's lexemes and calls.
    fn leave(
        &mut self,
        id: NodeId,
        context: ContextId,
        items: &mut Vec<Item>,
        callers: &mut Callers,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let node = self.program.node(id);
        for at in 0..self.program.lexemes(node).len() {
            fuel.burn(1)?;
            let (lexeme, target) = self.program.lexemes(node)[at];
            let context = self.after(target, context);
            // A stop token is the last: only where nothing needs to follow.
            let comes_too_early =
                matches!(lexeme, Lexeme::Stop(_)) && self.contexts.min_length(context) > 0;
            if !comes_too_early {
                items.push(Item { lexeme, context });
            }
        }
        for at in 0..self.program.calls(node).len() {
            fuel.burn(1)?;
            let call = self.program.calls(node)[at];
            let returns = callers.entry((Reverse(call.rank), call.start)).or_default();
            if self.program.is_last(call.target) {
                reads.push(context);
                let outer = self.contexts.returns(context);
                fuel.burn(outer.len() as u64)?;
                returns.extend_from_slice(outer);
            } else {
                returns.push(Return::To(call.target, context));
            }
        }
        Ok(())
    }
}
