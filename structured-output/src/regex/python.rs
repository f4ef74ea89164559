//! What Python's `re` reads otherwise: the dialect of a pattern that is a whole constraint.
//!
//! In a class `[`, `&&`, `--` and `~~` are signs, `{,}` is any number of times and `{2, 3}` is text, `\w` is what
//! `str.isalnum` says, `\s` what `str.isspace` says, and `$` is also before a line end that is the text's last character.
//! Two things are kept that Python doesn't have: `\p{L}`, and `[[:alpha:]]`, which Python reads as signs and warns of.
//! What only other dialects read in another way is noted.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, ClassUnicode, HirKind};

use super::ecma::Dialect;
use super::parser::parse_with_notes;
use super::syntax::{Ast, NodeId, NodeKind, RegexLimits};

/// The most notes of one pattern.
pub(super) const MAX_NOTES: usize = 16;

/// A place of a pattern that other dialects read otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Byte offset in the pattern.
    pub offset: usize,
    /// How it is read here, and where it isn't.
    pub message: String,
}

/// The notes of a pattern; none of one that is refused.
pub(crate) fn notes(pattern: &str, limits: RegexLimits) -> Vec<Note> {
    parse_with_notes(pattern, Dialect::Python, limits)
        .map_or_else(|_| Vec::new(), |(_, notes)| notes)
}

pub(super) const POSIX: &str = "`[:…:]` in a class is a class of POSIX, as in Rust's `regex`; Python reads signs here and warns";

pub(super) const ATOMIC: &str = "an atomic group or possessive repetition, which changes no whole text here; \
     ECMA-262 and Rust's `regex` don't have it";

pub(super) const DOLLAR: &str = "`$` is also before a line end that is the last character, as in Python; in ECMA-262 and Rust's `regex` only at \
     the end: write `\\Z` for that";

pub(super) const BLANKS_IN_COUNT: &str =
    "braces with blanks in them are text, as in Python; in Rust's `regex` they are a count";

pub(super) fn sign_in_class(signs: &str) -> String {
    format!(
        "`{signs}` in a class is text, as in Python; in Rust's `regex` and with ECMA-262's flag `v` it is a class or an \
         operation within it: `{}` is text everywhere",
        signs
            .chars()
            .map(|sign| format!("\\{sign}"))
            .collect::<String>()
    )
}

/// `\w` and `\s`, where they are not what Rust's `regex` has.
pub(super) fn perl_class(letter: char) -> Option<ClassUnicode> {
    /// `isalnum`: letters, and what has a numeric value.
    static WORD: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| class_of(r"[\p{L}\p{N}_]"));
    /// `isspace`: by Unicode's `White_Space`, and the four separators of ASCII.
    static SPACE: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| class_of(r"[\s\x1c-\x1f]"));
    match letter {
        'w' => WORD.clone(),
        's' => SPACE.clone(),
        _ => None,
    }
}

fn class_of(notation: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(notation).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

/// What is known of a node's texts.
#[derive(Clone, Copy, Default)]
struct LineEnds {
    /// One of them may be empty.
    is_nullable: bool,
    /// One of them may begin with a line end.
    begins: bool,
    /// One of them may end with a line end.
    ends: bool,
}

/// Of some `$`, those that may be before a line end which ends the text. Where no text ends so, or no line end can follow,
/// `$` is the end of the text.
pub(super) fn before_last_line_end(ast: &Ast, dollars: &[NodeId]) -> Vec<NodeId> {
    if dollars.is_empty() {
        return Vec::new();
    }
    let mut known: Vec<LineEnds> = Vec::with_capacity(ast.nodes.len());
    for node in &ast.nodes {
        let of = |at: &NodeId| known.get(*at).copied().unwrap_or_default();
        known.push(match &node.kind {
            NodeKind::Class(class) => {
                let has = class
                    .ranges()
                    .iter()
                    .any(|range| range.start() <= '\n' && '\n' <= range.end());
                LineEnds {
                    is_nullable: false,
                    begins: has,
                    ends: has,
                }
            }
            NodeKind::Concat(items) => {
                let mut whole = LineEnds {
                    is_nullable: true,
                    begins: false,
                    ends: false,
                };
                for next in items.iter().map(of) {
                    whole.begins |= whole.is_nullable && next.begins;
                    whole.ends = next.ends || (next.is_nullable && whole.ends);
                    whole.is_nullable &= next.is_nullable;
                }
                whole
            }
            NodeKind::Alternate(items) => {
                items
                    .iter()
                    .map(of)
                    .fold(LineEnds::default(), |a, b| LineEnds {
                        is_nullable: a.is_nullable || b.is_nullable,
                        begins: a.begins || b.begins,
                        ends: a.ends || b.ends,
                    })
            }
            NodeKind::Repeat { inner, min, max } => {
                let inner = of(inner);
                LineEnds {
                    is_nullable: *min == 0 || inner.is_nullable,
                    begins: *max > 0 && inner.begins,
                    ends: *max > 0 && inner.ends,
                }
            }
            NodeKind::Look { .. }
            | NodeKind::WordBoundary { .. }
            | NodeKind::Start { .. }
            | NodeKind::End(_) => LineEnds {
                is_nullable: true,
                ..LineEnds::default()
            },
        });
    }
    if !known.last().is_some_and(|root| root.ends) {
        return Vec::new();
    }
    // Whether a line end may be the first character after a node.
    let mut follows = vec![false; ast.nodes.len()];
    for (at, node) in ast.nodes.iter().enumerate().rev() {
        let mut next = follows[at];
        match &node.kind {
            NodeKind::Concat(items) => {
                for &item in items.iter().rev() {
                    follows[item] = next;
                    next = known[item].begins || (known[item].is_nullable && next);
                }
            }
            NodeKind::Alternate(items) => items.iter().for_each(|&item| follows[item] = next),
            &NodeKind::Repeat { inner, max, .. } => {
                follows[inner] = next || (max > 1 && known[inner].begins)
            }
            // What is looked at goes on with anything.
            &NodeKind::Look { inner, .. } => follows[inner] = true,
            NodeKind::Class(_)
            | NodeKind::WordBoundary { .. }
            | NodeKind::Start { .. }
            | NodeKind::End(_) => {}
        }
    }
    dollars
        .iter()
        .copied()
        .filter(|&at| follows.get(at) == Some(&true))
        .collect()
}
