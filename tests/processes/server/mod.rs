//! `formwork serve`, over real sockets, and the commands that speak with it.

mod access;
mod answers;
mod bench;
mod chat;
mod client;
pub(crate) mod clients;
mod command;
mod confinement;
mod conformance;
mod constraint_check;
mod decisions;
mod deployment;
mod errors;
mod faults;
mod fields;
mod first_steps;
mod habits;
mod isolation;
mod logs;
mod messages;
mod page;
mod responses;
mod security;
pub(crate) mod support;
mod tool_strictness;
mod tools;
mod trace;
