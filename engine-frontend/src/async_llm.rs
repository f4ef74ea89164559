//! The engine for async programs: requests in, streams of outputs out.

mod aside;
mod core_client;
mod report;
mod request_stream;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use protocol::{
    EngineCoreOutput, EngineCoreReadyResponse, RequestError, RequestErrorCode, RequestOutputKind,
};
use structured_output::CancelFlag;
use tokenizer::Tokenizer;
use tokio::task::AbortHandle;

use crate::answer_budget::AnswerBudget;
use crate::engine_core_client::EngineCoreClientError;
use crate::error::{EngineDeadError, GenerateError, ValidationError};
use crate::input_processor::{GenerateRequest, InputProcessor, ProcessedInputs, Prompt};
use crate::metrics::{EngineMetrics, StatLogger};
use crate::output_processor::OutputProcessor;
use crate::pooler_config::PoolerConfig;
use crate::request_output_collector::RequestOutputCollector;
use crate::sampling_params::{ModelLimits, verify_num_logprobs};
use crate::structured_outputs::{CheckThread, StructuredOutputsArgs};
use crate::token_usage::TokenUsage;
use crate::tokenizer_threads::{LARGE, TokenizerThreads};

pub use core_client::{BoxFuture, CoreClient};
use report::Reports;
pub use request_stream::RequestStream;

/// Answers that are registered and sent by the thread that has their request: a millisecond's work.
const FEW_CHILDREN: usize = 64;

/// Most engine cores that have statistics of their own.
const MAX_ENGINES: usize = 1024;

/// Outputs processed before other tasks get their turn.
const OUTPUT_PROC_CHUNK_SIZE: usize = 128;

/// Runs requests on one core. Cheap to share behind an [`Arc`]; ends when it and all its streams
/// are dropped.
#[derive(Debug)]
pub struct AsyncLLM {
    inner: Arc<Inner>,
    input_processor: Arc<InputProcessor>,
    tokenizer_threads: TokenizerThreads,
    check_thread: CheckThread,
    reports: Reports,
    tokenizer: Arc<Tokenizer>,
    ready: EngineCoreReadyResponse,
    /// `None` where the model generates text.
    pooler_config: Option<Arc<PoolerConfig>>,
}

#[derive(Debug)]
struct Inner {
    client: Arc<dyn CoreClient>,
    state: Mutex<State>,
    stat_loggers: OnceLock<Vec<Arc<dyn StatLogger>>>,
    output_handler: OnceLock<AbortHandle>,
}

#[derive(Debug)]
struct State {
    output_processor: OutputProcessor,
    /// Of each engine core, by its number.
    metrics: Vec<EngineMetrics>,
    engine_dead: Option<EngineDeadError>,
}

impl AsyncLLM {
    /// An engine over a core that is ready. Starts the output handler; call it within a tokio
    /// runtime.
    pub fn new(
        client: Arc<dyn CoreClient>,
        ready: EngineCoreReadyResponse,
        tokenizer: Arc<Tokenizer>,
    ) -> Self {
        let limits = model_limits(&ready, &tokenizer);
        let inner = Arc::new(Inner {
            client: client.clone(),
            state: Mutex::new(State {
                output_processor: OutputProcessor::new(tokenizer.clone()),
                metrics: vec![EngineMetrics::default()],
                engine_dead: None,
            }),
            stat_loggers: OnceLock::new(),
            output_handler: OnceLock::new(),
        });
        let handler = tokio::spawn(output_handler(Arc::downgrade(&inner), client));
        inner.output_handler.get_or_init(|| handler.abort_handle());
        Self {
            inner,
            input_processor: Arc::new(InputProcessor::new(tokenizer.clone(), limits)),
            tokenizer_threads: TokenizerThreads::new(),
            check_thread: CheckThread::new(),
            reports: Reports::default(),
            tokenizer,
            ready,
            pooler_config: None,
        }
    }

    /// The same engine with these settings for constraints and thinking.
    ///
    /// # Errors
    /// The thinking's tokens that they name are not the tokenizer's.
    pub fn with_structured_outputs(
        mut self,
        args: StructuredOutputsArgs,
    ) -> Result<Self, ValidationError> {
        let processor = InputProcessor::new(
            self.tokenizer.clone(),
            model_limits(&self.ready, &self.tokenizer),
        );
        self.input_processor = Arc::new(processor.with_structured_outputs(args)?);
        Ok(self)
    }

    /// Starts a request. Dropping the stream aborts it.
    ///
    /// # Errors
    /// The request is wrong, or the core is gone. What the core finds wrong comes by the stream.
    pub async fn generate(&self, request: GenerateRequest) -> Result<RequestStream, GenerateError> {
        let mut streams = self.generate_all(vec![request], None).await?;
        streams
            .pop()
            .ok_or_else(|| internal_error("a request was lost"))
    }

