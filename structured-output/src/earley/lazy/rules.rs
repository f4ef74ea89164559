//! What is known of rules before the construction.

use super::super::graph::{Graph, Label, NO_NODE};
use super::super::length::{Weights, lengths};
use super::super::lower::Folded;
use super::super::order::components;
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

/// Rules of up to this many nodes, those of the rules they call included, are written out.
const MAX_SMALL: u32 = 64;

/// Facts of rules.
pub(super) struct Rules {
    facts: Vec<Facts>,
    /// Labels that may read nothing, and such that always read something.
    weights: Weights,
    /// Languages of terminals.
    exprs: Vec<ExprId>,
}

#[derive(Clone, Copy, Default)]
struct Facts {
    /// The rule's nodes.
    nodes: (u32, u32),
    /// Whether lazy terminals are in it, or in what it calls.
    has_lazy: bool,
    is_recursive: bool,
    /// How many nodes it has, written out.
    size: u32,
    may_be_empty: bool,
}

impl Rules {
    pub(super) fn new(
        graph: &Graph,
        folded: &Folded,
        lexicon: &Lexicon,
        fuel: &mut Fuel,
    ) -> Result<Self, Stop> {
        let exprs: Vec<ExprId> = folded.lexemes.iter().map(|lexeme| lexeme.expr).collect();
        let mut weights = Weights::new();
        for node in &graph.nodes {
            fuel.burn(1 + node.edges.len() as u64)?;
            for &(label, _) in &node.edges {
                let is_nullable = match label {
                    Label::Text(expr) | Label::WithinTokens(expr, _) => lexicon.is_nullable(expr),
                    Label::Lexeme(lexeme) => lexicon.is_nullable(exprs[lexeme as usize]),
                    Label::Tagged(..) | Label::Tokens(_) | Label::Json(_) => false,
                    Label::Call(_) => continue,
                };
                weights.insert(label, u32::from(!is_nullable));
            }
        }
        let least = lengths(graph, &weights, fuel)?;
        let mut facts = vec![Facts::default(); graph.starts.len()];
        // A rule's nodes are made together: those up to the next rule's start.
        let mut starts: Vec<(u32, usize)> = graph.starts.iter().copied().zip(0..).collect();
        starts.retain(|(start, _)| *start != NO_NODE);
        starts.sort_unstable();
        let mut callees: Vec<Vec<u32>> = vec![Vec::new(); facts.len()];
        for (at, &(start, rule)) in starts.iter().enumerate() {
            let after = starts.get(at + 1).map(|next| next.0);
            let end = after.unwrap_or(graph.nodes.len() as u32);
            let nodes = &graph.nodes[start as usize..end as usize];
            let labels = nodes.iter().flat_map(|node| &node.edges);
            let mut has_lazy = false;
            for (label, _) in labels {
                match *label {
                    Label::Call(callee) => callees[rule].push(callee),
                    Label::Lexeme(lexeme) => has_lazy |= folded.lexemes[lexeme as usize].is_lazy,
                    _ => {}
                }
            }
            facts[rule] = Facts {
                nodes: (start, end),
                has_lazy,
                is_recursive: false,
                size: end - start,
                may_be_empty: least[start as usize] == 0,
            };
        }
        for component in components(facts.len(), |rule| &callees[rule]) {
            let is_recursive =
                component.len() > 1 || callees[component[0] as usize].contains(&component[0]);
            let (mut has_lazy, mut size) = (false, 0_u32);
            for &rule in &component {
                fuel.burn(1 + callees[rule as usize].len() as u64)?;
                has_lazy |= facts[rule as usize].has_lazy;
                size = size.saturating_add(facts[rule as usize].size);
                for &callee in &callees[rule as usize] {
                    has_lazy |= facts[callee as usize].has_lazy;
                    size = size.saturating_add(facts[callee as usize].size);
                }
            }
            for rule in component {
                let facts = &mut facts[rule as usize];
                facts.has_lazy = has_lazy;
                facts.is_recursive = is_recursive;
                facts.size = size;
            }
        }
        Ok(Self {
            facts,
            weights,
            exprs,
        })
    }

    /// The nodes of a rule, from the first to the one after the last.
    pub(super) fn nodes(&self, rule: u32) -> (u32, u32) {
        self.facts[rule as usize].nodes
    }

    /// Whether calls of a rule are always followed.
    pub(super) fn is_followed(&self, rule: u32) -> bool {
        let facts = &self.facts[rule as usize];
        facts.has_lazy || (!facts.is_recursive && facts.size <= MAX_SMALL)
    }

    /// Whether an edge may read nothing. What is called is asked where it is not followed.
    pub(super) fn reads_nothing(&self, label: Label) -> bool {
        match label {
            Label::Call(rule) => !self.is_followed(rule) && self.facts[rule as usize].may_be_empty,
            label => self.weights.get(&label) == Some(&0),
        }
    }

    /// A label of a rule without lazy terminals.
    pub(super) fn as_text(&self, label: Label) -> Label {
        match label {
            Label::Lexeme(lexeme) => Label::Text(self.exprs[lexeme as usize]),
            label => label,
        }
    }
}
