//! Rules that need no call: they become a part of the rule that calls them.
//!
//! A grammar for expressions has a rule for each level of precedence. Nobody asks for the tree here, so
//! `sum: product ("+" product)*` with `product: atom ("*" atom)*` reads what
//! `sum: atom (("+" | "*") atom)*` does, which a parser steps through without a stack. A rule that is
//! called at one place only is written there and takes no more room than before. A rule that ends
//! with a call of itself, such as `unary: "-" unary | atom`, goes back to its start instead, and so do
//! rules that end with each other (as in Mohri and Nederhof 2001, "Regular approximation of
//! context-free grammars through transformation", where nothing is approximated). What is left as
//! rules is what nests.
//!
//! What comes out is made deterministic and small again. Then what may follow is often one node where
//! it was one per level: fewer lexemes, contexts and states for all that comes later.

use hashbrown::HashMap;

use super::graph::{Graph, Label, NO_NODE};
use super::simplify::{Seen, merged, without_epsilons};
use super::subsets::deterministic;
use crate::lexical::{Fuel, Stop};

/// Steps for each node and edge of a graph, and for all of it.
const MAX_STEPS_EACH: u64 = 64;
const MAX_STEPS: u64 = 1 << 22;

/// Rounds: what became small in one may be called at one place in the next.
const MAX_ROUNDS: usize = 4;

/// Writes rules where they are called at one place, in a deterministic graph without epsilons and left
/// recursion. The graph stays as it is where that takes long or much room: it is a saving and no more.
pub(super) fn inline(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), Stop> {
    for _ in 0..MAX_ROUNDS {
        let steps = MAX_STEPS_EACH.saturating_mul(size(graph));
        let steps = steps.min(MAX_STEPS).min(fuel.left() / 2);
        match fuel.within(steps, |part| inlined(graph, part))? {
            Some(Some(smaller)) => *graph = smaller,
            Some(None) | None => break,
        }
    }
    Ok(())
}

/// Nodes and edges.
fn size(graph: &Graph) -> u64 {
    let sizes = graph.nodes.iter().map(|node| 1 + node.edges.len() as u64);
    sizes.sum()
}

/// One round; `None` where there is nothing to write elsewhere, or where that takes more room.
fn inlined(graph: &Graph, fuel: &mut Fuel) -> Result<Option<Graph>, Stop> {
    let calls = Calls::new(graph, fuel)?;
    let plan = Plan::new(graph, &calls, fuel)?;
    if !plan.changes_anything {
        return Ok(None);
    }
    let mut made = Writer::new(graph, &plan).run(&calls, fuel)?;
    without_epsilons(&mut made, fuel)?;
    deterministic(&mut made, fuel)?;
    merged(&mut made, fuel)?;
    Ok((size(&made) <= 2 * size(graph)).then_some(made))
}

/// Whether a rule is over at a node: it may end there and can't go on.
fn is_last(graph: &Graph, node: u32) -> bool {
    let node = &graph.nodes[node as usize];
    node.accepting && node.edges.is_empty()
}

/// A call by a rule, and whether the rule ends with it.
struct Site {
    callee: u32,
    is_last: bool,
}

/// The rules that the root leads to, and how they call each other.
struct Calls {
    /// The root first.
    rules: Vec<u32>,
    /// For each of these.
    sites: Vec<Vec<Site>>,
}

/// Which rules become parts of others.
struct Plan {
    /// By rule.
    is_part: Vec<bool>,
    /// By rule: the rule whose end is its end. That is itself, but where all that call it end with
    /// that and have one end.
    ends: Vec<u32>,
    changes_anything: bool,
}

impl Plan {
    /// No two rules become parts of each other: the root, which is no part, leads to each of them, so
    /// one of any such would have a place outside.
    fn new(graph: &Graph, calls: &Calls, fuel: &mut Fuel) -> Result<Self, Stop> {
        let num_rules = graph.starts.len();
        let mut has_own_end = vec![false; num_rules];
        has_own_end[graph.root as usize] = true;
        // How often each is called within a rule, and from elsewhere at an end.
        let mut num_within = vec![0_u32; num_rules];
        let mut num_at_ends = vec![0_u32; num_rules];
        for site in calls.sites.iter().flatten().filter(|site| !site.is_last) {
            has_own_end[site.callee as usize] = true;
            num_within[site.callee as usize] += 1;
        }
        let mut plan = Self {
            is_part: vec![false; num_rules],
            ends: find_ends(calls, has_own_end, fuel)?,
            changes_anything: false,
        };
        for (&rule, sites) in calls.rules.iter().zip(&calls.sites) {
            for site in sites.iter().filter(|site| site.is_last) {
                match plan.ends[rule as usize] == plan.ends[site.callee as usize] {
                    true => plan.changes_anything = true,
                    false => num_at_ends[site.callee as usize] += 1,
                }
            }
        }
        for &rule in &calls.rules {
            let at = rule as usize;
            let is_part = plan.ends[at] != rule || num_within[at] == 1 && num_at_ends[at] == 0;
            plan.is_part[at] = is_part;
            plan.changes_anything |= is_part;
        }
        Ok(plan)
    }
}

