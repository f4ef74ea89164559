//! Who is connected, and whom the server waits for: where places or memory run short, it gives up the
//! clients that it waits for, and never those that wait for it.
//!
//! A server waits for a client that sends a head or a body, is silent between two requests, or doesn't
//! take its answer. Such a client alone decides how long it holds what it holds, so that no limit on time
//! protects the others: 0.5 MB/s of bodies that never end would hold any pool for good. Of these clients
//! the one that holds the most in all its connections pays first, with the connection that the server has
//! waited for the longest. A body that comes at once is never waited for, and so never refused for others'
//! sake.

mod connection;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::args::ServerArgs;
use super::memory::{Budget, Pool};
use connection::Owner;
pub(super) use connection::{Busy, Connection, Wait};

/// Most connections of clients that have shown no key, where there are keys. Each takes about 24 KiB:
/// buffers of 8 KiB for both directions, and the connection's state.
const MAX_STRANGERS: usize = 1024;

/// Open files that are kept from connections: logs, the sockets of cores, the management port's 64 connections, and what
/// it takes to start a core in the place of one that died. Half of all, where that is less.
const RESERVED_FILES: u64 = 128;

/// How often a client that waits for a place looks whether somebody can be given up for it.
const PLACE_CHECK: Duration = Duration::from_millis(100);

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: u32,
    max_per_address: usize,
    /// `None` where there are no keys.
    max_strangers: Option<usize>,
    places: Arc<Semaphore>,
    heads: Budget,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    by_address: HashMap<IpAddr, usize>,
    num_strangers: usize,
    next_id: u64,
}

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// In all.
    pub(super) max: u32,
    /// Of one address.
    pub(super) max_per_address: u32,
    /// Whether clients have keys to show.
    pub(super) has_keys: bool,
    /// Largest head in bytes.
    pub(super) max_head: u64,
}

impl Limits {
    /// Those of a listener.
    pub(super) fn new(args: &ServerArgs, has_keys: bool) -> Self {
        Self {
            max: within_files(args.max_connections, getrlimit(Resource::Nofile).current),
            max_per_address: args.max_connections_per_address(),
            has_keys,
            max_head: args.h11_max_incomplete_event_size,
        }
    }
}

/// `max` connections, or as many as leave files for other things where the process may open `files` at a time; `None` is
/// no limit.
fn within_files(max: u32, files: Option<u64>) -> u32 {
    let Some(files) = files else {
        return max;
    };
    let for_connections = files - RESERVED_FILES.min(files / 2);
    max.min(u32::try_from(for_connections).unwrap_or(u32::MAX).max(1))
}

