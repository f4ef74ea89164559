//! A whole engine on the built-in model, stepped by hand.

use std::collections::BTreeMap;

use crossbeam_channel::Sender;
use engine_core::core::request::Request;
use engine_core::engine::{AbortRequests, EngineCore, load_engine_core};
use protocol::{
    CacheConfig, EngineConfig, EngineCoreEventType, EngineCoreOutput, EngineCoreRequest,
    FinishReason, JumpForward, LogprobsLists, ModelConfig, ModelSource, RequestError,
    SamplingParams, SchedulerConfig, SchedulerStats, SpecDecodingStats, SpeculativeConfig,
    SpeculativeMethod, StructuredOutputStats, StructuredOutputsConfig, StructuredOutputsConstraint,
    StructuredOutputsParams, ThinkingTokens,
};
use tokenizer::Tokenizer;

/// What one request brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) finish_reason: Option<FinishReason>,
    pub(crate) complete: Option<bool>,
    pub(crate) completed_by_budget: bool,
    pub(crate) repetition_closed: bool,
    pub(crate) error: Option<RequestError>,
    pub(crate) admitted: bool,
    pub(crate) logprobs: LogprobsLists,
    /// Steps until its end.
    pub(crate) num_steps: usize,
}

/// Sums of what the scheduler reported.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) structured: StructuredOutputStats,
    pub(crate) spec: SpecDecodingStats,
    pub(crate) num_preempted: u32,
    pub(crate) cache_hits: u64,
}

pub(crate) struct Engine {
    pub(crate) core: EngineCore,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) totals: Totals,
    /// Kept open.
    _aborts: Sender<AbortRequests>,
    steps: usize,
}

/// How an engine differs from a plain one: one with everything on that changes no output.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) sparse_head: bool,
    pub(crate) jump_forward: JumpForward,
    pub(crate) model: ModelSource,
    pub(crate) num_speculative_tokens: u32,
    /// What drafts; prompt lookup where there is none.
    pub(crate) draft_model: Option<ModelSource>,
    pub(crate) num_speculative_tokens_per_batch_size: Vec<(u32, u32, u32)>,
    pub(crate) max_num_batched_tokens: u32,
    pub(crate) max_num_seqs: u32,
    /// In a context of 400 tokens instead of 1024.
    pub(crate) num_blocks: Option<u32>,
    /// For grammars, instead of the default.
    pub(crate) cache_bytes: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            sparse_head: true,
            jump_forward: JumpForward::SingleToken,
            model: ModelSource::BuiltIn,
            num_speculative_tokens: 0,
            draft_model: None,
            num_speculative_tokens_per_batch_size: Vec::new(),
            max_num_batched_tokens: 512,
            max_num_seqs: 16,
            num_blocks: None,
            cache_bytes: None,
        }
    }
}

impl Setup {
    /// Every token is sampled from a full row.
    pub(crate) fn plain() -> Self {
        Self {
            sparse_head: false,
            jump_forward: JumpForward::Off,
            ..Self::default()
        }
    }

    pub(crate) fn config(&self) -> EngineConfig {
        EngineConfig {
            model_config: ModelConfig {
                model: self.model.clone(),
                max_model_len: Some(if self.num_blocks.is_some() { 400 } else { 1024 }),
                num_threads: Some(2),
                ..ModelConfig::default()
            },
            cache_config: CacheConfig {
                num_blocks_override: Some(self.num_blocks.unwrap_or(1024)),
                ..CacheConfig::default()
            },
            scheduler_config: SchedulerConfig {
                max_num_batched_tokens: self.max_num_batched_tokens,
                max_num_seqs: self.max_num_seqs,
                ..SchedulerConfig::default()
            },
            structured_outputs_config: StructuredOutputsConfig {
                compile_threads: Some(2),
                enable_sparse_head: self.sparse_head,
                jump_forward: self.jump_forward,
                cache_bytes: self
                    .cache_bytes
                    .unwrap_or(StructuredOutputsConfig::default().cache_bytes),
                ..StructuredOutputsConfig::default()
            },
            speculative_config: (self.num_speculative_tokens > 0).then_some(SpeculativeConfig {
                method: match self.draft_model {
                    Some(_) => SpeculativeMethod::DraftModel,
                    None => SpeculativeMethod::Ngram,
                },
                model: self.draft_model.clone().unwrap_or(ModelSource::BuiltIn),
                num_speculative_tokens: self.num_speculative_tokens,
                num_speculative_tokens_per_batch_size: (self.num_speculative_tokens_per_batch_size)
                    .clone(),
                prompt_lookup_min: 1,
                prompt_lookup_max: 4,
                ..SpeculativeConfig::default()
            }),
            ..EngineConfig::default()
        }
    }
}

impl Engine {
    pub(crate) fn new(setup: &Setup) -> Self {
        let loaded = load_engine_core(&setup.config(), None, &mut |_| {}).unwrap();
        let (aborts, aborts_queue) = crossbeam_channel::unbounded();
        Self {
            core: EngineCore::new(loaded.scheduler, loaded.executor, aborts_queue)
                .with_structured_output(loaded.structured_output_manager),
            tokenizer: Tokenizer::from_bytes(builtin_model::FILES).unwrap(),
            totals: Totals::default(),
            _aborts: aborts,
            steps: 0,
        }
    }

