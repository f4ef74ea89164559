//! Automata of rules made deterministic, where that is cheap.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::graph::{Graph, Label, NO_NODE, Node};
use super::simplify::Seen;
use crate::lexical::{Fuel, Stop};

/// A table with more room than this is not cleared for the next rule, but made anew.
const MOST_CLEARED: usize = 1_024;

/// Makes each rule's automaton deterministic over labels (Rabin and Scott 1959). Where that would
/// take many more nodes, the rule stays as it is.
pub(super) fn deterministic(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), Stop> {
    let mut made = Graph {
        nodes: Vec::with_capacity(graph.nodes.len()),
        starts: vec![NO_NODE; graph.starts.len()],
        root: graph.root,
    };
    let mut seen = Seen::new(graph.nodes.len());
    let mut numbers = vec![NO_NODE; graph.nodes.len()];
    let mut subsets = Subsets::new(graph.nodes.len());
    let mut reached = Vec::new();
    for (rule, &start) in graph.starts.iter().enumerate() {
        if start == NO_NODE {
            continue;
        }
        seen.clear();
        seen.insert(start);
        reached.clear();
        reached.push(start);
        let mut next = 0;
        let mut is_deterministic = true;
        while let Some(&node) = reached.get(next) {
            next += 1;
            let edges = &graph.nodes[node as usize].edges;
            fuel.burn(1 + edges.len() as u64)?;
            is_deterministic &= edges.is_sorted_by(|a, b| a.0 < b.0);
            let targets = edges.iter().map(|edge| edge.1);
            reached.extend(targets.filter(|&to| seen.insert(to)));
        }
        let first = made.nodes.len();
        made.starts[rule] = first as u32;
        if !is_deterministic {
            if subsets.write(graph, start, 2 * reached.len() + 16, &mut made, fuel)? {
                continue;
            }
            made.nodes.truncate(first);
        }
        for (&node, number) in reached.iter().zip(first as u32..) {
            numbers[node as usize] = number;
        }
        for &node in &reached {
            let node = &graph.nodes[node as usize];
            let edges = node.edges.iter();
            made.nodes.push(Node {
                edges: edges.map(|&(l, to)| (l, numbers[to as usize])).collect(),
                accepting: node.accepting,
                ..Node::default()
            });
        }
    }
    *graph = made;
    Ok(())
}

/// Sets of nodes, numbered as they are met.
struct Subsets {
    /// All members of all sets.
    members: Vec<u32>,
    /// Where the members of each begin. One more at the end.
    firsts: Vec<u32>,
    /// Numbers of sets of one node by that node, and the round in which they were given.
    singles: Vec<(u32, u32)>,
    round: u32,
    /// Numbers of larger sets.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Edges of a set's members, for their room.
    edges: Vec<(Label, u32)>,
}

impl Subsets {
    /// For a graph of so many nodes.
    fn new(num_nodes: usize) -> Self {
        Self {
            members: Vec::new(),
            firsts: Vec::new(),
            singles: vec![(0, 0); num_nodes],
            round: 0,
            numbers: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            edges: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.firsts.len() - 1
    }

    fn push(&mut self, set: impl Iterator<Item = u32>) {
        self.members.extend(set);
        self.firsts.push(self.members.len() as u32);
    }

    /// The number of the set of some edges' targets, which are ascending; true where it is new.
    fn number(&mut self, group: std::ops::Range<usize>) -> (u32, bool) {
        let next = self.len() as u32;
        let edges = std::mem::take(&mut self.edges);
        let group = &edges[group];
        let targets = || group.iter().map(|edge| edge.1);
        let found = match *group {
            [(_, only)] => {
                let (number, round) = self.singles[only as usize];
                match round == self.round {
                    true => number,
                    false => {
                        self.singles[only as usize] = (next, self.round);
                        next
                    }
                }
            }
            _ => {
                let (members, firsts, hasher) = (&self.members, &self.firsts, &self.hasher);
                let set = |number: u32| {
                    let at = number as usize;
                    &members[firsts[at] as usize..firsts[at + 1] as usize]
                };
                let hash = |set: &mut dyn Iterator<Item = u32>| {
                    let mut state = hasher.build_hasher();
                    set.for_each(|node| state.write_u32(node));
                    state.finish()
                };
                let is_equal = |&number: &u32| set(number).iter().copied().eq(targets());
                let rehash = |&number: &u32| hash(&mut set(number).iter().copied());
                *self
                    .numbers
                    .entry(hash(&mut targets()), is_equal, rehash)
                    .or_insert(next)
                    .get()
            }
        };
        if found == next {
            self.push(targets());
        }
        self.edges = edges;
        (found, found == next)
    }

    /// Adds the deterministic automaton of a rule; false where it takes more than `max` nodes.
    fn write(
        &mut self,
        graph: &Graph,
        start: u32,
        max: usize,
        made: &mut Graph,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let first = made.nodes.len() as u32;
        self.round += 1;
        self.members.clear();
        self.firsts.clear();
        self.firsts.push(0);
        // To clear a large table for each of many small rules would take long.
        match self.numbers.capacity() > MOST_CLEARED {
            true => self.numbers = HashTable::new(),
            false => self.numbers.clear(),
        }
        self.singles[start as usize] = (0, self.round);
        self.push(std::iter::once(start));
        let mut next = 0;
        while next < self.len() {
            let set = self.firsts[next] as usize..self.firsts[next + 1] as usize;
            next += 1;
            let mut accepting = false;
            self.edges.clear();
            for &member in &self.members[set] {
                let member = &graph.nodes[member as usize];
                accepting |= member.accepting;
                self.edges.extend_from_slice(&member.edges);
            }
            fuel.burn(1 + self.edges.len() as u64)?;
            if !self.edges.is_sorted() {
                self.edges.sort_unstable();
            }
            self.edges.dedup();
            let num_labels = self.edges.chunk_by(|a, b| a.0 == b.0).count();
            let mut edges = Vec::with_capacity(num_labels);
            let mut at = 0;
            while let Some(&(label, _)) = self.edges.get(at) {
                let others = self.edges[at..].iter();
                let end = at + others.take_while(|edge| edge.0 == label).count();
                let (number, is_new) = self.number(at..end);
                if is_new && self.len() > max {
                    return Ok(false);
                }
                edges.push((label, first + number));
                at = end;
            }
            made.nodes.push(Node {
                edges,
                accepting,
                ..Node::default()
            });
        }
        Ok(true)
    }
}
