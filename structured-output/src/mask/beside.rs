//! Walks of two states side by side: what one allows, told by what another one does.

use std::ops::Range;

use hashbrown::HashMap;

use super::table::{Below, DEAD, Table};
use super::walk::Exit;
use crate::index::{ROOT, Trie};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, NO_MARK, Stop};

/// After so many bytes a state that doesn't lead to itself is given up.
const MOST_STEPS_TO_REST: usize = 4;

/// How two states differ on the tokens of a trie of bytes.
#[derive(Default)]
pub(crate) struct Difference {
    /// Tokens that only the first lets end within the lexeme.
    pub(crate) more: Vec<Range<u32>>,
    /// Tokens that the second accepts, or may accept by what follows its lexeme, and the first
    /// doesn't in the same way.
    pub(crate) less: Vec<Range<u32>>,
    /// Tokens with which the first ends the lexeme, and the second not in the same way.
    pub(crate) exits: Vec<Exit>,
}

/// Runs the automaton from `start` beside that from `reference`, as far as they differ: where both
/// are in the same state, what follows is the same too. The mask of `start` is then that of
/// `reference`, less some, and more.
pub(crate) fn walk_beside(
    lexicon: &mut Lexicon,
    trie: &Trie,
    start: ExprId,
    reference: ExprId,
    fuel: &mut Fuel,
) -> Result<Difference, Stop> {
    let mut table = Table::default();
    // By pair of states: nodes come to few pairs again and again.
    let mut apart_of: HashMap<(u32, u32), ByteSet> = HashMap::new();
    let mut difference = Difference::default();
    let start = table.state(lexicon, start);
    let reference = table.state(lexicon, reference);
    let mut pending = vec![(ROOT, trie.children(ROOT), start, reference, 0_u32)];
    while let Some((node, children, own, other, depth)) = pending.pop() {
        fuel.burn(1)?;
        let below = Below::of(trie, node);
        // Both allow whatever comes, without an end.
        let are_alike = |table: &Table| {
            let goes_on = |below| {
                let mut states = [own, other].into_iter();
                states.all(|state| state != DEAD && table.goes_on(state, below))
            };
            below.is_some_and(goes_on)
        };
        if are_alike(&table) {
            continue;
        }
        let mut is_found = false;
        for state in [own, other] {
            if state != DEAD {
                table.expand(lexicon, state, fuel)?;
                if let Some(below) = below {
                    is_found |= table.look_for_lasting(lexicon, state, below, fuel)?;
                }
            }
        }
        if is_found && are_alike(&table) {
            continue;
        }
        let mark_of = |state: u32| match state {
            DEAD => NO_MARK,
            _ if depth == 0 => NO_MARK,
            state => table.at(state).end_mark,
        };
        let (mark, other_mark) = (mark_of(own), mark_of(other));
        // Texts that end with several marks leave with each of them.
        let ends_in_ways = |state: u32, mark: u16| {
            mark != NO_MARK && !lexicon.joint_marks(table.expr(state)).is_empty()
        };
        let ends_alike = mark == other_mark
            && (own == other || !(ends_in_ways(own, mark) || ends_in_ways(other, mark)));
        // Where both end alike, only bytes after which they differ matter.
        let apart = match own == DEAD || other == DEAD || !ends_alike {
            true => ByteSet::FULL,
            false => *apart_of
                .entry((own, other))
                .or_insert_with(|| table.apart(lexicon, own, other)),
        };
        if apart.is_empty() {
            continue;
        }
        let few = apart.len() * 4 < children.len();
        let listed = few.then(|| apart.iter().filter_map(|byte| trie.child(node, byte)));
        let all = (!few).then_some(children);
        for child in listed
            .into_iter()
            .flatten()
            .chain(all.into_iter().flatten())
        {
            fuel.burn(1)?;
            let byte = trie.label(child);
            if !apart.contains(byte) {
                continue;
            }
            let mut step = |state: u32| match state {
                DEAD => Ok(DEAD),
                state => table.step(lexicon, state, byte, fuel),
            };
            let (next, beside) = (step(own)?, step(other)?);
            if next == beside && next != DEAD {
                continue;
            }
            if next == DEAD && beside == DEAD && ends_alike {
                continue;
            }
            if beside == DEAD {
                if other_mark != NO_MARK {
                    difference.less.push(trie.below(child));
                }
            } else if next == DEAD {
                difference.less.push(trie.below(child));
            }
            if next == DEAD {
                if mark != NO_MARK {
                    let joint = lexicon.joint_marks(table.expr(own));
                    let marks = if joint.is_empty() { vec![mark] } else { joint };
                    difference.exits.extend(marks.into_iter().map(|mark| Exit {
                        node: child,
                        parent: node,
                        depth,
                        mark,
                    }));
                }
                continue;
            }
            // Most have none below them, and then there is nothing more to tell.
            let (own, children) = (trie.own(child), trie.children(child));
            if beside == DEAD && !own.is_empty() {
                difference.more.push(own);
            }
            if !children.is_empty() {
                pending.push((child, children, next, beside, depth + 1));
            }
        }
    }
    Ok(difference)
}

/// The state that a state most likely comes to and stays in: from state to state by the class with
/// the most bytes. `None` where that is not a state that leads to itself, or where it is the state.
pub(crate) fn resting_state(
    lexicon: &mut Lexicon,
    start: ExprId,
    fuel: &mut Fuel,
) -> Result<Option<ExprId>, Stop> {
    let mut expr = start;
    for _ in 0..MOST_STEPS_TO_REST {
        let derivatives = lexicon.derivatives(expr, fuel)?;
        let most = derivatives.iter().max_by_key(|(bytes, _)| bytes.len());
        let Some(&(_, next)) = most else {
            return Ok(None);
        };
        if next == expr {
            return Ok((expr != start).then_some(expr));
        }
        expr = next;
    }
    Ok(None)
}
