//! Random messages: a strategy for every frame that travels.
//!
//! `fields!` names every field of its type (a missing one doesn't compile), so that a new field
//! can't be left out of these tests.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use protocol::*;

/// Values of a struct, starting from a base value: each field from its own strategy.
macro_rules! fields {
    ($type:ident from $base:expr; $($field:ident: $strategy:expr),* $(,)?) => {{
        let base: $type = $base;
        let $type { $($field: _),* } = &base;
        let strategy = Just(base).boxed();
        $(let strategy = (strategy, $strategy)
            .prop_map(|(mut value, field)| {
                value.$field = field;
                value
            })
            .boxed();)*
        strategy
    }};
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9-]{1,12}", any::<String>()]
}

/// Ids of every encoded width.
fn token_id() -> impl Strategy<Value = u32> {
    prop_oneof![0..300_u32, 0..200_000_u32, any::<u32>()]
}

fn token_ids() -> impl Strategy<Value = Vec<u32>> {
    vec(token_id(), 0..6)
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![
        Just(Dtype::Auto),
        Just(Dtype::Float32),
        Just(Dtype::BFloat16),
        Just(Dtype::Float16)
    ]
}

fn quantization() -> impl Strategy<Value = Quantization> {
    prop_oneof![
        Just(Quantization::None),
        Just(Quantization::Q8_0),
        Just(Quantization::Q4_0)
    ]
}

fn logprobs_mode() -> impl Strategy<Value = LogprobsMode> {
    prop_oneof![
        Just(LogprobsMode::RawLogprobs),
        Just(LogprobsMode::RawLogits),
        Just(LogprobsMode::ProcessedLogprobs),
        Just(LogprobsMode::ProcessedLogits),
    ]
}

fn model_source() -> impl Strategy<Value = ModelSource> {
    prop_oneof![
        Just(ModelSource::BuiltIn),
        text().prop_map(|path| ModelSource::Path(path.into())),
    ]
}

fn model_config() -> impl Strategy<Value = ModelConfig> {
    fields!(ModelConfig from ModelConfig::default();
        model: model_source(),
        runner: runner(),
        dtype: dtype(),
        quantization: quantization(),
        backend: prop_oneof![
            Just(BackendKind::Cpu),
            Just(BackendKind::Candle),
            any::<u32>().prop_map(BackendKind::Cuda),
            Just(BackendKind::CudaSimulator),
        ],
        max_model_len: any::<Option<u32>>(),
        weight_cache: any::<bool>(),
        pin_threads: any::<bool>(),
        num_threads: any::<Option<u32>>(),
        logprobs_mode: logprobs_mode(),
        max_logprobs: any::<i32>(),
    )
}

fn cache_config() -> impl Strategy<Value = CacheConfig> {
    fields!(CacheConfig from CacheConfig::default();
        block_size: any::<u32>(),
        num_blocks_override: any::<Option<u32>>(),
        num_blocks_of_first: any::<Option<u32>>(),
        kv_cache_memory_bytes: any::<Option<u64>>(),
        gpu_memory_utilization: any::<f64>(),
        cache_dtype: prop_oneof![
            Just(KvCacheDtype::Auto),
            Just(KvCacheDtype::Bf16),
            Just(KvCacheDtype::Q8)
        ],
        enable_prefix_caching: any::<bool>(),
        prefix_caching_hash_algo: prop_oneof![
            Just(PrefixCachingHashAlgo::Blake3),
            text().prop_map(|seed| PrefixCachingHashAlgo::Sha256Cbor { seed }),
        ],
        enable_kv_cache_events: any::<bool>(),
    )
}

fn kv_cache_event() -> impl Strategy<Value = KVCacheEvent> {
    let block_hashes = || vec(any::<u64>(), 0..4);
    let stored = fields!(BlockStored from BlockStored::default();
        block_hashes: block_hashes(),
        parent_block_hash: any::<Option<u64>>(),
        token_ids: token_ids(),
        block_size: any::<u32>(),
        cache_salt: of(text()),
    );
    prop_oneof![
        stored.prop_map(|stored| KVCacheEvent::BlockStored(Box::new(stored))),
        block_hashes().prop_map(|block_hashes| KVCacheEvent::BlockRemoved { block_hashes }),
        Just(KVCacheEvent::AllBlocksCleared),
    ]
}

