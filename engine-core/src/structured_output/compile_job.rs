//! One grammar to compile, for a request that waits for it.

use std::sync::Arc;

use crossbeam_channel::Sender;
use protocol::{RequestError, SamplingParams};
use structured_output::{CancelFlag, CompileError, MatcherError, RenewError, RequestMemory};

use super::aside::Aside;
use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::request::{Accepted, StructuredOutputRequest};
use super::same_constraints::{Constraint, First};
use super::turn::{Duty, MAX_ANSWER_STEPS, SHARED_STEPS, Turn};
use super::verdict::Stage;
use super::waiting_jobs::WaitingJobs;
use crate::request_id::RequestId;

/// Of a grammar's text so much is read in about the time of a first turn's steps.
const BYTES_OF_TURN: usize = 16 << 10;

/// So often a call may meet the limit of its steps: each goes on with what the ones before have found out, so
/// that less depends on who asked before.
const MAX_TRIES: u32 = 3;

/// Bytes of states that a request may add before its first token, in all the memory that it goes through: as many as
/// one call may hold, so that a request that is refused has taken no more than its share.
const MAX_BYTES_TO_START: usize = 32 << 20;

/// One grammar to compile.
pub(super) struct CompileJob {
    pub(super) request_id: RequestId,
    pub(super) params: Arc<SamplingParams>,
    pub(super) purpose: Purpose,
    /// Who has it now, or next.
    pub(super) turn: Turn,
    /// How long its constraint's text is, where that is to be read.
    pub(super) source_bytes: usize,
    /// Of a new request: what is compiled.
    pub(super) constraint: Option<Constraint>,
    pub(super) cancel: CancelFlag,
    /// To the request itself.
    pub(super) compiled: Sender<CompiledGrammar>,
    /// How long it took so far, where its grammar has to be compiled.
    pub(super) compile_seconds: Option<f64>,
    /// Whether it was known what becomes of it when it came.
    pub(super) was_known: bool,
    /// Where others with the same constraint wait for it, or may.
    pub(super) first: Option<First>,
    /// Where it is one of the long texts that were begun: their places are counted by these.
    pub(super) long_places: Vec<Arc<()>>,
}

/// What a grammar is compiled for.
pub(super) enum Purpose {
    /// A request that has none yet.
    Start {
        reasoning_ended: Option<bool>,
        /// Output that an earlier core generated.
        output_token_ids: Vec<u32>,
        /// How far it came in the turns before.
        begun: Option<Begun>,
        /// Bytes of states that these have added.
        num_added_bytes: usize,
        /// What it takes together with its siblings, such as the other answers to one request of a client.
        request_memory: RequestMemory,
    },
    /// A request that goes on once its grammar has room again, or has found an answer that takes
    /// longer than a step may wait.
    Aside(Box<StructuredOutputRequest>),
}

/// A new request between two turns. In memory apart all that was computed may go with it, since nobody else
/// may be there.
pub(super) struct Begun {
    request: Box<StructuredOutputRequest>,
    /// Tokens of its output that were accepted.
    num_replayed: usize,
}

/// What became of a grammar.
pub struct CompiledGrammar {
    pub(crate) outcome: Result<Box<StructuredOutputRequest>, RequestError>,
    /// How long it took, where it was compiled for this request.
    pub(crate) compile_seconds: Option<f64>,
    /// Whether it was known when its request came, and not only wanted by others too.
    pub(crate) was_known: bool,
}

/// What compiles jobs.
pub(super) struct Compiler<'a> {
    backend: &'a dyn StructuredOutputBackend,
    waiting: &'a WaitingJobs,
    turn: Turn,
    /// Steps that the job's calls may still take in this turn, where it has an end.
    steps_left: Option<u64>,
    /// The same where it has none: for the answer that a running request waits for.
    answer_steps_left: Option<u64>,
    stage: Stage,
}

/// Why a job is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// The grammar needs memory of its own, and enough others have that.
    #[error("enough grammars have memory of their own")]
    NoMemory,
    /// What is left to do takes another turn, a longer one.
    #[error("the job takes more than a turn")]
    TurnOver,
    /// What is left to do is for a thread with this duty.
    #[error("the job is for another thread")]
    Elsewhere(Duty),
    /// Its request fails.
    #[error(transparent)]
    Grammar(#[from] CompileGrammarError),
}

impl From<RenewError> for JobError {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::NoMemory { .. } => Self::NoMemory,
            other => Self::Grammar(other.into()),
        }
    }
}

impl CompileJob {
    /// How much work its next turn may be, as a power of two: of a turn's steps, or of as long a text, which
    /// takes as long to be read.
    pub(super) fn weight(&self) -> u32 {
        self.turn.number.max(self.weight_of_text())
    }

    /// The same of its text alone.
    pub(super) fn weight_of_text(&self) -> u32 {
        let num_bytes = match self.turn.duty {
            // It was read before.
            Duty::Answer => 0,
            Duty::Begin | Duty::Compile | Duty::Apart => self.source_bytes,
        };
        let of_text = (num_bytes / BYTES_OF_TURN).checked_ilog2();
        of_text.map_or(0, |power| power + 1)
    }
}

