//! What stands after the colon, read with an explicit stack of open groups.

use super::super::ast::{NodeId, NodeKind, SyntaxError};
use super::super::cursor::{ascending, cut};
use super::{Parser, skip_blanks};
use crate::lexical::UNBOUNDED;

/// A group that is open: `(…)`, `[…]`, or the whole expression.
struct Group {
    offset: usize,
    close: Option<char>,
    /// Whether `~` stands before it.
    negated: bool,
    alternatives: Vec<NodeId>,
    conjuncts: Vec<NodeId>,
    items: Vec<NodeId>,
}

impl Group {
    fn new(offset: usize, close: Option<char>, negated: bool) -> Self {
        Self {
            offset,
            close,
            negated,
            alternatives: Vec::new(),
            conjuncts: Vec::new(),
            items: Vec::new(),
        }
    }
}

impl Parser<'_, '_> {
    /// An expression up to the end of its lines. In terminals nothing is ignored between parts, and
    /// parts are terminals.
    pub(super) fn expression(&mut self, in_terminal: bool) -> Result<NodeId, SyntaxError> {
        let mut open: Vec<Group> = Vec::new();
        let mut group = Group::new(self.cursor.offset(), None, false);
        // Whether a repetition may follow.
        let mut repeatable = false;
        let mut negated = false;
        loop {
            self.limits.check_nodes(
                self.grammar.num_nodes + self.rule.len(),
                self.cursor.offset(),
            )?;
            if !self.skip_to_next(!open.is_empty()) {
                break;
            }
            let offset = self.cursor.offset();
            let Some(next) = self.cursor.peek() else {
                break;
            };
            if repeatable && let Some((min, max)) = self.repetition(next)? {
                if let Some(inner) = group.items.pop() {
                    let repeat = NodeKind::Repeat { inner, min, max };
                    group.items.push(self.rule.push(offset, repeat));
                }
                repeatable = false;
                continue;
            }
            let was_negated = std::mem::take(&mut negated);
            match next {
                '(' | '[' => {
                    self.cursor.skip(1);
                    if open.len() >= self.limits.max_nesting {
                        return Err(self.limits.too_deep(offset));
                    }
                    let close = if next == '(' { ')' } else { ']' };
                    let inner = Group::new(offset, Some(close), was_negated);
                    open.push(std::mem::replace(&mut group, inner));
                    repeatable = false;
                    continue;
                }
                '~' => {
                    self.cursor.skip(1);
                    if !in_terminal {
                        return Err(SyntaxError::new(
                            offset,
                            "`~` stands in terminals only: write it in a terminal's definition",
                        ));
                    }
                    negated = !was_negated;
                    repeatable = false;
                    continue;
                }
                _ if was_negated && matches!(next, ')' | ']' | '|' | '&' | '-' | '}') => {
                    return Err(SyntaxError::new(offset, "expected what `~` is to negate"));
                }
                ')' | ']' => {
                    self.cursor.skip(1);
                    if group.close != Some(next) {
                        let message = format!("`{next}` without its opening bracket");
                        return Err(SyntaxError::new(offset, message));
                    }
                    let (closed, is_negated) = (self.close(&mut group, offset)?, group.negated);
                    if let Some(outer) = open.pop() {
                        group = outer;
                    }
                    let mut node = closed;
                    if next == ']' {
                        let maybe = NodeKind::Repeat {
                            inner: node,
                            min: 0,
                            max: 1,
                        };
                        node = self.rule.push(offset, maybe);
                    }
                    if is_negated {
                        node = self.rule.push(offset, NodeKind::Not(node));
                    }
                    group.items.push(node);
                    repeatable = true;
                    continue;
                }
                '|' => {
                    self.cursor.skip(1);
                    self.end_alternative(&mut group, offset)?;
                    repeatable = false;
                }
                '&' => {
                    self.cursor.skip(1);
                    if !in_terminal {
                        return Err(SyntaxError::new(
                            offset,
                            "`&` stands in terminals only: write it in a terminal's definition",
                        ));
                    }
                    let items = std::mem::take(&mut group.items);
                    group.conjuncts.push(self.rule.concat(offset, items));
                    repeatable = false;
                }
                '-' if self.cursor.rest().starts_with("->") => {
                    self.cursor.skip(2);
                    self.skip_blanks();
                    if self.take_name().is_none() {
                        return self.cursor.error("expected a name after `->`");
                    }
                    if self.skip_to_next(!open.is_empty())
                        && !matches!(self.cursor.peek(), Some('|' | ')' | ']' | '}'))
                    {
                        return self
                            .cursor
                            .error("a name given by `->` ends an alternative");
                    }
                    repeatable = false;
                }
                '}' if self.nesting > 0 => break,
                '+' | '*' | '?' => {
                    return Err(SyntaxError::new(
                        offset,
                        format!("nothing to repeat before `{next}`: put it in a group"),
                    ));
                }
                _ => {
                    let mut node = self.part(in_terminal)?;
                    if was_negated {
                        node = self.rule.push(offset, NodeKind::Not(node));
                    }
                    group.items.push(node);
                    repeatable = true;
                }
            }
        }
        if negated {
            return self.cursor.error("expected what `~` is to negate");
        }
        if !open.is_empty() {
            let bracket = if group.close == Some(')') { '(' } else { '[' };
            let message = format!("`{bracket}` without its closing bracket");
            return Err(SyntaxError::new(group.offset, message));
        }
        let offset = group.offset;
        self.close(&mut group, offset)
    }

