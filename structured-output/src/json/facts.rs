//! What is known of a formula by itself, kept beside it.

use super::formula::{Formula, FormulaId, Logic};
use super::node::{ANYTHING, Node, NodeId};

/// What is known of a formula.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// It holds if nothing more comes.
    pub(super) closes: bool,
    /// A further member may help.
    pub(super) wants_members: bool,
    /// It speaks of the value that comes next.
    pub(super) has_value: bool,
    /// It speaks of something else.
    pub(super) has_others: bool,
    /// It has a [`Formula::Unique`].
    pub(super) has_unique: bool,
    /// It has a [`Formula::Unique`] that doesn't hold.
    pub(super) has_repeated: bool,
    /// Leaves, counted where they occur.
    pub(super) size: u32,
    /// Of each key that it asks for one of 64 bits: what has none of a key's bits says nothing of it.
    pub(super) names: u64,
    /// The same of each key of whose member's value it says something.
    pub(super) member_names: u64,
    /// It says something of members whatever their keys.
    pub(super) has_members: bool,
    /// How deep formulas are in it.
    pub(super) depth: u16,
}

/// The bit in `Facts::names` of the node that says that a key is there.
pub(super) fn bit_of(has: NodeId) -> u64 {
    1 << (u64::from(has.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// The bit in `Facts::member_names` of a key.
pub(super) fn bit_of_name(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    1 << (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// Whether a node says something of members whatever their keys.
fn says_of_any_member(node: &Node) -> bool {
    match node {
        Node::Members(members) => !members.patterns.is_empty() || members.additional != ANYTHING,
        Node::MinProperties(_) => true,
        _ => false,
    }
}

/// The bits of the keys that a node names.
fn names_of_members(node: &Node) -> u64 {
    match node {
        Node::Members(members) => {
            let names = members.named.iter().map(|named| bit_of_name(&named.0));
            names.fold(0, |names, bit| names | bit)
        }
        _ => 0,
    }
}

impl Logic {
    /// The facts of a formula whose operands' are known.
    pub(super) fn facts_of(&self, formula: &Formula) -> Facts {
        let plain = Facts {
            closes: true,
            wants_members: false,
            has_value: false,
            has_others: true,
            has_unique: false,
            has_repeated: false,
            size: 1,
            names: 0,
            member_names: 0,
            has_members: false,
            depth: 0,
        };
        let over = |list: &[FormulaId], closes: bool| {
            let any = |of: fn(&Facts) -> bool| list.iter().any(|&id| of(&self.facts(id)));
            Facts {
                closes,
                wants_members: any(|facts| facts.wants_members),
                has_value: any(|facts| facts.has_value),
                has_others: any(|facts| facts.has_others),
                has_unique: any(|facts| facts.has_unique),
                has_repeated: any(|facts| facts.has_repeated),
                size: list
                    .iter()
                    .fold(0, |size: u32, &id| size.saturating_add(self.facts(id).size)),
                names: list
                    .iter()
                    .fold(0, |names, &id| names | self.facts(id).names),
                member_names: list
                    .iter()
                    .fold(0, |names, &id| names | self.facts(id).member_names),
                has_members: any(|facts| facts.has_members),
                depth: list
                    .iter()
                    .map(|&id| self.facts(id).depth)
                    .max()
                    .unwrap_or(0)
                    + 1,
            }
        };
        match formula {
            Formula::All(list) => over(list, list.iter().all(|&id| self.facts(id).closes)),
            Formula::Any(list) => over(list, list.iter().any(|&id| self.facts(id).closes)),
            Formula::Is(id) => {
                let node = self.nodes.node(*id);
                Facts {
                    closes: matches!(node, Node::Items { .. } | Node::Members(_)),
                    wants_members: matches!(node, Node::MinProperties(_)),
                    names: self.bit_of_literal(*id),
                    member_names: names_of_members(node),
                    has_members: says_of_any_member(node),
                    ..plain
                }
            }
            Formula::Not(id) => {
                let node = self.nodes.node(*id);
                Facts {
                    closes: !matches!(node, Node::Items { .. } | Node::Members(_)),
                    wants_members: matches!(node, Node::Members(_)),
                    names: self.bit_of_literal(*id),
                    member_names: names_of_members(node),
                    has_members: says_of_any_member(node),
                    ..plain
                }
            }
            Formula::Unique { holds, .. } => Facts {
                closes: *holds,
                has_unique: true,
                has_repeated: !holds,
                ..plain
            },
            Formula::Value(_) => Facts {
                closes: false,
                has_value: true,
                has_others: false,
                ..plain
            },
        }
    }

    fn bit_of_literal(&self, node: NodeId) -> u64 {
        match self.nodes.node(node) {
            Node::Has(_) => bit_of(node),
            _ => 0,
        }
    }
}
