//! From a configuration to an engine: load the model, size the KV cache, join the parts.

use std::fs::File;
use std::num::NonZero;
use std::sync::Arc;

use protocol::{
    EngineConfig, EngineCoreReadyResponse, LoadProgress, ModelSource, PoolerInfo, Quantization,
    RunnerType, SchedulerConfig, SpeculativeConfig, StructuredOutputsConfig,
};
use tokenizer::{Tokenizer, TokenizerError, weights_fingerprint};

use crate::core::block_hash::{BlockHashFunction, BlockHasher};
use crate::core::kv_cache_manager::KVCacheConfig;
use crate::core::sched::{EngineClock, Scheduler, SchedulerError};
use crate::core::spec_decode::{Proposer, SpeculativeConfigError};
use crate::engine::core::EngineCoreError;
use crate::engine::draft_model::{
    DraftModelError, check_length, has_draft_model, load_draft_model,
};
use crate::engine::heartbeat::Heartbeat;
use crate::engine::kv_cache_size::{CacheMemory, KvCacheSize, KvCacheSizeError, size_kv_cache};
use crate::engine::memory::available_memory_bytes;
use crate::model_executor::{
    self, ComputePool, KvCacheFormat, LoadOptions, LoadedModel, ModelDtype, ModelError,
    ModelLimits, PoolError, SharedWeightsFile, WEIGHT_CACHE_BYTES, load_model,
};
use crate::sample::VocabSizes;
use crate::structured_output::{
    CacheTooSmall, ForcedTokens, FormworkBackend, StructuredOutputBackend, StructuredOutputManager,
};
use crate::worker::{Executor, ExecutorError, ModelRunner, ModelRunnerConfig};

/// Most compute threads that may be asked for.
const MAX_THREADS: u32 = 1024;
/// Most cores that may share a machine.
const MAX_DATA_PARALLEL_SIZE: u32 = 1024;
/// Most requests of a step that may be asked for.
const MAX_NUM_SEQS: u32 = 65_536;
/// Most tokens of a step that may be asked for.
const MAX_NUM_BATCHED_TOKENS: u32 = 1 << 20;