    /// Starts requests together, all or none, in their order. What they share is checked, sent and held once.
    /// `usage` counts the tokens of all as they are known.
    ///
    /// # Errors
    /// One is wrong, there is no room for all, or the core is gone. What the core finds wrong comes by the
    /// streams.
    pub async fn generate_all(
        &self,
        requests: Vec<GenerateRequest>,
        usage: Option<Arc<TokenUsage>>,
    ) -> Result<Vec<RequestStream>, GenerateError> {
        if let Some(dead) = self.errored() {
            return Err(dead.into());
        }
        self.check_runner(&requests)?;
        self.check_room(&requests)?;
        let num_bytes = requests.iter().map(GenerateRequest::num_bytes).sum();
        let processed = self.process_inputs(requests, num_bytes).await?;
        let num_children: usize = processed
            .iter()
            .map(|inputs| inputs.request.sampling_params.n as usize)
            .sum();
        let inner = self.inner.clone();
        let vocab_size = self.tokenizer.vocab_size();
        if num_bytes <= LARGE && num_children <= FEW_CHILDREN {
            return inner.start(processed, vocab_size, usage);
        }
        let start = move |_: &CancelFlag| inner.start(processed, vocab_size, usage);
        self.run_aside(num_bytes, start).await?
    }

    /// Refuses requests for text where the model makes vectors or scores.
    fn check_runner(&self, requests: &[GenerateRequest]) -> Result<(), ValidationError> {
        match requests.iter().all(GenerateRequest::is_prompt_only) {
            true => Ok(()),
            false => self.check_generates(),
        }
    }

    /// Refuses a model that makes vectors or scores.
    pub(crate) fn check_generates(&self) -> Result<(), ValidationError> {
        match &self.pooler_config {
            Some(config) => {
                let message = format!(
                    "this model generates no text (runner: pooling): it serves {}",
                    config.routes()
                );
                Err(ValidationError::about("model", message))
            }
            None => Ok(()),
        }
    }

    /// What the model makes of prompts, where that isn't text.
    pub fn pooler_config(&self) -> Option<&Arc<PoolerConfig>> {
        self.pooler_config.as_ref()
    }

    /// The same engine with a model that makes vectors or scores.
    #[must_use]
    pub fn with_pooler_config(mut self, config: Option<PoolerConfig>) -> Self {
        self.pooler_config = config.map(Arc::new);
        self
    }

    /// Refuses more answers than may run and wait, before anything is made of them. The core looks again: it
    /// may have other clients.
    fn check_room(&self, requests: &[GenerateRequest]) -> Result<(), GenerateError> {
        let Some(max_queued) = self.ready.max_num_queued_reqs else {
            return Ok(());
        };
        let wanted: u64 = requests
            .iter()
            .map(|request| u64::from(request.sampling_params.n))
            .sum();
        let unfinished = self.num_unfinished_requests() as u64;
        let places = u64::from(max_queued) + u64::from(self.ready.max_num_seqs);
        if wanted <= 1 || unfinished + wanted <= places {
            return Ok(());
        }
        // They would have none on an idle server either.
        if wanted > places {
            let has_several = requests.iter().any(|request| request.sampling_params.n > 1);
            let is_scored = requests.iter().any(|r| !r.scored_positions.is_empty());
            let is_pooled = requests.iter().any(|r| r.pooling_params.is_some());
            let are_chats = requests
                .iter()
                .all(|request| matches!(request.prompt, Prompt::Chat(_)));
            let field = match (has_several, is_scored, are_chats) {
                (true, ..) => "n",
                _ if is_pooled => "input",
                (false, true, _) => "questions",
                (false, false, true) => "messages",
                (false, false, false) => "prompt",
            };
            let message = format!(
                "{field}: {wanted} answers are more than this server takes at once: {} may run, and \
                 max_num_queued_reqs is {max_queued}",
                self.ready.max_num_seqs
            );
            return Err(ValidationError::about(field, message).into());
        }
        Err(GenerateError::Request(RequestError::new(
            RequestErrorCode::QueueOverflow,
            format!(
                "{wanted} answers have no place beside {unfinished} that run or wait already: {} may run, \
                 and max_num_queued_reqs is {max_queued}",
                self.ready.max_num_seqs
            ),
        )))
    }

    /// Lets these hear of every step from now on. Later calls have no effect.
    pub fn set_stat_loggers(&self, loggers: Vec<Arc<dyn StatLogger>>) {
        self.inner.stat_loggers.get_or_init(|| loggers);
    }

