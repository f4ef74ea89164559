//! The scheduler's configuration, and the size of its steps where no flag sets it.

use protocol::{SchedulerConfig, SchedulingPolicy};

use super::{DeviceArg, EngineArgs, PolicyArg};

/// Tokens of a step on processors, which compute as many for a larger step in as much longer a time: who waits for it
/// waits for no more than that.
const BATCHED_TOKENS: u32 = 512;

/// Tokens that a step on processors has for prompts beside one for each of `max_num_seqs` requests. With none, the
/// prompts of a core that died would wait until answers of the one that took them over end.
const PROMPT_TOKENS: u32 = 256;

impl EngineArgs {
    pub(super) fn scheduler_config(&self) -> SchedulerConfig {
        SchedulerConfig {
            max_num_batched_tokens: self.max_num_batched_tokens(),
            max_num_seqs: self.max_num_seqs(),
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            enable_chunked_prefill: !self.no_enable_chunked_prefill,
            policy: match self.scheduling_policy {
                PolicyArg::Fcfs => SchedulingPolicy::Fcfs,
                PolicyArg::Priority => SchedulingPolicy::Priority,
            },
            watermark: self.watermark,
            max_num_queued_reqs: self.max_num_queued_reqs,
            max_num_queued_tokens: self.max_num_queued_tokens,
            ..SchedulerConfig::default()
        }
    }

    /// Most requests that run at the same time. Each of them needs one of a step's tokens.
    fn max_num_seqs(&self) -> u32 {
        let default = SchedulerConfig::default().max_num_seqs;
        self.max_num_seqs
            .unwrap_or_else(|| default.min(self.max_num_batched_tokens()))
    }

    /// Most tokens of a step.
    fn max_num_batched_tokens(&self) -> u32 {
        let default = SchedulerConfig::default().max_num_batched_tokens;
        let unless_asked = match self.device {
            // Without chunks a step has room for the longest prompt.
            DeviceArg::Cpu if !self.no_enable_chunked_prefill => {
                let max_num_seqs = self.max_num_seqs.unwrap_or_default();
                let with_prompts = max_num_seqs.saturating_add(PROMPT_TOKENS);
                with_prompts.clamp(BATCHED_TOKENS, default)
            }
            _ => default,
        };
        self.max_num_batched_tokens.unwrap_or(unless_asked)
    }
}
