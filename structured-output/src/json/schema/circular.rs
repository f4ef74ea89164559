//! Schemas that refer to themselves for the same value.

use hashbrown::{HashMap, HashSet};

use super::super::node::{Node, NodeId, Nodes};
use super::place::Key;
use crate::lexical::{Fuel, Stop};

/// Whether a reference is met only by values by which it is met already: all ways to it go through
/// what it needs all of, itself included. So nothing meets it.
pub(super) fn needs_itself(
    nodes: &Nodes,
    reference: NodeId,
    fuel: &mut Fuel,
) -> Result<bool, Stop> {
    let mut seen = HashSet::new();
    let mut pending = vec![reference];
    while let Some(id) = pending.pop() {
        let inner: &[NodeId] = match nodes.node(id) {
            Node::AllOf(list) => list,
            Node::Reference(number) => &[nodes.definition(*number)],
            _ => continue,
        };
        fuel.burn(1 + inner.len() as u64)?;
        if inner.contains(&reference) {
            return Ok(true);
        }
        pending.extend(inner.iter().copied().filter(|&id| seen.insert(id)));
    }
    Ok(false)
}

/// A reference that needs itself, of the same value, to say what it says. Each node is looked at
/// once.
pub(super) fn circular(
    nodes: &Nodes,
    references: &[(NodeId, Key)],
    fuel: &mut Fuel,
) -> Result<Option<Key>, Stop> {
    let mut is_open: HashMap<NodeId, bool> = HashMap::new();
    for &(reference, key) in references {
        let mut pending = vec![(reference, false)];
        while let Some((id, leave)) = pending.pop() {
            if leave {
                is_open.insert(id, false);
                continue;
            }
            match is_open.get(&id) {
                Some(true) => return Ok(Some(key)),
                Some(false) => continue,
                None => {}
            }
            is_open.insert(id, true);
            let before = pending.len();
            pending.push((id, true));
            match nodes.node(id) {
                Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => {
                    pending.extend(list.iter().map(|&inner| (inner, false)));
                }
                Node::Not(inner) => pending.push((*inner, false)),
                Node::Reference(number) => pending.push((nodes.definition(*number), false)),
                _ => {}
            }
            fuel.burn((pending.len() - before) as u64)?;
        }
    }
    Ok(None)
}
