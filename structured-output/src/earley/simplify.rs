//! Automata without edges that read nothing, deterministic where that is cheap, and small.

use hashbrown::HashMap;

use super::graph::{Graph, Label, NO_NODE, Node};
use super::order::components;
use crate::lexical::{Fuel, OutOfFuel};

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
pub(super) fn without_silent_cycles(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), OutOfFuel> {
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
pub(super) fn without_epsilons(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), OutOfFuel> {
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

/// Makes each rule's automaton deterministic over labels (Rabin and Scott 1959). Where that would
/// take many more nodes, the rule stays as it is.
pub(super) fn deterministic(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), OutOfFuel> {
    let mut made = Graph {
        starts: vec![NO_NODE; graph.starts.len()],
        root: graph.root,
        ..Graph::default()
    };
    let mut seen = Seen::new(graph.nodes.len());
    for (rule, &start) in graph.starts.iter().enumerate() {
        if start == NO_NODE {
            continue;
        }
        seen.clear();
        seen.insert(start);
        let mut reached = vec![start];
        let mut next = 0;
        while let Some(&node) = reached.get(next) {
            next += 1;
            let edges = &graph.nodes[node as usize].edges;
            fuel.burn(1 + edges.len() as u64)?;
            reached.extend(
                edges
                    .iter()
                    .map(|edge| edge.1)
                    .filter(|&to| seen.insert(to)),
            );
        }
        let first = made.nodes.len();
        made.starts[rule] = first as u32;
        if subsets(graph, start, 2 * reached.len() + 16, &mut made, fuel)? {
            continue;
        }
        made.nodes.truncate(first);
        let numbers: HashMap<u32, u32> = reached.iter().copied().zip(first as u32..).collect();
        for node in reached {
            let mut copy = graph.nodes[node as usize].clone();
            for edge in &mut copy.edges {
                edge.1 = numbers[&edge.1];
            }
            made.nodes.push(copy);
        }
    }
    *graph = made;
    Ok(())
}

/// Adds the deterministic automaton of a rule; false where it takes more than `max` nodes.
fn subsets(
    graph: &Graph,
    start: u32,
    max: usize,
    made: &mut Graph,
    fuel: &mut Fuel,
) -> Result<bool, OutOfFuel> {
    let first = made.nodes.len();
    let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
    let mut sets = vec![vec![start]];
    numbers.insert(vec![start], first as u32);
    let mut next = 0;
    while next < sets.len() {
        let set = std::mem::take(&mut sets[next]);
        next += 1;
        let mut node = Node::default();
        let mut edges: Vec<(Label, u32)> = Vec::new();
        for &member in &set {
            let member = &graph.nodes[member as usize];
            node.accepting |= member.accepting;
            edges.extend_from_slice(&member.edges);
        }
        fuel.burn(1 + edges.len() as u64)?;
        edges.sort_unstable();
        edges.dedup();
        for group in edges.chunk_by(|a, b| a.0 == b.0) {
            let targets: Vec<u32> = group.iter().map(|edge| edge.1).collect();
            let number = (first + sets.len()) as u32;
            let to = *numbers.entry(targets.clone()).or_insert(number);
            if to == number {
                if sets.len() >= max {
                    return Ok(false);
                }
                sets.push(targets);
            }
            node.edges.push((group[0].0, to));
        }
        made.nodes.push(node);
    }
    Ok(true)
}

/// Joins nodes that read the same (Moore 1956), across rules. Gives up where that takes many rounds:
/// it is a saving and no more.
pub(super) fn merged(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), OutOfFuel> {
    const MAX_ROUNDS: usize = 40;
    let mut classes: Vec<u32> = graph.nodes.iter().map(|n| u32::from(n.accepting)).collect();
    let mut num_classes = 0;
    for _ in 0..MAX_ROUNDS {
        let mut numbers: HashMap<(u32, Vec<(Label, u32)>), u32> = HashMap::new();
        let mut refined = Vec::with_capacity(classes.len());
        for (node, &class) in graph.nodes.iter().zip(&classes) {
            fuel.burn(1 + node.edges.len() as u64)?;
            let mut edges: Vec<(Label, u32)> = node
                .edges
                .iter()
                .map(|&(label, to)| (label, classes[to as usize]))
                .collect();
            edges.sort_unstable();
            edges.dedup();
            let number = numbers.len() as u32;
            refined.push(*numbers.entry((class, edges)).or_insert(number));
        }
        classes = refined;
        if numbers.len() == num_classes {
            let mut nodes = vec![Node::default(); num_classes];
            for (node, &class) in graph.nodes.iter_mut().zip(&classes) {
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
            return Ok(());
        }
        num_classes = numbers.len();
    }
    Ok(())
}

/// For each node whether it is a loop: the rule may end there, and wherever it may end after it, it
/// is back at the node. Then what is read from the node, twice, is read from it once.
pub(super) fn loops(graph: &Graph, fuel: &mut Fuel) -> Result<Vec<bool>, OutOfFuel> {
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
