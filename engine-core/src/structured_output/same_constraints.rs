//! Requests with the same constraint: one of them is worked on while the others wait, and why it was
//! refused is remembered. So what is asked again and again is worked out once, failures included: those
//! too that show only where the start of a grammar is looked at. What of the others a verdict concerns is
//! for [`Demand`] to say; the rest of them goes on waiting, for the next one that is worked on.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex};

use protocol::{Shared, StructuredOutputsParams};
use structured_output::RequestMemory;

use super::backend::CompileGrammarError;
use super::compile_job::CompileJob;
use super::compile_lanes::{CompileLanes, take_cancelled};
use super::turn::{Duty, Turn};
use super::verdict::{Demand, Scope, Verdict};
use crate::lock::lock;

/// Refusals that are remembered, at most.
const MAX_REFUSED: usize = 1024;

/// Bytes of the constraints that were refused, at most.
const MAX_REFUSED_BYTES: usize = 8 << 20;

/// As many times as there are places in the queue may wait for others, who take none: the answers to one request
/// (`n`) have one constraint.
const WAITING_PER_PLACE: usize = 16;

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
    /// Of each constraint of which a job is under way, those that wait for what becomes of it.
    under_way: HashMap<Constraint, VecDeque<CompileJob>>,
    refused: HashMap<(Constraint, Scope), CompileGrammarError>,
    /// What was refused, the oldest first.
    by_age: VecDeque<(Constraint, Scope)>,
    refused_bytes: usize,
    /// Jobs that wait, of all constraints.
    num_waiting: usize,
    is_closed: bool,
}

/// Cache key of a constraint: only the fields that affect compilation. Long-lived, so it must not hold the
/// request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Constraint(Arc<Specification>);

#[derive(PartialEq, Eq)]
struct Specification {
    /// Of the other fields: the text is hashed once, however many requests have it.
    hash: u64,
    kind: &'static str,
    sources: Vec<String>,
    options: Vec<(&'static str, String)>,
}

/// A constraint of requests that share it in memory, with its key.
pub(crate) struct NamedConstraint {
    params: Shared<StructuredOutputsParams>,
    constraint: Constraint,
    request_memory: RequestMemory,
}

impl NamedConstraint {
    /// Names a constraint: copies and hashes its text.
    pub(crate) fn new(params: &Shared<StructuredOutputsParams>) -> Self {
        Self {
            params: params.clone(),
            constraint: Constraint::of(params),
            request_memory: RequestMemory::default(),
        }
    }

    /// True if this constraint is the same in memory.
    pub(crate) fn is_of(&self, params: &Shared<StructuredOutputsParams>) -> bool {
        self.params.is_same(params)
    }

    pub(super) fn constraint(&self) -> Constraint {
        self.constraint.clone()
    }

    /// What the grammars of all requests that share it take together.
    pub(super) fn request_memory(&self) -> RequestMemory {
        self.request_memory.clone()
    }

    /// How long its text is.
    pub(super) fn source_bytes(&self) -> usize {
        self.constraint.0.sources.iter().map(String::len).sum()
    }
}

impl Hash for Constraint {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash.hash(hasher);
    }
}

impl Constraint {
    fn of(params: &StructuredOutputsParams) -> Self {
        /// One key for the process: equal constraints have equal hashes.
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let (kind, sources) = params.constraint.specification();
        let options = params.options().into_iter();
        let options: Vec<_> = options
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        Self(Arc::new(Specification {
            hash: HASHER.hash_one((kind, sources, &options)),
            kind,
            sources: sources.to_vec(),
            options,
        }))
    }

    /// Bytes that it holds.
    fn len(&self) -> usize {
        let sources = self.0.sources.iter();
        let sources: usize = sources.map(|source| source.len() + 32).sum();
        let options: usize = self.0.options.iter().map(|option| option.1.len()).sum();
        sources + options + 512
    }
}

/// Who may wait for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// As many as there are places for.
    Limited,
    /// However many: an earlier core had taken it.
    Unlimited,
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
    demand: Demand,
    is_over: bool,
}

impl SameConstraints {
    /// Nothing is known, and nobody waits. The queue has `max_queued` places.
    pub(super) fn new(lanes: Arc<CompileLanes>, max_queued: usize) -> Self {
        let max_waiting = max_queued.saturating_mul(WAITING_PER_PLACE);
        Self {
            state: Arc::default(),
            lanes,
            max_waiting,
        }
    }

