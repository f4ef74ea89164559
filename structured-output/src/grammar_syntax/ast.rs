//! What all front ends make: rules over text, tokens, JSON and each other.

use std::sync::Arc;

use regex_syntax::hir::ClassUnicode;

use super::substring::Substrings;
use super::words::Words;
use crate::lexical::WordAutomaton;
use crate::options::JsonSchemaOptions;
use crate::regex::{self, Dialect};

/// Position of a rule in [`Grammar::rules`].
pub(crate) type RuleId = usize;
/// Position of a node in [`Rule::nodes`].
pub(crate) type NodeId = usize;

/// A grammar, or several that refer to each other.
#[derive(Debug, Default)]
pub(crate) struct Grammar {
    pub(crate) rules: Vec<Rule>,
    /// Nodes of all rules so far.
    pub(crate) num_nodes: usize,
    /// Texts of tokens that are never text, in their order. Where a tag or trigger contains one, the token stands
    /// for its text.
    pub(crate) control_tokens: Arc<[Box<str>]>,
}

/// A rule. Its nodes are a list in which operands come before what they are operands of, so that it
/// is built, read and dropped without recursion. The last node is the body.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: Box<str>,
    /// Where it is defined, or was first named.
    pub(crate) offset: usize,
    pub(crate) nodes: Vec<Node>,
    /// Whether its parts are terminals, which are read each by itself: names and other text in it
    /// don't become one language with what stands beside them, so that what is known of a terminal
    /// is known wherever it stands. It means the same.
    pub(crate) keeps_terminals: bool,
    /// Nodes that are terminals of Lark, in order: where the grammar has lazy ones, what they are
    /// depends on what else may stand there.
    pub(crate) lexemes: Vec<NodeId>,
    /// Whether it is a terminal that ends as soon as it can.
    pub(crate) is_lazy: bool,
    /// Whether it is what Lark ignores between terminals.
    pub(crate) is_ignored: bool,
}

/// A node, with the offset in the source where it starts.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) offset: usize,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    /// A string as it stands.
    Literal(Box<str>),
    /// A string of ASCII in any case: the regular expression of its characters with the flag `i`.
    AnyCase(Box<str>),
    /// One code point of a set.
    Class(ClassUnicode),
    /// A regular expression, over the text of this node alone.
    Regex(regex::Ast),
    Rule(RuleId),
    Concat(Vec<NodeId>),
    Alternate(Vec<NodeId>),
    /// `max` may be `lexical::UNBOUNDED`.
    Repeat {
        inner: NodeId,
        min: u32,
        max: u32,
    },
    /// Text of all of them; regular operands only.
    And(Vec<NodeId>),
    /// Any other string of bytes; a regular operand only.
    Not(NodeId),
    /// Texts of which no proper beginning is a text of the operand too; a regular operand only.
    Shortest(NodeId),
    /// Some of the strings in a row.
    Substring(Substrings),
    /// Text without any of these strings in it.
    TextWithout(Words),
    /// Strings of bytes that end with none of these strings.
    NotEnding(Words),
    /// Text without any of an automaton's words.
    FreeText(Arc<WordAutomaton>),
    /// Such text, then a word with a tag, and what is tagged so: of words that overlap the one that begins
    /// first.
    Tagged {
        automaton: Arc<WordAutomaton>,
        /// By their tags, all from 0 on.
        contents: Vec<NodeId>,
    },
    /// Text, of which every beginning is such text too, that at most so many tokens have a part in.
    WithinTokens {
        inner: NodeId,
        max: u32,
        /// Whether it is known that every beginning is such text.
        is_checked: bool,
    },
    /// One token of a set.
    Tokens(TokenSet),
    /// The token that is written so, or its text. Only a vocabulary can say whether there is one.
    NamedToken(Box<str>),
    /// A JSON value that is valid under a schema.
    Json(EmbeddedSchema),
}

/// A JSON Schema within a grammar.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddedSchema {
    pub(crate) text: Box<str>,
    /// How it is written. Boxed, since each node of a grammar has room for a schema.
    pub(crate) options: Box<JsonSchemaOptions>,
    /// Where it stands in a structural tag.
    pub(crate) place: Option<SchemaPlace>,
}

/// Where a schema stands in a structural tag, as JSON pointers.
#[derive(Debug, Clone)]
pub(crate) struct SchemaPlace {
    pub(crate) own: Box<str>,
    /// Of the schema whose definitions were added to it.
    pub(crate) definitions: Option<Box<str>>,
}

