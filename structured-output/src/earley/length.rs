//! The least that each node still reads: which parts of a grammar can be completed at all, and in
//! how few bytes (Knuth 1977, "A generalization of Dijkstra's algorithm").

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use super::graph::{Graph, Label, NO_NODE};
use crate::lexical::search::DEAD;
use crate::lexical::{Fuel, Stop};

/// The least that each label reads, calls apart: bytes, and 1 for a token.
pub(super) type Weights = HashMap<Label, u32>;

/// What an edge reads, as far as its length is concerned.
#[derive(Clone, Copy)]
enum Reads {
    Bytes(u32),
    Rule(u32),
}

/// The edges of a graph by where they lead, in one list.
struct Backwards {
    /// By node: where its edges begin. One more at the end.
    firsts: Vec<u32>,
    /// What each reads, and where it comes from.
    edges: Vec<(Reads, u32)>,
}

impl Backwards {
    /// Those edges that can be read at all.
    fn new(graph: &Graph, weights: &Weights, fuel: &mut Fuel) -> Result<Self, Stop> {
        let mut firsts = vec![0; graph.nodes.len() + 1];
        let mut edges: Vec<(Reads, u32, u32)> = Vec::new();
        for (from, node) in (0..).zip(&graph.nodes) {
            fuel.burn(1 + (node.edges.len() + node.epsilons.len()) as u64)?;
            edges.extend(node.epsilons.iter().map(|&to| (Reads::Bytes(0), from, to)));
            edges.extend(node.edges.iter().filter_map(|&(label, to)| match label {
                Label::Call(rule) => Some((Reads::Rule(rule), from, to)),
                label => match weights.get(&label) {
                    None | Some(&DEAD) => None,
                    Some(&weight) => Some((Reads::Bytes(weight), from, to)),
                },
            }));
        }
        for &(_, _, to) in &edges {
            firsts[to as usize + 1] += 1;
        }
        for at in 1..firsts.len() {
            firsts[at] += firsts[at - 1];
        }
        let mut ends = firsts.clone();
        let mut sorted = vec![(Reads::Bytes(0), 0); edges.len()];
        for (reads, from, to) in edges {
            let end = &mut ends[to as usize];
            sorted[*end as usize] = (reads, from);
            *end += 1;
        }
        Ok(Self {
            firsts,
            edges: sorted,
        })
    }

    /// The edges that lead to a node.
    fn of(&self, node: u32) -> &[(Reads, u32)] {
        let at = node as usize;
        &self.edges[self.firsts[at] as usize..self.firsts[at + 1] as usize]
    }
}

/// For each node the least that is read from it to the end of its rule; [`DEAD`] where the end
/// can't be reached.
pub(super) fn lengths(graph: &Graph, weights: &Weights, fuel: &mut Fuel) -> Result<Vec<u32>, Stop> {
    fuel.burn(graph.nodes.len() as u64)?;
    let before = Backwards::new(graph, weights, fuel)?;
    // Calls wait for their rules: by rule, where each comes from and leads.
    let mut calls: Vec<(u32, u32, u32)> = Vec::new();
    for (from, node) in (0..).zip(&graph.nodes) {
        calls.extend(node.edges.iter().filter_map(|&(label, to)| match label {
            Label::Call(rule) => Some((rule, from, to)),
            _ => None,
        }));
    }
    calls.sort_unstable();
    // Equal rules may have one start.
    let mut rules_of_start: Vec<(u32, u32)> = (0..)
        .zip(&graph.starts)
        .filter(|(_, start)| **start != NO_NODE)
        .map(|(rule, &start)| (start, rule))
        .collect();
    rules_of_start.sort_unstable();
    let mut is_start = vec![false; graph.nodes.len()];
    for &(start, _) in &rules_of_start {
        is_start[start as usize] = true;
    }
    let mut queue = BinaryHeap::new();
    // The least known so far, which is final where the node has been taken from the queue.
    let mut least = vec![DEAD; graph.nodes.len()];
    let mut rules = vec![DEAD; graph.starts.len()];
    for (id, node) in (0..).zip(&graph.nodes) {
        if node.accepting {
            least[id as usize] = 0;
            queue.push(Reverse((0, id)));
        }
    }
    while let Some(Reverse((length, node))) = queue.pop() {
        fuel.burn(1)?;
        if least[node as usize] != length {
            continue;
        }
        let edges = before.of(node);
        fuel.burn(edges.len() as u64)?;
        for &(reads, from) in edges {
            let weight = match reads {
                Reads::Bytes(weight) => weight,
                Reads::Rule(rule) => rules[rule as usize],
            };
            if weight != DEAD {
                reach(&mut least, &mut queue, from, add(length, weight));
            }
        }
        if !is_start[node as usize] {
            continue;
        }
        let first = rules_of_start.partition_point(|&(start, _)| start < node);
        let ended = rules_of_start[first..].iter();
        for &(_, rule) in ended.take_while(|(start, _)| *start == node) {
            rules[rule as usize] = length;
            let first = calls.partition_point(|&(callee, ..)| callee < rule);
            let waiting = calls[first..].iter();
            for &(_, from, to) in waiting.take_while(|(callee, ..)| *callee == rule) {
                fuel.burn(1)?;
                let rest = least[to as usize];
                if rest != DEAD {
                    reach(&mut least, &mut queue, from, add(length, rest));
                }
            }
        }
    }
    Ok(least)
}

/// Takes note that so much is enough from a node on.
fn reach(least: &mut [u32], queue: &mut BinaryHeap<Reverse<(u32, u32)>>, node: u32, length: u32) {
    let least = &mut least[node as usize];
    if length < *least {
        *least = length;
        queue.push(Reverse((length, node)));
    }
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
