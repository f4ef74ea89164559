//! Requests with the same constraint: one of them is worked on while the others wait, and why it was
//! refused is remembered. So what is asked again and again is worked out once, failures included: those
//! too that show only where the start of a grammar is looked at.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use protocol::{SamplingParams, StructuredOutputsParams};

use super::backend::CompileGrammarError;
use super::compile_job::CompileJob;
use super::compile_lanes::CompileLanes;
use super::turn::{Duty, Turn};
use crate::lock::lock;

/// Refusals that are remembered, at most.
const MAX_REFUSED: usize = 1024;

/// Bytes of the constraints that were refused, at most.
const MAX_REFUSED_BYTES: usize = 8 << 20;

/// Who waits for whom, and what was refused. Clones are one.
#[derive(Clone)]
pub(super) struct SameConstraints {
    state: Arc<Mutex<State>>,
    /// Where a job goes that comes after one that nobody waits for any more.
    lanes: Arc<CompileLanes>,
    max_waiting: usize,
}

#[derive(Default)]
struct State {
    known: HashMap<Constraint, Known>,
    /// Constraints that were refused, the oldest first.
    refused: VecDeque<Constraint>,
    refused_bytes: usize,
    /// Jobs that wait, of all constraints.
    num_waiting: usize,
    is_closed: bool,
}

enum Known {
    /// A job is under way; these wait for what becomes of it.
    UnderWay(VecDeque<CompileJob>),
    Refused(CompileGrammarError),
}

/// What a verdict depends on: the constraint and the request's own stop tokens.
#[derive(Clone)]
struct Constraint(Arc<SamplingParams>);

impl Constraint {
    fn parts(&self) -> (Option<&StructuredOutputsParams>, &[u32]) {
        (self.0.structured_outputs.as_ref(), &self.0.stop_token_ids)
    }

    /// Bytes of its text.
    fn len(&self) -> usize {
        let structured_outputs = self.0.structured_outputs.as_ref();
        let sources = structured_outputs.map(|params| params.constraint.specification().1);
        sources.map_or(0, |sources| sources.iter().map(|source| source.len()).sum())
    }
}

impl PartialEq for Constraint {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.parts() == other.parts()
    }
}

impl Eq for Constraint {}

impl Hash for Constraint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// What a new job is to do.
pub(super) enum Entered {
    /// It is the first of its constraint.
    First(CompileJob),
    /// It waits for another one.
    Waits,
    /// Its constraint was refused before.
    Refused(CompileJob, CompileGrammarError),
    /// So many wait already.
    Full(usize),
}

/// The part of the first job of a constraint: dropped before its end, it goes to the next one.
pub(super) struct First {
    all: SameConstraints,
    constraint: Constraint,
    is_over: bool,
}

impl SameConstraints {
    /// Nothing is known, and nobody waits. At most `max_waiting` will.
    pub(super) fn new(lanes: Arc<CompileLanes>, max_waiting: usize) -> Self {
        Self {
            state: Arc::default(),
            lanes,
            max_waiting,
        }
    }

    /// Looks what a new job is to do.
    pub(super) fn enter(&self, mut job: CompileJob) -> Entered {
        let constraint = Constraint(Arc::clone(&job.params));
        let mut gone = Vec::new();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.num_waiting >= self.max_waiting {
            gone = state.take_cancelled();
        }
        let entered = match state.known.get_mut(&constraint) {
            Some(Known::Refused(error)) => Entered::Refused(job, error.clone()),
            Some(Known::UnderWay(_)) if state.num_waiting >= self.max_waiting => {
                Entered::Full(state.num_waiting)
            }
            Some(Known::UnderWay(waiting)) => {
                waiting.push_back(job);
                state.num_waiting += 1;
                Entered::Waits
            }
            None => {
                let nobody = Known::UnderWay(VecDeque::new());
                state.known.insert(constraint.clone(), nobody);
                job.first = Some(self.first(constraint));
                Entered::First(job)
            }
        };
        drop(guard);
        // Without the lock: with a job a grammar may end, which others are told of.
        drop(gone);
        entered
    }

    fn first(&self, constraint: Constraint) -> First {
        First {
            all: self.clone(),
            constraint,
            is_over: false,
        }
    }

    /// Sends the next job of a constraint after one that came to no end.
    fn pass_on(&self, constraint: &Constraint) {
        let mut gone = Vec::new();
        let next = lock(&self.state).next_of(constraint, &mut gone);
        drop(gone);
        let Some(job) = next else { return };
        let job = CompileJob {
            turn: Turn::first(Duty::Begin),
            compile_seconds: Some(0.0),
            first: Some(self.first(constraint.clone())),
            ..job
        };
        // Without threads nobody waits for an answer.
        let _ = self.lanes.send(job);
    }

    /// Lets nobody wait any more.
    pub(super) fn close(&self) {
        let closed = State {
            is_closed: true,
            ..State::default()
        };
        let left = std::mem::replace(&mut *lock(&self.state), closed);
        drop(left);
    }
}

impl State {
    /// Takes out the jobs that nobody waits for any more.
    fn take_cancelled(&mut self) -> Vec<CompileJob> {
        let mut cancelled = Vec::new();
        for known in self.known.values_mut() {
            if let Known::UnderWay(waiting) = known {
                let jobs = std::mem::take(waiting);
                let (gone, awaited): (VecDeque<_>, VecDeque<_>) =
                    jobs.into_iter().partition(|job| job.cancel.is_cancelled());
                *waiting = awaited;
                cancelled.extend(gone);
            }
        }
        self.num_waiting -= cancelled.len();
        cancelled
    }

    /// The next job of a constraint that somebody waits for. Where there is none, nothing is known of it.
    fn next_of(
        &mut self,
        constraint: &Constraint,
        gone: &mut Vec<CompileJob>,
    ) -> Option<CompileJob> {
        if let Some(Known::UnderWay(waiting)) = self.known.get_mut(constraint) {
            while let Some(job) = waiting.pop_front() {
                self.num_waiting -= 1;
                if !job.cancel.is_cancelled() {
                    return Some(job);
                }
                gone.push(job);
            }
            self.known.remove(constraint);
        }
        None
    }

    fn refuse(&mut self, constraint: Constraint, error: CompileGrammarError) {
        self.refused_bytes += constraint.len();
        self.refused.push_back(constraint.clone());
        self.known.insert(constraint, Known::Refused(error));
        while self.refused.len() > MAX_REFUSED || self.refused_bytes > MAX_REFUSED_BYTES {
            let Some(oldest) = self.refused.pop_front() else {
                return;
            };
            self.refused_bytes -= oldest.len();
            self.known.remove(&oldest);
        }
    }
}

impl First {
    /// The jobs that have waited for this one, which came to its end: it was refused for good, or it wasn't.
    pub(super) fn end(mut self, refused: Option<&CompileGrammarError>) -> VecDeque<CompileJob> {
        self.is_over = true;
        let mut state = lock(&self.all.state);
        let waiting = match state.known.remove(&self.constraint) {
            Some(Known::UnderWay(waiting)) => waiting,
            _ => VecDeque::new(),
        };
        state.num_waiting -= waiting.len();
        if let Some(error) = refused
            && !state.is_closed
        {
            state.refuse(self.constraint.clone(), error.clone());
        }
        waiting
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if !self.is_over {
            self.all.pass_on(&self.constraint);
        }
    }
}
