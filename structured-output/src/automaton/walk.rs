//! Walks of the whole machine, stack included, through a trie of bytes.

use super::{State, TokenAutomaton};
use crate::index::Trie;
use crate::lexical::{Fuel, OutOfFuel};

impl TokenAutomaton {
    /// Runs the machine from `start` over every word of a trie of bytes, as far as it survives:
    /// `reached` is given the tokens of each node and the state after them.
    ///
    /// Where a state depends on the text of a key that began before the walk, the walk doesn't know
    /// it: the tokens from there on go to `unsure`.
    pub(super) fn walk_states(
        &mut self,
        trie: &Trie,
        start: State,
        fuel: &mut Fuel,
        mut reached: impl FnMut(&[u32], State),
        unsure: &mut Vec<u32>,
    ) -> Result<(), OutOfFuel> {
        let tokens_from = |from: u32, to: u32| {
            &trie.tokens()[trie.token_start(from) as usize..trie.token_start(to) as usize]
        };
        let mut path: Vec<(State, u32)> = Vec::new();
        let (mut state, mut end) = (start, trie.num_nodes());
        let mut node = 0;
        while node < trie.num_nodes() {
            while node == end {
                match path.pop() {
                    Some(above) => (state, end) = above,
                    None => return Ok(()),
                }
            }
            fuel.burn(1)?;
            // In the trie of bytes, a label is its byte.
            let next = self.machine.step(state, trie.byte(node), fuel)?;
            if std::mem::take(&mut self.machine.reads.key) {
                unsure.extend_from_slice(tokens_from(node, trie.end(node)));
                node = trie.end(node);
                continue;
            }
            let Some(next) = next else {
                node = trie.end(node);
                continue;
            };
            let tokens = tokens_from(node, node + 1);
            if !tokens.is_empty() {
                reached(tokens, next);
            }
            if trie.end(node) > node + 1 {
                path.push((state, end));
                (state, end) = (next, trie.end(node));
            }
            node += 1;
        }
        Ok(())
    }
}
