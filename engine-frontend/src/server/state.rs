//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::api_keys::ApiKeys;
use super::args::{ServeArgs, ServerArgs};
use super::audit_log::AuditLog;
use super::browser::own_names;
use super::client::Means;
use super::connections::{Connections, Limits};
use crate::client_turns::ClientTurns;
use crate::data_parallel::DataParallelClient;
use crate::metrics::PrometheusStatLogger;
use crate::openai::OpenAIServing;

/// What all handlers share.
#[derive(Debug)]
pub(super) struct AppState {
    pub(super) serving: OpenAIServing,
    pub(super) cores: Arc<DataParallelClient>,
    pub(super) metrics: Arc<PrometheusStatLogger>,
    pub(super) args: ServerArgs,
    /// For requests that bring none of their own.
    pub(super) default_seed: Option<u64>,
    pub(super) keys: ApiKeys,
    pub(super) audit_log: Option<AuditLog>,
    /// Whether `/pause` stopped the engine, and `/resume` didn't come yet.
    pub(super) is_paused: AtomicBool,
    /// Unix time in seconds.
    pub(super) started: u64,
    pub(super) load: Load,
    pub(super) connections: Arc<Connections>,
    /// For clients that may use the whole server.
    pub(super) clients: Means,
    /// For clients without a key, where there are keys.
    pub(super) strangers: Means,
    /// One request of such a client begins at a time.
    pub(super) strangers_turns: ClientTurns,
    /// This machine's names.
    pub(super) own_names: Vec<String>,
    /// Whether the server ends: it finishes what it began, and takes no new work.
    pub(super) draining: AtomicBool,
}

impl AppState {
    pub(super) fn new(
        serving: OpenAIServing,
        cores: Arc<DataParallelClient>,
        metrics: Arc<PrometheusStatLogger>,
        args: &ServeArgs,
        keys: ApiKeys,
        audit_log: Option<AuditLog>,
    ) -> Self {
        let default_seed = args.engine.seed;
        let args = args.server.clone();
        let has_keys = keys.are_required();
        Self {
            keys,
            audit_log,
            is_paused: AtomicBool::new(false),
            started: unix_time(),
            load: Load::default(),
            connections: Connections::new(Limits::new(&args, has_keys)),
            clients: Means::for_clients(args.max_request_memory()),
            strangers: Means::for_strangers(),
            strangers_turns: ClientTurns::new(1, 1),
            own_names: own_names(),
            draining: AtomicBool::new(false),
            serving,
            cores,
            metrics,
            args,
            default_seed,
        }
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
