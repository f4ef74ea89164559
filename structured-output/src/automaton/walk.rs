//! Walks of the whole machine, stack included, through a trie of bytes.

use super::{State, TokenAutomaton};
use crate::index::Trie;
use crate::lexical::{Fuel, OutOfFuel};

impl TokenAutomaton {
    /// Runs the machine over every word of a trie of bytes that begins with the edge to one of some
    /// nodes, as far as it survives. `start` is the state before those edges; `reached` is given the
    /// tokens of each node and the state after them.
    ///
    /// Where a state depends on the text of a key that began before the walk, the walk doesn't know
    /// it: the tokens from there on go to `unsure`.
    pub(super) fn walk_states(
        &mut self,
        trie: &Trie,
        nodes: impl Iterator<Item = u32>,
        start: State,
        fuel: &mut Fuel,
        mut reached: impl FnMut(&[u32], State),
        unsure: &mut Vec<u32>,
    ) -> Result<(), OutOfFuel> {
        let mut pending: Vec<(u32, State)> = nodes.map(|node| (node, start)).collect();
        while let Some((node, state)) = pending.pop() {
            fuel.burn(1)?;
            let next = self.machine.step(state, trie.label(node), fuel)?;
            if std::mem::take(&mut self.machine.reads.key) {
                unsure.extend_from_slice(trie.ids(trie.below(node)));
                continue;
            }
            let Some(next) = next else {
                continue;
            };
            let tokens = trie.ids(trie.own(node));
            if !tokens.is_empty() {
                reached(tokens, next);
            }
            pending.extend(trie.children(node).map(|child| (child, next)));
        }
        Ok(())
    }
}
