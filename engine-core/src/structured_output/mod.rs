//! Structured output inside the engine: which constraint a request has, compiled aside, and its masks.
//!
//! The input thread submits a request's constraint to the [`StructuredOutputManager`], whose threads
//! compile it by a [`StructuredOutputBackend`]. The scheduler keeps the request apart until its
//! [`StructuredOutputRequest`] arrives, which owns the grammar's state from then on, and is asked
//! for masks while the forward pass runs and told of every token.

mod aside;
mod backend;
mod backend_formwork;
mod compile_job;
mod compile_pool;
mod compile_queue;
mod compiler;
mod constraint;
mod drafts;
mod grammar_end;
mod jump_forward;
mod manager;
mod mask;
mod min_tokens;
mod other_programs;
mod priority;
mod reasoning;
mod refusal;
mod repetition;
mod request;
mod same_constraints;
mod stage;
#[cfg(test)]
pub(crate) mod testing;
mod text_encoder;
mod turn;

pub(crate) use aside::{Aside, Question};
pub use backend::{CompileGrammarError, StructuredOutputBackend, StructuredOutputGrammar};
pub use backend_formwork::{CacheTooSmall, FormworkBackend};
pub use compile_job::CompiledGrammar;
pub(crate) use constraint::NamedConstraint;
pub use jump_forward::ForcedTokens;
pub(crate) use manager::GrammarRequest;
pub use manager::{PendingGrammar, StructuredOutputManager};
pub use mask::TokenMask;
pub use request::{Accepted, StructuredOutputRequest};