/// For each rule the one whose end is its end. Those that `has_own_end` says keep theirs; others get
/// the one of all that end with them, and where these have several their own. Rules so belong to the
/// last of these that all ways to them lead through: a dominator, in a graph's words.
fn find_ends(calls: &Calls, mut has_own_end: Vec<bool>, fuel: &mut Fuel) -> Result<Vec<u32>, Stop> {
    let mut numbers = vec![0; has_own_end.len()];
    for (number, &rule) in calls.rules.iter().enumerate() {
        numbers[rule as usize] = number;
    }
    loop {
        let mut ends = vec![NO_NODE; has_own_end.len()];
        fuel.burn(ends.len() as u64)?;
        let rules = calls.rules.iter().copied();
        let mut pending: Vec<u32> = rules.filter(|&rule| has_own_end[rule as usize]).collect();
        for &rule in &pending {
            ends[rule as usize] = rule;
        }
        let mut is_done = true;
        while let Some(rule) = pending.pop() {
            let sites = &calls.sites[numbers[rule as usize]];
            fuel.burn(1 + sites.len() as u64)?;
            let end = ends[rule as usize];
            for site in sites.iter().filter(|site| site.is_last) {
                let at = site.callee as usize;
                if has_own_end[at] {
                    continue;
                }
                if ends[at] == NO_NODE {
                    ends[at] = end;
                    pending.push(site.callee);
                } else if ends[at] != end {
                    has_own_end[at] = true;
                    is_done = false;
                }
            }
        }
        if is_done {
            return Ok(ends);
        }
    }
}

impl Calls {
    fn new(graph: &Graph, fuel: &mut Fuel) -> Result<Self, Stop> {
        fuel.burn((graph.starts.len() + graph.nodes.len()) as u64)?;
        let mut calls = Self {
            rules: vec![graph.root],
            sites: Vec::new(),
        };
        let mut is_called = vec![false; graph.starts.len()];
        let mut seen = Seen::new(graph.nodes.len());
        while let Some(&rule) = calls.rules.get(calls.sites.len()) {
            let sites = sites_of(graph, rule, &mut seen, fuel)?;
            for site in &sites {
                if !std::mem::replace(&mut is_called[site.callee as usize], true) {
                    calls.rules.push(site.callee);
                }
            }
            calls.sites.push(sites);
        }
        Ok(calls)
    }
}

/// The calls in a rule's automaton.
fn sites_of(graph: &Graph, rule: u32, seen: &mut Seen, fuel: &mut Fuel) -> Result<Vec<Site>, Stop> {
    let start = graph.starts[rule as usize];
    seen.clear();
    seen.insert(start);
    let mut pending = vec![start];
    let mut sites = Vec::new();
    while let Some(node) = pending.pop() {
        let edges = &graph.nodes[node as usize].edges;
        fuel.burn(1 + edges.len() as u64)?;
        for &(label, to) in edges {
            if let Label::Call(callee) = label {
                sites.push(Site {
                    callee,
                    is_last: is_last(graph, to),
                });
            }
            if seen.insert(to) {
                pending.push(to);
            }
        }
    }
    Ok(sites)
}

/// Writes rules with their parts.
struct Writer<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    made: Graph,
    /// Where each rule starts, its own or as a part; [`NO_NODE`] before it is met.
    starts: Vec<u32>,
    /// What follows each part that doesn't end where another rule does; [`NO_NODE`] after a rule of its
    /// own.
    after: Vec<u32>,
    /// Rules to be written.
    pending: Vec<u32>,
}

impl<'a> Writer<'a> {
    fn new(graph: &'a Graph, plan: &'a Plan) -> Self {
        let none = vec![NO_NODE; graph.starts.len()];
        Self {
            graph,
            plan,
            made: Graph {
                starts: none.clone(),
                root: graph.root,
                ..Graph::default()
            },
            starts: none.clone(),
            after: none,
            pending: Vec::new(),
        }
    }

    fn run(mut self, calls: &Calls, fuel: &mut Fuel) -> Result<Graph, Stop> {
        for &rule in &calls.rules {
            if !self.plan.is_part[rule as usize] {
                self.made.starts[rule as usize] = self.start(rule);
            }
        }
        while let Some(rule) = self.pending.pop() {
            self.write(rule, fuel)?;
        }
        Ok(self.made)
    }

    /// Where a rule starts; it is written later.
    fn start(&mut self, rule: u32) -> u32 {
        let start = &mut self.starts[rule as usize];
        if *start == NO_NODE {
            *start = self.made.node();
            self.pending.push(rule);
        }
        *start
    }

    /// Writes a rule from its start on.
    fn write(&mut self, rule: u32, fuel: &mut Fuel) -> Result<(), Stop> {
        let graph = self.graph;
        let end = self.plan.ends[rule as usize];
        let after = self.after[end as usize];
        let start = graph.starts[rule as usize];
        let mut copies: HashMap<u32, u32> = HashMap::from([(start, self.start(rule))]);
        let mut pending = vec![(start, self.start(rule))];
        while let Some((node, copy)) = pending.pop() {
            let node = &graph.nodes[node as usize];
            fuel.burn(1 + node.edges.len() as u64)?;
            let (mut edges, mut epsilons) = (Vec::new(), Vec::new());
            for &(label, to) in &node.edges {
                let is_last = is_last(graph, to);
                if let Label::Call(callee) = label
                    && is_last
                    && self.plan.ends[callee as usize] == end
                {
                    epsilons.push(self.start(callee));
                    continue;
                }
                let next = *copies.entry(to).or_insert_with(|| {
                    let copy = self.made.node();
                    pending.push((to, copy));
                    copy
                });
                match label {
                    Label::Call(callee) if self.plan.is_part[callee as usize] => {
                        self.after[callee as usize] = next;
                        epsilons.push(self.start(callee));
                    }
                    label => edges.push((label, next)),
                }
            }
            if node.accepting && after != NO_NODE {
                epsilons.push(after);
            }
            let copy = &mut self.made.nodes[copy as usize];
            copy.accepting = node.accepting && after == NO_NODE;
            (copy.edges, copy.epsilons) = (edges, epsilons);
        }
        Ok(())
    }
}
