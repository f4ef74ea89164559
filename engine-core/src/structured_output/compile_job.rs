//! One grammar to compile, for a request that waits for it.

use std::sync::Arc;

use crossbeam_channel::Sender;
use protocol::{RequestError, RequestErrorCode, SamplingParams};
use structured_output::{CancelFlag, CompileEffort, CompileError, MatcherError, RenewError};

use super::aside::Aside;
use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::request::{Accepted, StructuredOutputRequest};
use super::waiting_jobs::WaitingJobs;
use crate::request::RequestId;

/// One grammar to compile.
pub(super) struct CompileJob {
    pub(super) request_id: RequestId,
    pub(super) params: Arc<SamplingParams>,
    pub(super) purpose: Purpose,
    pub(super) cancel: CancelFlag,
    /// To the request itself.
    pub(super) compiled: Sender<CompiledGrammar>,
    /// How long it took so far, where anything was compiled for it.
    pub(super) compile_seconds: Option<f64>,
}

/// What a grammar is compiled for.
pub(super) enum Purpose {
    /// A request that has none yet.
    Start {
        reasoning_ended: Option<bool>,
        /// Output that an earlier core generated.
        output_token_ids: Vec<u32>,
    },
    /// A request that goes on once its grammar has room again, or has found an answer that takes
    /// longer than a step may wait.
    Aside(Box<StructuredOutputRequest>),
}

/// What became of a grammar.
pub struct CompiledGrammar {
    pub(crate) outcome: Result<Box<StructuredOutputRequest>, RequestError>,
    /// How long it took, where it was not found in a cache.
    pub(crate) compile_seconds: Option<f64>,
}

/// What compiles jobs.
pub(super) struct Compiler<'a> {
    backend: &'a dyn StructuredOutputBackend,
    waiting: &'a WaitingJobs,
    duty: Duty,
    /// Steps that the job's calls may still take here, where others wait; of a thread that compiles, the
    /// call under way.
    steps_left: u64,
}

/// What a thread may do. The first three work in the memory that requests under way share, which
/// wait meanwhile: for no more than [`SHARED_STEPS`] at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Find what running requests wait for, and bring new ones to grammars that are compiled, with
    /// [`SHARED_STEPS`] in all.
    Answer,
    /// Begin new grammars: as far as a compilation takes no more than [`BEGIN_STEPS`], and all else together
    /// as many.
    Begin,
    /// Go on with those that take more, up to [`COMPILE_STEPS`]; and find memory with room for grammars.
    Compile,
    /// Work without end on grammars in memory apart.
    Apart,
}

/// Steps of one call on a grammar in memory that requests under way share, which wait meanwhile: some
/// milliseconds. Of every sixteenth schema of MaskBench, each with nothing known before, 2 in 100 need
/// more for their shortest text.
pub(super) const SHARED_STEPS: u64 = 40_000;

/// Steps of a compilation that is begun, for which others wait that may need less.
const BEGIN_STEPS: u64 = 40_000;

/// Steps of a compilation in memory that is shared, and of each call on its grammar, others going first
/// whenever [`SHARED_STEPS`] are spent. What was computed is known the next time, so most calls come to an
/// end that way (the shortest text of a list of 24 invoices takes three times); the others never do.
const COMPILE_STEPS: u64 = 400_000;

impl Duty {
    /// How far a compilation may go.
    pub(super) fn effort(self) -> CompileEffort {
        let max_steps = match self {
            // It is compiled, unless that was forgotten meanwhile.
            Self::Answer => 0,
            Self::Begin => BEGIN_STEPS,
            Self::Compile => COMPILE_STEPS,
            Self::Apart => return CompileEffort::Apart,
        };
        CompileEffort::Shared { max_steps }
    }

    /// Who goes on with what takes more.
    fn next(self) -> Self {
        match self {
            Self::Answer | Self::Begin => Self::Compile,
            Self::Compile | Self::Apart => Self::Apart,
        }
    }
}

