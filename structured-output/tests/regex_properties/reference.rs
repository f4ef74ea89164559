//! A slow, plain reference for regular expressions and their masks: a nondeterministic automaton
//! with every repetition spelled out, run as sets of states. It shares nothing with the crate but
//! the pattern's text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

/// A regular expression.
#[derive(Debug, Clone)]
pub(crate) enum Re {
    /// One of some characters.
    Class(Vec<char>),
    Concat(Vec<Re>),
    Alternate(Vec<Re>),
    Repeat(Box<Re>, usize, Option<usize>),
}

/// Characters that patterns are made of: one, two, three and four bytes long.
pub(crate) const CHARS: [char; 6] = ['a', 'b', 'c', 'é', '€', '😀'];

impl Re {
    /// The expression as a pattern.
    pub(crate) fn pattern(&self) -> String {
        match self {
            Self::Class(chars) if chars.len() == 1 => chars[0].to_string(),
            Self::Class(chars) => format!("[{}]", chars.iter().collect::<String>()),
            Self::Concat(items) => items
                .iter()
                .map(|item| format!("(?:{})", item.pattern()))
                .collect(),
            Self::Alternate(items) => {
                let items: Vec<String> = items.iter().map(Self::pattern).collect();
                format!("({})", items.join("|"))
            }
            Self::Repeat(inner, min, max) => {
                let max = max.map_or(String::new(), |max| max.to_string());
                format!("(?:{}){{{min},{max}}}", inner.pattern())
            }
        }
    }
}

/// Small expressions.
pub(crate) fn expressions() -> impl Strategy<Value = Re> {
    let class = prop::collection::vec(prop::sample::select(&CHARS[..]), 1..4).prop_map(Re::Class);
    class.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..4).prop_map(Re::Concat),
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(Re::Alternate),
            2 => (inner, 0_usize..4, prop::option::of(0_usize..3)).prop_map(|(inner, min, more)| {
                Re::Repeat(Box::new(inner), min, more.map(|more| min + more))
            }),
        ]
    })
}

/// A set of states of the automaton.
pub(crate) type States = BTreeSet<usize>;

/// A nondeterministic automaton over bytes.
pub(crate) struct Nfa {
    bytes: Vec<Vec<(u8, usize)>>,
    epsilons: Vec<Vec<usize>>,
    start: usize,
    end: usize,
}

impl Nfa {
    pub(crate) fn new(re: &Re) -> Self {
        let mut nfa = Self {
            bytes: Vec::new(),
            epsilons: Vec::new(),
            start: 0,
            end: 0,
        };
        nfa.start = nfa.state();
        nfa.end = nfa.add(re, nfa.start);
        nfa
    }

    fn state(&mut self) -> usize {
        self.bytes.push(Vec::new());
        self.epsilons.push(Vec::new());
        self.bytes.len() - 1
    }

    /// Adds an expression from a state on; the state after it.
    fn add(&mut self, re: &Re, from: usize) -> usize {
        match re {
            Re::Class(chars) => {
                let to = self.state();
                for char in chars {
                    let text = char.to_string();
                    let (last, first) = text.as_bytes().split_last().unwrap();
                    let mut at = from;
                    for &byte in first {
                        let next = self.state();
                        self.bytes[at].push((byte, next));
                        at = next;
                    }
                    self.bytes[at].push((*last, to));
                }
                to
            }
            Re::Concat(items) => items.iter().fold(from, |at, item| self.add(item, at)),
            Re::Alternate(items) => {
                let to = self.state();
                for item in items {
                    let at = self.add(item, from);
                    self.epsilons[at].push(to);
                }
                to
            }
            Re::Repeat(inner, min, max) => {
                let mut at = from;
                for _ in 0..*min {
                    at = self.add(inner, at);
                }
                let to = self.state();
                self.epsilons[at].push(to);
                match max {
                    Some(max) => {
                        for _ in *min..*max {
                            at = self.add(inner, at);
                            self.epsilons[at].push(to);
                        }
                    }
                    None => {
                        let head = self.state();
                        self.epsilons[at].push(head);
                        let back = self.add(inner, head);
                        self.epsilons[back].push(head);
                        self.epsilons[back].push(to);
                    }
                }
                to
            }
        }
    }

    fn close(&self, states: States) -> States {
        let mut closed = states.clone();
        let mut pending: Vec<usize> = states.into_iter().collect();
        while let Some(state) = pending.pop() {
            for &next in &self.epsilons[state] {
                if closed.insert(next) {
                    pending.push(next);
                }
            }
        }
        closed
    }

    pub(crate) fn start(&self) -> States {
        self.close(States::from([self.start]))
    }

    pub(crate) fn accepts(&self, states: &States) -> bool {
        states.contains(&self.end)
    }

    pub(crate) fn step(&self, states: &States, text: &[u8]) -> States {
        let mut at = states.clone();
        for &byte in text {
            let edges = at.iter().flat_map(|&state| &self.bytes[state]);
            at = self.close(
                edges
                    .filter(|edge| edge.0 == byte)
                    .map(|edge| edge.1)
                    .collect(),
            );
        }
        at
    }

    /// Bytes that can come next.
    pub(crate) fn next_bytes(&self, states: &States) -> BTreeSet<u8> {
        // Every state of the construction reaches the end, so every edge can be completed.
        states
            .iter()
            .flat_map(|&state| &self.bytes[state])
            .map(|edge| edge.0)
            .collect()
    }
}

/// A pattern with a vocabulary.
pub(crate) struct Reference {
    pub(crate) nfa: Nfa,
    /// Text tokens with their bytes.
    pub(crate) tokens: Vec<(u32, Vec<u8>)>,
    distances: BTreeMap<States, Option<usize>>,
}

impl Reference {
    pub(crate) fn new(re: &Re, tokens: Vec<(u32, Vec<u8>)>) -> Self {
        Self {
            nfa: Nfa::new(re),
            tokens,
            distances: BTreeMap::new(),
        }
    }

    /// Fewest tokens from some states to an end.
    pub(crate) fn distance(&mut self, states: &States) -> Option<usize> {
        if let Some(&known) = self.distances.get(states) {
            return known;
        }
        let mut seen = BTreeSet::from([states.clone()]);
        let mut queue = VecDeque::from([(states.clone(), 0)]);
        let mut distance = None;
        while let Some((at, length)) = queue.pop_front() {
            if self.nfa.accepts(&at) {
                distance = Some(length);
                break;
            }
            for (_, bytes) in &self.tokens {
                let next = self.nfa.step(&at, bytes);
                if !next.is_empty() && seen.insert(next.clone()) {
                    queue.push_back((next, length + 1));
                }
            }
        }
        self.distances.insert(states.clone(), distance);
        distance
    }

    /// Text tokens after which the text can be completed.
    pub(crate) fn allowed(&mut self, states: &States) -> BTreeSet<u32> {
        let tokens = self.tokens.clone();
        let mut allowed = BTreeSet::new();
        for (id, bytes) in tokens {
            let next = self.nfa.step(states, &bytes);
            if !next.is_empty() && self.distance(&next).is_some() {
                allowed.insert(id);
            }
        }
        allowed
    }
}
