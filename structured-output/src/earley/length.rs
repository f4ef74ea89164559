//! The least that each node still reads: which parts of a grammar can be completed at all, and in
//! how few bytes (Knuth 1977, "A generalization of Dijkstra's algorithm").

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use super::graph::{Graph, Label, NO_NODE};
use crate::lexical::search::DEAD;
use crate::lexical::{Fuel, OutOfFuel};

/// The least that each label reads, calls apart: bytes, and 1 for a token.
pub(super) type Weights = HashMap<Label, u32>;

/// For each node the least that is read from it to the end of its rule; [`DEAD`] where the end
/// can't be reached.
pub(super) fn lengths(
    graph: &Graph,
    weights: &Weights,
    fuel: &mut Fuel,
) -> Result<Vec<u32>, OutOfFuel> {
    fuel.burn(graph.nodes.len() as u64)?;
    // Edges backwards; those that call a rule wait for the rule.
    let mut before: Vec<Vec<(Label, u32)>> = vec![Vec::new(); graph.nodes.len()];
    let mut callers: Vec<Vec<(u32, u32)>> = vec![Vec::new(); graph.starts.len()];
    // Equal rules may have one start.
    let mut rules_of_start: HashMap<u32, Vec<u32>> = HashMap::new();
    for (rule, &start) in (0..).zip(&graph.starts) {
        if start != NO_NODE {
            rules_of_start.entry(start).or_default().push(rule);
        }
    }
    let mut queue = BinaryHeap::new();
    for (from, node) in (0..).zip(&graph.nodes) {
        fuel.burn(1 + node.edges.len() as u64)?;
        for &(label, to) in &node.edges {
            before[to as usize].push((label, from));
            if let Label::Call(rule) = label {
                callers[rule as usize].push((from, to));
            }
        }
        if node.accepting {
            queue.push(Reverse((0, from)));
        }
    }
    let mut silent: Vec<Vec<u32>> = vec![Vec::new(); graph.nodes.len()];
    for (from, node) in (0..).zip(&graph.nodes) {
        for &to in &node.epsilons {
            silent[to as usize].push(from);
        }
    }
    let mut least = vec![DEAD; graph.nodes.len()];
    let mut rules = vec![DEAD; graph.starts.len()];
    while let Some(Reverse((length, node))) = queue.pop() {
        fuel.burn(1)?;
        let id = node as usize;
        if least[id] != DEAD {
            continue;
        }
        least[id] = length;
        queue.extend(silent[id].iter().map(|&from| Reverse((length, from))));
        for &(label, from) in &before[id] {
            fuel.burn(1)?;
            let weight = match label {
                Label::Call(rule) => rules[rule as usize],
                label => weights.get(&label).copied().unwrap_or(DEAD),
            };
            if weight != DEAD {
                queue.push(Reverse((add(length, weight), from)));
            }
        }
        for &rule in rules_of_start.get(&node).into_iter().flatten() {
            rules[rule as usize] = length;
            for &(from, to) in &callers[rule as usize] {
                fuel.burn(1)?;
                let rest = least[to as usize];
                if rest != DEAD {
                    queue.push(Reverse((add(length, rest), from)));
                }
            }
        }
    }
    Ok(least)
}

/// A sum that stays below [`DEAD`].
pub(super) fn add(a: u32, b: u32) -> u32 {
    a.saturating_add(b).min(DEAD - 1)
}

/// The least that a rule reads.
pub(super) fn of_rule(graph: &Graph, lengths: &[u32], rule: u32) -> u32 {
    match graph.starts[rule as usize] {
        NO_NODE => DEAD,
        start => lengths[start as usize],
    }
}
