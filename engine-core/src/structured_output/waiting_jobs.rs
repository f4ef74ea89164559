//! Jobs that wait for memory: enough grammars have memory of their own, and one of them has to end
//! first.

use std::sync::{Arc, Mutex};

use super::backend::StructuredOutputBackend;
use super::compile_job::CompileJob;
use super::compile_lanes::CompileLanes;
use crate::lock::lock;

/// The jobs, until there is memory. Clones are one queue.
#[derive(Clone)]
pub(super) struct WaitingJobs {
    state: Arc<Mutex<State>>,
    /// Where a job goes that tries again.
    lanes: Arc<CompileLanes>,
    /// Whose memory it is.
    backend: Arc<dyn StructuredOutputBackend>,
}

#[derive(Default)]
struct State {
    waiting: Vec<CompileJob>,
    /// How often a grammar went and there was memory then.
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
    /// No jobs. Those that have waited go to `lanes`.
    pub(super) fn new(lanes: Arc<CompileLanes>, backend: Arc<dyn StructuredOutputBackend>) -> Self {
        Self {
            state: Arc::default(),
            lanes,
            backend,
        }
    }

    /// To be asked before a job looks for memory.
    pub(super) fn num_gone(&self) -> NumGone {
        NumGone(lock(&self.state).num_gone)
    }

    /// Keeps a job that has found no memory until a grammar is gone: since before it looked for it. Those
    /// that nobody waits for any more go.
    pub(super) fn wait(&self, job: CompileJob, before: NumGone) {
        let mut state = lock(&self.state);
        let is_cancelled = |job: &mut CompileJob| job.cancel.is_cancelled();
        let cancelled: Vec<CompileJob> = state.waiting.extract_if(.., is_cancelled).collect();
        state.waiting.push(job);
        let again = match state.num_gone == before.0 {
            true => Vec::new(),
            false => std::mem::take(&mut state.waiting),
        };
        drop(state);
        // Without the lock: each grammar that goes with them tells of its end.
        drop(cancelled);
        self.try_again(again);
    }

    /// A grammar is gone. Most had no memory of their own, and where none is free then, a job that looks for
    /// it does much for nothing.
    fn gone(&self) {
        if !self.backend.has_own_memory() {
            return;
        }
        let mut state = lock(&self.state);
        state.num_gone += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.try_again(waiting);
    }

    /// Lets jobs look again: which of them still have a request is not known here. Without the lock:
    /// where no thread is left to take a job, its own grammar goes.
    fn try_again(&self, waiting: Vec<CompileJob>) {
        for job in waiting {
            // Without threads nobody waits for an answer.
            let _ = self.lanes.send(job);
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use crossbeam_channel::TryRecvError;

    use super::super::testing::{self, Memory};
    use super::super::turn::{Duty, Turn};
    use super::*;

    #[test]
    fn jobs_look_again_when_there_is_memory() {
        let lanes = Arc::new(CompileLanes::new(8));
        let memory = Arc::new(Memory(AtomicBool::new(true)));
        let backend: Arc<dyn StructuredOutputBackend> = Arc::clone(&memory) as _;
        let waiting = WaitingJobs::new(Arc::clone(&lanes), backend);
        let job = |id: &str, duty| CompileJob {
            turn: Turn::first(duty),
            ..testing::job(id).0
        };
        let next_of = |duty| lanes.try_next_job(duty).map(|job| job.request_id);
        let grammar = waiting.tell_when_gone();
        waiting.wait(job("a", Duty::Compile), waiting.num_gone());
        waiting.wait(job("b", Duty::Apart), waiting.num_gone());
        assert_eq!(next_of(Duty::Compile), None);
        // Another grammar than those that have the memory.
        memory.0.store(false, Ordering::Relaxed);
        drop(waiting.tell_when_gone());
        assert_eq!(next_of(Duty::Compile), None);
        memory.0.store(true, Ordering::Relaxed);
        drop(grammar);
        assert_eq!(next_of(Duty::Compile).as_deref(), Some("a"));
        assert_eq!(next_of(Duty::Apart).as_deref(), Some("b"));
        // Who waits no more leaves when the next one comes.
        let (aborted, answer) = testing::job("aborted");
        aborted.cancel.cancel();
        waiting.wait(aborted, waiting.num_gone());
        waiting.wait(job("d", Duty::Apart), waiting.num_gone());
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Disconnected));
        // Gone between its look and its wait.
        let before = waiting.num_gone();
        drop(waiting.tell_when_gone());
        waiting.wait(job("c", Duty::Compile), before);
        assert_eq!(next_of(Duty::Compile).as_deref(), Some("c"));
        assert_eq!(next_of(Duty::Compile), None);
    }
}
