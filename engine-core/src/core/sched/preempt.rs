//! Who gives up blocks when there are none left.

use std::cmp::Ordering;

use protocol::{EngineCoreEventType, SchedulingPolicy};

use crate::core::sched::request_queue::PriorityKey;
use crate::core::sched::scheduler::{Place, RunningRequest, Scheduler};
use crate::core::sched::step::Step;
use crate::core::sched::turns::last_of_the_busiest_owner;

impl Scheduler {
    /// Blocks for `num_tokens` more tokens of the running request at `index`, preempting others
    /// until they are there. `index` follows the request. `None` where it was preempted itself.
    pub(super) fn allocate_or_preempt(
        &mut self,
        index: &mut usize,
        num_tokens: usize,
        step: &mut Step,
    ) -> Option<Vec<u32>> {
        loop {
            let RunningRequest {
                request, blocks, ..
            } = &mut self.running[*index];
            let num_tokens = request.num_computed_tokens + num_tokens;
            if let Some(new) = self.kv_cache_manager.allocate_slots(blocks, num_tokens) {
                return Some(new);
            }
            let victim = self.choose_victim();
            self.preempt(victim, step);
            match victim.cmp(index) {
                Ordering::Less => *index -= 1,
                Ordering::Equal => return None,
                Ordering::Greater => {}
            }
        }
    }

    /// Index of the running request that is preempted next: under FCFS the last admitted of the
    /// owners with the most running requests, under the priority policy the one that comes last.
    /// Under FCFS the first admitted of all is never chosen while another runs, so it ends.
    ///
    /// vLLM compares only (priority, arrival time) here. Of two requests that are equal in both
    /// (answers to one prompt are), each would then be the other's victim in turn, for ever.
    fn choose_victim(&self) -> usize {
        match self.config.policy {
            SchedulingPolicy::Fcfs => last_of_the_busiest_owner(&self.running),
            SchedulingPolicy::Priority => (0..self.running.len())
                .max_by_key(|&index| PriorityKey::of(&self.running[index].request))
                .unwrap_or_default(),
        }
    }

    /// Takes the blocks of a running request and puts it back into the queue. Its output and the
    /// state of its grammar stay; all tokens are computed again when it resumes, but for what the prefix cache still has.
    /// Budget that it had in this step goes back.
    pub(super) fn preempt(&mut self, index: usize, step: &mut Step) {
        let RunningRequest {
            admission,
            mut request,
            blocks,
        } = self.running.remove(index);
        step.unschedule(admission);
        self.kv_cache_manager.free(blocks);
        request.num_computed_tokens = 0;
        request.spec_token_ids.clear();
        request.num_preemptions += 1;
        request.record_event(EngineCoreEventType::Preempted, step.timestamp);
        let request_id = request.request_id().clone();
        step.preempted_req_ids.push(request_id.clone());
        if request.is_parked() {
            self.unpark(request);
            return;
        }
        let key = self.waiting.prepend(request);
        self.in_flight.insert(request_id, Place::Waiting(key));
    }
}
