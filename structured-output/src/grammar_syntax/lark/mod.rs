//! Lark as vLLM users write it: the language of Lark's own grammars, with llguidance's extensions
//! (`&` and `~` in terminals, `%json`, `%lark`, `%regex`, special tokens).
//!
//! | file | idea |
//! |---|---|
//! | `statement` | rules, terminals and directives one by one |
//! | `expression` | what stands after the colon |
//! | `atom` | strings, regular expressions, tokens, embedded JSON |
//! | `template` | rules with parameters |
//! | `common` | the terminals of `%import common` |

mod atom;
mod common;
mod expression;
mod statement;
mod template;

use hashbrown::HashMap;

use super::ast::{Grammar, NodeId, NodeKind, RuleBuilder, RuleId, SyntaxError, SyntaxLimits};
use super::cursor::{Cursor, cut};
use crate::lexical::UNBOUNDED;
pub(crate) use common::common_terminal;
use template::Templates;

/// Adds the rules of a source to a grammar; its start rule.
///
/// # Errors
/// What is not understood or not supported, with its offset; a limit.
pub(crate) fn parse(
    source: &str,
    limits: &SyntaxLimits,
    grammar: &mut Grammar,
) -> Result<RuleId, SyntaxError> {
    parse_nested(Cursor::new(source), 0, limits, grammar).map(|(start, _)| start)
}

/// Parses a grammar from a place of the source on: to its end, or, within `%lark { }`, to the brace.
/// The start rule, and the place after the grammar.
fn parse_nested<'a>(
    cursor: Cursor<'a>,
    nesting: usize,
    limits: &SyntaxLimits,
    grammar: &mut Grammar,
) -> Result<(RuleId, Cursor<'a>), SyntaxError> {
    let start = cursor.offset();
    if nesting > limits.max_nested_grammars {
        return Err(SyntaxError::Limit {
            limit: "max_nested_grammars",
            max: limits.max_nested_grammars as u64,
            offset: start,
        });
    }
    let ignored = grammar.declare("%ignore", start, limits)?;
    let mut parser = Parser {
        cursor,
        limits,
        grammar,
        nesting,
        names: HashMap::new(),
        rule: RuleBuilder::default(),
        ignored,
        ignores: Vec::new(),
        allow_initial_skip: false,
        only_text: None,
        ignore_once: false,
        templates: Templates::default(),
    };
    parser.statements()?;
    parser.expand_templates()?;
    let rule = parser.finish(start)?;
    Ok((rule, parser.cursor))
}

/// A rule or terminal that was named.
struct Known {
    rule: RuleId,
    /// Where first.
    offset: usize,
    is_defined: bool,
}

struct Parser<'a, 'g> {
    cursor: Cursor<'a>,
    limits: &'g SyntaxLimits,
    grammar: &'g mut Grammar,
    /// How many `%lark` this is within.
    nesting: usize,
    names: HashMap<&'a str, Known>,
    /// The rule being read.
    rule: RuleBuilder,
    /// The rule for what may stand after each terminal.
    ignored: RuleId,
    /// Terminals that are ignored.
    ignores: Vec<RuleId>,
    allow_initial_skip: bool,
    /// The attribute of the rule being read for which it may hold text alone.
    only_text: Option<&'static str>,
    /// Whether of what is ignored one at most stands after each terminal.
    ignore_once: bool,
    templates: Templates<'a>,
}

/// Whether a name is that of a terminal.
fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_')
        .starts_with(|c: char| c.is_ascii_uppercase())
}

