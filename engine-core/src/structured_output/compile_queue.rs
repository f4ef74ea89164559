//! The queue of the compile threads.
//!
//! The job with the shortest turn goes first, of equals the one that came last. Once as much work was done ahead of
//! the job that waits longest as its own turn is, that one goes first. So whoever comes waits for no crowd, be it one
//! of long jobs or of short ones, and nobody waits for ever: who waits longest has half of each thread's work.
//!
//! Jobs of running requests and of new ones alternate, each by this rule, so that neither holds up the others.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::compile_job::{CompileJob, Purpose};
use super::turn::{Arena, BYTES_OF_TURN};
use crate::lock::lock;

/// A further long text is begun while those that are begun and unfinished have fewer bytes together. What was computed
/// for them is in memory that all share: more of them would fill it before any comes to its end, and all begin anew.
const MAX_BEGUN_BYTES: usize = 1 << 20;

/// The jobs that wait for the threads, and those that wait for memory.
pub(super) struct CompileQueue {
    state: Mutex<State>,
    /// Told of each job, of room for long texts, and of the end.
    changed: Condvar,
    max_new: usize,
}

#[derive(Default)]
struct State {
    /// In the order in which they came.
    jobs: VecDeque<CompileJob>,
    /// Jobs that found no memory of their own: enough other grammars have that, and one of these has to end.
    without_memory: VecDeque<CompileJob>,
    /// How often a grammar ended and there was memory then.
    num_freed: u64,
    /// Of the long texts that are begun and unfinished.
    begun_bytes: usize,
    is_closed: bool,
}

/// Why a job was not queued. It is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendError {
    /// So many wait already.
    Full(usize),
    /// There are no threads any more.
    Closed,
}

/// Which jobs a thread takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// First turns in memory that all share: such a thread is never long at work.
    Short,
    /// All turns in memory that all share.
    Shared,
    /// Turns in memory apart.
    Apart,
}

/// One thread's view of the queue: whose turn it is there.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) takes: Takes,
    was_running: bool,
    /// Fuel of the turns that it took ahead of the job that waits longest: of new requests, and of running ones.
    ahead_of_oldest: [u64; 2],
}

/// A long text that is begun: it counts until this is dropped, which locks the queue.
pub(super) struct BegunText {
    queue: Arc<CompileQueue>,
    num_bytes: usize,
}

