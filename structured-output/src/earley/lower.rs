//! From rules to languages where that is possible, and to trees over rules where it isn't.
//!
//! A rule that doesn't lead back to itself, and whose parts are regular, is one expression of layer
//! 1: it becomes part of the lexemes of the rules that use it. So what is read byte by byte in a
//! grammar without terminals is read lexeme by lexeme here.

mod folded;
mod lexeme;
mod operators;
mod terminals;

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

pub(super) use folded::{Folded, Terminal, Tree, Value};
pub(crate) use folded::{LowerError, NamedToken};
use operators::regular;
use terminals::rules_with_terminals;

use super::languages::{Languages, ends_anywhere, shortest};
use super::order::components;
use crate::grammar_syntax::{Grammar, Node, NodeId, NodeKind, RuleId, TokenSet, Words};
use crate::lexical::{EMPTY, EPSILON, ExprId, Lexicon, product};
use crate::regex::{Spelling, Translator};

/// The largest language, in parts, that becomes a part of another. Beyond it a rule stays a rule,
/// so that rules that double each other's size don't make an exponential expression.
const MAX_FOLDED_SIZE: usize = 4096;

/// A slice of work ends with so many expressions asked for.
const MAX_ASKED: u64 = 2_048;

/// Ranges of token ids, the last ids included.
type IdRanges = HashSet<(u32, u32)>;

/// A translation that can pause between rules, so that a lock on the lexicon is never held long.
pub(super) struct Lowering {
    grammar: Grammar,
    /// Rules to be done, last first: callees come before callers.
    order: Vec<RuleId>,
    /// Rules that lead back to themselves.
    is_recursive: Vec<bool>,
    /// Rules whose text doesn't become one language with what stands beside it.
    keeps_terminals: Vec<bool>,
    /// Whether terminals are told apart from each other: some of them are lazy.
    keeps_lexemes: bool,
    /// Tokens that others must be among, as asked for last, with all their ids.
    among: Option<(Arc<TokenSet>, IdRanges)>,
    /// Names of tokens that are text, which no other terminal contains.
    words: Words,
    /// Whether languages hold text, as far as that was asked.
    holds_text: HashMap<ExprId, bool>,
    /// Tokens by their text.
    tokens: HashMap<Box<str>, NamedToken>,
    /// Numbers of the token sets.
    token_sets: HashMap<TokenSet, u32>,
    languages: Languages,
    /// The node that is read next, where it holds lists of strings or a long one, and its size.
    listed: Option<(ExprId, usize)>,
    folded: Folded,
    /// The rule that is being read, if that has begun.
    current: Option<Reading>,
    last: Option<RuleId>,
}

/// A rule of which some nodes have been read.
struct Reading {
    rule: RuleId,
    /// What is left.
    nodes: std::iter::Peekable<std::vec::IntoIter<Node>>,
    /// Those that are terminals, of what is left.
    lexemes: std::iter::Peekable<std::vec::IntoIter<NodeId>>,
    /// What those before are.
    values: Vec<Value>,
}

/// What is said of a token that is not there.
pub(crate) fn no_token(name: &str) -> String {
    format!("the vocabulary has no token `{name}`")
}

