//! Entering contexts: the nodes returned to, the rules called there, their first lexemes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::HashSet;

use super::context::{AT_END, ContextId, Return};
use super::parser::{Item, Parser};
use super::program::{Lexeme, NodeId};
use super::reads::FAR;
use crate::lexical::{Fuel, Stop};

/// What is read first in a context.
#[derive(Clone)]
pub(super) struct Entered {
    items: Box<[Item]>,
    /// Contexts that had to be looked into, the context itself first.
    reads: Box<[ContextId]>,
}

/// Where a context returns to, also through rules that may be over: at most one place for each node, as
/// far as unions go. It is made of the closures of the contexts below, so that open rules that may all be
/// over, such as `if`s without their `else`, are not looked at one by one.
pub(super) struct Closure {
    places: Box<[Return]>,
    /// Contexts that had to be looked into, the context itself first.
    reads: Box<[ContextId]>,
}

/// A closure that looked into more contexts counts as one that looked into any.
const MAX_READS: usize = 256;

/// Callers by the rule called, rules that may begin with others first.
type Callers = BTreeMap<(Reverse<u32>, NodeId), Vec<Return>>;

/// Returns up to which what is read first after them is remembered: more come only with texts that
/// may be read in many ways, and hardly ever again.
const MAX_REMEMBERED: usize = 64;

impl Parser {
    /// Adds what is read first in a context.
    pub(super) fn enter(
        &mut self,
        context: ContextId,
        items: &mut Vec<Item>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let returns = self.contexts.returns(context);
        if returns.len() > MAX_REMEMBERED {
            let returns = returns.to_vec();
            let entered = self.expand(vec![context], returns, fuel)?;
            self.note(&entered.reads);
            items.extend_from_slice(&entered.items);
            return Ok(());
        }
        if !self.entered.contains_key(&context) {
            let returns = returns.to_vec();
            let entered = self.expand(vec![context], returns, fuel)?;
            self.entered_bytes += size_of::<(ContextId, Entered)>()
                + entered.items.len() * size_of::<Item>()
                + entered.reads.len() * size_of::<ContextId>();
            self.entered.insert(context, entered);
        }
        if let Some(entered) = self.entered.get(&context) {
            items.extend_from_slice(&entered.items);
            self.reads.note(&entered.reads);
        }
        Ok(())
    }

    /// Adds what is read first at some places, which are sorted and where none is implied by others.
    pub(super) fn enter_all(
        &mut self,
        returns: Vec<Return>,
        items: &mut Vec<Item>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if returns.len() <= MAX_REMEMBERED {
            let context = self.interned_context(&returns);
            return self.enter(context, items, fuel);
        }
        let entered = self.expand(Vec::new(), returns, fuel)?;
        self.note(&entered.reads);
        items.extend_from_slice(&entered.items);
        Ok(())
    }

    fn expand(
        &mut self,
        mut reads: Vec<ContextId>,
        entered: Vec<Return>,
        fuel: &mut Fuel,
    ) -> Result<Entered, Stop> {
        let mut items = Vec::new();
        let mut places = Vec::with_capacity(entered.len());
        let mut callers = Callers::new();
        for place in entered {
            fuel.burn(1)?;
            places.push(place);
            if place != Return::END && self.program.node(place.node).accepting {
                self.add_closure(place.context, &mut places, &mut reads, fuel)?;
            }
        }
        places.sort_unstable();
        places.dedup();
        // The last in order.
        if places.pop_if(|place| *place == Return::END).is_some() {
            items.push(Item {
                lexeme: Lexeme::End,
                context: AT_END,
            });
        }
        self.merge(&mut places, &mut reads, fuel)?;
        for Return { node, context } in places {
            self.leave(node, context, &mut items, &mut callers, &mut reads, fuel)?;
        }
        while let Some(((_, start), returns)) = callers.pop_first() {
            if returns.len() > self.max_items {
                return Err(Stop::Items);
            }
            let inner = self.context(returns, &mut reads, fuel)?;
            let before = reads.len();
            self.leave(start, inner, &mut items, &mut callers, &mut reads, fuel)?;
            // What was read to make it is noted already.
            let noted = reads.split_off(before);
            reads.extend(noted.into_iter().filter(|&context| context != inner));
        }
        self.join(&mut items, &mut reads, fuel)?;
        if items.len() > self.max_items {
            return Err(Stop::Items);
        }
        keep_first(&mut reads);
        Ok(Entered {
            items: items.into(),
            reads: reads.into(),
        })
    }

