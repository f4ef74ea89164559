//! Which tokens of which requests the next step computes.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use protocol::{
    EngineCoreEventType, EngineCoreOutput, PrefillStats, PrefixCacheStats, SchedulerConfig,
};

use crate::core::block_hash::BlockHasher;
use crate::core::kv_cache_manager::{KVCacheConfig, KVCacheManager, RequestBlocks};
use crate::core::sched::clock::EngineClock;
use crate::core::sched::output::{CachedRequestData, NewRequestData, SchedulerOutput};
use crate::core::sched::request_queue::{QueueKey, RequestQueue};
use crate::request::{Request, RequestId};

/// Why a scheduler can't work with a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SchedulerError {
    /// A field has a value that it can't have.
    #[error("{field} is {value}: {expected}")]
    InvalidConfig {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        expected: String,
    },
}

/// What the scheduler may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PauseState {
    /// Everything.
    #[default]
    Unpaused,
    /// Running requests go on, nothing is admitted.
    PausedNew,
    /// Nothing is scheduled.
    PausedAll,
}

/// An output and the frontend that it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientOutput {
    /// Which frontend.
    pub client_index: u32,
    /// What it gets.
    pub output: EngineCoreOutput,
}

/// Number of an admission: counts up with every request that starts or resumes running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Admission(u64);

/// A request that holds blocks.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    pub(crate) admission: Admission,
    pub(crate) request: Box<Request>,
    pub(crate) blocks: RequestBlocks,
}

/// Where a request in flight stands.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Waiting(QueueKey),
    Running(Admission),
}

/// Decides which tokens of which requests each step computes, and keeps all requests in flight.
///
/// A step is [`Scheduler::schedule`], the model, [`Scheduler::update_from_output`]. Between the
/// two calls requests may be added and finished; one finished meanwhile has its output dropped.
/// The scheduler belongs to one thread.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: SchedulerConfig,
    pub(crate) max_model_len: usize,
    pub(crate) kv_cache_manager: KVCacheManager,
    pub(crate) clock: EngineClock,
    pub(crate) waiting: RequestQueue,
    /// In order of admission, so that an [`Admission`] is found by bisection and a step's output
    /// by walking both in parallel.
    pub(crate) running: Vec<RunningRequest>,
    /// All requests, waiting and running.
    pub(crate) in_flight: HashMap<RequestId, Place>,
    /// Ended since the last step: the runner has yet to hear of them.
    pub(crate) finished_req_ids: Vec<RequestId>,
    /// Made outside a step (refusals); sent with the next one.
    pub(crate) pending_outputs: Vec<ClientOutput>,
    pub(crate) prefix_cache_stats: PrefixCacheStats,
    pause_state: PauseState,
    num_watermark_blocks: usize,
    next_admission: u64,
}

/// A step in the making.
pub(crate) struct Step {
    pub(crate) token_budget: usize,
    /// Most tokens for one prefill.
    max_tokens_per_request: usize,
    /// In order of admission.
    pub(crate) scheduled: Vec<Scheduled>,
    pub(crate) preempted_req_ids: Vec<RequestId>,
    pub(crate) timestamp: f64,
}

/// A request's part in a step.
pub(crate) struct Scheduled {
    pub(crate) admission: Admission,
    pub(crate) num_tokens: usize,
    news: News,
}

/// What the runner has to hear about a scheduled request.
enum News {
    /// It ran before and got these blocks.
    Running { new_block_ids: Vec<u32> },
    /// It is admitted for the first time.
    New,
    /// It is admitted again after a preemption.
    Resumed,
}

impl Scheduler {
    /// A scheduler without requests.
    ///
    /// # Errors
    /// A limit that contradicts another or the cache's size; in particular a cache that can't
    /// hold one request of `max_model_len` tokens: then a request could run alone and still not
    /// go on.
    pub fn new(
        config: SchedulerConfig,
        kv_cache_config: KVCacheConfig,
        max_model_len: u32,
        clock: EngineClock,
    ) -> Result<Self, SchedulerError> {
        validate(&config, &kv_cache_config, max_model_len)?;
        let block_size = NonZeroUsize::new(kv_cache_config.block_size as usize)
            .ok_or_else(|| invalid("block_size", 0, "at least 1"))?;
        Ok(Self {
            max_model_len: max_model_len as usize,
            kv_cache_manager: KVCacheManager::new(
                kv_cache_config.num_blocks,
                block_size,
                kv_cache_config.enable_prefix_caching,
            ),
            clock,
            waiting: RequestQueue::new(config.policy),
            running: Vec::new(),
            in_flight: HashMap::new(),
            finished_req_ids: Vec::new(),
            pending_outputs: Vec::new(),
            prefix_cache_stats: PrefixCacheStats::default(),
            pause_state: PauseState::default(),
            num_watermark_blocks: (config.watermark * f64::from(kv_cache_config.num_blocks))
                as usize,
            next_admission: 0,
            config,
        })
    }

