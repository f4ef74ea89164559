//! Threads that compile grammars, apart from the busy loop and below everything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use protocol::{RequestError, RequestErrorCode};
use structured_output::CompileError;

use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::compile_job::{CompileJob, CompiledGrammar, Purpose};
use super::compile_queue::{CompileQueue, SendError, Takes, Worker};
use super::compiler::{Compiler, JobError};
use super::grammar_end::GrammarBin;
use super::min_tokens::MinTokens;
use super::priority::{COMPILE_NICENESS, SHORT_NICENESS, lower_priority};
use super::refusal::refusal;
use super::request::StructuredOutputRequest;
use super::same_constraints::{Entered, Places, SameConstraints};
use super::stage::{Stage, is_lasting};
use super::turn::{Arena, Turn};
use crate::panic_message::panic_message;
use crate::request_id::RequestId;

/// Threads for turns in memory apart: one may read a text while the other holds that memory.
const APART_THREADS: usize = 2;

/// The threads and their queue. They end when the pool is dropped.
pub(super) struct CompilePool {
    /// What each thread has.
    thread: CompileThread,
    same: SameConstraints,
    max_queued: usize,
}

impl CompilePool {
    /// Starts the threads. Of `num_threads` one takes short turns alone, and all others, of which there is one at
    /// least, take all turns in memory that all share. Two more have what takes long, in memory apart.
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
        pool.thread.bin = Some(GrammarBin::new()?);
        let shared = std::iter::repeat_n(Takes::Shared, num_threads.saturating_sub(1).max(1));
        let apart = std::iter::repeat_n(Takes::Apart, APART_THREADS);
        let threads = std::iter::once(Takes::Short).chain(shared).chain(apart);
        for (index, takes) in threads.enumerate() {
            let thread = pool.thread.clone();
            std::thread::Builder::new()
                .name(format!("grammar-{index}"))
                .spawn(move || thread.run(Worker::new(takes)))?;
        }
        Ok(pool)
    }

    fn without_threads(
        backend: &Arc<dyn StructuredOutputBackend>,
        max_queued: usize,
        done: &Sender<RequestId>,
    ) -> Self {
        let queue = Arc::new(CompileQueue::new(max_queued));
        Self {
            same: SameConstraints::new(Arc::clone(&queue), max_queued),
            thread: CompileThread {
                backend: Arc::clone(backend),
                queue,
                bin: None,
                done: done.clone(),
            },
            max_queued,
        }
    }

    /// Queues a new request's job. Behind one with the same constraint it waits for what becomes of that, and
    /// takes no place in the queue.
    ///
    /// # Errors
    /// The queue is full, unless the places are unlimited; or there are no threads any more.
    pub(super) fn submit(&self, job: CompileJob, places: Places) -> Result<(), RequestError> {
        match self.same.enter(job, places) {
            Entered::GoesOn(job) => {
                let job = self.with_first_turn(job);
                let queue = &self.thread.queue;
                let sent = match places {
                    Places::Limited => queue.send_new(job),
                    Places::Unlimited => queue.send(job),
                };
                sent.map_err(|error| match error {
                    SendError::Full(num_queued) => self.queue_is_full(num_queued),
                    SendError::Closed => threads_are_gone(),
                })
            }
            Entered::Waits => Ok(()),
            Entered::Refused(mut job, error) => {
                job.was_known = true;
                refuse(job, &error, &self.thread.done);
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

    /// Gives a new request's job its first turn: a short one where its grammar is compiled already, and else one in
    /// which its text can be read, where compiling counts.
    fn with_first_turn(&self, mut job: CompileJob) -> CompileJob {
        let structured_outputs = job.params.structured_outputs.as_ref();
        // Who asks is a thread on which all requests of a client depend.
        job.was_known = structured_outputs.is_some_and(|params| {
            let is_compiled = || self.thread.backend.is_compiled(params);
            catch_unwind(AssertUnwindSafe(is_compiled)).unwrap_or(false)
        });
        if !job.was_known {
            job.turn = job.turn.for_text(job.source_bytes);
            job.compile_seconds = Some(0.0);
        }
        job
    }

    /// Queues the job of a request that had a grammar already.
    ///
    /// # Errors
    /// There are no threads any more.
    pub(super) fn submit_aside(&self, job: CompileJob) -> Result<(), RequestError> {
        let sent = self.thread.queue.send(job);
        sent.map_err(|_| threads_are_gone())
    }
}

impl Drop for CompilePool {
    fn drop(&mut self) {
        // First, so that none goes on for one that ends there.
        self.same.close();
        self.thread.queue.close();
    }
}

/// Answers a job that it is refused.
fn refuse(job: CompileJob, error: &CompileGrammarError, done: &Sender<RequestId>) {
    let refusal = refusal(&job.params, &job.purpose, error);
    answer(job, Err(refusal), done);
}

/// Tells who waits for a grammar what became of it: `None` for that of the running request, which was lent.
fn answer(
    job: CompileJob,
    outcome: Result<Option<Box<StructuredOutputRequest>>, RequestError>,
    done: &Sender<RequestId>,
) {
    let lent = match job.purpose {
        Purpose::Start { .. } => None,
        Purpose::Aside(request) => Some(request),
    };
    let compiled = CompiledGrammar {
        outcome: outcome.and_then(|started| started.or(lent).ok_or_else(threads_are_gone)),
        compile_seconds: job.compile_seconds,
        was_known: job.was_known,
    };
    // A request that is gone needs no answer.
    if job.compiled.try_send(compiled).is_ok() {
        let _ = done.send(job.request_id);
    }
}

fn threads_are_gone() -> RequestError {
    RequestError::new(
        RequestErrorCode::InternalError,
        "the grammar compiler's threads are gone",
    )
}

/// One thread's part of the pool.
#[derive(Clone)]
struct CompileThread {
    backend: Arc<dyn StructuredOutputBackend>,
    queue: Arc<CompileQueue>,
    /// Where there are threads.
    bin: Option<GrammarBin>,
    done: Sender<RequestId>,
}

impl CompileThread {
    fn run(&self, mut worker: Worker) {
        let more = match worker.takes {
            Takes::Short => SHORT_NICENESS,
            Takes::Shared | Takes::Apart => COMPILE_NICENESS,
        };
        if let Err(error) = lower_priority(more) {
            tracing::warn!(%error, "a grammar thread runs at the priority of all others");
        }
        while let Some(job) = self.queue.next_job(&mut worker) {
            self.take_turn(job);
        }
    }

    /// One turn of a job: its answer goes to who waits for it, or it waits for the next one.
    fn take_turn(&self, mut job: CompileJob) {
        if job.cancel.is_cancelled() {
            return;
        }
        let mut compiler = Compiler::new(&self.backend, &self.queue, job.turn);
        let num_freed = self.queue.num_freed();
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            compiler.run(&job.params, &mut job.purpose, &job.cancel)
        }));
        if let Some(seconds) = &mut job.compile_seconds {
            *seconds += started.elapsed().as_secs_f64();
        }
        match outcome {
            Ok(Ok(started)) => self.serve(job, started),
            Ok(Err(JobError::NoMemory)) => self.queue.wait_for_memory(job, num_freed),
            Ok(Err(JobError::TurnOver)) => self.wait_for(job.turn.next(), job),
            Ok(Err(JobError::GoesApart)) => self.wait_for(Turn::first(Arena::Apart), job),
            Ok(Err(JobError::Grammar(error))) => self.refuse(job, compiler.stage(), &error),
            Err(panic) => {
                let message = format!("compiling the grammar panicked: {}", panic_message(panic));
                let error = RequestError::new(RequestErrorCode::InternalError, message);
                answer(job, Err(error), &self.done);
            }
        }
    }

    /// A job's grammar is there: `started`, or that of its running request. Those that waited for it go on, with a
    /// grammar that was known when they came if it was known when that came.
    fn serve(&self, mut job: CompileJob, mut started: Option<Box<StructuredOutputRequest>>) {
        if let (Some(started), Some(bin)) = (&mut started, &self.bin) {
            started.end_in(bin.clone());
        }
        if let Some(first) = job.first.take() {
            let min_tokens = started.as_ref().and_then(|r| r.min_tokens_if_required());
            let is_measured = !matches!(min_tokens, Some(MinTokens::AtLeast(_)));
            for mut waited in first.serve(is_measured) {
                waited.was_known = job.was_known;
                // Without threads nobody waits for an answer.
                let _ = self.queue.send(waited);
            }
        }
        answer(job, Ok(started), &self.done);
    }

    /// A job is refused, and so are those that waited for it and go through the same stage. Where others may fare
    /// better, the next one of them is worked on.
    fn refuse(&self, mut job: CompileJob, stage: Stage, error: &CompileGrammarError) {
        if *error == CompileGrammarError::Compile(CompileError::Cancelled) {
            return;
        }
        if is_lasting(error)
            && stage != Stage::Replaying
            && let Some(first) = job.first.take()
        {
            for mut waited in first.refuse(stage, error) {
                waited.was_known = job.was_known;
                refuse(waited, error, &self.done);
            }
        }
        refuse(job, error, &self.done);
    }

    /// Lets a job wait for a turn. Where there are no threads any more, nobody waits for its answer.
    fn wait_for(&self, turn: Turn, job: CompileJob) {
        let turn = turn.for_text(job.source_bytes);
        let _ = self.queue.send(CompileJob { turn, ..job });
    }
}

#[cfg(test)]
mod tests;
