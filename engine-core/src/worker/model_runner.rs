//! Turns a [`SchedulerOutput`] into a flat batch, runs the model on it, and samples.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use protocol::{LogprobsLists, LogprobsMode, ScoredPosition, Shared};

use crate::core::sched::output::{
    GrammarOutput, ModelRunnerOutput, NewRequestData, SchedulerOutput,
};
use crate::model_executor::{CausalLm, ComputePool, ModelError, PoolError};
use crate::request_id::RequestId;
use crate::sample::{RequestSamplingState, Sampler, SamplerScratch, VocabSizes};
use crate::worker::input_batch::InputBatch;
use crate::worker::pool_rows::{PoolingState, finished_vector};
use crate::worker::request_state::{CachedRequestState, PromptLogprobs, Scores};
use crate::worker::sample_rows::LOGITS_ROWS;

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
    /// Compute only the rows of the LM head that a mask allows, where these are few.
    pub enable_sparse_head: bool,
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
    pub(super) model: Box<dyn CausalLm>,
    pub(super) pool: Arc<ComputePool>,
    pub(super) sampler: Sampler,
    pub(super) vocab: VocabSizes,
    pub(super) enable_sparse_head: bool,
    pub(super) requests: HashMap<RequestId, CachedRequestState>,
    input_batch: InputBatch,
    /// `[LOGITS_ROWS, vocab_size]`. Rows of which all logits are computed lie in front, those of few at
    /// the end.
    pub(super) logits: Vec<f32>,
    /// Which rows of `logits` are all -inf, `[LOGITS_ROWS]`.
    pub(super) blank_slots: Vec<bool>,
    /// Logits of the rows of which few are needed, one row's after the other's.
    pub(super) few_logits: Vec<f32>,
    /// Of rows of which only the largest logit is asked.
    pub(super) largest_token_ids: Vec<Option<u32>>,
    /// One per thread of the pool.
    pub(super) scratches: Vec<Mutex<SamplerScratch>>,
    execute_model_state: Option<ExecuteModelState>,
}

/// What `sample_tokens` needs of the batch that `execute_model` put through the model.
struct ExecuteModelState {
    /// In batch order.
    scheduled: Vec<ScheduledRequest>,
    /// One per kept hidden state; those of a request stand together.
    rows: Vec<LogitsRow>,
}

/// A request's part in the batch.
pub(super) struct ScheduledRequest {
    pub(super) request_id: RequestId,
    /// Tokens of it in the batch.
    num_tokens: usize,
    /// Of these, the last ones, which are verified.
    pub(super) draft_token_ids: Vec<u32>,
    /// Where it is scored; `None` where it is sampled.
    pub(super) scored_positions: Option<Shared<[ScoredPosition]>>,
}

impl ScheduledRequest {
    /// The tokens of a scored position.
    pub(super) fn scored_token_ids(&self, position: usize) -> &[u32] {
        let positions = self.scored_positions.as_deref().unwrap_or_default();
        positions
            .get(position)
            .map_or(&[], |scored| &scored.token_ids)
    }
}

