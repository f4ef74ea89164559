//! Schemas that refer to themselves for the same value.

use hashbrown::HashMap;

use super::super::node::{Node, NodeId, Nodes};
use super::place::Key;

/// A reference that needs itself, of the same value, to say what it says. Each node is looked at
/// once.
pub(super) fn circular(nodes: &Nodes, references: &[(NodeId, Key)]) -> Option<Key> {
    let mut is_open: HashMap<NodeId, bool> = HashMap::new();
    for &(reference, key) in references {
        let mut pending = vec![(reference, false)];
        while let Some((id, leave)) = pending.pop() {
            if leave {
                is_open.insert(id, false);
                continue;
            }
            match is_open.get(&id) {
                Some(true) => return Some(key),
                Some(false) => continue,
                None => {}
            }
            is_open.insert(id, true);
            pending.push((id, true));
            match nodes.node(id) {
                Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => {
                    pending.extend(list.iter().map(|&inner| (inner, false)));
                }
                Node::Not(inner) => pending.push((*inner, false)),
                Node::Reference(number) => pending.push((nodes.definition(*number), false)),
                _ => {}
            }
        }
    }
    None
}
