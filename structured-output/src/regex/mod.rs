//! Regular expressions: the syntax that Rust's `regex` and Python's `re` have in common, as layer 1
//! expressions.
//!
//! `parser` makes a flat syntax tree, `class` reads classes, `translate` turns the tree into an
//! expression bottom-up, `assertion` resolves what looks around (`^ $ \b`, look-ahead and
//! look-behind) into intersections and complements.

mod assertion;
mod class;
mod parser;
mod syntax;
mod translate;

pub(crate) use parser::parse;
pub(crate) use syntax::{Ast, RegexError, RegexLimits};
pub(crate) use translate::Translator;
