//! The waiting requests, in the order in which they are admitted.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;

use protocol::SchedulingPolicy;

use crate::request::{Request, RequestId};

/// The place of a request in the queue; smaller is earlier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueKey {
    /// First come, first served: counts up at the end, down at the front.
    Fcfs(i64),
    Priority(PriorityKey),
}

/// What the priority policy compares: lower priority number first, then arrival, then id. The
/// smallest is admitted first, the largest preempted first. No two requests are equal.
#[derive(Debug, Clone)]
pub(crate) struct PriorityKey {
    priority: i64,
    arrival_time: f64,
    request_id: RequestId,
}

impl PriorityKey {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            priority: request.priority(),
            arrival_time: request.arrival_time(),
            request_id: request.request_id().clone(),
        }
    }
}

impl Ord for PriorityKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority
            .cmp(&other.priority)
            .then_with(|| self.arrival_time.total_cmp(&other.arrival_time))
            .then_with(|| self.request_id.cmp(&other.request_id))
    }
}

impl PartialOrd for PriorityKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PriorityKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PriorityKey {}

/// The waiting requests, ordered by policy. Every operation is O(log n), removal from the middle
/// (an abort) included.
///
/// A request's key is from its arrival: one that is not ready is held outside and put in at its place.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    policy: SchedulingPolicy,
    by_key: BTreeMap<QueueKey, Box<Request>>,
    /// Keys for the end and for the front, under FCFS.
    next_back: i64,
    next_front: i64,
    num_tokens: u64,
}

impl RequestQueue {
    pub(crate) fn new(policy: SchedulingPolicy) -> Self {
        Self {
            policy,
            by_key: BTreeMap::new(),
            next_back: 0,
            next_front: -1,
            num_tokens: 0,
        }
    }

    /// Requests in the queue.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Tokens of all requests in the queue.
    pub(crate) fn num_tokens(&self) -> u64 {
        self.num_tokens
    }

    /// The requests in queue order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> + '_ {
        self.by_key.values().map(|request| &**request)
    }

    /// A request, wherever it stands.
    pub(crate) fn get(&self, key: &QueueKey) -> Option<&Request> {
        self.by_key.get(key).map(|request| &**request)
    }

    /// Adds a request that arrived.
    pub(crate) fn add(&mut self, request: Box<Request>) -> QueueKey {
        let key = self.reserve(&request);
        self.insert(key, request)
    }

    /// The place of a request that arrived and is not ready yet: it is held outside and put in
    /// with [`Self::insert`].
    pub(crate) fn reserve(&mut self, request: &Request) -> QueueKey {
        match self.policy {
            SchedulingPolicy::Fcfs => {
                self.next_back += 1;
                QueueKey::Fcfs(self.next_back - 1)
            }
            SchedulingPolicy::Priority => QueueKey::Priority(PriorityKey::of(request)),
        }
    }

    /// Adds a request that was preempted: before all others under FCFS. Under the priority
    /// policy its place is where its priority puts it.
    pub(crate) fn prepend(&mut self, request: Box<Request>) -> QueueKey {
        let key = self.reserve_front(&request);
        self.insert(key, request)
    }

    /// The place of such a request that is not ready yet: it is held outside and put in with
    /// [`Self::insert`].
    pub(crate) fn reserve_front(&mut self, request: &Request) -> QueueKey {
        match self.policy {
            SchedulingPolicy::Fcfs => {
                self.next_front -= 1;
                QueueKey::Fcfs(self.next_front + 1)
            }
            SchedulingPolicy::Priority => QueueKey::Priority(PriorityKey::of(request)),
        }
    }

    /// The request that is next.
    pub(crate) fn peek(&mut self) -> Option<NextRequest<'_>> {
        Some(NextRequest {
            entry: self.by_key.first_entry()?,
            num_tokens: &mut self.num_tokens,
        })
    }

    /// Takes a request from wherever it stands.
    pub(crate) fn remove(&mut self, key: &QueueKey) -> Option<Box<Request>> {
        let request = self.by_key.remove(key)?;
        self.num_tokens -= request.num_tokens() as u64;
        Some(request)
    }

    /// Puts a request at a place of its own.
    pub(crate) fn insert(&mut self, key: QueueKey, request: Box<Request>) -> QueueKey {
        self.num_tokens += request.num_tokens() as u64;
        self.by_key.insert(key.clone(), request);
        key
    }
}

/// The first request of a queue, still in it.
pub(crate) struct NextRequest<'a> {
    entry: OccupiedEntry<'a, QueueKey, Box<Request>>,
    num_tokens: &'a mut u64,
}

impl NextRequest<'_> {
    pub(crate) fn request(&self) -> &Request {
        self.entry.get()
    }

    /// Takes it out.
    pub(crate) fn pop(self) -> Box<Request> {
        let request = self.entry.remove();
        *self.num_tokens -= request.num_tokens() as u64;
        request
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::EngineCoreRequest;

    use super::*;
    use crate::core::block_hash::BlockHasher;

    fn request(id: usize, priority: i64, arrival_time: f64) -> Box<Request> {
        let message = EngineCoreRequest {
            request_id: format!("{id:02}"),
            prompt_token_ids: vec![0; id + 1].into(),
            priority,
            arrival_time,
            ..EngineCoreRequest::default()
        };
        Box::new(Request::from_engine_core_request(
            message,
            &BlockHasher::disabled(),
        ))
    }

    proptest! {
        /// Adds, prepends, pops and removals against a list that is searched.
        #[test]
        fn the_order_is_kept(
            fcfs in any::<bool>(),
            operations in prop::collection::vec((0u8..5, -2i64..2, 0u8..3, any::<prop::sample::Index>()), 0..60),
        ) {
            let policy = if fcfs { SchedulingPolicy::Fcfs } else { SchedulingPolicy::Priority };
            let mut queue = RequestQueue::new(policy);
            let mut model: Vec<(i64, u8, String, usize, QueueKey)> = Vec::new();
            for (id, (operation, priority, arrival, index)) in operations.into_iter().enumerate() {
                let new = request(id, priority, f64::from(arrival));
                let entry = (priority, arrival, format!("{id:02}"), id + 1);
                let with_key = |key| (entry.0, entry.1, entry.2.clone(), entry.3, key);
                match operation {
                    0 | 1 => model.push(with_key(queue.add(new))),
                    2 => model.insert(0, with_key(queue.prepend(new))),
                    3 => {
                        let popped = queue.peek().map(|next| next.pop().request_id().to_string());
                        prop_assert_eq!(popped, model.first().map(|first| first.2.clone()));
                        if !model.is_empty() { model.remove(0); }
                    }
                    _ if !model.is_empty() => {
                        let gone = model.remove(index.index(model.len()));
                        let removed = queue.remove(&gone.4);
                        prop_assert_eq!(removed.map(|request| request.request_id().to_string()), Some(gone.2));
                        prop_assert!(queue.remove(&gone.4).is_none());
                    }
                    _ => {}
                }
                if !fcfs {
                    model.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
                }
                let listed: Vec<&str> = queue.iter().map(|request| &**request.request_id()).collect();
                prop_assert_eq!(listed, model.iter().map(|entry| &*entry.2).collect::<Vec<_>>());
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.num_tokens(), model.iter().map(|entry| entry.3 as u64).sum::<u64>());
            }
        }
    }
}
