//! Terminals of Lark: told apart where some are lazy, and free of the names of tokens.

use std::sync::Arc;

use hashbrown::HashMap;

use super::super::languages::without;
use super::{IdRanges, Lowering, MAX_FOLDED_SIZE, NamedToken, Terminal, Tree, Value};
use crate::grammar_syntax::{Among, Grammar, NodeKind, RuleId, TokenSet, Words};
use crate::lexical::{EPSILON, ExprId, Lexicon};

/// The terminals of a grammar's rules.
fn terminals<'a>(grammar: &'a Grammar, rules: &'a [RuleId]) -> impl Iterator<Item = &'a NodeKind> {
    rules.iter().flat_map(|&rule| {
        let rule = &grammar.rules[rule];
        rule.lexemes.iter().map(|&node| &rule.nodes[node].kind)
    })
}

/// Whether some terminals of some rules are lazy.
pub(super) fn has_lazy(grammar: &Grammar, rules: &[RuleId]) -> bool {
    terminals(grammar, rules).any(|kind| match *kind {
        NodeKind::Shortest(_) => true,
        NodeKind::Rule(terminal) => grammar.rules[terminal].is_lazy,
        _ => false,
    })
}

/// The names of tokens among the terminals of some rules that are text by themselves.
pub(super) fn words(
    grammar: &Grammar,
    rules: &[RuleId],
    tokens: &HashMap<Box<str>, NamedToken>,
) -> Words {
    let names = terminals(grammar, rules).filter_map(|kind| match kind {
        NodeKind::NamedToken(name) => Some(name),
        _ => None,
    });
    let names = names.filter(|name| {
        let named = tokens.get(*name);
        named.is_some_and(|named| named.control_ids.is_empty() && named.stop_ids.is_empty())
    });
    Words::new(names.cloned().collect())
}

impl Lowering {
    /// A terminal of Lark.
    pub(super) fn lexeme(
        &mut self,
        lexicon: &mut Lexicon,
        kind: NodeKind,
        values: &[Value],
        (rule, offset): (RuleId, usize),
    ) -> Result<Value, String> {
        let is_lazy = match kind {
            NodeKind::Shortest(_) => true,
            NodeKind::Rule(terminal) => self.grammar.rules[terminal].is_lazy,
            _ => false,
        };
        let is_plain = matches!(kind, NodeKind::Literal(_) | NodeKind::NamedToken(_));
        let is_terminal = matches!(kind, NodeKind::Rule(_));
        let is_ignored = self.grammar.rules[rule].is_ignored;
        let value = match kind {
            // That it ends as soon as it can is said of the terminal, among others.
            NodeKind::Shortest(inner) if self.keeps_lexemes => values[inner].clone(),
            NodeKind::Rule(terminal) if self.keeps_lexemes => match &self.folded.rules[terminal] {
                Some(value) => value.clone(),
                None => self.node(lexicon, kind, values, true)?,
            },
            kind => self.node(lexicon, kind, values, true)?,
        };
        let terminal = |lowering: &mut Self, expr: ExprId| {
            if !lowering.keeps_lexemes || expr == EPSILON {
                return Value::Regular(expr, 1);
            }
            lowering.folded.lexemes.push(Terminal {
                expr,
                is_lazy,
                is_ignored,
                rule,
                offset,
            });
            lowering.tree(Tree::Lexeme(lowering.folded.lexemes.len() as u32 - 1))
        };
        match value {
            Value::Regular(expr, size) => {
                let has_words = !is_plain && !is_lazy && !lexicon.is_finite(expr);
                let (expr, size) = match has_words && !self.words.is_empty() {
                    true => {
                        let words = self.languages.of_words(lexicon, &self.words);
                        (without(lexicon, expr, words), size + self.words.len())
                    }
                    false => (expr, size),
                };
                Ok(match terminal(self, expr) {
                    Value::Regular(expr, _) => Value::Regular(expr, size),
                    tree => tree,
                })
            }
            Value::Tree(_) if self.keeps_lexemes && (is_lazy || is_terminal) => Err(format!(
                "in a grammar with `lazy`, a terminal needs regular parts: no tokens or JSON, \
                     and at most {MAX_FOLDED_SIZE} parts"
            )),
            Value::Tree(tree) => {
                // A token's text is a terminal, the token itself is none.
                if let Tree::Alternate(ways) = &self.folded.trees[tree as usize]
                    && let [Value::Regular(text, _), others @ ..] = &ways[..]
                {
                    let (text, others) = (*text, others.to_vec());
                    let text = terminal(self, text);
                    let ways = std::iter::once(text).chain(others).collect();
                    self.folded.trees[tree as usize] = Tree::Alternate(ways);
                }
                Ok(Value::Tree(tree))
            }
        }
    }

    /// Refuses tokens that are not among those they must be among.
    pub(super) fn check_among(&mut self, set: &TokenSet, among: Among) -> Result<(), String> {
        let known = self.among.take();
        let known = match known.filter(|(all, _)| Arc::ptr_eq(all, &among.set)) {
            Some(known) => known,
            None => {
                let mut ranges: IdRanges = among.set.ranges.iter().copied().collect();
                for name in &among.set.names {
                    ranges.extend(self.named(name)?.ids.into_iter().map(|id| (id, id)));
                }
                (among.set, ranges)
            }
        };
        let is_such = set.ranges.iter().all(|range| known.1.contains(range));
        self.among = Some(known);
        match is_such {
            true => Ok(()),
            false => Err(among.otherwise.into()),
        }
    }
}
