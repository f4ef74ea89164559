//! Both real processes, as users run them: one file per thing that a user relies on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod batch;
mod builtin_model;
mod engine_core_process;
mod server;
mod shared_core;
mod support;
