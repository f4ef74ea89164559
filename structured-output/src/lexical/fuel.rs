//! Steps: the measure of work.

/// Steps left for a piece of work, and the memory that it may fill. Counts what is done, never time, so
/// that a run can be repeated.
#[derive(Debug)]
pub(crate) struct Fuel {
    left: u64,
    max_bytes: usize,
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
        }
    }

    /// No more bytes of states than that from here on.
    pub(crate) fn limit_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Looks whether there is still room where so many bytes of states are held. Asked where states are
    /// made, so that one call can't fill much more than it may.
    pub(crate) fn check_bytes(&self, held: usize) -> Result<(), OutOfFuel> {
        match held > self.max_bytes {
            true => Err(OutOfFuel),
            false => Ok(()),
        }
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
    pub(crate) fn exhaust(&mut self) -> OutOfFuel {
        self.left = 0;
        OutOfFuel
    }

    /// A part of it, for work that may fail alone: what that takes is yet to be burned here.
    pub(crate) fn part(&self, steps: u64) -> Self {
        Self {
            left: self.left.min(steps),
            max_bytes: self.max_bytes,
        }
    }

    /// Steps left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}
