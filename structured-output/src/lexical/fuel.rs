//! Steps: the measure of work.

use crate::bound::Bound;
use crate::metered::MeteredAllocator;

/// Steps left for a piece of work, and the memory that it may fill. Counts what is done, never time, so
/// that a run can be repeated.
#[derive(Debug)]
pub(crate) struct Fuel {
    left: u64,
    max_bytes: usize,
    /// As much as the thread may hold, by its own count.
    max_thread_bytes: isize,
}

/// Why work ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its steps are used up.
    Steps,
    /// Its memory is.
    Bytes(Lack),
    /// A text could be read in more ways at once than may be.
    Items,
    /// It met a bound that no option raises.
    Bound(Bound),
}

/// Memory of which there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// That of the states, which all share.
    States,
    /// What one piece of work may take of any kind.
    Thread,
}

impl Fuel {
    /// That many steps.
    pub(crate) fn new(steps: u64) -> Self {
        Self {
            left: steps,
            max_bytes: usize::MAX,
            max_thread_bytes: isize::MAX,
        }
    }

    /// No more bytes of states than that from here on.
    pub(crate) fn limit_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Only so many eighths of the bytes from here on: of those of states, and of what the thread may still
    /// take.
    pub(crate) fn limit_to_eighths(&mut self, eighths: usize) {
        self.max_bytes = self.max_bytes / 8 * eighths;
        let held = MeteredAllocator::thread_bytes();
        let left = self.max_thread_bytes.saturating_sub(held).max(0);
        self.max_thread_bytes = held.saturating_add(left / 8 * eighths as isize);
    }

    /// No more bytes than that beyond what the thread holds now, of whatever kind.
    pub(crate) fn limit_thread_bytes(&mut self, more: usize) {
        let more = isize::try_from(more).unwrap_or(isize::MAX);
        self.max_thread_bytes = MeteredAllocator::thread_bytes().saturating_add(more);
    }

    /// Looks whether there is still room where so many bytes of states are held. Asked where states are
    /// made, so that one call can't fill much more than it may.
    pub(crate) fn check_bytes(&self, held: usize) -> Result<(), Stop> {
        match held <= self.max_bytes {
            true => self.check_thread_bytes(),
            false => Err(Stop::Bytes(Lack::States)),
        }
    }

    fn check_thread_bytes(&self) -> Result<(), Stop> {
        match MeteredAllocator::thread_bytes() <= self.max_thread_bytes {
            true => Ok(()),
            false => Err(Stop::Bytes(Lack::Thread)),
        }
    }

    /// Takes some steps, of which each may have taken memory too.
    pub(crate) fn burn(&mut self, steps: u64) -> Result<(), Stop> {
        self.check_thread_bytes()?;
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Stop::Steps)
            }
        }
    }

    /// Takes all steps that are left: what would come next is beyond a bound.
    pub(crate) fn exhaust(&mut self, bound: Bound) -> Stop {
        self.left = 0;
        Stop::Bound(bound)
    }

    /// A part of it, for work that may fail alone: what that takes is yet to be burned here.
    pub(crate) fn part(&self, steps: u64) -> Self {
        Self {
            left: self.left.min(steps),
            ..*self
        }
    }

    /// Does some work with a [part](Self::part), and burns what that took. `None` where the part was not
    /// enough.
    ///
    /// # Errors
    /// It was the memory that was used up: there is no more for anything else either.
    pub(crate) fn within<T>(
        &mut self,
        steps: u64,
        work: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<Option<T>, Stop> {
        let mut part = self.part(steps);
        let granted = part.left();
        let done = work(&mut part);
        if let Err(stop @ Stop::Bytes(_)) = done {
            return Err(stop);
        }
        self.burn(granted - part.left())?;
        Ok(done.ok())
    }

    /// As [`within`](Self::within), for work that is to have all of its steps.
    ///
    /// # Errors
    /// The memory is used up; or all steps that are left, which are fewer.
    pub(crate) fn all_within<T>(
        &mut self,
        steps: u64,
        work: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<Option<T>, Stop> {
        let has_all = self.left >= steps;
        match self.within(steps, work)? {
            None if !has_all => Err(Stop::Steps),
            done => Ok(done),
        }
    }

    /// Steps left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}
