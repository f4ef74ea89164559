//! One grammar to compile, for a request that waits for it.

use std::sync::Arc;

use crossbeam_channel::Sender;
use protocol::{RequestError, RequestErrorCode, SamplingParams};
use structured_output::{CancelFlag, MatcherError};

use super::backend::{
    CompileGrammarError, GrammarMemory, StructuredOutputBackend, StructuredOutputGrammar,
};
use super::own_memory::{OwnMemory, OwnMemoryPermit};
use super::request::{Accepted, StructuredOutputRequest};
use crate::request::RequestId;

/// One grammar to compile.
pub(super) struct CompileJob {
    pub(super) request_id: RequestId,
    pub(super) params: Arc<SamplingParams>,
    pub(super) purpose: Purpose,
    pub(super) cancel: CancelFlag,
    /// To the request itself.
    pub(super) compiled: Sender<CompiledGrammar>,
}

/// What a grammar is compiled for.
pub(super) enum Purpose {
    /// A request that has none yet.
    Start {
        reasoning_ended: Option<bool>,
        /// Output that an earlier core generated.
        output_token_ids: Vec<u32>,
    },
    /// A request whose grammar has no room any more.
    Renewal {
        request: Box<StructuredOutputRequest>,
        /// What the grammar had accepted.
        answer_token_ids: Vec<u32>,
    },
}

/// What became of a grammar.
pub struct CompiledGrammar {
    pub(crate) outcome: Result<Box<StructuredOutputRequest>, RequestError>,
    /// How long it took, where it was not found in a cache.
    pub(crate) compile_seconds: Option<f64>,
}

/// What compiles jobs.
pub(super) struct Compiler<'a> {
    pub(super) backend: &'a dyn StructuredOutputBackend,
    pub(super) own_memory: &'a OwnMemory,
}

/// A grammar at its start, and the leave for its memory where that is its own.
type Compiled = (Box<dyn StructuredOutputGrammar>, Option<OwnMemoryPermit>);

/// Why a job is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// The grammar needs memory of its own, and enough others have that.
    #[error("enough grammars have memory of their own")]
    NoPermit,
    /// Its request fails.
    #[error(transparent)]
    Grammar(#[from] CompileGrammarError),
}

impl From<MatcherError> for JobError {
    fn from(error: MatcherError) -> Self {
        Self::Grammar(error.into())
    }
}

impl Compiler<'_> {
    /// Compiles, and brings the request to where its output stands. Memory that others have filled
    /// meanwhile is tried once more, since the next compilation finds other; then the grammar gets
    /// its own. `None` where the request is that of the purpose.
    pub(super) fn run(
        &self,
        params: &Arc<SamplingParams>,
        purpose: &mut Purpose,
        cancel: &CancelFlag,
    ) -> Result<Option<Box<StructuredOutputRequest>>, JobError> {
        use GrammarMemory::{Own, Shared};
        match purpose {
            Purpose::Start {
                reasoning_ended,
                output_token_ids,
            } => in_turn(&[Shared, Shared, Own], |memory| {
                let compiled = self.compile(params, memory, cancel)?;
                self.start(compiled, params, *reasoning_ended, output_token_ids)
                    .map(Some)
            }),
            Purpose::Renewal {
                request,
                answer_token_ids,
            } => {
                let memories: &[_] = match request.renewal() {
                    Some(Shared) => &[Shared, Own],
                    Some(Own) | None => &[Own],
                };
                in_turn(memories, |memory| {
                    let (grammar, own_memory) = self.compile(params, memory, cancel)?;
                    Ok(request.renew(grammar, answer_token_ids, own_memory)?)
                })?;
                Ok(None)
            }
        }
    }

    fn compile(
        &self,
        params: &SamplingParams,
        memory: GrammarMemory,
        cancel: &CancelFlag,
    ) -> Result<Compiled, JobError> {
        let Some(structured_outputs) = &params.structured_outputs else {
            let missing = "the request has no structured_outputs".to_owned();
            return Err(CompileGrammarError::Unsupported(missing).into());
        };
        let permit = match memory {
            GrammarMemory::Shared => None,
            GrammarMemory::Own => Some(self.own_memory.permit().ok_or(JobError::NoPermit)?),
        };
        let own_stop_tokens = &params.stop_token_ids;
        let grammar =
            self.backend
                .compile_grammar(structured_outputs, own_stop_tokens, memory, cancel)?;
        Ok((grammar, permit))
    }

    /// A request at the end of its output so far. Its first mask is made here too: a grammar's start is
    /// the one state that nobody has met before.
    fn start(
        &self,
        (grammar, own_memory): Compiled,
        params: &Arc<SamplingParams>,
        reasoning_ended: Option<bool>,
        output_token_ids: &[u32],
    ) -> Result<Box<StructuredOutputRequest>, JobError> {
        let model_stop_tokens = self.backend.stop_token_ids();
        let mut request =
            StructuredOutputRequest::new(grammar, params, reasoning_ended, model_stop_tokens)?;
        for (index, &token_id) in output_token_ids.iter().enumerate() {
            // Whether it can still be completed was decided when it was generated.
            if request.accept_token(token_id, u32::MAX)? != Accepted::Yes {
                let message = format!(
                    "output_token_ids: the grammar refuses token {token_id} at index {index}"
                );
                return Err(CompileGrammarError::Unsupported(message).into());
            }
        }
        request.mask(u32::MAX)?;
        request.set_own_memory(own_memory);
        Ok(Box::new(request))
    }
}

/// Tries one memory after the other, for as long as the one before has no room.
fn in_turn<T>(
    memories: &[GrammarMemory],
    mut attempt: impl FnMut(GrammarMemory) -> Result<T, JobError>,
) -> Result<T, JobError> {
    let mut outcome = Err(JobError::NoPermit);
    for &memory in memories {
        outcome = attempt(memory);
        let is_full = matches!(
            outcome,
            Err(JobError::Grammar(CompileGrammarError::Matcher(
                MatcherError::StatesExhausted { .. }
            )))
        );
        if !is_full {
            break;
        }
    }
    outcome
}

/// What is told to a caller whose stop tokens are the only ones that could continue the text.
pub(crate) fn only_stop_tokens() -> String {
    format!(
        "stop_token_ids: {}, and there they are not allowed: name others",
        MatcherError::OnlyStopTokens
    )
}

/// What the request's caller is told.
pub(super) fn refusal(params: &SamplingParams, error: &JobError) -> RequestError {
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
    RequestError {
        code: RequestErrorCode::GrammarRefused,
        message: format!("structured_outputs.{kind}: {error}"),
        retryable: false,
    }
}