    /// Lets the stat loggers say what there is to say. For whoever has a clock.
    pub fn do_log_stats(&self) {
        let num_unfinished = self.num_unfinished_requests();
        for logger in self.inner.stat_loggers() {
            logger.log(num_unfinished);
        }
    }

    /// Why the core is gone, if it is.
    pub fn errored(&self) -> Option<EngineDeadError> {
        self.inner.state().engine_dead.clone()
    }

    /// What the core said about itself when it was ready.
    pub fn ready_response(&self) -> &EngineCoreReadyResponse {
        &self.ready
    }

    /// True if the model's thinking is told apart.
    pub fn thinks(&self) -> bool {
        self.input_processor.thinks()
    }

    /// True if its thinking can be held to a budget.
    pub(crate) fn takes_thinking_budget(&self) -> bool {
        self.input_processor.takes_thinking_budget()
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Checks how many logprobs per token a request's `top_logprobs` asks for.
    ///
    /// # Errors
    /// More than the engine gives.
    pub(crate) fn check_top_logprobs(&self, top_logprobs: i32) -> Result<(), ValidationError> {
        let limits = model_limits(&self.ready, &self.tokenizer);
        verify_num_logprobs("top_logprobs", top_logprobs, &limits)
    }

    /// Requests in flight, each of `n` counted.
    pub fn num_unfinished_requests(&self) -> usize {
        self.inner
            .state()
            .output_processor
            .num_unfinished_requests()
    }

    /// Ends the core and waits for it, if this engine started it; requests in flight have
    /// `drain_seconds` to finish. Every later request is refused.
    ///
    /// # Errors
    /// The core died before or meanwhile.
    pub async fn shutdown(&self, drain_seconds: f64) -> Result<(), EngineDeadError> {
        self.inner.client.shutdown(drain_seconds).await
    }

    /// What the core reported since the start, to this client, and how the answers ended.
    pub fn metrics(&self) -> EngineMetrics {
        EngineMetrics::together(&self.engine_metrics())
    }

    /// The same of each engine core, by its number: of those that have reported, and at least of one.
    pub fn engine_metrics(&self) -> Vec<EngineMetrics> {
        self.inner.state().metrics.clone()
    }

    /// Tokens generated since the start, for all requests.
    pub fn num_generation_tokens(&self) -> u64 {
        self.inner.state().output_processor.num_generation_tokens()
    }

    /// Grammars that the core compiles now, or that wait for it.
    pub fn num_queued_grammars(&self) -> u32 {
        let state = self.inner.state();
        let engines = state.metrics.iter();
        engines
            .map(|engine| engine.structured_output.num_queued_grammars)
            .sum()
    }
}

fn model_limits(ready: &EngineCoreReadyResponse, tokenizer: &Tokenizer) -> ModelLimits {
    // Ids above the tokenizer's own exist in the logits of padded models. They have no text.
    let tokenizer_size = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    ModelLimits {
        max_model_len: ready.max_model_len,
        vocab_size: ready.vocab_size.min(tokenizer_size),
        max_logprobs: ready.max_logprobs,
    }
}

impl Inner {
    /// Registers requests and sends them.
    fn start(
        self: Arc<Self>,
        processed: Vec<ProcessedInputs>,
        vocab_size: usize,
        usage: Option<Arc<TokenUsage>>,
    ) -> Result<Vec<RequestStream>, GenerateError> {
        let mut streams = Vec::with_capacity(processed.len());
        let mut children = Vec::new();
        let Some(first) = processed.first() else {
            return Ok(Vec::new());
        };
        let params = &first.request.sampling_params;
        let budget = AnswerBudget::new(params, vocab_size, first.keeps_answer);
        for inputs in processed {
            let kind = inputs.request.sampling_params.output_kind;
            let is_delta = kind == RequestOutputKind::Delta;
            if let Some(usage) = &usage {
                usage.add_prompt_tokens(inputs.request.prompt_token_ids.len());
            }
            let queue = RequestOutputCollector::new(is_delta);
            let stream = RequestStream {
                inner: self.clone(),
                queue: Arc::new(queue.with_usage(usage.clone())),
                request_id: inputs.request.request_id.clone(),
                num_prompt_tokens: inputs.request.prompt_token_ids.len(),
                aggregate: is_delta,
                finished: false,
            };
            let mut state = self.state();
            if let Some(dead) = &state.engine_dead {
                return Err(dead.clone().into());
            }
            // Registered before it is sent: no output can be too early.
            let first = children.len();
            let registered = state
                .output_processor
                .add_request(inputs, &stream.queue, &budget);
            children.extend(registered);
            drop(state);
            streams.push((stream, first..children.len()));
        }
        let ids: Vec<String> = children.iter().map(|c| c.request_id.clone()).collect();
        for logger in self.stat_loggers() {
            logger.record_arrival();
        }
        // Dropping the streams takes back what was sent.
        self.client.add_requests(children).map_err(refused)?;
        // Where one of several failed meanwhile, those sent after it would run for nobody.
        let state = self.state();
        let is_gone = |id: &str| !state.output_processor.is_unfinished(id);
        let gone: Vec<String> = streams
            .iter()
            .filter(|(stream, ids)| ids.len() > 1 && is_gone(&stream.request_id))
            .flat_map(|(_, of)| ids.get(of.clone()).unwrap_or_default().iter().cloned())
            .collect();
        drop(state);
        self.abort(gone);
        Ok(streams.into_iter().map(|(stream, _)| stream).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two calls into it, so a panic elsewhere is no
        // reason to give up the other requests.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stat_loggers(&self) -> impl Iterator<Item = &Arc<dyn StatLogger>> {
        self.stat_loggers.get().into_iter().flatten()
    }

    fn abort(&self, ids: Vec<String>) {
        if !ids.is_empty() {
            // An error means that the core is gone; the output handler hears that too, and ends
            // every stream with the reason.
            let _ = self.client.abort_requests(ids);
        }
    }

    fn engine_dead(&self, error: EngineDeadError) {
        let mut state = self.state();
        state.output_processor.propagate_error(&error);
        state.engine_dead.get_or_insert(error);
    }
}

impl State {
    /// Takes outputs of an engine core; returns requests that are to be aborted.
    fn process_outputs(&mut self, engine_index: u32, outputs: &[EngineCoreOutput]) -> Vec<String> {
        let aborts = self.output_processor.process_outputs(outputs);
        let ends = self.output_processor.take_structured_ends();
        self.metrics_of(engine_index).add_structured_ends(ends);
        aborts
    }

