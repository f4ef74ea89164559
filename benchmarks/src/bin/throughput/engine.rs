//! An engine to measure: the parts that `load_engine_core` joins, around a model with a stopwatch.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use crossbeam_channel::unbounded;
use engine_core::core::request::Request;
use engine_core::core::sched::{EngineClock, Scheduler};
use engine_core::core::{BlockHasher, KVCacheConfig};
use engine_core::engine::EngineCore;
use engine_core::model_executor::{
    ComputePool, LoadOptions, ModelLimits, WEIGHT_CACHE_BYTES, load_model,
};
use engine_core::worker::{Executor, ModelRunner, ModelRunnerConfig};
use protocol::{
    BackendKind, Dtype, EngineCoreRequest, KvCacheDtype, LogprobsMode, ModelSource, Quantization,
    SamplingParams, SchedulerConfig,
};

use crate::timed_model::{ModelTimes, TimedModel};

/// Tokens of the prompts that decode starts from.
pub(crate) const DECODE_PROMPT_TOKENS: usize = 16;
/// Steps of decode that are not counted.
const WARM_UP_STEPS: usize = 2;
const BLOCK_SIZE: usize = 16;
const NUM_BLOCKS: usize = 1024;
const MAX_MODEL_LEN: usize = 8192;

/// What executes the model, and in which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EngineSpec {
    backend: BackendKind,
    dtype: Dtype,
    quantization: Quantization,
    kv_cache_dtype: KvCacheDtype,
}

impl EngineSpec {
    /// The weights' format, as it is written behind the colon.
    pub(crate) fn format(&self) -> &'static str {
        match (self.quantization, self.dtype) {
            (Quantization::None, Dtype::BFloat16) => "bfloat16",
            (Quantization::None, Dtype::Float32) => "float32",
            (Quantization::None, Dtype::Float16) => "float16",
            (Quantization::None, Dtype::Auto) => "auto",
            (quantized, _) => quantized.as_str(),
        }
    }
}

impl FromStr for EngineSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, kv_cache_dtype) = match text.strip_suffix(":q8") {
            Some(rest) => (rest, KvCacheDtype::Q8),
            None => (text, KvCacheDtype::Auto),
        };
        let parts = text.split_once(':');
        let backend = parts.and_then(|(backend, _)| match backend {
            "cpu" => Some(BackendKind::Cpu),
            "candle" => Some(BackendKind::Candle),
            "cuda" => Some(BackendKind::Cuda(0)),
            _ => None,
        });
        let format = parts.and_then(|(_, format)| match format {
            "bfloat16" => Some((Dtype::BFloat16, Quantization::None)),
            "float32" => Some((Dtype::Float32, Quantization::None)),
            "float16" => Some((Dtype::Float16, Quantization::None)),
            "auto" => Some((Dtype::Auto, Quantization::None)),
            "q8_0" => Some((Dtype::BFloat16, Quantization::Q8_0)),
            "q4_0" => Some((Dtype::BFloat16, Quantization::Q4_0)),
            _ => None,
        });
        match (backend, format) {
            (Some(backend), Some((dtype, quantization))) => Ok(Self {
                backend,
                dtype,
                quantization,
                kv_cache_dtype,
            }),
            _ => Err(
                "must be cpu, candle or cuda, a colon, and bfloat16, float32, q8_0 or q4_0; then :q8 for \
                 keys and values in 8 bits"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = match self.backend {
            BackendKind::Cpu => "cpu",
            BackendKind::Candle => "candle",
            BackendKind::Cuda(_) => "cuda",
            BackendKind::CudaSimulator => "cuda-simulator",
        };
        write!(f, "{backend}:{}", self.format())?;
        match self.kv_cache_dtype {
            KvCacheDtype::Q8 => write!(f, ":q8"),
            KvCacheDtype::Auto | KvCacheDtype::Bf16 => Ok(()),
        }
    }
}

/// Where the time of some steps went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecodeTimes {
    /// How many.
    pub(crate) num_steps: u32,
    /// All of it, from before `EngineCore::step` until after.
    pub(crate) step: Duration,
    /// The model's layers.
    pub(crate) forward: Duration,
    /// The LM head.
    pub(crate) lm_head: Duration,
    /// The sampler, and handing the logits' rows to it: `sample_tokens` less the LM head.
    pub(crate) sampling: Duration,
    /// The flat batch, and handing it to the worker's thread: `execute_model` less the layers.
    pub(crate) batch: Duration,
    /// `Scheduler::schedule` and `Scheduler::update_from_output`.
    pub(crate) scheduler: Duration,
}

