//! placeholder, written in the next commits.

pub mod detokenizer;
