//! Bounds on what references within a schema lead to.

use super::TagError;
use super::fields::refuse;

/// How far references have led: a schema may refer to itself, or to others again and again.
#[derive(Default)]
pub(super) struct Depth {
    within: usize,
    num_values: usize,
    num_bytes: usize,
}

impl Depth {
    /// Schemas within each other, over references.
    const MAX_WITHIN: usize = 64;
    /// Schemas read, one that is referred to as often as that.
    const MAX_VALUES: usize = 100_000;
    /// Bytes of the schemas that are written out, each with the definitions of the whole.
    const MAX_BYTES: usize = 16 << 20;

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

    /// Counts bytes of schemas that are written out.
    pub(super) fn write(&mut self, num_bytes: usize, pointer: &str) -> Result<(), TagError> {
        self.num_bytes += num_bytes;
        if self.num_bytes > Self::MAX_BYTES {
            let max = Self::MAX_BYTES;
            let message =
                format!("schemas of values, each with all definitions, have more than {max} bytes");
            return refuse(pointer, message);
        }
        Ok(())
    }
}
