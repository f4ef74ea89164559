//! Bounds on what references within a schema lead to.

use super::TagError;
use super::fields::refuse;

/// How far references have led: a schema may refer to itself, or to others again and again.
#[derive(Default)]
pub(super) struct Depth {
    within: usize,
    num_values: usize,
}

impl Depth {
    /// Schemas within each other, over references.
    const MAX_WITHIN: usize = 64;
    /// Schemas read, one that is referred to as often as that.
    const MAX_VALUES: usize = 100_000;

    /// Enters a schema within one.
    pub(super) fn enter(&mut self, pointer: &str) -> Result<(), TagError> {
        self.within += 1;
        if self.within > Self::MAX_WITHIN {
            let max = Self::MAX_WITHIN;
            let message =
                format!("schemas lead more than {max} deep into each other in this style");
            return refuse(pointer, message);
        }
        Ok(())
    }

    /// Leaves it again.
    pub(super) fn leave(&mut self) {
        self.within -= 1;
    }

    /// Counts a schema that is read.
    pub(super) fn count(&mut self, pointer: &str) -> Result<(), TagError> {
        self.num_values += 1;
        if self.num_values > Self::MAX_VALUES {
            let max = Self::MAX_VALUES;
            return refuse(
                pointer,
                format!("references lead to more than {max} schemas"),
            );
        }
        Ok(())
    }
}
