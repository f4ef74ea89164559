//! Rules that begin with themselves, rewritten so that none does.
//!
//! Let rules X_j be such that each may begin with each other. A text of X_i begins, at the bottom, as
//! some X_j without any of them at its beginning, and goes on with what follows X_j at the beginning
//! of some X_k, and so on up to X_i. So one automaton with a node per rule, "a whole X_j has been
//! read", reads the same texts from the left to the right, and doesn't begin with any of the rules
//! (Rosenkrantz and Lewis 1970, "Deterministic left corner parsing").
//!
//! What is recognised stays the same, and that is all that is asked here: nobody wants the tree.
//! Afterwards a rule's first calls lead to rules further down only, which is what lets a parser
//! know all callers of a rule at a place before it looks into the rule.

use super::graph::{Graph, Label, NO_NODE, Node};
use super::order::components;
use crate::lexical::{Fuel, Stop};

/// The rules that each rule may begin with.
fn first_calls(graph: &Graph) -> Vec<Vec<u32>> {
    let calls = |start: &u32| {
        let edges: &[(Label, u32)] = match *start {
            NO_NODE => &[],
            start => &graph.nodes[start as usize].edges,
        };
        let mut calls: Vec<u32> = edges
            .iter()
            .filter_map(|edge| match edge.0 {
                Label::Call(rule) => Some(rule),
                _ => None,
            })
            .collect();
        calls.sort_unstable();
        calls.dedup();
        calls
    };
    graph.starts.iter().map(calls).collect()
}

/// Rewrites the rules of a graph without epsilons in which no rule reads nothing.
pub(super) fn without_left_recursion(graph: &mut Graph, fuel: &mut Fuel) -> Result<(), Stop> {
    let calls = first_calls(graph);
    for component in components(graph.starts.len(), |rule| &calls[rule]) {
        let cyclic = component.len() > 1 || calls[component[0] as usize].contains(&component[0]);
        if !cyclic {
            continue;
        }
        let mut inside = vec![false; graph.starts.len()];
        for &rule in &component {
            inside[rule as usize] = true;
        }
        // The nodes of each rule apart from its start, which nothing leads to.
        let mut members: Vec<u32> = Vec::new();
        let mut is_member = vec![false; graph.nodes.len()];
        for &rule in &component {
            let mut pending = vec![graph.starts[rule as usize]];
            while let Some(node) = pending.pop() {
                let edges = &graph.nodes[node as usize].edges;
                fuel.burn(1 + edges.len() as u64)?;
                for &(_, to) in edges {
                    if !std::mem::replace(&mut is_member[to as usize], true) {
                        members.push(to);
                        pending.push(to);
                    }
                }
            }
        }
        let rule_of = accepting_rules(graph, &component, fuel)?;
        let mut starts = Vec::with_capacity(component.len());
        for &whole in &component {
            fuel.burn((members.len() + component.len()) as u64)?;
            starts.push(rewritten(
                graph, &component, &inside, &members, &rule_of, whole, fuel,
            )?);
        }
        for (&rule, start) in component.iter().zip(starts) {
            graph.starts[rule as usize] = start;
        }
    }
    Ok(())
}

/// For each accepting node, the rule of the component that it ends. Rules have no nodes in common.
fn accepting_rules(
    graph: &Graph,
    component: &[u32],
    fuel: &mut Fuel,
) -> Result<hashbrown::HashMap<u32, u32>, Stop> {
    let mut found = hashbrown::HashMap::new();
    let mut seen = hashbrown::HashSet::new();
    for &rule in component {
        let mut pending = vec![graph.starts[rule as usize]];
        while let Some(node) = pending.pop() {
            let node_edges = &graph.nodes[node as usize];
            fuel.burn(1 + node_edges.edges.len() as u64)?;
            if node_edges.accepting {
                found.insert(node, rule);
            }
            pending.extend(
                node_edges
                    .edges
                    .iter()
                    .map(|edge| edge.1)
                    .filter(|&to| seen.insert(to)),
            );
        }
    }
    Ok(found)
}

/// The automaton of one rule of a component; its start.
fn rewritten(
    graph: &mut Graph,
    component: &[u32],
    inside: &[bool],
    members: &[u32],
    rule_of: &hashbrown::HashMap<u32, u32>,
    whole: u32,
    fuel: &mut Fuel,
) -> Result<u32, Stop> {
    let start = graph.node();
    // "A whole X_j has been read."
    let read: hashbrown::HashMap<u32, u32> =
        component.iter().map(|&rule| (rule, graph.node())).collect();
    graph.nodes[read[&whole] as usize].accepting = true;
    let copy: hashbrown::HashMap<u32, u32> =
        members.iter().map(|&node| (node, graph.node())).collect();
    for &node in members {
        let Node {
            edges, accepting, ..
        } = graph.nodes[node as usize].clone();
        fuel.burn(1 + edges.len() as u64)?;
        let made = copy[&node] as usize;
        if accepting && let Some(rule) = rule_of.get(&node) {
            graph.nodes[made].epsilons.push(read[rule]);
        }
        graph.nodes[made].edges = edges
            .into_iter()
            .map(|(label, to)| (label, copy[&to]))
            .collect();
    }
    for &rule in component {
        let edges = graph.nodes[graph.starts[rule as usize] as usize]
            .edges
            .clone();
        for (label, to) in edges {
            fuel.burn(1)?;
            match label {
                Label::Call(first) if inside[first as usize] => {
                    let after = read[&first] as usize;
                    graph.nodes[after].epsilons.push(copy[&to]);
                }
                label => graph.nodes[start as usize].edges.push((label, copy[&to])),
            }
        }
    }
    Ok(start)
}

/// For each rule how many rules, one within the other, a text of it may begin with: callers come
/// above what they call first.
pub(super) fn ranks(graph: &Graph) -> Vec<u32> {
    let calls = first_calls(graph);
    let mut ranks = vec![0; graph.starts.len()];
    for component in components(graph.starts.len(), |rule| &calls[rule]) {
        for rule in component {
            let below = calls[rule as usize]
                .iter()
                .map(|&rule| ranks[rule as usize] + 1);
            ranks[rule as usize] = below.max().unwrap_or(0);
        }
    }
    ranks
}