impl SchemaPlace {
    /// The pointer in the structural tag of what is at a pointer in the schema.
    pub(crate) fn of(&self, pointer: &str) -> String {
        let mut names = ["/$defs", "/definitions"].into_iter();
        let is_added = names.any(|name| {
            let rest = pointer.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let outer = match &self.definitions {
            Some(outer) if is_added => outer,
            _ => &self.own,
        };
        format!("{outer}{pointer}")
    }
}

/// A set of tokens by id: inclusive ranges, or all others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TokenSet {
    pub(crate) ranges: Vec<(u32, u32)>,
    /// Tokens by the text that is written, which must exist.
    pub(crate) names: Vec<Box<str>>,
    pub(crate) negated: bool,
    /// Whether its tokens end the whole text. Set where a name turns out to be that of a stop token.
    pub(crate) ends_text: bool,
    /// What its tokens must be among.
    pub(crate) among: Option<Among>,
}

/// Tokens that others must be among.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Among {
    pub(crate) set: Arc<TokenSet>,
    /// What is said where they aren't.
    pub(crate) otherwise: Box<str>,
}

impl TokenSet {
    /// One token by its id.
    pub(crate) fn of_id(id: u32) -> Self {
        Self {
            ranges: vec![(id, id)],
            ..Self::default()
        }
    }

    /// One token by its text.
    pub(crate) fn of_name(name: &str) -> Self {
        Self {
            names: vec![name.into()],
            ..Self::default()
        }
    }
}

/// Bounds on what is parsed; see `Limits` for their meaning and defaults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyntaxLimits {
    pub(crate) max_rules: usize,
    pub(crate) max_nodes: usize,
    pub(crate) max_nesting: usize,
    pub(crate) max_repetition: u32,
    pub(crate) max_trigger_overlaps: usize,
    pub(crate) max_nested_grammars: usize,
    pub(crate) regex: regex::RegexLimits,
}

/// Why a grammar was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SyntaxError {
    /// At a place of the source.
    At {
        /// What is wrong, and what would be right.
        message: String,
        /// Byte offset in the source.
        offset: usize,
    },
    /// A limit would be exceeded, at a place of the source.
    Limit {
        limit: &'static str,
        max: u64,
        /// Byte offset in the source.
        offset: usize,
    },
}

impl SyntaxError {
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self::At {
            message: message.into(),
            offset,
        }
    }
}

/// A rule being read.
#[derive(Debug, Default)]
pub(crate) struct RuleBuilder {
    nodes: Vec<Node>,
    lexemes: Vec<NodeId>,
}

impl RuleBuilder {
    pub(crate) fn push(&mut self, offset: usize, kind: NodeKind) -> NodeId {
        self.nodes.push(Node { kind, offset });
        self.nodes.len() - 1
    }

    /// The same for a terminal of Lark in a rule.
    pub(crate) fn push_lexeme(&mut self, offset: usize, kind: NodeKind) -> NodeId {
        let node = self.push(offset, kind);
        self.lexemes.push(node);
        node
    }

    /// The terminals of Lark among the nodes.
    pub(crate) fn take_lexemes(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.lexemes)
    }

    /// One after the other.
    pub(crate) fn concat(&mut self, offset: usize, items: Vec<NodeId>) -> NodeId {
        match items[..] {
            [only] => only,
            _ => self.push(offset, NodeKind::Concat(items)),
        }
    }

    /// Any of them.
    pub(crate) fn alternate(&mut self, offset: usize, items: Vec<NodeId>) -> NodeId {
        match items[..] {
            [only] => only,
            _ => self.push(offset, NodeKind::Alternate(items)),
        }
    }

    /// A node.
    pub(crate) fn kind(&self, node: NodeId) -> &NodeKind {
        &self.nodes[node].kind
    }

    /// Drops the nodes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.nodes.truncate(len);
        self.lexemes.retain(|&node| node < len);
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The rule's nodes with `body` as the last.
    pub(crate) fn finish(mut self, body: NodeId) -> Vec<Node> {
        if body + 1 != self.nodes.len() {
            let offset = self.nodes[body].offset;
            self.push(offset, NodeKind::Concat(vec![body]));
        }
        self.nodes
    }
}

/// A piece of a tag's text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Piece {
    Char(char),
    /// A token, or its text.
    Token(Box<str>),
}

impl RuleBuilder {
    /// Pieces in a row, text joined.
    pub(crate) fn pieces(&mut self, offset: usize, pieces: &[Piece]) -> NodeId {
        let mut items = Vec::new();
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Char(c) => text.push(*c),
                Piece::Token(name) => {
                    if !text.is_empty() {
                        let text = std::mem::take(&mut text).into();
                        items.push(self.push(offset, NodeKind::Literal(text)));
                    }
                    items.push(self.push(offset, NodeKind::NamedToken(name.clone())));
                }
            }
        }
        if !text.is_empty() || items.is_empty() {
            items.push(self.push(offset, NodeKind::Literal(text.into())));
        }
        self.concat(offset, items)
    }
}

