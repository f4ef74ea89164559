//! The parts of a text, as an automaton.

use std::collections::HashMap;

/// Some chunks of a text in a row, as the text's suffix automaton (Blumer et al. 1985): at most two
/// states and three edges for each chunk, however often they come again.
#[derive(Debug)]
pub(crate) struct Substrings {
    /// The chunks that differ.
    pub(crate) chunks: Vec<Box<str>>,
    /// States, each after all that it leads to; any of them is an end. The last is the start.
    pub(crate) states: Vec<State>,
    /// Edges by state.
    edges: Vec<(u32, u32)>,
    /// Bytes of all chunks, and one for each.
    pub(crate) size: usize,
}

/// Where a state's edges lie.
#[derive(Debug)]
pub(crate) struct State {
    first: u32,
    end: u32,
}

impl Substrings {
    /// The automaton of some chunks in their order. Takes time and memory as there are chunks.
    pub(crate) fn new(text: &[Box<str>]) -> Self {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut chunks: Vec<Box<str>> = Vec::new();
        let mut automaton = Automaton::new();
        // The empty string is no part of its own.
        for chunk in text.iter().filter(|chunk| !chunk.is_empty()) {
            let number = *numbers.entry(chunk).or_insert_with(|| {
                chunks.push(chunk.clone());
                chunks.len() as u32 - 1
            });
            automaton.push(number);
        }
        let size = text.iter().map(|chunk| chunk.len() + 1).sum::<usize>() + 1;
        let (states, edges) = automaton.ordered();
        Self {
            chunks,
            states,
            edges,
            size,
        }
    }

    /// A state's edges: numbers of chunks, and of the states they lead to.
    pub(crate) fn edges(&self, state: &State) -> &[(u32, u32)] {
        &self.edges[state.first as usize..state.end as usize]
    }
}

const NONE: u32 = u32::MAX;

/// The automaton while it grows.
struct Automaton {
    /// Of each state, the length of the longest string that leads there.
    length: Vec<u32>,
    /// The state of the longest suffix that more places follow.
    suffix: Vec<u32>,
    /// The last edge of each state, in `labels`.
    last_edge: Vec<u32>,
    /// Chunks that lead out of a state, each with the one before.
    labels: Vec<(u32, u32)>,
    targets: HashMap<(u32, u32), u32>,
    /// The state of the whole text.
    whole: u32,
}

impl Automaton {
    fn new() -> Self {
        Self {
            length: vec![0],
            suffix: vec![NONE],
            last_edge: vec![NONE],
            labels: Vec::new(),
            targets: HashMap::new(),
            whole: 0,
        }
    }

    fn state(&mut self, length: u32, suffix: u32) -> u32 {
        self.length.push(length);
        self.suffix.push(suffix);
        self.last_edge.push(NONE);
        self.length.len() as u32 - 1
    }

    fn connect(&mut self, from: u32, label: u32, to: u32) {
        if self.targets.insert((from, label), to).is_none() {
            let last = &mut self.last_edge[from as usize];
            self.labels.push((label, *last));
            *last = self.labels.len() as u32 - 1;
        }
    }

    /// The chunks that lead out of a state.
    fn labels(&self, state: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.last_edge[state as usize];
        std::iter::from_fn(move || {
            let &(label, before) = self.labels.get(at as usize)?;
            at = before;
            Some(label)
        })
    }

    /// Adds a chunk to the text.
    fn push(&mut self, label: u32) {
        let new = self.state(self.length[self.whole as usize] + 1, 0);
        let mut at = self.whole;
        self.whole = new;
        while at != NONE && !self.targets.contains_key(&(at, label)) {
            self.connect(at, label, new);
            at = self.suffix[at as usize];
        }
        let Some(&next) = self.targets.get(&(at, label)) else {
            return;
        };
        let longer = self.length[at as usize] + 1;
        if self.length[next as usize] == longer {
            self.suffix[new as usize] = next;
            return;
        }
        // Strings that lead to `next` are followed at different places from now on.
        let split = self.state(longer, self.suffix[next as usize]);
        for label in self.labels(next).collect::<Vec<_>>() {
            let to = self.targets[&(next, label)];
            self.connect(split, label, to);
        }
        self.suffix[next as usize] = split;
        self.suffix[new as usize] = split;
        while at != NONE && self.targets.get(&(at, label)) == Some(&next) {
            self.connect(at, label, split);
            at = self.suffix[at as usize];
        }
    }

    /// States with their edges, those that are reached by long strings first: an edge leads to
    /// longer ones only.
    fn ordered(self) -> (Vec<State>, Vec<(u32, u32)>) {
        let mut order: Vec<u32> = (0..self.length.len() as u32).collect();
        order.sort_by_key(|&state| std::cmp::Reverse(self.length[state as usize]));
        let mut places = vec![0; order.len()];
        for (place, &state) in (0..).zip(&order) {
            places[state as usize] = place;
        }
        let mut edges = Vec::with_capacity(self.labels.len());
        let mut states = Vec::with_capacity(order.len());
        for state in order {
            let first = edges.len() as u32;
            for label in self.labels(state) {
                let to = self.targets[&(state, label)];
                edges.push((label, places[to as usize]));
            }
            let end = edges.len() as u32;
            states.push(State { first, end });
        }
        (states, edges)
    }
}
