//! One request as the core keeps it, from arrival to its last token.

use std::fmt;
use std::sync::Arc;

use protocol::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreRequest, PoolingParams, PoolingType,
    PrefillStats, RequestError, SamplingParams, ScoredPosition, Shared, TokenTrace,
};

use crate::core::block_hash::{BlockHash, BlockHasher};
use crate::core::spec_decode::{Drafted, KnownRequest};
use crate::request_id::RequestId;
use crate::shared_prefix::SharedPrefix;
use crate::structured_output::{
    GrammarRequest, NamedConstraint, PendingGrammar, StructuredOutputManager,
    StructuredOutputRequest,
};
use crate::token_trace::RequestTrace;

/// One request: its tokens, their block hashes, and how far they are computed.
///
/// Where it stands (waiting, running, preempted) and the blocks it holds are the scheduler's to
/// know. A request that isn't in a scheduler is only its data.
#[derive(Debug)]
pub struct Request {
    request_id: RequestId,
    client_index: u32,
    owner: u64,
    priority: i64,
    arrival_time: f64,
    sampling_params: Arc<SamplingParams>,
    cache_salt: Option<String>,
    prompt_token_ids: Arc<[u32]>,
    /// Prompt, then output.
    all_token_ids: SharedPrefix<u32>,
    /// Output tokens that came with the request and are not emitted again.
    num_replayed_tokens: usize,
    is_replay: bool,
    block_hasher: BlockHasher,
    /// One per full block of `all_token_ids`.
    block_hashes: SharedPrefix<BlockHash>,
    /// Tokens whose keys and values are in the cache, or will be when the step in flight is done.
    pub(crate) num_computed_tokens: usize,
    /// Times it lost its blocks.
    pub(crate) num_preemptions: u32,
    /// Events since the last output.
    events: Vec<EngineCoreEvent>,
    /// Set when first scheduled, taken by the first output.
    pub(crate) prefill_stats: Option<PrefillStats>,
    /// Whether prompt logprobs may still be emitted.
    pub(crate) prompt_logprobs_due: bool,
    reasoning_ended: Option<bool>,
    /// Not empty where nothing is generated, and these are asked for instead.
    scored_positions: Shared<[ScoredPosition]>,
    /// Where a vector of the prompt is asked for, and nothing is generated.
    pooling_params: Option<PoolingParams>,
    /// What constrains the output; `None` for free text, and until the grammar is submitted.
    pub(crate) structured_output: Option<StructuredOutput>,
    /// Tokens that the next step verifies.
    pub(crate) spec_token_ids: Vec<u32>,
    /// What the draft model's runner has of it, where there is one.
    pub(crate) drafted: Drafted,
    /// Tokens of prompt and output that the model runner has, or will have when the step in flight
    /// is done. Forced ones are appended here first.
    pub(crate) num_runner_tokens: usize,
    /// Output tokens that no output has carried yet.
    pub(crate) unsent_token_ids: Vec<u32>,
    /// After how many of these the output was a complete text, where stop strings may cut it off there.
    pub(crate) unsent_complete_after: Vec<u32>,
    /// What its tokens were chosen from, where asked for.
    pub(crate) trace: Option<Box<RequestTrace>>,
    /// Whether more forced text comes next than was appended at once: what is sampled there doesn't count.
    pub(crate) is_forced_text_due: bool,
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(StructuredOutput::Ready(grammar)) = self.structured_output.take() {
            grammar.discard();
        }
    }
}

/// What constrains a request's output.
pub enum StructuredOutput {
    /// A grammar that is being compiled.
    Pending(PendingGrammar),
    /// The grammar, where the output stands in it.
    Ready(Box<StructuredOutputRequest>),
}

impl fmt::Debug for StructuredOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending(_) => "Pending",
            Self::Ready(_) => "Ready",
        })
    }
}

/// A prompt and its blocks' hashes: what siblings begin with.
#[derive(Debug)]
pub(crate) struct HashedPrompt {
    prompt_token_ids: Arc<[u32]>,
    cache_salt: Option<String>,
    block_hashes: Arc<[BlockHash]>,
}

