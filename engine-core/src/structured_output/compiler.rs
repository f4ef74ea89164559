//! One turn of a job.

use std::sync::Arc;

use protocol::SamplingParams;
use structured_output::{CancelFlag, CompileError, MatcherError, RenewError};

use super::aside::Aside;
use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::compile_job::{Begun, Purpose};
use super::compile_queue::CompileQueue;
use super::grammar_end::TellWhenGone;
use super::request::{Accepted, StructuredOutputRequest};
use super::stage::Stage;
use super::turn::{Arena, MAX_ANSWER_STEPS, SHARED_STEPS, Turn};

/// So often a call may meet the limit of its steps: each goes on with what the ones before have found out, so
/// that less depends on who asked before.
const MAX_TRIES: u32 = 3;

/// Bytes of states that a request may add before its first token, in all the memory that it goes through: as many as
/// a memory apart holds, so that a request that is refused has taken no more than its share.
const MAX_BYTES_TO_START: usize = 24 << 20;

/// What works on a job for one turn.
pub(super) struct Compiler<'a> {
    backend: &'a Arc<dyn StructuredOutputBackend>,
    queue: &'a Arc<CompileQueue>,
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
    /// What is left to do is for memory apart.
    #[error("the job goes on in memory apart")]
    GoesApart,
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

impl<'a> Compiler<'a> {
    /// For one turn of a job.
    pub(super) fn new(
        backend: &'a Arc<dyn StructuredOutputBackend>,
        queue: &'a Arc<CompileQueue>,
        turn: Turn,
    ) -> Self {
        Self {
            backend,
            queue,
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
                // Whoever is let in already goes on for as long as there is memory.
                let may_add = MAX_BYTES_TO_START.saturating_sub(*num_added_bytes);
                let max_bytes = output_token_ids.is_empty().then_some(may_add);
                begin.request.set_max_bytes(max_bytes);
                let started = self.start(&mut begin, params, output_token_ids, cancel);
                let left = begin.request.bytes_left().unwrap_or(may_add);
                *num_added_bytes += may_add.saturating_sub(left);
                match started {
                    Ok(()) => {
                        begin.request.set_max_bytes(None);
                        let memory = &*request_memory;
                        begin.request.set_request_memory(memory, *num_added_bytes);
                        Ok(Some(begin.request))
                    }
                    Err(error) => {
                        let goes_on = matches!(error, JobError::TurnOver | JobError::GoesApart);
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
        request.tell_when_gone(TellWhenGone {
            queue: Arc::clone(self.queue),
            backend: Arc::clone(self.backend),
        });
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
        let is_apart = self.turn.arena == Arena::Apart;
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
                        return Err(JobError::GoesApart);
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
        let granted = match (self.turn.arena, self.steps_left) {
            (_, None) => return self.try_endlessly(request, attempt),
            (Arena::Apart, Some(left)) => {
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

    /// Finds a grammar other memory, which compiles it there: no short turn.
    fn renew(
        &self,
        request: &mut StructuredOutputRequest,
        cancel: &CancelFlag,
    ) -> Result<(), JobError> {
        match self.turn.arena {
            Arena::Shared if request.is_apart() => Err(JobError::GoesApart),
            Arena::Shared if self.turn.is_short() => Err(JobError::TurnOver),
            Arena::Shared | Arena::Apart => Ok(request.renew(cancel)?),
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
