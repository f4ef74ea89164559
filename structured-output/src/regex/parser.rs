//! From a pattern to its syntax tree, with an explicit stack of open groups.

use regex_syntax::hir::ClassUnicode;

use super::atomic;
use super::class::{Escape, class_of, fold_case};
use super::ecma::{self, Dialect};
use super::python::{self, Note};
use super::quantifier::Mode;
use super::syntax::{Ast, EndOf, Node, NodeId, NodeKind, RegexError, RegexLimits};

/// Ranges of characters of all classes in a pattern. `\w` has some 760, of 8 bytes each and several times over until it
/// is translated: 650 of them.
pub(super) const MAX_RANGES: usize = 500_000;

/// Flags that hold at a place of the pattern.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) ignore_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
    pub(super) ascii: bool,
    pub(super) verbose: bool,
}

/// What a group is for.
#[derive(Clone, Copy)]
enum GroupKind {
    Plain,
    /// `(?>...)`, which Python has.
    Atomic,
    Look {
        ahead: bool,
        negated: bool,
    },
}

/// A group that is open.
struct Group {
    kind: GroupKind,
    offset: usize,
    outer_flags: Flags,
    alternatives: Vec<NodeId>,
    items: Vec<NodeId>,
    /// Where the running alternative starts.
    alternative_offset: usize,
}

impl Group {
    fn new(kind: GroupKind, offset: usize, start: usize, outer_flags: Flags) -> Self {
        Self {
            kind,
            offset,
            outer_flags,
            alternatives: Vec::new(),
            items: Vec::new(),
            alternative_offset: start,
        }
    }
}

/// A pattern being read.
pub(super) struct Parser<'a> {
    pattern: &'a str,
    offset: usize,
    pub(super) dialect: Dialect,
    pub(super) flags: Flags,
    pub(super) limits: RegexLimits,
    ast: Ast,
    /// Ranges of the classes in it.
    num_ranges: usize,
    /// `(?>...)` and possessive repetitions.
    atomic: Vec<NodeId>,
    /// Repetitions that end as soon as they can.
    lazy: Vec<NodeId>,
    /// Python's `$`.
    dollars: Vec<NodeId>,
    notes: Vec<Note>,
}

/// Parses a pattern of a dialect.
///
/// # Errors
/// What is not understood, not regular, or beyond the limits, with its offset.
pub(crate) fn parse(
    pattern: &str,
    dialect: Dialect,
    limits: RegexLimits,
) -> Result<Ast, RegexError> {
    parse_with_notes(pattern, dialect, limits).map(|(ast, _)| ast)
}

/// The same, with what other dialects read otherwise.
pub(super) fn parse_with_notes(
    pattern: &str,
    dialect: Dialect,
    limits: RegexLimits,
) -> Result<(Ast, Vec<Note>), RegexError> {
    let mut parser = Parser {
        pattern,
        offset: 0,
        dialect,
        flags: Flags::default(),
        limits,
        ast: Ast::default(),
        num_ranges: 0,
        atomic: Vec::new(),
        lazy: Vec::new(),
        dollars: Vec::new(),
        notes: Vec::new(),
    };
    parser.run()?;
    parser.resolve_dollars();
    atomic::check(&parser.ast, &parser.atomic, &parser.lazy)?;
    Ok((parser.ast, parser.notes))
}

impl<'a> Parser<'a> {
    /// Remembers what other dialects read otherwise.
    pub(super) fn note(&mut self, offset: usize, message: impl FnOnce() -> String) {
        if self.dialect == Dialect::Python && self.notes.len() < python::MAX_NOTES {
            let message = message();
            self.notes.push(Note { offset, message });
        }
    }

    /// Python's `$` where it isn't the end of the whole text.
    fn resolve_dollars(&mut self) {
        for node in python::before_last_line_end(&self.ast, &self.dollars) {
            let offset = self.ast.nodes[node].offset;
            self.ast.nodes[node].kind = NodeKind::End(EndOf::LastLine);
            self.note(offset, || python::DOLLAR.to_owned());
        }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.pattern[self.offset..]
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.offset += bytes;
    }

    pub(super) fn take(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.offset += next.len_utf8();
        Some(next)
    }

