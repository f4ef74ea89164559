//! EBNF as XGrammar reads it and GBNF as llama.cpp reads it, in one dialect.
//!
//! Expressions are read with an explicit stack of open groups.

use hashbrown::HashMap;

use super::ast::{Grammar, NodeId, NodeKind, RuleBuilder, RuleId, SyntaxError, SyntaxLimits};
use super::cursor::{Cursor, cut};
use super::ebnf_atom::any_char;
use crate::error::BYTE_ORDER_MARK;
use crate::lexical::UNBOUNDED;

/// Adds the rules of a source to a grammar; the rule named `root`.
///
/// # Errors
/// What is not understood or not supported, with its offset; a limit.
pub(crate) fn parse(
    source: &str,
    root: &str,
    limits: &SyntaxLimits,
    grammar: &mut Grammar,
) -> Result<RuleId, SyntaxError> {
    let mut parser = Parser {
        cursor: Cursor::new(source),
        limits,
        grammar,
        names: HashMap::new(),
        rule: RuleBuilder::default(),
    };
    parser.run()?;
    let mut undefined: Option<(usize, &str)> = None;
    for (name, known) in &parser.names {
        if known.defined_at.is_none() && undefined.is_none_or(|(first, _)| known.offset < first) {
            undefined = Some((known.offset, name));
        }
    }
    if let Some((offset, name)) = undefined {
        let mut message = format!("rule `{}` is not defined", cut(name));
        if name.starts_with('.') {
            message.push_str(": any character is `.` with a blank after it");
        }
        return Err(SyntaxError::new(offset, message));
    }
    match parser.names.get(root) {
        Some(known) => Ok(known.rule),
        None => Err(SyntaxError::new(
            0,
            format!("there is no rule `{}` to start with", cut(root)),
        )),
    }
}

/// A rule that was named.
struct Known {
    rule: RuleId,
    /// Where first.
    offset: usize,
    defined_at: Option<usize>,
}

pub(super) struct Parser<'a, 'g> {
    pub(super) cursor: Cursor<'a>,
    pub(super) limits: &'g SyntaxLimits,
    pub(super) grammar: &'g mut Grammar,
    names: HashMap<&'a str, Known>,
    pub(super) rule: RuleBuilder,
}

/// What stands in brackets after a rule's name.
#[derive(Default)]
struct RuleOptions {
    is_lazy: bool,
    max_tokens: Option<u32>,
}

/// A group that is open.
struct Group {
    offset: usize,
    alternatives: Vec<NodeId>,
    items: Vec<NodeId>,
}

