//! One connection: what its client holds, and whether the server waits for it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::Notify;

use super::Connections;
use crate::server::memory::Pool;

/// One connection.
#[derive(Debug)]
pub(in crate::server) struct Connection {
    id: u64,
    address: Option<IpAddr>,
    /// Gone where the server is, or in tests.
    connections: Weak<Connections>,
    state: Mutex<State>,
    /// Bytes by [`Pool`].
    held: [AtomicU64; Pool::COUNT],
    /// Told when the connection is given up.
    closed: Notify,
    /// Told when its body is given up.
    refused: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// Bytes of the head so far.
    head_bytes: u64,
    /// False until there was a request.
    has_asked: bool,
    /// True if the client's bytes had to be waited for since its last request began.
    has_waited: bool,
    /// Since when the client has not taken what is written.
    write_waits_since: Option<Instant>,
    /// Stands for the key that a request had.
    key: Option<u64>,
    /// Handlers and streams at work.
    num_busy: usize,
    is_given_up: bool,
}

/// What happens on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A request is waited for.
    Head,
    /// A request's body is waited for.
    Body,
    /// A request is worked on.
    Work,
}

/// Whose account something is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A key's.
    Key(u64),
    /// An address's.
    Address(IpAddr),
    /// A client's of a Unix domain socket.
    Local,
}

impl Connection {
    pub(super) fn new(
        id: u64,
        address: Option<IpAddr>,
        connections: Weak<Connections>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            address,
            connections,
            state: Mutex::new(State {
                phase: Phase::Head,
                since: Instant::now(),
                head_bytes: 0,
                has_asked: false,
                has_waited: true,
                write_waits_since: None,
                key: None,
                num_busy: 0,
                is_given_up: false,
            }),
            held: Default::default(),
            closed: Notify::new(),
            refused: Notify::new(),
        })
    }

    /// A connection that has no place, and is never given up.
    pub(in crate::server) fn unregistered() -> Arc<Self> {
        Self::new(0, None, Weak::new())
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Puts the connection on the account of a key that its client has shown.
    pub(in crate::server) fn set_key(&self, key: u64) {
        let Some(connections) = self.connections.upgrade() else {
            return;
        };
        if self.state().key == Some(key) {
            return;
        }
        let mut open = connections.open();
        if self.state().key.replace(key).is_none() {
            open.num_strangers = open.num_strangers.saturating_sub(1);
        }
    }

    /// True if the request that comes now was sent together with the one before (pipelined).
    pub(in crate::server) fn is_pipelined(&self) -> bool {
        !self.state().has_waited
    }

    /// The client's bytes have to be waited for.
    pub(in crate::server) fn wait_for_bytes(&self) {
        self.state().has_waited = true;
    }

    /// A request has come and is worked on until the guard and its clones are dropped.
    pub(in crate::server) fn begin_request(self: &Arc<Self>) -> Busy {
        let mut state = self.state();
        state.has_asked = true;
        state.has_waited = false;
        state.is_given_up = false;
        state.head_bytes = 0;
        state.phase = Phase::Work;
        state.num_busy += 1;
        Busy(self.clone())
    }

    /// The request's body is waited for until the guard is dropped.
    pub(in crate::server) fn wait_for_body(&self) -> Wait<'_> {
        self.state().enter(Phase::Body);
        Wait(self)
    }

    /// The request waits for its client's turn until the guard is dropped: meanwhile the connection may be given up,
    /// as before the request came.
    pub(in crate::server) fn wait_for_turn(&self) -> Wait<'_> {
        self.state().enter(Phase::Head);
        Wait(self)
    }

    /// Counts bytes that were read; returns those of a head so far, or 0 where it was no head.
    pub(in crate::server) fn count_read(&self, bytes: usize) -> u64 {
        let mut state = self.state();
        if state.phase != Phase::Head {
            return 0;
        }
        state.head_bytes += bytes as u64;
        state.head_bytes
    }

    /// Says whether the client has yet to take what is written.
    pub(in crate::server) fn set_write_waits(&self, waits: bool) {
        self.state().write_waits_since = waits.then(Instant::now);
    }

    /// Waits until the connection is given up.
    pub(in crate::server) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Another connection needs memory: see [`Connections::make_room`].
    pub(in crate::server) fn make_room(&self, pool: Pool, missing: u64) -> bool {
        let connections = self.connections.upgrade();
        connections.is_some_and(|all| all.make_room(pool, missing, self))
    }

    pub(in crate::server) fn holds_more(&self, pool: Pool, bytes: u64) {
        self.held_in(pool).fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::server) fn holds_less(&self, pool: Pool, bytes: u64) {
        self.held_in(pool).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of a pool.
    pub(super) fn held(&self, pool: Pool) -> u64 {
        self.held_in(pool).load(Ordering::Relaxed)
    }

    fn held_in(&self, pool: Pool) -> &AtomicU64 {
        let [requests, strangers, heads] = &self.held;
        match pool {
            Pool::Requests => requests,
            Pool::Strangers => strangers,
            Pool::Heads => heads,
        }
    }

    pub(super) fn owner(&self) -> Owner {
        match (self.state().key, self.address) {
            (Some(key), _) => Owner::Key(key),
            (None, Some(address)) => Owner::Address(address),
            (None, None) => Owner::Local,
        }
    }

    pub(super) fn is_stranger(&self) -> bool {
        self.state().key.is_none()
    }

    /// True while the first request has not come.
    pub(super) fn is_silent(&self) -> bool {
        !self.state().has_asked
    }

    /// Since when the server waits for the client; `None` while it doesn't, or has given it up.
    pub(super) fn waited_for_since(&self) -> Option<Instant> {
        let state = self.state();
        match state.phase {
            _ if state.is_given_up => None,
            Phase::Head | Phase::Body => Some(state.write_waits_since.unwrap_or(state.since)),
            Phase::Work => state.write_waits_since,
        }
    }

    /// Since when the server waits for a request.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        let is_idle = state.phase == Phase::Head && !state.is_given_up;
        is_idle.then_some(state.since)
    }

    /// Refuses the body that is waited for, or closes the connection.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.is_given_up = true;
        match state.phase {
            Phase::Body => self.refused.notify_one(),
            Phase::Head | Phase::Work => self.closed.notify_one(),
        }
    }

    /// True from then on until it has given back what it holds, or has another request.
    pub(super) fn is_given_up(&self) -> bool {
        self.state().is_given_up
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }
}

/// A request is worked on: see [`Connection::begin_request`].
#[derive(Debug)]
pub(in crate::server) struct Busy(Arc<Connection>);

impl Clone for Busy {
    fn clone(&self) -> Self {
        self.0.state().num_busy += 1;
        Self(self.0.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.num_busy -= 1;
        if state.num_busy == 0 {
            state.enter(Phase::Head);
        }
    }
}

/// A body or a turn is waited for: see [`Connection::wait_for_body`] and [`Connection::wait_for_turn`].
#[derive(Debug)]
pub(in crate::server) struct Wait<'a>(&'a Connection);

impl Wait<'_> {
    /// Waits until the body is given up.
    pub(in crate::server) async fn refused(&self) {
        // An earlier body may have been complete before it heard.
        while !self.is_refused() {
            self.0.refused.notified().await;
        }
    }

    /// True where others need the body's memory.
    pub(in crate::server) fn is_refused(&self) -> bool {
        self.0.state().is_given_up
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.state().enter(Phase::Work);
    }
}
