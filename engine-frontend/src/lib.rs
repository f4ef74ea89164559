//! placeholder, written in the next commits.

pub mod engine_core_client;