impl<'a> Compiler<'a> {
    /// For one turn of a job.
    pub(super) fn new(
        backend: &'a dyn StructuredOutputBackend,
        waiting: &'a WaitingJobs,
        turn: Turn,
    ) -> Self {
        Self {
            backend,
            waiting,
            turn,
            steps_left: turn.steps(),
            answer_steps_left: None,
            stage: Stage::Compiling,
        }
    }

    /// How far it came.
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Compiles, and brings the request to where its output stands, in memory where it has room.
    /// `None` where the request is that of the purpose.
    pub(super) fn run(
        &mut self,
        params: &Arc<SamplingParams>,
        purpose: &mut Purpose,
        cancel: &CancelFlag,
    ) -> Result<Option<Box<StructuredOutputRequest>>, JobError> {
        match purpose {
            Purpose::Start {
                reasoning_ended,
                output_token_ids,
                begun,
                num_added_bytes,
                request_memory,
            } => {
                let mut begin = match begun.take() {
                    Some(begun) => begun,
                    None => self.begin(params, *reasoning_ended, cancel)?,
                };
                begin.request.set_request_memory(request_memory);
                // Whoever is let in already goes on for as long as there is memory.
                let may_add = MAX_BYTES_TO_START.saturating_sub(*num_added_bytes);
                let max_bytes = output_token_ids.is_empty().then_some(may_add);
                begin.request.set_max_bytes(max_bytes);
                let started = self.start(&mut begin, params, output_token_ids, cancel);
                match started {
                    Ok(()) => {
                        begin.request.set_max_bytes(None);
                        Ok(Some(begin.request))
                    }
                    Err(error) => {
                        let left = begin.request.bytes_left().unwrap_or(may_add);
                        *num_added_bytes += may_add.saturating_sub(left);
                        let goes_on = matches!(error, JobError::TurnOver | JobError::Elsewhere(_));
                        *begun = (goes_on && begin.request.is_apart()).then_some(begin);
                        Err(error)
                    }
                }
            }
            Purpose::Aside(request) => {
                self.go_on(request, cancel)?;
                Ok(None)
            }
        }
    }

    /// Does what a request waits for outside the steps.
    fn go_on(
        &mut self,
        request: &mut StructuredOutputRequest,
        cancel: &CancelFlag,
    ) -> Result<(), JobError> {
        match request.aside().cloned() {
            Some(Aside::Exhausted) => self.renew(request, cancel)?,
            Some(Aside::Question(question)) => {
                self.answer_steps_left = Some(MAX_ANSWER_STEPS);
                self.with_room(request, cancel, |request| request.answer(&question))?;
            }
            None => {}
        }
        request.end_aside();
        Ok(())
    }

    /// A request with its grammar, of which nothing was asked yet.
    fn begin(
        &self,
        params: &Arc<SamplingParams>,
        reasoning_ended: Option<bool>,
        cancel: &CancelFlag,
    ) -> Result<Begun, JobError> {
        let Some(structured_outputs) = &params.structured_outputs else {
            let missing = "the request has no structured_outputs".to_owned();
            return Err(CompileGrammarError::Unsupported(missing).into());
        };
        let own_stop_tokens = &params.stop_token_ids;
        let effort = self.turn.effort();
        let grammar = self
            .backend
            .compile_grammar(structured_outputs, own_stop_tokens, effort, cancel)
            .ok_or(JobError::TurnOver)??;
        let model_stop_tokens = self.backend.stop_token_ids();
        let mut request = Box::new(StructuredOutputRequest::unmeasured(
            grammar,
            params,
            reasoning_ended,
            model_stop_tokens,
        ));
        request.tell_when_gone(self.waiting.tell_when_gone());
        Ok(Begun {
            request,
            num_replayed: 0,
        })
    }

    /// Brings a request to the end of its output so far. Its first mask is made here too: a grammar's start
    /// is the one state that nobody has met before.
    fn start(
        &mut self,
        begun: &mut Begun,
        params: &SamplingParams,
        output_token_ids: &[u32],
        cancel: &CancelFlag,
    ) -> Result<(), JobError> {
        let Begun {
            request,
            num_replayed,
        } = begun;
        if *num_replayed == 0 {
            self.stage = Stage::Measuring;
            let max_tokens = params.max_tokens;
            self.with_room(request, cancel, |request| request.measure(max_tokens))?;
        }
        self.stage = Stage::Replaying;
        if output_token_ids.is_empty() {
            self.stage = Stage::Opening;
            self.with_room(request, cancel, |request| request.check_opening())?;
        }
        for &token_id in output_token_ids.iter().skip(*num_replayed) {
            // Whether it can still be completed was decided when it was generated.
            let accepted = self.with_room(request, cancel, |request| {
                request.accept_token(token_id, u32::MAX)
            })?;
            if accepted != Accepted::Yes {
                let message = format!(
                    "output_token_ids: the grammar refuses token {token_id} at index {num_replayed}"
                );
                return Err(CompileGrammarError::Unsupported(message).into());
            }
            *num_replayed += 1;
        }
        self.with_room(request, cancel, |request| {
            request.mask(u32::MAX)?;
            // Noted for whoever asks within a step.
            request.is_completed();
            Ok(())
        })
    }

