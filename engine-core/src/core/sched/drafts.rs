//! The drafts of a step: proposed at once by prompt lookup, or by a draft model between schedule and forward pass, a
//! token of all requests at a time.
//!
//! A draft model's drafts have places in the schedule before they are known, so blocks and the token budget are those
//! of any draft. The model samples under the grammar's masks; a token that a grammar leaves no choice about is a draft
//! that takes no pass.

use std::collections::VecDeque;

use crate::core::request::Request;
use crate::core::sched::output::{
    ModelRunnerOutput, NewRequestData, RequestMasks, SchedulerOutput,
};
use crate::core::sched::scheduler::Scheduler;
use crate::core::sched::stop::may_end_text;
use crate::core::spec_decode::DraftPass;

/// The drafts of a step in the making.
pub(crate) struct Drafts {
    drafts: Vec<Draft>,
    /// Passes that are yet to run.
    passes: VecDeque<PlannedPass>,
    /// Which drafts the pass under way brings a token for: entries of the pass and of `drafts`.
    asked: Vec<(usize, usize)>,
    /// Most tokens of a pass: those of a step, and of one request a draft that the target model has computed already.
    max_tokens_per_pass: usize,
}

/// A pass, and the drafts that it brings a token for, as in [`Drafts`].
#[derive(Default)]
struct PlannedPass {
    pass: DraftPass,
    asked: Vec<(usize, usize)>,
}

/// A draft in the making.
struct Draft {
    /// The request's entry in the step.
    index: usize,
    /// The request's place among the running ones, where it stays until the step has run.
    running: usize,
    token_ids: Vec<u32>,
    max_tokens: usize,
}

impl Drafts {
    /// What the draft model is to compute next; `None` where all drafts are done.
    pub(crate) fn take_pass(&mut self) -> Option<DraftPass> {
        let PlannedPass { pass, asked } = self.passes.pop_front()?;
        self.asked = asked;
        Some(pass.finish())
    }

    /// The pass that `num_tokens` more tokens belong to: the last one, or another behind it where that is full. So a
    /// request comes no sooner than those whose blocks it shares.
    fn pass_for(&mut self, num_tokens: usize) -> &mut PlannedPass {
        let has_room = (self.passes.back())
            .is_some_and(|last| last.pass.num_tokens() + num_tokens <= self.max_tokens_per_pass);
        if !has_room {
            self.passes.push_back(PlannedPass::default());
        }
        let last = self.passes.len() - 1;
        &mut self.passes[last]
    }
}

impl Scheduler {
    /// Gives a request a draft for its next step, without the tokens that its grammar forbids.
    pub(super) fn propose_draft(&mut self, request: &mut Request) {
        let Some(proposer) = self
            .proposer
            .as_ref()
            .filter(|_| !request.is_forced_text_due)
        else {
            return;
        };
        let num_left = request.num_tokens_left(self.max_model_len);
        // One more is sampled after the draft.
        let max_tokens = num_left.saturating_sub(1) as usize;
        let mut draft = proposer.propose(request.all_token_ids(), max_tokens);
        if proposer.draft_model().is_none()
            && let Some(grammar) = request.grammar_mut()
        {
            let valid = self
                .grammar_steps
                .ask(grammar, |grammar| grammar.validate_tokens(&draft, num_left));
            // There need not be one. Why the grammar fails, if it does without it, its masks say in the
            // next step.
            let num_valid = valid.unwrap_or_default();
            self.spec_decoding_stats.num_invalid_tokens += (draft.len() - num_valid) as u64;
            draft.truncate(num_valid);
        }
        request.spec_token_ids = draft;
    }

