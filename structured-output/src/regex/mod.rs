//! Regular expressions: the syntax that Rust's `regex` and Python's `re` have in common, as layer 1
//! expressions.
//!
//! `parser` makes a flat syntax tree, `class` reads classes, `quantifier` repetitions; `ecma` is what
//! ECMA-262 writes otherwise, `python` what Python's `re` does, and `atomic` says which groups need not
//! be tried again;
//! `search` makes a pattern that is found anywhere one of the whole text, `translate` turns the
//! tree into an expression bottom-up over the characters' `spelling`, `assertion` resolves what
//! looks around (`^ $ \b`, look-ahead and look-behind) into intersections and complements, `local`
//! what is decided next to it, `repeat` what looks around in a repetition; `alternatives` keeps the
//! cases few that these are told apart into.

mod alternatives;
mod assertion;
mod atomic;
mod class;
mod ecma;
mod local;
mod parser;
mod python;
mod quantifier;
mod repeat;
mod search;
mod spelling;
mod syntax;
mod translate;

pub(crate) use class::ascii_in_any_case;
pub(crate) use ecma::Dialect;
pub(crate) use parser::parse;
pub use python::Note as RegexNote;
pub(crate) use python::notes;
pub(crate) use spelling::Spelling;
pub(crate) use syntax::{Ast, RegexError, RegexLimits};
pub(crate) use translate::Translator;