impl Grammar {
    /// A tag's text in pieces.
    pub(crate) fn pieces(&self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            match self.control_token(rest) {
                Some(token) => {
                    rest = &rest[token.len()..];
                    pieces.push(Piece::Token(token.into()));
                }
                None => {
                    rest = &rest[c.len_utf8()..];
                    pieces.push(Piece::Char(c));
                }
            }
        }
        pieces
    }

    /// The longest text of a control token that a text begins with.
    fn control_token(&self, text: &str) -> Option<&str> {
        let mut text = text.as_bytes();
        loop {
            // All that the text begins with are no greater, and what lies between begins with them.
            let after = self
                .control_tokens
                .partition_point(|token| token.as_bytes() <= text);
            let nearest = self.control_tokens.get(after.checked_sub(1)?)?;
            let both = nearest.bytes().zip(text);
            let common = both.take_while(|(a, b)| a == *b).count();
            match common {
                0 => return None,
                _ if common == nearest.len() => return Some(nearest),
                _ => text = &text[..common],
            }
        }
    }

    /// A rule that is defined later, or never.
    pub(crate) fn declare(
        &mut self,
        name: &str,
        offset: usize,
        limits: &SyntaxLimits,
    ) -> Result<RuleId, SyntaxError> {
        if self.rules.len() >= limits.max_rules {
            return Err(SyntaxError::Limit {
                limit: "max_rules",
                max: limits.max_rules as u64,
                offset,
            });
        }
        self.rules.push(Rule {
            name: name.into(),
            offset,
            nodes: Vec::new(),
            keeps_terminals: false,
            lexemes: Vec::new(),
            is_lazy: false,
            is_ignored: false,
        });
        Ok(self.rules.len() - 1)
    }

    /// Counts parts that are no nodes, such as the strings of a list.
    pub(crate) fn charge(
        &mut self,
        parts: usize,
        offset: usize,
        limits: &SyntaxLimits,
    ) -> Result<(), SyntaxError> {
        self.num_nodes = self.num_nodes.saturating_add(parts);
        limits.check_nodes(self.num_nodes, offset)
    }

    /// Says what a rule is.
    pub(crate) fn define(
        &mut self,
        rule: RuleId,
        nodes: Vec<Node>,
        limits: &SyntaxLimits,
    ) -> Result<(), SyntaxError> {
        self.num_nodes += nodes.len();
        self.rules[rule].nodes = nodes;
        limits.check_nodes(self.num_nodes, self.rules[rule].offset)
    }
}

impl SyntaxLimits {
    /// Refuses more nodes than there may be, up to an offset of the source.
    pub(crate) fn check_nodes(&self, num_nodes: usize, offset: usize) -> Result<(), SyntaxError> {
        match num_nodes > self.max_nodes {
            true => Err(self.too_many_nodes(offset)),
            false => Ok(()),
        }
    }

    /// More nodes than there may be, up to an offset of the source.
    pub(crate) fn too_many_nodes(&self, offset: usize) -> SyntaxError {
        SyntaxError::Limit {
            limit: "max_grammar_nodes",
            max: self.max_nodes as u64,
            offset,
        }
    }

    /// Groups nested too deep, at an offset of the source.
    pub(crate) fn too_deep(&self, offset: usize) -> SyntaxError {
        SyntaxError::new(
            offset,
            format!(
                "groups are nested deeper than {} (limit `max_nesting`)",
                self.max_nesting
            ),
        )
    }

    /// Parses a regular expression with flags at an offset of the source.
    pub(crate) fn regex(
        &self,
        pattern: &str,
        flags: &str,
        offset: usize,
    ) -> Result<NodeKind, SyntaxError> {
        self.regex_of(Dialect::Common, pattern, flags, offset)
    }

    /// The same in a dialect.
    pub(crate) fn regex_of(
        &self,
        dialect: Dialect,
        pattern: &str,
        flags: &str,
        offset: usize,
    ) -> Result<NodeKind, SyntaxError> {
        let prefix = match flags {
            "" => String::new(),
            flags => format!("(?{flags})"),
        };
        let ast =
            regex::parse(&format!("{prefix}{pattern}"), dialect, self.regex).map_err(|error| {
                let inside = error.offset.saturating_sub(prefix.len());
                SyntaxError::new(offset + inside, error.message)
            })?;
        Ok(NodeKind::Regex(ast))
    }
}
