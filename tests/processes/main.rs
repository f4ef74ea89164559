//! Both real processes, as users run them: one file per thing that a user relies on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod always_valid;
mod batch;
mod builtin_model;
mod engine_core_process;
mod grammars_in_the_core;
mod server;
mod shared_core;
mod structured_outputs;
mod support;
