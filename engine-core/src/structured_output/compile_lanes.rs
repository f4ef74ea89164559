//! The queues of the compile threads: what is large doesn't hold up what is small, and what is compiled
//! already waits for no compilation.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select, unbounded};

use super::compile_job::{CompileJob, Duty};

/// Constraints whose source has more bytes than this are large: how long they take is not known
/// beforehand, but seconds take a source of this size, mostly.
const MAX_SMALL_BYTES: usize = 64 << 10;

/// Where jobs go. The threads end when it is dropped.
pub(super) struct CompileLanes {
    /// What is compiled already.
    ready: Sender<CompileJob>,
    small: Sender<CompileJob>,
    large: Sender<CompileJob>,
    renewals: Renewals,
}

/// Where jobs go that were begun: before the others of their lane. No more of them than requests in
/// flight.
#[derive(Clone)]
pub(super) struct Renewals {
    pub(super) small: Sender<CompileJob>,
    pub(super) large: Sender<CompileJob>,
    /// What takes long in memory apart.
    pub(super) apart: Sender<CompileJob>,
}

/// Whose jobs a thread does. In each lane they keep their order.
#[derive(Clone)]
pub(super) struct ServedLanes {
    ready: Receiver<CompileJob>,
    small: Receiver<CompileJob>,
    large: Receiver<CompileJob>,
    small_renewals: Receiver<CompileJob>,
    large_renewals: Receiver<CompileJob>,
    apart: Receiver<CompileJob>,
    /// What these jobs allow.
    pub(super) duty: Duty,
}

impl CompileLanes {
    /// Lanes in each of which `max_queued` jobs may wait, and what each of the threads serves: of
    /// `num_threads` all but one serve the large jobs too. There are one more for these where
    /// there is only one, one more for what is compiled already, and two for what takes long.
    pub(super) fn new(num_threads: usize, max_queued: usize) -> (Self, Vec<ServedLanes>) {
        let (ready, ready_queue) = bounded(max_queued);
        let (small, small_queue) = bounded(max_queued);
        let (large, large_queue) = bounded(max_queued);
        let (small_renewals, small_renewals_queue) = unbounded();
        let (large_renewals, large_renewals_queue) = unbounded();
        let (apart, apart_queue) = unbounded();
        let none = ServedLanes {
            ready: never(),
            small: never(),
            large: never(),
            small_renewals: never(),
            large_renewals: never(),
            apart: never(),
            duty: Duty::Compile,
        };
        let only_small = ServedLanes {
            small: small_queue,
            small_renewals: small_renewals_queue,
            ..none.clone()
        };
        let only_large = ServedLanes {
            large: large_queue.clone(),
            large_renewals: large_renewals_queue.clone(),
            ..none.clone()
        };
        let both = ServedLanes {
            large: large_queue,
            large_renewals: large_renewals_queue,
            ..only_small.clone()
        };
        let only_ready = ServedLanes {
            ready: ready_queue,
            duty: Duty::Ready,
            ..none.clone()
        };
        let only_apart = ServedLanes {
            apart: apart_queue,
            duty: Duty::Apart,
            ..none
        };
        let mut served = vec![only_ready, only_small, only_apart.clone(), only_apart];
        match num_threads {
            0 | 1 => served.push(only_large),
            _ => served.extend(std::iter::repeat_n(both, num_threads - 1)),
        }
        let lanes = Self {
            ready,
            small,
            large,
            renewals: Renewals {
                small: small_renewals,
                large: large_renewals,
                apart,
            },
        };
        (lanes, served)
    }

    /// Queues a job in its lane.
    ///
    /// # Errors
    /// The lane is full (then the number of jobs in it), or its threads are gone.
    pub(super) fn try_send(
        &self,
        job: CompileJob,
        is_ready: bool,
    ) -> Result<(), TrySendError<usize>> {
        let lane = match (is_ready, is_large(&job)) {
            (true, _) => &self.ready,
            (false, false) => &self.small,
            (false, true) => &self.large,
        };
        lane.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => TrySendError::Full(lane.len()),
            TrySendError::Disconnected(_) => TrySendError::Disconnected(0),
        })
    }

    /// Where jobs go that were begun.
    pub(super) fn renewals(&self) -> &Renewals {
        &self.renewals
    }
}

impl Renewals {
    /// Queues a job for threads with a duty; false where there are none any more.
    pub(super) fn send(&self, job: CompileJob, duty: Duty) -> bool {
        let lane = match (duty, is_large(&job)) {
            (Duty::Apart, _) => &self.apart,
            (Duty::Ready | Duty::Compile, true) => &self.large,
            (Duty::Ready | Duty::Compile, false) => &self.small,
        };
        lane.send(job).is_ok()
    }
}

impl ServedLanes {
    /// Sleeps until there is a job; `None` where there will be no more.
    pub(super) fn next_job(&self) -> Option<CompileJob> {
        for renewals in [&self.small_renewals, &self.large_renewals] {
            if let Ok(job) = renewals.try_recv() {
                return Some(job);
            }
        }
        select! {
            recv(self.small_renewals) -> job => job.ok(),
            recv(self.large_renewals) -> job => job.ok(),
            recv(self.apart) -> job => job.ok(),
            recv(self.ready) -> job => job.ok(),
            recv(self.small) -> job => job.ok(),
            recv(self.large) -> job => job.ok(),
        }
    }
}

/// Whether a compilation may take long.
fn is_large(job: &CompileJob) -> bool {
    job.params
        .structured_outputs
        .as_ref()
        .is_some_and(|structured_outputs| {
            let (_, sources) = structured_outputs.constraint.specification();
            sources.iter().map(String::len).sum::<usize>() > MAX_SMALL_BYTES
        })
}
