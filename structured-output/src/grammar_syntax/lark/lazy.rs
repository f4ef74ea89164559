//! Free text up to a trigger, as Lark says it: lazy terminals.
//!
//! ```text
//! start: (foo | bar)* tail
//! tail: TEXT
//! foo_head[lazy]: TEXT "<foo>"
//! foo: foo_head …
//! TEXT: /(.|\n)*/
//! ```
//!
//! A lazy terminal ends as soon as it can. In the dialects that this comes from, that also ends every
//! other way to read the text, so `tail` doesn't go on over a `<foo>`. Here all ways to read a text
//! count, so the rules of this form are given what they mean: text without triggers at the end, and
//! text up to the first trigger before a tool.

use super::super::Words;
use super::super::ast::{Node, NodeId, NodeKind, RuleId};
use super::Parser;

/// The heads of some tools with their triggers.
type Heads = Vec<(RuleId, Box<str>)>;

/// Patterns of any text.
const ANY_TEXT: [&str; 7] = [
    r"(.|\n)*",
    r"(\n|.)*",
    r"(?:.|\n)*",
    r"(?:\n|.)*",
    r"[\s\S]*",
    r"(?s:.*)",
    r"(?s).*",
];

/// How many names any text may be behind.
const MAX_NAMES: usize = 8;

impl Parser<'_, '_> {
    /// Gives rules of that form their meaning.
    pub(super) fn resolve_lazy(&mut self, first: RuleId) {
        if !self.ignores.is_empty() {
            return;
        }
        for rule in first..self.grammar.rules.len() {
            let Some((heads, tail)) = self.tools_and_tail(rule) else {
                continue;
            };
            let triggers = Words::new(heads.iter().map(|head| head.1.clone()).collect());
            self.grammar.rules[rule].nodes[tail].kind = NodeKind::TextWithout(triggers.clone());
            for (head, end) in heads {
                let offset = self.grammar.rules[head].offset;
                let ends = Words::new(vec![end]);
                let words = triggers.clone();
                let kind = NodeKind::TextUntil { ends, words };
                self.grammar.rules[head].nodes = vec![Node { kind, offset }];
            }
        }
    }

    /// Of a rule `(foo | bar)* tail`: the heads of the tools with their triggers, and the tail's node.
    fn tools_and_tail(&self, rule: RuleId) -> Option<(Heads, NodeId)> {
        let [(list, repeated), (of_tail, tail)] = self.parts(rule)[..] else {
            return None;
        };
        if (list, of_tail) != (rule, rule) || !self.is_any_text(rule, tail) {
            return None;
        }
        let nodes = &self.grammar.rules[rule].nodes;
        let &NodeKind::Repeat {
            inner,
            max: crate::lexical::UNBOUNDED,
            ..
        } = &nodes[repeated].kind
        else {
            return None;
        };
        let tools = match &nodes[inner].kind {
            NodeKind::Alternate(ways) => ways.clone(),
            _ => vec![inner],
        };
        let mut heads = Vec::new();
        for tool in tools {
            let &NodeKind::Rule(tool) = &nodes[tool].kind else {
                return None;
            };
            let (owner, first) = *self.parts(tool).first()?;
            match &self.grammar.rules[owner].nodes[first].kind {
                &NodeKind::Rule(head) => heads.push((head, self.trigger(head)?)),
                _ => return None,
            }
        }
        Some((heads, tail))
    }

    /// The parts of a rule's body, in a row, each with the rule it stands in.
    fn parts(&self, rule: RuleId) -> Vec<(RuleId, NodeId)> {
        let nodes = &self.grammar.rules[rule].nodes;
        let mut parts = Vec::new();
        let mut pending: Vec<NodeId> = nodes.len().checked_sub(1).into_iter().collect();
        while let Some(node) = pending.pop() {
            match &nodes[node].kind {
                NodeKind::Concat(items) => pending.extend(items.iter().rev()),
                NodeKind::Rule(rule) if *rule == self.ignored => {}
                _ => parts.push((rule, node)),
            }
        }
        parts
    }

    /// Of a rule that is any text up to a string: the string.
    fn trigger(&self, head: RuleId) -> Option<Box<str>> {
        let [(_, shortest)] = self.parts(head)[..] else {
            return None;
        };
        let nodes = &self.grammar.rules[head].nodes;
        let &NodeKind::Shortest(inner) = &nodes[shortest].kind else {
            return None;
        };
        let mut parts = Vec::new();
        let mut pending = vec![inner];
        while let Some(node) = pending.pop() {
            match &nodes[node].kind {
                NodeKind::Concat(items) => pending.extend(items.iter().rev()),
                _ => parts.push(node),
            }
        }
        match parts[..] {
            [text, end] if self.is_any_text(head, text) => match &nodes[end].kind {
                NodeKind::Literal(end) if !end.is_empty() => Some(end.clone()),
                _ => None,
            },
            [whole] => {
                let pattern = self.patterns.get(&nodes[whole].offset)?;
                let ends = ANY_TEXT.iter().filter_map(|any| pattern.strip_prefix(any));
                ends.filter_map(plain).find(|end| !end.is_empty())
            }
            _ => None,
        }
    }

    fn is_any_text(&self, rule: RuleId, node: NodeId) -> bool {
        let (mut rule, mut node) = (rule, node);
        for _ in 0..MAX_NAMES {
            let at = &self.grammar.rules[rule].nodes[node];
            match at.kind {
                NodeKind::Rule(named) => match self.parts(named)[..] {
                    [(_, only)] => (rule, node) = (named, only),
                    _ => return false,
                },
                NodeKind::Regex(_) => {
                    let pattern = self.patterns.get(&at.offset);
                    return pattern.is_some_and(|pattern| ANY_TEXT.contains(&&**pattern));
                }
                _ => return false,
            }
        }
        false
    }
}

/// What a pattern without operators matches.
fn plain(pattern: &str) -> Option<Box<str>> {
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                sign if !sign.is_ascii_alphanumeric() => text.push(sign),
                _ => return None,
            },
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => {
                return None;
            }
            c => text.push(c),
        }
    }
    Some(text.into())
}
