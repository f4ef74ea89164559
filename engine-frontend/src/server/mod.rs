//! `formwork serve`: the OpenAI API over HTTP.
//!
//! What it is: routes, limits, keys, streams, metrics and the life of the process around
//! [`OpenAIServing`](crate::openai::OpenAIServing), which answers. What it is not: it knows no field
//! of a request but `stream`; those are in [`openai`](crate::openai).
//!
//! A request passes: the listener (`listener.rs`: sockets, TLS, headers; `connections.rs`: who may be
//! connected, and whom the server gives up; `client_stream.rs`, `early_refusal.rs`), the middleware
//! (`middleware.rs`: id, key, CORS, counts; `browser.rs`: web pages; `client.rs`: whose memory), a handler
//! (`handlers.rs`), which reads the body (`body.rs`, `parse.rs`), and where the answer is a stream
//! `sse.rs`. Whatever a client makes the server hold is a share of a budget (`memory.rs`).

mod api_keys;
mod args;
mod body;
mod browser;
mod client;
mod client_stream;
mod config;
mod connections;
mod early_refusal;
mod error;
mod handlers;
mod listener;
mod memory;
mod middleware;
mod openapi;
mod parse;
mod router;
mod run;
mod sse;
mod state;
mod tls;
mod traces;

pub use args::{LogFormat, ServeArgs, ServerArgs};
pub use config::{ConfigError, expand_args};
pub use error::ServeError;
pub use run::{Ready, serve};
pub use traces::OtlpTracesEndpoint;
