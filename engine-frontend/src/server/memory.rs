//! Memory that requests and answers may take together, and who holds how much of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;

use super::connections::Connection;
use crate::client_turns::ClientTurns;

/// Bytes for all requests and answers of clients without a key, where there are keys. With
/// [`HEADS`](Self::HEADS) and the connections of such clients it is 64 MiB.
const STRANGERS_BYTES: u64 = 24 << 20;
/// Bytes for all heads beyond what every connection has room for.
const HEADS_BYTES: u64 = 16 << 20;
/// Heads of the largest size that there is room for at least.
const LARGEST_HEADS: u64 = 4;
/// Bytes of memory per byte of a body that a stream keeps of its request: texts and token ids.
const STREAM_BYTES_PER_BYTE: u64 = 4;
/// Bytes of memory per byte of a head: `BytesMut` doubles, and holds the old bytes while it copies them.
pub(super) const HEAD_BYTES_PER_BYTE: u64 = 3;

/// What a budget is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    /// Requests and answers.
    Requests,
    /// Requests and answers of clients without a key, where there are keys.
    Strangers,
    /// Heads that are larger than most.
    Heads,
}

impl Pool {
    pub(super) const COUNT: usize = 3;
}

/// Bytes of memory that are shared out and given back.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Pot>);

#[derive(Debug)]
struct Pot {
    pool: Pool,
    size: u64,
    taken: AtomicU64,
    long_answers: ClientTurns,
}

impl Budget {
    /// A budget of `size` bytes.
    pub(super) fn new(pool: Pool, size: u64) -> Self {
        Self(Arc::new(Pot {
            pool,
            size,
            taken: AtomicU64::new(0),
            long_answers: ClientTurns::new(2, 1),
        }))
    }

    /// The budget for requests.
    pub(super) fn for_requests(bytes: u64) -> Self {
        Self::new(Pool::Requests, bytes)
    }

    /// The budget for clients without a key.
    pub(super) fn for_strangers() -> Self {
        Self::new(Pool::Strangers, STRANGERS_BYTES)
    }

    /// The budget for heads, which have at most `max_head` bytes.
    pub(super) fn for_heads(max_head: u64) -> Self {
        let largest = max_head.saturating_mul(HEAD_BYTES_PER_BYTE * LARGEST_HEADS);
        Self::new(Pool::Heads, HEADS_BYTES.max(largest))
    }

    /// A share of nothing yet, for what this connection's client makes the server hold.
    pub(super) fn share(&self, connection: &Arc<Connection>) -> Share {
        Share {
            budget: self.clone(),
            connection: connection.clone(),
            amount: 0,
            body_bytes: 0,
        }
    }

    /// Bytes of all shares together, before there is no more.
    pub(super) fn size(&self) -> u64 {
        self.0.size
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Takes bytes while no more than `limit` are taken; the error is how many there are too few.
    fn take(&self, bytes: u64, limit: u64) -> Result<(), u64> {
        let taken = self
            .0
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                let more = taken.saturating_add(bytes);
                (more <= limit).then_some(more)
            });
        taken.map(drop).map_err(|taken| {
            let wanted = taken.saturating_add(bytes);
            wanted.saturating_sub(limit)
        })
    }
}

/// A part of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    connection: Arc<Connection>,
    amount: u64,
    /// The body's length, where it is a request's.
    pub(super) body_bytes: u64,
}

impl Share {
    /// Takes more; `false`, and nothing taken, where not so much is left. Before that, clients that the
    /// server waits for are given up: what they hold is free within a moment, and counts as free.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        self.grow_within(bytes, self.budget.size())
    }

    /// Becomes as large as an answer that takes the request's place. An answer is the fruit of work, so
    /// it may take half of the budget's size more than requests may.
    pub(super) fn resize_for_answer(&mut self, bytes: u64) -> bool {
        if bytes <= self.amount {
            self.shrink_to(bytes);
            return true;
        }
        let size = self.budget.size();
        let limit = match self.budget.0.pool {
            Pool::Requests => size + size / 2,
            Pool::Strangers | Pool::Heads => size,
        };
        self.grow_within(bytes - self.amount, limit)
    }

    /// Becomes as large as what a stream keeps of its request, whose JSON values are gone.
    pub(super) fn resize_for_stream(&mut self) {
        self.shrink_to(self.body_bytes.saturating_mul(STREAM_BYTES_PER_BYTE));
    }

    /// Gives back what is above `amount`.
    pub(super) fn shrink_to(&mut self, amount: u64) {
        let less = self.amount.saturating_sub(amount);
        self.amount -= less;
        let pot = &self.budget.0;
        pot.taken.fetch_sub(less, Ordering::Relaxed);
        self.connection.holds_less(pot.pool, less);
    }

    /// Turns for making long answers, which clients take so that many at once don't take the processors from
    /// tokens.
    pub(super) fn long_answers(&self) -> ClientTurns {
        self.budget.0.long_answers.clone()
    }

    /// Another share of the same budget for the same client.
    pub(super) fn sibling(&self) -> Self {
        self.budget.share(&self.connection)
    }

    /// The bytes of an answer, which hold the share until they are written.
    pub(super) fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held {
            bytes,
            _share: self,
        })
    }

    /// The budget.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Bytes that it has.
    pub(super) fn amount(&self) -> u64 {
        self.amount
    }

    fn grow_within(&mut self, bytes: u64, limit: u64) -> bool {
        let pot = &self.budget.0;
        if let Err(missing) = self.budget.take(bytes, limit) {
            if !self.connection.make_room(pot.pool, missing) {
                return false;
            }
            pot.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        self.amount += bytes;
        self.connection.holds_more(pot.pool, bytes);
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// An answer's bytes with their share.
struct Held {
    bytes: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn_and_comes_back() {
        let connection = Connection::unregistered();
        let budget = Budget::new(Pool::Requests, 10);
        let (mut a, mut b) = (budget.share(&connection), budget.share(&connection));
        assert!(a.grow(6));
        assert!(!b.grow(5));
        assert!(b.grow(4));
        assert!(!a.grow(1));
        drop(b);
        assert!(a.grow(4));
        a.shrink_to(3);
        assert_eq!((a.amount(), budget.taken()), (3, 3));
    }

    #[test]
    fn answers_may_take_half_as_much_more() {
        let connection = Connection::unregistered();
        let budget = Budget::new(Pool::Requests, 10);
        let (mut request, mut answer) = (budget.share(&connection), budget.share(&connection));
        assert!(request.grow(8) && answer.grow(2));
        assert!(answer.resize_for_answer(7));
        assert!(!answer.resize_for_answer(8));
        assert!(answer.resize_for_answer(1));
        let bytes = request.hold(vec![b'x'; 3]);
        let part = bytes.slice(1..2);
        drop(bytes);
        assert_eq!(budget.taken(), 9);
        drop(part);
        assert_eq!(budget.taken(), 1);
    }
}
