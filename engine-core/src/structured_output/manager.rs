//! The manager: from a request's constraint to its compiled grammar.

use std::num::NonZero;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use protocol::{RequestError, RequestErrorCode, SamplingParams, StructuredOutputsConfig};
use structured_output::CancelFlag;

use super::aside::Aside;
use super::backend::StructuredOutputBackend;
use super::compile_job::{CompileJob, CompiledGrammar, Purpose};
use super::compile_pool::CompilePool;
use super::constraint::NamedConstraint;
use super::request::StructuredOutputRequest;
use super::same_constraints::Places;
use crate::request_id::RequestId;

/// Compiles the requests' grammars on threads of its own. Shared by the input threads, which
/// submit, and the busy loop, which is woken by what is done.
pub struct StructuredOutputManager {
    /// Or why there is no structured output.
    pool: Result<CompilePool, String>,
    done: Receiver<RequestId>,
}

/// Of a new request what its grammar depends on.
pub(crate) struct GrammarRequest<'a> {
    pub(crate) request_id: &'a RequestId,
    pub(crate) params: &'a Arc<SamplingParams>,
    /// Where the prompt leaves the model's thinking.
    pub(crate) reasoning_ended: Option<bool>,
    /// Output that an earlier core generated.
    pub(crate) output_token_ids: &'a [u32],
    /// Whether an earlier core had let it in.
    pub(crate) is_replay: bool,
}

/// A grammar that is being compiled. Dropping it cancels the compilation.
pub struct PendingGrammar {
    cancel: CancelFlag,
    compiled: Receiver<CompiledGrammar>,
    was_admitted: bool,
}

impl PendingGrammar {
    /// A grammar that is still to come, by the sender.
    pub(crate) fn new() -> (Self, Sender<CompiledGrammar>) {
        let (sender, compiled) = bounded(1);
        let cancel = CancelFlag::new();
        let pending = Self {
            cancel,
            compiled,
            was_admitted: false,
        };
        (pending, sender)
    }

    /// Whether the request was admitted with the same grammar before.
    pub(crate) fn was_admitted(&self) -> bool {
        self.was_admitted
    }

    /// Marks it as that of a request that was admitted.
    #[cfg(test)]
    pub(crate) fn set_admitted(&mut self) {
        self.was_admitted = true;
    }

    /// Set when nobody waits for it any more.
    #[cfg(test)]
    pub(crate) fn cancel_flag(&self) -> CancelFlag {
        self.cancel.clone()
    }

    /// The grammar, once, when it is compiled.
    pub(crate) fn take(&self) -> Option<CompiledGrammar> {
        self.compiled.try_recv().ok()
    }
}

impl Drop for PendingGrammar {
    fn drop(&mut self) {
        self.cancel.cancel();
        // It came, and nobody took it.
        if let Some(grammar) = self.take().and_then(|compiled| compiled.outcome.ok()) {
            grammar.discard();
        }
    }
}

impl StructuredOutputManager {
    /// A manager around a backend, with its threads.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn new(
        config: &StructuredOutputsConfig,
        backend: &Arc<dyn StructuredOutputBackend>,
    ) -> std::io::Result<Self> {
        let half_the_cores = || {
            std::thread::available_parallelism().map_or(1, |cores| NonZero::get(cores).div_ceil(2))
        };
        let num_threads = config
            .compile_threads
            .map_or_else(half_the_cores, |threads| threads.max(1) as usize);
        let (sender, done) = unbounded();
        let max_queued = config.max_num_queued_grammars as usize;
        let pool = CompilePool::new(backend, num_threads, max_queued, &sender)?;
        Ok(Self {
            pool: Ok(pool),
            done,
        })
    }

    /// A manager that refuses every constraint, for this reason.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self {
            pool: Err(reason.into()),
            done: crossbeam_channel::never(),
        }
    }

    /// Submits a new request's grammar; `None` where it has no constraint. `before` is the constraint of a
    /// sibling before it, whose text is read once for both, and then this one.
    ///
    /// # Errors
    /// Too many wait already (which doesn't concern a replay), or there is no structured output here.
    pub(crate) fn grammar_init(
        &self,
        before: &mut Option<NamedConstraint>,
        request: GrammarRequest<'_>,
    ) -> Result<Option<PendingGrammar>, RequestError> {
        let Some(structured_outputs) = &request.params.structured_outputs else {
            return Ok(None);
        };
        let named = before
            .take()
            .filter(|before| before.is_of(structured_outputs))
            .unwrap_or_else(|| NamedConstraint::new(structured_outputs));
        let named = before.insert(named);
        let pool = self.pool()?;
        let (pending, sender) = PendingGrammar::new();
        let purpose = Purpose::start(
            request.reasoning_ended,
            request.output_token_ids.to_vec(),
            named.request_memory(),
        );
        let (id, params) = (request.request_id.clone(), Arc::clone(request.params));
        let mut job = CompileJob::new(id, params, purpose, pending.cancel.clone(), sender);
        job.source_bytes = named.source_bytes();
        job.constraint = Some(named.constraint());
        let places = match request.is_replay {
            true => Places::Unlimited,
            false => Places::Limited,
        };
        pool.submit(job, places)?;
        Ok(Some(pending))
    }

    /// Submits a request's grammar for what the request waits for outside the steps: other memory, or
    /// an answer.
    ///
    /// # Errors
    /// There are no compile threads; the grammar is lost.
    pub(crate) fn submit_aside(
        &self,
        request_id: &RequestId,
        params: &Arc<SamplingParams>,
        grammar: Box<StructuredOutputRequest>,
    ) -> Result<PendingGrammar, RequestError> {
        let (mut pending, sender) = PendingGrammar::new();
        pending.was_admitted = true;
        let is_renewed = matches!(grammar.aside(), Some(Aside::Exhausted));
        let turn = grammar.first_turn();
        let (id, params) = (request_id.clone(), Arc::clone(params));
        let purpose = Purpose::Aside(grammar);
        let mut job = CompileJob::new(id, params, purpose, pending.cancel.clone(), sender);
        job.turn = turn;
        job.compile_seconds = is_renewed.then_some(0.0);
        self.pool()?.submit_aside(job)?;
        Ok(pending)
    }

    fn pool(&self) -> Result<&CompilePool, RequestError> {
        self.pool.as_ref().map_err(|reason| {
            RequestError::new(
                RequestErrorCode::GrammarRefused,
                format!("structured_outputs can't be served: {reason}"),
            )
        })
    }

    /// Where the ids of requests arrive whose grammars are compiled, in the order in which they are:
    /// perhaps before the scheduler has heard of the request.
    pub fn done(&self) -> &Receiver<RequestId> {
        &self.done
    }
}