impl Group {
    fn new(offset: usize) -> Self {
        Self {
            offset,
            alternatives: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Ends the running alternative.
    fn next(&mut self, rule: &mut RuleBuilder) {
        let items = std::mem::take(&mut self.items);
        self.alternatives.push(rule.concat(self.offset, items));
    }

    fn close(mut self, rule: &mut RuleBuilder) -> NodeId {
        self.next(rule);
        rule.alternate(self.offset, self.alternatives)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

impl<'a> Parser<'a, '_> {
    fn run(&mut self) -> Result<(), SyntaxError> {
        self.skip_blanks();
        while self.cursor.peek().is_some() {
            self.definition()?;
        }
        Ok(())
    }

    pub(super) fn skip_blanks(&mut self) {
        skip_blanks(&mut self.cursor);
    }

    /// The rule of a name, which may be defined later.
    pub(super) fn rule_named(
        &mut self,
        name: &'a str,
        offset: usize,
    ) -> Result<RuleId, SyntaxError> {
        if let Some(known) = self.names.get(name) {
            return Ok(known.rule);
        }
        let rule = self.grammar.declare(name, offset, self.limits)?;
        let known = Known {
            rule,
            offset,
            defined_at: None,
        };
        self.names.insert(name, known);
        Ok(rule)
    }

    /// A rule with its options and body.
    fn definition(&mut self) -> Result<(), SyntaxError> {
        let offset = self.cursor.offset();
        let name = self.cursor.take_while(is_name_char);
        if name.is_empty() {
            let found = self.cursor.found();
            return self
                .cursor
                .error(format!("expected a rule's name, found {found}"));
        }
        let before = &self.cursor.source()[..offset];
        let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
        if !line.trim_start_matches(BYTE_ORDER_MARK).trim().is_empty() {
            return Err(SyntaxError::new(
                offset,
                format!("rule `{}` must begin on a line of its own", cut(name)),
            ));
        }
        let rule = self.rule_named(name, offset)?;
        if let Some(known) = self.names.get_mut(name) {
            if known.defined_at.is_some() {
                return Err(SyntaxError::new(
                    offset,
                    format!("rule `{}` is defined twice", cut(name)),
                ));
            }
            known.defined_at = Some(offset);
        }
        let options = self.options()?;
        self.skip_blanks();
        if !self.cursor.take_str("::=") {
            let found = self.cursor.found();
            let hint = match self.cursor.peek() {
                Some(':') => " (a grammar with `::=` in a line is read as EBNF, not as Lark)",
                _ => "",
            };
            return self.cursor.error(format!(
                "expected `::=` after the name `{}`, found {found}{hint}",
                cut(name)
            ));
        }
        let mut body = self.body()?;
        if options.is_lazy {
            body = self.rule.push(offset, NodeKind::Shortest(body));
        }
        if let Some(max) = options.max_tokens {
            let is_text = match *self.rule.kind(body) {
                NodeKind::Repeat { inner, min: 0, .. } => {
                    matches!(self.rule.kind(inner), NodeKind::Class(_))
                }
                _ => false,
            };
            if !is_text {
                return Err(SyntaxError::new(
                    offset,
                    "`max_tokens` needs a rule that is any number of characters, as `[^]*`",
                ));
            }
            body = self.rule.push(
                offset,
                NodeKind::WithinTokens {
                    inner: body,
                    max,
                    is_checked: true,
                },
            );
        }
        let nodes = std::mem::take(&mut self.rule).finish(body);
        self.grammar.rules[rule].offset = offset;
        self.grammar.define(rule, nodes, self.limits)
    }

    /// `[lazy, max_tokens=2]` after a name.
    fn options(&mut self) -> Result<RuleOptions, SyntaxError> {
        let mut options = RuleOptions::default();
        if !self.cursor.take_str("[") {
            return Ok(options);
        }
        loop {
            self.skip_blanks();
            let offset = self.cursor.offset();
            let option = self.cursor.take_while(is_name_char);
            self.skip_blanks();
            match option {
                "lazy" => options.is_lazy = true,
                "max_tokens" if self.cursor.take_str("=") => {
                    self.skip_blanks();
                    let max = self.cursor.take_number(i32::MAX as u32, "max_tokens")?;
                    options.max_tokens = Some(max);
                }
                _ => {
                    return Err(SyntaxError::new(
                        offset,
                        format!(
                            "rule option `{}` is not supported: `lazy` and `max_tokens=n` are",
                            cut(option)
                        ),
                    ));
                }
            }
            self.skip_blanks();
            if self.cursor.take_str("]") {
                return Ok(options);
            }
            if !self.cursor.take_str(",") {
                let found = self.cursor.found();
                return self.cursor.error(format!(
                    "expected `,` or `]` among the options, found {found}"
                ));
            }
        }
    }

    /// Whether another rule begins here: a name, perhaps options, and `::=`.
    fn at_definition(&self) -> bool {
        let mut ahead = self.cursor.clone();
        if ahead.take_while(is_name_char).is_empty() {
            return false;
        }
        if ahead.peek() == Some('[') {
            let Some(end) = ahead.rest().find([']', '\n']) else {
                return false;
            };
            ahead.skip(end);
            if !ahead.take_str("]") {
                return false;
            }
        }
        ahead.take_while(char::is_whitespace);
        ahead.rest().starts_with("::=")
    }

    /// A rule's expression, up to the next rule or the end.
    fn body(&mut self) -> Result<NodeId, SyntaxError> {
        self.skip_blanks();
        let mut open: Vec<Group> = Vec::new();
        let mut group = Group::new(self.cursor.offset());
        // What a repetition may follow: also another one, as llama.cpp has it.
        let mut repeatable = false;
        let mut num_repetitions = 0;
        // XGrammar's hint of what follows a rule, from which it makes smaller masks. It takes no
        // part in the language: it is read, and its nodes from here on are dropped again.
        let mut look_ahead: Option<usize> = None;
        loop {
            self.limits.check_nodes(
                self.grammar.num_nodes + self.rule.len(),
                self.cursor.offset(),
            )?;
            self.skip_blanks();
            let offset = self.cursor.offset();
            let Some(next) = self.cursor.peek() else {
                break;
            };
            match next {
                '(' => {
                    self.cursor.skip(1);
                    if self.cursor.take_str("=") {
                        if !open.is_empty() || group.items.is_empty() {
                            return Err(SyntaxError::new(
                                offset,
                                "a look-ahead `(=` stands at the end of a rule, after its last \
                                 part and outside of groups",
                            ));
                        }
                        look_ahead = Some(self.rule.len());
                    }
                    if open.len() >= self.limits.max_nesting {
                        return Err(self.limits.too_deep(offset));
                    }
                    open.push(std::mem::replace(&mut group, Group::new(offset)));
                    repeatable = false;
                }
                ')' => {
                    self.cursor.skip(1);
                    let Some(outer) = open.pop() else {
                        return Err(SyntaxError::new(offset, "`)` without `(`"));
                    };
                    if let Some(len) = look_ahead.filter(|_| open.is_empty()) {
                        let is_empty = group.items.is_empty() && group.alternatives.is_empty();
                        self.end_of_look_ahead(group.offset, is_empty)?;
                        self.rule.truncate(len);
                        group = outer;
                        break;
                    }
                    let closed = std::mem::replace(&mut group, outer).close(&mut self.rule);
                    group.items.push(closed);
                    repeatable = true;
                }
                '|' => {
                    self.cursor.skip(1);
                    group.next(&mut self.rule);
                    repeatable = false;
                }
                '?' | '*' | '+' | '{' => {
                    let (min, max) = self.repetition()?;
                    let inner = group.items.pop().filter(|_| repeatable);
                    let Some(inner) = inner else {
                        return Err(SyntaxError::new(
                            offset,
                            format!("nothing to repeat before `{next}`: put it in a group"),
                        ));
                    };
                    num_repetitions = match self.rule.kind(inner) {
                        NodeKind::Repeat { .. } => num_repetitions + 1,
                        _ => 1,
                    };
                    if num_repetitions > self.limits.max_nesting {
                        return Err(self.limits.too_deep(offset));
                    }
                    let repeat = NodeKind::Repeat { inner, min, max };
                    group.items.push(self.rule.push(offset, repeat));
                }
                _ if self.at_definition() => break,
                _ => {
                    let kind = self.atom(offset, next)?;
                    group.items.push(self.rule.push(offset, kind));
                    repeatable = true;
                }
            }
        }
        if !open.is_empty() {
            return Err(SyntaxError::new(group.offset, "`(` without `)`"));
        }
        Ok(group.close(&mut self.rule))
    }

    /// Refuses a look-ahead that says nothing, and what comes after one within its rule.
    fn end_of_look_ahead(&mut self, offset: usize, is_empty: bool) -> Result<(), SyntaxError> {
        if is_empty {
            return Err(SyntaxError::new(offset, "the look-ahead `(=` is empty"));
        }
        self.skip_blanks();
        if self.cursor.peek().is_none() || self.at_definition() {
            return Ok(());
        }
        let found = self.cursor.found();
        self.cursor.error(format!(
            "expected the rule's end after its look-ahead, found {found}"
        ))
    }

    /// `?`, `*`, `+`, `{m}`, `{m,}` or `{m,n}`.
    fn repetition(&mut self) -> Result<(u32, u32), SyntaxError> {
        let counts = match self.cursor.peek() {
            Some('?') => (0, 1),
            Some('*') => (0, UNBOUNDED),
            Some('+') => (1, UNBOUNDED),
            _ => {
                let limit = self.limits.max_repetition;
                return self.cursor.take_counts(limit, false, skip_blanks);
            }
        };
        self.cursor.skip(1);
        Ok(counts)
    }

    /// Whether the dot here is any character: no name goes on after it and other dots.
    fn is_dot(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.take_while(|c| c == '.');
        !ahead.rest().starts_with(is_name_char)
    }

    fn atom(&mut self, offset: usize, next: char) -> Result<NodeKind, SyntaxError> {
        match next {
            '"' => Ok(NodeKind::Literal(self.string()?.into())),
            '[' => self.class(),
            '.' if self.is_dot() => {
                self.cursor.skip(1);
                Ok(NodeKind::Class(any_char()))
            }
            '<' | '!' => self.token(),
            _ if is_name_char(next) => {
                let name = self.cursor.take_while(is_name_char);
                if self.is_macro(name) {
                    return self.call(name, offset);
                }
                Ok(NodeKind::Rule(self.rule_named(name, offset)?))
            }
            _ => {
                let found = self.cursor.found();
                self.cursor.error(format!(
                    "expected a string, a class, a rule's name or `(`, found {found}"
                ))
            }
        }
    }
}

/// Moves over white space and comments.
fn skip_blanks(cursor: &mut Cursor<'_>) {
    loop {
        cursor.take_while(char::is_whitespace);
        if cursor.peek() != Some('#') {
            return;
        }
        cursor.take_while(|c| c != '\n');
    }
}
