//! Places from which a grammar reads all that it can be made of: one language in place of rules.
//!
//! Let `C` be a language, such as that of letters, and say that from a node of a rule's automaton to the
//! end of the rule
//! * one text of `C+` can be read and nothing else (what stands before and after it may be empty), and
//! * all that can be read at all, in the rules that are called too, are texts over `C`.
//!
//! What is read from there is then `C+`, or `C*` where it may be nothing: the first holds it, the second
//! is held by it. So in
//! ```text
//! start: x*
//! x: (start T1)~3..4 | T2
//! T1: /[a-z]+/
//! T2: /(.|\n)*/
//! ```
//! the start is `T2`: however a text could be read, it is a text of `T2`. Without that, a parser would
//! follow all the ways in which it can be cut into parts, which no later byte ever decides between.
//!
//! Nothing here asks what else a rule may be, so it is quick where it finds nothing: only places where
//! the first holds are looked into.

use hashbrown::{HashMap, HashSet};

use super::graph::{Graph, Label, NO_NODE, Node};
use super::length::{Weights, lengths};
use super::repeated::{Texts, covers, is_held, texts_read_alone};
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// So many languages are looked at for whether one holds them.
const MAX_HELD: usize = 64;

/// What leads to each node.
#[derive(Default)]
struct Before {
    /// By edges.
    edges: Vec<Vec<(Label, u32)>>,
    /// By edges that read nothing.
    epsilons: Vec<Vec<u32>>,
    /// By the node where a rule starts: nodes with a call of it, and where that leads.
    callers: HashMap<u32, Vec<(u32, u32)>>,
}

impl Before {
    fn new(graph: &Graph, fuel: &mut Fuel) -> Result<Self, Stop> {
        let num_nodes = graph.nodes.len();
        let mut before = Self {
            edges: vec![Vec::new(); num_nodes],
            epsilons: vec![Vec::new(); num_nodes],
            callers: HashMap::new(),
        };
        for (from, node) in (0..).zip(&graph.nodes) {
            fuel.burn(1 + node.edges.len() as u64)?;
            for &(label, to) in &node.edges {
                before.edges[to as usize].push((label, from));
                if let Label::Call(rule) = label
                    && graph.starts[rule as usize] != NO_NODE
                {
                    let start = graph.starts[rule as usize];
                    before.callers.entry(start).or_default().push((from, to));
                }
            }
            for &to in &node.epsilons {
                before.epsilons[to as usize].push(from);
            }
        }
        Ok(before)
    }
}

/// Writes one language for what is read from a node, wherever it is plain that it is one.
pub(super) fn absorb(
    graph: &mut Graph,
    lexicon: &mut Lexicon,
    fuel: &mut Fuel,
) -> Result<(), Stop> {
    let kept = texts_read_alone(graph, lexicon, fuel)?;
    if kept.is_empty() {
        return Ok(());
    }
    let mut least = shortest(graph, lexicon, fuel)?;
    for texts in kept {
        let before = Before::new(graph, fuel)?;
        let alone = readable_alone(graph, lexicon, &before, texts, &least, fuel)?;
        let Some(not_held) = reading_others(graph, lexicon, &before, texts, &alone, fuel)? else {
            continue;
        };
        let found: Vec<u32> = (0..graph.nodes.len() as u32)
            .filter(|&node| alone[node as usize] && !not_held[node as usize])
            .collect();
        for &node in &found {
            let expr = match least[node as usize] {
                0 => texts.star,
                _ => texts.plus,
            };
            // Rules have no nodes in common.
            let end = graph.node();
            least.push(0);
            graph.nodes[end as usize].accepting = true;
            graph.nodes[node as usize] = Node {
                edges: vec![(Label::Text(expr), end)],
                ..Node::default()
            };
        }
        without_calls(graph, &found, fuel)?;
    }
    Ok(())
}

/// The least that is read from each node to the end of its rule, as far as that is nothing or something.
fn shortest(graph: &Graph, lexicon: &Lexicon, fuel: &mut Fuel) -> Result<Vec<u32>, Stop> {
    let mut weights = Weights::new();
    for &(label, _) in graph.nodes.iter().flat_map(|node| &node.edges) {
        fuel.burn(1)?;
        let weight = match label {
            Label::Text(expr) | Label::WithinTokens(expr, _) if lexicon.is_nullable(expr) => 0,
            _ => 1,
        };
        weights.insert(label, weight);
    }
    lengths(graph, &weights, fuel)
}

