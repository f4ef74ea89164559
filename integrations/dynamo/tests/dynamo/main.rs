//! Formwork behind Dynamo, with the real engine core and the built-in model: Dynamo's conformance kit, and workers that
//! are reached over Dynamo's request plane and through its HTTP frontend. `FORMWORK_BIN` names the folder with
//! `formwork-engine-core` and `formwork-batch`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod engine;
mod frontend;
mod support;
mod worker;