impl HashedPrompt {
    fn new(request: &EngineCoreRequest, block_hasher: &BlockHasher) -> Self {
        let (prompt, salt) = (&request.prompt_token_ids, &request.cache_salt);
        Self {
            prompt_token_ids: Arc::clone(prompt.as_arc()),
            cache_salt: salt.clone(),
            block_hashes: block_hasher
                .hash_full_blocks(prompt, salt.as_deref())
                .into(),
        }
    }

    /// True if a request has this prompt, the same in memory, and the same names for its blocks.
    pub(crate) fn is_of(&self, request: &EngineCoreRequest) -> bool {
        Arc::ptr_eq(&self.prompt_token_ids, request.prompt_token_ids.as_arc())
            && self.cache_salt == request.cache_salt
    }
}

impl Request {
    /// Takes over a message and hashes its full blocks: about 0.1 us per block, so this runs in
    /// the input thread. Whether the request can be served is for the scheduler to say.
    pub fn from_engine_core_request(
        request: EngineCoreRequest,
        block_hasher: &BlockHasher,
    ) -> Self {
        Self::like(&mut None, request, block_hasher)
    }

    /// The same behind a sibling: prompt and hashes are shared where they are those of `before`, which becomes
    /// this request's.
    pub(crate) fn like(
        before: &mut Option<HashedPrompt>,
        request: EngineCoreRequest,
        block_hasher: &BlockHasher,
    ) -> Self {
        let hashed = before
            .take()
            .filter(|before| before.is_of(&request))
            .unwrap_or_else(|| HashedPrompt::new(&request, block_hasher));
        let mut block_hashes = SharedPrefix::new(Arc::clone(&before.insert(hashed).block_hashes));
        let EngineCoreRequest {
            request_id,
            prompt_token_ids,
            output_token_ids,
            is_replay,
            sampling_params,
            arrival_time,
            cache_salt,
            client_index,
            owner,
            priority,
            external_req_id: _,
            trace_headers: _,
            reasoning_ended,
            scored_positions,
            pooling_params,
        } = request;
        let num_replayed_tokens = output_token_ids.len();
        let trace = sampling_params.include_trace.then(Box::default);
        let asks_prompt_logprobs = asks_prompt_logprobs(&sampling_params);
        let prompt_token_ids = Arc::clone(prompt_token_ids.as_arc());
        let mut all_token_ids = SharedPrefix::new(Arc::clone(&prompt_token_ids));
        all_token_ids.extend(output_token_ids);
        block_hasher.hash_new_full_blocks(&all_token_ids, cache_salt.as_deref(), &mut block_hashes);
        Self {
            request_id: request_id.into(),
            client_index,
            owner,
            priority,
            arrival_time,
            sampling_params: Arc::new(sampling_params),
            cache_salt,
            prompt_token_ids,
            all_token_ids,
            num_replayed_tokens,
            is_replay,
            block_hasher: *block_hasher,
            block_hashes,
            num_computed_tokens: 0,
            num_preemptions: 0,
            events: Vec::new(),
            prefill_stats: None,
            // They travelled with the first output token.
            prompt_logprobs_due: asks_prompt_logprobs && num_replayed_tokens == 0,
            reasoning_ended,
            scored_positions,
            pooling_params,
            structured_output: None,
            spec_token_ids: Vec::new(),
            drafted: Drafted::default(),
            num_runner_tokens: 0,
            unsent_token_ids: Vec::new(),
            trace,
            unsent_complete_after: Vec::new(),
            is_forced_text_due: false,
        }
    }

    /// Internal id.
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Which frontend gets the outputs.
    pub fn client_index(&self) -> u32 {
        self.client_index
    }

    /// The client that asked. Owners take turns.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Lower runs earlier, under the priority policy.
    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// Unix time of arrival in seconds.
    pub fn arrival_time(&self) -> f64 {
        self.arrival_time
    }

