//! MaskBench: schemas with valid and invalid instances, run through engines token by token.
//!
//! An engine compiles a schema, and for each token of an instance writes a mask as a dense row and
//! takes the token. Every call is timed by the same clock around the same code
//! ([`measure`](measure::measure)); what differs between engines stands behind [`MaskEngine`].

mod case;
mod engine;
mod formwork;
mod llguidance;
pub mod measure;
mod record;
mod report;

pub use case::{Case, Instance};
pub use engine::{EngineError, MaskEngine, MaskMatcher};
pub use formwork::{Formwork, FormworkOptions, IndexCosts};
pub use llguidance::{Llguidance, parser_factory};
pub use record::{Record, Timings, Verdict};
pub use report::{Run, report};
