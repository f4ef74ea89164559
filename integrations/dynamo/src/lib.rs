//! Formwork as an engine of NVIDIA Dynamo: [`FormworkEngine`] implements Dynamo's trait `LLMEngine` over the crate
//! `engine-frontend`, the client of the engine core that `formwork serve` and `formwork-batch` have. Tokens in,
//! tokens out: Dynamo's frontend renders chat templates, tokenizes and detokenizes.
//!
//! What it is not: no HTTP, no tokenizer and no scheduler. What a request asks for and this engine can't do is
//! refused by the field's name ([`request`]).

pub mod args;
pub mod engine;
pub mod error;
pub mod metrics;
pub mod output;
pub mod request;

pub use args::Args;
pub use engine::FormworkEngine;
