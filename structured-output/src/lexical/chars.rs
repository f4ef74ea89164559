//! How many characters a text has.

use super::arena::UNBOUNDED;

/// Bounds on the length of a text in characters; `max` may be [`UNBOUNDED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Chars {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Chars {
    /// Any length.
    pub(crate) const ANY: Self = Self {
        min: 0,
        max: UNBOUNDED,
    };

    pub(crate) fn sum(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    pub(crate) fn times(self, min: u32, max: u32) -> Self {
        let unbounded = max == UNBOUNDED && self.max > 0;
        Self {
            min: self.min.saturating_mul(min),
            max: if unbounded {
                UNBOUNDED
            } else {
                self.max.saturating_mul(max)
            },
        }
    }
}
