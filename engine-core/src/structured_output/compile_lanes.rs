//! The queues of the compile threads. What running requests wait for and what new ones wait for take
//! turns. Of either those come first that have taken little work so far and have no long text to read, so
//! that nobody is held up by what takes long; and every other time the one that waits longest, so that this
//! comes to its end as well.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::compile_job::{CompileJob, Purpose};
use super::turn::Duty;
use crate::lock::lock;

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
    compile: Lane,
    apart: Lane,
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
    is_turn_of_oldest: bool,
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
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
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
    fn lane(&mut self, duty: Duty) -> &mut Lane {
        match duty {
            Duty::Answer => &mut self.answer,
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
            false => num_new(&self.begin) + num_new(&self.compile) + num_new(&self.apart),
        }
    }

    /// Queues a job; it comes back where there are no threads any more.
    fn push(&mut self, job: CompileJob) -> Option<CompileJob> {
        if self.is_closed {
            return Some(job);
        }
        let lane = self.lane(job.turn.duty);
        let queue = match &job.purpose {
            Purpose::Aside(_) => &mut lane.admitted,
            Purpose::Start { .. } => &mut lane.new,
        };
        queue.jobs.push_back(job);
        None
    }

    fn next_job(&mut self, duty: Duty) -> Option<CompileJob> {
        let job = self.lane(duty).next();
        // Who goes on with grammars begins others where there is nothing to go on with.
        match duty {
            Duty::Compile => job.or_else(|| self.begin.next()),
            Duty::Answer | Duty::Begin | Duty::Apart => job,
        }
    }

    /// Takes the new requests' jobs out that nobody waits for.
    fn take_cancelled(&mut self) -> Vec<CompileJob> {
        let mut cancelled = Vec::new();
        for lane in [
            &mut self.answer,
            &mut self.begin,
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
    /// The job with the least to do in its turn, and the next time the one that came first.
    fn next(&mut self) -> Option<CompileJob> {
        let by_weight = |&index: &usize| self.jobs.get(index).map(CompileJob::weight);
        let index = match self.is_turn_of_oldest {
            true => 0,
            false => (0..self.jobs.len()).min_by_key(by_weight)?,
        };
        let job = self.jobs.remove(index)?;
        self.is_turn_of_oldest = !self.is_turn_of_oldest;
        Some(job)
    }
}
