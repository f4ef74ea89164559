//! Who gives up blocks when there are none left.

use protocol::{EngineCoreEventType, SchedulingPolicy};

use crate::core::sched::request_queue::PriorityKey;
use crate::core::sched::scheduler::{Place, RunningRequest, Scheduler, Step};

impl Scheduler {
    /// Index of the running request that is preempted next: under FCFS the last admitted, under
    /// the priority policy the first of those with the largest (priority, arrival time).
    pub(super) fn choose_victim(&self) -> usize {
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.running.len().saturating_sub(1),
            SchedulingPolicy::Priority => {
                let keys = self
                    .running
                    .iter()
                    .map(|running| PriorityKey::of(&running.request));
                // `max_by` takes the last of equals: look from the end.
                keys.enumerate()
                    .rev()
                    .max_by(|(_, a), (_, b)| a.cmp(b))
                    .map_or(0, |(index, _)| index)
            }
        }
    }

    /// Takes the blocks of a running request and puts it back into the queue. Its output stays;
    /// all tokens are computed again when it resumes, but for what the prefix cache still has.
    /// Budget that it had in this step goes back.
    pub(super) fn preempt(&mut self, index: usize, step: &mut Step) {
        let RunningRequest {
            admission,
            mut request,
            blocks,
        } = self.running.remove(index);
        let scheduled = step
            .scheduled
            .binary_search_by_key(&admission, |scheduled| scheduled.admission);
        if let Ok(position) = scheduled {
            step.token_budget += step.scheduled.remove(position).num_tokens;
        }
        self.kv_cache_manager.free(blocks);
        request.num_computed_tokens = 0;
        request.num_preemptions += 1;
        request.record_event(EngineCoreEventType::Preempted, step.timestamp);
        let request_id = request.request_id().clone();
        let key = self.waiting.prepend(request);
        self.in_flight
            .insert(request_id.clone(), Place::Waiting(key));
        step.preempted_req_ids.push(request_id);
    }
}