    /// Plans one step and takes the blocks that it needs.
    ///
    /// Running requests come first, in order of admission, then waiting ones while there is
    /// budget; nothing is admitted in a step that had to preempt. Costs O(running + admitted),
    /// however many wait.
    pub fn schedule(&mut self) -> SchedulerOutput {
        let mut step = self.new_step();
        self.schedule_running(&mut step);
        if step.preempted_req_ids.is_empty() && self.pause_state == PauseState::Unpaused {
            self.schedule_waiting(&mut step);
        }
        self.finish_step(step)
    }

    fn new_step(&self) -> Step {
        let max_num_batched_tokens = self.config.max_num_batched_tokens as usize;
        // A prefill is held back only where others want the budget, and never below its fair
        // share of it.
        let num_eligible =
            (self.running.len() + self.waiting.len()).min(self.config.max_num_seqs as usize);
        let threshold = self.config.long_prefill_token_threshold as usize;
        let max_tokens_per_request = if threshold > 0 && num_eligible > 1 {
            threshold.max(max_num_batched_tokens / num_eligible)
        } else {
            usize::MAX
        };
        Step {
            token_budget: match self.pause_state {
                PauseState::PausedAll => 0,
                PauseState::Unpaused | PauseState::PausedNew => max_num_batched_tokens,
            },
            max_tokens_per_request,
            scheduled: Vec::with_capacity(self.running.len()),
            preempted_req_ids: Vec::new(),
            timestamp: self.clock.now(),
        }
    }

    fn schedule_running(&mut self, step: &mut Step) {
        let mut index = 0;
        while index < self.running.len() && step.token_budget > 0 {
            let request = &self.running[index].request;
            let num_computed_tokens = request.num_computed_tokens;
            let num_tokens = (request.num_tokens() - num_computed_tokens)
                .min(step.max_tokens_per_request)
                .min(step.token_budget);
            if num_tokens == 0 {
                index += 1;
                continue;
            }
            let new_block_ids = loop {
                let blocks = &mut self.running[index].blocks;
                let allocated = self
                    .kv_cache_manager
                    .allocate_slots(blocks, num_computed_tokens + num_tokens);
                if let Some(new_block_ids) = allocated {
                    break new_block_ids;
                }
                let victim = self.choose_victim();
                self.preempt(victim, step);
                if victim == index {
                    // Even alone in its rank it can't go on: wait for the others to finish.
                    self.cache_scheduled_blocks(step);
                    return;
                }
                if victim < index {
                    index -= 1;
                }
            };
            step.token_budget -= num_tokens;
            step.scheduled.push(Scheduled {
                admission: self.running[index].admission,
                num_tokens,
                news: News::Running { new_block_ids },
            });
            index += 1;
        }
        self.cache_scheduled_blocks(step);
    }

    /// Names the blocks that the running requests fill in this step. Only now, when none of them
    /// can be preempted any more: a name must never outlive a computation that didn't happen.
    fn cache_scheduled_blocks(&mut self, step: &Step) {
        let mut running = self.running.iter_mut();
        for scheduled in &step.scheduled {
            let Some(RunningRequest {
                request, blocks, ..
            }) = running.find(|running| running.admission == scheduled.admission)
            else {
                break;
            };
            let num_computed_tokens = request.num_computed_tokens + scheduled.num_tokens;
            self.kv_cache_manager
                .cache_blocks(request, blocks, num_computed_tokens);
        }
    }

