//! How many grammars may have memory of their own at a time: each can take as much as all that share
//! theirs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crossbeam_channel::Sender;

use super::compile_job::CompileJob;
use crate::lock::lock;

/// Most grammars with memory of their own.
const MAX_GRAMMARS: usize = 4;

/// Counts them, and keeps the jobs that wait until there are fewer. Clones are one count.
#[derive(Clone)]
pub(super) struct OwnMemory {
    state: Arc<Mutex<State>>,
}

struct State {
    in_use: usize,
    waiting: VecDeque<CompileJob>,
    /// Where a job goes that needs to wait no more.
    jobs: Sender<CompileJob>,
}

/// Leave for one grammar, until it is dropped.
pub(super) struct OwnMemoryPermit {
    memory: OwnMemory,
}

impl OwnMemory {
    /// A count of none. Jobs that have waited go to `jobs`.
    pub(super) fn new(jobs: Sender<CompileJob>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                in_use: 0,
                waiting: VecDeque::new(),
                jobs,
            })),
        }
    }

    /// Leave for one more, where that is not too many.
    pub(super) fn permit(&self) -> Option<OwnMemoryPermit> {
        let mut state = lock(&self.state);
        if state.in_use >= MAX_GRAMMARS {
            return None;
        }
        state.in_use += 1;
        drop(state);
        let memory = self.clone();
        Some(OwnMemoryPermit { memory })
    }

    /// Keeps a job that has got no permit until one is dropped.
    pub(super) fn wait(&self, job: CompileJob) {
        let mut state = lock(&self.state);
        state.waiting.push_back(job);
        state.wake_one();
    }
}

impl State {
    /// Lets one job try again, where there is room for it.
    fn wake_one(&mut self) {
        if self.in_use < MAX_GRAMMARS
            && let Some(job) = self.waiting.pop_front()
        {
            // Without threads nobody waits for an answer.
            let _ = self.jobs.send(job);
        }
    }
}

impl Drop for OwnMemoryPermit {
    fn drop(&mut self) {
        let mut state = lock(&self.memory.state);
        state.in_use -= 1;
        state.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{bounded, unbounded};
    use protocol::SamplingParams;
    use structured_output::CancelFlag;

    use super::super::compile_job::Purpose;
    use super::*;

    fn job(request_id: &str) -> CompileJob {
        CompileJob {
            request_id: request_id.into(),
            params: Arc::new(SamplingParams::default()),
            purpose: Purpose::Start {
                reasoning_ended: None,
                output_token_ids: Vec::new(),
            },
            cancel: CancelFlag::new(),
            compiled: bounded(1).0,
        }
    }

    #[test]
    fn a_permit_that_is_dropped_is_there_for_another() {
        let (sender, jobs) = unbounded();
        let memory = OwnMemory::new(sender);
        let mut permits: Vec<_> = (0..MAX_GRAMMARS)
            .map(|_| memory.permit().unwrap())
            .collect();
        assert!(memory.permit().is_none());
        memory.wait(job("a"));
        memory.wait(job("b"));
        assert!(jobs.is_empty());
        permits.pop();
        assert_eq!(&*jobs.try_recv().unwrap().request_id, "a");
        assert!(jobs.is_empty(), "one permit, one job");
        permits.push(memory.permit().unwrap());
        assert!(memory.permit().is_none());
        permits.clear();
        assert_eq!(&*jobs.try_recv().unwrap().request_id, "b");
        // One that comes too late to be woken by a permit.
        memory.wait(job("c"));
        assert_eq!(&*jobs.try_recv().unwrap().request_id, "c");
    }
}