/// Why a job is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// The grammar needs memory of its own, and enough others have that.
    #[error("enough grammars have memory of their own")]
    NoMemory,
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

impl<'a> Compiler<'a> {
    /// For one job, on a thread with a duty.
    pub(super) fn new(
        backend: &'a dyn StructuredOutputBackend,
        waiting: &'a WaitingJobs,
        duty: Duty,
    ) -> Self {
        let steps_left = match duty {
            Duty::Answer => SHARED_STEPS,
            Duty::Begin => BEGIN_STEPS,
            Duty::Compile | Duty::Apart => COMPILE_STEPS,
        };
        Self {
            backend,
            waiting,
            duty,
            steps_left,
        }
    }

    /// Compiles, and brings the request to where its output stands, in memory where it has room.
    /// `None` where the request is that of the purpose.
    pub(super) fn run(
        mut self,
        params: &Arc<SamplingParams>,
        purpose: &mut Purpose,
        cancel: &CancelFlag,
    ) -> Result<Option<Box<StructuredOutputRequest>>, JobError> {
        match purpose {
            Purpose::Start {
                reasoning_ended,
                output_token_ids,
            } => self
                .start(params, *reasoning_ended, output_token_ids, cancel)
                .map(Some),
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
                self.with_room(request, cancel, |request| request.answer(&question))?;
            }
            None => {}
        }
        request.end_aside();
        Ok(())
    }

    /// A request at the end of its output so far. Its first mask is made here too: a grammar's start is
    /// the one state that nobody has met before.
    fn start(
        &mut self,
        params: &Arc<SamplingParams>,
        reasoning_ended: Option<bool>,
        output_token_ids: &[u32],
        cancel: &CancelFlag,
    ) -> Result<Box<StructuredOutputRequest>, JobError> {
        let Some(structured_outputs) = &params.structured_outputs else {
            let missing = "the request has no structured_outputs".to_owned();
            return Err(CompileGrammarError::Unsupported(missing).into());
        };
        let own_stop_tokens = &params.stop_token_ids;
        let effort = self.duty.effort();
        let grammar = self
            .backend
            .compile_grammar(structured_outputs, own_stop_tokens, effort, cancel)
            .ok_or(JobError::Elsewhere(self.duty.next()))??;
        let model_stop_tokens = self.backend.stop_token_ids();
        let mut request = Box::new(StructuredOutputRequest::unmeasured(
            grammar,
            params,
            reasoning_ended,
            model_stop_tokens,
        ));
        let max_tokens = params.max_tokens;
        self.with_room(&mut request, cancel, |request| request.measure(max_tokens))?;
        if output_token_ids.is_empty() {
            self.with_room(&mut request, cancel, |request| request.check_opening())?;
        }
        for (index, &token_id) in output_token_ids.iter().enumerate() {
            // Whether it can still be completed was decided when it was generated.
            let accepted = self.with_room(&mut request, cancel, |request| {
                request.accept_token(token_id, u32::MAX)
            })?;
            if accepted != Accepted::Yes {
                let message = format!(
                    "output_token_ids: the grammar refuses token {token_id} at index {index}"
                );
                return Err(CompileGrammarError::Unsupported(message).into());
            }
        }
        self.with_room(&mut request, cancel, |request| {
            request.mask(u32::MAX)?;
            // Noted for whoever asks within a step.
            request.is_completed();
            Ok(())
        })?;
        request.tell_when_gone(self.waiting.tell_when_gone());
        Ok(request)
    }

    /// Does something with a grammar, which goes on in other memory for as long as its own is full,
    /// and in memory apart where it takes long.
    fn with_room<T>(
        &mut self,
        request: &mut StructuredOutputRequest,
        cancel: &CancelFlag,
        mut attempt: impl FnMut(&mut StructuredOutputRequest) -> Result<T, MatcherError>,
    ) -> Result<T, JobError> {
        if self.duty == Duty::Compile {
            self.steps_left = COMPILE_STEPS;
        }
        loop {
            if self.duty == Duty::Apart {
                request.move_apart(cancel)?;
            }
            match self.try_once(request, &mut attempt) {
                Err(MatcherError::AllowanceSpent) if self.duty != Duty::Apart => {
                    if request.is_apart() {
                        return Err(JobError::Elsewhere(Duty::Apart));
                    }
                    if self.steps_left == 0 {
                        return Err(JobError::Elsewhere(self.duty.next()));
                    }
                    if cancel.is_cancelled() {
                        return Err(CompileGrammarError::Compile(CompileError::Cancelled).into());
                    }
                    request.let_others_pass();
                }
                Err(MatcherError::StatesExhausted { .. }) => self.renew(request, cancel)?,
                Err(error) => return Err(CompileGrammarError::Matcher(error).into()),
                Ok(done) => return Ok(done),
            }
        }
    }

    /// Does it with what is left of the steps; in memory apart, as long as it takes.
    fn try_once<T>(
        &mut self,
        request: &mut StructuredOutputRequest,
        attempt: impl FnOnce(&mut StructuredOutputRequest) -> Result<T, MatcherError>,
    ) -> Result<T, MatcherError> {
        let granted = match self.duty {
            Duty::Apart => None,
            Duty::Answer | Duty::Begin | Duty::Compile => Some(self.steps_left.min(SHARED_STEPS)),
        };
        request.set_allowance(granted);
        let outcome = attempt(request);
        if let (Some(granted), Some(left)) = (granted, request.allowance()) {
            let is_spent = matches!(outcome, Err(MatcherError::AllowanceSpent));
            self.steps_left -= if is_spent {
                granted
            } else {
                granted.saturating_sub(left)
            };
        }
        outcome
    }

    /// Finds a grammar other memory, where that is for this thread to do.
    fn renew(
        &self,
        request: &mut StructuredOutputRequest,
        cancel: &CancelFlag,
    ) -> Result<(), JobError> {
        match (self.duty, request.is_apart()) {
            (Duty::Answer | Duty::Begin | Duty::Compile, true) => {
                Err(JobError::Elsewhere(Duty::Apart))
            }
            (Duty::Answer | Duty::Begin, false) => Err(JobError::Elsewhere(Duty::Compile)),
            (Duty::Compile, false) | (Duty::Apart, _) => Ok(request.renew(cancel)?),
        }
    }
}