impl CompileQueue {
    /// A queue without jobs. At most `max_new` new requests may wait for their grammars, and as many whose grammar
    /// was known when they came.
    pub(super) fn new(max_new: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            max_new,
        }
    }

    /// Queues a new request's job, where there is room for one. Those that nobody waits for any more take
    /// none.
    pub(super) fn send_new(&self, job: CompileJob) -> Result<(), SendError> {
        // Jobs end without the lock: with the last one of a grammar its memory goes, and others are told.
        let mut cancelled = VecDeque::new();
        let mut state = lock(&self.state);
        let mut num_queued = state.num_new(job.was_known);
        if num_queued >= self.max_new {
            cancelled = take_cancelled(&mut state.jobs);
            num_queued = state.num_new(job.was_known);
        }
        let sent = match num_queued >= self.max_new {
            true => {
                drop(state);
                Err(SendError::Full(num_queued))
            }
            false => self.push(state, job),
        };
        drop(cancelled);
        sent
    }

    /// Queues a job that was begun, that of a running request, or of one that was let in before.
    pub(super) fn send(&self, mut job: CompileJob) -> Result<(), SendError> {
        if job.turn.arena == Arena::Apart {
            job.begun_text = None;
        }
        self.push(lock(&self.state), job)
    }

    fn push(&self, mut state: MutexGuard<'_, State>, job: CompileJob) -> Result<(), SendError> {
        if state.is_closed {
            drop(state);
            return Err(SendError::Closed);
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Sleeps until there is a job for a thread; `None` where there will be no more.
    pub(super) fn next_job(self: &Arc<Self>, worker: &mut Worker) -> Option<CompileJob> {
        let mut state = lock(&self.state);
        while !state.is_closed {
            let job = self.take(&mut state, worker);
            if job.is_some() {
                return job;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// A job that is there for a thread.
    #[cfg(test)]
    pub(super) fn try_next_job(self: &Arc<Self>, worker: &mut Worker) -> Option<CompileJob> {
        self.take(&mut lock(&self.state), worker)
    }

    fn take(self: &Arc<Self>, state: &mut State, worker: &mut Worker) -> Option<CompileJob> {
        let may_begin_long = state.begun_bytes < MAX_BEGUN_BYTES;
        let index = worker.choose(&state.jobs, may_begin_long)?;
        let mut job = state.jobs.remove(index)?;
        if job.is_long_to_begin() {
            state.begun_bytes += job.source_bytes;
            job.begun_text = Some(BegunText {
                queue: Arc::clone(self),
                num_bytes: job.source_bytes,
            });
        }
        Some(job)
    }

    /// How often memory was freed: to be asked before a job looks for memory of its own.
    pub(super) fn num_freed(&self) -> u64 {
        lock(&self.state).num_freed
    }

    /// Keeps a job that has found no memory until some is freed: since `num_freed` was told. Those that
    /// nobody waits for any more go.
    pub(super) fn wait_for_memory(&self, mut job: CompileJob, num_freed: u64) {
        // It may wait for long, and others are begun meanwhile.
        job.begun_text = None;
        let mut state = lock(&self.state);
        let cancelled = take_cancelled(&mut state.without_memory);
        if state.is_closed {
            drop(state);
            return;
        }
        match state.num_freed == num_freed {
            true => state.without_memory.push_back(job),
            false => state.jobs.push_back(job),
        }
        drop(state);
        drop(cancelled);
        self.changed.notify_all();
    }

    /// There may be memory now: lets those look again that wait for it.
    pub(super) fn memory_freed(&self) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.num_freed += 1;
        state.jobs.append(&mut state.without_memory);
        drop(guard);
        self.changed.notify_all();
    }

    /// Lets the threads end.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let left = (
            std::mem::take(&mut state.jobs),
            std::mem::take(&mut state.without_memory),
        );
        drop(state);
        self.changed.notify_all();
        drop(left);
    }
}

/// Takes the jobs out that nobody waits for any more; the others stay in their order.
pub(super) fn take_cancelled(jobs: &mut VecDeque<CompileJob>) -> VecDeque<CompileJob> {
    let (gone, awaited) = std::mem::take(jobs)
        .into_iter()
        .partition(|job| job.cancel.is_cancelled());
    *jobs = awaited;
    gone
}

impl State {
    /// New requests' jobs: those whose grammar was known when they came, or the others.
    fn num_new(&self, was_known: bool) -> usize {
        let is_such = |job: &&CompileJob| !job.is_running() && job.was_known == was_known;
        self.jobs.iter().filter(is_such).count()
    }
}

impl CompileJob {
    /// True if a running request waits for it.
    fn is_running(&self) -> bool {
        matches!(self.purpose, Purpose::Aside(_))
    }

    /// True if it has a long text to compile in memory that all share, of which nothing was read yet.
    fn is_long_to_begin(&self) -> bool {
        let is_long = self.source_bytes >= BYTES_OF_TURN && !self.turn.is_short();
        is_long && self.turn.arena == Arena::Shared && self.begun_text.is_none()
    }
}

impl Worker {
    pub(super) fn new(takes: Takes) -> Self {
        Self {
            takes,
            was_running: false,
            ahead_of_oldest: [0; 2],
        }
    }

    fn may_take(&self, job: &CompileJob) -> bool {
        match self.takes {
            Takes::Short => job.turn.is_short(),
            Takes::Shared => job.turn.arena == Arena::Shared,
            Takes::Apart => job.turn.arena == Arena::Apart,
        }
    }

    /// Whose turn it is of the jobs, which are in the order in which they came.
    fn choose(&mut self, jobs: &VecDeque<CompileJob>, may_begin_long: bool) -> Option<usize> {
        let may_take =
            |job: &CompileJob| self.may_take(job) && (may_begin_long || !job.is_long_to_begin());
        let of = |is_running| {
            let turns = jobs.iter().enumerate();
            turns
                .filter(move |(_, job)| job.is_running() == is_running && may_take(job))
                .map(|(index, job)| (index, job.turn.fuel()))
        };
        let others = !self.was_running;
        let is_running = match of(others).next() {
            Some(_) => others,
            None => self.was_running,
        };
        let oldest = of(is_running).next()?;
        let shortest = of(is_running).min_by_key(|&(index, fuel)| (fuel, Reverse(index)))?;
        self.was_running = is_running;
        let [of_new, of_running] = &mut self.ahead_of_oldest;
        let ahead = if is_running { of_running } else { of_new };
        let (index, fuel) = match *ahead >= oldest.1 {
            true => oldest,
            false => shortest,
        };
        *ahead = match index == oldest.0 {
            true => 0,
            false => *ahead + fuel,
        };
        Some(index)
    }
}

impl Drop for BegunText {
    fn drop(&mut self) {
        lock(&self.queue.state).begun_bytes -= self.num_bytes;
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
