//! Drafts of a smaller model: what its runner has of each request, and what a pass of it computes.
//!
//! The draft model has a runner of its own, a second [`ModelRunner`](crate::worker::ModelRunner), and a cache of
//! keys and values with as many blocks as the target model's. A request's block table serves both, so prefix hits,
//! preemption and freeing need no second bookkeeping. What makes that right is one rule: before the target model
//! computes a step, the draft model has computed all tokens of that step but those of the draft. Whatever block the
//! prefix cache has a name for, both models have filled.

use std::sync::Arc;

use protocol::{DraftSampleMethod, SamplingParams, Shared, SpeculativeConfig};

use crate::core::sched::output::{
    GrammarOutput, NewRequestData, NumScheduledTokens, RequestMasks, SchedulerOutput,
};
use crate::request::RequestId;

/// How drafts of a model are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftModelProposer {
    sample_method: DraftSampleMethod,
}

impl DraftModelProposer {
    pub(super) fn new(config: &SpeculativeConfig) -> Self {
        Self {
            sample_method: config.draft_sample_method,
        }
    }

    /// How the draft model's runner samples for a request: without what is delivered beside tokens. Shares
    /// the parameters where that leaves them as they are.
    pub(crate) fn draft_params(&self, params: &Arc<SamplingParams>) -> Arc<SamplingParams> {
        let temperature = match self.sample_method {
            DraftSampleMethod::Greedy => 0.0,
            DraftSampleMethod::Probabilistic => params.temperature,
        };
        let is_plain = params.logprobs.is_none()
            && params.logprob_token_ids.is_none()
            && params.prompt_logprobs.is_none()
            && params.prompt_logprob_token_ids.is_none()
            && !params.include_trace;
        if is_plain && temperature == params.temperature {
            return Arc::clone(params);
        }
        Arc::new(SamplingParams {
            temperature,
            logprobs: None,
            logprob_token_ids: None,
            prompt_logprobs: None,
            prompt_logprob_token_ids: None,
            include_trace: false,
            ..(**params).clone()
        })
    }
}

/// What the draft model's runner has of a request.
#[derive(Debug, Default)]
pub(crate) struct Drafted {
    /// Leading tokens of prompt and output that it has.
    num_tokens: usize,
    /// Tokens that it has behind these: a draft, of which nobody knows yet what is right.
    ahead: Vec<u32>,
    /// Of all these, the leading ones whose keys and values are in its cache.
    num_computed_tokens: usize,
}

impl Drafted {
    /// Takes over what turned out right of the last draft, and forgets the rest. `token_ids` are prompt and output.
    fn settle(&mut self, token_ids: &[u32]) {
        let known = token_ids.get(self.num_tokens..).unwrap_or_default();
        let pairs = self.ahead.iter().zip(known);
        self.num_tokens += pairs.take_while(|(ahead, known)| ahead == known).count();
        self.ahead.clear();
        self.num_computed_tokens = self.num_computed_tokens.min(self.num_tokens);
    }

    /// Takes the token that the runner sampled behind all that it had.
    pub(crate) fn push(&mut self, token_id: u32) {
        self.ahead.push(token_id);
    }
}

/// One forward pass of the draft model, and the masks under which it samples.
#[derive(Debug, Default)]
pub struct DraftPass {
    /// What its runner computes.
    pub(crate) scheduler_output: SchedulerOutput,
    /// An entry for each scheduled request.
    pub(crate) grammar_output: GrammarOutput,
    num_scheduled_tokens: Vec<(RequestId, usize)>,
}

/// A request that the draft model's runner knows, as a pass needs it.
pub(crate) struct KnownRequest<'a> {
    pub(crate) request_id: &'a RequestId,
    pub(crate) num_prompt_tokens: usize,
    /// Prompt and output.
    pub(crate) token_ids: &'a [u32],
    /// The draft so far, which comes behind these.
    pub(crate) draft_token_ids: &'a [u32],
    pub(crate) drafted: &'a mut Drafted,
}

