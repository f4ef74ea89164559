//! The syntax tree of a regular expression, and its errors.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// Position of a node in [`Ast::nodes`].
pub(super) type NodeId = usize;

/// A syntax tree as a list in which operands come before what they are operands of: it is built,
/// read and dropped without recursion. The last node is the root.
#[derive(Debug, Default)]
pub(crate) struct Ast {
    pub(super) nodes: Vec<Node>,
}

impl Ast {
    /// The pattern for texts of some characters alone: the same ones of these match.
    pub(crate) fn within(&self, chars: &[(char, char)]) -> Self {
        let ranges = chars
            .iter()
            .map(|&(low, high)| ClassUnicodeRange::new(low, high));
        let chars = ClassUnicode::new(ranges);
        let nodes = self.nodes.iter().map(|node| {
            let mut node = node.clone();
            if let NodeKind::Class(class) | NodeKind::WordBoundary { word: class, .. } =
                &mut node.kind
            {
                class.intersect(&chars);
            }
            node
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// A node, with the offset in the pattern where it starts.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) offset: usize,
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    /// One code point of a set.
    Class(ClassUnicode),
    Concat(Vec<NodeId>),
    Alternate(Vec<NodeId>),
    /// Lazy or greedy makes no difference to the strings that match.
    Repeat {
        inner: NodeId,
        min: u32,
        max: u32,
    },
    /// `(?=)`, `(?!)`, `(?<=)`, `(?<!)`.
    Look {
        ahead: bool,
        negated: bool,
        inner: NodeId,
    },
    /// `\b` or, negated, `\B`, over a class of word characters.
    WordBoundary {
        negated: bool,
        word: ClassUnicode,
    },
    /// `^`, and `(?m)^`.
    Start {
        of_line: bool,
    },
    /// `$`, `\z`, and `(?m)$`.
    End(EndOf),
}

/// What ends at an assertion of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndOf {
    /// The whole text.
    Text,
    /// A line, or the whole text.
    Line,
    /// The text, or its last line: Python's `$` is also before a line end that ends the text.
    LastLine,
}

impl NodeKind {
    /// What it is made of.
    pub(super) fn operands(&self) -> &[NodeId] {
        match self {
            Self::Concat(items) | Self::Alternate(items) => items,
            Self::Repeat { inner, .. } | Self::Look { inner, .. } => std::slice::from_ref(inner),
            Self::Class(_) | Self::WordBoundary { .. } | Self::Start { .. } | Self::End(_) => &[],
        }
    }

    /// The same, to be changed.
    pub(super) fn operands_mut(&mut self) -> &mut [NodeId] {
        match self {
            Self::Concat(items) | Self::Alternate(items) => items,
            Self::Repeat { inner, .. } | Self::Look { inner, .. } => std::slice::from_mut(inner),
            Self::Class(_) | Self::WordBoundary { .. } | Self::Start { .. } | Self::End(_) => {
                &mut []
            }
        }
    }
}

/// Bounds on what is parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegexLimits {
    /// Nodes of the syntax tree.
    pub(crate) max_nodes: usize,
    /// Groups within groups.
    pub(crate) max_nesting: usize,
    /// Largest bound of a counted repetition.
    pub(crate) max_repetition: u32,
}

/// Why a regular expression was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegexError {
    /// What is wrong, and what would be right.
    pub(crate) message: String,
    /// Byte offset in the pattern.
    pub(crate) offset: usize,
}

impl RegexError {
    pub(super) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            offset,
        }
    }
}
