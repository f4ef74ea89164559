//! Ending requests from outside: aborts, a client that left, the end of the core.

use protocol::{EngineCoreOutput, FinishReason};

use crate::core::request::Request;
use crate::core::sched::scheduler::{ClientOutput, Place, RunningRequest, Scheduler};
use crate::request_id::RequestId;

impl Scheduler {
    /// Ends requests wherever they stand and frees their blocks. Ids that are unknown or over
    /// are ignored.
    ///
    /// Returns their last outputs: to be sent where the core ends them by itself, to be dropped
    /// where their client asked.
    pub fn finish_requests<I>(&mut self, request_ids: I, reason: FinishReason) -> Vec<ClientOutput>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        request_ids
            .into_iter()
            .filter_map(|request_id| self.finish_request(request_id.as_ref(), reason))
            .collect()
    }

    /// Ends those of `request_ids` that belong to `client_index`, silently: their client asked.
    pub fn abort_requests(&mut self, client_index: u32, request_ids: &[String]) {
        for request_id in request_ids {
            if self.client_of(request_id) == Some(client_index) {
                self.finish_request(request_id, FinishReason::Abort);
            }
        }
    }

    fn client_of(&self, request_id: &str) -> Option<u32> {
        match self.in_flight.get(request_id)? {
            Place::Waiting(key) => self.waiting.get(key).map(Request::client_index),
            Place::WaitingForGrammar(key) => {
                let request = self.waiting_for_grammar.get(key);
                request.map(|request| request.client_index())
            }
            Place::Running(admission) => {
                let index = self
                    .running
                    .binary_search_by_key(admission, |running| running.admission)
                    .ok()?;
                Some(self.running[index].request.client_index())
            }
        }
    }

    /// Ends all requests of one client, as [`Scheduler::finish_requests`] does, and drops what
    /// was still to be sent to it.
    pub fn finish_client_requests(
        &mut self,
        client_index: u32,
        reason: FinishReason,
    ) -> Vec<ClientOutput> {
        self.pending_outputs
            .retain(|pending| pending.client_index != client_index);
        let of_client = self.request_ids(|request| request.client_index() == client_index);
        self.finish_requests(of_client, reason)
    }

    /// Ends all requests, as [`Scheduler::finish_requests`] does.
    pub fn finish_all_requests(&mut self, reason: FinishReason) -> Vec<ClientOutput> {
        let all = self.request_ids(|_| true);
        self.finish_requests(all, reason)
    }

    /// Ids of the requests in flight that `wanted` chooses, running ones first.
    fn request_ids(&self, wanted: impl Fn(&Request) -> bool) -> Vec<RequestId> {
        let running = self.running.iter().map(|running| &*running.request);
        let chosen = running
            .chain(self.waiting.iter())
            .chain(self.waiting_for_grammar())
            .filter(|request| wanted(request));
        chosen.map(|request| request.request_id().clone()).collect()
    }

    fn finish_request(&mut self, request_id: &str, reason: FinishReason) -> Option<ClientOutput> {
        let mut request = match self.in_flight.remove(request_id)? {
            Place::Waiting(key) => self.waiting.remove(&key)?,
            // Dropping it cancels the compilation.
            Place::WaitingForGrammar(key) => self.waiting_for_grammar.remove(&key)?,
            Place::Running(admission) => {
                let index = self
                    .running
                    .binary_search_by_key(&admission, |running| running.admission)
                    .ok()?;
                let RunningRequest {
                    request, blocks, ..
                } = self.running.remove(index);
                self.kv_cache_manager.free(blocks);
                request
            }
        };
        self.finished_req_ids.push(request.request_id().clone());
        Some(ClientOutput {
            client_index: request.client_index(),
            output: EngineCoreOutput {
                request_id: request.request_id().to_string(),
                finish_reason: Some(reason),
                events: request.take_events(),
                ..EngineCoreOutput::default()
            },
        })
    }
}
