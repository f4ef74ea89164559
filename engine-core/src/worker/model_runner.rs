//! Turns a [`SchedulerOutput`] into a flat batch, runs the model on it, and samples.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::{LogprobsLists, LogprobsMode};

use crate::core::sched::output::{
    GrammarOutput, ModelRunnerOutput, NewRequestData, SchedulerOutput,
};
use crate::lock::lock;
use crate::model_executor::{CausalLm, ComputePool, ModelError, PoolError};
use crate::panic_message::panic_message;
use crate::request::RequestId;
use crate::sample::{
    LogprobsRow, RequestSamplingState, Sampler, SamplerOutputRow, SamplerScratch, VocabSizes,
};
use crate::worker::input_batch::InputBatch;
use crate::worker::request_state::{CachedRequestState, PromptLogprobs};

/// Logits held at a time, in rows: the LM head and the sampler alternate over slices of this many.
const LOGITS_ROWS: usize = 64;

/// What the runner needs to know beside the model.
#[derive(Debug, Clone)]
pub struct ModelRunnerConfig {
    /// Tokens per KV block.
    pub block_size: usize,
    /// Longest sequence.
    pub max_model_len: usize,
    /// Ids of the tokenizer; the rest of a logits row is padding and never sampled.
    pub tokenizer_vocab_size: usize,
    /// What logprobs are.
    pub logprobs_mode: LogprobsMode,
}

/// An error that concerns the whole batch.
#[derive(Debug, thiserror::Error)]
pub enum ModelRunnerError {
    /// The forward pass or the LM head failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// `sample_tokens` without `execute_model`, or the other way round.
    #[error("execute_model and sample_tokens must alternate")]
    OutOfTurn,
    /// The scheduler spoke of a request that the runner doesn't know.
    #[error("the scheduler scheduled request {0}, which the model runner doesn't know")]
    UnknownRequest(RequestId),
    /// The scheduler gave too few blocks.
    #[error("the scheduler gave request {0} too few blocks for its tokens")]
    MissingBlocks(RequestId),
    /// The compute pool failed outside any request's row.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// The model, the requests it works on, and the sampler.
pub struct ModelRunner {
    model: Box<dyn CausalLm>,
    pool: Arc<ComputePool>,
    sampler: Sampler,
    vocab: VocabSizes,
    requests: HashMap<RequestId, CachedRequestState>,
    input_batch: InputBatch,
    /// `[LOGITS_ROWS, vocab_size]`.
    logits: Vec<f32>,
    /// One per thread of the pool.
    scratches: Vec<Mutex<SamplerScratch>>,
    execute_model_state: Option<ExecuteModelState>,
}

/// What `sample_tokens` needs of the batch that `execute_model` put through the model.
struct ExecuteModelState {
    /// `(request, tokens scheduled)` in batch order.
    scheduled: Vec<(RequestId, usize)>,
    /// One per kept hidden state.
    rows: Vec<LogitsRow>,
}

/// What a row of logits is for.
#[derive(Clone, Copy)]
struct LogitsRow {
    /// Index into `ExecuteModelState::scheduled`.
    request: usize,
    purpose: RowPurpose,
}

#[derive(Clone, Copy)]
enum RowPurpose {
    /// The next token.
    Sample,
    /// The logprob of a prompt token.
    PromptLogprobs { target_token_id: u32 },
}

/// What a row brought.
enum RowOutput {
    Sampled(SamplerOutputRow),
    PromptLogprobs(LogprobsRow),
}

/// What a row brought, or why its request fails.
type RowResult = Result<RowOutput, String>;

impl ModelRunner {
    /// A runner without requests.
    pub fn new(
        model: Box<dyn CausalLm>,
        pool: Arc<ComputePool>,
        config: &ModelRunnerConfig,
    ) -> Self {
        let vocab = VocabSizes {
            logits: model.vocab_size(),
            tokenizer: config.tokenizer_vocab_size,
        };
        Self {
            logits: vec![0.0; LOGITS_ROWS * vocab.logits],
            scratches: (0..pool.num_threads()).map(|_| Mutex::default()).collect(),
            input_batch: InputBatch::new(config.block_size, config.max_model_len),
            sampler: Sampler::new(vocab, config.logprobs_mode),
            requests: HashMap::new(),
            execute_model_state: None,
            vocab,
            model,
            pool,
        }
    }

    /// Runs the forward pass of one batch, up to the hidden states of the positions that need
    /// logits. An output that schedules nothing only updates the requests.
    pub fn execute_model(
        &mut self,
        scheduler_output: &SchedulerOutput,
    ) -> Result<(), ModelRunnerError> {
        if self.execute_model_state.is_some() {
            return Err(ModelRunnerError::OutOfTurn);
        }
        self.update_states(scheduler_output)?;
        let state = self.prepare_inputs(scheduler_output)?;
        if self.input_batch.num_tokens() > 0 {
            self.model.forward(&self.input_batch.forward_input())?;
        }
        self.execute_model_state = Some(state);
        Ok(())
    }

