//! Jobs that wait for memory: enough grammars have memory of their own, and one of them has to end
//! first.

use std::sync::{Arc, Mutex};

use super::compile_job::{CompileJob, Duty};
use super::compile_lanes::BegunLanes;
use crate::lock::lock;

/// The jobs, until a grammar is gone. Clones are one queue.
#[derive(Clone)]
pub(super) struct WaitingJobs {
    state: Arc<Mutex<State>>,
    /// Where a job goes that tries again.
    jobs: BegunLanes,
}

#[derive(Default)]
struct State {
    /// Jobs, and whose they are.
    waiting: Vec<(CompileJob, Duty)>,
    /// How often a grammar went.
    num_gone: u64,
}

/// Tells the jobs that a grammar is gone, when it is dropped: after the grammar.
pub(super) struct TellWhenGone {
    jobs: WaitingJobs,
}

/// How many grammars had gone at some time.
#[derive(Clone, Copy)]
pub(super) struct NumGone(u64);

impl WaitingJobs {
    /// No jobs. Those that have waited go to `jobs`.
    pub(super) fn new(jobs: BegunLanes) -> Self {
        Self {
            state: Arc::default(),
            jobs,
        }
    }

    /// To be asked before a job looks for memory.
    pub(super) fn num_gone(&self) -> NumGone {
        NumGone(lock(&self.state).num_gone)
    }

    /// Keeps a job that has found no memory until a grammar is gone: since before it looked for it.
    pub(super) fn wait(&self, job: CompileJob, duty: Duty, before: NumGone) {
        let mut state = lock(&self.state);
        state.waiting.push((job, duty));
        if state.num_gone != before.0 {
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            self.try_again(waiting);
        }
    }

    /// Hands a job to the threads with a duty.
    pub(super) fn do_elsewhere(&self, job: CompileJob, duty: Duty) {
        self.try_again(vec![(job, duty)]);
    }

    /// A grammar is gone.
    pub(super) fn gone(&self) {
        let mut state = lock(&self.state);
        state.num_gone += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.try_again(waiting);
    }

    /// Lets jobs look again: which of them still have a request is not known here. Without the lock:
    /// where no thread is left to take a job, its own grammar goes.
    fn try_again(&self, waiting: Vec<(CompileJob, Duty)>) {
        for (job, duty) in waiting {
            // Without threads nobody waits for an answer.
            self.jobs.send(job, duty);
        }
    }

    /// What tells of a grammar's end.
    pub(super) fn tell_when_gone(&self) -> TellWhenGone {
        TellWhenGone { jobs: self.clone() }
    }
}

impl Drop for TellWhenGone {
    fn drop(&mut self) {
        self.jobs.gone();
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
    use protocol::SamplingParams;
    use structured_output::CancelFlag;

    use super::super::compile_job::Purpose;
    use super::super::compile_lanes::CompileLanes;
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
            compile_seconds: None,
        }
    }

    #[test]
    fn jobs_look_again_when_a_grammar_is_gone() {
        let (lanes, served) = CompileLanes::new(2, 8);
        let waiting = WaitingJobs::new(lanes.begun().clone());
        let next_of = |duty| {
            let lane = served.iter().find(|lane| lane.duty == duty).unwrap();
            lane.next_job().unwrap().request_id
        };
        let grammar = waiting.tell_when_gone();
        waiting.wait(job("a"), Duty::Compile, waiting.num_gone());
        waiting.wait(job("b"), Duty::Apart, waiting.num_gone());
        assert_eq!(lanes.num_begun(), 0);
        drop(grammar);
        assert_eq!(lanes.num_begun(), 2);
        assert_eq!(&*next_of(Duty::Compile), "a");
        assert_eq!(&*next_of(Duty::Apart), "b");
        // Gone between its look and its wait.
        let before = waiting.num_gone();
        waiting.gone();
        waiting.wait(job("c"), Duty::Compile, before);
        assert_eq!(&*next_of(Duty::Compile), "c");
        assert_eq!(lanes.num_begun(), 0);
    }
}
