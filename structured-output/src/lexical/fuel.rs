//! Steps: the measure of work.

use std::cell::Cell;

use crate::metered::MeteredAllocator;

/// Steps left for a piece of work, and the memory that it may fill. Counts what is done, never time, so
/// that a run can be repeated.
#[derive(Debug)]
pub(crate) struct Fuel {
    left: u64,
    max_bytes: usize,
    /// As much as the thread may hold, by its own count.
    max_thread_bytes: isize,
    /// Of which of both more was held.
    lacks: Cell<Option<Lack>>,
    /// What was asked for beyond what is done at all.
    beyond: Option<Bound>,
}

/// A bound that takes all that is left, for a reason of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// What there are too many of.
    pub(crate) what: &'static str,
    /// As many as there may be.
    pub(crate) max: u64,
}

/// Memory of which there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// That of the states, which all share.
    States,
    /// What one piece of work may take of any kind.
    Thread,
}

/// The steps are used up, or the memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfFuel;

impl Fuel {
    /// That many steps.
    pub(crate) fn new(steps: u64) -> Self {
        Self {
            left: steps,
            max_bytes: usize::MAX,
            max_thread_bytes: isize::MAX,
            lacks: Cell::new(None),
            beyond: None,
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
    pub(crate) fn check_bytes(&self, held: usize) -> Result<(), OutOfFuel> {
        match held <= self.max_bytes {
            true => self.check_thread_bytes(),
            false => Err(self.out_of_bytes(Lack::States)),
        }
    }

    fn check_thread_bytes(&self) -> Result<(), OutOfFuel> {
        match MeteredAllocator::thread_bytes() <= self.max_thread_bytes {
            true => Ok(()),
            false => Err(self.out_of_bytes(Lack::Thread)),
        }
    }

    #[cold]
    fn out_of_bytes(&self, lack: Lack) -> OutOfFuel {
        self.lacks.set(Some(lack));
        OutOfFuel
    }

    /// What memory was used up, if some was, also where that was freed since.
    pub(crate) fn lacks(&self) -> Option<Lack> {
        self.lacks.get()
    }

    /// Takes some steps, of which each may have taken memory too.
    pub(crate) fn burn(&mut self, steps: u64) -> Result<(), OutOfFuel> {
        self.check_thread_bytes()?;
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(OutOfFuel)
            }
        }
    }

    /// Takes all steps that are left: what would come next is beyond what is done at all.
    pub(crate) fn exhaust(&mut self, what: &'static str, max: u64) -> OutOfFuel {
        self.left = 0;
        self.beyond = Some(Bound { what, max });
        OutOfFuel
    }

    /// A part of it, for work that may fail alone: what that takes is yet to be burned here.
    pub(crate) fn part(&self, steps: u64) -> Self {
        Self {
            left: self.left.min(steps),
            max_bytes: self.max_bytes,
            max_thread_bytes: self.max_thread_bytes,
            lacks: Cell::new(None),
            beyond: None,
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
        work: impl FnOnce(&mut Self) -> Result<T, OutOfFuel>,
    ) -> Result<Option<T>, OutOfFuel> {
        let mut part = self.part(steps);
        let granted = part.left();
        let done = work(&mut part);
        if part.lacks().is_some() {
            self.lacks.set(part.lacks());
            return Err(OutOfFuel);
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
        work: impl FnOnce(&mut Self) -> Result<T, OutOfFuel>,
    ) -> Result<Option<T>, OutOfFuel> {
        let has_all = self.left >= steps;
        match self.within(steps, work)? {
            None if !has_all => Err(OutOfFuel),
            done => Ok(done),
        }
    }

    /// The bound because of which all steps were taken, if it was for one.
    pub(crate) fn beyond(&self) -> Option<Bound> {
        self.beyond
    }

    /// Steps left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}
