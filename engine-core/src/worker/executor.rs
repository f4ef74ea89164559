//! Runs the [`ModelRunner`] on a thread of its own, so that the busy loop can make the masks of a
//! batch while its forward pass runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::core::sched::output::{GrammarOutput, ModelRunnerOutput, SchedulerOutput};
use crate::core::spec_decode::DraftPass;
use crate::panic_message::panic_message;
use crate::worker::model_runner::{ModelRunner, ModelRunnerError};

/// The busy loop's handle on the worker thread.
///
/// One step is [`execute_model`](Self::execute_model), [`PendingForward::join`], then
/// [`sample_tokens`](Self::sample_tokens). Dropping the executor ends the thread.
pub struct Executor {
    commands: Option<Sender<WorkerCommand>>,
    replies: Receiver<Result<WorkerReply, ExecutorError>>,
    thread: Option<JoinHandle<()>>,
}

/// A forward pass that was launched and not yet awaited.
#[must_use = "the forward pass is still running: join it"]
pub struct PendingForward<'a> {
    executor: &'a Executor,
}

/// The worker failed in a way that concerns the whole batch: the core can't go on.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The model or the runner returned an error.
    #[error("the model runner failed: {0}")]
    Runner(#[from] ModelRunnerError),
    /// The model or the runner panicked.
    #[error("the worker thread panicked: {0}")]
    Panicked(String),
    /// The worker thread is gone or answered out of turn.
    #[error("the worker thread is gone")]
    Gone,
    /// The thread could not be started.
    #[error("the worker thread could not be started: {0}")]
    Spawn(#[source] std::io::Error),
}

enum WorkerCommand {
    ExecuteModel(Arc<SchedulerOutput>),
    SampleTokens(Option<GrammarOutput>),
    ProposeDraft(Box<DraftPass>),
}

enum WorkerReply {
    /// When the forward pass ended.
    Executed(Instant),
    Sampled(Box<ModelRunnerOutput>),
}

impl Executor {
    /// Starts the worker thread around `model_runner`.
    ///
    /// # Errors
    /// [`ExecutorError::Spawn`].
    pub fn new(model_runner: ModelRunner) -> Result<Self, ExecutorError> {
        Self::with_draft_runner(model_runner, None)
    }

    /// The same with the runner of a draft model, which computes on the same thread between the steps.
    ///
    /// # Errors
    /// [`ExecutorError::Spawn`].
    pub fn with_draft_runner(
        model_runner: ModelRunner,
        draft_runner: Option<ModelRunner>,
    ) -> Result<Self, ExecutorError> {
        let (command_sender, command_receiver) = bounded(1);
        let (reply_sender, reply_receiver) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("worker".to_owned())
            .spawn(move || run_worker(model_runner, draft_runner, &command_receiver, &reply_sender))
            .map_err(ExecutorError::Spawn)?;
        Ok(Self {
            commands: Some(command_sender),
            replies: reply_receiver,
            thread: Some(thread),
        })
    }

    /// Launches the forward pass of one batch, up to the hidden states of the sampled positions.
    pub fn execute_model(
        &mut self,
        scheduler_output: Arc<SchedulerOutput>,
    ) -> Result<PendingForward<'_>, ExecutorError> {
        self.send(WorkerCommand::ExecuteModel(scheduler_output))?;
        Ok(PendingForward { executor: self })
    }

    /// Runs the LM head on the sampled positions, applies the masks and samples.
    ///
    /// # Errors
    /// Only what concerns the whole batch; a request that fails alone is in
    /// `ModelRunnerOutput::errors`.
    pub fn sample_tokens(
        &mut self,
        grammar_output: Option<GrammarOutput>,
    ) -> Result<ModelRunnerOutput, ExecutorError> {
        self.send(WorkerCommand::SampleTokens(grammar_output))?;
        match self.receive()? {
            WorkerReply::Sampled(output) => Ok(*output),
            WorkerReply::Executed(_) => Err(ExecutorError::Gone),
        }
    }

    /// Runs one pass of the draft model, and samples.
    ///
    /// # Errors
    /// As [`Self::sample_tokens`]; without a draft model [`ExecutorError::Gone`].
    pub fn propose_draft(&mut self, pass: DraftPass) -> Result<ModelRunnerOutput, ExecutorError> {
        self.send(WorkerCommand::ProposeDraft(Box::new(pass)))?;
        match self.receive()? {
            WorkerReply::Sampled(output) => Ok(*output),
            WorkerReply::Executed(_) => Err(ExecutorError::Gone),
        }
    }

    fn send(&self, command: WorkerCommand) -> Result<(), ExecutorError> {
        let commands = self.commands.as_ref().ok_or(ExecutorError::Gone)?;
        commands.send(command).map_err(|_| ExecutorError::Gone)
    }

    fn receive(&self) -> Result<WorkerReply, ExecutorError> {
        self.replies.recv().map_err(|_| ExecutorError::Gone)?
    }
}

impl PendingForward<'_> {
    /// Waits for the forward pass to end, and says when it did.
    pub fn join(self) -> Result<Instant, ExecutorError> {
        match self.executor.receive()? {
            WorkerReply::Executed(ended) => Ok(ended),
            WorkerReply::Sampled(_) => Err(ExecutorError::Gone),
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // The worker catches its own panics, so there is nothing to learn from the result.
            let _ = thread.join();
        }
    }
}

fn run_worker(
    mut model_runner: ModelRunner,
    mut draft_runner: Option<ModelRunner>,
    commands: &Receiver<WorkerCommand>,
    replies: &Sender<Result<WorkerReply, ExecutorError>>,
) {
    let pool = model_runner.compute_pool();
    pool.bind_caller();
    for command in commands {
        let _awake = pool.keep_awake();
        // After a panic the runner's state is unknown: the reply ends the core, nothing is reused.
        let reply = catch_unwind(AssertUnwindSafe(|| match command {
            WorkerCommand::ExecuteModel(scheduler_output) => model_runner
                .execute_model(&scheduler_output)
                .map(|()| WorkerReply::Executed(Instant::now()))
                .map_err(ExecutorError::Runner),
            WorkerCommand::SampleTokens(grammar_output) => model_runner
                .sample_tokens(grammar_output.as_ref())
                .map(|output| WorkerReply::Sampled(Box::new(output)))
                .map_err(ExecutorError::Runner),
            WorkerCommand::ProposeDraft(pass) => match &mut draft_runner {
                Some(runner) => propose_draft(runner, &pass),
                None => Err(ExecutorError::Gone),
            },
        }));
        let reply = match reply {
            Ok(reply) => reply,
            Err(panic) => Err(ExecutorError::Panicked(panic_message(panic))),
        };
        if replies.send(reply).is_err() {
            return;
        }
    }
}

fn propose_draft(runner: &mut ModelRunner, pass: &DraftPass) -> Result<WorkerReply, ExecutorError> {
    runner.execute_model(&pass.scheduler_output)?;
    let output = runner.sample_tokens(Some(&pass.grammar_output))?;
    Ok(WorkerReply::Sampled(Box::new(output)))
}
