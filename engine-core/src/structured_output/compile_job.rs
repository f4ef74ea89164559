//! One grammar to compile, for a request that waits for it.

use std::sync::Arc;

use crossbeam_channel::Sender;
use protocol::{RequestError, SamplingParams};
use structured_output::{CancelFlag, RequestMemory};

use super::compile_queue::BegunText;
use super::constraint::Constraint;
use super::request::StructuredOutputRequest;
use super::same_constraints::First;
use super::stage::Stage;
use super::turn::{Arena, Turn};
use crate::request_id::RequestId;

/// One grammar to compile.
pub(super) struct CompileJob {
    pub(super) request_id: RequestId,
    pub(super) params: Arc<SamplingParams>,
    pub(super) purpose: Purpose,
    /// The one that it has now, or next.
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
    /// Where it is one of the long texts that are begun.
    pub(super) begun_text: Option<BegunText>,
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

impl Purpose {
    /// A new request, with the output that an earlier core generated, and what it shares with its siblings.
    pub(super) fn start(
        reasoning_ended: Option<bool>,
        output_token_ids: Vec<u32>,
        request_memory: RequestMemory,
    ) -> Self {
        Self::Start {
            reasoning_ended,
            output_token_ids,
            begun: None,
            num_added_bytes: 0,
            request_memory,
        }
    }
}

/// A new request between two turns. In memory apart all that was computed may go with it, since nobody else
/// may be there.
pub(super) struct Begun {
    pub(super) request: Box<StructuredOutputRequest>,
    /// Tokens of its output that were accepted.
    pub(super) num_replayed: usize,
}

/// What became of a grammar.
pub struct CompiledGrammar {
    pub(crate) outcome: Result<Box<StructuredOutputRequest>, RequestError>,
    /// How long it took, where it was compiled for this request.
    pub(crate) compile_seconds: Option<f64>,
    /// Whether it was known when its request came, and not only wanted by others too.
    pub(crate) was_known: bool,
}

impl CompileJob {
    /// The job of a request in memory that all share, with a first turn and no text to read.
    pub(super) fn new(
        request_id: RequestId,
        params: Arc<SamplingParams>,
        purpose: Purpose,
        cancel: CancelFlag,
        compiled: Sender<CompiledGrammar>,
    ) -> Self {
        Self {
            request_id,
            params,
            purpose,
            turn: Turn::first(Arena::Shared),
            source_bytes: 0,
            constraint: None,
            cancel,
            compiled,
            compile_seconds: None,
            was_known: false,
            first: None,
            begun_text: None,
        }
    }

    /// The stages that it goes through where others may fail for it.
    pub(super) fn stages(&self) -> Vec<Stage> {
        let structured_outputs = self.params.structured_outputs.as_ref();
        let is_measured = structured_outputs.is_some_and(|it| it.complete_within_max_tokens);
        let is_opened = match &self.purpose {
            Purpose::Start {
                output_token_ids, ..
            } => output_token_ids.is_empty(),
            Purpose::Aside(_) => false,
        };
        let measuring = is_measured.then_some(Stage::Measuring);
        let opening = is_opened.then_some(Stage::Opening);
        let stages = [Some(Stage::Compiling), measuring, opening];
        stages.into_iter().flatten().collect()
    }
}
