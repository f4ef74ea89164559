//! The queues of the compile threads. What running requests wait for and what new ones wait for take
//! turns. Of either those come first that have taken little work so far and have no long text to read, so
//! that nobody is held up by what takes long; and once they have had as much work as a turn of whoever waits
//! longest is, that has it, so that this comes to its end as well.
//!
//! Long texts have a queue of their own before their first turn. Short ones pass by on a thread that begins
//! those first; and only some long ones are begun at a time, since what was computed for them is in memory
//! that all share: a crowd of them would fill it before any comes to its end, and begin anew.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::compile_job::{CompileJob, Purpose};
use super::turn::Duty;
use crate::lock::lock;

/// Places of long texts that are begun, and go on in memory that all share: a text of 16 KiB takes one, one
/// that is twice as long two, and so on. A further one is begun where others leave it a place.
const MAX_LONG: usize = 64;

/// After so many turns of others one more is begun: those that are may be hostile.
const TURNS_PER_LONG: u32 = 32;

/// How much work a long text may be whose first turn is taken where short ones are begun, since those wait
/// for it.
const MAX_WEIGHT_BESIDE_SHORT: u32 = 2;

/// How soon a thread looks again where only long texts wait: the end of one that was begun tells nobody.
const LONG_POLL: Duration = Duration::from_millis(20);

/// The jobs that wait for the threads.
pub(super) struct CompileLanes {
    state: Mutex<State>,
    /// Told of each job, and of the end.
    changed: Condvar,
    max_queued: usize,
}

#[derive(Default)]
struct State {
    answer: Lane,
    begin: Lane,
    /// Those to be begun that have long texts.
    begin_long: Lane,
    compile: Lane,
    apart: Lane,
    /// One more for each place of a long text that was begun.
    long: Arc<()>,
    /// Turns since the last one was begun.
    num_turns: u32,
    is_turn_of_newest: bool,
    is_turn_of_long: bool,
    is_closed: bool,
}

/// What waits for threads with a duty.
#[derive(Default)]
struct Lane {
    /// Jobs of requests that were admitted: no more than there are such requests.
    admitted: Queue,
    /// Jobs of those that were not.
    new: Queue,
    is_turn_of_new: bool,
}

/// Jobs in the order in which they came.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<CompileJob>,
    /// Work that those with the least to do have had since the last turn of who waits longest, in first turns.
    passed: u64,
}

/// Why a job was not queued. It is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendError {
    /// So many wait already.
    Full(usize),
    /// There are no threads any more.
    Closed,
}

