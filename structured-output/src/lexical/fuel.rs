//! Steps: the measure of work.

use std::cell::Cell;

/// Steps left for a piece of work, and the memory that it may fill. Counts what is done, never time, so
/// that a run can be repeated.
#[derive(Debug)]
pub(crate) struct Fuel {
    left: u64,
    max_bytes: usize,
    /// Whether more than that was held.
    lacks_bytes: Cell<bool>,
    /// What was asked for beyond what is done at all.
    beyond: Option<Bound>,
}

/// A bound that no limit raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// What there are too many of.
    pub(crate) what: &'static str,
    /// As many as there may be.
    pub(crate) max: u64,
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
            lacks_bytes: Cell::new(false),
            beyond: None,
        }
    }

    /// No more bytes of states than that from here on.
    pub(crate) fn limit_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// The bytes of states that there may be.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Looks whether there is still room where so many bytes of states are held. Asked where states are
    /// made, so that one call can't fill much more than it may.
    pub(crate) fn check_bytes(&self, held: usize) -> Result<(), OutOfFuel> {
        if held <= self.max_bytes {
            return Ok(());
        }
        self.lacks_bytes.set(true);
        Err(OutOfFuel)
    }

    /// Whether it was the memory that was used up, also where that was freed since.
    pub(crate) fn lacks_bytes(&self) -> bool {
        self.lacks_bytes.get()
    }

    /// Takes some steps.
    pub(crate) fn burn(&mut self, steps: u64) -> Result<(), OutOfFuel> {
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
            lacks_bytes: Cell::new(false),
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
        if part.lacks_bytes() {
            self.lacks_bytes.set(true);
            return Err(OutOfFuel);
        }
        self.burn(granted - part.left())?;
        Ok(done.ok())
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
