//! What lazy terminals mean for the terminals beside them.
//!
//! Lark's lexer, as llguidance has it, reads one terminal at a time: of all that may begin at a place
//! it follows each as long as it goes on, and the first lazy one that matches is what was read. So
//! where a lazy terminal may begin, the others that may begin there too
//!
//! - don't read a text that begins with a match of it, and
//! - don't end where it could still go on.
//!
//! Free text beside `TEXT "<call>"` thereby holds no `<call>`, nor can it be cut in two in the midst
//! of one.
//!
//! Which terminals may begin at a place depends on what was read before. So this is a subset
//! construction (Rabin and Scott 1959): states are sets of places in the rules, each with the rules
//! that it is to return to, and edges are terminals, as restricted there. Rules without lazy
//! terminals stay rules where nothing lazy is near.

mod near;
mod rules;

use hashbrown::{HashMap, HashSet};

use super::graph::{Graph, Label, NO_NODE, Node};
use super::lower::{Folded, LowerError};
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, Stop};
use near::{Meaning, Rest};
use rules::Rules;

/// How many rules a place may be within, one called by the other.
const MAX_DEPTH: u32 = 64;

/// Why lazy terminals were not given their meaning.
pub(crate) enum LazyError {
    Stopped(Stop),
    Refused(LowerError),
}

impl From<Stop> for LazyError {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// A node, and the return it is to make.
type Place = (u32, u32);

/// A node to return to, and the return after it. The first stands for the end of the grammar.
struct Return {
    node: u32,
    next: u32,
    depth: u32,
}

/// A state: places, and what may not follow.
type Key = (Box<[Place]>, Rest);

/// The construction. It can pause between states.
pub(super) struct Lazy {
    graph: Graph,
    rules: Rules,
    meaning: Meaning,
    returns: Vec<Return>,
    known_returns: HashMap<(u32, u32), u32>,
    /// Whether lazy terminals may begin after a return.
    after: HashMap<u32, bool>,
    states: HashMap<Key, u32>,
    pending: Vec<(Key, u32)>,
    /// The result. A node per state, after the start.
    made: Vec<Node>,
    /// Rules that stay rules.
    called: Vec<u32>,
}

/// What may be read at a state.
#[derive(Default)]
struct Open {
    edges: Vec<(Label, Place)>,
    accepting: bool,
    has_lazy: bool,
    /// Returns of calls that were not followed.
    calls: Vec<u32>,
}

impl Lazy {
    pub(super) fn new(
        graph: Graph,
        folded: &Folded,
        lexicon: &mut Lexicon,
        fuel: &mut Fuel,
    ) -> Result<Self, Stop> {
        let rules = Rules::new(&graph, folded, lexicon, fuel)?;
        let start = (graph.starts[graph.root as usize], 0);
        let end = Return {
            node: NO_NODE,
            next: 0,
            depth: 0,
        };
        let mut lazy = Self {
            graph,
            rules,
            meaning: Meaning::new(lexicon),
            returns: vec![end],
            known_returns: HashMap::new(),
            after: HashMap::new(),
            states: HashMap::new(),
            pending: Vec::new(),
            made: vec![Node::default()],
            called: Vec::new(),
        };
        let first = lazy.state(vec![start], Rest::default());
        lazy.made[0].epsilons.push(first);
        Ok(lazy)
    }

    /// Makes the edges of some states; true once all are done.
    pub(super) fn run(
        &mut self,
        folded: &Folded,
        lexicon: &mut Lexicon,
        max_edges: usize,
        fuel: &mut Fuel,
    ) -> Result<bool, LazyError> {
        let mut done = 0;
        while done < max_edges {
            let Some(((places, rest), id)) = self.pending.pop() else {
                return Ok(true);
            };
            done += 1 + places.len();
            done += self.edges(folded, lexicon, &places, &rest, id, fuel)?;
        }
        Ok(false)
    }