fn scheduler_config() -> impl Strategy<Value = SchedulerConfig> {
    fields!(SchedulerConfig from SchedulerConfig::default();
        max_num_batched_tokens: any::<u32>(),
        max_num_seqs: any::<u32>(),
        long_prefill_token_threshold: any::<u32>(),
        enable_chunked_prefill: any::<bool>(),
        policy: prop_oneof![Just(SchedulingPolicy::Fcfs), Just(SchedulingPolicy::Priority)],
        watermark: any::<f64>(),
        scheduler_reserve_full_isl: any::<bool>(),
        max_num_queued_reqs: any::<Option<u32>>(),
        max_num_queued_tokens: any::<Option<u64>>(),
    )
}

fn structured_outputs_config() -> impl Strategy<Value = StructuredOutputsConfig> {
    fields!(StructuredOutputsConfig from StructuredOutputsConfig::default();
        compile_threads: any::<Option<u32>>(),
        max_num_queued_grammars: any::<u32>(),
        cache_bytes: any::<u64>(),
        enable_sparse_head: any::<bool>(),
        jump_forward: prop_oneof![
            Just(JumpForward::Off),
            Just(JumpForward::SingleToken),
            Just(JumpForward::Text),
        ],
    )
}

fn speculative_config() -> impl Strategy<Value = SpeculativeConfig> {
    fields!(SpeculativeConfig from SpeculativeConfig::default();
        method: prop_oneof![Just(SpeculativeMethod::Ngram), Just(SpeculativeMethod::DraftModel)],
        model: model_source(),
        num_speculative_tokens: any::<u32>(),
        num_speculative_tokens_per_batch_size: vec(any::<(u32, u32, u32)>(), 0..4),
        draft_sample_method: prop_oneof![
            Just(DraftSampleMethod::Greedy),
            Just(DraftSampleMethod::Probabilistic),
        ],
        prompt_lookup_min: any::<u32>(),
        prompt_lookup_max: any::<u32>(),
    )
}

pub(crate) fn hello() -> impl Strategy<Value = Hello> {
    (any::<u32>(), text()).prop_map(|(protocol_version, build_version)| Hello {
        protocol_version,
        build_version,
    })
}

pub(crate) fn handshake_metadata() -> impl Strategy<Value = EngineHandshakeMetadata> {
    let config = fields!(EngineConfig from EngineConfig::default();
        model_config: model_config(),
        cache_config: cache_config(),
        parallel_config: fields!(ParallelConfig from ParallelConfig::default();
            data_parallel_size: any::<u32>(),
            data_parallel_rank: any::<u32>(),
        ),
        scheduler_config: scheduler_config(),
        structured_outputs_config: structured_outputs_config(),
        speculative_config: of(speculative_config()),
        shutdown_timeout_seconds: any::<f64>(),
    );
    of(config).prop_map(|config| EngineHandshakeMetadata { config })
}

pub(crate) fn startup_message() -> impl Strategy<Value = EngineCoreStartupMessage> {
    let empty = EngineCoreReadyResponse {
        client_index: 0,
        model_name: String::new(),
        vocab_size: 0,
        tokenizer_fingerprint: String::new(),
        weights_fingerprint: None,
        max_model_len: 0,
        block_size: 0,
        num_blocks: 0,
        kv_cache_bytes: 0,
        dtype: String::new(),
        num_threads: 0,
        max_num_seqs: 0,
        max_num_batched_tokens: 0,
        max_num_queued_reqs: None,
        max_logprobs: 0,
        pooler: PoolerInfo::default(),
    };
    let ready = fields!(EngineCoreReadyResponse from empty;
        client_index: any::<u32>(),
        model_name: text(),
        vocab_size: any::<u32>(),
        tokenizer_fingerprint: text(),
        weights_fingerprint: of(text()),
        max_model_len: any::<u32>(),
        block_size: any::<u32>(),
        num_blocks: any::<u32>(),
        kv_cache_bytes: any::<u64>(),
        dtype: text(),
        num_threads: any::<u32>(),
        max_num_seqs: any::<u32>(),
        max_num_batched_tokens: any::<u32>(),
        max_num_queued_reqs: any::<Option<u32>>(),
        max_logprobs: any::<i32>(),
        pooler: pooler_info(),
    );
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(done_bytes, total_bytes)| {
            EngineCoreStartupMessage::LoadProgress(LoadProgress {
                done_bytes,
                total_bytes,
            })
        }),
        ready.prop_map(EngineCoreStartupMessage::Ready),
        text().prop_map(|message| EngineCoreStartupMessage::Failure(StartupFailure { message })),
    ]
}

