//! What may follow a place of a grammar wherever its rule is called.
//!
//! A context says what a rule returns to. Without it, a rule that is over returns to all that call it: a
//! finite automaton, whose texts hold all that may follow. What it refuses is refused in each context, so
//! it tells tokens that an ambiguous state can't go on with, without a look at the ways to read the text.

use hashbrown::{HashMap, HashSet};

use super::context::Return;
use super::parser::{Parser, StateId};
use super::program::{Lexeme, NodeId};
use crate::lexical::{Fuel, Stop};

/// A lexeme, and the place after it.
pub(crate) type Follower = (Lexeme, NodeId);

/// What may follow places, wherever their rules are called.
#[derive(Default)]
pub(super) struct Anywhere {
    /// Grammars of which that is known, by their first node.
    known: HashSet<u32>,
    /// Where the rules return to that may be over at a node.
    outer: HashMap<NodeId, Vec<NodeId>>,
    /// What is read first from nodes on.
    first: HashMap<NodeId, Box<[Follower]>>,
    bytes: usize,
}

impl Anywhere {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.known.capacity() * 5
            + self.outer.capacity() * size_of::<(NodeId, Vec<NodeId>)>()
            + self.first.capacity() * size_of::<(NodeId, Box<[Follower]>)>()
    }
}

impl Parser {
    /// A number of the grammar that a state belongs to.
    pub(crate) fn grammar_of(&self, state: StateId) -> u32 {
        let items = self.items(state).iter();
        let mut places = items.flat_map(|item| self.contexts.returns(item.context));
        let place = places.find(|place| **place != Return::END);
        place.map_or(u32::MAX, |place| self.program.grammar_of(place.node).start)
    }

    /// A state's lexemes with the places that follow them.
    pub(crate) fn followers(&self, state: StateId) -> Vec<Follower> {
        let mut followers = Vec::new();
        for item in self.items(state) {
            let returns = self.contexts.returns(item.context);
            followers.extend(returns.iter().map(|place| (item.lexeme, place.node)));
        }
        followers
    }

    /// The place after a lexeme that ends with a tag, of one that stands for several.
    pub(crate) fn choice(&self, place: NodeId, tag: u16) -> Option<NodeId> {
        self.program.choice(place, tag)
    }

    /// What is read first from a node on, in any context.
    pub(crate) fn first_anywhere(
        &mut self,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<&[Follower], Stop> {
        if node == Return::END.node {
            return Ok(&[]);
        }
        self.find_outer(node, fuel)?;
        if !self.anywhere.first.contains_key(&node) {
            let mut followers = HashSet::new();
            let mut met: HashSet<NodeId> = HashSet::from_iter([node]);
            let mut pending = vec![node];
            while let Some(id) = pending.pop() {
                let at = self.program.node(id);
                let lexemes = self.program.lexemes(at);
                let calls = self.program.calls(at);
                let outer = self.anywhere.outer.get(&id).map_or(&[][..], Vec::as_slice);
                fuel.burn(1 + (lexemes.len() + calls.len() + outer.len()) as u64)?;
                followers.extend(lexemes.iter().copied());
                let next = calls.iter().map(|call| call.start);
                let next = next.chain(outer.iter().copied());
                pending.extend(next.filter(|&next| met.insert(next)));
            }
            let followers: Box<[Follower]> = followers.into_iter().collect();
            self.anywhere.bytes += size_of_val(&*followers);
            self.anywhere.first.insert(node, followers);
        }
        let first = self.anywhere.first.get(&node);
        Ok(first.map_or(&[], |first| first))
    }

    /// Makes known where the rules of a node's grammar return to. Grammars have no nodes in common.
    fn find_outer(&mut self, node: NodeId, fuel: &mut Fuel) -> Result<(), Stop> {
        let nodes = self.program.grammar_of(node);
        if self.anywhere.known.contains(&nodes.start) {
            return Ok(());
        }
        let mut callers: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for id in nodes.clone() {
            let node = self.program.node(NodeId(id));
            fuel.burn(1)?;
            for call in self.program.calls(node) {
                callers.entry(call.start).or_default().push(call.target);
            }
        }
        let mut outer: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for (start, mut targets) in callers {
            targets.sort_unstable();
            targets.dedup();
            let mut met: HashSet<NodeId> = HashSet::from_iter([start]);
            let mut pending = vec![start];
            while let Some(id) = pending.pop() {
                let node = self.program.node(id);
                let (lexemes, calls) = (self.program.lexemes(node), self.program.calls(node));
                fuel.burn(1 + (lexemes.len() + calls.len()) as u64)?;
                if node.accepting {
                    fuel.burn(targets.len() as u64)?;
                    outer.entry(id).or_default().extend_from_slice(&targets);
                }
                let next = lexemes.iter();
                let next = next.flat_map(|(_, target)| self.program.targets(*target));
                let next = next.chain(calls.iter().map(|call| call.target));
                pending.extend(next.filter(|&next| met.insert(next)));
            }
        }
        self.anywhere.bytes += outer.values().map(|of| of.len() * 4).sum::<usize>();
        self.anywhere.outer.extend(outer);
        self.anywhere.known.insert(nodes.start);
        Ok(())
    }
}
