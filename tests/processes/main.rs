//! Both real processes, as users run them: one file per thing that a user relies on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod always_valid;
mod batch;
mod builtin_model;
#[path = "../../gguf/tests/writer/model.rs"]
mod converter;
mod docs;
mod engine_core_process;
// The tests of the crate itself use the rest of it.
#[allow(dead_code)]
#[path = "../../hub/tests/fake_hub/mod.rs"]
mod fake_hub;
mod gguf_files;
mod grammars_in_the_core;
mod hostile_constraints;
mod hub;
#[path = "../../engine-core/tests/quantized_checkpoint/mod.rs"]
mod quantized_checkpoint;
mod quantized_checkpoints;
mod server;
mod shared_core;
mod structured_outputs;
mod support;
#[path = "../../gguf/tests/writer/mod.rs"]
mod writer;
