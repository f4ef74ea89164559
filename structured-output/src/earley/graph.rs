//! A finite automaton per rule, over languages, tokens, JSON and calls of rules (Thompson 1968).

use hashbrown::HashMap;

use super::lower::{Folded, Tree, Value};
use crate::lexical::{EMPTY, EPSILON, ExprId, Fuel, Stop, UNBOUNDED};

/// What an edge reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Label {
    /// A text of a language.
    Text(ExprId),
    /// A terminal, by its position in [`Folded::lexemes`]. Only where some terminals are lazy, and
    /// only until that is given its meaning.
    Lexeme(u32),
    /// Text of a language which at most so many tokens have a part in.
    WithinTokens(ExprId, u32),
    /// Free text and a word, by its position in [`Folded::dispatches`] and the word's tag. All tags of one
    /// are read by one lexeme.
    Tagged(u32, u16),
    /// A token of a set.
    Tokens(u32),
    /// A value under a schema.
    Json(u32),
    /// What a rule reads.
    Call(u32),
}

/// A state of a rule's automaton.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) edges: Vec<(Label, u32)>,
    /// Edges that read nothing.
    pub(super) epsilons: Vec<u32>,
    /// Whether the rule may end here.
    pub(super) accepting: bool,
}

/// The automata of all rules, in one list of nodes.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Where each rule starts; [`NO_NODE`] where it isn't used. No edge leads to a start.
    pub(super) starts: Vec<u32>,
    /// The rule that is the whole grammar. Nothing calls it.
    pub(super) root: u32,
}

pub(super) const NO_NODE: u32 = u32::MAX;

/// Repetitions of up to this many parts are written out.
const MAX_UNROLLED: u32 = 16;

/// Repetitions of this many parts or more have no bound: each part has a byte at least, and no text
/// is that long.
const MANY: u32 = 1 << 30;

impl Graph {
    pub(super) fn node(&mut self) -> u32 {
        self.nodes.push(Node::default());
        self.nodes.len() as u32 - 1
    }

    fn edge(&mut self, from: u32, label: Label, to: u32) {
        self.nodes[from as usize].edges.push((label, to));
    }

    fn epsilon(&mut self, from: u32, to: u32) {
        self.nodes[from as usize].epsilons.push(to);
    }

    /// The automata of a grammar that starts with a rule.
    pub(super) fn build(folded: &Folded, start: u32, fuel: &mut Fuel) -> Result<Self, Stop> {
        let mut builder = Builder {
            folded,
            graph: Self {
                starts: vec![NO_NODE; folded.rules.len()],
                ..Self::default()
            },
            bodies: HashMap::new(),
            powers: HashMap::new(),
            pending: vec![start],
        };
        while let Some(rule) = builder.pending.pop() {
            if builder.graph.starts[rule as usize] != NO_NODE {
                continue;
            }
            let body = match builder.bodies.get(&rule) {
                Some(body) => body.clone(),
                None => match folded.rules.get(rule as usize).and_then(Option::as_ref) {
                    Some(value) => Body::Value(value.clone()),
                    None => continue,
                },
            };
            let (from, to) = (builder.graph.node(), builder.graph.node());
            builder.graph.starts[rule as usize] = from;
            builder.graph.nodes[to as usize].accepting = true;
            builder.write(body, from, to, fuel)?;
        }
        let mut graph = builder.graph;
        let (from, to) = (graph.node(), graph.node());
        graph.edge(from, Label::Call(start), to);
        graph.nodes[to as usize].accepting = true;
        graph.root = graph.starts.len() as u32;
        graph.starts.push(from);
        Ok(graph)
    }
}

/// What is written between two nodes.
#[derive(Clone)]
enum Body {
    Value(Value),
    Call(u32),
    Concat(Vec<Body>),
    Alternate(Vec<Body>),
    Star(Box<Body>),
}

struct Builder<'a> {
    folded: &'a Folded,
    graph: Graph,
    /// Bodies of rules that were made here.
    bodies: HashMap<u32, Body>,
    /// A tree repeated 2^k times, and up to 2^k - 1 times, as rules.
    powers: HashMap<(u32, u32, bool), u32>,
    /// Rules to be written.
    pending: Vec<u32>,
}