    /// What an engine core did. One with a number that none can have counts as the last.
    fn metrics_of(&mut self, engine_index: u32) -> &mut EngineMetrics {
        let index = (engine_index as usize).min(MAX_ENGINES - 1);
        if self.metrics.len() <= index {
            self.metrics.resize_with(index + 1, EngineMetrics::default);
        }
        &mut self.metrics[index]
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The handler waits on the client, and would keep it and the core alive.
        if let Some(handler) = self.output_handler.get() {
            handler.abort();
        }
    }
}

/// Ends every stream when the output handler ends, a panic included: without it their readers
/// would wait for ever.
struct EndStreams(Weak<Inner>);

impl Drop for EndStreams {
    fn drop(&mut self) {
        let Some(inner) = self.0.upgrade() else {
            return;
        };
        // Where the core's end was reported before, that stays the reason.
        inner.engine_dead(EngineDeadError {
            reason: if std::thread::panicking() {
                "the frontend's output handler panicked".to_owned()
            } else {
                "the frontend's output handler ended".to_owned()
            },
            exit_status: None,
        });
    }
}

/// Takes outputs as they come, until the core or the engine's last user is gone.
async fn output_handler(inner: Weak<Inner>, client: Arc<dyn CoreClient>) {
    let _end_streams = EndStreams(inner.clone());
    loop {
        let received = client.get_output().await;
        let Some(inner) = inner.upgrade() else { return };
        match received {
            Ok(Some(step)) => {
                // Before the outputs: who has the last one finds the report that came with it.
                if let Some(stats) = &step.scheduler_stats {
                    let mut state = inner.state();
                    state
                        .metrics_of(step.engine_index)
                        .record((**stats).clone());
                }
                inner.state().output_processor.set_timestamp(step.timestamp);
                for chunk in step.outputs.chunks(OUTPUT_PROC_CHUNK_SIZE) {
                    let aborts = inner.state().process_outputs(step.engine_index, chunk);
                    inner.abort(aborts);
                    tokio::task::yield_now().await;
                }
                let iteration = inner.state().output_processor.take_iteration_stats();
                let scheduler = step.scheduler_stats.as_deref();
                for logger in inner.stat_loggers() {
                    logger.record(step.engine_index, scheduler, &iteration);
                }
            }
            Ok(None) => {
                return inner.engine_dead(EngineDeadError {
                    reason: "it was shut down".to_owned(),
                    exit_status: None,
                });
            }
            Err(error) => return inner.engine_dead(error),
        }
    }
}

/// A request that could not be sent.
fn refused(error: EngineCoreClientError) -> GenerateError {
    match error {
        EngineCoreClientError::EngineDead(dead) => dead.into(),
        other => ValidationError::new(other.to_string()).into(),
    }
}

fn internal_error(message: &str) -> GenerateError {
    GenerateError::Request(RequestError::new(RequestErrorCode::InternalError, message))
}

#[cfg(test)]
mod tests;
