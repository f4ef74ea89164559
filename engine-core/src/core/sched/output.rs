//! What the scheduler tells the model runner, and what the runner answers.

use std::sync::Arc;

use protocol::{LogprobsLists, PoolingParams, SamplingParams, ScoredPosition, Shared, TokenTrace};

use crate::request_id::RequestId;
use crate::structured_output::TokenMask;

/// Number of an admission: counts up with every request that starts or resumes running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Admission(pub(super) u64);

/// One step: which tokens of which requests go through the model.
///
/// The runner keeps the state of every request between steps, so that a step only says what
/// changed. It handles `finished_req_ids` first (an id may return in the same step), then the
/// scheduled requests. A runner that keeps the tokens of preempted requests, as ours does, has no
/// use for `preempted_req_ids` and `all_token_ids`.
#[derive(Debug, Default)]
pub struct SchedulerOutput {
    /// Requests that the runner sees for the first time, with all their data.
    pub scheduled_new_reqs: Vec<NewRequestData>,
    /// Requests that the runner knows.
    pub scheduled_cached_reqs: CachedRequestData,
    /// Tokens per request, in schedule order. Every number is above 0.
    pub num_scheduled_tokens: NumScheduledTokens,
    /// Drafts that this step verifies: the last of each request's scheduled tokens. Entry `i` belongs
    /// to the `i`th entry of `num_scheduled_tokens`; absent ones are empty.
    pub scheduled_spec_decode_tokens: Vec<Vec<u32>>,
    /// Sum of `num_scheduled_tokens`; 0 where there is nothing to compute.
    pub total_num_scheduled_tokens: usize,
    /// Requests that ended since the last step, some of them never scheduled.
    pub finished_req_ids: Vec<RequestId>,
    /// Requests that lost their blocks in this step. They come back in `resumed_req_ids`.
    pub preempted_req_ids: Vec<RequestId>,
    /// Beside `num_scheduled_tokens`: finds the requests again when the output comes, unless
    /// they were aborted meanwhile.
    pub(crate) admissions: Vec<Admission>,
}

impl SchedulerOutput {
    /// The draft of the entry at `index`.
    pub(crate) fn draft_at(&self, index: usize) -> &[u32] {
        self.scheduled_spec_decode_tokens
            .get(index)
            .map_or(&[], Vec::as_slice)
    }

    /// Has another draft, no longer one, in place of that of the entry at `index`.
    pub(crate) fn replace_draft(&mut self, index: usize, draft_token_ids: Vec<u32>) {
        let entry = self.scheduled_spec_decode_tokens.get_mut(index);
        let scheduled = self.num_scheduled_tokens.0.get_mut(index);
        if let (Some(entry), Some((_, num_tokens))) = (entry, scheduled) {
            let num_fewer = entry.len().saturating_sub(draft_token_ids.len());
            *num_tokens -= num_fewer;
            self.total_num_scheduled_tokens -= num_fewer;
            *entry = draft_token_ids;
        }
    }
}

/// Tokens per scheduled request, in schedule order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumScheduledTokens(Vec<(RequestId, usize)>);

impl NumScheduledTokens {
    /// Scheduled requests.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no request is scheduled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Id and number of tokens of each request, in schedule order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&RequestId, usize)> + '_ {
        self.0
            .iter()
            .map(|(request_id, num_tokens)| (request_id, *num_tokens))
    }

    /// Tokens of the entry at `index`; 0 beyond the end.
    pub(crate) fn at(&self, index: usize) -> usize {
        self.0.get(index).map_or(0, |(_, num_tokens)| *num_tokens)
    }

    /// Tokens of one request. Compares ids one by one: not for inner loops.
    pub fn get(&self, request_id: &str) -> Option<usize> {
        self.iter()
            .find(|(other, _)| &***other == request_id)
            .map(|(_, num_tokens)| num_tokens)
    }
}

impl FromIterator<(RequestId, usize)> for NumScheduledTokens {
    fn from_iter<I: IntoIterator<Item = (RequestId, usize)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

/// Most [`NewRequestData::num_shared_tokens`] of a step together.
pub const MAX_SHARED_TOKENS: usize = 4096;

/// All about a request that the runner has not seen.
#[derive(Debug, Clone)]
pub struct NewRequestData {
    /// Internal id.
    pub req_id: RequestId,
    /// The prompt.
    pub prompt_token_ids: Arc<[u32]>,
    /// Output that a core before this one generated; prefilled like the prompt.
    pub output_token_ids: Vec<u32>,
    /// How the next token is chosen.
    pub sampling_params: Arc<SamplingParams>,
    /// The block table: tokens `i * block_size..` stand in entry `i`.
    pub block_ids: Vec<u32>,
    /// Tokens that need no computing: those in full blocks of the prefix cache, and behind them
    /// `num_shared_tokens`.
    pub num_computed_tokens: u32,
    /// `None` unless all these tokens are those of the request before this one in the step. So many of them, the last
    /// ones, that one computes or shares itself: their keys and values are written for this request too.
    pub num_shared_tokens: Option<u32>,
    /// Where probabilities are asked for; nothing is sampled then.
    pub scored_positions: Shared<[ScoredPosition]>,
    /// Where a vector of the prompt is asked for; nothing is sampled then.
    pub pooling_params: Option<PoolingParams>,
}

/// What changed for requests that the runner knows. Entry `i` of each array but
/// `resumed_req_ids` and `all_token_ids` belongs to `req_ids[i]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachedRequestData {
    /// Running requests in schedule order, then resumed ones.
    pub req_ids: Vec<RequestId>,
    /// Those that come back after a preemption: the last entries of `req_ids`, in their order.
    pub resumed_req_ids: Vec<RequestId>,
    /// Prompt and output of each entry of `resumed_req_ids`.
    pub all_token_ids: Vec<Vec<u32>>,
    /// Tokens that the runner doesn't know, since it didn't sample them; they end the output before
    /// this step. May be empty as a whole where nothing is forced.
    pub new_token_ids: Vec<Vec<u32>>,
    /// Blocks to append to the table; for a resumed request the whole table.
    pub new_block_ids: Vec<Vec<u32>>,
    /// Tokens in the cache before this step.
    pub num_computed_tokens: Vec<u32>,
    /// Tokens of the output before this step, those of `new_token_ids` included. Where the runner
    /// sampled more, what is beyond was not taken.
    pub num_output_tokens: Vec<u32>,
}

