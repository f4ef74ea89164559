//! Several cores on one machine that serve one model behind one frontend: `--data-parallel-size`.
//!
//! [`DataParallelClient`] implements [`CoreClient`] over N supervised cores, as vLLM's `DPLBAsyncMPClient` does
//! over N engines. A request goes to the core that likely has its prefix in the cache, else to the one with the
//! fewest requests ([`router`]). Requests of a core that dies go to the others at once, with the tokens that have
//! come. Noise is a function of seed and position, so an answer is the same whichever core gives it.

mod router;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use protocol::{EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::async_llm::{BoxFuture, CoreClient};
use crate::engine_core_client::CoreEvent;
use crate::engine_core_client::{EngineCoreClientError, EngineDeadError};
use crate::supervisor::{CoreHealth, SupervisedCore};
use router::Router;

/// Steps of all cores that may wait for [`DataParallelClient::get_output`]. Each core's client holds more of its own.
const MAX_WAITING_OUTPUTS: usize = 1;

/// See the [module](self).
#[derive(Debug)]
pub struct DataParallelClient {
    cores: Vec<Arc<SupervisedCore>>,
    /// See [`Self::ready_response`].
    ready: EngineCoreReadyResponse,
    /// Held while requests change cores, so that no abort passes one on its way.
    router: Mutex<Router>,
    /// The outputs of several cores; one is asked itself.
    merged: Option<Merged>,
    on_event: OnceLock<Box<dyn OnEvent>>,
}

/// The outputs of several cores as one stream.
#[derive(Debug)]
struct Merged {
    outputs: tokio::sync::Mutex<mpsc::Receiver<Result<EngineCoreOutputs, EngineDeadError>>>,
    /// One for each core.
    tasks: Vec<AbortHandle>,
}

/// What hears of a core's events, by its number.
trait OnEvent: Fn(u32, CoreEvent) + Send + Sync {}

impl<F: Fn(u32, CoreEvent) + Send + Sync> OnEvent for F {}

impl std::fmt::Debug for dyn OnEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnEvent")
    }
}

impl DataParallelClient {
    /// Joins cores that serve the same model; `first` is number 0. Takes their [`SupervisedCore::on_event`]. Call it
    /// within a tokio runtime.
    pub fn new(first: Arc<SupervisedCore>, others: Vec<Arc<SupervisedCore>>) -> Arc<Self> {
        let mut ready = first.ready_response().clone();
        for core in &others {
            add_to(&mut ready, core.ready_response());
        }
        let cores: Vec<_> = std::iter::once(first).chain(others).collect();
        let num_blocks = cores.iter().map(|core| core.ready_response().num_blocks);
        let client = Arc::new(Self {
            router: Mutex::new(Router::new(ready.block_size, num_blocks)),
            merged: (cores.len() > 1).then(|| Merged::start(&cores)),
            on_event: OnceLock::new(),
            ready,
            cores,
        });
        for (index, core) in client.cores.iter().enumerate() {
            let client = Arc::downgrade(&client);
            core.on_event(move |event| hear(&client, index, event));
        }
        client
    }

    /// What the cores are together: the sum of what they have and of how many requests they take. What belongs to one
    /// step or sequence is the first's.
    pub fn ready_response(&self) -> &EngineCoreReadyResponse {
        &self.ready
    }

    /// The cores, by their numbers; at least one.
    pub fn cores(&self) -> &[Arc<SupervisedCore>] {
        &self.cores
    }

    /// The engine's health: paused if any core is, else healthy as long as one works, whatever becomes of the others.
    pub fn health(&self) -> CoreHealth {
        let all: Vec<CoreHealth> = self.cores.iter().map(|core| core.health()).collect();
        let order = [
            CoreHealth::Paused,
            CoreHealth::Healthy,
            CoreHealth::Stalled,
            CoreHealth::Restarting,
        ];
        let first = order.into_iter().find(|health| all.contains(health));
        first.unwrap_or(CoreHealth::Dead)
    }

    /// How many cores are gone for good.
    pub fn num_gone(&self) -> usize {
        let cores = self.cores.iter();
        cores
            .filter(|core| core.health() == CoreHealth::Dead)
            .count()
    }

    /// Lets `hear` know of what happens to each core, by its number. Later calls have no effect.
    pub fn on_event(&self, hear: impl Fn(u32, CoreEvent) + Send + Sync + 'static) {
        self.on_event.get_or_init(|| Box::new(hear));
    }

    /// The cores that aren't gone for good, with their numbers; all where none is left.
    fn remaining(&self) -> impl Iterator<Item = (usize, Arc<SupervisedCore>)> {
        let is_any_left = self.num_gone() < self.cores.len();
        let cores = self.cores.iter().cloned().enumerate();
        cores.filter(move |(_, core)| !is_any_left || core.health() != CoreHealth::Dead)
    }