    /// Runs the LM head, applies the masks and samples: the second half of a step.
    pub fn sample_tokens(
        &mut self,
        grammar_output: Option<&GrammarOutput>,
    ) -> Result<ModelRunnerOutput, ModelRunnerError> {
        let state = self
            .execute_model_state
            .take()
            .ok_or(ModelRunnerError::OutOfTurn)?;
        let mut output = ModelRunnerOutput::empty(state.scheduled.len());
        for first_row in (0..state.rows.len()).step_by(LOGITS_ROWS) {
            let end = state.rows.len().min(first_row + LOGITS_ROWS);
            let logits = &mut self.logits[..(end - first_row) * self.vocab.logits];
            self.model.compute_logits(first_row..end, logits)?;
            let rows = &state.rows[first_row..end];
            let results = self.sample_rows(&state.scheduled, rows, grammar_output)?;
            for (row, result) in rows.iter().zip(results) {
                self.take_row(&state.scheduled, *row, result, &mut output);
            }
        }
        for (index, (request_id, num_scheduled)) in state.scheduled.iter().enumerate() {
            if let Some(request) = self.requests.get_mut(request_id) {
                request.num_computed_tokens += num_scheduled;
                output.prompt_logprobs[index] = take_finished_prompt_logprobs(request);
            }
        }
        Ok(output)
    }

    /// Brings the known requests in line with what the scheduler says.
    fn update_states(
        &mut self,
        scheduler_output: &SchedulerOutput,
    ) -> Result<(), ModelRunnerError> {
        for request_id in &scheduler_output.finished_req_ids {
            self.requests.remove(request_id);
        }
        for new_request in &scheduler_output.scheduled_new_reqs {
            let state = new_request_state(new_request);
            self.requests.insert(new_request.req_id.clone(), state);
        }
        let cached = &scheduler_output.scheduled_cached_reqs;
        let first_resumed = cached.req_ids.len() - cached.resumed_req_ids.len();
        for (index, request_id) in cached.req_ids.iter().enumerate() {
            let request = self
                .requests
                .get_mut(request_id)
                .ok_or_else(|| ModelRunnerError::UnknownRequest(request_id.clone()))?;
            request.num_computed_tokens = cached.num_computed_tokens[index] as usize;
            if index >= first_resumed {
                request.block_ids.clear();
            }
            request
                .block_ids
                .extend_from_slice(&cached.new_block_ids[index]);
        }
        Ok(())
    }

    /// Fills the flat batch and lists the rows that need logits.
    fn prepare_inputs(
        &mut self,
        scheduler_output: &SchedulerOutput,
    ) -> Result<ExecuteModelState, ModelRunnerError> {
        self.input_batch.clear();
        let mut state = ExecuteModelState {
            scheduled: Vec::new(),
            rows: Vec::new(),
        };
        for (request_id, num_scheduled) in scheduler_output.num_scheduled_tokens.iter() {
            let request = self
                .requests
                .get(request_id)
                .ok_or_else(|| ModelRunnerError::UnknownRequest(request_id.clone()))?;
            let first_row = self.input_batch.num_tokens();
            let first = request.num_computed_tokens;
            let covered = request
                .token_ids
                .get(first..first + num_scheduled)
                .is_some_and(|ids| {
                    self.input_batch
                        .push_request(ids, first, &request.block_ids)
                });
            if !covered {
                return Err(ModelRunnerError::MissingBlocks(request_id.clone()));
            }
            let index = state.scheduled.len();
            state.scheduled.push((request_id.clone(), num_scheduled));
            if let Some(prompt_logprobs) = &request.prompt_logprobs {
                // The row at position p predicts token p + 1.
                let targets = prompt_logprobs.next_position().max(first + 1)
                    ..request.num_prompt_tokens.min(first + num_scheduled + 1);
                for target in targets {
                    self.input_batch.keep_row(first_row + target - 1 - first);
                    let target_token_id = request.token_ids[target];
                    state.rows.push(LogitsRow {
                        request: index,
                        purpose: RowPurpose::PromptLogprobs { target_token_id },
                    });
                }
            }
            if request.samples_after(num_scheduled) {
                self.input_batch.keep_row(first_row + num_scheduled - 1);
                state.rows.push(LogitsRow {
                    request: index,
                    purpose: RowPurpose::Sample,
                });
            }
        }
        Ok(state)
    }