    /// How the next token is chosen.
    pub fn sampling_params(&self) -> &Arc<SamplingParams> {
        &self.sampling_params
    }

    /// What separates its cached prefixes from those of others.
    pub fn cache_salt(&self) -> Option<&str> {
        self.cache_salt.as_deref()
    }

    /// The prompt.
    pub fn prompt_token_ids(&self) -> &Arc<[u32]> {
        &self.prompt_token_ids
    }

    /// Generated tokens, those that came with the request included.
    pub fn output_token_ids(&self) -> &[u32] {
        &self.all_token_ids[self.prompt_token_ids.len()..]
    }

    /// Prompt, then output.
    pub fn all_token_ids(&self) -> &[u32] {
        &self.all_token_ids
    }

    /// Tokens of prompt and output.
    pub fn num_tokens(&self) -> usize {
        self.all_token_ids.len()
    }

    /// Tokens of the prompt.
    pub fn num_prompt_tokens(&self) -> usize {
        self.prompt_token_ids.len()
    }

    /// Tokens of the output, those that came with the request included.
    pub fn num_output_tokens(&self) -> usize {
        self.num_tokens() - self.num_prompt_tokens()
    }

    /// Output tokens that came with the request.
    pub fn num_replayed_tokens(&self) -> usize {
        self.num_replayed_tokens
    }

    /// Whether an earlier core had taken it: the limits of queues are not for it.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Tokens whose keys and values are in the cache, the step in flight included.
    pub fn num_computed_tokens(&self) -> usize {
        self.num_computed_tokens
    }

    /// Times it lost its blocks to another request.
    pub fn num_preemptions(&self) -> u32 {
        self.num_preemptions
    }

    /// One hash per full block of the tokens so far; empty where prefix caching is off.
    pub fn block_hashes(&self) -> &[BlockHash] {
        &self.block_hashes
    }

    /// Whether every token has to be computed: by the caller's wish, or because logprobs are
    /// wanted for the prompt's positions, or hidden states are pooled of other tokens than the last.
    pub fn skip_reading_prefix_cache(&self) -> bool {
        self.sampling_params.skip_reading_prefix_cache
            || asks_prompt_logprobs(&self.sampling_params)
            // A cached prefix has keys and values, but no hidden states to pool.
            || (self.pooling_params.as_ref())
                .is_some_and(|params| params.pooling_type != PoolingType::Last)
    }

    /// Most of its tokens that may come from the prefix cache: the last one before a place where logits are
    /// needed has to be computed.
    pub fn max_cached_tokens(&self) -> usize {
        let first = self.scored_positions.first();
        let num_tokens = first.map_or(self.num_tokens(), |first| first.num_tokens as usize);
        num_tokens.saturating_sub(1)
    }

    /// Where probabilities are asked for; empty for a request for text.
    pub fn scored_positions(&self) -> &Shared<[ScoredPosition]> {
        &self.scored_positions
    }

    /// True if nothing is generated: the prompt may fill the context.
    pub fn is_prompt_only(&self) -> bool {
        self.pooling_params.is_some() || !self.scored_positions.is_empty()
    }

    /// The vector that is asked for; `None` for a request for text.
    pub fn pooling_params(&self) -> Option<PoolingParams> {
        self.pooling_params
    }

    /// Where the prompt leaves thinking.
    pub fn reasoning_ended(&self) -> Option<bool> {
        self.reasoning_ended
    }

    /// Whether it has a constraint whose grammar nobody has submitted yet.
    pub fn needs_grammar(&self) -> bool {
        self.sampling_params.structured_outputs.is_some() && self.structured_output.is_none()
    }