    /// Calls a method of each core that isn't gone for good, of all at the same time; the answers are in their order.
    ///
    /// # Errors
    /// That of the first core that doesn't know the method, fails at it or is gone. The others did as told.
    pub async fn call_utility(
        &self,
        method: &'static str,
        args: &[Value],
    ) -> Result<Vec<Value>, EngineCoreClientError> {
        {
            // Of all before any is called, and while no requests are on their way between two.
            let _router = self.router();
            for (_, core) in self.remaining() {
                core.note_pause(method, args);
            }
        }
        let mut calls = JoinSet::new();
        for (index, core) in self.remaining() {
            let args = args.to_vec();
            calls.spawn(async move { (index, core.call_utility(method, &args).await) });
        }
        let mut answers = calls.join_all().await;
        answers.sort_by_key(|(index, _)| *index);
        if method == "reset_prefix_cache" {
            let mut router = self.router();
            (0..self.cores.len()).for_each(|core| router.forget(core));
        }
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn router(&self) -> MutexGuard<'_, Router> {
        // What it remembers is a guess, whatever happened.
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cores' numbers of requests, `None` of those that take none now. One that says nothing takes none where
    /// others do: with its requests gone it would have the fewest, and get all that come one by one.
    fn loads(&self) -> Vec<Option<usize>> {
        let load = |core: &Arc<SupervisedCore>, is_any: bool| {
            let takes = core.takes_requests() && (is_any || !core.is_silent());
            takes.then(|| core.num_requests())
        };
        let mut loads: Vec<_> = self.cores.iter().map(|core| load(core, false)).collect();
        if loads.iter().all(Option::is_none) {
            loads = self.cores.iter().map(|core| load(core, true)).collect();
        }
        loads
    }

    /// The cores' numbers of requests, `None` of those that are gone for good: where no core takes any now, a
    /// request waits for one with few.
    fn loads_to_wait(&self) -> Vec<Option<usize>> {
        let cores = self.cores.iter();
        cores
            .map(|core| (core.health() != CoreHealth::Dead).then(|| core.num_requests()))
            .collect()
    }

    /// Shares out requests: those of each core, in their order.
    fn route(&self, requests: Vec<EngineCoreRequest>) -> Vec<Vec<EngineCoreRequest>> {
        let mut shares = vec![Vec::new(); self.cores.len()];
        let mut loads = self.loads();
        if loads.iter().all(Option::is_none) {
            loads = self.loads_to_wait();
        }
        let mut router = self.router();
        let mut routing = router.routing(loads);
        for request in requests {
            let core = routing.route(&request).unwrap_or(0);
            if let Some(share) = shares.get_mut(core) {
                share.push(request);
            }
        }
        shares
    }

    /// Moves requests that wait for a core to others, if any takes requests. From a core that is gone for good they
    /// also go to cores that take none now.
    fn relieve(&self, index: usize) {
        let Some(core) = self.cores.get(index) else {
            return;
        };
        let mut router = self.router();
        let mut loads = self.loads();
        if core.health() == CoreHealth::Dead && loads.iter().all(Option::is_none) {
            loads = self.loads_to_wait();
        }
        if let Some(own) = loads.get_mut(index) {
            *own = None;
        }
        if loads.iter().all(Option::is_none) {
            return;
        }
        let mut shares: Vec<Vec<_>> = self.cores.iter().map(|_| Vec::new()).collect();
        let mut routing = router.routing(loads);
        let mut num_moved = 0_usize;
        for moved in core.take_movable() {
            let to = routing.route(moved.request()).unwrap_or(index);
            if let Some(share) = shares.get_mut(to) {
                num_moved += 1;
                share.push(moved);
            }
        }
        for (core, share) in self.cores.iter().zip(shares) {
            if !share.is_empty() {
                core.take_over(share);
            }
        }
        if num_moved > 0 {
            tracing::info!(
                engine = index,
                num_moved,
                "its requests go on in other engine cores"
            );
        }
    }
}

/// Moves requests after a core's death or restart, and passes the event on.
fn hear(client: &Weak<DataParallelClient>, index: usize, event: CoreEvent) {
    let Some(client) = client.upgrade() else {
        return;
    };
    match event {
        CoreEvent::Died | CoreEvent::GaveUp => {
            client.router().forget(index);
            client.relieve(index);
        }
        CoreEvent::Restarted => {
            for (other, core) in client.cores.iter().enumerate() {
                if other != index && !core.takes_requests() {
                    client.relieve(other);
                }
            }
        }
    }
    if let Some(hear) = client.on_event.get() {
        hear(number(index), event);
    }
}

/// Adds a core to the description of all.
fn add_to(all: &mut EngineCoreReadyResponse, core: &EngineCoreReadyResponse) {
    all.max_model_len = all.max_model_len.min(core.max_model_len);
    // One null block counts as each's.
    all.num_blocks = (all.num_blocks).saturating_add(core.num_blocks.saturating_sub(1));
    all.kv_cache_bytes = all.kv_cache_bytes.saturating_add(core.kv_cache_bytes);
    all.num_threads = all.num_threads.saturating_add(core.num_threads);
    all.max_num_seqs = all.max_num_seqs.saturating_add(core.max_num_seqs);
    all.max_num_queued_reqs = match (all.max_num_queued_reqs, core.max_num_queued_reqs) {
        (Some(all), Some(core)) => Some(all.saturating_add(core)),
        _ => None,
    };
}

/// A core's number as an `engine_index`.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Merged {
    fn start(cores: &[Arc<SupervisedCore>]) -> Self {
        let (sender, outputs) = mpsc::channel(MAX_WAITING_OUTPUTS);
        let tasks = cores.iter().enumerate().map(|(index, core)| {
            let others = cores
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let others = others.map(|(_, core)| core.clone()).collect();
            let task = tokio::spawn(forward(core.clone(), index, others, sender.clone()));
            task.abort_handle()
        });
        Self {
            tasks: tasks.collect(),
            outputs: tokio::sync::Mutex::new(outputs),
        }
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Hands on what a core sends, with its number, until it has ended. Its end is the engine's where no other core is
/// left.
async fn forward(
    core: Arc<SupervisedCore>,
    index: usize,
    others: Vec<Arc<SupervisedCore>>,
    outputs: mpsc::Sender<Result<EngineCoreOutputs, EngineDeadError>>,
) {
    loop {
        let step = match core.get_output().await {
            Ok(Some(mut step)) => {
                step.engine_index = number(index);
                Ok(step)
            }
            Ok(None) => return,
            Err(dead) => {
                let left = others
                    .iter()
                    .filter(|core| core.health() != CoreHealth::Dead);
                let num_left = left.count();
                let dead = EngineDeadError {
                    reason: format!("engine {index}: {}", dead.reason),
                    ..dead
                };
                let last = match core.is_dispensable() && num_left > 0 {
                    true => {
                        tracing::error!(
                            num_left,
                            "{dead}; it is gone for good, and others serve on"
                        );
                        Ok(EngineCoreOutputs {
                            engine_index: number(index),
                            outputs: core.fail_rest(),
                            // It has nothing to do any more.
                            scheduler_stats: Some(Box::default()),
                            ..EngineCoreOutputs::default()
                        })
                    }
                    false => Err(dead),
                };
                let _ = outputs.send(last).await;
                return;
            }
        };
        if outputs.send(step).await.is_err() {
            return;
        }
    }
}

impl CoreClient for DataParallelClient {
    fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        self.add_requests(vec![request])
    }

    fn add_requests(&self, requests: Vec<EngineCoreRequest>) -> Result<(), EngineCoreClientError> {
        if let [only] = self.cores.as_slice() {
            return only.add_requests(requests);
        }
        let shares = self.route(requests);
        for (index, (core, share)) in self.cores.iter().zip(shares).enumerate() {
            if share.is_empty() {
                continue;
            }
            core.add_requests(share)?;
            if !core.takes_requests() {
                // It died meanwhile, and its other requests have gone to other cores.
                self.relieve(index);
            }
        }
        Ok(())
    }

    fn abort_requests(&self, request_ids: Vec<String>) -> Result<(), EngineCoreClientError> {
        if let [only] = self.cores.as_slice() {
            return only.abort_requests(request_ids);
        }
        // A core ignores the ids that it doesn't have; between two cores is none now.
        let _router = self.router();
        self.cores
            .iter()
            .try_for_each(|core| core.abort_requests(request_ids.clone()))
    }

    /// Steps of one core come in their order, those of several as they come. `engine_index` is the core's
    /// number. They end when no core is left.
    fn get_output(&self) -> BoxFuture<'_, Result<Option<EngineCoreOutputs>, EngineDeadError>> {
        Box::pin(async move {
            match (&self.merged, self.cores.as_slice()) {
                (Some(merged), _) => merged.outputs.lock().await.recv().await.transpose(),
                (None, [only, ..]) => only.get_output().await,
                (None, []) => Ok(None),
            }
        })
    }

    fn shutdown(&self, drain_seconds: f64) -> BoxFuture<'_, Result<(), EngineDeadError>> {
        Box::pin(async move {
            let mut ends = JoinSet::new();
            for (_, core) in self.remaining() {
                ends.spawn(async move { core.shutdown(drain_seconds).await });
            }
            ends.join_all().await.into_iter().collect()
        })
    }
}