/// A loaded engine without requests.
pub(crate) struct Engine {
    spec: EngineSpec,
    engine_core: EngineCore,
    block_hasher: BlockHasher,
    model_times: Arc<ModelTimes>,
    vocab_size: u32,
    num_requests: u32,
}

/// How tokens are chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sampling {
    Greedy,
    Temperature,
    TopK,
    TopP,
}

impl Sampling {
    fn params(self) -> SamplingParams {
        let default = SamplingParams {
            temperature: 1.0,
            ..SamplingParams::default()
        };
        match self {
            Self::Greedy => SamplingParams {
                temperature: 0.0,
                ..default
            },
            Self::Temperature => default,
            Self::TopK => SamplingParams {
                top_k: 50,
                ..default
            },
            Self::TopP => SamplingParams {
                top_p: 0.9,
                ..default
            },
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greedy => "greedy",
            Self::Temperature => "temperature 1",
            Self::TopK => "top-k 50",
            Self::TopP => "top-p 0.9",
        })
    }
}

impl Engine {
    /// Loads the checkpoint in `folder`, where asked for with the engine's file of quantized weights.
    pub(crate) fn load(
        folder: &Path,
        spec: EngineSpec,
        num_threads: u32,
        weight_cache: bool,
    ) -> anyhow::Result<Self> {
        let pool = Arc::new(ComputePool::new(num_threads as usize)?);
        let options = LoadOptions {
            dtype: spec.dtype,
            kv_cache_dtype: spec.kv_cache_dtype,
            quantization: spec.quantization,
            weight_cache: weight_cache.then_some(WEIGHT_CACHE_BYTES),
            shared_weights: None,
            available_bytes: None,
            backend: spec.backend,
            heartbeat: Arc::default(),
        };
        let source = ModelSource::Path(folder.to_owned());
        let model = load_model(&source, &options, Arc::clone(&pool), &mut |_| ())?;
        let scheduler_config = SchedulerConfig::default();
        let max_num_batched_tokens = scheduler_config.max_num_batched_tokens as usize;
        let model = model.into_model(&ModelLimits {
            num_blocks: NUM_BLOCKS,
            block_size: BLOCK_SIZE,
            max_num_batched_tokens,
            max_num_logits_rows: max_num_batched_tokens,
            max_num_seqs: scheduler_config.max_num_seqs as usize,
            max_model_len: MAX_MODEL_LEN,
        })?;
        let vocab_size = model.vocab_size();
        let model_times = Arc::new(ModelTimes::default());
        let times = Arc::clone(&model_times);
        let runner_config = ModelRunnerConfig {
            block_size: BLOCK_SIZE,
            max_model_len: MAX_MODEL_LEN,
            tokenizer_vocab_size: vocab_size,
            logprobs_mode: LogprobsMode::default(),
            enable_sparse_head: true,
        };
        let runner = ModelRunner::new(Box::new(TimedModel { model, times }), pool, &runner_config);
        let kv_cache_config = KVCacheConfig {
            num_blocks: NUM_BLOCKS as u32,
            block_size: BLOCK_SIZE as u32,
            enable_prefix_caching: true,
        };
        let clock = EngineClock::start();
        let max_model_len = MAX_MODEL_LEN as u32;
        let scheduler = Scheduler::new(scheduler_config, kv_cache_config, max_model_len, clock)?;
        let block_hasher = scheduler.block_hasher();
        let (_, no_aborts) = unbounded();
        let executor = Executor::new(runner)?;
        Ok(Self {
            spec,
            engine_core: EngineCore::new(scheduler, executor, no_aborts),
            block_hasher,
            model_times,
            vocab_size: vocab_size as u32,
            num_requests: 0,
        })
    }

    /// Which engine this is.
    pub(crate) fn spec(&self) -> EngineSpec {
        self.spec
    }

