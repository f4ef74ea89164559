//! From a grammar to a parser's first state, in slices of work.

use std::sync::Arc;

use hashbrown::HashMap;

use super::absorb::absorb;
use super::graph::{Graph, Label, NO_NODE};
use super::inline::inline;
use super::lazy::{Lazy, LazyError};
use super::left_recursion::{ranks, without_left_recursion};
use super::length::{Weights, lengths, of_rule};
use super::lower::{Folded, LowerError, Lowering, NamedToken, Value};
use super::parser::{Parser, StateId};
use super::program::{Call, Lexeme, NewNode, NodeId, TokensLeft};
use super::simplify::{loops, merged, without_epsilons, without_silent_cycles};
use super::subsets::deterministic;
use super::token_set::TokenRuns;
use crate::grammar_syntax::{EmbeddedSchema, Grammar, RuleId, TokenSet};
use crate::lexical::search::DEAD;
use crate::lexical::{
    ByteSet, EMPTY, ExprId, Fuel, Lexicon, NO_TAG, Stop, TaggedWords, WordAutomaton,
};
use crate::pushdown::{self, Machine};

/// A compilation. Call the steps in the order in which they stand here; those that take a lexicon
/// or a machine work under its lock and come back early, to be called again.
pub(crate) struct Compilation {
    lowering: Lowering,
    root: RuleId,
    folded: Folded,
    graph: Graph,
    /// Lazy terminals being given their meaning.
    lazy: Option<Lazy>,
    /// Languages that occur, to be weighed.
    languages: Vec<ExprId>,
    weights: Weights,
    /// Languages with the empty string: the same without it.
    not_empty: HashMap<ExprId, ExprId>,
    /// First states of the schemas.
    json: Vec<pushdown::State>,
    /// The token sets of this vocabulary.
    token_sets: Vec<TokenRuns>,
    /// Bytes that all texts are made of, where that are not all.
    bytes: Option<ByteSet>,
    lengths: Vec<u32>,
    ranks: Vec<u32>,
}

/// Farther than any text that a grammar's source could spell.
const FAR: u32 = 1 << 24;

/// What a grammar turned out to be.
pub(crate) enum Lowered {
    /// One language.
    Regular(ExprId),
    /// It needs a parser.
    Rules,
}

