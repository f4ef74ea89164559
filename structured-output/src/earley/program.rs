//! Compiled rules: deterministic automata over lexemes and calls.

use hashbrown::HashMap;

use crate::pushdown;

/// A node of a rule's automaton. Numbers run through all grammars of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId(pub(super) u32);

/// A set of tokens that a grammar names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct TokenSetId(pub(super) u32);

/// What a lexeme is read by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Lexeme {
    /// Text: a language, or JSON under a schema. The state says what may still come.
    Text(pushdown::State),
    /// A language of which all beginnings are texts of it too, and which so many more tokens may have
    /// a part in.
    Counted(pushdown::State, TokensLeft),
    /// One token of a set.
    Token(TokenSetId),
    /// One token of a set, which ends the text.
    Stop(TokenSetId),
    /// Nothing: the whole text may end here.
    End,
}

/// How many more tokens may have a part in a text, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct TokensLeft {
    /// The token that is being read among them.
    number: u32,
    /// Whether that one has a part already.
    is_touched: bool,
}

impl TokensLeft {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            is_touched: false,
        }
    }
}

impl Lexeme {
    /// What text may come, if it is text.
    pub(crate) fn text(self) -> Option<pushdown::State> {
        match self {
            Self::Text(text) | Self::Counted(text, _) => Some(text),
            Self::Token(_) | Self::Stop(_) | Self::End => None,
        }
    }

    /// The same lexeme after a byte, where `next` is what may come then.
    pub(crate) fn after(self, next: pushdown::State) -> Self {
        match self {
            Self::Counted(_, left) => Self::Counted(
                next,
                TokensLeft {
                    is_touched: true,
                    ..left
                },
            ),
            _ => Self::Text(next),
        }
    }

    /// The lexeme at a token's end, where tokens are counted in it: `None` where no other token may
    /// have a part.
    pub(super) fn after_token(self) -> Option<Self> {
        match self {
            Self::Counted(text, left) if left.is_touched => {
                (left.number > 1).then(|| Self::Counted(text, TokensLeft::new(left.number - 1)))
            }
            other => Some(other),
        }
    }

    /// The same where tokens aren't counted.
    pub(crate) fn uncounted(self) -> Self {
        match self {
            Self::Counted(text, _) => Self::Text(text),
            other => other,
        }
    }
}

/// A node: the lexemes and the rules that it leads on by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// Where its lexemes lie in [`Program::lexemes`].
    lexemes: (u32, u32),
    /// Where its calls lie in [`Program::calls`].
    calls: (u32, u32),
    /// Whether the rule may end here.
    pub(super) accepting: bool,
    /// Whether what is read from here to the rule's end, twice, is read from here once, such as at
    /// the node of `("," item)*`.
    pub(super) is_loop: bool,
    /// The least that is read from here to the rule's end: bytes, and 1 for a token.
    pub(super) min_length: u32,
}

/// A call of a rule, which comes back to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// Where the rule starts.
    pub(super) start: NodeId,
    /// Above that of the rules that the rule itself first calls. Rules of one rank don't call each
    /// other first.
    pub(super) rank: u32,
    pub(super) target: NodeId,
}

/// The rules of all grammars of a generation.
#[derive(Default)]
pub(crate) struct Program {
    nodes: Vec<Node>,
    lexemes: Vec<(Lexeme, NodeId)>,
    calls: Vec<Call>,
    /// Nodes that stand for others: for which, the tag says with which a lexeme ends. `None` where no
    /// lexeme ends with it.
    choices: HashMap<NodeId, Box<[Option<NodeId>]>>,
    num_choices: usize,
    /// Where each grammar's nodes end.
    ends: Vec<u32>,
}

/// A node that is to be added.
pub(super) struct NewNode {
    pub(super) lexemes: Vec<(Lexeme, NodeId)>,
    pub(super) calls: Vec<Call>,
    pub(super) accepting: bool,
    pub(super) is_loop: bool,
    pub(super) min_length: u32,
}

impl Program {
    /// The number that the next node gets.
    pub(super) fn next_node(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub(super) fn push(&mut self, new: NewNode) {
        let lexemes = self.lexemes.len() as u32;
        let calls = self.calls.len() as u32;
        self.lexemes.extend(new.lexemes);
        self.calls.extend(new.calls);
        self.nodes.push(Node {
            lexemes: (lexemes, self.lexemes.len() as u32),
            calls: (calls, self.calls.len() as u32),
            accepting: new.accepting,
            is_loop: new.is_loop,
            min_length: new.min_length,
        });
    }

    /// Adds a node that stands for others, by the tag with which a lexeme ends.
    pub(super) fn push_choice(&mut self, targets: Box<[Option<NodeId>]>) {
        let node = NodeId(self.next_node());
        let lengths = targets
            .iter()
            .flatten()
            .map(|&target| self.node(target).min_length);
        let min_length = lengths.min().unwrap_or(u32::MAX);
        self.push(NewNode {
            lexemes: Vec::new(),
            calls: Vec::new(),
            accepting: false,
            is_loop: false,
            min_length,
        });
        self.num_choices += targets.len();
        self.choices.insert(node, targets);
    }

    /// The node that one stands for where a lexeme ends with a tag.
    pub(super) fn choice(&self, node: NodeId, tag: u16) -> Option<NodeId> {
        let targets = self.choices.get(&node)?;
        *targets.get(usize::from(tag))?
    }

    /// The nodes that a lexeme leads to: those that a node stands for, or itself.
    pub(super) fn targets(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let choice = self.choices.get(&node);
        let itself = choice.is_none().then_some(node);
        let all = choice.into_iter().flatten().flatten().copied();
        itself.into_iter().chain(all)
    }

    /// All nodes of a grammar were added.
    pub(super) fn end_grammar(&mut self) {
        self.ends.push(self.next_node());
    }

    /// The nodes of the grammar that a node belongs to.
    pub(super) fn grammar_of(&self, node: NodeId) -> std::ops::Range<u32> {
        let at = self.ends.partition_point(|&end| end <= node.0);
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends.get(at).copied().unwrap_or(self.next_node())
    }

    pub(super) fn node(&self, node: NodeId) -> Node {
        self.nodes[node.0 as usize]
    }

    pub(super) fn lexemes(&self, node: Node) -> &[(Lexeme, NodeId)] {
        &self.lexemes[node.lexemes.0 as usize..node.lexemes.1 as usize]
    }

    pub(super) fn calls(&self, node: Node) -> &[Call] {
        &self.calls[node.calls.0 as usize..node.calls.1 as usize]
    }

    /// Whether a rule is over at a node: it may end there and can't go on.
    pub(super) fn is_last(&self, node: NodeId) -> bool {
        let node = self.node(node);
        node.accepting && node.lexemes.0 == node.lexemes.1 && node.calls.0 == node.calls.1
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.lexemes.capacity() * size_of::<(Lexeme, NodeId)>()
            + self.calls.capacity() * size_of::<Call>()
            + self.ends.capacity() * 4
            + self.choices.capacity() * size_of::<(NodeId, Box<[NodeId]>)>()
            + self.num_choices * size_of::<Option<NodeId>>()
    }
}
