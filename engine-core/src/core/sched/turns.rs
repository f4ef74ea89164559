//! Turns between owners: a flood of one client delays that client, not the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use protocol::SchedulingPolicy;

use crate::core::sched::request_queue::{PriorityKey, RequestQueue};
use crate::core::sched::scheduler::{RunningRequest, Scheduler};
use crate::core::sched::step::Step;

/// Most requests that one step preempts for the sake of other owners: each is computed again.
const MAX_PREEMPTIONS_FOR_TURNS: usize = 8;

/// The order in which waiting owners are served within one step: first the owner with the fewest
/// running requests, and of equals the one that was served longest ago or has waited longest.
pub(super) struct Turns {
    /// Running requests, when the owner was last served, the owner.
    owners: BTreeSet<(usize, u64, u64)>,
}

impl Turns {
    /// O(running + owners that wait).
    pub(super) fn new(running: &[RunningRequest], waiting: &RequestQueue) -> Self {
        let num_running = match waiting.owners().len() {
            0 | 1 => BTreeMap::new(),
            _ => count_running(running),
        };
        let owners = waiting.owners().map(|(owner, _, turn)| {
            let num_running = num_running.get(&owner).copied().unwrap_or_default();
            (num_running, turn, owner)
        });
        Self {
            owners: owners.collect(),
        }
    }

    /// The owner whose turn it is.
    pub(super) fn next(&self) -> Option<u64> {
        self.owners.first().map(|(_, _, owner)| *owner)
    }

    /// Notes that the next owner got a place; `turn` is its new turn, if it still waits.
    pub(super) fn served(&mut self, turn: Option<u64>) {
        if let Some((num_running, _, owner)) = self.owners.pop_first()
            && let Some(turn) = turn
        {
            self.owners.insert((num_running + 1, turn, owner));
        }
    }
}

fn count_running(running: &[RunningRequest]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for running in running {
        *counts.entry(running.request.owner()).or_default() += 1;
    }
    counts
}

/// Shares of a step that running requests leave to each other where several owners run or wait. A long prompt takes
/// what is left beside a share for each request behind it, or what that needs of it, and beside one for owners that
/// wait and have no request running. With a single owner the first take all, as in vLLM.
pub(super) struct Shares {
    /// Tokens of a share.
    share: usize,
    /// Requests that are still to be scheduled, and the tokens that are left to them and to new owners.
    num_behind: usize,
    tokens_behind: usize,
}

impl Shares {
    /// Shares of a step in so many.
    const NUM: usize = 4;

    /// The shares of a step of so many tokens, which may admit others if there is a place; `None` with a single owner.
    /// O(running + owners that wait).
    pub(super) fn new(
        running: &[RunningRequest],
        waiting: &RequestQueue,
        max_num_batched_tokens: usize,
        has_place: bool,
    ) -> Option<Self> {
        let owners = running.iter().map(|running| running.request.owner());
        let mut all = owners.chain(waiting.owners().map(|(owner, ..)| owner));
        let first = all.next()?;
        if all.all(|owner| owner == first) {
            return None;
        }
        let mut shares = Self {
            share: (max_num_batched_tokens / Self::NUM).max(1),
            num_behind: 0,
            tokens_behind: 0,
        };
        for running in running.iter().filter(|r| !r.request.is_parked()) {
            shares.num_behind += 1;
            shares.tokens_behind += shares.share.min(num_missing(running));
        }
        let counts = count_running(running);
        let mut waiting = waiting.owners();
        if has_place && waiting.any(|(owner, ..)| !counts.contains_key(&owner)) {
            shares.tokens_behind += shares.share;
        }
        Some(shares)
    }

    /// Most tokens for the running request that comes next, of those that are left of the step.
    pub(super) fn next(&mut self, running: &RunningRequest, token_budget: usize) -> usize {
        let own = self.share.min(num_missing(running));
        self.num_behind = self.num_behind.saturating_sub(1);
        self.tokens_behind = self.tokens_behind.saturating_sub(own);
        let beside_shares = token_budget.saturating_sub(self.tokens_behind);
        // Where there are more shares than tokens, one for each request behind it.
        let own = own.min(token_budget.saturating_sub(self.num_behind));
        beside_shares.max(own)
    }
}

/// Tokens of a running request that are still to be computed, those of a draft not counted.
fn num_missing(running: &RunningRequest) -> usize {
    let request = &running.request;
    request
        .num_tokens()
        .saturating_sub(request.num_computed_tokens)
}

/// Index of the last admitted request of the owners that have the most running ones.
pub(super) fn last_of_the_busiest_owner(running: &[RunningRequest]) -> usize {
    let counts = count_running(running);
    let most = counts.values().copied().max().unwrap_or_default();
    let is_busiest = |running: &RunningRequest| counts.get(&running.request.owner()) == Some(&most);
    running.iter().rposition(is_busiest).unwrap_or_default()
}

impl Scheduler {
    /// Where all places are taken and an owner that has less than its fair share of them waits,
    /// preempts requests of owners that have more. The fair share is `max_num_seqs` divided by the owners
    /// that run or wait, and at least 1; nobody is brought below it. The places are given in the next step.
    pub(super) fn preempt_for_turns(&mut self, step: &mut Step) {
        let max_num_seqs = self.config.max_num_seqs as usize;
        if self.waiting.is_empty() || self.running.len() < max_num_seqs {
            return;
        }
        let mut counts = count_running(&self.running);
        for (owner, ..) in self.waiting.owners() {
            counts.entry(owner).or_default();
        }
        let share = (max_num_seqs / counts.len().max(1)).max(1);
        let places_due = self.waiting.owners().map(|(owner, num_waiting, _)| {
            let num_running = counts.get(&owner).copied().unwrap_or_default();
            num_waiting.min(share.saturating_sub(num_running))
        });
        let places_due = places_due.sum::<usize>().min(MAX_PREEMPTIONS_FOR_TURNS);
        for _ in 0..places_due {
            let busiest = counts
                .iter_mut()
                .max_by_key(|(owner, num)| (**num, Reverse(**owner)));
            let Some((&owner, num_running)) = busiest.filter(|(_, num)| **num > share) else {
                return;
            };
            *num_running -= 1;
            let Some(index) = self.last_running_of(owner) else {
                return;
            };
            self.preempt(index, step);
        }
    }

    /// Index of the running request of `owner` that its policy puts last.
    fn last_running_of(&self, owner: u64) -> Option<usize> {
        let is_owned = |index: &usize| self.running[*index].request.owner() == owner;
        let mut owned = (0..self.running.len()).filter(is_owned);
        match self.config.policy {
            SchedulingPolicy::Fcfs => owned.next_back(),
            SchedulingPolicy::Priority => {
                owned.max_by_key(|&index| PriorityKey::of(&self.running[index].request))
            }
        }
    }
}
