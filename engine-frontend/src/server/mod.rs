//! `formwork serve`: the OpenAI API and Anthropic's Messages API over HTTP.
//!
//! What it is: routes, limits, keys, streams, metrics and the life of the process around
//! [`OpenAIServing`](crate::openai::OpenAIServing), which answers. What it is not: it knows no field
//! of a request but `stream`; those are in [`openai`](crate::openai).
//!
//! A request passes: the listener (`listener.rs`: sockets, TLS, headers; `connections.rs`: who may be
//! connected, and whom the server gives up; `client_stream.rs`, `early_refusal.rs`), the middleware
//! (`middleware.rs`: id, CORS, counts; `browser.rs`: web pages; `authenticate.rs`: the key of `api_keys.rs`,
//! turns of requests without one, and a key's limits; `client.rs`: whose memory), a handler (`handlers.rs`), which reads the body (`body.rs`,
//! `parse.rs`), and where the answer is a stream `sse.rs`. `anthropic.rs` has the
//! handlers of the Messages API, and gives errors on its routes that API's shape; `decisions.rs` has those of decisions, `pooling.rs` those of embeddings and scores. Whatever a client makes the server hold is a
//! share of a budget (`memory.rs`). `management.rs` is for whoever runs the server.

mod access_args;
mod anthropic;
mod api_keys;
mod args;
mod audit_log;
mod authenticate;
mod body;
mod browser;
mod client;
mod client_stream;
mod config;
mod confinement;
mod connections;
mod decisions;
mod docs_page;
mod early_refusal;
mod error;
mod handlers;
mod held_json;
mod listener;
mod management;
mod memory;
mod middleware;
mod openapi;
mod parse;
mod pooling;
mod rate_limit;
mod request_end;
mod request_record;
mod router;
mod run;
mod sse;
mod state;
mod tls;
mod traces;
mod ui_files;

pub use access_args::AccessArgs;
pub use api_keys::{ApiKeyEntry, ApiKeysError, Scope};
pub use args::{LogFormat, ServeArgs, ServerArgs};
pub use config::{ConfigError, expand_args};
pub use confinement::confine;
pub use error::ServeError;
pub use run::{Ready, serve};
pub use traces::OtlpTracesEndpoint;