    /// The result.
    pub(super) fn finish(mut self) -> Graph {
        let mut starts = vec![NO_NODE; self.graph.starts.len()];
        starts[self.graph.root as usize] = 0;
        let mut nodes = self.made;
        while let Some(rule) = self.called.pop() {
            if starts[rule as usize] != NO_NODE {
                continue;
            }
            let (from, to) = self.rules.nodes(rule);
            let first = nodes.len() as u32;
            starts[rule as usize] = first;
            for node in &self.graph.nodes[from as usize..to as usize] {
                let edges = node.edges.iter().map(|&(label, target)| {
                    if let Label::Call(callee) = label {
                        self.called.push(callee);
                    }
                    (self.rules.as_text(label), target - from + first)
                });
                nodes.push(Node {
                    edges: edges.collect(),
                    epsilons: node.epsilons.iter().map(|to| to - from + first).collect(),
                    accepting: node.accepting,
                });
            }
        }
        let root = self.graph.root;
        Graph {
            nodes,
            starts,
            root,
        }
    }

    /// The node of a state.
    fn state(&mut self, mut places: Vec<Place>, rest: Rest) -> u32 {
        places.sort_unstable();
        places.dedup();
        let key: Key = (places.into(), rest);
        if let Some(&known) = self.states.get(&key) {
            return known;
        }
        let id = self.made.len() as u32;
        self.made.push(Node::default());
        self.states.insert(key.clone(), id);
        self.pending.push((key, id));
        id
    }

    /// The edges of a state, in their order; how many.
    fn edges(
        &mut self,
        folded: &Folded,
        lexicon: &mut Lexicon,
        places: &[Place],
        rest: &Rest,
        id: u32,
        fuel: &mut Fuel,
    ) -> Result<usize, LazyError> {
        let open = self.open_as_needed(folded, places, rest, fuel)?;
        let num_edges = open.edges.len();
        // One edge per language, lazy ones apart.
        let key = |label: Label| match label {
            Label::Lexeme(lexeme) => {
                let lexeme = &folded.lexemes[lexeme as usize];
                (Label::Text(lexeme.expr), 1 + u8::from(lexeme.is_lazy))
            }
            label => (label, 0),
        };
        let mut edges: Vec<_> = open
            .edges
            .into_iter()
            .map(|(label, place)| (key(label), label, place))
            .collect();
        edges.sort_unstable();
        let lazy: Vec<ExprId> = edges
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|same| match same[0].0 {
                (Label::Text(expr), 2) => Some(expr),
                _ => None,
            })
            .collect();
        let ends = self.meaning.ends(lexicon, lazy, fuel)?;
        for same in edges.chunk_by(|a, b| a.0 == b.0) {
            let (key, label, _) = same[0];
            let mut after = Rest::default();
            let mut read = label;
            if let ((Label::Text(expr), kind @ 1..), Label::Lexeme(lexeme)) = (key, label) {
                if kind == 1 {
                    let lexeme = &folded.lexemes[lexeme as usize];
                    after = self.meaning.rest(lexicon, expr, &ends, lexeme, fuel)?;
                }
                let expr = self.meaning.restricted(lexicon, expr, kind == 2, &ends);
                match rest.restrict(lexicon, expr, fuel)? {
                    EMPTY => continue,
                    expr => read = Label::Text(expr),
                }
            }
            if let Label::Json(schema) = label {
                let (_, rule, offset) = folded.schemas[schema as usize];
                let place = (rule, offset);
                self.meaning.check_json(lexicon, &ends, place, fuel)?;
                if rest.forbids_json(place)? {
                    continue;
                }
            }
            if let Label::WithinTokens(expr, max) = label {
                let mut budgets = folded.budgets.iter();
                let budget = budgets.find(|budget| (budget.0, budget.1) == (expr, max));
                let place = budget.map_or((0, 0), |budget| (budget.2, budget.3));
                self.meaning.check_budget(&ends, rest, place)?;
            }
            if let Label::Call(rule) = label {
                self.called.push(rule);
            }
            let places = same.iter().map(|edge| edge.2).collect();
            let to = self.state(places, after);
            self.made[id as usize].edges.push((read, to));
        }
        let made = &mut self.made[id as usize];
        made.accepting = open.accepting;
        match num_edges > 0 && made.edges.is_empty() && !made.accepting {
            true => rest.check_end().map(|()| num_edges),
            false => Ok(num_edges),
        }
    }