impl<'a> Parser<'a, '_> {
    /// The rule of a name, which may be defined later.
    fn rule_named(&mut self, name: &'a str, offset: usize) -> Result<RuleId, SyntaxError> {
        if let Some(known) = self.names.get(name) {
            return Ok(known.rule);
        }
        let rule = self.grammar.declare(name, offset, self.limits)?;
        let known = Known {
            rule,
            offset,
            is_defined: false,
        };
        self.names.insert(name, known);
        Ok(rule)
    }

    /// The rule of a name that is defined here.
    fn define(&mut self, name: &'a str, offset: usize) -> Result<RuleId, SyntaxError> {
        let rule = self.rule_named(name, offset)?;
        let known = self.names.get_mut(name);
        let is_rule = known.is_some_and(|known| std::mem::replace(&mut known.is_defined, true));
        if is_rule || self.templates.is_defined(name) {
            let message = format!("`{}` is defined twice", cut(name));
            return Err(SyntaxError::new(offset, message));
        }
        self.grammar.rules[rule].offset = offset;
        Ok(rule)
    }

    /// Ends the rule being read.
    fn set_body(&mut self, rule: RuleId, body: NodeId) -> Result<(), SyntaxError> {
        let mut builder = std::mem::take(&mut self.rule);
        self.grammar.rules[rule].lexemes = builder.take_lexemes();
        let nodes = builder.finish(body);
        let name = &self.grammar.rules[rule].name;
        self.grammar.rules[rule].keeps_terminals = !is_terminal(name) && rule != self.ignored;
        self.grammar.define(rule, nodes, self.limits)
    }

    /// After all statements: the rule to start with.
    fn finish(&mut self, start: usize) -> Result<RuleId, SyntaxError> {
        let undefined = self.names.iter().filter(|(_, known)| !known.is_defined);
        if let Some((name, known)) = undefined.min_by_key(|(_, known)| known.offset) {
            let name_cut = cut(name);
            let message = match (self.templates.is_defined(name), is_terminal(name)) {
                (true, _) => format!("template `{name_cut}` needs arguments: `{name_cut}{{…}}`"),
                (false, true) => format!("terminal `{name_cut}` is not defined"),
                (false, false) => format!("rule `{name_cut}` is not defined"),
            };
            return Err(SyntaxError::new(known.offset, message));
        }
        self.check_terminals()?;
        let ignores: Vec<NodeId> = std::mem::take(&mut self.ignores)
            .into_iter()
            .map(|rule| self.rule.push_lexeme(start, NodeKind::Rule(rule)))
            .collect();
        let any = self.rule.alternate(start, ignores);
        let body = NodeKind::Repeat {
            inner: any,
            min: 0,
            max: match self.ignore_once {
                true => 1,
                false => UNBOUNDED,
            },
        };
        let body = self.rule.push(start, body);
        self.set_body(self.ignored, body)?;
        self.grammar.rules[self.ignored].is_ignored = true;
        let Some(known) = self.names.get("start") else {
            return Err(SyntaxError::new(start, "there is no rule `start`"));
        };
        let rule = known.rule;
        if !self.allow_initial_skip {
            return Ok(rule);
        }
        let whole = self.grammar.declare("%start", start, self.limits)?;
        let skip = self.rule.push(start, NodeKind::Rule(self.ignored));
        let rest = self.rule.push(start, NodeKind::Rule(rule));
        let body = self.rule.concat(start, vec![skip, rest]);
        self.set_body(whole, body)?;
        Ok(whole)
    }

    /// Refuses terminals that lead back to themselves: they would not be regular.
    fn check_terminals(&self) -> Result<(), SyntaxError> {
        // Terminals whose parts are all checked are taken away until no more can be.
        let terminals: HashMap<RuleId, &str> = self
            .names
            .iter()
            .filter(|(name, _)| is_terminal(name))
            .map(|(name, known)| (known.rule, *name))
            .collect();
        let mut users: HashMap<RuleId, Vec<RuleId>> = HashMap::new();
        let mut missing: HashMap<RuleId, usize> = HashMap::new();
        for &rule in terminals.keys() {
            let nodes = &self.grammar.rules[rule].nodes;
            let parts = nodes.iter().filter_map(|node| match node.kind {
                NodeKind::Rule(part) if terminals.contains_key(&part) => Some(part),
                _ => None,
            });
            let mut count = 0;
            for part in parts {
                users.entry(part).or_default().push(rule);
                count += 1;
            }
            missing.insert(rule, count);
        }
        let mut checked: Vec<RuleId> = terminals
            .keys()
            .copied()
            .filter(|rule| missing[rule] == 0)
            .collect();
        while let Some(rule) = checked.pop() {
            missing.remove(&rule);
            for user in users.remove(&rule).unwrap_or_default() {
                if let Some(count) = missing.get_mut(&user) {
                    *count -= 1;
                    if *count == 0 {
                        checked.push(user);
                    }
                }
            }
        }
        match missing.keys().min() {
            Some(rule) => Err(SyntaxError::new(
                self.grammar.rules[*rule].offset,
                format!(
                    "terminal `{}` leads back to itself: write it as a rule",
                    cut(terminals[rule])
                ),
            )),
            None => Ok(()),
        }
    }

    /// White space and comments within a line.
    fn skip_blanks(&mut self) {
        skip_blanks(&mut self.cursor);
    }

    /// White space, comments and line ends.
    fn skip_lines(&mut self) {
        loop {
            self.skip_blanks();
            if self
                .cursor
                .take_while(|c| matches!(c, '\n' | '\r'))
                .is_empty()
            {
                return;
            }
        }
    }
}

/// Moves over blanks and comments, and over line ends after a backslash.
fn skip_blanks(cursor: &mut Cursor<'_>) {
    loop {
        cursor.take_while(|c| matches!(c, ' ' | '\t' | '\x0c'));
        let rest = cursor.rest();
        if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
            cursor.take_while(|c| c != '\n');
            cursor.skip(1);
        } else if rest.starts_with('#') || rest.starts_with("//") {
            cursor.take_while(|c| c != '\n');
        } else {
            return;
        }
    }
}