/// For each node whether one text, of one or more parts, can be read from it to the end of its rule, and
/// nothing else.
fn readable_alone(
    graph: &Graph,
    lexicon: &Lexicon,
    before: &Before,
    texts: Texts,
    least: &[u32],
    fuel: &mut Fuel,
) -> Result<Vec<bool>, Stop> {
    let is_silent = |node: u32| least[node as usize] == 0;
    let mut reads_all: HashMap<ExprId, bool> = HashMap::new();
    let mut pending = Vec::new();
    for (from, node) in (0..).zip(&graph.nodes) {
        fuel.burn(1 + node.edges.len() as u64)?;
        let reads_texts = node.edges.iter().any(|&(label, to)| {
            let Label::Text(expr) = label else {
                return false;
            };
            is_silent(to)
                && *reads_all
                    .entry(expr)
                    .or_insert_with(|| covers(lexicon, expr, texts))
        });
        if reads_texts {
            pending.push(from);
        }
    }
    let reads_nothing = |label: Label| match label {
        Label::Text(expr) | Label::WithinTokens(expr, _) => lexicon.is_nullable(expr),
        Label::Call(rule) => match graph.starts[rule as usize] {
            NO_NODE => false,
            start => is_silent(start),
        },
        Label::Lexeme(_) | Label::Tagged(..) | Label::Tokens(_) | Label::Json(_) => false,
    };
    let mut alone = vec![false; graph.nodes.len()];
    while let Some(node) = pending.pop() {
        if std::mem::replace(&mut alone[node as usize], true) {
            continue;
        }
        let edges = &before.edges[node as usize];
        let callers = before.callers.get(&node).map_or(&[][..], Vec::as_slice);
        fuel.burn(1 + (edges.len() + callers.len()) as u64)?;
        pending.extend_from_slice(&before.epsilons[node as usize]);
        let silent = edges.iter().filter(|(label, _)| reads_nothing(*label));
        pending.extend(silent.map(|(_, from)| *from));
        let last = callers.iter().filter(|(_, to)| is_silent(*to));
        pending.extend(last.map(|(from, _)| *from));
    }
    Ok(alone)
}

/// For each node whether anything may be read from it, as far as its rule leads and in the rules that are
/// called, that isn't such a text. Nodes that no node in `alone` leads to count as if. `None` where that
/// would take long.
fn reading_others(
    graph: &Graph,
    lexicon: &mut Lexicon,
    before: &Before,
    texts: Texts,
    alone: &[bool],
    fuel: &mut Fuel,
) -> Result<Option<Vec<bool>>, Stop> {
    let mut is_met = alone.to_vec();
    let mut met: Vec<u32> = (0..alone.len() as u32)
        .filter(|&node| alone[node as usize])
        .collect();
    let mut held: HashMap<Label, bool> = HashMap::new();
    let mut pending = Vec::new();
    let mut next = 0;
    while let Some(&at) = met.get(next) {
        next += 1;
        let node = &graph.nodes[at as usize];
        fuel.burn(1 + (node.edges.len() + node.epsilons.len()) as u64)?;
        let mut reads_others = false;
        let mut meet = |node: u32| {
            if !std::mem::replace(&mut is_met[node as usize], true) {
                met.push(node);
            }
        };
        node.epsilons.iter().for_each(|&to| meet(to));
        for &(label, to) in &node.edges {
            meet(to);
            match label {
                Label::Call(rule) => match graph.starts[rule as usize] {
                    NO_NODE => {}
                    start => meet(start),
                },
                Label::Text(expr) => {
                    if held.len() >= MAX_HELD && !held.contains_key(&label) {
                        return Ok(None);
                    }
                    reads_others |= match held.get(&label) {
                        Some(&is_held) => !is_held,
                        None => {
                            let is_held = is_held(lexicon, expr, texts, fuel)?;
                            held.insert(label, is_held);
                            !is_held
                        }
                    };
                }
                Label::Lexeme(_)
                | Label::WithinTokens(..)
                | Label::Tagged(..)
                | Label::Tokens(_)
                | Label::Json(_) => reads_others = true,
            }
        }
        if reads_others {
            pending.push(at);
        }
    }
    let mut others: Vec<bool> = is_met.iter().map(|is_met| !is_met).collect();
    while let Some(node) = pending.pop() {
        if std::mem::replace(&mut others[node as usize], true) {
            continue;
        }
        let edges = &before.edges[node as usize];
        let callers = before.callers.get(&node).map_or(&[][..], Vec::as_slice);
        fuel.burn(1 + (edges.len() + callers.len()) as u64)?;
        pending.extend_from_slice(&before.epsilons[node as usize]);
        pending.extend(edges.iter().map(|(_, from)| *from));
        pending.extend(callers.iter().map(|(from, _)| *from));
    }
    Ok(Some(others))
}

/// Writes what a rule reads in place of a call of it, of rules that start at some nodes with one edge.
fn without_calls(graph: &mut Graph, found: &[u32], fuel: &mut Fuel) -> Result<(), Stop> {
    let found: HashSet<u32> = found.iter().copied().collect();
    let read = |rule: usize| {
        let start = graph.starts[rule];
        let edges = match found.contains(&start) && rule != graph.root as usize {
            true => &graph.nodes[start as usize].edges[..],
            false => &[],
        };
        edges.first().map(|(label, _)| *label)
    };
    let read: Vec<Option<Label>> = (0..graph.starts.len()).map(read).collect();
    for node in &mut graph.nodes {
        fuel.burn(1 + node.edges.len() as u64)?;
        for (label, _) in &mut node.edges {
            if let Label::Call(rule) = *label
                && let Some(read) = read[rule as usize]
            {
                *label = read;
            }
        }
    }
    Ok(())
}
