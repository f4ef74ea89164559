//! Threads that compile grammars, apart from the busy loop and below everything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use protocol::{RequestError, RequestErrorCode};
use structured_output::CompileError;

use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::compile_job::{CompileJob, CompiledGrammar, Compiler, JobError, Purpose, refusal};
use super::compile_lanes::{CompileLanes, SendError};
use super::priority::lower_priority;
use super::turn::{Duty, Turn};
use super::waiting_jobs::WaitingJobs;
use crate::panic_message::panic_message;
use crate::request::RequestId;

/// The threads and their queues. They end when the pool is dropped.
pub(super) struct CompilePool {
    backend: Arc<dyn StructuredOutputBackend>,
    lanes: Arc<CompileLanes>,
    waiting: WaitingJobs,
}

impl CompilePool {
    /// Starts the threads. Of `num_threads` one begins new grammars, and all others, of which there is one at
    /// least, go on with those that were begun, and begin some where there are none. One more has the answers
    /// of running requests and what is compiled already, and two have what takes long.
    ///
    /// At most `max_queued` new requests wait for their grammars, and as many for grammars that are compiled
    /// already. The request's id goes to `done` once its grammar is there.
    pub(super) fn new(
        backend: &Arc<dyn StructuredOutputBackend>,
        num_threads: usize,
        max_queued: usize,
        done: &Sender<RequestId>,
    ) -> std::io::Result<Self> {
        let pool = Self::without_threads(backend, max_queued);
        let compiling = std::iter::repeat_n(Duty::Compile, num_threads.saturating_sub(1).max(1));
        let duties = [Duty::Answer, Duty::Begin, Duty::Apart, Duty::Apart];
        for (index, duty) in duties.into_iter().chain(compiling).enumerate() {
            let thread = pool.thread(duty, done);
            std::thread::Builder::new()
                .name(format!("grammar-{index}"))
                .spawn(move || thread.run())?;
        }
        Ok(pool)
    }

    fn without_threads(backend: &Arc<dyn StructuredOutputBackend>, max_queued: usize) -> Self {
        let lanes = Arc::new(CompileLanes::new(max_queued));
        Self {
            waiting: WaitingJobs::new(Arc::clone(&lanes), Arc::clone(backend)),
            backend: Arc::clone(backend),
            lanes,
        }
    }

    fn thread(&self, duty: Duty, done: &Sender<RequestId>) -> CompileThread {
        CompileThread {
            backend: Arc::clone(&self.backend),
            lanes: Arc::clone(&self.lanes),
            waiting: self.waiting.clone(),
            duty,
            done: done.clone(),
        }
    }

    /// Queues a new request's job.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn submit(&self, job: CompileJob) -> Result<(), RequestError> {
        let job = self.with_first_turn(job);
        self.lanes.send_new(job).map_err(|error| match error {
            SendError::Full(num_queued) => RequestError {
                code: RequestErrorCode::QueueOverflow,
                message: format!(
                    "{num_queued} grammars wait to be compiled already: \
                     max_num_queued_grammars allows no more"
                ),
                retryable: true,
            },
            SendError::Closed => threads_are_gone(),
        })
    }

    /// Queues the job of a request that an earlier core had taken, however many wait.
    ///
    /// # Errors
    /// There are no threads any more.
    pub(super) fn submit_replay(&self, job: CompileJob) -> Result<(), RequestError> {
        let job = self.with_first_turn(job);
        self.lanes.send(job).map_err(|_| threads_are_gone())
    }

    /// Sends a new request's job to those who have what is compiled already, or says that compiling counts.
    fn with_first_turn(&self, mut job: CompileJob) -> CompileJob {
        let structured_outputs = job.params.structured_outputs.as_ref();
        // Who asks is a thread on which all requests of a client depend.
        let is_compiled = structured_outputs.is_some_and(|params| {
            let is_compiled = || self.backend.is_compiled(params);
            catch_unwind(AssertUnwindSafe(is_compiled)).unwrap_or(false)
        });
        match is_compiled {
            true => job.turn = Turn::first(Duty::Answer),
            false => job.compile_seconds = Some(0.0),
        }
        job
    }

    /// Queues the job of a request that had a grammar already.
    ///
    /// # Errors
    /// There are no threads any more.
    pub(super) fn submit_aside(&self, job: CompileJob) -> Result<(), RequestError> {
        self.lanes.send(job).map_err(|_| threads_are_gone())
    }
}

impl Drop for CompilePool {
    fn drop(&mut self) {
        self.lanes.close();
    }
}

fn threads_are_gone() -> RequestError {
    RequestError {
        code: RequestErrorCode::InternalError,
        message: "the grammar compiler's threads are gone".to_owned(),
        retryable: false,
    }
}

/// One thread's part of the pool.
struct CompileThread {
    backend: Arc<dyn StructuredOutputBackend>,
    lanes: Arc<CompileLanes>,
    waiting: WaitingJobs,
    duty: Duty,
    done: Sender<RequestId>,
}

impl CompileThread {
    fn run(&self) {
        if let Err(error) = lower_priority(self.duty) {
            tracing::warn!(%error, "a grammar thread runs at the priority of all others");
        }
        while let Some(job) = self.lanes.next_job(self.duty) {
            self.take_turn(job);
        }
    }

    /// One turn of a job: its answer goes to who waits for it, or it waits for the next one.
    fn take_turn(&self, mut job: CompileJob) {
        if job.cancel.is_cancelled() {
            return;
        }
        let compiler = Compiler::new(&*self.backend, &self.waiting, job.turn);
        let num_gone = self.waiting.num_gone();
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            compiler.run(&job.params, &mut job.purpose, &job.cancel)
        }));
        if let Some(seconds) = &mut job.compile_seconds {
            *seconds += started.elapsed().as_secs_f64();
        }
        let cancelled = CompileGrammarError::Compile(CompileError::Cancelled);
        let outcome = match outcome {
            Ok(Ok(started)) => Ok(started),
            Ok(Err(JobError::NoMemory)) => return self.waiting.wait(job, num_gone),
            Ok(Err(JobError::TurnOver)) => return self.wait_for(job.turn.next(), job),
            Ok(Err(JobError::Elsewhere(duty))) => return self.wait_for(Turn::first(duty), job),
            Ok(Err(JobError::Grammar(error))) if error == cancelled => return,
            Ok(Err(error)) => Err(refusal(&job.params, &job.purpose, &error)),
            Err(panic) => Err(RequestError {
                code: RequestErrorCode::InternalError,
                message: format!("compiling the grammar panicked: {}", panic_message(panic)),
                retryable: false,
            }),
        };
        let request = match job.purpose {
            Purpose::Start { .. } => None,
            Purpose::Aside(request) => Some(request),
        };
        let compiled = CompiledGrammar {
            outcome: outcome.and_then(|started| started.or(request).ok_or_else(threads_are_gone)),
            compile_seconds: job.compile_seconds,
        };
        // A request that is gone needs no answer.
        if job.compiled.try_send(compiled).is_ok() {
            let _ = self.done.send(job.request_id);
        }
    }

    /// Lets a job wait for a turn. Where there are no threads any more, nobody waits for its answer.
    fn wait_for(&self, turn: Turn, job: CompileJob) {
        let _ = self.lanes.send(CompileJob { turn, ..job });
    }
}

#[cfg(test)]
mod tests;