    fn schedule_waiting(&mut self, step: &mut Step) {
        while step.token_budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(next) = self.waiting.peek() else {
                break;
            };
            let request = next.request();
            let computed = self.kv_cache_manager.get_computed_blocks(request);
            let num_tokens =
                (request.num_tokens() - computed.num_tokens).min(step.max_tokens_per_request);
            if num_tokens > step.token_budget && !self.config.enable_chunked_prefill {
                break;
            }
            let num_tokens = num_tokens.min(step.token_budget);
            let num_computed_tokens = computed.num_tokens + num_tokens;
            let num_tokens_to_fit = if self.config.scheduler_reserve_full_isl {
                request.num_tokens()
            } else {
                num_computed_tokens
            };
            // Alone, a request may have every block, or it would wait for ever.
            let num_watermark_blocks = if self.running.is_empty() {
                0
            } else {
                self.num_watermark_blocks
            };
            let Some(mut blocks) = self.kv_cache_manager.allocate_first_slots(
                &computed,
                num_computed_tokens,
                num_tokens_to_fit,
                num_watermark_blocks,
            ) else {
                break;
            };
            let mut request = next.pop();
            self.kv_cache_manager
                .cache_blocks(&request, &mut blocks, num_computed_tokens);
            let news = self.note_admission(&mut request, computed.num_tokens, step.timestamp);
            let admission = Admission(self.next_admission);
            self.next_admission += 1;
            self.in_flight
                .insert(request.request_id().clone(), Place::Running(admission));
            self.running.push(RunningRequest {
                admission,
                request,
                blocks,
            });
            step.token_budget -= num_tokens;
            step.scheduled.push(Scheduled {
                admission,
                num_tokens,
                news,
            });
        }
    }

    /// Writes down that a request starts or resumes with `num_cached_tokens` tokens from the
    /// prefix cache.
    fn note_admission(
        &mut self,
        request: &mut Request,
        num_cached_tokens: usize,
        timestamp: f64,
    ) -> News {
        request.num_computed_tokens = num_cached_tokens;
        request.record_event(EngineCoreEventType::Scheduled, timestamp);
        if request.num_preemptions > 0 {
            return News::Resumed;
        }
        request.prefill_stats = Some(PrefillStats {
            num_prompt_tokens: request.num_tokens() as u32,
            num_cached_tokens: num_cached_tokens as u32,
        });
        if !request.skip_reading_prefix_cache() {
            self.prefix_cache_stats.requests += 1;
            self.prefix_cache_stats.queries += request.num_tokens() as u64;
            self.prefix_cache_stats.hits += num_cached_tokens as u64;
        }
        News::New
    }

    /// Writes the step down for the runner and counts its tokens as computed.
    fn finish_step(&mut self, step: Step) -> SchedulerOutput {
        let mut output = SchedulerOutput {
            finished_req_ids: std::mem::take(&mut self.finished_req_ids),
            preempted_req_ids: step.preempted_req_ids,
            admissions: Vec::with_capacity(step.scheduled.len()),
            ..SchedulerOutput::default()
        };
        let mut num_scheduled_tokens = Vec::with_capacity(step.scheduled.len());
        let cached = &mut output.scheduled_cached_reqs;
        let mut running = self.running.iter_mut();
        for Scheduled {
            admission,
            num_tokens,
            news,
        } in step.scheduled
        {
            let Some(RunningRequest {
                request, blocks, ..
            }) = running.find(|running| running.admission == admission)
            else {
                break;
            };
            match news {
                News::New => output
                    .scheduled_new_reqs
                    .push(new_request_data(request, blocks)),
                News::Running { new_block_ids } => push_cached(cached, request, new_block_ids),
                News::Resumed => {
                    cached.resumed_req_ids.push(request.request_id().clone());
                    cached.all_token_ids.push(request.all_token_ids().to_vec());
                    push_cached(cached, request, blocks.block_ids().to_vec());
                }
            }
            num_scheduled_tokens.push((request.request_id().clone(), num_tokens));
            output.admissions.push(admission);
            output.total_num_scheduled_tokens += num_tokens;
            request.num_computed_tokens += num_tokens;
        }
        output.num_scheduled_tokens = num_scheduled_tokens.into_iter().collect();
        output
    }

    /// What hashes the blocks of requests for this scheduler; for the thread that builds them.
    pub fn block_hasher(&self) -> BlockHasher {
        self.kv_cache_manager.block_hasher()
    }

    /// The KV cache's state, to look at.
    pub fn kv_cache_manager(&self) -> &KVCacheManager {
        &self.kv_cache_manager
    }

    /// Running requests and their block tables, in order of admission.
    pub fn running(&self) -> impl ExactSizeIterator<Item = (&Request, &[u32])> + '_ {
        self.running
            .iter()
            .map(|running| (&*running.request, running.blocks.block_ids()))
    }

    /// Waiting requests, the next to be admitted first.
    pub fn waiting(&self) -> impl Iterator<Item = &Request> + '_ {
        self.waiting.iter()
    }

    /// Requests in the queue, preempted ones included.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests that could make progress: none while all is paused, only the running ones while
    /// admission is.
    pub fn num_unfinished_requests(&self) -> usize {
        match self.pause_state {
            PauseState::Unpaused => self.waiting.len() + self.running.len(),
            PauseState::PausedNew => self.running.len(),
            PauseState::PausedAll => 0,
        }
    }

    /// Whether any request could make progress.
    pub fn has_unfinished_requests(&self) -> bool {
        self.num_unfinished_requests() > 0
    }

    /// Whether a step has anything to do: compute, tell the runner who ended, or send what was
    /// decided between steps.
    pub fn has_requests(&self) -> bool {
        self.has_unfinished_requests()
            || !self.finished_req_ids.is_empty()
            || !self.pending_outputs.is_empty()
    }

    /// What the scheduler may start.
    pub fn pause_state(&self) -> PauseState {
        self.pause_state
    }

    /// Pauses or resumes. Requests keep their places and blocks.
    pub fn set_pause_state(&mut self, pause_state: PauseState) {
        self.pause_state = pause_state;
    }

    /// Forgets all cached prefixes; false, and nothing done, while any request holds a block.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.kv_cache_manager.reset_prefix_cache()
    }
}

