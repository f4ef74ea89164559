//! Context-free grammars: an Earley parser over automata of rules, with interned states.
//!
//! | file | idea |
//! |---|---|
//! | `lower` | regular parts of a grammar become languages of layer 1 |
//! | `languages` | shortest texts, substrings, free text |
//! | `lazy` | terminals that end as soon as they can, and what that means for others |
//! | `graph` | an automaton per rule |
//! | `absorb` | places from which all that a grammar is made of can be read |
//! | `repeated` | which languages are worth a look for such places |
//! | `length` | what can be completed, and in how little |
//! | `simplify` | no epsilons, small |
//! | `subsets` | deterministic where that is cheap |
//! | `left_recursion` | rules that begin with themselves, rewritten |
//! | `inline` | rules that become parts of others |
//! | `order` | strongly connected components |
//! | `compile` | these steps in a row |
//! | `program` | what comes out: nodes with lexemes and calls |
//! | `context` | what follows a rule, interned |
//! | `token_set` | sets of tokens as runs of ids |
//! | `tokens` | sets of tokens that are put together |
//! | `parser` | states, and how they step |
//! | `canonical` | contexts and states in one form |
//! | `union` | unions of contexts |
//! | `narrow` | one way to read an ambiguous text in place of all |
//! | `enter` | what is read first in a context |
//! | `anywhere` | what may follow a place, whatever its context |
//! | `completion` | how far the end is, and the way there |
//! | `language_mask` | what tokens a language allows by itself |
//! | `memo` | what is known of items, under what it depends on |

mod absorb;
mod anywhere;
mod canonical;
mod compile;
mod completion;
mod context;
mod enter;
mod free_text_mask;
mod graph;
mod inline;
mod language_mask;
mod languages;
mod lazy;
mod left_recursion;
mod length;
mod lower;
mod memo;
mod narrow;
mod order;
mod parser;
mod program;
mod reads;
mod repeated;
mod simplify;
mod subsets;
#[cfg(test)]
mod tests;
mod to_tags;
mod token_set;
mod tokens;
mod union;

pub(crate) use anywhere::Follower;
pub(crate) use compile::{Compilation, Lowered};
pub(crate) use completion::Symbol;
pub(crate) use context::{ContextId, Return};
pub(crate) use free_text_mask::{FreeTextWalked, walk_free_text};
pub(crate) use language_mask::{
    End, LanguageMask, Leave, NUM_KNOWN, Places, Rests, UNKNOWN_REST, Walked, Walks,
    walk as walk_language,
};
pub(crate) use lazy::LazyError;
pub(crate) use lower::{LowerError, NamedToken, no_token};
pub(crate) use memo::ContextMemo;
pub(crate) use parser::{Item, Parser, StateId, read_to_tag};
pub(crate) use program::{Lexeme, NodeId};
pub(crate) use reads::FAR;
pub(crate) use token_set::TokenRuns;
pub(crate) use tokens::{TokenUnion, Tokens};
