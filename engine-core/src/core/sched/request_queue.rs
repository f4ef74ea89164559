//! The waiting requests, in the order in which they are admitted.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use protocol::SchedulingPolicy;

use crate::core::request::Request;
use crate::request_id::RequestId;

/// The place of a request among those of its owner; smaller is earlier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    position: Position,
    owner: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
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

/// The waiting requests, for each owner ordered by policy; [`Turns`](super::turns::Turns) says whose turn
/// it is. Every operation is O(log n), removal from the middle (an abort) included.
///
/// A request's key is from its arrival: one that is not ready is held outside and put in at its place.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    policy: SchedulingPolicy,
    /// Owners with a waiting request.
    by_owner: BTreeMap<u64, OwnerQueue>,
    /// Keys for the end and for the front, under FCFS.
    next_back: i64,
    next_front: i64,
    /// The next number for [`OwnerQueue::turn`].
    next_turn: u64,
    len: usize,
    num_tokens: u64,
}

/// The waiting requests of one owner.
#[derive(Debug)]
struct OwnerQueue {
    by_key: BTreeMap<QueueKey, Box<Request>>,
    /// When the owner began to wait or was last served, by a counter.
    turn: u64,
}

impl RequestQueue {
    pub(crate) fn new(policy: SchedulingPolicy) -> Self {
        Self {
            policy,
            by_owner: BTreeMap::new(),
            next_back: 0,
            next_front: -1,
            next_turn: 0,
            len: 0,
            num_tokens: 0,
        }
    }

    /// Requests in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// True if nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens of all requests in the queue.
    pub(crate) fn num_tokens(&self) -> u64 {
        self.num_tokens
    }

    /// The requests, those of each owner in its order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> + '_ {
        let of_owners = self.by_owner.values();
        of_owners.flat_map(|queue| queue.by_key.values().map(|request| &**request))
    }

    /// Owners with a waiting request: each with its number of them and when it was last served.
    pub(crate) fn owners(&self) -> impl ExactSizeIterator<Item = (u64, usize, u64)> + '_ {
        let owners = self.by_owner.iter();
        owners.map(|(owner, queue)| (*owner, queue.by_key.len(), queue.turn))
    }

    /// The key of an owner's next request.
    pub(crate) fn first_of(&self, owner: u64) -> Option<QueueKey> {
        let queue = self.by_owner.get(&owner)?;
        queue.by_key.first_key_value().map(|(key, _)| key.clone())
    }

    /// Notes that an owner is served; returns when its turn was, if it still waits.
    pub(crate) fn serve(&mut self, owner: u64) -> Option<u64> {
        let queue = self.by_owner.get_mut(&owner)?;
        queue.turn = self.next_turn;
        self.next_turn += 1;
        Some(queue.turn)
    }

    /// A request, wherever it stands.
    pub(crate) fn get(&self, key: &QueueKey) -> Option<&Request> {
        let request = self.by_owner.get(&key.owner)?.by_key.get(key)?;
        Some(request)
    }

    /// Adds a request that arrived.
    pub(crate) fn add(&mut self, request: Box<Request>) -> QueueKey {
        let key = self.reserve(&request);
        self.insert(key, request)
    }

    /// The place of a request that arrived and is not ready yet: it is held outside and put in
    /// with [`Self::insert`].
    pub(crate) fn reserve(&mut self, request: &Request) -> QueueKey {
        let back = self.next_back;
        self.next_back += 1;
        self.key(request, back)
    }

    /// Adds a request that was preempted: before all others of its owner under FCFS. Under the
    /// priority policy its place is where its priority puts it.
    pub(crate) fn prepend(&mut self, request: Box<Request>) -> QueueKey {
        let key = self.reserve_front(&request);
        self.insert(key, request)
    }

    /// The place of such a request that is not ready yet: it is held outside and put in with
    /// [`Self::insert`].
    pub(crate) fn reserve_front(&mut self, request: &Request) -> QueueKey {
        let front = self.next_front;
        self.next_front -= 1;
        self.key(request, front)
    }

    fn key(&self, request: &Request, count: i64) -> QueueKey {
        QueueKey {
            position: match self.policy {
                SchedulingPolicy::Fcfs => Position::Fcfs(count),
                SchedulingPolicy::Priority => Position::Priority(PriorityKey::of(request)),
            },
            owner: request.owner(),
        }
    }

    /// Takes a request from wherever it stands.
    pub(crate) fn remove(&mut self, key: &QueueKey) -> Option<Box<Request>> {
        let queue = self.by_owner.get_mut(&key.owner)?;
        let request = queue.by_key.remove(key)?;
        if queue.by_key.is_empty() {
            self.by_owner.remove(&key.owner);
        }
        self.len -= 1;
        self.num_tokens -= request.num_tokens() as u64;
        Some(request)
    }

    /// Puts a request at a place of its own.
    pub(crate) fn insert(&mut self, key: QueueKey, request: Box<Request>) -> QueueKey {
        self.len += 1;
        self.num_tokens += request.num_tokens() as u64;
        let next_turn = &mut self.next_turn;
        let queue = self.by_owner.entry(key.owner).or_insert_with(|| {
            *next_turn += 1;
            OwnerQueue {
                by_key: BTreeMap::new(),
                turn: *next_turn - 1,
            }
        });
        queue.by_key.insert(key.clone(), request);
        key
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
                        let popped = queue.first_of(0).and_then(|key| queue.remove(&key));
                        let popped = popped.map(|request| request.request_id().to_string());
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