/// What a row of logits is for.
#[derive(Clone, Copy)]
pub(super) struct LogitsRow {
    /// Index into `ExecuteModelState::scheduled`.
    pub(super) request: usize,
    pub(super) purpose: RowPurpose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowPurpose {
    /// The next token, after the first `num_draft_tokens` of the draft.
    Sample { num_draft_tokens: usize },
    /// The logprob of a prompt token.
    PromptLogprobs { target_token_id: u32 },
    /// The probabilities of the tokens of a scored position, by its index.
    Score { position: usize },
    /// A hidden state that is pooled: no logits.
    Pool,
}

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
            blank_slots: vec![false; LOGITS_ROWS],
            few_logits: Vec::new(),
            largest_token_ids: Vec::new(),
            scratches: (0..pool.num_threads()).map(|_| Mutex::default()).collect(),
            input_batch: InputBatch::new(config.block_size, config.max_model_len),
            sampler: Sampler::new(vocab, config.logprobs_mode),
            enable_sparse_head: config.enable_sparse_head,
            requests: HashMap::new(),
            execute_model_state: None,
            vocab,
            model,
            pool,
        }
    }

    /// The threads that the model computes on.
    pub(super) fn compute_pool(&self) -> Arc<ComputePool> {
        Arc::clone(&self.pool)
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
        self.sample_all_rows(&state.scheduled, &state.rows, grammar_output, &mut output)?;
        self.pool_rows(&state.scheduled, &state.rows)?;
        for (index, scheduled) in state.scheduled.iter().enumerate() {
            if let Some(request) = self.requests.get_mut(&scheduled.request_id) {
                request.num_computed_tokens += scheduled.num_tokens;
                output.prompt_logprobs[index] = take_finished_prompt_logprobs(request);
                output.scores[index] = take_finished_scores(request);
                if let Some(vector) = finished_vector(&*self.model, request)? {
                    output.num_nans_in_logits[index] +=
                        u32::from(vector.iter().any(|value| value.is_nan()));
                    output.pooler_output.resize(state.scheduled.len(), None);
                    output.pooler_output[index] = Some(vector);
                }
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
            let state = new_request_state(new_request, self.vocab.logits);
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
            let new_token_ids = cached.new_token_ids.get(index);
            request.take_over(
                cached.num_output_tokens[index] as usize,
                new_token_ids.map_or(&[], Vec::as_slice),
            );
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
        let scheduled = scheduler_output.num_scheduled_tokens.iter();
        for (index, (request_id, num_scheduled)) in scheduled.enumerate() {
            let draft_token_ids = scheduler_output.draft_at(index);
            let num_known = num_scheduled - draft_token_ids.len().min(num_scheduled);
            let request = self
                .requests
                .get_mut(request_id)
                .ok_or_else(|| ModelRunnerError::UnknownRequest(request_id.clone()))?;
            let num_shared = request.num_shared_tokens.take();
            let first_row = self.input_batch.num_tokens();
            let first = request.num_computed_tokens;
            let known_token_ids = request.token_ids.get(first..first + num_known);
            let covered = known_token_ids.is_some_and(|known| {
                let (batch, block_ids) = (&mut self.input_batch, &request.block_ids);
                batch.push_request(known, draft_token_ids, first, num_shared, block_ids)
            });
            if !covered {
                return Err(ModelRunnerError::MissingBlocks(request_id.clone()));
            }
            state.scheduled.push(ScheduledRequest {
                request_id: request_id.clone(),
                num_tokens: num_scheduled,
                draft_token_ids: draft_token_ids.to_vec(),
                scored_positions: (request.scores.as_ref()).map(|scores| scores.positions.clone()),
            });
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
            if let Some(scores) = &request.scores {
                for (position, scored) in scores.due(first + num_scheduled) {
                    let last = scored.num_tokens as usize - 1;
                    self.input_batch.keep_row(first_row + last - first);
                    state.rows.push(LogitsRow {
                        request: index,
                        purpose: RowPurpose::Score { position },
                    });
                }
            } else if let Some(pooling) = &request.pooling {
                if let Some(second) = pooling.second_text() {
                    let row = (second as usize).saturating_sub(first);
                    self.input_batch.mark_second_text(first_row + row);
                }
                for position in pooling.due(first + num_scheduled, request.num_prompt_tokens) {
                    self.input_batch.keep_row(first_row + position - first);
                    state.rows.push(LogitsRow {
                        request: index,
                        purpose: RowPurpose::Pool,
                    });
                }
            } else if request.samples_after(num_known) {
                for num_draft_tokens in 0..=draft_token_ids.len() {
                    let row = first_row + num_known - 1 + num_draft_tokens;
                    self.input_batch.keep_row(row);
                    state.rows.push(LogitsRow {
                        request: index,
                        purpose: RowPurpose::Sample { num_draft_tokens },
                    });
                }
            }
        }
        Ok(state)
    }
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

/// The scores of `request`, once its whole prompt is computed.
fn take_finished_scores(request: &mut CachedRequestState) -> Vec<Vec<f32>> {
    match &mut request.scores {
        Some(scores) if request.num_computed_tokens >= request.num_prompt_tokens => {
            std::mem::take(&mut scores.rows)
        }
        _ => Vec::new(),
    }
}

/// What the runner keeps of a request that it sees for the first time. Ids from `vocab_size` on, which only a draft
/// model with less padding behind the vocabulary than the target model lacks, are read as 0.
fn new_request_state(new_request: &NewRequestData, vocab_size: usize) -> CachedRequestState {
    let prompt = &new_request.prompt_token_ids;
    let output = &new_request.output_token_ids;
    let params = &new_request.sampling_params;
    // With output from before, the prompt logprobs went out with its first token.
    let wants_prompt_logprobs = output.is_empty()
        && (params.prompt_logprobs.is_some() || params.prompt_logprob_token_ids.is_some());
    CachedRequestState {
        token_ids: (prompt.iter().chain(output.iter()))
            .map(|&id| if (id as usize) < vocab_size { id } else { 0 })
            .collect(),
        num_prompt_tokens: prompt.len(),
        num_computed_tokens: new_request.num_computed_tokens as usize,
        num_shared_tokens: new_request.num_shared_tokens.map(|num| num as usize),
        block_ids: new_request.block_ids.clone(),
        sampling_state: RequestSamplingState::new(Arc::clone(params), prompt, output),
        prompt_logprobs: wants_prompt_logprobs.then(|| PromptLogprobs::new(params)),
        scores: (!new_request.scored_positions.is_empty()).then(|| Scores {
            positions: new_request.scored_positions.clone(),
            rows: Vec::new(),
        }),
        pooling: new_request.pooling_params.map(PoolingState::new),
    }
}