    /// Adds all places that a context returns to, those included to which rules return that may be over
    /// there. What had to be looked into goes to `reads`.
    fn add_closure(
        &mut self,
        context: ContextId,
        places: &mut Vec<Return>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        self.find_closure(context, fuel)?;
        self.add_known_closure(context, places, reads, fuel)
    }

    /// Makes known where a context returns to, and those below it that this needs.
    fn find_closure(&mut self, context: ContextId, fuel: &mut Fuel) -> Result<(), Stop> {
        let mut pending = vec![context];
        while let Some(&at) = pending.last() {
            if self.closures.contains_key(&at) {
                pending.pop();
                continue;
            }
            let returns = self.contexts.returns(at).to_vec();
            fuel.burn(1 + returns.len() as u64)?;
            let outer =
                |place: &&Return| **place != Return::END && self.program.node(place.node).accepting;
            let outer: Vec<ContextId> = returns
                .iter()
                .filter(outer)
                .map(|place| place.context)
                .collect();
            let num_pending = pending.len();
            pending.extend(
                outer
                    .iter()
                    .filter(|outer| !self.closures.contains_key(*outer)),
            );
            if pending.len() > num_pending {
                continue;
            }
            let mut places = returns;
            let mut reads = vec![at];
            for outer in outer {
                self.add_known_closure(outer, &mut places, &mut reads, fuel)?;
            }
            places.sort_unstable();
            places.dedup();
            self.merge(&mut places, &mut reads, fuel)?;
            keep_first(&mut reads);
            if reads.len() > MAX_READS || reads.contains(&FAR) {
                reads = vec![FAR];
            }
            self.entered_bytes += size_of::<(ContextId, Closure)>()
                + places.len() * size_of::<Return>()
                + reads.len() * size_of::<ContextId>();
            let closure = Closure {
                places: places.into(),
                reads: reads.into(),
            };
            self.closures.insert(at, closure);
            pending.pop();
        }
        Ok(())
    }

    /// Adds a closure that is known.
    fn add_known_closure(
        &self,
        context: ContextId,
        places: &mut Vec<Return>,
        reads: &mut Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let Some(closure) = self.closures.get(&context) else {
            return Ok(());
        };
        fuel.burn(closure.places.len() as u64)?;
        places.extend_from_slice(&closure.places);
        reads.extend_from_slice(&closure.reads);
        Ok(())
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
    ) -> Result<(), Stop> {
        let node = self.program.node(id);
        for at in 0..self.program.lexemes(node).len() {
            fuel.burn(1)?;
            let (lexeme, target) = self.program.lexemes(node)[at];
            let context = self.after(target, context, reads, fuel)?;
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
            let is_last = self.program.is_last(call.target);
            let place = match is_last {
                true => None,
                false => Some(self.return_to(call.target, context, reads, fuel)?),
            };
            let returns = callers.entry((Reverse(call.rank), call.start)).or_default();
            match place {
                Some(place) => returns.push(place),
                None => {
                    reads.push(context);
                    let outer = self.contexts.returns(context);
                    fuel.burn(outer.len() as u64)?;
                    returns.extend_from_slice(outer);
                }
            }
        }
        Ok(())
    }
}

/// Leaves each context once, in order.
fn keep_first(reads: &mut Vec<ContextId>) {
    /// So many are compared with each other.
    const FEW: usize = 16;
    if reads.len() > FEW {
        let mut known = HashSet::new();
        reads.retain(|&context| known.insert(context));
        return;
    }
    let mut len = 0;
    for at in 0..reads.len() {
        if !reads[..len].contains(&reads[at]) {
            reads[len] = reads[at];
            len += 1;
        }
    }
    reads.truncate(len);
}
