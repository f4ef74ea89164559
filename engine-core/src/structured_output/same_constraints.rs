//! Requests with the same constraint: one of them is worked on while the others wait, and why it was
//! refused is remembered. So what is asked again and again is worked out once, failures included: those
//! too that show only where the start of a grammar is looked at.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use protocol::{SamplingParams, StructuredOutputsParams};

use super::backend::CompileGrammarError;
use super::compile_job::CompileJob;
use super::compile_lanes::{CompileLanes, take_cancelled};
use super::turn::{Duty, Turn};
use crate::lock::lock;

/// Refusals that are remembered, at most.
const MAX_REFUSED: usize = 1024;

/// Bytes of the constraints that were refused, at most.
const MAX_REFUSED_BYTES: usize = 8 << 20;

/// As many times as for one constraint may wait in all.
const MAX_CROWDS: usize = 16;

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

/// What a verdict depends on, and nothing else of a request: it is kept.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Constraint(Arc<(StructuredOutputsParams, Vec<u32>)>);

impl Constraint {
    /// The constraint of a request and its own stop tokens; `None` where it has none.
    fn of(params: &SamplingParams) -> Option<Self> {
        let structured_outputs = params.structured_outputs.clone()?;
        let stop_token_ids = params.stop_token_ids.clone();
        Some(Self(Arc::new((structured_outputs, stop_token_ids))))
    }

    /// Bytes that it holds.
    fn len(&self) -> usize {
        let (structured_outputs, stop_token_ids) = &*self.0;
        let (_, sources) = structured_outputs.constraint.specification();
        let sources: usize = sources.iter().map(|source| source.len() + 32).sum();
        let options = structured_outputs.options();
        let options: usize = options.iter().map(|option| option.1.len()).sum();
        sources + options + size_of_val(&stop_token_ids[..]) + 512
    }
}

/// What a new job is to do.
pub(super) enum Entered {
    /// It is the first of its constraint.
    First(CompileJob),
    /// It waits for another one.
    Waits,
    /// It goes on by itself: too many wait for others.
    Beside(CompileJob),
    /// Its constraint was refused before.
    Refused(CompileJob, CompileGrammarError),
    /// So many wait for the same already.
    Full(usize),
}

/// The part of the first job of a constraint: dropped before its end, it goes to the next one.
pub(super) struct First {
    all: SameConstraints,
    constraint: Constraint,
    is_over: bool,
}

impl SameConstraints {
    /// Nothing is known, and nobody waits. At most `max_waiting` will for one constraint.
    pub(super) fn new(lanes: Arc<CompileLanes>, max_waiting: usize) -> Self {
        Self {
            state: Arc::default(),
            lanes,
            max_waiting,
        }
    }

    /// Looks what a new job is to do.
    pub(super) fn enter(&self, mut job: CompileJob) -> Entered {
        let Some(constraint) = Constraint::of(&job.params) else {
            return Entered::Beside(job);
        };
        let mut gone = Vec::new();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let max_in_all = self.max_waiting.saturating_mul(MAX_CROWDS);
        let num_same = state.num_waiting_for(&constraint);
        if num_same >= self.max_waiting || state.num_waiting >= max_in_all {
            gone = state.take_cancelled();
        }
        let num_same = state.num_waiting_for(&constraint);
        let entered = match state.known.get_mut(&constraint) {
            Some(Known::Refused(error)) => Entered::Refused(job, error.clone()),
            Some(Known::UnderWay(_)) if num_same >= self.max_waiting => Entered::Full(num_same),
            // Those who wait for something else are not to keep it from its own place.
            Some(Known::UnderWay(_)) if state.num_waiting >= max_in_all => Entered::Beside(job),
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
    /// Jobs that wait for one with a constraint.
    fn num_waiting_for(&self, constraint: &Constraint) -> usize {
        match self.known.get(constraint) {
            Some(Known::UnderWay(waiting)) => waiting.len(),
            _ => 0,
        }
    }

    /// Takes out the jobs that nobody waits for any more.
    fn take_cancelled(&mut self) -> Vec<CompileJob> {
        let mut cancelled = Vec::new();
        for known in self.known.values_mut() {
            if let Known::UnderWay(waiting) = known {
                cancelled.extend(take_cancelled(waiting));
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
