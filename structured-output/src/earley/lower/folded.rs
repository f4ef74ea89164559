//! What a grammar is once its regular parts are folded.

use std::sync::Arc;

use crate::grammar_syntax::{EmbeddedSchema, RuleId, TokenSet};
use crate::lexical::{ExprId, WordAutomaton};

/// What a node of a rule is.
#[derive(Debug, Clone)]
pub(in crate::earley) enum Value {
    /// A language, and how many parts it was made of.
    Regular(ExprId, usize),
    /// A node of [`Trees`].
    Tree(u32),
}

/// An operator over languages, rules, tokens and JSON.
#[derive(Debug, Clone)]
pub(in crate::earley) enum Tree {
    Call(u32),
    Tokens(u32),
    Json(u32),
    Lexeme(u32),
    Concat(Vec<Value>),
    Alternate(Vec<Value>),
    Repeat {
        inner: Value,
        min: u32,
        max: u32,
    },
    /// A language that at most so many tokens have a part in.
    WithinTokens(ExprId, u32),
    /// A language that doesn't become one with what stands beside it.
    Text(ExprId),
    /// Free text and a word with a tag, by its position in [`Folded::dispatches`], and then what is tagged
    /// so.
    Tagged {
        dispatch: u32,
        contents: Vec<Value>,
    },
}

/// A terminal where it stands.
#[derive(Debug, Clone)]
pub(in crate::earley) struct Terminal {
    pub(in crate::earley) expr: ExprId,
    /// Whether it ends as soon as it can.
    pub(in crate::earley) is_lazy: bool,
    /// Whether it is what may stand between others.
    pub(in crate::earley) is_ignored: bool,
    pub(in crate::earley) rule: RuleId,
    pub(in crate::earley) offset: usize,
}

/// A grammar with its regular parts folded.
#[derive(Debug, Default)]
pub(in crate::earley) struct Folded {
    pub(in crate::earley) trees: Vec<Tree>,
    /// What each rule is. `None` where it is not used.
    pub(in crate::earley) rules: Vec<Option<Value>>,
    pub(in crate::earley) token_sets: Vec<TokenSet>,
    /// Rule and offset of each.
    pub(in crate::earley) token_set_places: Vec<(RuleId, usize)>,
    /// Schemas, with the rule and offset where they stand.
    pub(in crate::earley) schemas: Vec<(EmbeddedSchema, RuleId, usize)>,
    /// Automata of words that end free text, each with a tag.
    pub(in crate::earley) dispatches: Vec<Arc<WordAutomaton>>,
    /// Texts whose tokens are counted, by language and number, with the rule and offset where they stand.
    pub(in crate::earley) budgets: Vec<(ExprId, u32, RuleId, usize)>,
    /// Terminals, where some of the grammar's are lazy.
    pub(in crate::earley) lexemes: Vec<Terminal>,
}

/// Tokens that are written in one way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedToken {
    /// All of them.
    pub(crate) ids: Vec<u32>,
    /// Those that are never text, stop tokens apart.
    pub(crate) control_ids: Vec<u32>,
    /// Those that end the text.
    pub(crate) stop_ids: Vec<u32>,
}

/// Why a grammar can't be lowered: the rule, the offset in its source, the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LowerError {
    pub(crate) rule: RuleId,
    pub(crate) offset: usize,
    pub(crate) message: String,
}
