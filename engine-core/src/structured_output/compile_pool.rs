//! Threads that compile grammars, apart from the busy loop and below everything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use protocol::{RequestError, RequestErrorCode};
use structured_output::CompileError;

use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::compile_job::{CompileJob, CompiledGrammar, Compiler, JobError, Purpose};
use super::compile_lanes::{CompileLanes, SendError};
use super::grammar_bin::GrammarBin;
use super::priority::lower_priority;
use super::refusal::refusal;
use super::same_constraints::{Entered, First, Places, SameConstraints};
use super::turn::{Duty, Turn};
use super::verdict::Verdict;
use super::waiting_jobs::WaitingJobs;
use crate::panic_message::panic_message;
use crate::request_id::RequestId;

/// The threads and their queues. They end when the pool is dropped.
pub(super) struct CompilePool {
    backend: Arc<dyn StructuredOutputBackend>,
    lanes: Arc<CompileLanes>,
    waiting: WaitingJobs,
    same: SameConstraints,
    /// Where there are threads.
    bin: Option<GrammarBin>,
    max_queued: usize,
    done: Sender<RequestId>,
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
        let mut pool = Self::without_threads(backend, max_queued, done);
        pool.bin = Some(GrammarBin::new()?);
        let compiling = std::iter::repeat_n(Duty::Compile, num_threads.saturating_sub(1).max(1));
        let duties = [Duty::Answer, Duty::Begin, Duty::Apart, Duty::Apart];
        for (index, duty) in duties.into_iter().chain(compiling).enumerate() {
            let thread = pool.thread(duty);
            std::thread::Builder::new()
                .name(format!("grammar-{index}"))
                .spawn(move || thread.run())?;
        }
        Ok(pool)
    }

    fn without_threads(
        backend: &Arc<dyn StructuredOutputBackend>,
        max_queued: usize,
        done: &Sender<RequestId>,
    ) -> Self {
        let lanes = Arc::new(CompileLanes::new(max_queued));
        Self {
            waiting: WaitingJobs::new(Arc::clone(&lanes), Arc::clone(backend)),
            same: SameConstraints::new(Arc::clone(&lanes), max_queued),
            backend: Arc::clone(backend),
            lanes,
            bin: None,
            max_queued,
            done: done.clone(),
        }
    }

    fn thread(&self, duty: Duty) -> CompileThread {
        CompileThread {
            backend: Arc::clone(&self.backend),
            lanes: Arc::clone(&self.lanes),
            waiting: self.waiting.clone(),
            duty,
            bin: self.bin.clone(),
            done: self.done.clone(),
        }
    }

    /// Queues a new request's job. Behind one with the same constraint it waits for what becomes of that, and
    /// takes no place in the queue.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn submit(&self, job: CompileJob) -> Result<(), RequestError> {
        self.enter(job, Places::Limited)
    }

    /// The same for a request that an earlier core had taken, however many wait.
    ///
    /// # Errors
    /// There are no threads any more.
    pub(super) fn submit_replay(&self, job: CompileJob) -> Result<(), RequestError> {
        self.enter(job, Places::Unlimited)
    }

    fn enter(&self, job: CompileJob, places: Places) -> Result<(), RequestError> {
        match self.same.enter(job, places) {
            Entered::First(job) | Entered::Beside(job) => {
                let job = self.with_first_turn(job);
                let sent = match places {
                    Places::Limited => self.lanes.send_new(job),
                    Places::Unlimited => self.lanes.send(job),
                };
                sent.map_err(|error| match error {
                    SendError::Full(num_queued) => self.queue_is_full(num_queued),
                    SendError::Closed => threads_are_gone(),
                })
            }
            Entered::Waits => Ok(()),
            Entered::Refused(job, error) => {
                let job = CompileJob {
                    was_known: true,
                    ..job
                };
                refuse(job, &error, &self.done);
                Ok(())
            }
            Entered::Full(num_waiting) => Err(self.queue_is_full(num_waiting)),
        }
    }

    /// More than the limit may wait: what was begun before, and replays, wait in any case.
    fn queue_is_full(&self, num_queued: usize) -> RequestError {
        RequestError {
            field: Some("structured_outputs".to_owned()),
            ..RequestError::new(
                RequestErrorCode::QueueOverflow,
                format!(
                    "{num_queued} requests wait for their grammars already, those whose grammar was begun among \
                 them: no more are taken beyond max_num_queued_grammars, which is {}",
                    self.max_queued
                ),
            )
        }
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
            true => {
                job.turn = Turn::first(Duty::Answer);
                job.was_known = true;
            }
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
        // First, so that none goes on for one that ends there.
        self.same.close();
        self.lanes.close();
    }
}

