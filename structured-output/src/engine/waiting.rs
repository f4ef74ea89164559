//! The automaton's lock, for a call that others wait for.
//!
//! Whoever works in memory that all share has the lock for a millisecond or two of the processor's time. How
//! long that lasts is for the system to say: such a thread gives way to all others, and where these keep all
//! processors busy, it may stand still with the lock. So a call with an allowance waits for a while only.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use crate::automaton::TokenAutomaton;

/// The longest that it waits: many times what work that is not held up takes.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);

impl Engine {
    /// The automaton, once nobody is at work; `None` where that lasts. For one and the same work nobody
    /// waits twice.
    pub(super) fn lock_soon(&self) -> Option<MutexGuard<'_, TokenAutomaton>> {
        if let Some(automaton) = self.try_lock() {
            return Some(automaton);
        }
        let is_known_to_last = || {
            let work = self.num_works.load(Ordering::Relaxed);
            self.given_up_on.load(Ordering::Relaxed) == work
        };
        if is_known_to_last() {
            return None;
        }
        let deadline = Instant::now() + LONGEST_WAIT;
        self.num_waiting.fetch_add(1, Ordering::Relaxed);
        let automaton = loop {
            if let Some(automaton) = self.try_lock() {
                break Some(automaton);
            }
            if Instant::now() >= deadline {
                let work = self.num_works.load(Ordering::Relaxed);
                self.given_up_on.store(work, Ordering::Relaxed);
                break None;
            }
            std::thread::sleep(PAUSE);
        };
        self.num_waiting.fetch_sub(1, Ordering::Relaxed);
        automaton
    }
}