    /// Submits the grammar, where there is a constraint and none yet. `before` is the constraint of a sibling
    /// before it, whose text is read once for both, and then this one.
    ///
    /// # Errors
    /// As for [`StructuredOutputManager::grammar_init`].
    pub(crate) fn init_grammar(
        &mut self,
        manager: &StructuredOutputManager,
        before: &mut Option<NamedConstraint>,
    ) -> Result<(), RequestError> {
        if self.needs_grammar() {
            let pending = manager.grammar_init(
                before,
                GrammarRequest {
                    request_id: &self.request_id,
                    params: &self.sampling_params,
                    reasoning_ended: self.reasoning_ended,
                    output_token_ids: self.output_token_ids(),
                    is_replay: self.is_replay,
                },
            )?;
            self.structured_output = pending.map(StructuredOutput::Pending);
        }
        Ok(())
    }

    /// Submits the grammar for what the request waits for outside the steps: other memory, or an answer.
    ///
    /// # Errors
    /// As for [`StructuredOutputManager::submit_aside`]; the grammar is lost.
    pub(crate) fn submit_aside(
        &mut self,
        manager: &StructuredOutputManager,
    ) -> Result<(), RequestError> {
        let Some(StructuredOutput::Ready(grammar)) = self.structured_output.take() else {
            return Ok(());
        };
        let pending = manager.submit_aside(&self.request_id, &self.sampling_params, grammar)?;
        self.structured_output = Some(StructuredOutput::Pending(pending));
        Ok(())
    }

    /// What constrains the output, once it is compiled.
    pub(crate) fn grammar_mut(&mut self) -> Option<&mut StructuredOutputRequest> {
        match &mut self.structured_output {
            Some(StructuredOutput::Ready(grammar)) => Some(grammar),
            Some(StructuredOutput::Pending(_)) | None => None,
        }
    }

    /// The same, to look at.
    pub(crate) fn grammar(&self) -> Option<&StructuredOutputRequest> {
        match &self.structured_output {
            Some(StructuredOutput::Ready(grammar)) => Some(grammar),
            Some(StructuredOutput::Pending(_)) | None => None,
        }
    }

    /// Whether it waits for its grammar, though it had it: it can't be scheduled.
    pub(crate) fn is_parked(&self) -> bool {
        match &self.structured_output {
            Some(StructuredOutput::Ready(grammar)) => grammar.is_aside(),
            Some(StructuredOutput::Pending(_)) => true,
            None => false,
        }
    }

    /// The grammar, and prompt and output.
    pub(crate) fn grammar_and_tokens(&mut self) -> Option<(&mut StructuredOutputRequest, &[u32])> {
        match &mut self.structured_output {
            Some(StructuredOutput::Ready(grammar)) => Some((grammar, &self.all_token_ids)),
            Some(StructuredOutput::Pending(_)) | None => None,
        }
    }

    /// Leads the output out of a string that repeats itself; true where one does.
    pub(crate) fn close_repetition(&mut self) -> bool {
        let num_prompt_tokens = self.num_prompt_tokens();
        let Some((grammar, all_token_ids)) = self.grammar_and_tokens() else {
            return false;
        };
        let output = all_token_ids.get(num_prompt_tokens..).unwrap_or_default();
        grammar.close_repetition(output)
    }

    /// Tokens that the output may still get in a context of `max_model_len`.
    pub(crate) fn num_tokens_left(&self, max_model_len: usize) -> u32 {
        let in_context = max_model_len.saturating_sub(self.num_tokens());
        let in_output = self
            .sampling_params
            .max_tokens
            .map_or(u32::MAX, |max_tokens| {
                max_tokens.saturating_sub(self.num_output_tokens() as u32)
            });
        in_output.min(u32::try_from(in_context).unwrap_or(u32::MAX))
    }

    /// Tokens of prompt, output and draft.
    pub(crate) fn num_tokens_with_spec(&self) -> usize {
        self.num_tokens() + self.spec_token_ids.len()
    }

    /// The request as a pass of the draft model needs it.
    pub(crate) fn with_draft<'a>(&'a mut self, draft_token_ids: &'a [u32]) -> KnownRequest<'a> {
        KnownRequest {
            request_id: &self.request_id,
            num_prompt_tokens: self.prompt_token_ids.len(),
            token_ids: &self.all_token_ids,
            draft_token_ids,
            drafted: &mut self.drafted,
        }
    }