/// Answers a job that it is refused.
fn refuse(job: CompileJob, error: &CompileGrammarError, done: &Sender<RequestId>) {
    let compiled = CompiledGrammar {
        outcome: Err(refusal(&job.params, &job.purpose, error)),
        compile_seconds: job.compile_seconds,
        was_known: job.was_known,
    };
    answer(&job.compiled, job.request_id, compiled, done);
}

/// Tells who waits for a grammar what became of it.
fn answer(
    waits: &Sender<CompiledGrammar>,
    request_id: RequestId,
    compiled: CompiledGrammar,
    done: &Sender<RequestId>,
) {
    // A request that is gone needs no answer.
    if waits.try_send(compiled).is_ok() {
        let _ = done.send(request_id);
    }
}

fn threads_are_gone() -> RequestError {
    RequestError::new(
        RequestErrorCode::InternalError,
        "the grammar compiler's threads are gone",
    )
}

/// One thread's part of the pool.
struct CompileThread {
    backend: Arc<dyn StructuredOutputBackend>,
    lanes: Arc<CompileLanes>,
    waiting: WaitingJobs,
    duty: Duty,
    bin: Option<GrammarBin>,
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
        let mut compiler = Compiler::new(&*self.backend, &self.waiting, job.turn);
        let num_gone = self.waiting.num_gone();
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            compiler.run(&job.params, &mut job.purpose, &job.cancel)
        }));
        if let Some(seconds) = &mut job.compile_seconds {
            *seconds += started.elapsed().as_secs_f64();
        }
        let cancelled = CompileGrammarError::Compile(CompileError::Cancelled);
        let mut refused = None;
        let outcome = match outcome {
            Ok(Ok(mut started)) => {
                if let (Some(started), Some(bin)) = (&mut started, &self.bin) {
                    started.end_in(bin.clone());
                }
                Ok(started)
            }
            Ok(Err(JobError::NoMemory)) => {
                // It may wait for long, and others are begun meanwhile.
                job.long_places.clear();
                return self.waiting.wait(job, num_gone);
            }
            Ok(Err(JobError::TurnOver)) => return self.wait_for(job.turn.next(), job),
            Ok(Err(JobError::Elsewhere(duty))) => return self.wait_for(Turn::first(duty), job),
            Ok(Err(JobError::Grammar(error))) if error == cancelled => return,
            Ok(Err(JobError::Grammar(error))) => {
                let refusal = refusal(&job.params, &job.purpose, &error);
                refused = Some(error);
                Err(refusal)
            }
            Err(panic) => Err(RequestError::new(
                RequestErrorCode::InternalError,
                format!("compiling the grammar panicked: {}", panic_message(panic)),
            )),
        };
        if let Some(first) = job.first.take() {
            let scope = |error| first.demand().scope_of(error, compiler.stage());
            let verdict = match (&outcome, &refused) {
                (Ok(request), _) => {
                    let min_tokens = request.as_ref().and_then(|r| r.min_tokens_if_required());
                    Some(Verdict::served(min_tokens))
                }
                (Err(_), Some(error)) => scope(error).map(|scope| Verdict::Refused(scope, error)),
                // A panic is nobody else's.
                (Err(_), None) => None,
            };
            self.settle(first, verdict.as_ref(), job.was_known);
        }
        let request = match job.purpose {
            Purpose::Start { .. } => None,
            Purpose::Aside(request) => Some(request),
        };
        let compiled = CompiledGrammar {
            outcome: outcome.and_then(|started| started.or(request).ok_or_else(threads_are_gone)),
            compile_seconds: job.compile_seconds,
            was_known: job.was_known,
        };
        answer(&job.compiled, job.request_id, compiled, &self.done);
    }

    /// Answers those that waited for one with the same constraint, or lets them have its grammar, which was
    /// known when they came if it was known when that came. Where what
    /// became of it is no verdict, the next one is worked on.
    fn settle(&self, first: First, verdict: Option<&Verdict>, was_known: bool) {
        let Some(verdict) = verdict else { return };
        for job in first.end(verdict) {
            let job = CompileJob { was_known, ..job };
            match verdict {
                Verdict::Refused(_, error) => refuse(job, error, &self.done),
                Verdict::Served { .. } => self.wait_for(Turn::first(Duty::Answer), job),
            }
        }
    }

    /// Lets a job wait for a turn. Where there are no threads any more, nobody waits for its answer.
    fn wait_for(&self, turn: Turn, job: CompileJob) {
        let _ = self.lanes.send(CompileJob { turn, ..job });
    }
}

#[cfg(test)]
mod tests;