fn structured_outputs() -> impl Strategy<Value = StructuredOutputsParams> {
    let constraint = prop_oneof![
        text().prop_map(StructuredOutputsConstraint::Json),
        Just(StructuredOutputsConstraint::JsonObject),
        text().prop_map(StructuredOutputsConstraint::Regex),
        vec(text(), 0..4).prop_map(StructuredOutputsConstraint::Choice),
        text().prop_map(StructuredOutputsConstraint::Grammar),
        text().prop_map(StructuredOutputsConstraint::StructuralTag),
    ];
    let base = StructuredOutputsParams::new(StructuredOutputsConstraint::JsonObject);
    fields!(StructuredOutputsParams from base;
        constraint: constraint,
        whitespace: prop_oneof![
            Just(Whitespace::Usual),
            Just(Whitespace::Flexible),
            Just(Whitespace::Spaced),
            Just(Whitespace::Compact),
            text().prop_map(Whitespace::Pattern),
        ],
        property_order: prop_oneof![Just(PropertyOrder::Schema), Just(PropertyOrder::Any)],
        disable_additional_properties: any::<bool>(),
        complete_within_max_tokens: any::<bool>(),
        enable_in_reasoning: any::<bool>(),
    )
}

fn sampling_params() -> impl Strategy<Value = SamplingParams> {
    fields!(SamplingParams from SamplingParams::default();
        n: any::<u32>(),
        presence_penalty: any::<f32>(),
        frequency_penalty: any::<f32>(),
        repetition_penalty: any::<f32>(),
        temperature: any::<f32>(),
        top_p: any::<f32>(),
        top_k: any::<u32>(),
        min_p: any::<f32>(),
        seed: any::<Option<u64>>(),
        stop: shared(vec(text(), 0..4)),
        stop_token_ids: shared(token_ids()),
        eos_token_id: of(token_id()),
        ignore_eos: any::<bool>(),
        max_tokens: any::<Option<u32>>(),
        min_tokens: any::<u32>(),
        logprobs: any::<Option<i32>>(),
        prompt_logprobs: any::<Option<i32>>(),
        logprob_token_ids: of(shared(token_ids())),
        prompt_logprob_token_ids: of(shared(token_ids())),
        prompt_logprob_start: any::<u32>(),
        detokenize: any::<bool>(),
        skip_special_tokens: any::<bool>(),
        spaces_between_special_tokens: any::<bool>(),
        include_stop_str_in_output: any::<bool>(),
        output_kind: prop_oneof![
            Just(RequestOutputKind::Cumulative),
            Just(RequestOutputKind::Delta),
            Just(RequestOutputKind::FinalOnly),
        ],
        stream_interval: any::<Option<u32>>(),
        logit_bias: shared(vec((token_id(), any::<f32>()), 0..4)),
        allowed_token_ids: of(shared(token_ids())),
        bad_words: shared(vec(text(), 0..4)),
        bad_words_token_ids: shared(vec(token_ids(), 0..4)),
        thinking_token_budget: any::<Option<u32>>(),
        thinking_tokens: of((token_ids(), token_ids(), token_ids()).prop_map(
            |(start_token_ids, end_token_ids, separator_token_ids)| ThinkingTokens {
                start_token_ids,
                end_token_ids,
                separator_token_ids,
            },
        )),
        structured_outputs: of(structured_outputs().prop_map(Shared::from)),
        repetition_detection: of(any::<(u32, u32, u32)>().prop_map(
            |(max_pattern_size, min_pattern_size, min_count)| RepetitionDetection {
                max_pattern_size,
                min_pattern_size,
                min_count,
            },
        )),
        skip_reading_prefix_cache: any::<bool>(),
        include_trace: any::<bool>(),
        extra_args: of(text().prop_map(Shared::from)),
    )
}