    /// Does something with a grammar, which goes on in other memory for as long as its own is full. In
    /// memory that is shared others go first whenever [`SHARED_STEPS`] are spent.
    fn with_room<T>(
        &mut self,
        request: &mut StructuredOutputRequest,
        cancel: &CancelFlag,
        mut attempt: impl FnMut(&mut StructuredOutputRequest) -> Result<T, MatcherError>,
    ) -> Result<T, JobError> {
        let is_apart = self.turn.duty == Duty::Apart;
        let mut num_exhausted = 0;
        loop {
            if is_apart {
                request.move_apart(cancel)?;
            }
            match self.try_once(request, &mut attempt) {
                Err(MatcherError::StepsExhausted { max })
                    if max != MAX_ANSWER_STEPS && num_exhausted + 1 < MAX_TRIES =>
                {
                    num_exhausted += 1;
                    check_cancelled(cancel)?;
                }
                Err(MatcherError::AllowanceSpent) if self.steps_left.is_some() => {
                    if request.is_apart() && !is_apart {
                        return Err(JobError::Elsewhere(Duty::Apart));
                    }
                    if self.steps_left == Some(0) {
                        return Err(JobError::TurnOver);
                    }
                    check_cancelled(cancel)?;
                    request.let_others_pass();
                }
                Err(MatcherError::StatesExhausted { .. }) => self.renew(request, cancel)?,
                Err(MatcherError::BytesExhausted { .. }) => {
                    let max = MAX_BYTES_TO_START;
                    let error = MatcherError::BytesExhausted { max };
                    return Err(CompileGrammarError::Matcher(error).into());
                }
                Err(error) => return Err(CompileGrammarError::Matcher(error).into()),
                Ok(done) => return Ok(done),
            }
        }
    }

    /// Does it with what is left of the steps, as far as that is allowed at a time.
    fn try_once<T>(
        &mut self,
        request: &mut StructuredOutputRequest,
        attempt: impl FnOnce(&mut StructuredOutputRequest) -> Result<T, MatcherError>,
    ) -> Result<T, MatcherError> {
        let granted = match (self.turn.duty, self.steps_left) {
            (_, None) => return self.try_endlessly(request, attempt),
            (Duty::Apart, Some(left)) => {
                request.set_patient_allowance(left);
                left
            }
            (_, Some(left)) => {
                let granted = left.min(SHARED_STEPS);
                request.set_allowance(Some(granted));
                granted
            }
        };
        let outcome = attempt(request);
        let is_spent = matches!(outcome, Err(MatcherError::AllowanceSpent));
        let left = request.allowance().filter(|_| !is_spent).unwrap_or(0);
        let spent = granted.saturating_sub(left);
        self.steps_left = self.steps_left.map(|steps| steps.saturating_sub(spent));
        outcome
    }

    /// Does it in as many steps as each call may take, and the answer to a question in as many as all may.
    fn try_endlessly<T>(
        &mut self,
        request: &mut StructuredOutputRequest,
        attempt: impl FnOnce(&mut StructuredOutputRequest) -> Result<T, MatcherError>,
    ) -> Result<T, MatcherError> {
        let Some(granted) = self.answer_steps_left else {
            request.set_allowance(None);
            return attempt(request);
        };
        request.set_patient_allowance(granted);
        let outcome = attempt(request);
        let left = request.allowance();
        // After a renewal it goes on with what is left.
        self.answer_steps_left = left.or(self.answer_steps_left);
        match outcome {
            // What is left is less than the next part of the answer takes.
            Err(MatcherError::AllowanceSpent) if left.is_some() => {
                Err(MatcherError::StepsExhausted {
                    max: MAX_ANSWER_STEPS,
                })
            }
            outcome => outcome,
        }
    }

    /// Finds a grammar other memory, where that is for this thread to do.
    fn renew(
        &self,
        request: &mut StructuredOutputRequest,
        cancel: &CancelFlag,
    ) -> Result<(), JobError> {
        match (self.turn.duty, request.is_apart()) {
            (Duty::Answer | Duty::Begin | Duty::Compile, true) => {
                Err(JobError::Elsewhere(Duty::Apart))
            }
            (Duty::Answer | Duty::Begin, false) => Err(JobError::Elsewhere(Duty::Compile)),
            (Duty::Compile, false) | (Duty::Apart, _) => Ok(request.renew(cancel)?),
        }
    }
}

/// # Errors
/// Whoever waits for the job has gone.
fn check_cancelled(cancel: &CancelFlag) -> Result<(), JobError> {
    match cancel.is_cancelled() {
        true => Err(CompileGrammarError::Compile(CompileError::Cancelled).into()),
        false => Ok(()),
    }
}