    /// Begins the drafts of a step whose places it has scheduled: the first pass of the draft model also computes what
    /// else the step computes. `None` where no draft model proposes, or the step has nothing for it.
    pub(crate) fn begin_drafts(&mut self, step: &SchedulerOutput) -> Option<Drafts> {
        let proposer = *self.proposer.as_ref()?.draft_model()?;
        if step.admissions.is_empty() && step.finished_req_ids.is_empty() {
            return None;
        }
        let first = PlannedPass {
            pass: DraftPass::new(step.finished_req_ids.clone()),
            asked: Vec::new(),
        };
        let mut drafts = Drafts {
            drafts: Vec::new(),
            passes: VecDeque::from([first]),
            asked: Vec::new(),
            max_tokens_per_pass: self.config.max_num_batched_tokens as usize
                + proposer.num_speculative_tokens(),
        };
        let mut new_requests = step.scheduled_new_reqs.iter().peekable();
        let cached = &step.scheduled_cached_reqs;
        let first_resumed = cached.req_ids.len() - cached.resumed_req_ids.len();
        let (mut entry, mut running) = (0, 0);
        for (index, admission) in step.admissions.iter().enumerate() {
            while self.running.get(running)?.admission != *admission {
                running += 1;
            }
            let request = &mut self.running[running].request;
            let num_tokens = request.num_computed_tokens.min(request.num_tokens());
            let is_new = |new: &&NewRequestData| new.req_id == *request.request_id();
            if let Some(new) = new_requests.next_if(is_new) {
                let params = proposer.draft_params(&new.sampling_params);
                let num_to_compute = num_tokens - new.num_computed_tokens as usize;
                let PlannedPass { pass, .. } = drafts.pass_for(num_to_compute);
                pass.push_new(new, num_tokens, params, &mut request.drafted);
                continue;
            }
            let resumed_from =
                (entry >= first_resumed).then(|| cached.num_computed_tokens[entry] as usize);
            let mut draft = Draft {
                index,
                running,
                token_ids: Vec::new(),
                max_tokens: step.draft_at(index).len(),
            };
            let masks = self.extend_draft(&mut draft);
            let request = &mut self.running[running].request;
            let num_tokens = num_tokens + draft.token_ids.len();
            let known = request.with_draft(&draft.token_ids).settled(resumed_from);
            let number = drafts.drafts.len();
            let PlannedPass { pass, asked } = drafts.pass_for(known.num_to_compute(num_tokens));
            if masks.is_some() {
                asked.push((pass.len(), number));
            }
            let masks = masks.unwrap_or(RequestMasks::Withheld);
            let new_block_ids = cached.new_block_ids[entry].clone();
            pass.push_known(known, num_tokens, new_block_ids, masks);
            if draft.max_tokens > 0 {
                drafts.drafts.push(draft);
            }
            entry += 1;
        }
        Some(drafts)
    }

    /// Takes what a pass of the draft model sampled, and plans another where a draft goes on.
    pub(crate) fn continue_drafts(&mut self, drafts: &mut Drafts, output: &ModelRunnerOutput) {
        for (entry, index) in std::mem::take(&mut drafts.asked) {
            let sampled = output.sampled_token_ids.get(entry);
            let Some(&token_id) = sampled.and_then(|sampled| sampled.last()) else {
                continue;
            };
            let draft = &mut drafts.drafts[index];
            draft.token_ids.push(token_id);
            self.running[draft.running].request.drafted.push(token_id);
            let Some(masks) = self.extend_draft(draft) else {
                continue;
            };
            let request = &mut self.running[draft.running].request;
            let token_ids = draft.token_ids.clone();
            let num_tokens = request.num_tokens() + token_ids.len();
            let known = request.with_draft(&token_ids);
            let PlannedPass { pass, asked } = drafts.pass_for(known.num_to_compute(num_tokens));
            asked.push((pass.len(), index));
            pass.push_known(known, num_tokens, Vec::new(), masks);
        }
    }

    /// Appends the tokens that the grammar leaves no choice about. Returns the masks of the token that the model is to
    /// choose next; `None` where the draft is done.
    fn extend_draft(&mut self, draft: &mut Draft) -> Option<RequestMasks> {
        let request = &mut self.running[draft.running].request;
        let num_left = request.num_tokens_left(self.max_model_len);
        let params = request.sampling_params().clone();
        let Some(grammar) = request.grammar_mut() else {
            let ends = draft.token_ids.last();
            let is_over = ends.is_some_and(|&token_id| may_end_text(&params, token_id));
            return (draft.token_ids.len() < draft.max_tokens && !is_over)
                .then_some(RequestMasks::Free);
        };
        while draft.token_ids.len() < draft.max_tokens {
            let token_ids = &draft.token_ids;
            // An answer that takes too long now is none: the step's own masks are asked for it.
            let mask = self
                .grammar_steps
                .ask(grammar, |grammar| grammar.mask_after(token_ids, num_left))
                .ok()??;
            match mask.forced_token() {
                Some(token_id) => draft.token_ids.push(token_id),
                None => return Some(RequestMasks::Masks(vec![mask])),
            }
        }
        None
    }

    /// Puts the drafts into their places in the step. Places that none fills are given back.
    pub(crate) fn update_draft_token_ids_in_output(
        &mut self,
        drafts: Drafts,
        step: &mut SchedulerOutput,
    ) {
        for draft in drafts.drafts {
            let num_free = draft.max_tokens - draft.token_ids.len();
            self.running[draft.running].request.num_computed_tokens -= num_free;
            step.replace_draft(draft.index, draft.token_ids);
        }
    }
}