    /// What may be read from some places on. Calls are followed where something lazy is near.
    fn open_as_needed(
        &mut self,
        folded: &Folded,
        places: &[Place],
        rest: &Rest,
        fuel: &mut Fuel,
    ) -> Result<Open, LazyError> {
        let open = self.open(folded, places, false, fuel)?;
        let mut is_near = open.has_lazy || !rest.is_empty();
        for &back in &open.calls {
            is_near = is_near || self.is_lazy_after(folded, back, fuel)?;
        }
        match is_near && !open.calls.is_empty() {
            true => self.open(folded, places, true, fuel),
            false => Ok(open),
        }
    }

    /// What may be read from some places on. Calls of rules without lazy terminals are left, but with
    /// `all`.
    fn open(
        &mut self,
        folded: &Folded,
        places: &[Place],
        all: bool,
        fuel: &mut Fuel,
    ) -> Result<Open, LazyError> {
        let mut open = Open::default();
        let mut seen: HashSet<Place> = places.iter().copied().collect();
        let mut pending = places.to_vec();
        let mut next = Vec::new();
        while let Some((at, back)) = pending.pop() {
            let num_edges = self.graph.nodes[at as usize].edges.len();
            fuel.burn(2 + num_edges as u64)?;
            let node = &self.graph.nodes[at as usize];
            next.extend(node.epsilons.iter().map(|&to| (to, back)));
            if node.accepting {
                match back {
                    0 => open.accepting = true,
                    _ => {
                        let back = &self.returns[back as usize];
                        next.push((back.node, back.next));
                    }
                }
            }
            for edge in 0..num_edges {
                let (label, to) = self.graph.nodes[at as usize].edges[edge];
                if self.rules.reads_nothing(label) {
                    next.push((to, back));
                }
                let Label::Call(rule) = label else {
                    if let Label::Lexeme(lexeme) = label {
                        open.has_lazy |= folded.lexemes[lexeme as usize].is_lazy;
                    }
                    open.edges.push((label, (to, back)));
                    continue;
                };
                let start = self.graph.starts[rule as usize];
                if start == NO_NODE {
                    continue;
                }
                if all || self.rules.is_followed(rule) {
                    next.push((start, self.call(folded, to, back)?));
                } else {
                    open.calls.push(self.call(folded, to, back)?);
                    open.edges.push((label, (to, back)));
                }
            }
            pending.extend(next.drain(..).filter(|&place| seen.insert(place)));
        }
        Ok(open)
    }

    /// The return from a call that leads to a node. A call at the end of its rule returns from that.
    fn call(&mut self, folded: &Folded, mut node: u32, next: u32) -> Result<u32, LazyError> {
        loop {
            let after = &self.graph.nodes[node as usize];
            match (&after.edges[..], &after.epsilons[..], after.accepting) {
                ([], [], true) => return Ok(next),
                ([], &[only], false) => node = only,
                _ => break,
            }
        }
        if let Some(&known) = self.known_returns.get(&(node, next)) {
            return Ok(known);
        }
        let depth = self.returns[next as usize].depth + 1;
        if depth > MAX_DEPTH {
            let lazy = folded.lexemes.iter().find(|lexeme| lexeme.is_lazy);
            let (at, offset) = lazy.map_or((0, 0), |lazy| (lazy.rule, lazy.offset));
            return Err(LazyError::Refused(LowerError {
                rule: at,
                offset,
                message: format!(
                    "what this `lazy` ends can't be told: a rule with it or beside it leads back \
                     to itself other than at its end, or is {MAX_DEPTH} rules deep: write a \
                     repetition, as `(…)*`"
                ),
            }));
        }
        let id = self.returns.len() as u32;
        self.returns.push(Return { node, next, depth });
        self.known_returns.insert((node, next), id);
        Ok(id)
    }

    /// Whether lazy terminals may begin after a return.
    fn is_lazy_after(
        &mut self,
        folded: &Folded,
        back: u32,
        fuel: &mut Fuel,
    ) -> Result<bool, LazyError> {
        if back == 0 {
            return Ok(false);
        }
        if let Some(&known) = self.after.get(&back) {
            return Ok(known);
        }
        let Return { node, next, .. } = self.returns[back as usize];
        let has_lazy = self.open(folded, &[(node, next)], false, fuel)?.has_lazy;
        self.after.insert(back, has_lazy);
        Ok(has_lazy)
    }
}