    /// The time of one step that computes a prompt of `num_tokens` and its first token.
    pub(crate) fn prefill(&mut self, num_tokens: usize) -> anyhow::Result<Duration> {
        self.add_request(num_tokens, 1, Sampling::Greedy);
        let started = Instant::now();
        self.step(1)?;
        let time = started.elapsed();
        self.finish()?;
        Ok(time)
    }

    /// The times of `num_steps` steps in which `batch` requests with prompts of as many tokens get
    /// a token each.
    pub(crate) fn decode(
        &mut self,
        batch: usize,
        num_prompt_tokens: usize,
        num_steps: usize,
        sampling: Sampling,
    ) -> anyhow::Result<DecodeTimes> {
        let max_tokens = 1 + WARM_UP_STEPS + num_steps;
        for _ in 0..batch {
            self.add_request(num_prompt_tokens, max_tokens, sampling);
        }
        // A long prompt takes several steps until its first token.
        let mut first_tokens = 0;
        while first_tokens < batch {
            first_tokens += self.count_tokens_of_step()?;
        }
        for _ in 0..WARM_UP_STEPS {
            self.step(batch)?;
        }
        let (before, model_before) = (self.engine_core.step_times(), self.model_nanos());
        let started = Instant::now();
        for _ in 0..num_steps {
            self.step(batch)?;
        }
        let step = started.elapsed();
        let (times, model_after) = (self.engine_core.step_times() - before, self.model_nanos());
        self.finish()?;
        let [forward, lm_head] = [0, 1].map(|part| model_after[part] - model_before[part]);
        Ok(DecodeTimes {
            num_steps: num_steps as u32,
            step,
            forward,
            lm_head,
            sampling: times.sample_tokens - lm_head,
            batch: times.execute_model - forward,
            scheduler: times.schedule + times.update_from_output,
        })
    }

    fn model_nanos(&self) -> [Duration; 2] {
        [self.model_times.forward(), self.model_times.lm_head()]
    }

    /// A request with a prompt of its own, so that no prefix is in the cache.
    fn add_request(&mut self, num_prompt_tokens: usize, max_tokens: usize, sampling: Sampling) {
        let number = self.num_requests;
        self.num_requests += 1;
        let token_id = |position: u32| (number * 7919 + position * 104_729) % self.vocab_size;
        let request = EngineCoreRequest {
            request_id: number.to_string(),
            prompt_token_ids: (0..num_prompt_tokens as u32).map(token_id).collect(),
            sampling_params: SamplingParams {
                max_tokens: Some(max_tokens as u32),
                seed: Some(u64::from(number)),
                ignore_eos: true,
                ..sampling.params()
            },
            ..EngineCoreRequest::default()
        };
        let request = Request::from_engine_core_request(request, &self.block_hasher);
        self.engine_core.add_request(request);
    }

    /// One step, which must bring as many tokens.
    fn step(&mut self, num_tokens: usize) -> anyhow::Result<()> {
        let found = self.count_tokens_of_step()?;
        ensure!(
            found == num_tokens,
            "{}: a step brought {found} tokens, not {num_tokens}",
            self.spec
        );
        Ok(())
    }

    /// One step; how many tokens it brought.
    fn count_tokens_of_step(&mut self) -> anyhow::Result<usize> {
        let mut found = 0;
        for outputs in self.engine_core.step()?.into_values() {
            for output in outputs.outputs {
                if let Some(error) = output.error {
                    bail!("{}: {}", self.spec, error.message);
                }
                found += output.new_token_ids.len();
            }
        }
        Ok(found)
    }

    /// Tells the runner that the requests are over.
    fn finish(&mut self) -> anyhow::Result<()> {
        while self.engine_core.has_work() {
            self.step(0)
                .context("requests went on after their last token")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_as_they_are_printed() {
        for text in [
            "cpu:bfloat16",
            "cpu:float32",
            "cpu:q8_0",
            "cpu:q4_0",
            "cpu:q4_0:q8",
            "candle:bfloat16",
            "candle:float32",
        ] {
            assert_eq!(text.parse::<EngineSpec>().unwrap().to_string(), text);
        }
        for text in ["cpu", "gpu:float32", "cpu:int8", "cpu:q8", "cpu:auto", ""] {
            assert!(text.parse::<EngineSpec>().is_err(), "{text}");
        }
    }
}
