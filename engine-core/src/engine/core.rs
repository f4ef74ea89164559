//! The engine without its process: scheduler and worker, one step at a time.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use protocol::{EngineCoreOutputs, FinishReason};

use crate::core::block_hash::BlockHasher;
use crate::core::request::Request;
use crate::core::sched::output::SchedulerOutput;
use crate::core::sched::scheduler::{PauseState, Scheduler};
use crate::engine::core_input::AbortRequests;
use crate::request_id::RequestId;
use crate::structured_output::StructuredOutputManager;
use crate::worker::{Executor, ExecutorError};

/// Scheduler and worker. Only the busy loop's thread touches it.
pub struct EngineCore {
    pub(crate) scheduler: Scheduler,
    structured_output_manager: Arc<StructuredOutputManager>,
    executor: Executor,
    /// Aborts that arrived while a step was under way.
    aborts_queue: Receiver<AbortRequests>,
    step_times: StepTimes,
    #[cfg(debug_assertions)]
    poison: super::poison::Poison,
}

/// An error after which the core can't go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineCoreError {
    /// The worker failed as a whole.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
}

/// Where the time of the steps went, summed since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepTimes {
    /// Steps that put tokens through the model.
    pub num_steps: u64,
    /// `Scheduler::schedule`.
    pub schedule: Duration,
    /// Passes of the draft model.
    pub propose_draft: Duration,
    /// From launching the forward pass until its end.
    pub execute_model: Duration,
    /// Making masks meanwhile.
    pub grammar_bitmask: Duration,
    /// LM head, masks and sampling.
    pub sample_tokens: Duration,
    /// Late aborts and `Scheduler::update_from_output`.
    pub update_from_output: Duration,
}

impl AddAssign for StepTimes {
    fn add_assign(&mut self, more: Self) {
        self.num_steps += more.num_steps;
        self.schedule += more.schedule;
        self.propose_draft += more.propose_draft;
        self.execute_model += more.execute_model;
        self.grammar_bitmask += more.grammar_bitmask;
        self.sample_tokens += more.sample_tokens;
        self.update_from_output += more.update_from_output;
    }
}

impl Sub for StepTimes {
    type Output = Self;

    /// Of the steps since an earlier look.
    fn sub(self, earlier: Self) -> Self {
        Self {
            num_steps: self.num_steps - earlier.num_steps,
            schedule: self.schedule - earlier.schedule,
            propose_draft: self.propose_draft - earlier.propose_draft,
            execute_model: self.execute_model - earlier.execute_model,
            grammar_bitmask: self.grammar_bitmask - earlier.grammar_bitmask,
            sample_tokens: self.sample_tokens - earlier.sample_tokens,
            update_from_output: self.update_from_output - earlier.update_from_output,
        }
    }
}

/// When the current part of a step began.
struct Lap(Instant);

impl Lap {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Ends this part and begins the next: how long it took.
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }

    /// How long before this part something happened; nothing where it came later.
    fn since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier)
    }
}

impl EngineCore {
    /// Joins a scheduler and a worker; `aborts_queue` is drained in every step. Requests with a
    /// constraint are refused: see [`EngineCore::with_structured_output`].
    pub fn new(
        scheduler: Scheduler,
        executor: Executor,
        aborts_queue: Receiver<AbortRequests>,
    ) -> Self {
        Self {
            scheduler,
            structured_output_manager: Arc::new(StructuredOutputManager::unavailable(
                "this engine was built without it",
            )),
            executor,
            aborts_queue,
            step_times: StepTimes::default(),
            #[cfg(debug_assertions)]
            poison: super::poison::Poison::from_environment(),
        }
    }

    /// Serves requests with a constraint, whose grammars `manager` compiles.
    pub fn with_structured_output(mut self, manager: Arc<StructuredOutputManager>) -> Self {
        self.structured_output_manager = manager;
        self
    }

    /// One step: schedule, draft, run the model and make the masks meanwhile, mask and sample, update.
    /// Returns outputs by client.
    ///
    /// # Errors
    /// What concerns every request; the core must end.
    pub fn step(&mut self) -> Result<BTreeMap<u32, EngineCoreOutputs>, EngineCoreError> {
        let mut times = StepTimes::default();
        let mut lap = Lap::start();
        self.process_compiled_grammars();
        let mut scheduler_output = self.scheduler.schedule();
        times.schedule = lap.next();
        self.propose_draft_token_ids(&mut scheduler_output)?;
        let scheduler_output = Arc::new(scheduler_output);
        times.propose_draft = lap.next();
        #[cfg(debug_assertions)]
        self.poison.strike(&scheduler_output);

        let forward = self.executor.execute_model(Arc::clone(&scheduler_output))?;
        let grammar_output = self.scheduler.get_grammar_bitmask(&scheduler_output);
        times.grammar_bitmask = lap.next();
        let exposed_fill = lap.since(forward.join()?);
        times.execute_model = times.grammar_bitmask + lap.next();
        if grammar_output.is_some() {
            self.scheduler
                .note_fill(times.grammar_bitmask, exposed_fill);
        }

        let model_runner_output = self.executor.sample_tokens(grammar_output)?;
        times.sample_tokens = lap.next();

        self.process_aborts_queue();
        let outputs = self
            .scheduler
            .update_from_output(&scheduler_output, model_runner_output);
        self.submit_asides();
        times.update_from_output = lap.next();

        if scheduler_output.total_num_scheduled_tokens > 0 {
            self.step_times += StepTimes {
                num_steps: 1,
                ..times
            };
        }
        Ok(outputs)
    }

