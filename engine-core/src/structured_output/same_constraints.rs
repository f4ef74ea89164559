//! Requests with the same constraint: one of them is worked on while the others wait, and why it was
//! refused is remembered with the stage at which it was. So what is asked again and again is worked out once,
//! failures included: those too that show only where the start of a grammar is looked at.
//!
//! A refusal answers all that go through its stage. Once one is served, those go to the queue that ask no more of the
//! grammar than it did. All others wait on, for the next one that is worked on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::backend::CompileGrammarError;
use super::compile_job::CompileJob;
use super::compile_queue::{CompileQueue, take_cancelled};
use super::constraint::Constraint;
use super::stage::Stage;
use super::turn::{Arena, Turn};
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
    /// Where a job goes that comes after another one.
    queue: Arc<CompileQueue>,
    max_waiting: usize,
}

#[derive(Default)]
struct State {
    /// Of each constraint of which a job is under way, those that wait for what becomes of it.
    under_way: HashMap<Constraint, VecDeque<CompileJob>>,
    refused: HashMap<(Constraint, Stage), CompileGrammarError>,
    /// What was refused, the oldest first.
    by_age: VecDeque<(Constraint, Stage)>,
    refused_bytes: usize,
    is_closed: bool,
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
    /// It goes on, as the first of its constraint or since too many wait for others.
    GoesOn(CompileJob),
    /// It waits for another one.
    Waits,
    /// Its constraint was refused before.
    Refused(CompileJob, CompileGrammarError),
    /// So many wait for the same already.
    Full(usize),
}

/// The part of the first job of a constraint: dropped before its end, it goes to the next one.
pub(super) struct First {
    all: SameConstraints,
    constraint: Constraint,
    /// What its job goes through.
    stages: Vec<Stage>,
    is_over: bool,
}

impl SameConstraints {
    /// Nothing is known, and nobody waits. The queue has `max_queued` places.
    pub(super) fn new(queue: Arc<CompileQueue>, max_queued: usize) -> Self {
        let max_waiting = max_queued.saturating_mul(WAITING_PER_PLACE);
        Self {
            state: Arc::default(),
            queue,
            max_waiting,
        }
    }

    /// Looks what a new job is to do.
    pub(super) fn enter(&self, mut job: CompileJob, places: Places) -> Entered {
        let Some(constraint) = job.constraint.clone() else {
            return Entered::GoesOn(job);
        };
        let stages = job.stages();
        let max_waiting = match places {
            Places::Limited => self.max_waiting,
            Places::Unlimited => usize::MAX,
        };
        let mut gone = Vec::new();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.num_waiting() >= max_waiting {
            gone = state.take_cancelled();
        }
        let has_room = state.num_waiting() < max_waiting;
        let refused = state.refusal(&constraint, &stages);
        let entered = match (refused, state.under_way.get_mut(&constraint)) {
            (Some(error), _) => Entered::Refused(job, error),
            (None, Some(waiting)) if has_room => {
                waiting.push_back(job);
                Entered::Waits
            }
            (None, Some(same)) if same.len() >= max_waiting => Entered::Full(same.len()),
            // Those who wait for something else are not to keep it from its own place.
            (None, Some(_)) => Entered::GoesOn(job),
            (None, None) => {
                state.under_way.insert(constraint.clone(), VecDeque::new());
                job.first = Some(self.first(constraint, stages));
                Entered::GoesOn(job)
            }
        };
        drop(guard);
        // Without the lock: with a job a grammar may end, which others are told of.
        drop(gone);
        entered
    }

    fn first(&self, constraint: Constraint, stages: Vec<Stage>) -> First {
        First {
            all: self.clone(),
            constraint,
            stages,
            is_over: false,
        }
    }

    /// Sends the next job of a constraint after one that is over, which left its grammar compiled or not.
    fn pass_on(&self, constraint: &Constraint, is_compiled: bool) {
        let mut gone = Vec::new();
        let next = lock(&self.state).next_of(constraint, &mut gone);
        drop(gone);
        let Some(mut job) = next else { return };
        job.first = Some(self.first(constraint.clone(), job.stages()));
        if !is_compiled {
            job.turn = Turn::first(Arena::Shared).for_text(job.source_bytes);
            job.compile_seconds = Some(0.0);
        }
        // Without threads nobody waits for an answer.
        let _ = self.queue.send(job);
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
    /// Jobs that wait, of all constraints.
    fn num_waiting(&self) -> usize {
        self.under_way.values().map(VecDeque::len).sum()
    }

    /// Why a job was refused before it came.
    fn refusal(&self, constraint: &Constraint, stages: &[Stage]) -> Option<CompileGrammarError> {
        let at_stage = |&stage| self.refused.get(&(constraint.clone(), stage));
        stages.iter().find_map(at_stage).cloned()
    }

    /// Takes out the jobs that nobody waits for any more.
    fn take_cancelled(&mut self) -> Vec<CompileJob> {
        let mut cancelled = Vec::new();
        for waiting in self.under_way.values_mut() {
            cancelled.extend(take_cancelled(waiting));
        }
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
                if !job.cancel.is_cancelled() {
                    return Some(job);
                }
                gone.push(job);
            }
            self.under_way.remove(constraint);
        }
        None
    }

    fn refuse(&mut self, constraint: Constraint, stage: Stage, error: CompileGrammarError) {
        let key = (constraint, stage);
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
    /// The job was refused at a stage: so are those that are returned, and whoever comes.
    pub(super) fn refuse(self, stage: Stage, error: &CompileGrammarError) -> VecDeque<CompileJob> {
        self.end(Some((stage, error)), |stages| stages.contains(&stage))
    }

    /// The job has its grammar: those that are returned find all that they ask of it. Where its shortest text was not
    /// `measured`, because it can't fit by far, that says nothing to others.
    pub(super) fn serve(mut self, is_measured: bool) -> VecDeque<CompileJob> {
        let mut known = std::mem::take(&mut self.stages);
        known.retain(|&stage| is_measured || stage != Stage::Measuring);
        self.end(None, |stages| {
            stages.iter().all(|stage| known.contains(stage))
        })
    }

    /// The jobs that have waited for this one and whose stages are `concerned`. Of the others the next one is sent,
    /// and they wait for that.
    fn end(
        mut self,
        refused: Option<(Stage, &CompileGrammarError)>,
        concerned: impl Fn(&[Stage]) -> bool,
    ) -> VecDeque<CompileJob> {
        self.is_over = true;
        let mut guard = lock(&self.all.state);
        let state = &mut *guard;
        if let Some((stage, error)) = refused
            && !state.is_closed
        {
            state.refuse(self.constraint.clone(), stage, error.clone());
        }
        let mut ended = VecDeque::new();
        if let Some(waiting) = state.under_way.get_mut(&self.constraint) {
            let others;
            (ended, others) = std::mem::take(waiting)
                .into_iter()
                .partition(|job| concerned(&job.stages()));
            *waiting = others;
        }
        drop(guard);
        self.all.pass_on(&self.constraint, true);
        ended
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if !self.is_over {
            self.all.pass_on(&self.constraint, false);
        }
    }
}
