//! Threads that compile grammars, apart from the busy loop and below everything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Sender, TrySendError};
use protocol::{RequestError, RequestErrorCode};
use structured_output::CompileError;

use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::compile_job::{CompileJob, CompiledGrammar, Compiler, Duty, JobError, Purpose, refusal};
use super::compile_lanes::{CompileLanes, ServedLane};
use super::priority::lower_priority;
use super::waiting_jobs::WaitingJobs;
use crate::panic_message::panic_message;
use crate::request::RequestId;

/// The threads and their queues. They end when the pool is dropped.
pub(super) struct CompilePool {
    backend: Arc<dyn StructuredOutputBackend>,
    lanes: CompileLanes,
}

impl CompilePool {
    /// Starts `num_threads` threads, and those that [`CompileLanes::new`] adds. In each lane at most
    /// `max_queued` jobs wait. The request's id goes to `done` once its grammar is compiled.
    pub(super) fn new(
        backend: &Arc<dyn StructuredOutputBackend>,
        num_threads: usize,
        max_queued: usize,
        done: &Sender<RequestId>,
    ) -> std::io::Result<Self> {
        let (lanes, served) = CompileLanes::new(num_threads, max_queued);
        let waiting = WaitingJobs::new(lanes.begun().clone());
        for (index, lane) in served.into_iter().enumerate() {
            let thread = CompileThread {
                backend: Arc::clone(backend),
                waiting: waiting.clone(),
                lane,
                done: done.clone(),
            };
            std::thread::Builder::new()
                .name(format!("grammar-{index}"))
                .spawn(move || thread.run())?;
        }
        let backend = Arc::clone(backend);
        Ok(Self { backend, lanes })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn submit(&self, job: CompileJob) -> Result<(), RequestError> {
        let is_ready = self.is_ready(&job);
        self.lanes
            .try_send(job, is_ready)
            .map_err(|error| match error {
                TrySendError::Full(num_queued) => RequestError {
                    code: RequestErrorCode::QueueOverflow,
                    message: format!(
                        "{num_queued} grammars wait to be compiled already: \
                         max_num_queued_grammars allows no more"
                    ),
                    retryable: true,
                },
                TrySendError::Disconnected(_) => threads_are_gone(),
            })
    }

    /// Queues the job of a request that an earlier core had taken, however many wait.
    ///
    /// # Errors
    /// There are no threads any more.
    pub(super) fn submit_replay(&self, job: CompileJob) -> Result<(), RequestError> {
        let duty = match self.is_ready(&job) {
            true => Duty::Answer,
            false => Duty::Begin,
        };
        self.submit_aside(job, duty)
    }

    /// Whether the job's grammar is compiled already.
    fn is_ready(&self, job: &CompileJob) -> bool {
        let structured_outputs = job.params.structured_outputs.as_ref();
        structured_outputs.is_some_and(|params| self.backend.is_compiled(params))
    }

    /// Queues the job of a request that had a grammar already, for threads with a duty.
    ///
    /// # Errors
    /// There are no threads any more.
    pub(super) fn submit_aside(&self, job: CompileJob, duty: Duty) -> Result<(), RequestError> {
        match self.lanes.begun().send(job, duty) {
            true => Ok(()),
            false => Err(threads_are_gone()),
        }
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
    waiting: WaitingJobs,
    lane: ServedLane,
    done: Sender<RequestId>,
}

impl CompileThread {
    fn run(&self) {
        if let Err(error) = lower_priority(self.lane.duty) {
            tracing::warn!(%error, "a grammar thread runs at the priority of all others");
        }
        while let Some(job) = self.lane.next_job() {
            if job.cancel.is_cancelled() {
                continue;
            }
            let request_id = job.request_id.clone();
            let sender = job.compiled.clone();
            let Some(compiled) = self.compile(job) else {
                continue;
            };
            // A request that is gone needs no answer.
            if sender.try_send(compiled).is_ok() && self.done.send(request_id).is_err() {
                return;
            }
        }
    }

    /// What becomes of a grammar; `None` where it was cancelled, or has to wait for memory.
    fn compile(&self, mut job: CompileJob) -> Option<CompiledGrammar> {
        let backend = &*self.backend;
        let compiler = Compiler::new(backend, &self.waiting, self.lane.duty);
        let num_gone = self.waiting.num_gone();
        let (started, before) = (Instant::now(), backend.num_compilations());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            compiler.run(&job.params, &mut job.purpose, &job.cancel)
        }));
        // Another thread's compilation counts as well: then this one waited for it or ran beside it.
        if backend.num_compilations() > before {
            let seconds = started.elapsed().as_secs_f64();
            job.compile_seconds = Some(job.compile_seconds.unwrap_or_default() + seconds);
        }
        let cancelled = CompileGrammarError::Compile(CompileError::Cancelled);
        if matches!(outcome, Ok(Err(JobError::Grammar(_))) | Err(_)) {
            // It may have had memory of its own.
            self.waiting.gone();
        }
        let outcome = match outcome {
            Ok(Ok(started)) => Ok(started),
            Ok(Err(JobError::NoMemory)) => {
                self.waiting.wait(job, self.lane.duty, num_gone);
                return None;
            }
            Ok(Err(JobError::Elsewhere(duty))) => {
                self.waiting.do_elsewhere(job, duty);
                return None;
            }
            Ok(Err(JobError::Grammar(error))) if error == cancelled => return None,
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
        Some(CompiledGrammar {
            outcome: outcome.and_then(|started| started.or(request).ok_or_else(threads_are_gone)),
            compile_seconds: job.compile_seconds,
        })
    }
}

#[cfg(test)]
mod tests;
