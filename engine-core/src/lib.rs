//! placeholder, written in the next commits.

pub mod core;
pub mod request;
pub mod sample;