    /// Adds a generated token, and the hash of the block that it fills.
    pub fn append_output_token_id(&mut self, token_id: u32) {
        self.all_token_ids.extend([token_id]);
        self.block_hasher.hash_new_full_blocks(
            &self.all_token_ids,
            self.cache_salt.as_deref(),
            &mut self.block_hashes,
        );
    }

    /// What the tokens that no output has carried yet were chosen from, where asked for.
    pub(crate) fn take_trace(&mut self) -> Vec<TokenTrace> {
        self.trace
            .as_mut()
            .map_or_else(Vec::new, |trace| trace.take())
    }

    /// Notes an event for the next output.
    pub(crate) fn record_event(&mut self, event_type: EngineCoreEventType, timestamp: f64) {
        self.events.push(EngineCoreEvent {
            event_type,
            timestamp,
        });
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<EngineCoreEvent> {
        std::mem::take(&mut self.events)
    }
}

fn asks_prompt_logprobs(sampling_params: &SamplingParams) -> bool {
    sampling_params.prompt_logprobs.is_some() || sampling_params.prompt_logprob_token_ids.is_some()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn a_request_is_built_in_one_thread_and_kept_in_another() {
        fn is_send<T: Send>() {}
        is_send::<Request>();
    }

    #[test]
    fn tokens_and_hashes_grow_together() {
        let hasher = BlockHasher::new(NonZeroUsize::new(4).unwrap());
        let message = |prompt_token_ids: &[u32], output_token_ids: &[u32]| EngineCoreRequest {
            prompt_token_ids: prompt_token_ids.into(),
            output_token_ids: output_token_ids.to_vec(),
            cache_salt: Some("salt".to_owned()),
            ..EngineCoreRequest::default()
        };
        let mut grown = Request::from_engine_core_request(message(&[1, 2, 3], &[4]), &hasher);
        assert_eq!(grown.block_hashes().len(), 1);
        (5..=8).for_each(|token_id| grown.append_output_token_id(token_id));
        let whole = message(&[1, 2, 3, 4, 5, 6, 7, 8], &[]);
        let whole = Request::from_engine_core_request(whole, &hasher);
        assert_eq!(grown.all_token_ids(), whole.all_token_ids());
        assert_eq!(grown.block_hashes(), whole.block_hashes());
        assert_eq!(grown.block_hashes().len(), 2);
        assert_eq!(grown.output_token_ids(), [4, 5, 6, 7, 8]);
        assert_eq!(
            (grown.num_prompt_tokens(), grown.num_output_tokens()),
            (3, 5)
        );
        assert_eq!(grown.num_replayed_tokens(), 1);
    }

    #[test]
    fn siblings_share_all_that_they_begin_with() {
        let hasher = BlockHasher::new(NonZeroUsize::new(4).unwrap());
        let message = EngineCoreRequest {
            prompt_token_ids: (0..9).collect(),
            ..EngineCoreRequest::default()
        };
        let mut before = None;
        let mut like =
            |message: &EngineCoreRequest| Request::like(&mut before, message.clone(), &hasher);
        let (first, second) = (like(&message), like(&message));
        let pointers = |request: &Request| {
            let hashes = request.block_hashes().as_ptr();
            (request.all_token_ids().as_ptr(), hashes)
        };
        assert_eq!(pointers(&second), pointers(&first));
        // A salt of its own makes other names, another prompt too.
        let salted = EngineCoreRequest {
            cache_salt: Some("salt".to_owned()),
            ..message.clone()
        };
        let salted = like(&salted);
        assert_ne!(salted.block_hashes(), first.block_hashes());
        let other = EngineCoreRequest {
            prompt_token_ids: (1..9).collect(),
            output_token_ids: vec![9, 10, 11, 12],
            ..message
        };
        let alone = Request::from_engine_core_request(other.clone(), &hasher);
        let other = like(&other);
        assert_eq!(other.block_hashes(), alone.block_hashes());
        assert_eq!(other.block_hashes().len(), 3);
    }
}
