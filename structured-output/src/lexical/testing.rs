//! What tests of languages have in common.

use super::arena::{ExprId, Lexicon, Node};

/// Random numbers, each below a bound: the same ones for the same seed, which isn't 0 (xorshift).
pub(crate) fn numbers_below(mut seed: u64) -> impl FnMut(u32) -> u32 {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % u64::from(below)) as u32
    }
}

/// All texts of at most seven `a` and `b`.
pub(super) fn short_texts() -> Vec<Vec<u8>> {
    (0..=7)
        .flat_map(|len| (0..1_u32 << len).map(move |bits| (len, bits)))
        .map(|(len, bits)| (0..len).map(|at| b'a' + (bits >> at & 1) as u8).collect())
        .collect()
}

/// Where strings of an expression that begin at one of some places of a text end, a bit for each: read from
/// what the expression is made of, without a derivative.
pub(super) fn ends(l: &Lexicon, expr: ExprId, text: &[u8], from: u32) -> u32 {
    match l.node(expr) {
        Node::Epsilon => from,
        Node::Class(set) => {
            let set = l.set(set);
            let is_read = |at: &usize| from >> at & 1 == 1 && set.contains(text[*at]);
            (0..text.len())
                .filter(is_read)
                .fold(0, |to, at| to | 2 << at)
        }
        Node::Concat(head, tail) => {
            let between = ends(l, head, text, from);
            ends(l, tail, text, between)
        }
        Node::Or(at) => {
            let operands = l.operands(at).iter();
            operands.fold(0, |to, &one| to | ends(l, one, text, from))
        }
        Node::Repeat { body, min, max } => {
            let (mut all, mut at) = (0, from);
            // More repetitions than the text has places reach nothing new.
            for times in 0..=max.min(min + 16) {
                if times >= min {
                    all |= at;
                }
                at = ends(l, body, text, at);
            }
            all
        }
        _ => panic!("not in this test"),
    }
}