/// A connection's place among all. Dropped, it is free.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connection: Arc<Connection>,
    connections: Arc<Connections>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            max: limits.max,
            max_per_address: limits.max_per_address as usize,
            max_strangers: limits.has_keys.then_some(MAX_STRANGERS),
            places: Arc::new(Semaphore::new(limits.max as usize)),
            heads: Budget::for_heads(limits.max_head),
            open: Mutex::default(),
        })
    }

    /// Gives a connection a place when there is one. `None` where its address has too many that are used.
    pub(super) async fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let address = address.map(network);
        if let Some(address) = address {
            let open = self.open();
            let count = open.by_address.get(&address).copied().unwrap_or_default();
            if count >= self.max_per_address && !open.close_silent_of(address) {
                return None;
            }
        }
        let permit = loop {
            if let Ok(permit) = self.places.clone().try_acquire_owned() {
                break Some(permit);
            }
            self.open().close_idle();
            let permit = self.places.clone().acquire_owned();
            if let Ok(permit) = timeout(PLACE_CHECK, permit).await {
                // Fails only where the semaphore is closed, which it never is.
                break permit.ok();
            }
        };
        let mut open = self.open();
        let id = open.next_id;
        open.next_id += 1;
        if let Some(address) = address {
            *open.by_address.entry(address).or_default() += 1;
        }
        open.num_strangers += 1;
        if self
            .max_strangers
            .is_some_and(|max| open.num_strangers > max)
        {
            open.close_stranger();
        }
        let connection = Connection::new(id, address, Arc::downgrade(self));
        open.by_id.insert(id, connection.clone());
        drop(open);
        Some(Place {
            connection,
            connections: self.clone(),
            _permit: permit,
        })
    }

    /// Waits until the last connection is closed.
    pub(super) async fn all_closed(&self) {
        let _ = self.places.acquire_many(self.max).await;
    }

    /// Gives up clients that the server waits for, until they hold as many bytes of a pool as are
    /// `missing`; `false` where they hold less, or where the next to give up would be one of those that
    /// the memory is for.
    fn make_room(&self, pool: Pool, missing: u64, asking: &Connection) -> bool {
        let open = self.open();
        let mut held: HashMap<Owner, u64> = HashMap::new();
        let mut waited_for = Vec::new();
        let mut is_coming = 0;
        for connection in open.by_id.values() {
            let bytes = connection.held(pool);
            if bytes == 0 {
                continue;
            }
            if connection.is_given_up() {
                is_coming += bytes;
                continue;
            }
            let owner = connection.owner();
            *held.entry(owner).or_default() += bytes;
            if !std::ptr::eq(&raw const **connection, asking)
                && let Some(since) = connection.waited_for_since()
            {
                waited_for.push((owner, since, bytes, connection));
            }
        }
        let missing = missing.saturating_sub(is_coming);
        if waited_for.iter().map(|(_, _, bytes, _)| bytes).sum::<u64>() < missing {
            return false;
        }
        waited_for.sort_by_key(|(_, since, _, _)| *since);
        let own = asking.owner();
        let mut freed = 0;
        while freed < missing {
            let Some((&owner, _)) = held.iter().max_by_key(|(_, bytes)| **bytes) else {
                return false;
            };
            let Some(index) = waited_for.iter().position(|(o, ..)| *o == owner) else {
                if owner == own {
                    return false;
                }
                // All that this client holds is worked on.
                held.remove(&owner);
                continue;
            };
            let (_, _, bytes, connection) = waited_for.remove(index);
            connection.give_up();
            freed += bytes;
            held.entry(owner).and_modify(|held| *held -= bytes);
        }
        true
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Closes the connection of an address that has waited the longest without a request.
    fn close_silent_of(&self, address: IpAddr) -> bool {
        let of_address = |c: &&Arc<Connection>| c.address() == Some(address) && c.is_silent();
        self.close_first(of_address, |c| c.idle_since())
    }

    /// Closes a connection that waits for a request: one that never had any before one that had, one
    /// without a key before one with, and then the one that has waited the longest.
    fn close_idle(&self) -> bool {
        self.close_first(
            |_| true,
            |c| {
                let since = c.idle_since()?;
                Some((!c.is_silent(), !c.is_stranger(), since))
            },
        )
    }

    /// Closes the connection of a client without a key: of the address that has the most of them the one that
    /// the server has waited for the longest.
    fn close_stranger(&self) -> bool {
        let mut of_address: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for connection in self.by_id.values().filter(|c| c.is_stranger()) {
            *of_address.entry(connection.address()).or_default() += 1;
        }
        self.close_first(
            |c| c.is_stranger(),
            |c| {
                let since = c.waited_for_since()?;
                let count = of_address.get(&c.address()).copied().unwrap_or_default();
                Some((Reverse(count), since))
            },
        )
    }

    fn close_first<K: Ord>(
        &self,
        filter: impl Fn(&&Arc<Connection>) -> bool,
        key: impl Fn(&Connection) -> Option<K>,
    ) -> bool {
        let connections = self.by_id.values().filter(filter);
        let candidates = connections.filter_map(|c| Some((key(c)?, c)));
        let first = candidates.min_by(|(a, _), (b, _)| a.cmp(b));
        first.is_some_and(|(_, connection)| {
            connection.give_up();
            true
        })
    }
}

impl Place {
    /// The memory for large heads.
    pub(super) fn heads(&self) -> &Budget {
        &self.connections.heads
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.by_id.remove(&self.connection.id());
        if self.connection.is_stranger() {
            open.num_strangers = open.num_strangers.saturating_sub(1);
        }
        if let Some(address) = self.connection.address()
            && let Some(count) = open.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: of IPv6 a network of 64 bits, which is one customer's.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mut segments = address.segments();
            segments[4..].fill(0);
            Ipv6Addr::from(segments).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests;