impl Lowering {
    /// The rules that `root` leads to. `tokens_named` finds tokens by what they write.
    pub(super) fn new(
        grammar: Grammar,
        root: RuleId,
        mut tokens_named: impl FnMut(&str) -> NamedToken,
    ) -> Self {
        let references: Vec<Vec<u32>> = grammar
            .rules
            .iter()
            .map(|rule| {
                let mut list: Vec<u32> = rule
                    .nodes
                    .iter()
                    .filter_map(|node| match node.kind {
                        NodeKind::Rule(rule) => Some(rule as u32),
                        _ => None,
                    })
                    .collect();
                list.sort_unstable();
                list.dedup();
                list
            })
            .collect();
        let mut is_used = vec![false; grammar.rules.len()];
        let mut pending = vec![root];
        while let Some(rule) = pending.pop() {
            if !std::mem::replace(&mut is_used[rule], true) {
                pending.extend(references[rule].iter().map(|&rule| rule as usize));
            }
        }
        let mut is_recursive = vec![false; grammar.rules.len()];
        let mut order = Vec::new();
        for component in components(grammar.rules.len(), |rule| &references[rule]) {
            for &rule in &component {
                let rule = rule as usize;
                is_recursive[rule] =
                    component.len() > 1 || references[rule].contains(&(rule as u32));
                if is_used[rule] {
                    order.push(rule);
                }
            }
        }
        order.reverse();
        let mut tokens = HashMap::new();
        // All tags of a list share what they must be among.
        let mut last_among: Option<&Arc<TokenSet>> = None;
        for &rule in &order {
            for node in &grammar.rules[rule].nodes {
                let names: &[Box<str>] = match &node.kind {
                    NodeKind::NamedToken(name) => std::slice::from_ref(name),
                    NodeKind::Tokens(set) => &set.names,
                    _ => &[],
                };
                let mut among: &[Box<str>] = &[];
                if let NodeKind::Tokens(TokenSet {
                    among: Some(of), ..
                }) = &node.kind
                    && last_among.is_none_or(|last| !Arc::ptr_eq(last, &of.set))
                {
                    among = &of.set.names;
                    last_among = Some(&of.set);
                }
                for name in names.iter().chain(among) {
                    if !tokens.contains_key(name) {
                        tokens.insert(name.clone(), tokens_named(name));
                    }
                }
            }
        }
        let keeps_lexemes = lexeme::has_lazy(&grammar, &order);
        let words = lexeme::words(&grammar, &order, &tokens);
        let keeps_terminals = rules_with_terminals(&grammar, &order, &references, &is_recursive);
        let folded = Folded {
            rules: vec![None; grammar.rules.len()],
            ..Folded::default()
        };
        Self {
            grammar,
            order,
            is_recursive,
            keeps_terminals,
            keeps_lexemes,
            words,
            among: None,
            holds_text: HashMap::new(),
            tokens,
            token_sets: HashMap::new(),
            languages: Languages::default(),
            listed: None,
            folded,
            current: None,
            last: None,
        }
    }

    /// Lowers about `max_nodes` more nodes, or fewer where they ask for more than some thousand
    /// expressions; the whole once all are lowered.
    pub(super) fn run(
        &mut self,
        lexicon: &mut Lexicon,
        max_nodes: usize,
    ) -> Result<Option<Folded>, LowerError> {
        let max_asked = lexicon.num_asked() + MAX_ASKED;
        let max_len = lexicon.len() + max_nodes;
        let mut done = 0;
        loop {
            let Some(mut reading) = self.current.take().or_else(|| self.next_rule()) else {
                return Ok(Some(std::mem::take(&mut self.folded)));
            };
            self.last = Some(reading.rule);
            while let Some(node) = reading.nodes.peek() {
                // What makes much ends the slice.
                let mut is_spent = done >= max_nodes || lexicon.num_asked() > max_asked;
                if !is_spent && Languages::is_listed(&node.kind) {
                    self.listed = self.languages.of_node(lexicon, &node.kind, max_asked);
                    is_spent = self.listed.is_none();
                }
                if is_spent {
                    self.current = Some(reading);
                    return Ok(None);
                }
                done += 1;
                let Some(Node { kind, offset }) = reading.nodes.next() else {
                    break;
                };
                let value = self.placed(lexicon, kind, offset, &mut reading)?;
                reading.values.push(value);
            }
            let value = reading.values.pop();
            self.folded.rules[reading.rule] = Some(value.unwrap_or(Value::Regular(EPSILON, 1)));
            done += 1;
            // So that what a rule exceeds is told of it.
            if done >= max_nodes || lexicon.len() >= max_len {
                return Ok(None);
            }
        }
    }

