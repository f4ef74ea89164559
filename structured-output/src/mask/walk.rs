//! The walk of an automaton through a trie of tokens.

use crate::index::Trie;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, OutOfFuel};

/// Runs the automaton from `start` over every word of the trie, as far as it survives. For each
/// node that it reaches and that has tokens, `reached` is given their range in [`Trie::tokens`] and
/// the state after them. Costs a step per node looked at.
///
/// The state's expression must fit the trie's alphabet ([`Lexicon::fits_alphabet`]).
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    trie: &Trie,
    start: ExprId,
    fuel: &mut Fuel,
    mut reached: impl FnMut(std::ops::Range<u32>, ExprId),
) -> Result<(), OutOfFuel> {
    // One byte stands for its class.
    let bytes: Vec<u8> = trie
        .classes()
        .iter()
        .filter_map(|class| class.iter().next())
        .collect();
    // The state at each node on the path, and where the nodes below it end.
    let mut path: Vec<(ExprId, u32)> = Vec::new();
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
        let byte = bytes[usize::from(trie.label(node))];
        let next = lexicon.derivative(state, byte, fuel)?;
        if next == EMPTY || !lexicon.is_live(next, fuel)? {
            node = trie.end(node);
            continue;
        }
        let tokens = trie.token_start(node)..trie.token_start(node + 1);
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
