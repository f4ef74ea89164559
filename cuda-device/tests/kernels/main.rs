//! Each kernel against a plain reference in f64, in three orders of the simulator's threads, and each row alone against
//! the same row in a batch, bit for bit.
//!
//! With `CUDA_DEVICE_TESTS=1` and a GPU the same tests run on that instead.

#![allow(clippy::unwrap_used)]

mod attention;
mod errors;
mod experts;
mod graph;
mod head;
mod linear;
mod norm;
mod races;
mod rotary;
mod rows;
mod support;
