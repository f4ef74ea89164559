//! Automata without edges that read nothing, and small.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::graph::{Graph, Label, NO_NODE, Node};
use super::order::components;
use crate::lexical::{Fuel, Stop};

/// Marks what a walk has seen, and forgets it at once for the next.
pub(super) struct Seen {
    round: u32,
    marks: Vec<u32>,
}

impl Seen {
    /// For that many nodes.
    pub(super) fn new(len: usize) -> Self {
        Self {
            round: 0,
            marks: vec![0; len],
        }
    }

    /// Forgets all. To be called before the first walk, too.
    pub(super) fn clear(&mut self) {
        self.round += 1;
    }

    /// Whether it is new.
    pub(super) fn insert(&mut self, node: u32) -> bool {
        std::mem::replace(&mut self.marks[node as usize], self.round) != self.round
    }
}

/// Makes one node of all that lead to each other without reading: they read the same. Where the rules
/// of a left recursion may all be empty, these are most nodes, and to each of them the next step would
/// give the edges of all others. Nothing may lead to the start of a rule.
pub(super) fn without_silent_cycles(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), Stop> {
    if graph.nodes.iter().all(|node| node.epsilons.is_empty()) {
        return Ok(());
    }
    fuel.burn(graph.nodes.len() as u64)?;
    let mut stands_for: Vec<u32> = (0..graph.nodes.len() as u32).collect();
    let nodes = &graph.nodes;
    let cycles = components(nodes.len(), |node| &nodes[node].epsilons);
    for cycle in cycles.iter().filter(|cycle| cycle.len() > 1) {
        let mut whole = Node::default();
        for &member in cycle {
            let member_node = std::mem::take(&mut graph.nodes[member as usize]);
            stands_for[member as usize] = cycle[0];
            whole.accepting |= member_node.accepting;
            whole.edges.extend(member_node.edges);
            whole.epsilons.extend(member_node.epsilons);
        }
        graph.nodes[cycle[0] as usize] = whole;
    }
    for (id, node) in (0..).zip(&mut graph.nodes) {
        fuel.burn((node.edges.len() + node.epsilons.len()) as u64)?;
        for to in node.edges.iter_mut().map(|edge| &mut edge.1) {
            *to = stands_for[*to as usize];
        }
        for to in &mut node.epsilons {
            *to = stands_for[*to as usize];
        }
        node.epsilons.retain(|&to| to != id);
        node.epsilons.sort_unstable();
        node.epsilons.dedup();
        if !node.edges.is_sorted() {
            node.edges.sort_unstable();
        }
        node.edges.dedup();
    }
    Ok(())
}

/// Gives each node the edges of all nodes that it leads to without reading. Nodes to which no other
/// edges lead are left empty.
pub(super) fn without_epsilons(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), Stop> {
    let mut is_entered = vec![false; graph.nodes.len()];
    let starts = graph.starts.iter().filter(|start| **start != NO_NODE);
    let entered = graph.nodes.iter().flat_map(|node| &node.edges);
    for &node in starts.chain(entered.map(|(_, to)| to)) {
        is_entered[node as usize] = true;
    }
    let mut seen = Seen::new(graph.nodes.len());
    let mut closed = Vec::with_capacity(graph.nodes.len());
    for (id, node) in (0..).zip(&graph.nodes) {
        fuel.burn(1 + node.edges.len() as u64)?;
        if !is_entered[id as usize] {
            closed.push(Some(Node::default()));
            continue;
        }
        if node.epsilons.is_empty() {
            closed.push(None);
            continue;
        }
        seen.clear();
        seen.insert(id);
        let mut pending = vec![id];
        let mut whole = Node::default();
        while let Some(at) = pending.pop() {
            let node = &graph.nodes[at as usize];
            fuel.burn(1 + node.edges.len() as u64 + node.epsilons.len() as u64)?;
            whole.accepting |= node.accepting;
            whole.edges.extend_from_slice(&node.edges);
            pending.extend(node.epsilons.iter().copied().filter(|&to| seen.insert(to)));
        }
        whole.edges.sort_unstable();
        whole.edges.dedup();
        closed.push(Some(whole));
    }
    for (node, closed) in graph.nodes.iter_mut().zip(closed) {
        if let Some(closed) = closed {
            *node = closed;
        }
    }
    Ok(())
}