/// Why a configuration can't be served.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The checkpoint can't be loaded, or the machine can't hold it.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer's files can't be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Tokenizer and model belong to different models.
    #[error(
        "the tokenizer has ids up to {last_token_id}, but config.json's vocab_size is \
         {vocab_size}: tokenizer.json and the weights are not of one model"
    )]
    TokenizerMismatch {
        /// The tokenizer's highest id.
        last_token_id: usize,
        /// The model's.
        vocab_size: usize,
    },
    /// A limit for which every step would keep too much memory.
    #[error("{field} is {value}: it must be from 1 to {most}")]
    Limit {
        /// The field of the configuration.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The largest that is possible.
        most: u32,
    },
    /// A core beyond the number of cores.
    #[error("data_parallel_rank is {rank}: it must be less than data_parallel_size, {size}")]
    Rank {
        /// The number of this core.
        rank: u32,
        /// The number of cores.
        size: u32,
    },
    /// No time that requests could be given.
    #[error("shutdown_timeout_seconds is {0}: it must be a number of seconds from 0 on")]
    ShutdownTimeout(f64),
    /// The compute threads could not be started.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The cache is too small, or a length is wrong.
    #[error(transparent)]
    KvCacheSize(#[from] KvCacheSizeError),
    /// The scheduler's limits contradict each other.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// Drafts can't be proposed as configured.
    #[error(transparent)]
    Speculative(#[from] SpeculativeConfigError),
    /// The draft model can't be loaded, or the machine can't hold it beside the target model.
    #[error("speculative_config.model, {model}: {source}")]
    DraftModel {
        /// Which model.
        model: String,
        /// Why not.
        source: Box<StartupError>,
    },
    /// The draft model can't draft for the target model.
    #[error(transparent)]
    Draft(#[from] DraftModelError),
    /// Grammars would have too little memory.
    #[error(transparent)]
    GrammarCache(#[from] CacheTooSmall),
    /// The compile threads could not be started.
    #[error("the grammar threads could not be started: {0}")]
    GrammarThreads(#[source] std::io::Error),
    /// The worker could not be started.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The model is loaded and can't run a step.
    #[error("the first step failed: {0}")]
    WarmUp(#[from] EngineCoreError),
}

/// An engine's parts, and what its clients need to know of it.
pub struct LoadedEngineCore {
    /// Without requests.
    pub scheduler: Scheduler,
    /// Compiles the requests' grammars; for [`EngineCore::with_structured_output`].
    ///
    /// [`EngineCore::with_structured_output`]: crate::engine::EngineCore::with_structured_output
    pub structured_output_manager: Arc<StructuredOutputManager>,
    /// With the model loaded.
    pub executor: Executor,
    /// Makes requests fit for this scheduler's prefix cache.
    pub block_hasher: BlockHasher,
    /// Width of the logits, and of the tokenizer.
    pub vocab: VocabSizes,
    /// Raised by the model, and to be raised by the busy loop.
    pub(crate) heartbeat: Arc<Heartbeat>,
    /// What clients are told; `client_index` is 0.
    pub ready: EngineCoreReadyResponse,
}

/// Loads the model that `config` names and makes an engine of it. `shared_weights` is a file in memory for packed
/// weights that all cores of one `parallel_config` have; core 0 fills it where it is empty.
///
/// # Errors
/// Whatever is wrong with the configuration, the checkpoint or the machine; see [`StartupError`].
pub fn load_engine_core(
    config: &EngineConfig,
    shared_weights: Option<File>,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedEngineCore, StartupError> {
    let EngineConfig {
        model_config,
        cache_config,
        parallel_config,
        scheduler_config,
        ..
    } = config;
    let limits = [
        ("max_num_seqs", scheduler_config.max_num_seqs, MAX_NUM_SEQS),
        (
            "max_num_batched_tokens",
            scheduler_config.max_num_batched_tokens,
            MAX_NUM_BATCHED_TOKENS,
        ),
        (
            "num_threads",
            model_config.num_threads.unwrap_or(1),
            MAX_THREADS,
        ),
        (
            "data_parallel_size",
            parallel_config.data_parallel_size,
            MAX_DATA_PARALLEL_SIZE,
        ),
    ];
    for (field, value, most) in limits {
        if value == 0 || value > most {
            return Err(StartupError::Limit { field, value, most });
        }
    }
    let (rank, size) = (
        parallel_config.data_parallel_rank,
        parallel_config.data_parallel_size,
    );
    if rank >= size {
        return Err(StartupError::Rank { rank, size });
    }
    let seconds = config.shutdown_timeout_seconds;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(StartupError::ShutdownTimeout(seconds));
    }
    let speculative_config = config.speculative_config.as_ref();
    let proposer = speculative_config.map(Proposer::new).transpose()?;
    let heartbeat = Arc::new(Heartbeat::default());
    let share_of_cores = (num_available_cores() / size as usize).max(1);
    let num_threads = (model_config.num_threads).map_or(share_of_cores, |asked| asked as usize);
    let pool = Arc::new(if model_config.pin_threads {
        ComputePool::pinned_in_share(num_threads, rank as usize, size as usize)?
    } else {
        ComputePool::new(num_threads)?
    });
    let options = LoadOptions {
        dtype: model_config.dtype,
        kv_cache_dtype: cache_config.cache_dtype,
        quantization: model_config.quantization,
        weight_cache: model_config.weight_cache.then_some(WEIGHT_CACHE_BYTES),
        shared_weights: shared_weights.map(|file| SharedWeightsFile {
            file: Arc::new(file),
            may_write: rank == 0,
            is_last: !speculative_config.is_some_and(has_draft_model),
        }),
        backend: model_config.backend,
        available_bytes: available_memory_bytes(),
        heartbeat: heartbeat.counter(),
    };
    let (tokenizer, model) = load_checkpoint(&model_config.model, &options, &pool, progress)?;
    let tokenizer = Arc::new(tokenizer);
    let vocab = VocabSizes {
        logits: model.config().vocab_size,
        tokenizer: tokenizer.vocab_size(),
    };
    if vocab.tokenizer > vocab.logits {
        return Err(StartupError::TokenizerMismatch {
            last_token_id: vocab.tokenizer - 1,
            vocab_size: vocab.logits,
        });
    }

    let both = (&model, &*tokenizer);
    let draft = load_draft_model(speculative_config, &options, both, &pool, progress)?;

    let block_size = cache_config.block_size as usize;
    let bytes_per_block = [Some(&model), draft.as_ref()]
        .into_iter()
        .flatten()
        .map(|model| model.kv_cache_bytes_per_block(block_size.max(1)))
        .sum();
    let KvCacheSize {
        num_blocks,
        max_model_len,
    } = size_kv_cache(
        cache_config,
        model_config.max_model_len,
        model.config().max_position_embeddings,
        scheduler_config.max_num_seqs,
        bytes_per_block,
        match model.device_memory_for_cache(
            cache_config.gpu_memory_utilization,
            scheduler_config.max_num_batched_tokens as usize,
        )? {
            Some(bytes) => CacheMemory::of_device(bytes),
            // The first one has left the others theirs.
            None if cache_config.num_blocks_of_first.is_some() => CacheMemory::of_host(1),
            None => CacheMemory::of_host(size),
        },
    )?;
    let pooler = pooler_info(&model, model_config.runner);
    if speculative_config.is_some() && pooler.runner == RunnerType::Pooling {
        return Err(DraftModelError::NoText {
            model: model.name().to_owned(),
            purpose: "for it",
        }
        .into());
    }
    let (scheduler_config, enable_prefix_caching) = match model.config().encoder {
        None => (scheduler_config.clone(), cache_config.enable_prefix_caching),
        // Every token attends to all of its text, which is in one step then and leaves nothing to others.
        Some(_) => (whole_prompts(scheduler_config, max_model_len), false),
    };
    let model_len = model.config().max_position_embeddings;
    if model_config.max_model_len.is_none() && (max_model_len as usize) < model_len {
        tracing::warn!(
            "the KV cache holds {max_model_len} tokens: no sequence can be longer, though the model \
             was made for {model_len}"
        );
    }
    if let Some(draft) = &draft {
        check_length(draft, max_model_len)?;
    }
    let scheduler = Scheduler::new(
        scheduler_config.clone(),
        KVCacheConfig {
            num_blocks,
            block_size: cache_config.block_size,
            enable_prefix_caching,
        },
        max_model_len,
        EngineClock::start(),
    )?
    .with_block_hash(BlockHashFunction::new(
        &cache_config.prefix_caching_hash_algo,
    ));
    let scheduler = match cache_config.enable_kv_cache_events {
        true => scheduler.with_kv_cache_events(),
        false => scheduler,
    };
    let mut structured_outputs_config = config.structured_outputs_config.clone();
    (structured_outputs_config.compile_threads)
        .get_or_insert(share_of_cores.div_ceil(2).min(MAX_THREADS as usize) as u32);
    let structured_output_manager = Arc::new(load_structured_output(
        &structured_outputs_config,
        &tokenizer,
        vocab.logits,
        pooler.runner,
    )?);
    let jump_forward = config.structured_outputs_config.jump_forward;
    let scheduler = scheduler
        .with_forced_tokens(ForcedTokens::new(jump_forward, Arc::clone(&tokenizer)))
        .with_proposer(proposer);

    let max_num_batched_tokens = scheduler_config.max_num_batched_tokens as usize;
    let ready = EngineCoreReadyResponse {
        client_index: 0,
        model_name: model.name().to_owned(),
        vocab_size: vocab.logits as u32,
        tokenizer_fingerprint: tokenizer.fingerprint().to_owned(),
        weights_fingerprint: match &model_config.model {
            ModelSource::Path(path) => weights_fingerprint(path).ok().flatten(),
            ModelSource::BuiltIn => None,
        },
        max_model_len,
        block_size: cache_config.block_size,
        num_blocks,
        kv_cache_bytes: u64::from(num_blocks) * bytes_per_block as u64,
        dtype: formats_in_words(&model),
        num_threads: num_threads as u32,
        max_num_seqs: scheduler_config.max_num_seqs,
        max_num_batched_tokens: scheduler_config.max_num_batched_tokens,
        max_num_queued_reqs: scheduler_config.max_num_queued_reqs,
        max_logprobs: model_config.max_logprobs,
        pooler,
    };
    let limits = ModelLimits {
        num_blocks: num_blocks as usize,
        block_size,
        max_num_batched_tokens,
        // Prompt logprobs need a row for every token.
        max_num_logits_rows: max_num_batched_tokens,
        max_num_seqs: scheduler_config.max_num_seqs as usize,
        max_model_len: max_model_len as usize,
    };
    let runner_config = ModelRunnerConfig {
        block_size,
        max_model_len: max_model_len as usize,
        tokenizer_vocab_size: vocab.tokenizer,
        logprobs_mode: model_config.logprobs_mode,
        enable_sparse_head: config.structured_outputs_config.enable_sparse_head,
    };
    let draft_runner = match draft {
        None => None,
        Some(draft) => {
            let limits = limits_of_draft(limits, speculative_config);
            let model = draft.into_model(&limits)?;
            Some(ModelRunner::new(model, Arc::clone(&pool), &runner_config))
        }
    };
    let model_runner = ModelRunner::new(model.into_model(&limits)?, pool, &runner_config);
    Ok(LoadedEngineCore {
        block_hasher: scheduler.block_hasher(),
        executor: Executor::with_draft_runner(model_runner, draft_runner)?,
        scheduler,
        structured_output_manager,
        vocab,
        heartbeat,
        ready,
    })
}

/// What the draft model has to serve: a step of the target model, and of a request the tokens of its last draft that
/// the target model has computed already.
fn limits_of_draft(limits: ModelLimits, config: Option<&SpeculativeConfig>) -> ModelLimits {
    let num_speculative_tokens = config.map_or(0, |config| config.num_speculative_tokens as usize);
    ModelLimits {
        max_num_batched_tokens: limits.max_num_batched_tokens + num_speculative_tokens,
        max_num_logits_rows: limits.max_num_seqs,
        ..limits
    }
}

/// What the model makes of a prompt beside text. One without an LM head generates nothing, whatever was asked for.
fn pooler_info(model: &LoadedModel, runner: RunnerType) -> PoolerInfo {
    let config = model.config();
    PoolerInfo {
        runner: match model.has_lm_head() {
            true => runner,
            false => RunnerType::Pooling,
        },
        hidden_size: config.hidden_size as u32,
        num_labels: model.num_labels() as u32,
        num_token_types: (config.encoder).map_or(1, |encoder| encoder.type_vocab_size as u32),
        has_lm_head: model.has_lm_head(),
    }
}

/// The limits of a model whose prompts are computed in one piece: a step has room for the longest.
fn whole_prompts(config: &SchedulerConfig, max_model_len: u32) -> SchedulerConfig {
    SchedulerConfig {
        max_num_batched_tokens: config.max_num_batched_tokens.max(max_model_len),
        long_prefill_token_threshold: 0,
        enable_chunked_prefill: false,
        ..config.clone()
    }
}

/// The compile threads over this vocabulary. A tokenizer that structured output can't work with is no
/// reason not to start: requests that need it are told why.
fn load_structured_output(
    config: &StructuredOutputsConfig,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    runner: RunnerType,
) -> Result<StructuredOutputManager, StartupError> {
    if runner == RunnerType::Pooling {
        let reason = "this core generates no text (runner: pooling)";
        return Ok(StructuredOutputManager::unavailable(reason.to_owned()));
    }
    let info = match tokenizer.tokenizer_info(vocab_size) {
        Ok(info) => info,
        Err(error) => {
            tracing::warn!(%error, "no structured output with this tokenizer");
            return Ok(StructuredOutputManager::unavailable(error.to_string()));
        }
    };
    let cache_bytes = usize::try_from(config.cache_bytes).unwrap_or(usize::MAX);
    let backend: Arc<dyn StructuredOutputBackend> =
        Arc::new(FormworkBackend::new(info, cache_bytes)?);
    StructuredOutputManager::new(config, &backend).map_err(StartupError::GrammarThreads)
}

pub(super) fn load_checkpoint(
    source: &ModelSource,
    options: &LoadOptions,
    pool: &Arc<ComputePool>,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<(Tokenizer, LoadedModel), StartupError> {
    let progress = &mut |loaded: model_executor::LoadProgress| {
        let (done_bytes, total_bytes) = (loaded.done_bytes, loaded.total_bytes);
        progress(LoadProgress {
            done_bytes,
            total_bytes,
        });
    };
    let model = load_model(source, options, Arc::clone(pool), progress)?;
    let tokenizer = match source {
        ModelSource::Path(folder) => Tokenizer::from_files(folder)?,
        ModelSource::BuiltIn => Tokenizer::from_bytes(builtin_model::FILES)?,
    };
    Ok((tokenizer, model))
}

/// Processor cores that this process may use (cgroup quotas are respected).
fn num_available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The model's number formats, as the line at the start says them.
fn formats_in_words(model: &LoadedModel) -> String {
    let mut words = model.dtype().as_str().to_owned();
    match (model.quantization(), model.quantized_format()) {
        (Quantization::None, None) => {}
        (Quantization::None, Some(format)) => words = format!("{words}, {format} weights"),
        (quantized, _) => words = format!("{words}, {} weights", quantized.as_str()),
    }
    match (model.kv_cache_format(), model.dtype()) {
        (KvCacheFormat::Q8, _) => words + ", q8 keys and values",
        (KvCacheFormat::BFloat16, ModelDtype::Float32 | ModelDtype::Float16) => {
            words + ", bfloat16 keys and values"
        }
        _ => words,
    }
}
