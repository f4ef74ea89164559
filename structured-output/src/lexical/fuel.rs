//! Steps: the measure of work.

/// Steps left for a piece of work. Counts what is done, never time, so that a run can be repeated.
#[derive(Debug)]
pub(crate) struct Fuel {
    left: u64,
}

/// The steps are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfFuel;

impl Fuel {
    /// That many steps.
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: steps }
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

    /// Steps left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}
