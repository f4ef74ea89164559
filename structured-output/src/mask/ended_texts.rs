//! A walk along finitely many texts: which tokens a language loses with them.

use std::ops::Range;

use hashbrown::HashSet;

use crate::index::{ROOT, Trie};
use crate::lexical::{EMPTY, EPSILON, ExprId, Fuel, Lexicon, Stop};

/// Along more nodes than these the walk is no longer worth it.
const MAX_NODES: u32 = 8192;

/// Places of walks by [`ended_texts`], a node with what is left of the language and of the texts,
/// below which no text is over.
pub(crate) type Fruitless = HashSet<(u32, ExprId, ExprId)>;

/// Of an infinite language less finitely many texts, the tokens that the language allows only with
/// one of these texts: those at and below the nodes where one is over, and what the language still
/// allows is nothing more. `None` where the language would go on there, then that can't be told; and
/// where the texts are very many.
///
/// Costs a step per node of the trie along the texts, but for those below a place that is known to
/// be `fruitless`: so one text more costs about its length, and that of others that end in tokens.
pub(crate) fn ended_texts(
    lexicon: &mut Lexicon,
    trie: &Trie,
    whole: ExprId,
    texts: ExprId,
    fruitless: &mut Fruitless,
    fuel: &mut Fuel,
) -> Result<Option<Vec<Range<u32>>>, Stop> {
    if lexicon.is_nullable(whole) {
        return Ok(None);
    }
    let mut ended = Vec::new();
    let mut num_nodes = 0;
    // Where a place is left again: how many had ended when it was entered.
    let mut pending = vec![((ROOT, whole, texts), None)];
    while let Some((place, entered)) = pending.pop() {
        if let Some(before) = entered {
            if ended.len() == before {
                fruitless.insert(place);
            }
            continue;
        }
        pending.push((place, Some(ended.len())));
        let (node, whole, texts) = place;
        for byte in lexicon.first_bytes(texts, fuel)?.iter() {
            fuel.burn(1)?;
            num_nodes += 1;
            if num_nodes > MAX_NODES {
                return Ok(None);
            }
            let Some(child) = trie.child(node, byte) else {
                continue;
            };
            let whole = lexicon.derivative(whole, byte, fuel)?;
            let texts = lexicon.derivative(texts, byte, fuel)?;
            if whole == EMPTY || fruitless.contains(&(child, whole, texts)) {
                continue;
            }
            if lexicon.is_infinite(whole) && !lexicon.is_nullable(whole) {
                pending.push(((child, whole, texts), None));
            } else if whole != EPSILON {
                return Ok(None);
            } else if lexicon.is_nullable(texts) {
                ended.push(trie.below(child));
            }
        }
    }
    Ok(Some(ended))
}