/// Joins nodes that read the same (Moore 1956), across rules. Gives up where that takes many rounds:
/// it is a saving and no more.
pub(super) fn merged(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), Stop> {
    const MAX_ROUNDS: usize = 40;
    let hasher = DefaultHashBuilder::default();
    // Labels by number: they are compared often.
    let mut labels: HashMap<Label, u32> = HashMap::new();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut ends: Vec<usize> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        fuel.burn(1 + node.edges.len() as u64)?;
        for &(label, to) in &node.edges {
            let next = labels.len() as u32;
            edges.push((*labels.entry(label).or_insert(next), to));
        }
        ends.push(edges.len());
    }
    let mut classes: Vec<u32> = graph.nodes.iter().map(|n| u32::from(n.accepting)).collect();
    let mut sizes = vec![0_u32; 2];
    classes.iter().for_each(|&class| sizes[class as usize] += 1);
    let mut num_classes = 0;
    // What nodes of this round read, by number: class, labels, classes that they lead to.
    let mut read: Vec<(u32, u32)> = Vec::new();
    let mut kinds: Vec<(u32, std::ops::Range<usize>)> = Vec::new();
    let mut known: HashTable<u32> = HashTable::new();
    for _ in 0..MAX_ROUNDS {
        let mut refined = Vec::with_capacity(classes.len());
        read.clear();
        kinds.clear();
        known.clear();
        let mut first = 0;
        for (&end, &class) in ends.iter().zip(&classes) {
            let edges = &edges[std::mem::replace(&mut first, end)..end];
            fuel.burn(1 + edges.len() as u64)?;
            let next = kinds.len() as u32;
            let start = read.len();
            // The only one of its class stays that.
            if sizes[class as usize] > 1 {
                let targets = edges.iter();
                read.extend(targets.map(|&(label, to)| (label, classes[to as usize])));
                read[start..].sort_unstable();
                let len = deduped(&mut read[start..]);
                read.truncate(start + len);
            }
            let kind = (class, start..read.len());
            let hash = |kind: &(u32, std::ops::Range<usize>)| {
                hasher.hash_one((kind.0, &read[kind.1.clone()]))
            };
            let number = match sizes[class as usize] > 1 {
                false => next,
                true => {
                    let is_equal = |&number: &u32| {
                        let other = &kinds[number as usize];
                        other.0 == class && read[other.1.clone()] == read[kind.1.clone()]
                    };
                    let rehash = |&number: &u32| hash(&kinds[number as usize]);
                    *known
                        .entry(hash(&kind), is_equal, rehash)
                        .or_insert(next)
                        .get()
                }
            };
            refined.push(number);
            match number == next {
                true => kinds.push(kind),
                false => read.truncate(start),
            }
        }
        classes = refined;
        let is_done = kinds.len() == num_classes;
        num_classes = kinds.len();
        if is_done {
            join(graph, &classes, num_classes);
            return Ok(());
        }
        sizes.clear();
        sizes.resize(num_classes, 0);
        classes.iter().for_each(|&class| sizes[class as usize] += 1);
    }
    Ok(())
}

/// Moves what is there more than once behind the rest of a sorted list; how long the rest is.
fn deduped(list: &mut [(u32, u32)]) -> usize {
    let mut len = 0;
    for at in 0..list.len() {
        if len == 0 || list[len - 1] != list[at] {
            list[len] = list[at];
            len += 1;
        }
    }
    len
}

/// Makes one node of each class.
fn join(graph: &mut Graph, classes: &[u32], num_classes: usize) {
    let mut nodes = vec![Node::default(); num_classes];
    for (node, &class) in graph.nodes.iter_mut().zip(classes) {
        let mut node = std::mem::take(node);
        for edge in &mut node.edges {
            edge.1 = classes[edge.1 as usize];
        }
        node.edges.sort_unstable();
        node.edges.dedup();
        nodes[class as usize] = node;
    }
    graph.nodes = nodes;
    for start in graph.starts.iter_mut().filter(|start| **start != NO_NODE) {
        *start = classes[*start as usize];
    }
}

/// For each node whether it is a loop: the rule may end there, and wherever it may end after it, it
/// is back at the node. Then what is read from the node, twice, is read from it once.
pub(super) fn loops(graph: &Graph, fuel: &mut Fuel) -> Result<Vec<bool>, Stop> {
    /// Loops of more nodes aren't found.
    const MAX_NODES: usize = 64;
    let mut seen = Seen::new(graph.nodes.len());
    let mut loops = Vec::with_capacity(graph.nodes.len());
    for (id, node) in (0..).zip(&graph.nodes) {
        fuel.burn(1)?;
        if !node.accepting || node.edges.is_empty() {
            loops.push(false);
            continue;
        }
        seen.clear();
        seen.insert(id);
        let mut reached = vec![id];
        let mut next = 0;
        let mut ends_here = true;
        while let Some(&at) = reached.get(next)
            && ends_here
        {
            next += 1;
            for &(_, to) in &graph.nodes[at as usize].edges {
                fuel.burn(1)?;
                if seen.insert(to) {
                    reached.push(to);
                    ends_here &= !graph.nodes[to as usize].accepting;
                }
            }
            ends_here &= reached.len() <= MAX_NODES;
        }
        loops.push(ends_here);
    }
    Ok(loops)
}