/// What one step brought. Entry `i` of each array belongs to the `i`th entry of
/// `SchedulerOutput::num_scheduled_tokens`; all arrays but the first may also be empty.
#[derive(Debug, Default)]
pub struct ModelRunnerOutput {
    /// Tokens sampled for each request: at least one once all its tokens are computed, none
    /// for a part of a prefill or where positions are scored or hidden states pooled.
    pub sampled_token_ids: Vec<Vec<u32>>,
    /// One row per sampled token, where asked for.
    pub logprobs: Vec<Option<LogprobsLists>>,
    /// One entry per sampled token, where asked for.
    pub traces: Vec<Vec<TokenTrace>>,
    /// One row per prompt position but the first, where asked for and the prompt is done.
    pub prompt_logprobs: Vec<Option<LogprobsLists>>,
    /// One row per scored position, where asked for and the prompt is done.
    pub scores: Vec<Vec<Vec<f32>>>,
    /// The pooled vector, where asked for and the prompt is done.
    pub pooler_output: Vec<Option<Vec<f32>>>,
    /// NaN values in each request's logits.
    pub num_nans_in_logits: Vec<u32>,
    /// Why the runner failed on a request; ends that request alone.
    pub errors: Vec<Option<String>>,
    /// Rows that sampling limits had emptied, and a guard restored.
    pub num_restored_rows: u32,
    /// Of these, rows that had a grammar's mask.
    pub num_overridden_rows: u32,
    /// Rows of the LM head that the sampled positions together have.
    pub num_head_rows: u64,
    /// Of these, rows that were not computed, since a mask left few tokens.
    pub num_head_rows_skipped: u64,
}

impl ModelRunnerOutput {
    /// An output of `num_requests` entries that brought nothing yet.
    pub fn empty(num_requests: usize) -> Self {
        Self {
            sampled_token_ids: vec![Vec::new(); num_requests],
            logprobs: vec![None; num_requests],
            // Where nobody asks for one there is none.
            traces: Vec::new(),
            prompt_logprobs: vec![None; num_requests],
            scores: vec![Vec::new(); num_requests],
            // Where nobody asks for one there is none.
            pooler_output: Vec::new(),
            num_nans_in_logits: vec![0; num_requests],
            errors: vec![None; num_requests],
            num_restored_rows: 0,
            num_overridden_rows: 0,
            num_head_rows: 0,
            num_head_rows_skipped: 0,
        }
    }

    /// Adds the trace of a token that was sampled for the request at `index`.
    pub(crate) fn push_trace(&mut self, index: usize, trace: TokenTrace) {
        if self.traces.len() <= index {
            self.traces.resize_with(index + 1, Vec::new);
        }
        self.traces[index].push(trace);
    }
}

/// The masks of one batch, by reference. Entry `i` belongs to the `i`th entry of
/// `SchedulerOutput::num_scheduled_tokens`.
#[derive(Debug, Clone, Default)]
pub struct GrammarOutput {
    /// Each request's masks.
    pub masks: Vec<RequestMasks>,
}

/// What the sampled positions of one request may get.
#[derive(Debug, Clone, Default)]
pub enum RequestMasks {
    /// Anything.
    #[default]
    Free,
    /// One mask for the next token and one after each token of its draft; fewer where the grammar
    /// ends or refuses the draft earlier: there sampling stops.
    Masks(Vec<TokenMask>),
    /// None can be told yet: nothing is sampled, the grammar is to be compiled again.
    Withheld,
    /// The grammar has no mask: why the request fails.
    Failed(String),
}

impl GrammarOutput {
    /// The masks of the request at `index`.
    pub(crate) fn of(&self, index: usize) -> &RequestMasks {
        self.masks.get(index).unwrap_or(&RequestMasks::Free)
    }
}

impl RequestMasks {
    /// Of a request that samples `row` tokens before this one; `Err` where it samples none here.
    pub(crate) fn row(&self, row: usize) -> Result<Option<&TokenMask>, NoRow> {
        match self {
            Self::Free => Ok(None),
            Self::Masks(masks) => masks.get(row).map(Some).ok_or(NoRow),
            Self::Withheld | Self::Failed(_) => Err(NoRow),
        }
    }
}

/// Nothing is sampled at this position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRow;
