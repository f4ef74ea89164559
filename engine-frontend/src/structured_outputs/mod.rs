//! Constraints on the output, on the frontend's side: what requests and flags may say, whether a
//! constraint can be enforced, where the model's thinking ends.
//!
//! What it is not: the compiler for the model's vocabulary, the masks and the state of a grammar
//! are the core's.

mod args;
mod backend;
mod check;
mod check_thread;
mod known_constraints;
mod nested_schemas;
mod reasoning;
mod report;
mod schema_keywords;
mod tag_format;

pub use args::{ReasoningParser, StructuredOutputsArgs};
pub use backend::BackendOptions;
pub(crate) use check::{ConstraintChecker, refused};
pub(crate) use check_thread::CheckThread;
pub use nested_schemas::{visit_lark_schemas, visit_tag_schemas};
pub use reasoning::{AnswerKind, Reasoning, ThinkingMarkers};
pub use report::{ConstraintKeywords, TextFit, shortest_text};
pub(crate) use report::{ConstraintReport, ReportError, report};
pub use schema_keywords::{
    FORMATS, KeywordEffect, KeywordPlace, SchemaWarning, schema_warnings, visit_keywords,
};
pub(crate) use tag_format::{PLACE_BEHIND_THINKING, behind_thinking, tag_format};