impl CompileLanes {
    /// Lanes without jobs. At most `max_queued` new requests may wait for their grammars, and as many for
    /// grammars that are compiled already.
    pub(super) fn new(max_queued: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            max_queued,
        }
    }

    /// Queues a new request's job, where there is room for one. Those that nobody waits for any more take
    /// none.
    pub(super) fn send_new(&self, job: CompileJob) -> Result<(), SendError> {
        // Jobs end without the lock: with the last one of a grammar its memory goes, and others are told.
        let mut cancelled = Vec::new();
        let mut state = lock(&self.state);
        let is_ready = job.turn.duty == Duty::Answer;
        if state.num_new(is_ready) >= self.max_queued {
            cancelled = state.take_cancelled();
        }
        let num_queued = state.num_new(is_ready);
        let sent = match num_queued >= self.max_queued {
            true => Err(SendError::Full(num_queued)),
            false => Ok(state.push(job)),
        };
        drop(state);
        drop(cancelled);
        self.changed.notify_all();
        match sent? {
            Some(_) => Err(SendError::Closed),
            None => Ok(()),
        }
    }

    /// Queues a job that was begun, that of a running request, or of one that was let in before.
    pub(super) fn send(&self, job: CompileJob) -> Result<(), SendError> {
        let left = lock(&self.state).push(job);
        self.changed.notify_all();
        match left {
            Some(_) => Err(SendError::Closed),
            None => Ok(()),
        }
    }

    /// Sleeps until there is a job for a thread with a duty; `None` where there will be no more.
    pub(super) fn next_job(&self, duty: Duty) -> Option<CompileJob> {
        let mut state = lock(&self.state);
        while !state.is_closed {
            let job = state.next_job(duty);
            if job.is_some() {
                return job;
            }
            state = match state.begin_long.new.jobs.is_empty() {
                true => {
                    let woken = self.changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                false => {
                    let woken = self.changed.wait_timeout(state, LONG_POLL);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        None
    }

    /// A job that is there for a thread with a duty.
    #[cfg(test)]
    pub(super) fn try_next_job(&self, duty: Duty) -> Option<CompileJob> {
        lock(&self.state).next_job(duty)
    }

    /// Lets the threads end.
    pub(super) fn close(&self) {
        let closed = State {
            is_closed: true,
            ..State::default()
        };
        let left = std::mem::replace(&mut *lock(&self.state), closed);
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
    fn lane_of(&mut self, job: &CompileJob) -> &mut Lane {
        match job.turn.duty {
            Duty::Answer => &mut self.answer,
            Duty::Begin if job.weight() > 0 => &mut self.begin_long,
            Duty::Begin => &mut self.begin,
            Duty::Compile => &mut self.compile,
            Duty::Apart => &mut self.apart,
        }
    }

    /// New requests' jobs: those whose grammar is compiled, or the others.
    fn num_new(&self, is_ready: bool) -> usize {
        let num_new = |lane: &Lane| lane.new.jobs.len();
        match is_ready {
            true => num_new(&self.answer),
            false => {
                let begun = num_new(&self.compile) + num_new(&self.apart);
                num_new(&self.begin) + num_new(&self.begin_long) + begun
            }
        }
    }

    /// Queues a job; it comes back where there are no threads any more.
    fn push(&mut self, job: CompileJob) -> Option<CompileJob> {
        if self.is_closed {
            return Some(job);
        }
        let turn = job.turn.for_text(job.weight_of_text());
        let mut job = CompileJob { turn, ..job };
        if job.turn.duty == Duty::Apart {
            job.long_places.clear();
        }
        let lane = self.lane_of(&job);
        let queue = match &job.purpose {
            Purpose::Aside(_) => &mut lane.admitted,
            Purpose::Start { .. } => &mut lane.new,
        };
        queue.jobs.push_back(job);
        None
    }

    fn next_job(&mut self, duty: Duty) -> Option<CompileJob> {
        let job = match duty {
            Duty::Answer => self.answer.next(),
            Duty::Begin => {
                let short = self.begin.next();
                short.or_else(|| self.begin_long(Some(MAX_WEIGHT_BESIDE_SHORT)))
            }
            // Every other turn, where there are such; and others are begun where there is nothing to go on
            // with.
            Duty::Compile => {
                self.is_turn_of_long = !self.is_turn_of_long;
                let is_turn_of_long = self.is_turn_of_long;
                let long = is_turn_of_long.then(|| self.begin_long(None));
                long.flatten()
                    .or_else(|| self.compile.next())
                    .or_else(|| self.begin.next())
                    .or_else(|| self.begin_long(None))
            }
            Duty::Apart => self.apart.next(),
        };
        self.num_turns = self.num_turns.saturating_add(u32::from(job.is_some()));
        job
    }

    /// A long text to begin with, unless enough of them are under way; of those that are no more work than a
    /// weight, where there is one. By turns it is the newest and one of the others, so that who comes after
    /// a crowd doesn't wait for all of it.
    fn begin_long(&mut self, max_weight: Option<u32>) -> Option<CompileJob> {
        let num_long = Arc::strong_count(&self.long) - 1;
        if num_long >= MAX_LONG && self.num_turns < TURNS_PER_LONG {
            return None;
        }
        let long = &mut self.begin_long.new;
        let newest = self
            .is_turn_of_newest
            .then_some(max_weight.unwrap_or(u32::MAX));
        let newest = newest.and_then(|max_weight| long.newest_within(max_weight));
        let mut job = newest.or_else(|| match max_weight {
            Some(max_weight) => long.lightest_within(max_weight),
            None => long.next(),
        })?;
        self.is_turn_of_newest = !self.is_turn_of_newest;
        self.num_turns = 0;
        if job.long_places.is_empty() {
            let num_places = 1 << job.weight_of_text().saturating_sub(1).min(MAX_LONG.ilog2());
            job.long_places = vec![Arc::clone(&self.long); num_places];
        }
        Some(job)
    }

    /// Takes the new requests' jobs out that nobody waits for.
    fn take_cancelled(&mut self) -> Vec<CompileJob> {
        let mut cancelled = Vec::new();
        for lane in [
            &mut self.answer,
            &mut self.begin,
            &mut self.begin_long,
            &mut self.compile,
            &mut self.apart,
        ] {
            cancelled.extend(take_cancelled(&mut lane.new.jobs));
        }
        cancelled
    }
}

impl Lane {
    fn next(&mut self) -> Option<CompileJob> {
        let queues = match self.is_turn_of_new {
            false => [&mut self.admitted, &mut self.new],
            true => [&mut self.new, &mut self.admitted],
        };
        let job = queues.into_iter().find_map(Queue::next)?;
        self.is_turn_of_new = matches!(job.purpose, Purpose::Aside(_));
        Some(job)
    }
}

impl Queue {
    /// The job with the least to do in its turn, if that is no more than such a weight.
    fn lightest_within(&mut self, max_weight: u32) -> Option<CompileJob> {
        let weight = |&index: &usize| self.jobs.get(index).map(CompileJob::weight);
        let lightest = (0..self.jobs.len()).min_by_key(weight)?;
        let is_within = weight(&lightest)? <= max_weight;
        is_within.then(|| self.jobs.remove(lightest)).flatten()
    }

    /// The job that came last, if it has no more to do than such a weight.
    fn newest_within(&mut self, max_weight: u32) -> Option<CompileJob> {
        let is_within = self.jobs.back()?.weight() <= max_weight;
        is_within.then(|| self.jobs.pop_back()).flatten()
    }

    /// The job with the least to do in its turn; or the one that came first, once such have had as much work
    /// as its turn is.
    fn next(&mut self) -> Option<CompileJob> {
        let work = |index: usize| {
            self.jobs
                .get(index)
                .map(|job| 1_u64 << job.weight().min(32))
        };
        let lightest = (0..self.jobs.len()).min_by_key(|&index| work(index))?;
        let index = match self.passed >= work(0)? {
            true => 0,
            false => lightest,
        };
        self.passed = match index {
            0 => 0,
            _ => self.passed + work(index)?,
        };
        self.jobs.remove(index)
    }
}
