//! `n > 1`: one request becomes `n` children with one answer each.

use std::collections::{BTreeMap, HashSet};

use protocol::{EngineCoreRequest, RequestOutputKind};

use crate::outputs::CompletionOutput;

/// Gathers the answers of the children of one request.
#[derive(Debug)]
pub struct ParentRequest {
    /// The caller's id.
    pub external_req_id: String,
    output_kind: RequestOutputKind,
    child_requests: HashSet<String>,
    output_aggregator: BTreeMap<u32, CompletionOutput>,
    max_num_generation_tokens: u32,
}

impl ParentRequest {
    /// Splits a request: child `i` has the id `{i}_{parent id}`, `n = 1` and the seed
    /// `seed + i`, so that the answers differ and each can be reproduced by itself.
    pub fn split(
        request: EngineCoreRequest,
        external_req_id: String,
    ) -> (Self, Vec<EngineCoreRequest>) {
        let children: Vec<EngineCoreRequest> = (0..request.sampling_params.n)
            .map(|index| {
                let mut child = request.clone();
                child.request_id = format!("{index}_{}", request.request_id);
                child.sampling_params.n = 1;
                child.sampling_params.seed = request
                    .sampling_params
                    .seed
                    .map(|seed| seed.wrapping_add(u64::from(index)));
                child
            })
            .collect();
        let parent = Self {
            external_req_id,
            output_kind: request.sampling_params.output_kind,
            child_requests: children.iter().map(|c| c.request_id.clone()).collect(),
            output_aggregator: BTreeMap::new(),
            max_num_generation_tokens: 0,
        };
        (parent, children)
    }

    /// Ids of the children that aren't finished.
    pub fn unfinished_children(&self) -> impl Iterator<Item = &String> {
        self.child_requests.iter()
    }

    /// Takes the length of a child's whole answer in tokens; returns that of the longest so far.
    pub fn observe_generation_tokens(&mut self, num_tokens: u32) -> u32 {
        self.max_num_generation_tokens = self.max_num_generation_tokens.max(num_tokens);
        self.max_num_generation_tokens
    }

    /// Takes a child's output; returns what the parent has to say now, in the order of the
    /// indices, and whether it is finished.
    pub fn get_outputs(
        &mut self,
        child_request_id: &str,
        completion: CompletionOutput,
    ) -> (Vec<CompletionOutput>, bool) {
        if completion.finished() {
            self.child_requests.remove(child_request_id);
        }
        let finished = self.child_requests.is_empty();
        let outputs = if self.output_kind == RequestOutputKind::FinalOnly {
            self.output_aggregator.insert(completion.index, completion);
            if finished {
                std::mem::take(&mut self.output_aggregator)
                    .into_values()
                    .collect()
            } else {
                Vec::new()
            }
        } else {
            vec![completion]
        };
        (outputs, finished)
    }
}

#[cfg(test)]
mod tests {
    use protocol::{FinishReason, SamplingParams};

    use super::*;

    fn parent(kind: RequestOutputKind) -> (ParentRequest, Vec<EngineCoreRequest>) {
        let request = EngineCoreRequest {
            request_id: "r-1".to_owned(),
            sampling_params: SamplingParams {
                n: 3,
                seed: Some(u64::MAX),
                output_kind: kind,
                ..SamplingParams::default()
            },
            ..EngineCoreRequest::default()
        };
        ParentRequest::split(request, "r".to_owned())
    }

    fn completion(index: u32, finished: bool) -> CompletionOutput {
        CompletionOutput {
            index,
            finish_reason: finished.then_some(FinishReason::Stop),
            ..CompletionOutput::default()
        }
    }

    #[test]
    fn children_have_their_own_ids_and_seeds() {
        let (_, children) = parent(RequestOutputKind::FinalOnly);
        let seen: Vec<_> = children
            .iter()
            .map(|c| {
                (
                    c.request_id.as_str(),
                    c.sampling_params.n,
                    c.sampling_params.seed,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("0_r-1", 1, Some(u64::MAX)),
                ("1_r-1", 1, Some(0)),
                ("2_r-1", 1, Some(1)),
            ]
        );
    }

    #[test]
    fn final_outputs_come_together_in_index_order() {
        let (mut parent, _) = parent(RequestOutputKind::FinalOnly);
        assert_eq!(
            parent.get_outputs("2_r-1", completion(2, true)),
            (vec![], false)
        );
        assert_eq!(
            parent.get_outputs("0_r-1", completion(0, true)),
            (vec![], false)
        );
        let (outputs, finished) = parent.get_outputs("1_r-1", completion(1, true));
        let indices: Vec<_> = outputs.iter().map(|o| o.index).collect();
        assert_eq!((indices, finished), (vec![0, 1, 2], true));
    }

    #[test]
    fn streamed_outputs_pass_through() {
        let (mut parent, _) = parent(RequestOutputKind::Delta);
        let (outputs, finished) = parent.get_outputs("1_r-1", completion(1, true));
        assert_eq!((outputs.len(), finished), (1, false));
        assert_eq!(parent.unfinished_children().count(), 2);
    }
}