fn shared<T: std::fmt::Debug>(
    values: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = Shared<[T]>> {
    values.prop_map(Shared::from)
}

fn engine_core_request() -> impl Strategy<Value = EngineCoreRequest> {
    fields!(EngineCoreRequest from EngineCoreRequest::default();
        request_id: text(),
        external_req_id: of(text()),
        prompt_token_ids: shared(token_ids()),
        output_token_ids: token_ids(),
        is_replay: any::<bool>(),
        sampling_params: sampling_params(),
        arrival_time: any::<f64>(),
        cache_salt: of(text()),
        client_index: any::<u32>(),
        owner: any::<u64>(),
        priority: any::<i64>(),
        trace_headers: shared(vec((text(), text()), 0..3)),
        reasoning_ended: any::<Option<bool>>(),
        scored_positions: scored_positions(),
        pooling_params: of(pooling_params()),
    )
}

fn runner() -> impl Strategy<Value = RunnerType> {
    prop_oneof![Just(RunnerType::Generate), Just(RunnerType::Pooling)]
}

fn pooler_info() -> impl Strategy<Value = PoolerInfo> {
    fields!(PoolerInfo from PoolerInfo::default();
        runner: runner(),
        hidden_size: any::<u32>(),
        num_labels: any::<u32>(),
        num_token_types: any::<u32>(),
        has_lm_head: any::<bool>(),
    )
}

fn pooling_params() -> impl Strategy<Value = PoolingParams> {
    fields!(PoolingParams from PoolingParams::default();
        task: prop_oneof![Just(PoolingTask::Embed), Just(PoolingTask::Classify)],
        pooling_type: prop_oneof![
            Just(PoolingType::Last),
            Just(PoolingType::Cls),
            Just(PoolingType::Mean),
        ],
        use_activation: any::<bool>(),
        dimensions: any::<Option<u32>>(),
        compressed_token_type_ids: any::<Option<u32>>(),
    )
}

fn scored_positions() -> impl Strategy<Value = Shared<[ScoredPosition]>> {
    let position = (any::<u32>(), token_ids());
    shared(vec(
        position.prop_map(|(num_tokens, token_ids)| ScoredPosition {
            num_tokens,
            token_ids,
        }),
        0..3,
    ))
}

/// Requests that differ in whatever siblings may differ in.
pub(crate) fn siblings() -> impl Strategy<Value = Vec<EngineCoreRequest>> {
    let own = (
        text(),
        of(shared(token_ids())),
        token_ids(),
        any::<bool>(),
        any::<(Option<u64>, Option<u32>, Option<bool>)>(),
        (scored_positions(), of(pooling_params())),
    );
    (engine_core_request(), vec(own, 0..4)).prop_map(|(first, others)| {
        let mut requests = vec![first];
        for (request_id, prompt, output_token_ids, is_replay, (seed, max_tokens, ended), pooled) in
            others
        {
            let mut request = requests[requests.len() - 1].clone();
            request.external_req_id = request.external_req_id.map(|_| request_id.clone());
            request.request_id = request_id;
            request.prompt_token_ids = prompt.unwrap_or(request.prompt_token_ids);
            request.output_token_ids = output_token_ids;
            request.is_replay = is_replay;
            request.sampling_params.seed = seed;
            request.sampling_params.max_tokens = max_tokens;
            request.reasoning_ended = ended;
            (request.scored_positions, request.pooling_params) = pooled;
            requests.push(request);
        }
        requests
    })
}

/// Requests as they travel together.
pub(crate) fn together(requests: &[EngineCoreRequest]) -> Siblings {
    let mut siblings = Siblings::new(requests[0].clone());
    for pair in requests.windows(2) {
        assert!(requests[0].is_sibling(&pair[1]));
        siblings.push(&pair[0], pair[1].clone());
    }
    siblings
}

pub(crate) fn request() -> impl Strategy<Value = EngineCoreRequestType> {
    let add = engine_core_request();
    let many = siblings().prop_map(|requests| together(&requests));
    let utility = (any::<u32>(), any::<u64>(), text(), text()).prop_map(
        |(client_index, call_id, method, args)| UtilityRequest {
            client_index,
            call_id,
            method,
            args,
        },
    );
    prop_oneof![
        4 => add.prop_map(|request| EngineCoreRequestType::Add(Box::new(request))),
        1 => vec(text(), 0..5).prop_map(EngineCoreRequestType::Abort),
        1 => utility.prop_map(EngineCoreRequestType::Utility),
        1 => any::<f64>()
            .prop_map(|drain_seconds| EngineCoreRequestType::Shutdown { drain_seconds }),
        2 => many.prop_map(|many| EngineCoreRequestType::AddMany(Box::new(many))),
    ]
}

fn logprobs_lists() -> impl Strategy<Value = LogprobsLists> {
    fields!(LogprobsLists from LogprobsLists::default();
        logprob_token_ids: vec(token_ids(), 0..4),
        logprobs: vec(vec(any::<f32>(), 0..6), 0..4),
        sampled_token_ranks: vec(any::<u32>(), 0..4),
    )
}

fn event() -> impl Strategy<Value = EngineCoreEvent> {
    let event_type = prop_oneof![
        Just(EngineCoreEventType::Queued),
        Just(EngineCoreEventType::Scheduled),
        Just(EngineCoreEventType::Preempted),
        Just(EngineCoreEventType::Admitted),
    ];
    (event_type, any::<f64>()).prop_map(|(event_type, timestamp)| EngineCoreEvent {
        event_type,
        timestamp,
    })
}

fn request_error() -> impl Strategy<Value = RequestError> {
    let code = prop_oneof![
        Just(RequestErrorCode::ValidationError),
        Just(RequestErrorCode::GrammarRefused),
        Just(RequestErrorCode::QueueOverflow),
        Just(RequestErrorCode::ShuttingDown),
        Just(RequestErrorCode::InternalError),
    ];
    let problem = proptest::option::of(grammar_problem().prop_map(Box::new));
    fields!(RequestError from RequestError::new(RequestErrorCode::InternalError, "");
        code: code,
        message: text(),
        retryable: any::<bool>(),
        field: proptest::option::of(text()),
        problem: problem,
    )
}

fn grammar_problem() -> impl Strategy<Value = GrammarProblem> {
    let position = prop_oneof![
        text().prop_map(GrammarPosition::Pointer),
        (any::<u64>(), any::<u64>())
            .prop_map(|(line, column)| GrammarPosition::LineColumn { line, column }),
    ];
    let place = (proptest::option::of(position), text())
        .prop_map(|(position, words)| GrammarPlace { position, words });
    let limit = (text(), any::<u64>()).prop_map(|(name, value)| GrammarLimit { name, value });
    fields!(GrammarProblem from GrammarProblem::default();
        language: proptest::option::of(text()),
        place: proptest::option::of(place),
        option: proptest::option::of(text()),
        limit: proptest::option::of(limit),
        help: proptest::option::of(text()),
    )
}

fn token_trace() -> impl Strategy<Value = TokenTrace> {
    let top = (token_id(), any::<f32>(), any::<bool>()).prop_map(
        |(token_id, probability, is_allowed)| TracedToken {
            token_id,
            probability,
            is_allowed,
        },
    );
    fields!(TokenTrace from TokenTrace::default();
        probability: any::<Option<f32>>(),
        masked_probability: any::<f32>(),
        num_allowed: any::<u32>(),
        is_constrained: any::<bool>(),
        is_forced: any::<bool>(),
        step_seconds: any::<f32>(),
        top: vec(top, 0..3),
    )
}

fn output() -> impl Strategy<Value = EngineCoreOutput> {
    fields!(EngineCoreOutput from EngineCoreOutput::default();
        request_id: text(),
        new_token_ids: token_ids(),
        new_logprobs: of(logprobs_lists()),
        new_trace: vec(token_trace(), 0..3),
        new_prompt_logprobs: of(logprobs_lists()),
        scores: vec(vec(any::<f32>(), 0..3), 0..3),
        pooling_output: of(vec(any::<f32>(), 0..3)),
        finish_reason: of(prop_oneof![
            Just(FinishReason::Stop),
            Just(FinishReason::Length),
            Just(FinishReason::Abort),
            Just(FinishReason::Error),
            Just(FinishReason::Repetition),
        ]),
        stop_reason: of(prop_oneof![
            token_id().prop_map(StopReason::TokenId),
            text().prop_map(StopReason::String),
        ]),
        events: vec(event(), 0..4),
        prefill_stats: of(any::<(u32, u32)>().prop_map(
            |(num_prompt_tokens, num_cached_tokens)| PrefillStats {
                num_prompt_tokens,
                num_cached_tokens,
            },
        )),
        error: of(request_error()),
        num_nans_in_logits: any::<u32>(),
        structured_output_complete: any::<Option<bool>>(),
        complete_after: vec(any::<u32>(), 0..4),
        completed_by_budget: any::<bool>(),
        repetition_closed: any::<bool>(),
        no_time_to_think: any::<bool>(),
    )
}

fn structured_output_stats() -> impl Strategy<Value = StructuredOutputStats> {
    fields!(StructuredOutputStats from StructuredOutputStats::default();
        compile_seconds: vec(any::<f64>(), 0..4),
        num_cache_hits: any::<u64>(),
        num_cache_misses: any::<u64>(),
        num_refused: any::<u64>(),
        num_queued_grammars: any::<u32>(),
        num_renewed_grammars: any::<u64>(),
        num_deferred_answers: any::<u64>(),
        num_masked_steps: any::<u64>(),
        fill_seconds: any::<f64>(),
        exposed_fill_seconds: any::<f64>(),
        num_masked_rows: any::<u64>(),
        num_overridden_rows: any::<u64>(),
        num_constrained_tokens: any::<u64>(),
        num_forced_tokens: any::<u64>(),
        num_head_rows: any::<u64>(),
        num_head_rows_skipped: any::<u64>(),
        num_rejections: any::<u64>(),
        num_completed: any::<u64>(),
        num_completed_by_budget: any::<u64>(),
        num_truncated: any::<u64>(),
    )
}

fn spec_decoding_stats() -> impl Strategy<Value = SpecDecodingStats> {
    fields!(SpecDecodingStats from SpecDecodingStats::default();
        num_drafts: any::<u64>(),
        num_draft_tokens: any::<u64>(),
        num_accepted_tokens: any::<u64>(),
        num_accepted_tokens_per_pos: vec(any::<u64>(), 0..4),
        num_invalid_tokens: any::<u64>(),
    )
}

pub(crate) fn message() -> impl Strategy<Value = EngineCoreMessage> {
    let stats = fields!(SchedulerStats from SchedulerStats::default();
        num_running_reqs: any::<u32>(),
        num_waiting_reqs: any::<u32>(),
        kv_cache_usage: any::<f64>(),
        prefix_cache_stats: any::<(u64, u64, u64)>().prop_map(
            |(requests, queries, hits)| PrefixCacheStats { requests, queries, hits },
        ),
        num_scheduled_tokens: any::<u32>(),
        num_prompt_tokens: any::<u32>(),
        num_preempted_reqs: any::<u32>(),
        num_restored_rows: any::<u32>(),
        structured_output_stats: of(structured_output_stats()),
        spec_decoding_stats: of(spec_decoding_stats()),
    );
    let result = prop_oneof![
        text().prop_map(UtilityResult::Success),
        text().prop_map(UtilityResult::Failure),
    ];
    let utility =
        (any::<u64>(), result).prop_map(|(call_id, result)| UtilityOutput { call_id, result });
    let outputs = fields!(EngineCoreOutputs from EngineCoreOutputs::default();
        engine_index: any::<u32>(),
        outputs: vec(output(), 0..4),
        scheduler_stats: of(stats.prop_map(Box::new)),
        kv_cache_events: vec(kv_cache_event(), 0..4),
        timestamp: any::<f64>(),
        utility_output: of(utility),
    );
    prop_oneof![
        5 => outputs.prop_map(EngineCoreMessage::Outputs),
        1 => text().prop_map(|reason| EngineCoreMessage::EngineDead(EngineDead { reason })),
    ]
}
