//! Places for work that takes long, which clients take in turns.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::yield_now;

tokio::task_local! {
    /// The client whose request a future is about. See [`GenerateRequest::owner`](crate::GenerateRequest::owner).
    pub(crate) static CLIENT: u64;
}

/// A number of places. One that is free goes to the client with the fewest, and of equals to the one served
/// longest ago, as in the engine core's queue: a client that asks a thousand times is waited for once. A
/// client is [`CLIENT`]; futures without one are of one client.
#[derive(Debug, Clone)]
pub(crate) struct ClientTurns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    max_per_client: usize,
    clients: HashMap<u64, Places>,
    num_served: u64,
}

/// The places that one client has taken, and its futures that wait for more.
#[derive(Debug, Default)]
struct Places {
    taken: usize,
    last_served: u64,
    waiting: VecDeque<oneshot::Sender<ClientTurn>>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct ClientTurn {
    turns: ClientTurns,
    client: u64,
}

impl ClientTurns {
    /// So many places, of which a client has at most `max_per_client` at once.
    pub(crate) fn new(places: usize, max_per_client: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: places,
            max_per_client,
            clients: HashMap::new(),
            num_served: 0,
        })))
    }

    /// A place, once it is the client's turn. A future that is dropped takes none.
    pub(crate) async fn acquire(&self) -> Option<ClientTurn> {
        let client = CLIENT.try_with(|client| *client).unwrap_or_default();
        let waits = {
            let mut state = self.lock();
            let max_per_client = state.max_per_client;
            let is_free = state.free > 0;
            let places = state.clients.entry(client).or_default();
            if is_free && places.taken < max_per_client {
                return Some(self.take(&mut state, client));
            }
            let (sender, receiver) = oneshot::channel();
            places.waiting.push_back(sender);
            receiver
        };
        // A sender goes only with a place, since this future keeps them all.
        waits.await.ok()
    }

    /// Waits for the client's turn, which passes on at once, after the runtime has looked for what came in meanwhile. A
    /// crowd of futures that pass before they do a little work does it one by one, and others wait for one of them.
    pub(crate) async fn pass(&self) {
        let turn = self.acquire().await;
        yield_now().await;
        drop(turn);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free place for a client.
    fn take(&self, state: &mut State, client: u64) -> ClientTurn {
        state.free -= 1;
        state.num_served += 1;
        let last_served = state.num_served;
        let places = state.clients.entry(client).or_default();
        places.taken += 1;
        places.last_served = last_served;
        ClientTurn {
            turns: self.clone(),
            client,
        }
    }

    /// Takes a place for the next client that waits for one.
    fn take_next(&self, state: &mut State) -> Option<(oneshot::Sender<ClientTurn>, ClientTurn)> {
        while state.free > 0 {
            let max_per_client = state.max_per_client;
            let next = (state.clients.iter_mut())
                .filter(|(_, places)| places.taken < max_per_client && !places.waiting.is_empty())
                .min_by_key(|(_, places)| (places.taken, places.last_served));
            let (&client, places) = next?;
            let waits = places
                .waiting
                .pop_front()
                .filter(|waits| !waits.is_closed());
            if let Some(waits) = waits {
                return Some((waits, self.take(state, client)));
            }
            state.forget_idle(client);
        }
        None
    }
}

impl State {
    fn forget_idle(&mut self, client: u64) {
        if let Some(places) = self.clients.get(&client)
            && places.taken == 0
            && places.waiting.is_empty()
        {
            self.clients.remove(&client);
        }
    }
}

