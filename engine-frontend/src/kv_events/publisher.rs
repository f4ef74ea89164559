//! What publishes one core's events.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use protocol::KVCacheEvent;
use tokio::task::JoinSet;

use super::config::KVEventsConfig;
use super::endpoint::Endpoint;
use super::event_log::EventLog;
use super::payload::encode_batch;
use super::sockets::{Service, Socket};
use super::zmtp::SocketType;
use crate::error::listen_problem;

/// An address for events that can't be had.
#[derive(Debug, thiserror::Error)]
#[error(
    "--kv-events-config: can't listen at {endpoint} ({field}, engine core {rank}): {}", listen_problem(.error)
)]
pub struct KVEventsError {
    field: &'static str,
    endpoint: Endpoint,
    rank: u32,
    error: io::Error,
}

/// Publishes one core's events; ends its sockets when dropped.
#[derive(Debug)]
pub struct KVEventPublisher {
    log: Arc<EventLog>,
    rank: u32,
    _sockets: JoinSet<()>,
}

/// What became of a core's events.
#[derive(Debug, Clone)]
pub struct KVEventStats(Arc<EventLog>);

impl KVEventStats {
    /// Batches published: the sequence number of the next.
    pub fn num_published(&self) -> u64 {
        self.0.next()
    }

    /// Batches that subscribers were too slow for, of all subscribers together.
    pub fn num_dropped(&self) -> u64 {
        self.0.num_dropped()
    }
}

impl KVEventPublisher {
    /// Takes the addresses of core `rank`. Call it within a tokio runtime.
    ///
    /// # Errors
    /// An address that can't be had.
    pub(crate) async fn start(config: &KVEventsConfig, rank: u32) -> Result<Self, KVEventsError> {
        let has_replays = config.replay_endpoint.is_some();
        let buffer_steps = if has_replays { config.buffer_steps } else { 0 };
        let log = Arc::new(EventLog::new(config.max_waiting, buffer_steps));
        let topic: Arc<[u8]> = config.topic.as_bytes().into();
        let mut sockets = JoinSet::new();
        let all = [
            ("endpoint", SocketType::Pub, Some(&config.endpoint)),
            (
                "replay_endpoint",
                SocketType::Router,
                config.replay_endpoint.as_ref(),
            ),
        ];
        for (field, kind, endpoint) in all {
            let Some(endpoint) = endpoint else { continue };
            let endpoint = endpoint.of_rank(rank);
            let socket = Socket::bind(&endpoint)
                .await
                .map_err(|error| KVEventsError {
                    field,
                    endpoint: endpoint.clone(),
                    rank,
                    error,
                })?;
            tracing::info!(engine = rank, "KV events: {field} {endpoint}");
            sockets.spawn(socket.run(Service {
                kind,
                log: log.clone(),
                topic: topic.clone(),
            }));
        }
        Ok(Self {
            log,
            rank,
            _sockets: sockets,
        })
    }

    /// Publishes a step's events as one batch; nothing where there are none. Waits for no subscriber.
    pub(crate) fn publish(&self, events: &[KVCacheEvent]) {
        if events.is_empty() {
            return;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let ts = now.map_or(0.0, |since| since.as_secs_f64());
        self.log.publish(encode_batch(ts, events, self.rank).into());
    }

    /// What became of the events, for as long as anybody asks.
    pub fn stats(&self) -> KVEventStats {
        KVEventStats(self.log.clone())
    }
}
