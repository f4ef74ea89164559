//! `formwork serve`, over real sockets, and the commands that speak with it.

mod answers;
mod bench;
mod chat;
mod client;
mod clients;
mod command;
mod deployment;
mod errors;
mod faults;
mod support;