    /// Samples `rows`, whose logits lie at the start of `self.logits`, in parallel.
    fn sample_rows(
        &mut self,
        scheduled: &[(RequestId, usize)],
        rows: &[LogitsRow],
        grammar_output: Option<&GrammarOutput>,
    ) -> Result<Vec<RowResult>, ModelRunnerError> {
        struct Task<'a> {
            logits: &'a mut [f32],
            result: RowResult,
        }
        let tasks: Vec<Mutex<Task<'_>>> = self
            .logits
            .chunks_exact_mut(self.vocab.logits)
            .take(rows.len())
            .map(|logits| {
                let result = Err("its row was not sampled".to_owned());
                Mutex::new(Task { logits, result })
            })
            .collect();
        let (requests, sampler, scratches) = (&self.requests, &self.sampler, &self.scratches);
        self.pool.run(rows.len(), &|index, thread| {
            let (request_id, _) = &scheduled[rows[index].request];
            // Each row is one tile's and each scratch one thread's: neither lock is ever waited for.
            let mut task = lock(&tasks[index]);
            let mut scratch = lock(&scratches[thread]);
            let bitmask = grammar_output.and_then(|output| output.row(request_id));
            let Some(request) = requests.get(request_id) else {
                return;
            };
            let task = &mut *task;
            // A panic here concerns one row: its request fails, the batch goes on.
            let sampled = catch_unwind(AssertUnwindSafe(|| {
                sample_row(
                    sampler,
                    rows[index].purpose,
                    request,
                    task.logits,
                    bitmask,
                    &mut scratch,
                )
            }));
            task.result = sampled.unwrap_or_else(|panic| {
                Err(format!("sampling panicked: {}", panic_message(panic)))
            });
        })?;
        let results = tasks.into_iter().map(|task| {
            task.into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .result
        });
        Ok(results.collect())
    }

    /// Books what a row brought to its request.
    fn take_row(
        &mut self,
        scheduled: &[(RequestId, usize)],
        row: LogitsRow,
        result: RowResult,
        output: &mut ModelRunnerOutput,
    ) {
        let index = row.request;
        let Some(request) = self.requests.get_mut(&scheduled[index].0) else {
            return;
        };
        match result {
            Ok(RowOutput::Sampled(sampled)) => {
                request.append(sampled.token_id);
                output.sampled_token_ids[index].push(sampled.token_id);
                output.num_nans_in_logits[index] += sampled.num_nans;
                output.num_restored_rows += u32::from(sampled.restored);
                if let Some(row) = sampled.logprobs {
                    row.push_to(output.logprobs[index].get_or_insert_default());
                }
            }
            Ok(RowOutput::PromptLogprobs(row)) => {
                if let Some(prompt_logprobs) = &mut request.prompt_logprobs {
                    row.push_to(&mut prompt_logprobs.rows);
                }
            }
            Err(message) => {
                output.errors[index].get_or_insert(message);
            }
        }
    }
}

/// Samples one row, or gathers its prompt logprobs.
fn sample_row(
    sampler: &Sampler,
    purpose: RowPurpose,
    request: &CachedRequestState,
    logits: &mut [f32],
    bitmask: Option<&[u32]>,
    scratch: &mut SamplerScratch,
) -> RowResult {
    let result = match purpose {
        RowPurpose::Sample => sampler
            .sample_row(logits, &request.sampling_state, bitmask, scratch)
            .map(RowOutput::Sampled),
        RowPurpose::PromptLogprobs { target_token_id } => sampler
            .prompt_logprobs_row(
                logits,
                request.sampling_state.params(),
                target_token_id,
                scratch,
            )
            .map(RowOutput::PromptLogprobs),
    };
    result.map_err(|error| error.to_string())
}

/// The prompt logprobs of `request`, once, when its whole prompt is computed.
fn take_finished_prompt_logprobs(request: &mut CachedRequestState) -> Option<LogprobsLists> {
    if request.num_computed_tokens < request.num_prompt_tokens {
        return None;
    }
    request
        .prompt_logprobs
        .take()
        .map(|prompt_logprobs| prompt_logprobs.rows)
}

/// What the runner keeps of a request that it sees for the first time.
fn new_request_state(new_request: &NewRequestData) -> CachedRequestState {
    let prompt = &new_request.prompt_token_ids;
    let output = &new_request.output_token_ids;
    let params = &new_request.sampling_params;
    // With output from before, the prompt logprobs went out with its first token.
    let wants_prompt_logprobs = output.is_empty()
        && (params.prompt_logprobs.is_some() || params.prompt_logprob_token_ids.is_some());
    CachedRequestState {
        token_ids: prompt.iter().chain(output.iter()).copied().collect(),
        num_prompt_tokens: prompt.len(),
        num_computed_tokens: new_request.num_computed_tokens as usize,
        block_ids: new_request.block_ids.clone(),
        sampling_state: RequestSamplingState::new(Arc::clone(params), prompt, output),
        prompt_logprobs: wants_prompt_logprobs.then(|| PromptLogprobs::new(params)),
    }
}