    /// Has the draft model, where there is one, fill the places of drafts in the step.
    fn propose_draft_token_ids(
        &mut self,
        scheduler_output: &mut SchedulerOutput,
    ) -> Result<(), EngineCoreError> {
        let Some(mut drafts) = self.scheduler.begin_drafts(scheduler_output) else {
            return Ok(());
        };
        while let Some(pass) = drafts.take_pass() {
            let output = self.executor.propose_draft(pass)?;
            self.scheduler.continue_drafts(&mut drafts, &output);
        }
        self.scheduler
            .update_draft_token_ids_in_output(drafts, scheduler_output);
        Ok(())
    }

    /// Hashes the blocks of requests for this engine's prefix cache.
    pub fn block_hasher(&self) -> BlockHasher {
        self.scheduler.block_hasher()
    }

    /// Takes a request into the scheduler's queue, and submits its grammar where nobody has. A
    /// refusal comes out of the next step.
    pub fn add_request(&mut self, mut request: Request) {
        let manager = &self.structured_output_manager;
        match request.init_grammar(manager, &mut None) {
            Ok(()) => self.scheduler.add_request(request),
            Err(error) => self.scheduler.refuse(Box::new(request), error),
        }
    }

    /// Takes the grammars that were compiled meanwhile to their requests.
    pub fn process_compiled_grammars(&mut self) {
        while let Ok(request_id) = self.structured_output_manager.done().try_recv() {
            self.grammar_compiled(&request_id);
        }
    }

    /// Takes a grammar to its request, whose id came out of [`StructuredOutputManager::done`].
    pub fn grammar_compiled(&mut self, request_id: &RequestId) {
        self.scheduler.grammar_compiled(request_id);
        self.submit_asides();
    }

    /// Submits the grammars that can't go on within the steps.
    fn submit_asides(&mut self) {
        let manager = &self.structured_output_manager;
        self.scheduler
            .submit_asides(|request| request.submit_aside(manager));
    }

    /// What was decided since the last step and needs none: refusals and admissions, by client.
    pub(crate) fn take_pending_outputs(&mut self) -> BTreeMap<u32, EngineCoreOutputs> {
        self.scheduler.take_pending_outputs()
    }

    /// Sleeps until a grammar is compiled, and takes it to its request; for whoever steps the engine
    /// by hand and finds that it has no work. False, at once, where no request waits for one.
    pub fn wait_for_grammar(&mut self) -> bool {
        if self.scheduler.num_waiting_for_grammar() == 0 {
            return false;
        }
        match self.structured_output_manager.done().recv() {
            Ok(request_id) => {
                self.grammar_compiled(&request_id);
                true
            }
            Err(_) => false,
        }
    }

    /// What compiles grammars.
    pub fn structured_output_manager(&self) -> &Arc<StructuredOutputManager> {
        &self.structured_output_manager
    }

    /// Ends requests of one client at its wish; ids that are unknown, over, or another client's
    /// are ignored.
    pub fn abort_requests(&mut self, aborts: &AbortRequests) {
        self.scheduler
            .abort_requests(aborts.client_index, &aborts.request_ids);
    }

    /// Ends all requests of a client that left.
    pub(crate) fn abort_client(&mut self, client_index: u32) {
        self.scheduler
            .finish_client_requests(client_index, FinishReason::Abort);
    }

    /// Ends everything; returns what the clients are to be told.
    pub(crate) fn abort_all_requests(&mut self) -> BTreeMap<u32, EngineCoreOutputs> {
        let mut by_client: BTreeMap<u32, EngineCoreOutputs> = BTreeMap::new();
        for aborted in self.scheduler.finish_all_requests(FinishReason::Abort) {
            by_client
                .entry(aborted.client_index)
                .or_default()
                .outputs
                .push(aborted.output);
        }
        by_client
    }

    /// Whether requests are waiting, for their grammar too, or running.
    pub(crate) fn has_unfinished_requests(&self) -> bool {
        self.scheduler.has_unfinished_requests() || self.scheduler.num_waiting_for_grammar() > 0
    }

    /// Whether a step has something to do; not where all requests wait for their grammars.
    pub fn has_work(&self) -> bool {
        self.scheduler.has_requests()
    }

    /// True while the scheduler takes no new requests, or none at all.
    pub(crate) fn is_paused(&self) -> bool {
        self.scheduler.pause_state() != PauseState::Unpaused
    }

    /// The most steps of work that grammars took within one step, on which everybody waits.
    pub fn most_grammar_steps(&self) -> u64 {
        self.scheduler.most_grammar_steps()
    }

    /// Where the time of the steps went.
    pub fn step_times(&self) -> StepTimes {
        self.step_times
    }

    /// Takes the aborts that arrived during the forward pass, so that their requests end now.
    pub(crate) fn process_aborts_queue(&mut self) {
        while let Ok(aborts) = self.aborts_queue.try_recv() {
            self.abort_requests(&aborts);
        }
    }
}
