//! A core that is replaced when it dies or hangs, and nobody notices but those who look.
//!
//! [`SupervisedCore`] stands where a plain [`EngineCoreClient`] would. It keeps every request in
//! flight with the tokens that have come, starts another core when the first is gone, and sends
//! them again with these tokens: the core goes on behind them, and since its noise is a function of
//! seed and position, the answers are those of an undisturbed run. What was in flight comes back in
//! quarantine ([`in_flight`]), so that a request that kills cores is found and fails alone.

mod in_flight;
mod moves;
mod processor;
mod restart;
mod shutdown;
mod source;
mod utility;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use protocol::{EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest, KVCacheEvent};
use tokio::task::AbortHandle;

use crate::async_llm::{BoxFuture, CoreClient};
use crate::engine_core_client::{
    CoreEvent, EngineCoreClient, EngineCoreClientError, EngineDeadError, Frame,
};
use crate::kv_events::{KVEventPublisher, KVEventStats};
use in_flight::InFlight;
pub(crate) use in_flight::MovedRequest;
pub use source::CoreSource;
pub(crate) use source::difference;
use watch::watch;

/// What a supervisor does when its core is gone or silent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SupervisorOptions {
    /// Attempts in a row that may bring no token before it gives up; 0 gives up at once.
    pub max_restarts: u32,
    /// A core that has work and shows no sign of life for this long is unhealthy; after twice
    /// that, without what it waited for a processor, it is replaced.
    pub health_stall: Duration,
    /// Whether other cores serve on meanwhile: then it is replaced as soon as it is unhealthy, since they go on with
    /// what it has.
    pub has_siblings: bool,
}

impl Default for SupervisorOptions {
    /// A server's: 5 restarts, 30 seconds.
    fn default() -> Self {
        Self {
            max_restarts: 5,
            health_stall: Duration::from_secs(30),
            has_siblings: false,
        }
    }
}

/// How a core is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreHealth {
    /// It works, or has nothing to do.
    Healthy,
    /// It is paused: requests wait until it is resumed.
    Paused,
    /// It has work and shows no sign of life.
    Stalled,
    /// It is gone, and another one starts.
    Restarting,
    /// It is gone for good.
    Dead,
}

/// See the [module](self).
#[derive(Debug)]
pub struct SupervisedCore {
    source: CoreSource,
    options: SupervisorOptions,
    ready: EngineCoreReadyResponse,
    state: Mutex<State>,
    num_restarts: AtomicU64,
    on_event: OnceLock<Box<dyn OnEvent>>,
    kv_events: OnceLock<KVEventPublisher>,
    watcher: OnceLock<AbortHandle>,
}

/// What hears of events.
trait OnEvent: Fn(CoreEvent) + Send + Sync {}

impl<F: Fn(CoreEvent) + Send + Sync> OnEvent for F {}

impl std::fmt::Debug for dyn OnEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnEvent")
    }
}

#[derive(Debug)]
struct State {
    /// `None` while there is none.
    client: Option<Arc<EngineCoreClient>>,
    in_flight: InFlight,
    health: CoreHealth,
    /// Whether it has shown no sign of life for a moment, though it has work.
    is_silent: bool,
    /// The mode in which it is paused, or the next one is to be.
    pause_mode: Option<&'static str>,
    /// Requests that were aborted while there was no core, to be told with the next one.
    aborted: Vec<String>,
    /// Why the supervisor killed the core, where it did.
    killed_because: Option<String>,
    /// Why it is [`CoreHealth::Dead`], where it was not told to end.
    gone: Option<EngineDeadError>,
    /// Until when another core may take the place of one that dies, once all is to end.
    end: Option<Instant>,
    /// Attempts in a row that brought no token.
    attempts: u32,
}

impl SupervisedCore {
    /// Supervises a core that is ready; others come from `source`. Call it within a tokio runtime.
    pub fn new(
        client: EngineCoreClient,
        source: CoreSource,
        options: SupervisorOptions,
    ) -> Arc<Self> {
        let core = Arc::new(Self {
            source,
            options,
            ready: client.ready_response().clone(),
            state: Mutex::new(State {
                client: Some(Arc::new(client)),
                in_flight: InFlight::default(),
                health: CoreHealth::Healthy,
                is_silent: false,
                pause_mode: None,
                aborted: Vec::new(),
                killed_because: None,
                gone: None,
                end: None,
                attempts: 0,
            }),
            num_restarts: AtomicU64::new(0),
            on_event: OnceLock::new(),
            kv_events: OnceLock::new(),
            watcher: OnceLock::new(),
        });
        let watcher = tokio::spawn(watch(Arc::downgrade(&core)));
        core.watcher.get_or_init(|| watcher.abort_handle());
        core
    }

    /// What the first core said when it was ready.
    pub fn ready_response(&self) -> &EngineCoreReadyResponse {
        &self.ready
    }

    /// How the core is now.
    pub fn health(&self) -> CoreHealth {
        self.state().health
    }

    /// Cores started in the place of one that was gone.
    pub fn num_restarts(&self) -> u64 {
        self.num_restarts.load(Ordering::Relaxed)
    }