impl Compilation {
    /// A grammar from one of its rules on.
    pub(crate) fn new(
        grammar: Grammar,
        root: RuleId,
        tokens_named: impl FnMut(&str) -> NamedToken,
    ) -> Self {
        Self {
            lowering: Lowering::new(grammar, root, tokens_named),
            root,
            folded: Folded::default(),
            graph: Graph::default(),
            lazy: None,
            languages: Vec::new(),
            weights: Weights::new(),
            not_empty: HashMap::new(),
            json: Vec::new(),
            token_sets: Vec::new(),
            bytes: None,
            lengths: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// Step 1: folds what is regular, about `max_nodes` nodes a time. `None` until it is done.
    pub(crate) fn lower(
        &mut self,
        lexicon: &mut Lexicon,
        max_nodes: usize,
    ) -> Result<Option<Lowered>, LowerError> {
        let Some(folded) = self.lowering.run(lexicon, max_nodes)? else {
            return Ok(None);
        };
        self.folded = folded;
        Ok(Some(match &self.folded.rules[self.root] {
            Some(Value::Regular(expr, _)) => Lowered::Regular(*expr),
            _ => Lowered::Rules,
        }))
    }

    /// The rule that step 1 looked at last.
    pub(crate) fn last_lowered(&self) -> Option<RuleId> {
        self.lowering.last_rule()
    }

    /// A rule with the language that step 3 looks at.
    pub(crate) fn rule_being_weighed(&self) -> Option<RuleId> {
        let label = Label::Text(*self.languages.last()?);
        let mut nodes = self.graph.nodes.iter();
        let node = nodes.position(|node| node.edges.iter().any(|edge| edge.0 == label))? as u32;
        // A rule's nodes are made together: those up to the next rule's start.
        let starts = (0..).zip(&self.graph.starts);
        let before = starts.filter(|(_, start)| **start != NO_NODE && **start <= node);
        before
            .max_by_key(|(_, start)| **start)
            .map(|(rule, _)| rule)
    }

    /// Schemas that occur, with the rule and the offset of each.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = (&EmbeddedSchema, RuleId, usize)> {
        self.folded
            .schemas
            .iter()
            .map(|(schema, rule, at)| (schema, *rule, *at))
    }

    /// Token sets that occur, with the rule and the offset of each.
    pub(crate) fn token_sets(&self) -> impl Iterator<Item = (&TokenSet, RuleId, usize)> {
        let sets = self.folded.token_sets.iter();
        sets.zip(&self.folded.token_set_places)
            .map(|(set, place)| (set, place.0, place.1))
    }

    /// Step 2: the rules' automata. `json` are first states of the schemas with the length of
    /// their shortest values, `token_sets` what the token sets allow.
    pub(crate) fn build(
        &mut self,
        json: Vec<(pushdown::State, u32)>,
        token_sets: Vec<TokenRuns>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        self.graph = Graph::build(&self.folded, self.root as u32, fuel)?;
        for (schema, (state, bytes)) in (0..).zip(json) {
            self.weights.insert(Label::Json(schema), bytes);
            self.json.push(state);
        }
        for (set, tokens) in (0..).zip(&token_sets) {
            let weight = match self.folded.token_sets[set as usize].ends_text {
                // Never on the shortest way: its text stands beside it.
                true => FAR,
                false if tokens.runs().is_empty() => DEAD,
                false => 1,
            };
            self.weights.insert(Label::Tokens(set), weight);
        }
        self.token_sets = token_sets;
        for (dispatch, automaton) in (0..).zip(&self.folded.dispatches) {
            let TaggedWords { words, tags, .. } = automaton.made_from();
            fuel.burn(automaton.len() as u64 / NODES_A_STEP)?;
            for (word, &tag) in words.iter().zip(&**tags) {
                if tag != NO_TAG {
                    let length = word.len() as u32;
                    self.weights.insert(Label::Tagged(dispatch, tag), length);
                }
            }
        }
        Ok(())
    }

    /// Step 3: gives lazy terminals their meaning, some places a time; true once it is done. Then
    /// what is one language becomes one.
    pub(crate) fn resolve_lazy(
        &mut self,
        lexicon: &mut Lexicon,
        max_places: usize,
        fuel: &mut Fuel,
    ) -> Result<bool, LazyError> {
        if !self.folded.lexemes.is_empty() {
            let mut lazy = match self.lazy.take() {
                Some(lazy) => lazy,
                None => {
                    let graph = std::mem::take(&mut self.graph);
                    Lazy::new(graph, &self.folded, lexicon, fuel)?
                }
            };
            if !lazy.run(&self.folded, lexicon, max_places, fuel)? {
                self.lazy = Some(lazy);
                return Ok(false);
            }
            self.graph = lazy.finish();
        }
        absorb(&mut self.graph, lexicon, fuel)?;
        self.collect_languages(fuel)?;
        Ok(true)
    }

    fn collect_languages(&mut self, fuel: &mut Fuel) -> Result<(), Stop> {
        let mut seen = hashbrown::HashSet::new();
        for node in &self.graph.nodes {
            fuel.burn(1 + node.edges.len() as u64)?;
            for (label, _) in &node.edges {
                if let Label::Text(expr) | Label::WithinTokens(expr, _) = label
                    && seen.insert(*expr)
                {
                    self.languages.push(*expr);
                }
            }
        }
        Ok(())
    }

    /// Step 4: the shortest text of each language, some languages a time; true once it is done.
    /// Languages keep to `bytes`, if given.
    pub(crate) fn weigh(
        &mut self,
        lexicon: &mut Lexicon,
        bytes: Option<ByteSet>,
        max_languages: usize,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if let Some(bytes) = bytes
            && self.bytes.replace(bytes).is_none()
        {
            self.weigh_tags(bytes);
        }
        for _ in 0..max_languages {
            let Some(&expr) = self.languages.last() else {
                return Ok(true);
            };
            let whole = expr;
            let expr = match bytes {
                None => expr,
                Some(bytes) => {
                    let all = lexicon.class(bytes);
                    let all = lexicon.star(all);
                    lexicon.and(&[expr, all])
                }
            };
            let least = lexicon.distance(expr, fuel)?;
            if least == 0 || expr != whole {
                let rest = match lexicon.not_empty_text(expr) {
                    Some(rest) => rest,
                    None => less_empty(lexicon, expr, fuel)?,
                };
                let least = lexicon.distance(rest, fuel)?;
                self.weights.insert(Label::Text(rest), least);
                self.not_empty.insert(whole, rest);
            }
            self.weights.insert(Label::Text(whole), least);
            self.languages.pop();
        }
        Ok(self.languages.is_empty())
    }

    /// Words that have other bytes are in no text.
    fn weigh_tags(&mut self, bytes: ByteSet) {
        for (dispatch, automaton) in (0..).zip(&self.folded.dispatches) {
            let TaggedWords { words, tags, .. } = automaton.made_from();
            for (word, &tag) in words.iter().zip(&**tags) {
                if !word.bytes().all(|byte| bytes.contains(byte)) {
                    self.weights.insert(Label::Tagged(dispatch, tag), DEAD);
                }
            }
        }
    }

    /// Step 5: drops what can't be completed, then epsilons, left recursion and calls that aren't
    /// needed. Where nothing is left, a rule that has no text. What goes wrong here is fuel.
    pub(crate) fn simplify(&mut self, fuel: &mut Fuel) -> Result<Option<RuleId>, Stop> {
        self.weigh_counted(fuel)?;
        let least = lengths(&self.graph, &self.weights, fuel)?;
        if of_rule(&self.graph, &least, self.graph.root) == DEAD {
            return Ok(Some(self.empty_rule(&least)));
        }
        // What reads nothing is an edge that reads nothing, and else what it reads but for that.
        let graph = &mut self.graph;
        let starts = graph.starts.clone();
        // Whether what is left of some of these may be nothing.
        let mut is_left_out = false;
        for (id, node) in graph.nodes.iter_mut().enumerate() {
            fuel.burn(1 + node.edges.len() as u64)?;
            let mut silent = std::mem::take(&mut node.epsilons);
            node.edges.retain_mut(|(label, to)| {
                if least[*to as usize] == DEAD || least[id] == DEAD {
                    return false;
                }
                match *label {
                    Label::Call(rule) => match starts[rule as usize] {
                        NO_NODE => false,
                        start => {
                            if least[start as usize] == 0 {
                                silent.push(*to);
                            }
                            least[start as usize] != DEAD
                        }
                    },
                    Label::Text(expr) | Label::WithinTokens(expr, _) => {
                        if let Some(&rest) = self.not_empty.get(&expr) {
                            if self.weights.get(label) == Some(&0) {
                                silent.push(*to);
                            }
                            let rest_weight = self.weights.get(&Label::Text(rest));
                            is_left_out |= rest_weight.is_none_or(|&least| least == DEAD);
                            *label = match *label {
                                Label::WithinTokens(_, max) => Label::WithinTokens(rest, max),
                                _ => Label::Text(rest),
                            };
                            rest != EMPTY
                        } else {
                            self.weights.get(label).is_some_and(|&least| least != DEAD)
                        }
                    }
                    label => self.weights.get(&label).is_some_and(|&least| least != DEAD),
                }
            });
            silent.retain(|&to| least[to as usize] != DEAD);
            node.epsilons = silent;
        }
        without_epsilons(graph, fuel)?;
        for (rule, &start) in (0..).zip(&starts) {
            if start != NO_NODE && rule != graph.root {
                let accepting = &mut graph.nodes[start as usize].accepting;
                is_left_out |= std::mem::take(accepting);
            }
        }
        if is_left_out {
            prune(graph, &self.weights, fuel)?;
        }
        without_left_recursion(graph, fuel)?;
        without_silent_cycles(graph, fuel)?;
        without_epsilons(graph, fuel)?;
        deterministic(graph, fuel)?;
        // Nothing of that makes an end that can't be reached.
        debug_assert!(is_pruned(graph, &self.weights));
        merged(graph, fuel)?;
        inline(graph, fuel)?;
        self.lengths = lengths(graph, &self.weights, fuel)?;
        self.ranks = ranks(graph);
        let is_empty = of_rule(&self.graph, &self.lengths, self.graph.root) == DEAD;
        Ok(is_empty.then_some(self.root))
    }

    /// What languages weigh that tokens are counted in: what they weigh by themselves.
    fn weigh_counted(&mut self, fuel: &mut Fuel) -> Result<(), Stop> {
        for node in &self.graph.nodes {
            fuel.burn(1 + node.edges.len() as u64)?;
            for &(label, _) in &node.edges {
                let Label::WithinTokens(expr, max) = label else {
                    continue;
                };
                for expr in [Some(expr), self.not_empty.get(&expr).copied()] {
                    if let Some(expr) = expr
                        && let Some(&least) = self.weights.get(&Label::Text(expr))
                    {
                        self.weights.insert(Label::WithinTokens(expr, max), least);
                    }
                }
            }
        }
        Ok(())
    }

    /// A rule without any text, of those that the root leads to: one that calls no others such if
    /// there is one, since that is where the reason lies.
    fn empty_rule(&self, least: &[u32]) -> RuleId {
        let num_rules = self.folded.rules.len() as u32;
        let is_empty = |rule: u32| {
            self.graph.starts[rule as usize] != NO_NODE && of_rule(&self.graph, least, rule) == DEAD
        };
        // A rule's nodes are made together: those up to the next rule's start.
        let mut starts: Vec<u32> = self.graph.starts.clone();
        starts.retain(|&start| start != NO_NODE);
        starts.sort_unstable();
        let calls_empty = |rule: u32| {
            let start = self.graph.starts[rule as usize];
            let after = starts.partition_point(|&other| other <= start);
            let end = starts
                .get(after)
                .map_or(self.graph.nodes.len(), |&end| end as usize);
            let nodes = &self.graph.nodes[start as usize..end];
            nodes.iter().any(|node| {
                let mut labels = node.edges.iter().map(|edge| edge.0);
                labels.any(|label| match label {
                    Label::Call(callee) => callee != rule && is_empty(callee),
                    _ => false,
                })
            })
        };
        let mut empty = (0..num_rules).filter(|&rule| is_empty(rule));
        let found = empty.find(|&rule| !calls_empty(rule));
        found.map_or(self.root, |rule| rule as RuleId)
    }

    /// Step 6: the rules become part of the parser; its first state.
    pub(crate) fn install(
        self,
        machine: &mut Machine,
        parser: &mut Parser,
        fuel: &mut Fuel,
    ) -> Result<StateId, Stop> {
        // All at once: rules are added as a whole, or not at all.
        let num_edges: usize = self.graph.nodes.iter().map(|node| node.edges.len()).sum();
        fuel.burn((2 * self.graph.nodes.len() + num_edges) as u64)?;
        let first = parser.program.next_node();
        let sets: Vec<_> = self
            .token_sets
            .into_iter()
            .map(|set| parser.token_sets.add(set))
            .collect();
        let loops = loops(&self.graph, fuel)?;
        let bytes = self.bytes.unwrap_or(ByteSet::FULL);
        let mut choices: Vec<Box<[Option<NodeId>]>> = Vec::new();
        let first_choice = first + self.graph.nodes.len() as u32;
        let facts = self.lengths.into_iter().zip(loops);
        for (node, (min_length, is_loop)) in self.graph.nodes.into_iter().zip(facts) {
            let mut lexemes = Vec::new();
            let mut calls = Vec::new();
            // Languages by where they lead: one lexeme for all that lead to the same node.
            let mut texts: Vec<(u32, ExprId)> = Vec::new();
            let mut tagged: Vec<(u32, u16, NodeId)> = Vec::new();
            for (label, to) in node.edges {
                let target = NodeId(first + to);
                match label {
                    Label::Text(expr) => texts.push((to, expr)),
                    Label::WithinTokens(expr, max) => {
                        let text = machine.start_of_expression(expr);
                        let left = TokensLeft::new(max);
                        lexemes.push((Lexeme::Counted(text, left), target));
                    }
                    Label::Tagged(dispatch, tag) => tagged.push((dispatch, tag, target)),
                    Label::Tokens(set) => {
                        let id = sets[set as usize];
                        let lexeme = match self.folded.token_sets[set as usize].ends_text {
                            true => Lexeme::Stop(id),
                            false => Lexeme::Token(id),
                        };
                        lexemes.push((lexeme, target));
                    }
                    Label::Json(schema) => {
                        lexemes.push((Lexeme::Text(self.json[schema as usize]), target));
                    }
                    // Terminals are languages since step 3.
                    Label::Lexeme(_) => {}
                    Label::Call(rule) => calls.push(Call {
                        start: NodeId(first + self.graph.starts[rule as usize]),
                        rank: self.ranks[rule as usize],
                        target,
                    }),
                }
            }
            texts.sort_unstable();
            for group in texts.chunk_by(|a, b| a.0 == b.0) {
                let exprs: Vec<ExprId> = group.iter().map(|text| text.1).collect();
                let expr = machine.lexicon.or(&exprs);
                let text = Lexeme::Text(machine.start_of_expression(expr));
                lexemes.push((text, NodeId(first + group[0].0)));
            }
            for (dispatch, targets) in by_dispatch(tagged) {
                let automaton = &self.folded.dispatches[dispatch as usize];
                let automaton = with_tags(automaton, &targets, bytes);
                fuel.burn(automaton.len() as u64 / NODES_A_STEP)?;
                let expr = machine.lexicon.text_and_tags(&automaton);
                let text = Lexeme::Text(machine.start_of_expression(expr));
                let choice = NodeId(first_choice + choices.len() as u32);
                lexemes.push((text, choice));
                choices.push(targets);
            }
            parser.program.push(NewNode {
                lexemes,
                calls,
                accepting: node.accepting,
                is_loop,
                min_length,
            });
        }
        for targets in choices {
            parser.program.push_choice(targets);
        }
        parser.program.end_grammar();
        let root = self.graph.starts[self.graph.root as usize];
        parser.start(NodeId(first + root), fuel)
    }
}

/// So many nodes of an automaton are a step.
const NODES_A_STEP: u64 = 16;

/// A language less the empty string: a first byte, and what follows it.
fn less_empty(lexicon: &mut Lexicon, expr: ExprId, fuel: &mut Fuel) -> Result<ExprId, Stop> {
    let mut ways = Vec::new();
    for (bytes, rest) in lexicon.derivatives(expr, fuel)? {
        let first = lexicon.class(bytes);
        ways.push(lexicon.concat(first, rest));
    }
    Ok(lexicon.or(&ways))
}

/// Edges of tags by the dispatch that they are of, each with the nodes by tag. Where one tag leads to several
/// nodes they are of several.
fn by_dispatch(mut tagged: Vec<(u32, u16, NodeId)>) -> Vec<(u32, Box<[Option<NodeId>]>)> {
    tagged.sort_unstable();
    let mut found = Vec::new();
    for group in tagged.chunk_by(|a, b| a.0 == b.0) {
        let num_tags = group.last().map_or(0, |last| usize::from(last.1) + 1);
        let mut left = group.to_vec();
        while !left.is_empty() {
            let mut targets = vec![None; num_tags];
            left.retain(|&(_, tag, target)| {
                let place = &mut targets[usize::from(tag)];
                let is_taken = place.is_some();
                place.get_or_insert(target);
                is_taken
            });
            found.push((group[0].0, targets.into()));
        }
    }
    found
}

/// An automaton whose words have those tags only that lead somewhere, over some bytes.
fn with_tags(
    automaton: &Arc<WordAutomaton>,
    targets: &[Option<NodeId>],
    bytes: ByteSet,
) -> Arc<WordAutomaton> {
    let made_from = automaton.made_from();
    let leads_on = |tag: u16| targets.get(usize::from(tag)).is_some_and(Option::is_some);
    let tags: Vec<u16> = made_from
        .tags
        .iter()
        .map(|&tag| if leads_on(tag) { tag } else { NO_TAG })
        .collect();
    match tags[..] == *made_from.tags && bytes == made_from.bytes {
        true => Arc::clone(automaton),
        false => Arc::new(WordAutomaton::new(TaggedWords {
            words: Arc::clone(&made_from.words),
            tags: tags.into(),
            bytes,
        })),
    }
}

/// Drops edges that lead nowhere.
fn prune(graph: &mut Graph, weights: &Weights, fuel: &mut Fuel) -> Result<(), Stop> {
    let least = lengths(graph, weights, fuel)?;
    let starts = &graph.starts;
    for node in &mut graph.nodes {
        let leads_on = |edge: &(Label, u32)| leads_on(edge, starts, weights, &least);
        node.edges.retain(leads_on);
    }
    Ok(())
}

/// Whether an edge can be read and what follows it completed.
fn leads_on(&(label, to): &(Label, u32), starts: &[u32], weights: &Weights, least: &[u32]) -> bool {
    let reads = match label {
        Label::Call(rule) => match starts[rule as usize] {
            NO_NODE => false,
            start => least[start as usize] != DEAD,
        },
        label => weights.get(&label).is_some_and(|&least| least != DEAD),
    };
    reads && least[to as usize] != DEAD
}

/// Whether all edges lead on.
fn is_pruned(graph: &Graph, weights: &Weights) -> bool {
    let Ok(least) = lengths(graph, weights, &mut Fuel::new(u64::MAX)) else {
        return false;
    };
    let mut edges = graph.nodes.iter().flat_map(|node| &node.edges);
    edges.all(|edge| leads_on(edge, &graph.starts, weights, &least))
}
