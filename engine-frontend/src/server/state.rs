//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::api_keys::ApiKey;
use super::args::{ServeArgs, ServerArgs};
use super::browser::own_names;
use super::client::Means;
use super::connections::{Connections, Limits};
use crate::metrics::PrometheusStatLogger;
use crate::openai::OpenAIServing;
use crate::supervisor::SupervisedCore;

/// What all handlers share.
#[derive(Debug)]
pub(super) struct AppState {
    pub(super) serving: OpenAIServing,
    pub(super) core: Arc<SupervisedCore>,
    pub(super) metrics: Arc<PrometheusStatLogger>,
    pub(super) args: ServerArgs,
    /// For requests that bring none of their own.
    pub(super) default_seed: Option<u64>,
    /// Hashes of the keys, of equal length whatever the keys' are.
    pub(super) api_key_hashes: Vec<blake3::Hash>,
    /// Stands for any of the keys.
    pub(super) api_key: Arc<ApiKey>,
    /// Unix time in seconds.
    pub(super) started: u64,
    pub(super) load: Load,
    pub(super) connections: Arc<Connections>,
    /// For clients that may use the whole server.
    pub(super) clients: Means,
    /// For clients without a key, where there are keys.
    pub(super) strangers: Means,
    /// This machine's names.
    pub(super) own_names: Vec<String>,
    /// Whether the server ends: it finishes what it began, and takes no new work.
    pub(super) draining: AtomicBool,
}

impl AppState {
    pub(super) fn new(
        serving: OpenAIServing,
        core: Arc<SupervisedCore>,
        metrics: Arc<PrometheusStatLogger>,
        args: &ServeArgs,
    ) -> Self {
        let default_seed = args.engine.seed;
        let args = args.server.clone();
        let keys = args.api_key.iter();
        Self {
            api_key_hashes: keys.map(|key| blake3::hash(key.as_bytes())).collect(),
            api_key: Arc::new(ApiKey),
            started: unix_time(),
            load: Load::default(),
            connections: Connections::new(Limits {
                max: args.max_connections,
                max_per_address: args.max_connections_per_address(),
                has_keys: !args.api_key.is_empty(),
                max_head: args.h11_max_incomplete_event_size,
            }),
            clients: Means::for_clients(args.max_request_body_size),
            strangers: Means::for_strangers(),
            own_names: own_names(),
            draining: AtomicBool::new(false),
            serving,
            core,
            metrics,
            args,
            default_seed,
        }
    }

    /// True where clients have keys to show.
    pub(super) fn has_keys(&self) -> bool {
        !self.api_key_hashes.is_empty()
    }
}

/// Unix time in seconds.
pub(super) fn unix_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Requests in flight.
#[derive(Debug, Default, Clone)]
pub(super) struct Load(Arc<AtomicUsize>);

impl Load {
    /// One more, until the guard is dropped.
    pub(super) fn enter(&self) -> LoadGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        LoadGuard(self.clone())
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// See [`Load::enter`].
#[derive(Debug)]
pub(super) struct LoadGuard(Load);

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
