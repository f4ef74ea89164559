//! KV events: what changes in each core's prefix cache, published as vLLM publishes it (`--kv-events-config`).
//!
//! A core puts the changes of a step beside its outputs. This process publishes them, and no core listens or
//! connects anywhere: cores are confined, and here the sequence goes on when one dies. [`SupervisedCore`] hands
//! each step's events to its [`KVEventPublisher`] before it hands on the step, so who has an answer finds what it
//! left in the cache among the events that can be replayed.
//!
//! | file | what it is |
//! |---|---|
//! | `config.rs` | the flag's fields |
//! | `endpoint.rs` | where ZeroMQ's sockets are |
//! | `payload.rs` | a batch of events as MessagePack |
//! | `event_log.rs` | the batches that subscribers have yet to get, or may ask for again |
//! | `zmtp.rs` | ZeroMQ's wire protocol, as much as PUB and ROUTER need |
//! | `sockets.rs` | both sockets and their connections |
//!
//! ZeroMQ's protocol is our own file and no library: libzmq is C, and the crate `zeromq` (0.7) has a fixed queue of
//! 100,000 messages for each subscriber, counts none that it drops, and makes room for whatever length a peer's frame
//! claims, by which a stranger ends the process.
//!
//! [`SupervisedCore`]: crate::supervisor::SupervisedCore

mod config;
mod endpoint;
mod event_log;
mod payload;
mod publisher;
mod sockets;
mod zmtp;

pub use config::KVEventsConfig;
pub use endpoint::Endpoint;
pub use publisher::{KVEventPublisher, KVEventStats, KVEventsError};
