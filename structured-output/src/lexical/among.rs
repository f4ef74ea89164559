//! Characters that are all among others.

use super::arena::{ExprId, Lexicon, Node};
use super::byte_set::ByteSet;

/// Steps after which characters are not known to be among others.
const MAX_STEPS: u32 = 20_000;

/// Bytes of a character, and the end.
const MAX_BYTES: u32 = 5;

impl Lexicon {
    /// Whether all strings of an expression are strings of another one: sets of characters, of which each is
    /// written as sequences and alternatives of classes.
    pub(super) fn are_among(&self, expr: ExprId, of: ExprId, num_steps: &mut u64) -> bool {
        let mut left = MAX_STEPS;
        let found = all_are_among(self, &[expr], &[vec![of]], MAX_BYTES, &mut left);
        *num_steps += u64::from(MAX_STEPS - left);
        found
    }
}

/// What a sequence of classes, and of sequences and alternatives of them, begins with and goes on with. The
/// sequence is given from the last to the first.
struct Heads {
    heads: Vec<(ByteSet, Vec<ExprId>)>,
    may_be_nothing: bool,
}

fn add_heads(
    lexicon: &Lexicon,
    sequence: &[ExprId],
    found: &mut Heads,
    left: &mut u32,
) -> Option<()> {
    let mut pending = vec![sequence.to_vec()];
    while let Some(mut way) = pending.pop() {
        *left = left.checked_sub(1)?;
        let Some(first) = way.pop() else {
            found.may_be_nothing = true;
            continue;
        };
        match lexicon.node(first) {
            Node::Epsilon => pending.push(way),
            Node::Class(set) => found.heads.push((lexicon.set(set), way)),
            Node::Concat(head, tail) => {
                way.extend([tail, head]);
                pending.push(way);
            }
            Node::Or(at) => {
                for &operand in lexicon.operands(at) {
                    let mut one = way.clone();
                    one.push(operand);
                    pending.push(one);
                }
            }
            _ => return None,
        }
    }
    Some(())
}

/// Whether all strings of a finite language are strings of others, each written from the last factor to the
/// first. Recurses by the bytes of a string: those of characters.
fn all_are_among(
    lexicon: &Lexicon,
    own: &[ExprId],
    others: &[Vec<ExprId>],
    num_bytes: u32,
    left: &mut u32,
) -> bool {
    let Some(num_bytes_after) = num_bytes.checked_sub(1) else {
        return false;
    };
    let nothing = || Heads {
        heads: Vec::new(),
        may_be_nothing: false,
    };
    let (mut of_own, mut of_others) = (nothing(), nothing());
    let are_known = add_heads(lexicon, own, &mut of_own, left).is_some()
        && others
            .iter()
            .all(|other| add_heads(lexicon, other, &mut of_others, left).is_some());
    if !are_known || (of_own.may_be_nothing && !of_others.may_be_nothing) {
        return false;
    }
    for (mut bytes, rest) in of_own.heads {
        while let Some(byte) = bytes.iter().next() {
            let mut alike = bytes;
            let mut next = Vec::new();
            for (set, rest) in &of_others.heads {
                if set.contains(byte) {
                    alike = alike.intersection(set);
                    next.push(rest.clone());
                } else {
                    alike = alike.intersection(&set.complement());
                }
            }
            if next.is_empty() || !all_are_among(lexicon, &rest, &next, num_bytes_after, left) {
                return false;
            }
            bytes = bytes.intersection(&alike.complement());
        }
    }
    true
}