    fn next_rule(&mut self) -> Option<Reading> {
        let rule = self.order.pop()?;
        let whole = &mut self.grammar.rules[rule];
        let nodes = std::mem::take(&mut whole.nodes);
        Some(Reading {
            rule,
            values: Vec::with_capacity(nodes.len()),
            nodes: nodes.into_iter().peekable(),
            lexemes: std::mem::take(&mut whole.lexemes).into_iter().peekable(),
        })
    }

    /// The rule that was looked at last.
    pub(super) fn last_rule(&self) -> Option<RuleId> {
        self.last
    }

    /// What a node is, which knows its place.
    fn placed(
        &mut self,
        lexicon: &mut Lexicon,
        kind: NodeKind,
        offset: usize,
        reading: &mut Reading,
    ) -> Result<Value, LowerError> {
        let (rule, id) = (reading.rule, reading.values.len());
        let apart = self.keeps_terminals[rule];
        let value = match reading.lexemes.next_if_eq(&id) {
            Some(_) => self.lexeme(lexicon, kind, &reading.values, (rule, offset)),
            None => self.node(lexicon, kind, &reading.values, apart),
        };
        let value = value.map_err(|message| LowerError {
            rule,
            offset,
            message,
        })?;
        self.folded
            .token_set_places
            .resize(self.folded.token_sets.len(), (rule, offset));
        if let Value::Tree(tree) = value {
            match self.folded.trees[tree as usize] {
                Tree::Json(schema) => {
                    let schema = &mut self.folded.schemas[schema as usize];
                    (schema.1, schema.2) = (rule, offset);
                }
                Tree::WithinTokens(expr, max) => {
                    self.folded.budgets.push((expr, max, rule, offset));
                }
                _ => {}
            }
        }
        Ok(value)
    }

    fn tree(&mut self, tree: Tree) -> Value {
        self.folded.trees.push(tree);
        Value::Tree(self.folded.trees.len() as u32 - 1)
    }

