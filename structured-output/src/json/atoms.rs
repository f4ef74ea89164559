//! The values of a member as disjoint sets that are told apart by what some nodes say of them.
//!
//! What tells the branches of a union apart is mostly a constant of each, but may be any node: numbers,
//! enumerations with values in common, patterns, kinds, arrays and objects. So whether two nodes have a
//! value in common is told by one rule: it is plain of their shapes, or there is no value of both, which
//! is looked for within a few steps. Where that isn't found out, they count as overlapping. A set is made
//! of nodes and contraries of nodes, so it is exact also then: at worst it is empty, or there are more of them
//! than need be.

use super::node::NodeId;
use super::programs::Programs;
use super::relation::Relation;
use crate::lexical::{Fuel, Lexicon, Stop};

/// Some values.
pub(super) struct Atom {
    /// All of them are such, and no others.
    pub(super) node: NodeId,
    /// By number, the nodes that hold of all of them, ascending; the others hold of none.
    pub(super) said: Vec<u32>,
}

impl Programs {
    /// All values as disjoint sets, by what some nodes say of them; `None` where these would be many more
    /// than there are nodes.
    pub(super) fn atoms(
        &mut self,
        lexicon: &mut Lexicon,
        nodes: &[NodeId],
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Atom>>, Stop> {
        let max = 2 * nodes.len() + 8;
        let mut atoms: Vec<Atom> = Vec::new();
        for (number, &node) in (0_u32..).zip(nodes) {
            fuel.burn(1)?;
            // Those before it that have values in common with it.
            let mut common = Vec::new();
            for at in 0..atoms.len() {
                let atom = atoms[at].node;
                match self.overlap(lexicon, atom, node, fuel)? {
                    Relation::Apart => continue,
                    Relation::Within => {}
                    Relation::Partly | Relation::Unknown => {
                        let not = self.logic.nodes.not(node);
                        let said = atoms[at].said.clone();
                        atoms[at].node = self.logic.nodes.all_of(&[atom, node]);
                        let node = self.logic.nodes.all_of(&[atom, not]);
                        atoms.push(Atom { node, said });
                        if atoms.len() > max {
                            return Ok(None);
                        }
                    }
                }
                atoms[at].said.push(number);
                common.push(atom);
            }
            let mut rest = node;
            if !common.is_empty() {
                let known = self.logic.nodes.any_of(&common);
                let not = self.logic.nodes.not(known);
                rest = self.logic.nodes.all_of(&[node, not]);
                if self.is_surely_dead(lexicon, rest, fuel)? {
                    continue;
                }
            }
            atoms.push(Atom {
                node: rest,
                said: vec![number],
            });
            if atoms.len() > max {
                return Ok(None);
            }
        }
        let known = self.logic.nodes.any_of(nodes);
        let node = self.logic.nodes.not(known);
        atoms.push(Atom {
            node,
            said: Vec::new(),
        });
        Ok(Some(atoms))
    }
}