    pub(crate) fn add(&mut self, request: EngineCoreRequest) {
        let request = Request::from_engine_core_request(request, &self.core.block_hasher());
        self.core.add_request(request);
    }

    /// One step; its outputs.
    pub(crate) fn step(&mut self) -> Vec<EngineCoreOutput> {
        let mut all = Vec::new();
        self.steps += 1;
        for outputs in self.core.step().unwrap().into_values() {
            all.extend(outputs.outputs);
            if let Some(stats) = outputs.scheduler_stats {
                self.totals.add(*stats);
            }
        }
        all
    }

    /// Steps until all requests are over.
    pub(crate) fn drain(&mut self) -> BTreeMap<String, Answer> {
        let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
        let first_step = self.steps;
        while self.core.has_work() || self.core.wait_for_grammar() {
            for output in self.step() {
                let num_steps = self.steps - first_step;
                answers
                    .entry(output.request_id.clone())
                    .or_default()
                    .take(output, num_steps);
            }
        }
        answers
    }

    /// Runs requests together.
    pub(crate) fn run(&mut self, requests: &[EngineCoreRequest]) -> BTreeMap<String, Answer> {
        for request in requests {
            self.add(request.clone());
        }
        let answers = self.drain();
        assert_eq!(answers.len(), requests.len());
        answers
    }

    /// The text of an answer, without the token that ended it.
    pub(crate) fn text(&self, answer: &Answer) -> String {
        self.tokenizer.decode(&answer.token_ids, true)
    }

    /// A request about `user`, as the chat template renders it.
    pub(crate) fn request(
        &self,
        id: &str,
        user: &str,
        constraint: Option<StructuredOutputsConstraint>,
        params: SamplingParams,
    ) -> EngineCoreRequest {
        let prompt = format!("<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n");
        EngineCoreRequest {
            request_id: id.to_owned(),
            prompt_token_ids: self.tokenizer.encode(&prompt, false).unwrap().into(),
            sampling_params: SamplingParams {
                eos_token_id: self.tokenizer.eos_token_id(),
                structured_outputs: constraint.map(|c| StructuredOutputsParams::new(c).into()),
                ..params
            },
            ..EngineCoreRequest::default()
        }
    }

    /// The tokens around the built-in model's thinking.
    pub(crate) fn thinking_tokens(&self) -> ThinkingTokens {
        let id = |token| vec![self.tokenizer.token_to_id(token).unwrap()];
        ThinkingTokens {
            start_token_ids: id("<think>"),
            end_token_ids: id("</think>"),
            ..ThinkingTokens::default()
        }
    }
}

impl Answer {
    fn take(&mut self, output: EngineCoreOutput, num_steps: usize) {
        assert_eq!(self.finish_reason, None, "an output after the end");
        self.token_ids.extend(output.new_token_ids);
        self.finish_reason = output.finish_reason;
        self.complete = output.structured_output_complete;
        self.completed_by_budget |= output.completed_by_budget;
        self.repetition_closed |= output.repetition_closed;
        self.error = output.error;
        self.num_steps = num_steps;
        let admitted =
            |event: &protocol::EngineCoreEvent| event.event_type == EngineCoreEventType::Admitted;
        self.admitted |= output.events.iter().any(admitted);
        if let Some(logprobs) = output.new_logprobs {
            self.logprobs.logprobs.extend(logprobs.logprobs);
            self.logprobs
                .logprob_token_ids
                .extend(logprobs.logprob_token_ids);
            self.logprobs
                .sampled_token_ranks
                .extend(logprobs.sampled_token_ranks);
        }
    }
}

impl Totals {
    fn add(&mut self, stats: SchedulerStats) {
        self.num_preempted += stats.num_preempted_reqs;
        self.cache_hits += stats.prefix_cache_stats.hits;
        if let Some(more) = stats.structured_output_stats {
            let sum = &mut self.structured;
            sum.compile_seconds.extend(more.compile_seconds);
            sum.num_cache_hits += more.num_cache_hits;
            sum.num_cache_misses += more.num_cache_misses;
            sum.num_refused += more.num_refused;
            sum.num_renewed_grammars += more.num_renewed_grammars;
            sum.num_deferred_answers += more.num_deferred_answers;
            sum.num_masked_steps += more.num_masked_steps;
            sum.num_masked_rows += more.num_masked_rows;
            sum.num_overridden_rows += more.num_overridden_rows;
            sum.num_constrained_tokens += more.num_constrained_tokens;
            sum.num_forced_tokens += more.num_forced_tokens;
            sum.num_head_rows += more.num_head_rows;
            sum.num_head_rows_skipped += more.num_head_rows_skipped;
            sum.num_rejections += more.num_rejections;
            sum.num_completed += more.num_completed;
            sum.num_completed_by_budget += more.num_completed_by_budget;
            sum.num_truncated += more.num_truncated;
        }
        if let Some(more) = stats.spec_decoding_stats {
            self.spec.num_drafts += more.num_drafts;
            self.spec.num_draft_tokens += more.num_draft_tokens;
            self.spec.num_accepted_tokens += more.num_accepted_tokens;
            self.spec.num_invalid_tokens += more.num_invalid_tokens;
        }
    }
}
