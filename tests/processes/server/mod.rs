//! `formwork serve`, over real sockets.

mod answers;
mod client;
mod command;
mod conformance;
mod errors;
mod faults;
mod fields;
mod python;
mod responses;
mod support;