    /// Lets `hear` know of deaths and restarts, as they happen. Later calls have no effect.
    pub fn on_event(&self, hear: impl Fn(CoreEvent) + Send + Sync + 'static) {
        self.on_event.get_or_init(|| Box::new(hear));
    }

    /// Publishes what changes in the core's prefix cache, and that all is gone when the core is. Later calls have no
    /// effect.
    pub fn publish_kv_events(&self, publisher: KVEventPublisher) {
        self.kv_events.get_or_init(|| publisher);
    }

    /// What became of the KV events, where they are published.
    pub fn kv_event_stats(&self) -> Option<KVEventStats> {
        self.kv_events.get().map(KVEventPublisher::stats)
    }

    fn publish(&self, events: &[KVCacheEvent]) {
        if let Some(publisher) = self.kv_events.get() {
            publisher.publish(events);
        }
    }

    fn tell(&self, event: CoreEvent) {
        if let Some(hear) = self.on_event.get() {
            hear(event);
        }
    }

    /// The core's process, where there is one now and this frontend started it.
    pub fn process_id(&self) -> Option<u32> {
        self.state().client.as_ref().and_then(|c| c.process_id())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The books are consistent between any two calls into them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Option<Arc<EngineCoreClient>> {
        self.state().client.clone()
    }
}

impl Drop for SupervisedCore {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.abort();
        }
    }
}

impl State {
    /// Whether all is to end now.
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Notes that there will be no other core.
    fn give_up(&mut self, dead: EngineDeadError) -> EngineDeadError {
        self.health = CoreHealth::Dead;
        self.gone.insert(dead).clone()
    }

    /// Why there is no core and will be none.
    fn why_gone(&self) -> EngineDeadError {
        self.gone.clone().unwrap_or_else(|| EngineDeadError {
            reason: "it is gone".to_owned(),
            exit_status: None,
        })
    }

    /// Sends what may go now. A request that can't be sent any more fails when the core's end is
    /// noticed.
    fn send_next(&mut self) {
        let Some(client) = &self.client else { return };
        let next = self.in_flight.next_to_send(Instant::now());
        if !next.is_empty() {
            let _ = CoreClient::add_requests(&**client, next);
        }
    }

    /// Takes new requests into the books, and sends them if this is the core that their frames are for. Else
    /// they wait for the next one.
    fn add(
        &mut self,
        requests: Vec<EngineCoreRequest>,
        frames: Option<(Arc<EngineCoreClient>, Vec<Frame>)>,
    ) -> Result<(), EngineCoreClientError> {
        if self.health == CoreHealth::Dead {
            return Err(EngineCoreClientError::EngineDead(self.why_gone()));
        }
        let to_send = frames.filter(|(client, _)| {
            let is_same = |current: &Arc<EngineCoreClient>| Arc::ptr_eq(current, client);
            self.in_flight.is_open() && self.client.as_ref().is_some_and(is_same)
        });
        let is_sent = to_send.is_some();
        if let Some((client, frames)) = to_send {
            for frame in frames {
                // A core that is just gone: the requests wait for the next one.
                let _ = client.send_frame(frame);
            }
        }
        for request in requests {
            self.in_flight.add(request, is_sent);
        }
        if !is_sent {
            self.send_next();
        }
        Ok(())
    }
}

impl CoreClient for SupervisedCore {
    fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        self.add_requests(vec![request])
    }

    fn add_requests(&self, requests: Vec<EngineCoreRequest>) -> Result<(), EngineCoreClientError> {
        // Encoded without the lock, which every output needs. First: a request that doesn't fit a frame is its
        // caller's error and no more.
        let frames = match self.client() {
            Some(client) => {
                let frames = client.encode(requests.clone())?;
                Some((client, frames))
            }
            None => None,
        };
        self.state().add(requests, frames)
    }

    fn abort_requests(&self, request_ids: Vec<String>) -> Result<(), EngineCoreClientError> {
        let mut state = self.state();
        let sent = state.in_flight.abort(request_ids);
        if let Some(client) = state.client.as_ref().filter(|_| !sent.is_empty()) {
            // A core that is gone works on nothing.
            let _ = client.abort_requests(sent);
        }
        state.send_next();
        Ok(())
    }

    fn get_output(&self) -> BoxFuture<'_, Result<Option<EngineCoreOutputs>, EngineDeadError>> {
        Box::pin(async move {
            loop {
                let received = match self.client() {
                    Some(client) => client.get_output().await,
                    // It was given up.
                    None => return Err(self.state().why_gone()),
                };
                match received {
                    Ok(Some(mut step)) => {
                        self.publish(&std::mem::take(&mut step.kv_cache_events));
                        let mut state = self.state();
                        if state.in_flight.note(&mut step) {
                            state.attempts = 0;
                        }
                        state.send_next();
                        return Ok(Some(step));
                    }
                    Ok(None) => {
                        self.state().health = CoreHealth::Dead;
                        return Ok(None);
                    }
                    Err(dead) => {
                        let outputs = self.replace(dead).await?;
                        if !outputs.outputs.is_empty() {
                            return Ok(Some(outputs));
                        }
                    }
                }
            }
        })
    }

    fn shutdown(&self, drain_seconds: f64) -> BoxFuture<'_, Result<(), EngineDeadError>> {
        Box::pin(self.end_within(drain_seconds))
    }
}