    fn node(
        &mut self,
        lexicon: &mut Lexicon,
        kind: NodeKind,
        values: &[Value],
        apart: bool,
    ) -> Result<Value, String> {
        Ok(match kind {
            NodeKind::Literal(text) => match self.listed.take() {
                Some((expr, size)) => Value::Regular(expr, size),
                None => Value::Regular(lexicon.literal(text.as_bytes()), text.len().max(1)),
            },
            NodeKind::AnyCase(text) => {
                // As many parts as the regular expression has, its group and sequence among them.
                let size = text.len() + if text.len() == 1 { 1 } else { 2 };
                Value::Regular(self.languages.in_any_case(lexicon, &text), size)
            }
            NodeKind::Class(class) => {
                let ranges = class.iter().map(|range| (range.start(), range.end()));
                Value::Regular(lexicon.code_points(ranges), 1)
            }
            NodeKind::Regex(ast) => {
                let size = ast.len();
                let translated = Translator::new(ast, Spelling::Utf8).run(lexicon, usize::MAX);
                let expr = translated.map_err(|error| error.message)?;
                Value::Regular(expr.unwrap_or(EMPTY), size)
            }
            NodeKind::Rule(rule) => match &self.folded.rules[rule] {
                Some(Value::Regular(expr, size))
                    if !self.is_recursive[rule] && *size <= MAX_FOLDED_SIZE =>
                {
                    Value::Regular(*expr, *size)
                }
                _ => self.tree(Tree::Call(rule as u32)),
            },
            NodeKind::Concat(items) => self.concat(lexicon, &items, values, apart),
            NodeKind::Alternate(items) => self.alternate(lexicon, &items, values),
            NodeKind::Repeat { inner, min, max } => match values[inner] {
                Value::Regular(expr, size) => {
                    Value::Regular(lexicon.repeat(expr, min, max), size + 1)
                }
                Value::Tree(tree) => {
                    let (mut inner, mut min, mut max) = (values[inner].clone(), min, max);
                    // Counts of counts are counts, where there is no gap between them.
                    if let Tree::Repeat {
                        inner: counted,
                        min: low,
                        max: high,
                    } = &self.folded.trees[tree as usize]
                        && let Some(whole) = product(*low, *high, min, max)
                    {
                        inner = counted.clone();
                        (min, max) = whole;
                    }
                    self.tree(Tree::Repeat { inner, min, max })
                }
            },
            NodeKind::And(items) => {
                let (exprs, size) = regular(&items, values, "&")?;
                Value::Regular(lexicon.and(&exprs), size)
            }
            NodeKind::Not(inner) => {
                let (exprs, size) = regular(&[inner], values, "~")?;
                Value::Regular(lexicon.not(exprs[0]), size)
            }
            NodeKind::Shortest(inner) => {
                let (exprs, size) = regular(&[inner], values, "lazy")?;
                Value::Regular(shortest(lexicon, exprs[0]), size)
            }
            NodeKind::WithinTokens {
                inner,
                max,
                is_checked,
            } => {
                let (exprs, _) = regular(&[inner], values, "max_tokens")?;
                if !is_checked && !ends_anywhere(lexicon, exprs[0]) {
                    return Err(
                        "`max_tokens` needs text that may end anywhere, as `/(.|\\n)*/`: of other texts it can't be told \
                         whether they end in time"
                            .to_owned(),
                    );
                }
                match max {
                    0 => Value::Regular(EPSILON, 1),
                    max => self.tree(Tree::WithinTokens(exprs[0], max)),
                }
            }
            NodeKind::FreeText(automaton) => {
                let expr = lexicon.text_without_words(&automaton);
                self.tree(Tree::Text(expr))
            }
            NodeKind::Tagged {
                automaton,
                contents,
            } => {
                self.folded.dispatches.push(automaton);
                let dispatch = self.folded.dispatches.len() as u32 - 1;
                let contents = contents.iter().map(|&content| values[content].clone());
                let contents = contents.collect();
                self.tree(Tree::Tagged { dispatch, contents })
            }
            // These are made before, in more than one go.
            NodeKind::Substring(_) | NodeKind::TextWithout(_) | NodeKind::NotEnding(_) => {
                let (expr, size) = self.listed.take().unwrap_or((EMPTY, 1));
                Value::Regular(expr, size)
            }
            NodeKind::Tokens(mut set) => {
                for name in std::mem::take(&mut set.names) {
                    let ids = self.named(&name)?.ids;
                    set.ranges.extend(ids.into_iter().map(|id| (id, id)));
                }
                if let Some(among) = set.among.take() {
                    self.check_among(&set, among)?;
                }
                self.tokens(set)
            }
            NodeKind::NamedToken(name) => {
                let named = self.named(&name)?;
                let text = lexicon.literal(name.as_bytes());
                let mut ways = vec![Value::Regular(text, name.len())];
                for (ids, ends_text) in [(named.control_ids, false), (named.stop_ids, true)] {
                    if !ids.is_empty() {
                        ways.push(self.tokens(TokenSet {
                            ranges: ids.into_iter().map(|id| (id, id)).collect(),
                            ends_text,
                            ..TokenSet::default()
                        }));
                    }
                }
                match ways.len() {
                    1 => ways.remove(0),
                    _ => self.tree(Tree::Alternate(ways)),
                }
            }
            NodeKind::Json(schema) => {
                self.folded.schemas.push((schema, 0, 0));
                let schema = self.folded.schemas.len() as u32 - 1;
                self.tree(Tree::Json(schema))
            }
        })
    }

    fn named(&self, name: &str) -> Result<NamedToken, String> {
        match self.tokens.get(name) {
            Some(named) if !named.ids.is_empty() => Ok(named.clone()),
            _ => Err(no_token(name)),
        }
    }

    fn tokens(&mut self, set: TokenSet) -> Value {
        let token_sets = &mut self.folded.token_sets;
        let next = token_sets.len() as u32;
        let id = *self.token_sets.entry(set).or_insert_with_key(|set| {
            token_sets.push(set.clone());
            next
        });
        self.tree(Tree::Tokens(id))
    }
}
