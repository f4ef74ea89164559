//! The queues of the compile threads. What running requests wait for and what new ones wait for take
//! turns; and of new ones those come first that have taken little work so far. How much a constraint takes
//! is not seen beforehand, so each is begun with little, and goes on behind others where that doesn't
//! suffice.

use std::cell::Cell;
use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select, unbounded};

use super::compile_job::{CompileJob, Duty, Purpose};

/// Where new jobs go. The threads end when it is dropped.
pub(super) struct CompileLanes {
    lanes: BegunLanes,
    max_queued: usize,
    _open: Sender<Infallible>,
}

/// Where jobs go that were begun, and those of running requests: of these no more than there are requests.
#[derive(Clone)]
pub(super) struct BegunLanes {
    answer: Lane,
    begin: Lane,
    compile: Lane,
    apart: Lane,
}

/// What waits for threads with a duty.
#[derive(Clone)]
struct Lane {
    /// Jobs of requests that were admitted.
    admitted: Sender<CompileJob>,
    /// Jobs of those that were not.
    new: Sender<CompileJob>,
}

/// Whose jobs a thread does: those of two queues in turns, where both have some. Each keeps its order.
#[derive(Clone)]
pub(super) struct ServedLane {
    admitted: Receiver<CompileJob>,
    new: Receiver<CompileJob>,
    /// Of another lane, where there is nothing else to do.
    spare: Receiver<CompileJob>,
    open: Receiver<Infallible>,
    is_turn_of_new: Cell<bool>,
    /// What these jobs allow.
    pub(super) duty: Duty,
}

impl CompileLanes {
    /// Lanes, and what each of the threads serves. At most `max_queued` new requests wait for their
    /// grammars, and as many for grammars that are compiled already (some more where several threads
    /// submit them at the same time). Of `num_threads` one begins new grammars, and all others, of which
    /// there is one at least, go on with those that were begun, and begin some where there are none. One
    /// more has the answers of running requests and what is compiled already, and two have what takes
    /// long.
    pub(super) fn new(num_threads: usize, max_queued: usize) -> (Self, Vec<ServedLane>) {
        let (_open, open) = bounded(0);
        let lane = |duty| {
            let (admitted, admitted_queue) = unbounded();
            let (new, new_queue) = unbounded();
            let served = ServedLane {
                admitted: admitted_queue,
                new: new_queue,
                spare: never(),
                open: open.clone(),
                is_turn_of_new: Cell::new(false),
                duty,
            };
            (Lane { admitted, new }, served)
        };
        let (answer, serves_answer) = lane(Duty::Answer);
        let (begin, serves_begin) = lane(Duty::Begin);
        let (compile, mut serves_compile) = lane(Duty::Compile);
        serves_compile.spare = serves_begin.new.clone();
        let (apart, serves_apart) = lane(Duty::Apart);
        let mut served = vec![serves_answer, serves_begin];
        served.extend([serves_apart.clone(), serves_apart]);
        let num_compiling = num_threads.saturating_sub(1).max(1);
        served.extend(std::iter::repeat_n(serves_compile, num_compiling));
        let lanes = BegunLanes {
            answer,
            begin,
            compile,
            apart,
        };
        let lanes = Self {
            lanes,
            max_queued,
            _open,
        };
        (lanes, served)
    }

    /// Queues a new request's job.
    ///
    /// # Errors
    /// Enough wait already (then how many), or the threads are gone. The job is, too.
    pub(super) fn try_send(
        &self,
        job: CompileJob,
        is_ready: bool,
    ) -> Result<(), TrySendError<usize>> {
        let lanes = &self.lanes;
        let num_queued = match is_ready {
            true => lanes.answer.new.len(),
            false => lanes.begin.new.len() + self.num_begun(),
        };
        if num_queued >= self.max_queued {
            return Err(TrySendError::Full(num_queued));
        }
        let duty = match is_ready {
            true => Duty::Answer,
            false => Duty::Begin,
        };
        match lanes.send(job, duty) {
            true => Ok(()),
            false => Err(TrySendError::Disconnected(num_queued)),
        }
    }

    /// New requests' jobs that were begun and wait for a thread to go on.
    pub(super) fn num_begun(&self) -> usize {
        self.lanes.compile.new.len() + self.lanes.apart.new.len()
    }

    /// Where jobs go that were begun.
    pub(super) fn begun(&self) -> &BegunLanes {
        &self.lanes
    }
}

impl BegunLanes {
    /// Queues a job for threads with a duty; false, and the job is gone, where there are none any more.
    pub(super) fn send(&self, job: CompileJob, duty: Duty) -> bool {
        let lane = match duty {
            Duty::Answer => &self.answer,
            Duty::Begin => &self.begin,
            Duty::Compile => &self.compile,
            Duty::Apart => &self.apart,
        };
        let queue = match &job.purpose {
            Purpose::Aside(_) => &lane.admitted,
            Purpose::Start { .. } => &lane.new,
        };
        queue.send(job).is_ok()
    }
}

impl ServedLane {
    /// Sleeps until there is a job; `None` where there will be no more.
    pub(super) fn next_job(&self) -> Option<CompileJob> {
        let queues = match self.is_turn_of_new.get() {
            false => [&self.admitted, &self.new, &self.spare],
            true => [&self.new, &self.admitted, &self.spare],
        };
        let waiting = queues.iter().find_map(|queue| queue.try_recv().ok());
        let job = waiting.or_else(|| {
            select! {
                recv(self.admitted) -> job => job.ok(),
                recv(self.new) -> job => job.ok(),
                recv(self.spare) -> job => job.ok(),
                recv(self.open) -> _ => None,
            }
        })?;
        let was_admitted = matches!(job.purpose, Purpose::Aside(_));
        self.is_turn_of_new.set(was_admitted);
        Some(job)
    }
}
