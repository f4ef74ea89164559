//! `formwork serve`: the OpenAI API over HTTP.
//!
//! What it is: routes, limits, keys, streams, metrics and the life of the process around
//! [`OpenAIServing`](crate::openai::OpenAIServing), which answers. What it is not: it knows no field
//! of a request but `stream`; those are in [`openai`](crate::openai).
//!
//! A request passes: the listener (`listener.rs`: connections, TLS, headers, slow
//! clients, `early_refusal.rs`), the
//! middleware (`middleware.rs`: id, key, CORS, counts), a handler (`handlers.rs`), which reads the
//! body (`body.rs`), and where the answer is a stream `sse.rs`.

mod args;
mod body;
mod config;
mod confinement;
mod early_refusal;
mod error;
mod handlers;
mod listener;
mod middleware;
mod openapi;
mod router;
mod run;
mod slow_client;
mod sse;
mod state;
mod tls;
mod traces;

pub use args::{LogFormat, ServeArgs, ServerArgs};
pub use config::{ConfigError, expand_args};
pub use confinement::confine;
pub use error::ServeError;
pub use run::{Ready, serve};
pub use traces::OtlpTracesEndpoint;
