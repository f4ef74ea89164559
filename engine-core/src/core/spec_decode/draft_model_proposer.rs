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
    CachedRequestData, GrammarOutput, NewRequestData, NumScheduledTokens, RequestMasks,
    SchedulerOutput,
};
use crate::request_id::RequestId;

/// How drafts of a model are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftModelProposer {
    num_speculative_tokens: usize,
    sample_method: DraftSampleMethod,
}

impl DraftModelProposer {
    pub(super) fn new(config: &SpeculativeConfig) -> Self {
        Self {
            num_speculative_tokens: config.num_speculative_tokens as usize,
            sample_method: config.draft_sample_method,
        }
    }

    /// Most tokens of a draft.
    pub(crate) fn num_speculative_tokens(&self) -> usize {
        self.num_speculative_tokens
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
    /// True if the request has other blocks than the runner knows, of which it hears with the next pass.
    is_resumed: bool,
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
    /// Of the known requests those with other blocks, which come last.
    resumed: CachedRequestData,
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

impl KnownRequest<'_> {
    /// The request at the begin of a step: of the last draft what turned out right stays. `resumed_from` are the
    /// tokens in the prefix cache, where the request lost its blocks and has others.
    pub(crate) fn settled(self, resumed_from: Option<usize>) -> Self {
        self.drafted.settle(self.token_ids);
        if let Some(num_cached_tokens) = resumed_from {
            self.drafted.num_computed_tokens = num_cached_tokens;
            self.drafted.is_resumed = true;
        }
        self
    }

    /// Tokens that a pass computes which ends with the first `num_tokens` of tokens and draft: at least the last.
    pub(crate) fn num_to_compute(&self, num_tokens: usize) -> usize {
        num_tokens - self.first(num_tokens)
    }

    fn first(&self, num_tokens: usize) -> usize {
        let last = num_tokens.saturating_sub(1);
        self.drafted.num_computed_tokens.min(last)
    }
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
            num_computed_tokens: num_tokens,
            ..Drafted::default()
        };
        self.scheduler_output
            .scheduled_new_reqs
            .push(NewRequestData {
                sampling_params: params,
                scored_positions: Shared::default(),
                pooling_params: None,
                ..new.clone()
            });
        self.push_scheduled(&new.req_id, num_tokens - first, RequestMasks::Withheld);
    }

    /// Adds a request that the runner knows and that is [settled](KnownRequest::settled): the first `num_tokens` of its
    /// tokens and its draft are computed, as far as they are not yet, and at least the last of them. What comes after
    /// all of them is sampled as `masks` say.
    pub(crate) fn push_known(
        &mut self,
        request: KnownRequest<'_>,
        num_tokens: usize,
        new_block_ids: Vec<u32>,
        masks: RequestMasks,
    ) {
        let first = request.first(num_tokens);
        let KnownRequest {
            request_id,
            num_prompt_tokens,
            token_ids,
            draft_token_ids,
            drafted,
        } = request;
        let all = token_ids.iter().chain(draft_token_ids).copied();
        let num_known = drafted.num_tokens + drafted.ahead.len();
        let cached = match drafted.is_resumed {
            true => &mut self.resumed,
            false => &mut self.scheduler_output.scheduled_cached_reqs,
        };
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
            is_resumed: false,
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

    /// Tokens that it computes.
    pub(crate) fn num_tokens(&self) -> usize {
        self.scheduler_output.total_num_scheduled_tokens
    }

    /// The pass as the runner takes it.
    pub(crate) fn finish(mut self) -> Self {
        let scheduled: NumScheduledTokens = self.num_scheduled_tokens.drain(..).collect();
        self.scheduler_output.num_scheduled_tokens = scheduled;
        let (cached, resumed) = (
            &mut self.scheduler_output.scheduled_cached_reqs,
            std::mem::take(&mut self.resumed),
        );
        cached.resumed_req_ids.clone_from(&resumed.req_ids);
        cached.req_ids.extend(resumed.req_ids);
        cached.new_token_ids.extend(resumed.new_token_ids);
        cached.new_block_ids.extend(resumed.new_block_ids);
        cached
            .num_computed_tokens
            .extend(resumed.num_computed_tokens);
        cached.num_output_tokens.extend(resumed.num_output_tokens);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with a prompt of two tokens, of which the runner has `drafted`.
    fn request<'a>(
        id: &'a RequestId,
        token_ids: &'a [u32],
        draft_token_ids: &'a [u32],
        drafted: &'a mut Drafted,
    ) -> KnownRequest<'a> {
        KnownRequest {
            request_id: id,
            num_prompt_tokens: 2,
            token_ids,
            draft_token_ids,
            drafted,
        }
    }

    /// New tokens, computed tokens, scheduled tokens and output tokens of a pass with one request.
    fn told(pass: DraftPass) -> (Vec<u32>, u32, usize, u32) {
        let step = pass.finish().scheduler_output;
        let cached = &step.scheduled_cached_reqs;
        (
            cached.new_token_ids[0].clone(),
            cached.num_computed_tokens[0],
            step.num_scheduled_tokens.at(0),
            cached.num_output_tokens[0],
        )
    }

    fn told_of(known: KnownRequest<'_>, num_tokens: usize) -> (Vec<u32>, u32, usize, u32) {
        let mut pass = DraftPass::default();
        let expected = known.num_to_compute(num_tokens);
        pass.push_known(known, num_tokens, Vec::new(), RequestMasks::Free);
        assert_eq!(pass.num_tokens(), expected);
        told(pass)
    }

    #[test]
    fn what_turned_out_right_is_neither_told_nor_computed_again() {
        let id: RequestId = "a".into();
        let drafted = &mut Drafted {
            num_tokens: 2,
            num_computed_tokens: 2,
            ..Drafted::default()
        };
        // The target model sampled 5. A draft of 6 and 7, and 8, which the grammar forced.
        let known = request(&id, &[1, 2, 5], &[], drafted).settled(None);
        assert_eq!(told_of(known, 3), (vec![5], 2, 1, 1));
        drafted.push(6);
        let known = request(&id, &[1, 2, 5], &[6], drafted);
        assert_eq!(told_of(known, 4), (vec![], 3, 1, 2));
        drafted.push(7);
        let known = request(&id, &[1, 2, 5], &[6, 7, 8], drafted);
        assert_eq!(told_of(known, 6), (vec![8], 4, 2, 4));
        drafted.push(9);
        // Of these 6 and 7 were right.
        let known = request(&id, &[1, 2, 5, 6, 7, 3], &[], drafted).settled(None);
        assert_eq!(told_of(known, 6), (vec![3], 5, 1, 4));
        // All is there already: the last token is computed again, for what comes after it.
        let known = request(&id, &[1, 2, 5, 6, 7, 3], &[], drafted).settled(None);
        assert_eq!(told_of(known, 6), (vec![], 5, 1, 4));
    }

    #[test]
    fn who_lost_its_blocks_comes_last_and_is_computed_from_the_prefix_cache_on() {
        let (first, second): (RequestId, RequestId) = ("a".into(), "b".into());
        let mut pass = DraftPass::new(vec!["gone".into()]);
        let all = || Drafted {
            num_tokens: 4,
            num_computed_tokens: 4,
            ..Drafted::default()
        };
        let (drafted, other) = (&mut all(), &mut all());
        let resumed = request(&first, &[1, 2, 3, 4], &[], drafted).settled(Some(2));
        assert_eq!(resumed.num_to_compute(4), 2);
        pass.push_known(resumed, 4, vec![8, 9], RequestMasks::Withheld);
        let known = request(&second, &[1, 2, 3, 4, 5], &[], other).settled(None);
        pass.push_known(known, 5, vec![7], RequestMasks::Free);
        let pass = pass.finish();
        let step = pass.scheduler_output;
        let cached = step.scheduled_cached_reqs;
        assert_eq!(cached.req_ids, [second.clone(), first.clone()]);
        assert_eq!(cached.resumed_req_ids, std::slice::from_ref(&first));
        assert_eq!(cached.new_block_ids, [vec![7], vec![8, 9]]);
        assert_eq!(cached.num_computed_tokens, [4, 2]);
        let scheduled: Vec<_> = step.num_scheduled_tokens.iter().collect();
        assert_eq!(scheduled, [(&first, 2), (&second, 1)]);
        assert!(matches!(
            pass.grammar_output.masks[..],
            [RequestMasks::Withheld, RequestMasks::Free]
        ));
        assert_eq!(step.finished_req_ids.len(), 1);
    }

    #[test]
    fn parameters_are_shared_where_nothing_is_delivered_beside_tokens() {
        let proposer = |draft_sample_method| {
            DraftModelProposer::new(&SpeculativeConfig {
                draft_sample_method,
                ..SpeculativeConfig::default()
            })
        };
        let plain = Arc::new(SamplingParams {
            temperature: 0.5,
            top_k: 7,
            ..SamplingParams::default()
        });
        let sampled = proposer(DraftSampleMethod::Probabilistic);
        assert!(Arc::ptr_eq(&sampled.draft_params(&plain), &plain));
        let greedy = proposer(DraftSampleMethod::Greedy).draft_params(&plain);
        assert_eq!((greedy.temperature, greedy.top_k), (0.0, 7));
        let with_logprobs = Arc::new(SamplingParams {
            logprobs: Some(3),
            prompt_logprobs: Some(1),
            include_trace: true,
            ..(*plain).clone()
        });
        assert_eq!(sampled.draft_params(&with_logprobs), plain);
    }
}
