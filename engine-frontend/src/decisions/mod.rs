//! Decisions: questions with fixed answers, told by probabilities. Nothing is generated.
//!
//! A question is a prompt and the [options](question::QuestionOption) that may continue it. Their tokens make a
//! [trie](option_trie), and the core is asked for the probabilities where it branches: what sampling would draw
//! whose mask allows the options alone. [`openai`] and [`systemone`] are the APIs by which questions come.

mod input;
mod openai;
mod option_trie;
mod question;
mod response;
mod serving;
mod systemone;

pub use question::Questions;
pub use response::{DecisionApi, DecisionResponse};
pub use serving::{Decided, PreparedDecision};

/// OpenAI's Decisions API: `/v1/decisions`.
pub const OPENAI: DecisionApi = DecisionApi {
    read: openai::read,
    tell_answer: openai::tell_answer,
    answers_by_name: false,
    usage: openai::usage,
};

/// TypeSafe's System One API: `/v1/systemone`.
pub const SYSTEM_ONE: DecisionApi = DecisionApi {
    read: systemone::read,
    tell_answer: systemone::tell_answer,
    answers_by_name: true,
    usage: systemone::usage,
};