    pub(super) fn take_if(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.offset += wanted.len_utf8();
        }
        found
    }

    fn take_str(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.offset += wanted.len();
        }
        found
    }

    /// The text up to `end`, which is taken too.
    pub(super) fn take_through(&mut self, end: char) -> Option<&'a str> {
        let (text, _) = self.rest().split_once(end)?;
        self.offset += text.len() + end.len_utf8();
        Some(text)
    }

    fn push(&mut self, offset: usize, kind: NodeKind) -> Result<NodeId, RegexError> {
        let num_ranges = match &kind {
            NodeKind::Class(class) | NodeKind::WordBoundary { word: class, .. } => {
                class.ranges().len()
            }
            _ => 0,
        };
        self.num_ranges += num_ranges;
        if self.num_ranges > MAX_RANGES {
            return Err(RegexError::new(
                offset,
                format!(
                    "the pattern's classes, such as `\\w` and `\\p{{L}}`, have more than {MAX_RANGES} ranges of \
                     characters together: write some of them once, or with `[a-z]`"
                ),
            ));
        }
        let max = self.limits.max_nodes;
        if self.ast.nodes.len() >= max {
            return Err(RegexError::new(
                offset,
                format!("the pattern has more than {max} parts (limit `max_regex_nodes`)"),
            ));
        }
        self.ast.nodes.push(Node { kind, offset });
        Ok(self.ast.nodes.len() - 1)
    }

    fn run(&mut self) -> Result<(), RegexError> {
        let mut open: Vec<Group> = Vec::new();
        let mut group = Group::new(GroupKind::Plain, 0, 0, self.flags);
        loop {
            if self.flags.verbose {
                self.skip_blanks();
            }
            let offset = self.offset;
            let Some(next) = self.take() else { break };
            match next {
                '(' => {
                    if let Some(inner) = self.open_group(offset)? {
                        if open.len() >= self.limits.max_nesting {
                            return Err(RegexError::new(
                                offset,
                                format!(
                                    "groups are nested deeper than {} (limit `max_nesting`)",
                                    self.limits.max_nesting
                                ),
                            ));
                        }
                        open.push(std::mem::replace(&mut group, inner));
                    }
                }
                ')' => {
                    let Some(outer) = open.pop() else {
                        return Err(RegexError::new(
                            offset,
                            "`)` without `(`: escape it as `\\)`",
                        ));
                    };
                    let closed = std::mem::replace(&mut group, outer);
                    self.flags = closed.outer_flags;
                    let node = self.close_group(closed)?;
                    group.items.push(node);
                }
                '|' => {
                    let items = std::mem::take(&mut group.items);
                    let alternative = self.concat(group.alternative_offset, items)?;
                    group.alternatives.push(alternative);
                    group.alternative_offset = self.offset;
                }
                _ => match self.quantifier(offset, next)? {
                    Some((min, max, mode)) => {
                        let Some(inner) = group.items.pop() else {
                            return Err(RegexError::new(
                                offset,
                                format!(
                                    "nothing to repeat before `{next}`: escape it as `\\{next}`"
                                ),
                            ));
                        };
                        let at = self.ast.nodes[inner].offset;
                        let node = self.push(at, NodeKind::Repeat { inner, min, max })?;
                        match mode {
                            Mode::Greedy => {}
                            Mode::Lazy => self.lazy.push(node),
                            Mode::Possessive => self.atomic.push(node),
                        }
                        group.items.push(node);
                    }
                    None => {
                        let kind = self.atom(offset, next)?;
                        let node = self.push(offset, kind)?;
                        group.items.push(node);
                    }
                },
            }
        }
        if !open.is_empty() {
            return Err(RegexError::new(group.offset, "`(` without `)`"));
        }
        self.close_group(group)?;
        Ok(())
    }

    /// White space and comments, which the flag `x` leaves out.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.offset += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.offset += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// What follows `(`: a group, or nothing where only flags are set or a comment is made.
    fn open_group(&mut self, offset: usize) -> Result<Option<Group>, RegexError> {
        let mut kind = GroupKind::Plain;
        let outer_flags = self.flags;
        if self.take_if('?') {
            if self.take_if(':') {
            } else if (self.dialect != Dialect::Ecma && self.take_str("P<")) || self.is_name() {
                self.group_name(offset)?;
            } else if self.take_if('=') {
                kind = GroupKind::Look {
                    ahead: true,
                    negated: false,
                };
            } else if self.take_if('!') {
                kind = GroupKind::Look {
                    ahead: true,
                    negated: true,
                };
            } else if self.take_str("<=") {
                kind = GroupKind::Look {
                    ahead: false,
                    negated: false,
                };
            } else if self.take_str("<!") {
                kind = GroupKind::Look {
                    ahead: false,
                    negated: true,
                };
            } else if self.dialect == Dialect::Python && self.take_if('>') {
                self.note(offset, || python::ATOMIC.to_owned());
                kind = GroupKind::Atomic;
            } else if self.dialect == Dialect::Ecma {
                return Err(RegexError::new(
                    offset,
                    "`(?` begins a group of ECMA-262 only before `:`, `=`, `!` and `<`",
                ));
            } else if self.take_if('#') {
                return match self.take_through(')') {
                    Some(_) => Ok(None),
                    None => Err(RegexError::new(offset, "`(?#` without `)`")),
                };
            } else if self.take_str("P=") {
                return Err(RegexError::new(
                    offset,
                    "back-reference `(?P=`: a back-reference is not regular and can't be enforced",
                ));
            } else if !self.group_flags(offset)? {
                return Ok(None);
            }
        }
        Ok(Some(Group::new(kind, offset, self.offset, outer_flags)))
    }

    /// Takes the `<` of `(?<name>`, which is no look-behind.
    fn is_name(&mut self) -> bool {
        let rest = self.rest();
        !rest.starts_with("<=") && !rest.starts_with("<!") && self.take_if('<')
    }

    fn group_name(&mut self, offset: usize) -> Result<(), RegexError> {
        let name = self.take_through('>');
        let good = |name: &str| {
            name.starts_with(|c: char| c == '_' || c.is_alphabetic())
                && name.chars().all(|c| c == '_' || c.is_alphanumeric())
        };
        match name {
            Some(name) if good(name) => Ok(()),
            _ => Err(RegexError::new(
                offset,
                "a group's name is letters, digits and `_` between `<` and `>`",
            )),
        }
    }

    /// `i-s)` or `i-s:` after `(?`: sets the flags; true where a group follows.
    fn group_flags(&mut self, offset: usize) -> Result<bool, RegexError> {
        let mut on = true;
        loop {
            let at = self.offset;
            match self.take() {
                Some('-') if on => on = false,
                Some('i') => self.flags.ignore_case = on,
                Some('m') => self.flags.multi_line = on,
                Some('s') => self.flags.dot_all = on,
                Some('x') => self.flags.verbose = on,
                Some('a') => self.flags.ascii = on,
                Some('u') => self.flags.ascii = !on,
                // Greed doesn't change which strings match.
                Some('U') => {}
                Some(':') => return Ok(true),
                Some(')') => return Ok(false),
                Some(other) => {
                    return Err(RegexError::new(
                        at,
                        format!("`(?{other}` is not known: flags are i, m, s, x, a, u and U"),
                    ));
                }
                None => return Err(RegexError::new(offset, "`(` without `)`")),
            }
        }
    }

    fn concat(&mut self, offset: usize, items: Vec<NodeId>) -> Result<NodeId, RegexError> {
        match items[..] {
            [only] => Ok(only),
            _ => self.push(offset, NodeKind::Concat(items)),
        }
    }

    fn close_group(&mut self, mut group: Group) -> Result<NodeId, RegexError> {
        let last = self.concat(group.alternative_offset, std::mem::take(&mut group.items))?;
        group.alternatives.push(last);
        let inner = match group.alternatives[..] {
            [only] => only,
            _ => self.push(group.offset, NodeKind::Alternate(group.alternatives))?,
        };
        let kind = match group.kind {
            GroupKind::Look { ahead, negated } => NodeKind::Look {
                ahead,
                negated,
                inner,
            },
            // One more node keeps the root last and a group's offset its own.
            GroupKind::Plain | GroupKind::Atomic => NodeKind::Concat(vec![inner]),
        };
        let node = self.push(group.offset, kind)?;
        if matches!(group.kind, GroupKind::Atomic) {
            self.atomic.push(node);
        }
        Ok(node)
    }

    /// One sign, class or assertion.
    fn atom(&mut self, offset: usize, next: char) -> Result<NodeKind, RegexError> {
        let class = match next {
            '.' if self.dialect == Dialect::Ecma => ecma::dot(),
            '.' if self.flags.dot_all => class_of(&[('\0', char::MAX)]),
            '.' => class_of(&[('\0', '\x09'), ('\x0b', char::MAX)]),
            '[' => self.bracket(offset)?,
            '^' => {
                return Ok(NodeKind::Start {
                    of_line: self.flags.multi_line,
                });
            }
            '$' if self.flags.multi_line => return Ok(NodeKind::End(EndOf::Line)),
            '$' => {
                if self.dialect == Dialect::Python {
                    self.dollars.push(self.ast.nodes.len());
                }
                return Ok(NodeKind::End(EndOf::Text));
            }
            '\\' => return self.escaped_atom(offset),
            one => self.one_char(one, offset)?,
        };
        Ok(NodeKind::Class(class))
    }

    fn escaped_atom(&mut self, offset: usize) -> Result<NodeKind, RegexError> {
        if self.take_if('b') || self.take_if('B') {
            if self.dialect == Dialect::Common && self.rest().starts_with('{') {
                return Err(RegexError::new(
                    offset,
                    "`\\b{` is a half boundary in some dialects: put the `\\b` in a group",
                ));
            }
            return Ok(NodeKind::WordBoundary {
                negated: self.pattern[..self.offset].ends_with('B'),
                word: self.perl_class('w'),
            });
        }
        if self.dialect != Dialect::Ecma && self.take_if('A') {
            return Ok(NodeKind::Start { of_line: false });
        }
        if self.dialect != Dialect::Ecma && (self.take_if('z') || self.take_if('Z')) {
            return Ok(NodeKind::End(EndOf::Text));
        }
        let class = match self.escape(offset)? {
            Escape::Class(mut class) => {
                if self.flags.ignore_case {
                    fold_case(&mut class, offset)?;
                }
                class
            }
            Escape::Char(one) => self.one_char(one, offset)?,
        };
        Ok(NodeKind::Class(class))
    }

    fn one_char(&self, one: char, offset: usize) -> Result<ClassUnicode, RegexError> {
        let mut class = class_of(&[(one, one)]);
        if self.flags.ignore_case {
            fold_case(&mut class, offset)?;
        }
        Ok(class)
    }
}