fn new_request_data(request: &Request, blocks: &RequestBlocks) -> NewRequestData {
    NewRequestData {
        req_id: request.request_id().clone(),
        prompt_token_ids: request.prompt_token_ids().clone(),
        output_token_ids: request.output_token_ids().to_vec(),
        sampling_params: request.sampling_params().clone(),
        block_ids: blocks.block_ids().to_vec(),
        num_computed_tokens: request.num_computed_tokens as u32,
    }
}

fn push_cached(cached: &mut CachedRequestData, request: &Request, new_block_ids: Vec<u32>) {
    cached.req_ids.push(request.request_id().clone());
    cached.new_block_ids.push(new_block_ids);
    cached
        .num_computed_tokens
        .push(request.num_computed_tokens as u32);
    cached
        .num_output_tokens
        .push(request.num_output_tokens() as u32);
}

fn invalid(
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> SchedulerError {
    SchedulerError::InvalidConfig {
        field,
        value: value.to_string(),
        expected: expected.into(),
    }
}

/// The rules between the limits.
fn validate(
    config: &SchedulerConfig,
    kv_cache_config: &KVCacheConfig,
    max_model_len: u32,
) -> Result<(), SchedulerError> {
    let SchedulerConfig {
        max_num_batched_tokens,
        max_num_seqs,
        long_prefill_token_threshold,
        enable_chunked_prefill,
        watermark,
        max_num_queued_reqs,
        max_num_queued_tokens,
        policy: _,
        scheduler_reserve_full_isl: _,
    } = *config;
    let KVCacheConfig {
        num_blocks,
        block_size,
        ..
    } = *kv_cache_config;
    if max_model_len < 2 {
        let expected = "at least 2, one prompt token and one output token";
        return Err(invalid("max_model_len", max_model_len, expected));
    }
    if block_size == 0 {
        return Err(invalid("block_size", block_size, "at least 1"));
    }
    let capacity = u64::from(num_blocks.saturating_sub(1)) * u64::from(block_size);
    if capacity < u64::from(max_model_len) {
        let expected = format!(
            "with the null block apart this holds {capacity} tokens of {block_size} per block, \
             fewer than max_model_len {max_model_len}; lower max_model_len or give the KV cache \
             at least {} blocks",
            u64::from(max_model_len).div_ceil(u64::from(block_size)) + 1,
        );
        return Err(invalid("num_blocks", num_blocks, expected));
    }
    if max_num_seqs == 0 {
        return Err(invalid("max_num_seqs", max_num_seqs, "at least 1"));
    }
    if max_num_batched_tokens < max_num_seqs {
        let expected = format!("at least max_num_seqs {max_num_seqs}");
        return Err(invalid(
            "max_num_batched_tokens",
            max_num_batched_tokens,
            expected,
        ));
    }
    if !enable_chunked_prefill && max_num_batched_tokens < max_model_len {
        let expected =
            format!("at least max_model_len {max_model_len} where enable_chunked_prefill is off",);
        return Err(invalid(
            "max_num_batched_tokens",
            max_num_batched_tokens,
            expected,
        ));
    }
    if long_prefill_token_threshold > max_model_len {
        let expected = format!("at most max_model_len {max_model_len}, or 0 for off");
        return Err(invalid(
            "long_prefill_token_threshold",
            long_prefill_token_threshold,
            expected,
        ));
    }
    if long_prefill_token_threshold > 0 && !enable_chunked_prefill {
        let expected = "0 where enable_chunked_prefill is off: a prompt may not be cut then";
        return Err(invalid(
            "long_prefill_token_threshold",
            long_prefill_token_threshold,
            expected,
        ));
    }
    if !(0.0..1.0).contains(&watermark) {
        return Err(invalid(
            "watermark",
            watermark,
            "a share of the blocks, 0 <= watermark < 1",
        ));
    }
    if max_num_queued_reqs == Some(0) {
        return Err(invalid(
            "max_num_queued_reqs",
            0,
            "at least 1, or absent for no limit",
        ));
    }
    if max_num_queued_tokens == Some(0) {
        return Err(invalid(
            "max_num_queued_tokens",
            0,
            "at least 1, or absent for no limit",
        ));
    }
    Ok(())
}