impl DraftPass {
    /// A pass before which these requests are forgotten.
    pub(crate) fn new(finished_req_ids: Vec<RequestId>) -> Self {
        Self {
            scheduler_output: SchedulerOutput {
                finished_req_ids,
                ..SchedulerOutput::default()
            },
            ..Self::default()
        }
    }

    /// Adds a request that the runner sees for the first time: its first `num_tokens` tokens are computed, but for
    /// those that the prefix cache has. Nothing is sampled after them.
    pub(crate) fn push_new(
        &mut self,
        new: &NewRequestData,
        num_tokens: usize,
        params: Arc<SamplingParams>,
        drafted: &mut Drafted,
    ) {
        let first = new.num_computed_tokens as usize;
        *drafted = Drafted {
            num_tokens: new.prompt_token_ids.len() + new.output_token_ids.len(),
            ahead: Vec::new(),
            num_computed_tokens: num_tokens,
        };
        self.scheduler_output
            .scheduled_new_reqs
            .push(NewRequestData {
                sampling_params: params,
                scored_positions: Shared::default(),
                ..new.clone()
            });
        self.push_scheduled(&new.req_id, num_tokens - first, RequestMasks::Withheld);
    }

    /// The request lost its blocks, and got `block_ids` anew: of its tokens `num_computed_tokens` are in the prefix
    /// cache. To be called before [`Self::push_known`].
    pub(crate) fn resume(&mut self, request_id: &RequestId, drafted: &mut Drafted, num: usize) {
        drafted.num_computed_tokens = num;
        let resumed = &mut self.scheduler_output.scheduled_cached_reqs.resumed_req_ids;
        resumed.push(request_id.clone());
    }

    /// Adds a request that the runner knows: the first `num_tokens` of its tokens and its draft are computed, as far
    /// as they are not yet, and at least the last of them. What comes after all of them is sampled as `masks` say.
    pub(crate) fn push_known(
        &mut self,
        request: KnownRequest<'_>,
        num_tokens: usize,
        new_block_ids: Vec<u32>,
        masks: RequestMasks,
    ) {
        let KnownRequest {
            request_id,
            num_prompt_tokens,
            token_ids,
            draft_token_ids,
            drafted,
        } = request;
        let has_draft =
            drafted.num_tokens == token_ids.len() && draft_token_ids.starts_with(&drafted.ahead);
        if !has_draft {
            drafted.settle(token_ids);
        }
        let all = token_ids.iter().chain(draft_token_ids).copied();
        let num_known = drafted.num_tokens + drafted.ahead.len();
        let first = drafted
            .num_computed_tokens
            .min(num_tokens.saturating_sub(1));
        let cached = &mut self.scheduler_output.scheduled_cached_reqs;
        cached.req_ids.push(request_id.clone());
        cached.new_token_ids.push(all.skip(num_known).collect());
        cached.new_block_ids.push(new_block_ids);
        cached.num_computed_tokens.push(first as u32);
        let num_output_tokens = token_ids.len() + draft_token_ids.len() - num_prompt_tokens;
        cached.num_output_tokens.push(num_output_tokens as u32);
        *drafted = Drafted {
            num_tokens: token_ids.len(),
            ahead: draft_token_ids.to_vec(),
            num_computed_tokens: num_tokens,
        };
        self.push_scheduled(request_id, num_tokens - first, masks);
    }

    fn push_scheduled(&mut self, request_id: &RequestId, num_tokens: usize, masks: RequestMasks) {
        self.num_scheduled_tokens
            .push((request_id.clone(), num_tokens));
        self.grammar_output.masks.push(masks);
        self.scheduler_output.total_num_scheduled_tokens += num_tokens;
    }

    /// Scheduled requests.
    pub(crate) fn len(&self) -> usize {
        self.num_scheduled_tokens.len()
    }

    /// The pass as the runner takes it.
    pub(crate) fn finish(mut self) -> Self {
        let scheduled: NumScheduledTokens = self.num_scheduled_tokens.drain(..).collect();
        self.scheduler_output.num_scheduled_tokens = scheduled;
        self
    }
}
