//! Each kernel against a plain reference in f64, in three orders of the simulator's threads, and each row alone against
//! the same row in a batch, bit for bit.
//!
//! With `CUDA_DEVICE_TESTS=1` and a GPU the same tests run on that instead, with `CUDA_DEVICE_OVERLAP=1` too with
//! overlapping launches. The test's executable can be carried to a machine with a GPU: it needs NVRTC there.

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
