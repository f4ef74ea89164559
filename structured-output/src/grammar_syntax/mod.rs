//! Grammars as they are written: EBNF and GBNF, Lark, structural tags, in one syntax tree.
//!
//! | file | idea |
//! |---|---|
//! | `ast` | what all of them make: rules over text, tokens, JSON and each other |
//! | `cursor` | a place in a source |
//! | `ebnf` | EBNF as XGrammar reads it, GBNF as llama.cpp reads it |
//! | `ebnf_macro` | XGrammar's macros |
//! | `lark` | Lark, with llguidance's extensions |
//! | `dispatch` | free text with triggers |

mod ast;
mod cursor;
mod dispatch;
mod ebnf;
mod ebnf_macro;
mod lark;

pub(crate) use ast::{
    Grammar, Node, NodeId, NodeKind, RuleId, SyntaxError, SyntaxLimits, TokenSet,
};
pub(crate) use ebnf::parse as parse_ebnf;
pub(crate) use lark::parse as parse_lark;
