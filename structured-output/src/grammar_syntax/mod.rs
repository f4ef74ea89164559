//! Grammars as they are written: EBNF and GBNF, Lark, structural tags, in one syntax tree.
//!
//! | file | idea |
//! |---|---|
//! | `ast` | what all of them make: rules over text, tokens, JSON and each other |
//! | `cursor` | a place in a source |
//! | `ebnf` | EBNF as XGrammar reads it, GBNF as llama.cpp reads it |
//! | `ebnf_atom` | its strings, classes and tokens |
//! | `ebnf_macro` | XGrammar's macros |
//! | `lark` | Lark, with llguidance's extensions |
//! | `structural_tag` | structural tags, today's and older |
//! | `dispatch` | free text with triggers |
//! | `words` | lists of strings, and where these begin within each other |
//! | `piece_trie` | tags by what they begin with |
//! | `substring` | the parts of a text, as an automaton |

mod ast;
mod cursor;
mod dispatch;
mod ebnf;
mod ebnf_atom;
mod ebnf_macro;
mod lark;
mod piece_trie;
mod structural_tag;
mod substring;
mod words;

/// Whether a grammar is Lark rather than EBNF: no line has `::=`, comments apart. The empty grammar
/// counts as EBNF.
pub(crate) fn is_lark(source: &str) -> bool {
    let code = |line: &str| {
        let end = [line.find('#'), line.find("//")]
            .into_iter()
            .flatten()
            .min();
        line[..end.unwrap_or(line.len())].contains("::=")
    };
    !source.trim().is_empty() && !source.lines().any(code)
}

pub(crate) use ast::{
    Among, EmbeddedSchema, Grammar, Node, NodeId, NodeKind, RuleId, SchemaPlace, SyntaxError,
    SyntaxLimits, TokenSet,
};
pub(crate) use ebnf::parse as parse_ebnf;
pub(crate) use lark::{common_terminal, parse as parse_lark};
pub(crate) use structural_tag::{TagError, parse as parse_structural_tag};
pub(crate) use substring::Substrings;
pub(crate) use words::Words;
