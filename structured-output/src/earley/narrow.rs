//! States with one way for each lexeme, in place of all ways to read an ambiguous text.
//!
//! What may follow a state with some of its ways may follow the state, so such states tell most tokens
//! that are allowed, at a fraction of the cost: where a text may be read in very many ways, it takes only
//! one to go on. What they don't allow has to be asked of the state itself.

use hashbrown::HashMap;

use super::context::{AT_END, ContextId, Return};
use super::parser::{Item, Parser, StateId};
use crate::lexical::{Fuel, Stop};
use crate::pushdown::Machine;

/// Contexts with the one stack of theirs that is the shortest to complete.
#[derive(Default)]
pub(super) struct Narrowed {
    known: HashMap<ContextId, ContextId>,
}

impl Narrowed {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.known.capacity() * (size_of::<(ContextId, ContextId)>() + 1)
    }
}

impl Parser {
    /// A state with one stack for each of its lexemes.
    pub(crate) fn narrowed(
        &mut self,
        machine: &mut Machine,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<StateId, Stop> {
        let mut items = Vec::with_capacity(self.items(state).len());
        for at in 0..self.items(state).len() {
            let item = self.items(state)[at];
            let context = self.one_stack(item.context, fuel)?;
            items.push(Item { context, ..item });
        }
        // Counts that are read for one stack now are mostly one of them, which holds all.
        self.join_counted(machine, &mut items);
        Ok(self.state_of(items, fuel)?.unwrap_or(state))
    }

    /// One stack of a context: at each place the one that is the shortest to complete.
    fn one_stack(&mut self, context: ContextId, fuel: &mut Fuel) -> Result<ContextId, Stop> {
        let mut way = Vec::new();
        let mut at = context;
        let mut narrow = loop {
            if at == AT_END {
                break AT_END;
            }
            if let Some(&known) = self.narrowed.known.get(&at) {
                break known;
            }
            let returns = self.contexts.returns(at);
            fuel.burn(1 + returns.len() as u64)?;
            let length = |place: &Return| match *place {
                Return::END => 0,
                Return { node, context } => super::length::add(
                    self.program.node(node).min_length,
                    self.contexts.min_length(context),
                ),
            };
            let Some(&place) = returns.iter().min_by_key(|place| length(place)) else {
                break at;
            };
            way.push((at, place));
            at = place.context;
            if place == Return::END {
                break AT_END;
            }
        };
        for (whole, place) in way.into_iter().rev() {
            if place != Return::END {
                narrow = self.context_of(Return {
                    node: place.node,
                    context: narrow,
                });
            }
            self.narrowed.known.insert(whole, narrow);
        }
        Ok(narrow)
    }
}
