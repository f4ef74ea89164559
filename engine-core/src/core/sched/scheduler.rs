//! Which tokens of which requests the next step computes.

use std::collections::{BTreeMap, HashMap};

use protocol::{
    EngineCoreEventType, EngineCoreOutput, PrefillStats, PrefixCacheStats, SchedulerConfig,
    SpecDecodingStats, StructuredOutputStats,
};

use crate::core::block_hash::{BlockHashFunction, BlockHasher};
use crate::core::kv_cache_manager::{KVCacheConfig, KVCacheManager, RequestBlocks};
use crate::core::request::Request;
use crate::core::sched::clock::EngineClock;
use crate::core::sched::config::{SchedulerError, validate};
use crate::core::sched::grammar_steps::GrammarSteps;
use crate::core::sched::output::{Admission, MAX_SHARED_TOKENS, SchedulerOutput};
use crate::core::sched::request_queue::{QueueKey, RequestQueue};
use crate::core::sched::step::{News, Step};
use crate::core::sched::turns::{Shares, Turns};
use crate::core::spec_decode::Proposer;
use crate::request_id::RequestId;
use crate::structured_output::ForcedTokens;

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
    /// Outside the queue, in which this place is its own.
    WaitingForGrammar(QueueKey),
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
    /// `WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR`: others pass them by. By their places in the queue.
    pub(crate) waiting_for_grammar: BTreeMap<QueueKey, Box<Request>>,
    /// Requests that have to wait for their grammar and that nobody has submitted for that yet.
    pub(crate) asides: Vec<Place>,
    /// What grammars may still do in this step.
    pub(crate) grammar_steps: GrammarSteps,
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
    pub(crate) structured_output_stats: StructuredOutputStats,
    /// The last `num_queued_grammars` that was reported.
    pub(crate) num_reported_grammars: u32,
    pub(crate) spec_decoding_stats: SpecDecodingStats,
    pub(crate) forced_tokens: ForcedTokens,
    pub(crate) proposer: Option<Proposer>,
    pause_state: PauseState,
    /// Whether the last step had to preempt, or could not admit a request, for want of blocks.
    short_of_blocks: bool,
    num_watermark_blocks: usize,
    next_admission: u64,
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
        let block_size = validate(&config, &kv_cache_config, max_model_len)?;
        Ok(Self {
            max_model_len: max_model_len as usize,
            kv_cache_manager: KVCacheManager::new(
                kv_cache_config.num_blocks,
                block_size,
                kv_cache_config.enable_prefix_caching,
            ),
            clock,
            waiting: RequestQueue::new(config.policy),
            waiting_for_grammar: BTreeMap::new(),
            asides: Vec::new(),
            grammar_steps: GrammarSteps::new(),
            running: Vec::new(),
            in_flight: HashMap::new(),
            finished_req_ids: Vec::new(),
            pending_outputs: Vec::new(),
            prefix_cache_stats: PrefixCacheStats::default(),
            structured_output_stats: StructuredOutputStats::default(),
            num_reported_grammars: 0,
            spec_decoding_stats: SpecDecodingStats::default(),
            forced_tokens: ForcedTokens::default(),
            proposer: None,
            pause_state: PauseState::default(),
            short_of_blocks: false,
            num_watermark_blocks: (config.watermark * f64::from(kv_cache_config.num_blocks))
                as usize,
            next_admission: 0,
            config,
        })
    }

    /// Appends forced tokens of constrained requests without sampling them.
    pub fn with_forced_tokens(mut self, forced_tokens: ForcedTokens) -> Self {
        self.forced_tokens = forced_tokens;
        self
    }

    /// Gives requests drafts to verify.
    pub fn with_proposer(mut self, proposer: Option<Proposer>) -> Self {
        self.proposer = proposer;
        self
    }

    /// Names blocks in the prefix cache by another function than BLAKE3. For a scheduler without requests.
    pub fn with_block_hash(mut self, function: BlockHashFunction) -> Self {
        self.kv_cache_manager.set_hash_function(function);
        self
    }

    /// Reports what changes in the prefix cache beside the statistics.
    pub fn with_kv_cache_events(mut self) -> Self {
        self.kv_cache_manager.enable_events();
        self
    }

    /// Plans one step and takes the blocks that it needs.
    ///
    /// Running requests come first, in order of admission, each leaving a share to those of other owners
    /// ([`Shares`]), then waiting ones while there is budget, owners in turns; nothing is admitted in a step that had to preempt. Costs
    /// O(running + admitted + owners), however many requests wait.
    pub fn schedule(&mut self) -> SchedulerOutput {
        self.grammar_steps.refill();
        let mut step = self.new_step();
        if self.pause_state == PauseState::Unpaused {
            self.preempt_for_turns(&mut step);
        }
        self.schedule_running(&mut step);
        self.cache_scheduled_blocks(&step);
        self.short_of_blocks = !step.preempted_req_ids.is_empty();
        if step.preempted_req_ids.is_empty() && self.pause_state == PauseState::Unpaused {
            self.schedule_waiting(&mut step);
            self.schedule_in_place_of_parked(&mut step);
        }
        self.finish_step(step)
    }

    fn schedule_running(&mut self, step: &mut Step) {
        let num_running = self.running.len();
        let proposer = self.proposer.as_ref();
        let max_draft_tokens = proposer.map_or(0, |of| of.max_draft_tokens(num_running));
        let has_place = num_running < self.config.max_num_seqs as usize;
        let mut shares = Shares::new(&self.running, &self.waiting, step.token_budget, has_place);
        let mut index = 0;
        while index < self.running.len() && step.token_budget > 0 {
            let request = &mut self.running[index].request;
            request.spec_token_ids.truncate(max_draft_tokens);
            if request.is_parked() {
                index += 1;
                continue;
            }
            let num_tokens = (request.num_tokens_with_spec() - request.num_computed_tokens)
                .min(step.max_tokens_per_request)
                .min(match &mut shares {
                    Some(shares) => shares.next(&self.running[index], step.token_budget),
                    None => step.token_budget,
                });
            if num_tokens == 0 {
                index += 1;
                continue;
            }
            let Some(new_block_ids) = self.allocate_or_preempt(&mut index, num_tokens, step) else {
                break;
            };
            let RunningRequest {
                admission, request, ..
            } = &mut self.running[index];
            let mut draft_token_ids = std::mem::take(&mut request.spec_token_ids);
            let num_scheduled = request.num_computed_tokens + num_tokens;
            draft_token_ids.truncate(num_scheduled.saturating_sub(request.num_tokens()));
            let news = News::Running { new_block_ids };
            step.schedule(*admission, num_tokens, draft_token_ids, news);
            index += 1;
        }
    }

    /// Names the blocks that the running requests fill in this step. Only once none of them can
    /// be preempted any more: a name must never outlive a computation that didn't happen.
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

    pub(super) fn schedule_waiting(&mut self, step: &mut Step) {
        let max_num_seqs = self.config.max_num_seqs as usize;
        if step.token_budget == 0 || self.running.len() >= max_num_seqs {
            return;
        }
        let mut turns = Turns::new(&self.running, &self.waiting);
        while step.token_budget > 0
            && self.running.len() < max_num_seqs
            && let Some(owner) = turns.next()
            && self.admit_next(owner, step)
        {
            turns.served(self.waiting.serve(owner));
        }
    }

    /// Admits the next request of an owner; false where there is none or it has to wait. One that has
    /// to wait holds back all behind it, so that a long prompt is not overtaken for ever.
    fn admit_next(&mut self, owner: u64, step: &mut Step) -> bool {
        let Some(key) = self.waiting.first_of(owner) else {
            return false;
        };
        let Some(request) = self.waiting.get(&key) else {
            return false;
        };
        let computed = self.kv_cache_manager.get_computed_blocks(request);
        let num_shared_tokens = self.num_shared_tokens(request, computed.num_tokens, step);
        let num_cached_tokens = computed.num_tokens + num_shared_tokens.unwrap_or(0);
        let num_tokens =
            (request.num_tokens() - num_cached_tokens).min(step.max_tokens_per_request);
        if num_tokens > step.token_budget && !self.config.enable_chunked_prefill {
            return false;
        }
        let num_tokens = num_tokens.min(step.token_budget);
        let num_computed_tokens = num_cached_tokens + num_tokens;
        let num_tokens_to_fit = match self.config.scheduler_reserve_full_isl {
            true => request.num_tokens(),
            false => num_computed_tokens,
        };
        // Alone, a request may have every block, or it would wait for ever.
        let num_watermark_blocks = match self.running.is_empty() {
            true => 0,
            false => self.num_watermark_blocks,
        };
        let Some(mut blocks) = self.kv_cache_manager.allocate_first_slots(
            &computed,
            num_computed_tokens,
            num_tokens_to_fit,
            num_watermark_blocks,
        ) else {
            self.short_of_blocks = true;
            return false;
        };
        let Some(mut request) = self.waiting.remove(&key) else {
            self.kv_cache_manager.free(blocks);
            return false;
        };
        self.kv_cache_manager
            .cache_blocks(&request, &mut blocks, num_computed_tokens);
        self.note_admission(&mut request, num_cached_tokens, step.timestamp);
        let news = match request.num_preemptions {
            0 => News::New { num_shared_tokens },
            _ => News::Resumed,
        };
        let admission = Admission(self.next_admission);
        let first_brought = match (&step.last_admitted, num_shared_tokens) {
            (Some((_, brought)), Some(_)) => brought.start,
            _ => num_cached_tokens,
        };
        step.last_admitted = Some((admission, first_brought..num_computed_tokens));
        step.num_shared_tokens += num_shared_tokens.unwrap_or(0);
        self.next_admission += 1;
        self.in_flight
            .insert(request.request_id().clone(), Place::Running(admission));
        self.running.push(RunningRequest {
            admission,
            request,
            blocks,
        });
        step.schedule(admission, num_tokens, Vec::new(), news);
        true
    }

    /// Writes down that a request starts or resumes with `num_cached_tokens` tokens from the
    /// prefix cache.
    fn note_admission(&mut self, request: &mut Request, num_cached_tokens: usize, timestamp: f64) {
        request.num_computed_tokens = num_cached_tokens;
        request.record_event(EngineCoreEventType::Scheduled, timestamp);
        if request.num_preemptions > 0 {
            return;
        }
        request.prefill_stats = Some(PrefillStats {
            num_prompt_tokens: request.num_tokens() as u32,
            num_cached_tokens: num_cached_tokens as u32,
        });
        if self.kv_cache_manager.reads_prefix_cache(request) {
            self.prefix_cache_stats.requests += 1;
            self.prefix_cache_stats.queries += request.num_tokens() as u64;
            self.prefix_cache_stats.hits += num_cached_tokens as u64;
        }
    }

    /// Tokens behind the first `num_cached_tokens` that the request admitted before this one has as well, and whose
    /// keys and values this step brings for it: so questions about one text compute only what is their own, to the
    /// token and not to the block. Only for requests that are scored, which a step mostly ends: one that generates
    /// would save a part of a block once in all its steps. A draft model's passes cut a step elsewhere, so with one
    /// nothing is shared. `None` where the tokens before are not both requests', or come from an earlier step.
    fn num_shared_tokens(
        &self,
        request: &Request,
        num_cached_tokens: usize,
        step: &Step,
    ) -> Option<usize> {
        let has_draft_model = (self.proposer.as_ref()).is_some_and(|of| of.draft_model().is_some());
        if request.scored_positions().is_empty()
            || request.num_preemptions > 0
            || has_draft_model
            || !self.kv_cache_manager.reads_prefix_cache(request)
        {
            return None;
        }
        let (admission, brought) = step.last_admitted.as_ref()?;
        let before = self.running.last().filter(|r| r.admission == *admission)?;
        let others = before.request.all_token_ids();
        let tokens = request.all_token_ids();
        let continues_it = (brought.start..=brought.end).contains(&num_cached_tokens)
            && before.request.cache_salt() == request.cache_salt()
            && tokens.get(..num_cached_tokens)? == others.get(..num_cached_tokens)?;
        if !continues_it {
            return None;
        }
        let end = brought.end.min(request.max_cached_tokens());
        let behind = num_cached_tokens..end.max(num_cached_tokens);
        let behind = (tokens.get(behind.clone())?)
            .iter()
            .zip(others.get(behind)?);
        let num_shared = behind.take_while(|(token, other)| token == other).count();
        Some(num_shared.min(MAX_SHARED_TOKENS.saturating_sub(step.num_shared_tokens)))
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

    /// Waiting requests, those of each owner in the order in which they are admitted.
    pub fn waiting(&self) -> impl Iterator<Item = &Request> + '_ {
        self.waiting.iter()
    }

    /// Requests in the queue, preempted ones included, and those that wait for their grammar.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len() + self.waiting_for_grammar.len()
    }

    /// Requests that may still join the running ones, as far as is known: none where the last step had
    /// no blocks for another.
    pub(super) fn num_free_places(&self) -> usize {
        match self.short_of_blocks {
            true => 0,
            false => (self.config.max_num_seqs as usize).saturating_sub(self.running.len()),
        }
    }

    /// Requests that wait for their grammar.
    pub fn waiting_for_grammar(&self) -> impl ExactSizeIterator<Item = &Request> + '_ {
        self.waiting_for_grammar.values().map(|request| &**request)
    }

    /// Requests that could make progress, those not that wait for their grammar: none while all is
    /// paused, only the running ones while admission is.
    pub fn num_unfinished_requests(&self) -> usize {
        let num_active = self.running.len() - self.num_parked();
        match self.pause_state {
            PauseState::Unpaused => self.waiting.len() + num_active,
            PauseState::PausedNew => num_active,
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

    /// The most steps of work that grammars took within one step of the loop, on which everybody waits.
    pub fn most_grammar_steps(&self) -> u64 {
        self.grammar_steps.most()
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