/// What is told to a caller whose stop tokens are the only ones that could continue the text.
pub(crate) fn only_stop_tokens() -> String {
    format!(
        "stop_token_ids: {}, and there they are not allowed: name others",
        MatcherError::OnlyStopTokens
    )
}

/// What the request's caller is told. A limit of the grammar is the caller's fault whenever it is met; all
/// else that goes wrong after the request was let in is not.
pub(super) fn refusal(
    params: &SamplingParams,
    purpose: &Purpose,
    error: &JobError,
) -> RequestError {
    let kind = params
        .structured_outputs
        .as_ref()
        .map_or("", |structured_outputs| {
            structured_outputs.constraint.kind()
        });
    let own_stop_tokens = CompileGrammarError::Matcher(MatcherError::OnlyStopTokens);
    if matches!(error, JobError::Grammar(error) if *error == own_stop_tokens) {
        return RequestError {
            code: RequestErrorCode::ValidationError,
            message: only_stop_tokens(),
            retryable: false,
        };
    }
    let is_limit = matches!(
        error,
        JobError::Grammar(CompileGrammarError::Matcher(
            MatcherError::StepsExhausted { .. } | MatcherError::ItemsExhausted { .. }
        ))
    );
    let code = match purpose {
        Purpose::Aside(request) if !is_limit && request.num_answer_tokens > 0 => {
            RequestErrorCode::InternalError
        }
        _ => RequestErrorCode::GrammarRefused,
    };
    RequestError {
        code,
        message: format!("structured_outputs.{kind}: {error}"),
        retryable: false,
    }
}