impl Drop for ClientTurn {
    fn drop(&mut self) {
        let next = {
            let mut state = self.turns.lock();
            state.free += 1;
            if let Some(places) = state.clients.get_mut(&self.client) {
                places.taken -= 1;
            }
            let next = self.turns.take_next(&mut state);
            state.forget_idle(self.client);
            next
        };
        // Without the lock: a turn that nobody waits for any more is dropped here.
        if let Some((waits, turn)) = next {
            let _ = waits.send(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Polls once, as a client.
    fn poll<F: Future>(client: u64, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        let mut context = Context::from_waker(Waker::noop());
        CLIENT.sync_scope(client, || future.poll(&mut context))
    }

    fn taken(poll: Poll<Option<ClientTurn>>) -> ClientTurn {
        match poll {
            Poll::Ready(Some(turn)) => turn,
            other => panic!("no turn: {other:?}"),
        }
    }

    #[test]
    fn a_client_that_asks_often_is_waited_for_once() {
        let turns = ClientTurns::new(1, 1);
        let first = taken(poll(1, pin!(turns.acquire())));
        let mut crowd: Vec<_> = (0..100).map(|_| Box::pin(turns.acquire())).collect();
        for waits in &mut crowd {
            assert!(poll(1, waits.as_mut()).is_pending());
        }
        let mut other = pin!(turns.acquire());
        assert!(poll(2, other.as_mut()).is_pending());
        drop(first);
        let turn = taken(poll(2, other));
        assert!(poll(1, crowd[0].as_mut()).is_pending());
        drop(turn);
        // In the order in which they came.
        for waits in &mut crowd {
            drop(taken(poll(1, waits.as_mut())));
        }
        assert!(turns.lock().clients.is_empty());
    }

    #[test]
    fn a_client_has_no_more_than_its_places() {
        let turns = ClientTurns::new(2, 1);
        let first = taken(poll(1, pin!(turns.acquire())));
        let mut second = pin!(turns.acquire());
        assert!(poll(1, second.as_mut()).is_pending());
        // There is another place, for another one.
        let other = taken(poll(2, pin!(turns.acquire())));
        drop(other);
        assert!(poll(1, second.as_mut()).is_pending());
        drop(first);
        drop(taken(poll(1, second)));
        assert_eq!(turns.lock().free, 2);
    }

    #[test]
    fn who_waits_no_more_takes_no_place() {
        let turns = ClientTurns::new(1, 1);
        let first = taken(poll(1, pin!(turns.acquire())));
        let mut gone = Box::pin(turns.acquire());
        assert!(poll(2, gone.as_mut()).is_pending());
        let mut had = Box::pin(turns.acquire());
        assert!(poll(3, had.as_mut()).is_pending());
        let mut waits = pin!(turns.acquire());
        assert!(poll(4, waits.as_mut()).is_pending());
        drop(gone);
        drop(first);
        // It was given a place, and goes before it looks.
        drop(had);
        drop(taken(poll(4, waits)));
        assert_eq!(turns.lock().free, 1);
        assert!(turns.lock().clients.is_empty());
    }

    /// Counts how often a crowd of client 1 passes, for ever.
    fn start_crowd(turns: &ClientTurns) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let (turns, count) = (turns.clone(), count.clone());
            tokio::spawn(CLIENT.scope(1, async move {
                loop {
                    turns.pass().await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        count
    }

    #[tokio::test]
    async fn others_wait_for_one_of_a_crowd_that_passes() {
        let turns = ClientTurns::new(1, 1);
        let passed = start_crowd(&turns);
        while passed.load(Ordering::Relaxed) < 2000 {
            yield_now().await;
        }
        // Who needs no turn, and waits for something five times.
        let before = passed.load(Ordering::Relaxed);
        for _ in 0..5 {
            yield_now().await;
        }
        let passed_meanwhile = passed.load(Ordering::Relaxed) - before;
        assert!(passed_meanwhile <= 10, "{passed_meanwhile}");
        // Another client that does.
        let before = passed.load(Ordering::Relaxed);
        CLIENT.scope(2, turns.pass()).await;
        let passed_meanwhile = passed.load(Ordering::Relaxed) - before;
        assert!(passed_meanwhile <= 4, "{passed_meanwhile}");
    }
}