impl Builder<'_> {
    fn call(&mut self, rule: u32) -> Body {
        self.pending.push(rule);
        Body::Call(rule)
    }

    /// A rule with a body of its own.
    fn rule(&mut self, body: Body) -> u32 {
        let rule = self.graph.starts.len() as u32;
        self.graph.starts.push(NO_NODE);
        self.bodies.insert(rule, body);
        rule
    }

    /// Writes a body between two nodes: edges leave `from` and lead to `to`, none leads to `from`
    /// or leaves `to`.
    fn write(&mut self, body: Body, from: u32, to: u32, fuel: &mut Fuel) -> Result<(), Stop> {
        let mut pending = vec![(body, from, to)];
        while let Some((body, from, to)) = pending.pop() {
            fuel.burn(1)?;
            match body {
                Body::Value(Value::Regular(EMPTY, _)) => {}
                Body::Value(Value::Regular(EPSILON, _)) => self.graph.epsilon(from, to),
                Body::Value(Value::Regular(expr, _)) => {
                    self.graph.edge(from, Label::Text(expr), to);
                }
                Body::Value(Value::Tree(tree)) => {
                    let body = match &self.folded.trees[tree as usize] {
                        &Tree::Call(rule) => self.call(rule),
                        &Tree::Lexeme(lexeme) => {
                            self.graph.edge(from, Label::Lexeme(lexeme), to);
                            continue;
                        }
                        &Tree::Tokens(set) => {
                            self.graph.edge(from, Label::Tokens(set), to);
                            continue;
                        }
                        &Tree::Json(schema) => {
                            self.graph.edge(from, Label::Json(schema), to);
                            continue;
                        }
                        &Tree::WithinTokens(expr, max) => {
                            self.graph.edge(from, Label::WithinTokens(expr, max), to);
                            continue;
                        }
                        &Tree::Text(expr) => {
                            self.graph.edge(from, Label::Text(expr), to);
                            continue;
                        }
                        Tree::Tagged { dispatch, contents } => {
                            for (tag, content) in (0..).zip(contents) {
                                let tagged = self.graph.node();
                                self.graph.edge(from, Label::Tagged(*dispatch, tag), tagged);
                                pending.push((Body::Value(content.clone()), tagged, to));
                            }
                            continue;
                        }
                        Tree::Concat(items) => Body::Concat(values(items)),
                        Tree::Alternate(items) => Body::Alternate(values(items)),
                        Tree::Repeat { inner, min, max } => {
                            let (inner, min, max) = (inner.clone(), *min, *max);
                            self.repeat(tree, inner, min, max)
                        }
                    };
                    pending.push((body, from, to));
                }
                Body::Call(rule) => self.graph.edge(from, Label::Call(rule), to),
                Body::Concat(items) => {
                    let mut at = from;
                    let last = items.len().saturating_sub(1);
                    if items.is_empty() {
                        self.graph.epsilon(from, to);
                    }
                    for (index, item) in items.into_iter().enumerate() {
                        let next = if index == last { to } else { self.graph.node() };
                        pending.push((item, at, next));
                        at = next;
                    }
                }
                Body::Alternate(items) => {
                    pending.extend(items.into_iter().map(|item| (item, from, to)));
                }
                Body::Star(inner) => {
                    let (start, end) = (self.graph.node(), self.graph.node());
                    self.graph.epsilon(from, start);
                    self.graph.epsilon(start, to);
                    self.graph.epsilon(end, start);
                    pending.push((*inner, start, end));
                }
            }
        }
        Ok(())
    }

    /// A tree `min` to `max` times. Few are written out. Many are rules that double: `x{2^k}`, and
    /// `x{0,2^k - 1}` as the binary digits of the count, so that a count is made in one way.
    fn repeat(&mut self, tree: u32, inner: Value, min: u32, max: u32) -> Body {
        let max = if max >= MANY { UNBOUNDED } else { max };
        let one = Body::Value(inner.clone());
        let star = Body::Star(Box::new(one.clone()));
        let bounded = if max == UNBOUNDED { min } else { max };
        if bounded <= MAX_UNROLLED {
            let mut items = vec![one.clone(); min as usize];
            if max == UNBOUNDED {
                items.push(star);
                return Body::Concat(items);
            }
            let mut rest: Option<Body> = None;
            for _ in min..max {
                let more = Body::Concat(std::iter::once(one.clone()).chain(rest).collect());
                rest = Some(Body::Alternate(vec![Body::Concat(Vec::new()), more]));
            }
            items.extend(rest);
            return Body::Concat(items);
        }
        let mut items: Vec<Body> = Vec::new();
        for k in 0..31 {
            if min >> k & 1 == 1 {
                items.push(self.power(tree, &inner, k, true));
            }
        }
        if max == UNBOUNDED {
            items.push(star);
            return Body::Concat(items);
        }
        // Up to `more` times: up to 2^k - 1, or 2^k and up to what is left.
        let mut more = max - min;
        let mut ways = Vec::new();
        let mut before: Vec<Body> = Vec::new();
        loop {
            let k = (more + 1).ilog2();
            let mut way = before.clone();
            way.push(self.power(tree, &inner, k, false));
            ways.push(Body::Concat(way));
            if (more + 1).is_power_of_two() {
                break;
            }
            before.push(self.power(tree, &inner, k, true));
            more -= 1 << k;
        }
        items.push(Body::Alternate(ways));
        Body::Concat(items)
    }

    /// `inner` 2^k times, or up to 2^k - 1 times.
    fn power(&mut self, tree: u32, inner: &Value, k: u32, exact: bool) -> Body {
        let mut below = if exact {
            Body::Value(inner.clone())
        } else {
            Body::Concat(Vec::new())
        };
        for level in 0..=k {
            let key = (tree, level, exact);
            if let Some(&rule) = self.powers.get(&key) {
                below = self.call(rule);
                continue;
            }
            let body = match (level, exact) {
                (0, _) => below,
                (_, true) => Body::Concat(vec![below.clone(), below]),
                (_, false) => {
                    // The highest digit: 2^(level - 1) more, or not.
                    let half = self.power_rule(tree, inner, level - 1);
                    let half = Body::Alternate(vec![Body::Concat(Vec::new()), half]);
                    Body::Concat(vec![half, below])
                }
            };
            let rule = self.rule(body);
            self.powers.insert(key, rule);
            below = self.call(rule);
        }
        below
    }

    /// `power` with `exact`, which doesn't come back here.
    fn power_rule(&mut self, tree: u32, inner: &Value, k: u32) -> Body {
        self.power(tree, inner, k, true)
    }
}

fn values(items: &[Value]) -> Vec<Body> {
    items.iter().cloned().map(Body::Value).collect()
}
