//! Speculative decoding: tokens that are guessed, and verified many in one pass.

mod ngram_proposer;

pub use ngram_proposer::{NgramProposer, SpeculativeConfigError};