    /// Moves to what comes next in the expression; false where it ends: at the end of a line that
    /// isn't followed by `|`, brackets apart.
    fn skip_to_next(&mut self, in_brackets: bool) -> bool {
        self.skip_blanks();
        match self.cursor.peek() {
            None => false,
            Some('\n' | '\r') => {
                let before = self.cursor.clone();
                self.skip_lines();
                let goes_on = self.cursor.peek() == Some('|');
                if !goes_on && !in_brackets {
                    self.cursor = before;
                }
                goes_on || in_brackets
            }
            Some(_) => true,
        }
    }

    fn end_alternative(&mut self, group: &mut Group, offset: usize) -> Result<(), SyntaxError> {
        let items = std::mem::take(&mut group.items);
        let last = self.rule.concat(group.offset, items);
        let mut conjuncts = std::mem::take(&mut group.conjuncts);
        if conjuncts.is_empty() {
            group.alternatives.push(last);
            return Ok(());
        }
        conjuncts.push(last);
        group
            .alternatives
            .push(self.rule.push(offset, NodeKind::And(conjuncts)));
        Ok(())
    }

    fn close(&mut self, group: &mut Group, offset: usize) -> Result<NodeId, SyntaxError> {
        self.end_alternative(group, offset)?;
        let alternatives = std::mem::take(&mut group.alternatives);
        Ok(self.rule.alternate(group.offset, alternatives))
    }

    /// `?`, `*`, `+`, `~n`, `~n..m`, `{m}`, `{m,}`, `{,n}` or `{m,n}`, if that is what is here.
    fn repetition(&mut self, next: char) -> Result<Option<(u32, u32)>, SyntaxError> {
        let offset = self.cursor.offset();
        let limit = self.limits.max_repetition;
        let (min, max) = match next {
            '?' => (0, 1),
            '*' => (0, UNBOUNDED),
            '+' => (1, UNBOUNDED),
            '~' => {
                let mut ahead = self.cursor.clone();
                ahead.skip(1);
                ahead.take_while(|c| c == ' ' || c == '\t');
                if !ahead.peek().is_some_and(|c| c.is_ascii_digit()) {
                    return Ok(None);
                }
                self.cursor = ahead;
                let min = self.cursor.take_number(limit, "max_repetition")?;
                self.skip_blanks();
                let mut max = min;
                if self.cursor.take_str("..") {
                    self.skip_blanks();
                    max = self.cursor.take_number(limit, "max_repetition")?;
                }
                return Ok(Some(ascending(offset, min, max)?));
            }
            '{' => {
                let counts = self.cursor.take_counts(limit, true, skip_blanks)?;
                return Ok(Some(counts));
            }
            _ => return Ok(None),
        };
        self.cursor.skip(1);
        Ok(Some((min, max)))
    }

    /// A value, and in rules what may be ignored after it.
    fn part(&mut self, in_terminal: bool) -> Result<NodeId, SyntaxError> {
        let offset = self.cursor.offset();
        let kind = self.value(in_terminal)?;
        let is_rule = match &kind {
            NodeKind::Rule(rule) => !super::is_terminal(&self.grammar.rules[*rule].name),
            _ => false,
        };
        if is_rule && in_terminal {
            let NodeKind::Rule(rule) = kind else {
                return Err(SyntaxError::new(offset, "expected a terminal"));
            };
            return Err(SyntaxError::new(
                offset,
                format!(
                    "rule `{}` can't be part of a terminal: write it as a terminal, in capitals",
                    cut(&self.grammar.rules[rule].name)
                ),
            ));
        }
        if in_terminal || is_rule {
            return Ok(self.rule.push(offset, kind));
        }
        let node = self.rule.push_lexeme(offset, kind);
        Ok(self.with_ignored(offset, node))
    }

    /// A part and what may be ignored after it.
    pub(super) fn with_ignored(&mut self, offset: usize, node: NodeId) -> NodeId {
        let ignored = self.rule.push(offset, NodeKind::Rule(self.ignored));
        self.rule.concat(offset, vec![node, ignored])
    }
}