    /// Looks what a new job is to do.
    pub(super) fn enter(&self, mut job: CompileJob, places: Places) -> Entered {
        let Some(constraint) = job.constraint.clone() else {
            return Entered::Beside(job);
        };
        let demand = Demand::of(&job);
        let max_waiting = match places {
            Places::Limited => self.max_waiting,
            Places::Unlimited => usize::MAX,
        };
        let mut gone = Vec::new();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.num_waiting >= max_waiting {
            gone = state.take_cancelled();
        }
        let num_same = state.num_waiting_for(&constraint);
        let refused = state.refusal(&constraint, &demand);
        let entered = match (refused, state.under_way.get_mut(&constraint)) {
            (Some(error), _) => Entered::Refused(job, error),
            (None, Some(_)) if num_same >= max_waiting => Entered::Full(num_same),
            // Those who wait for something else are not to keep it from its own place.
            (None, Some(_)) if state.num_waiting >= max_waiting => Entered::Beside(job),
            (None, Some(waiting)) => {
                waiting.push_back(job);
                state.num_waiting += 1;
                Entered::Waits
            }
            (None, None) => {
                state.under_way.insert(constraint.clone(), VecDeque::new());
                job.first = Some(self.first(constraint, demand));
                Entered::First(job)
            }
        };
        drop(guard);
        // Without the lock: with a job a grammar may end, which others are told of.
        drop(gone);
        entered
    }

    fn first(&self, constraint: Constraint, demand: Demand) -> First {
        First {
            all: self.clone(),
            constraint,
            demand,
            is_over: false,
        }
    }

    /// Sends the next job of a constraint after one that came to no end, or to one that is not that of all.
    fn pass_on(&self, constraint: &Constraint, turn: Turn) {
        let mut gone = Vec::new();
        let next = lock(&self.state).next_of(constraint, &mut gone);
        drop(gone);
        let Some(job) = next else { return };
        let is_to_be_compiled = turn.duty != Duty::Answer;
        let job = CompileJob {
            turn,
            compile_seconds: is_to_be_compiled.then_some(0.0),
            first: Some(self.first(constraint.clone(), Demand::of(&job))),
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
        self.under_way.get(constraint).map_or(0, VecDeque::len)
    }

    /// Why a job was refused before it came.
    fn refusal(&self, constraint: &Constraint, demand: &Demand) -> Option<CompileGrammarError> {
        let of_scope = |scope| self.refused.get(&(constraint.clone(), scope));
        demand.scopes().into_iter().find_map(of_scope).cloned()
    }

    /// Takes out the jobs that nobody waits for any more.
    fn take_cancelled(&mut self) -> Vec<CompileJob> {
        let mut cancelled = Vec::new();
        for waiting in self.under_way.values_mut() {
            cancelled.extend(take_cancelled(waiting));
        }
        self.num_waiting -= cancelled.len();
        cancelled
    }

    /// The next job of a constraint that somebody waits for. Where there is none, none is under way.
    fn next_of(
        &mut self,
        constraint: &Constraint,
        gone: &mut Vec<CompileJob>,
    ) -> Option<CompileJob> {
        if let Some(waiting) = self.under_way.get_mut(constraint) {
            while let Some(job) = waiting.pop_front() {
                self.num_waiting -= 1;
                if !job.cancel.is_cancelled() {
                    return Some(job);
                }
                gone.push(job);
            }
            self.under_way.remove(constraint);
        }
        None
    }

    fn refuse(&mut self, constraint: Constraint, scope: Scope, error: CompileGrammarError) {
        let key = (constraint, scope);
        if self.refused.insert(key.clone(), error).is_some() {
            return;
        }
        self.refused_bytes += key.0.len();
        self.by_age.push_back(key);
        while self.by_age.len() > MAX_REFUSED || self.refused_bytes > MAX_REFUSED_BYTES {
            let Some(oldest) = self.by_age.pop_front() else {
                return;
            };
            self.refused_bytes -= oldest.0.len();
            self.refused.remove(&oldest);
        }
    }
}

impl First {
    /// What its job asks.
    pub(super) fn demand(&self) -> &Demand {
        &self.demand
    }

    /// The jobs that have waited for this one and that its verdict concerns. Of the others the next one is
    /// sent, and they wait for that.
    pub(super) fn end(mut self, verdict: &Verdict) -> VecDeque<CompileJob> {
        self.is_over = true;
        let mut guard = lock(&self.all.state);
        let state = &mut *guard;
        if let Verdict::Refused(scope, error) = verdict
            && !state.is_closed
        {
            state.refuse(self.constraint.clone(), *scope, (*error).clone());
        }
        let mut concerned = VecDeque::new();
        if let Some(waiting) = state.under_way.get_mut(&self.constraint) {
            let concerns = |job: &CompileJob| match (verdict, Demand::of(job)) {
                (Verdict::Served { is_counted }, demand) => {
                    demand.is_met_by(&self.demand, *is_counted)
                }
                (Verdict::Refused(scope, _), demand) => demand.scopes().contains(scope),
            };
            let others;
            (concerned, others) = std::mem::take(waiting).into_iter().partition(concerns);
            *waiting = others;
            state.num_waiting -= concerned.len();
        }
        drop(guard);
        self.all
            .pass_on(&self.constraint, Turn::first(Duty::Answer));
        concerned
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if !self.is_over {
            self.all.pass_on(&self.constraint, Turn::first(Duty::Begin));
        }
    }
}
