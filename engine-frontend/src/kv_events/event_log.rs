//! The batches of one core that subscribers have yet to get, or may ask for again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Bytes of batches that are kept at most, of each core. A prompt's tokens take some 5 bytes each.
const MAX_BYTES: usize = 64 << 20;

/// One batch, encoded.
pub(super) type Payload = Arc<[u8]>;

/// Batches by their sequence numbers, which begin with 0 and have no gap.
///
/// All subscribers read one copy. A batch is kept for those that have yet to get it, at most `max_waiting` for each,
/// and the last `buffer_steps` for whoever asks again. What a slow subscriber then misses is a gap in its numbers.
#[derive(Debug)]
pub(super) struct EventLog {
    max_waiting: usize,
    buffer_steps: usize,
    state: Mutex<State>,
    /// The next number; told to subscribers that wait.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Payload>,
    num_bytes: usize,
    /// The number of the first batch kept.
    first: u64,
    /// The number that each subscriber gets next.
    cursors: BTreeMap<u64, u64>,
    next_subscriber: u64,
    num_dropped: u64,
}

impl EventLog {
    /// Keeps at most `max_waiting` batches for each subscriber, and the last `buffer_steps` for replays.
    pub(super) fn new(max_waiting: usize, buffer_steps: usize) -> Self {
        Self {
            max_waiting,
            buffer_steps,
            state: Mutex::default(),
            next: watch::Sender::new(0),
        }
    }

    /// Adds a batch. Never waits for anybody.
    pub(super) fn publish(&self, payload: Payload) {
        let mut state = self.state();
        state.num_bytes += payload.len();
        state.batches.push_back(payload);
        let next = state.next();
        let oldest = next.saturating_sub(self.max_waiting as u64);
        state.skip_to(oldest);
        state.trim(self.buffer_steps, MAX_BYTES);
        drop(state);
        self.next.send_replace(next);
    }

    /// The number of the next batch: as many were published.
    pub(super) fn next(&self) -> u64 {
        self.state().next()
    }

    /// Batches that a subscriber should have got and didn't, of all together.
    pub(super) fn num_dropped(&self) -> u64 {
        self.state().num_dropped
    }

    /// The first batch from number `from` on that is kept, and its number.
    pub(super) fn kept(&self, from: u64) -> Option<(u64, Payload)> {
        self.state().kept(from)
    }

    /// Gives the batches from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut state = self.state();
        let id = state.next_subscriber;
        state.next_subscriber += 1;
        let next = state.next();
        state.cursors.insert(id, next);
        drop(state);
        Subscription {
            changed: self.next.subscribe(),
            log: self.clone(),
            id,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves no batch half-written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    fn kept(&self, from: u64) -> Option<(u64, Payload)> {
        let number = from.max(self.first);
        let index = usize::try_from(number - self.first).ok()?;
        let payload = self.batches.get(index)?;
        Some((number, payload.clone()))
    }

    /// Leaves out what subscribers have yet to get before number `oldest`.
    fn skip_to(&mut self, oldest: u64) {
        for cursor in self.cursors.values_mut() {
            self.num_dropped += oldest.saturating_sub(*cursor);
            *cursor = oldest.max(*cursor);
        }
    }

    /// Forgets what nobody needs any more, and what there is no room for.
    fn trim(&mut self, buffer_steps: usize, max_bytes: usize) {
        let needed = self.cursors.values().copied().min();
        while let Some(front) = self.batches.front() {
            let is_needed = needed.is_some_and(|needed| needed <= self.first);
            let is_buffered = self.batches.len() <= buffer_steps;
            if self.num_bytes <= max_bytes && (is_needed || is_buffered) {
                break;
            }
            self.num_bytes -= front.len();
            self.batches.pop_front();
            self.first += 1;
        }
        self.skip_to(self.first);
    }
}

/// One subscriber's way through an [`EventLog`].
#[derive(Debug)]
pub(super) struct Subscription {
    log: Arc<EventLog>,
    id: u64,
    changed: watch::Receiver<u64>,
}

impl Subscription {
    /// The next batch and its number; waits until there is one. A call that is given up takes none.
    pub(super) async fn next(&mut self) -> (u64, Payload) {
        loop {
            self.changed.borrow_and_update();
            if let Some(batch) = self.take() {
                return batch;
            }
            // The sender lives as long as the log, which is held here.
            let _ = self.changed.changed().await;
        }
    }

    fn take(&self) -> Option<(u64, Payload)> {
        let mut state = self.log.state();
        let cursor = *state.cursors.get(&self.id)?;
        let (number, payload) = state.kept(cursor)?;
        state.cursors.insert(self.id, number + 1);
        state.trim(self.log.buffer_steps, MAX_BYTES);
        Some((number, payload))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.log.state();
        state.cursors.remove(&self.id);
        state.trim(self.log.buffer_steps, MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(length: usize) -> Payload {
        vec![0; length].into()
    }

    fn taken(subscription: &Subscription) -> Vec<u64> {
        std::iter::from_fn(|| subscription.take().map(|(number, _)| number)).collect()
    }

    fn num_kept(log: &EventLog) -> usize {
        log.state().batches.len()
    }

    #[test]
    fn nothing_is_kept_where_nobody_reads() {
        let log = EventLog::new(3, 0);
        (0..5).for_each(|_| log.publish(payload(1)));
        assert_eq!((log.next(), num_kept(&log), log.num_dropped()), (5, 0, 0));
        assert!(log.kept(0).is_none());
    }

    #[test]
    fn a_subscriber_gets_what_comes_after_it_and_misses_the_oldest() {
        let log = Arc::new(EventLog::new(3, 0));
        log.publish(payload(1));
        let subscription = log.subscribe();
        let slow = log.subscribe();
        log.publish(payload(1));
        log.publish(payload(1));
        assert_eq!(taken(&subscription), [1, 2]);
        assert_eq!(num_kept(&log), 2, "the slow one has yet to get them");
        (0..3).for_each(|_| log.publish(payload(1)));
        assert_eq!(taken(&subscription), [3, 4, 5]);
        assert_eq!(log.num_dropped(), 2);
        assert_eq!(taken(&slow), [3, 4, 5]);
        assert_eq!(num_kept(&log), 0);
        // One that is gone holds nothing up.
        log.publish(payload(1));
        drop(slow);
        drop(subscription);
        assert_eq!((num_kept(&log), log.num_dropped()), (0, 2));
    }

    #[test]
    fn the_last_steps_can_be_asked_for_again() {
        let log = EventLog::new(1, 2);
        (0..5).for_each(|length| log.publish(payload(length)));
        let numbers = |from| log.kept(from).map(|(number, kept)| (number, kept.len()));
        assert_eq!(numbers(0), Some((3, 3)));
        assert_eq!(numbers(3), Some((3, 3)));
        assert_eq!(numbers(4), Some((4, 4)));
        assert_eq!(numbers(5), None);
        assert_eq!(numbers(u64::MAX), None);
    }

    #[test]
    fn there_is_room_for_so_many_bytes() {
        let log = Arc::new(EventLog::new(100, 100));
        let subscription = log.subscribe();
        let third = MAX_BYTES / 3;
        (0..5).for_each(|_| log.publish(payload(third)));
        assert_eq!((num_kept(&log), log.num_dropped()), (3, 2));
        assert_eq!(taken(&subscription), [2, 3, 4]);
    }
}
