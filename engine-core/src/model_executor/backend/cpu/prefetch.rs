//! Asking for weights before they are needed.
//!
//! A block of rows that fits the registers passes over a part of a panel. With one such block the
//! part comes from memory while it is used, and what is asked for lies a little ahead. With several,
//! the first brings the part into the cache and the others find it there; so that memory doesn't
//! rest meanwhile, each of them asks for its share of the part that follows.

use super::simd::Simd;

/// Bytes ahead of the only block of rows.
const DISTANCE: usize = 4096;

/// Blocks of rows that still wait for memory.
const MOST_BLOCKS: usize = 6;

/// What one block of rows asks for: one step of the depth in `every`, this far ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prefetch {
    every: usize,
    until_next: usize,
    bytes: usize,
}

impl Prefetch {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        every: usize::MAX,
        until_next: usize::MAX,
        bytes: 0,
    };

    /// The share of block `index` of `count`, which pass over `part_bytes` each.
    pub(crate) fn of_block(index: usize, count: usize, part_bytes: usize) -> Self {
        // Where many blocks pass, the products take longer than the memory.
        if count > MOST_BLOCKS {
            return Self::NONE;
        }
        Self {
            every: count,
            until_next: index,
            bytes: if count == 1 { DISTANCE } else { part_bytes },
        }
    }

    /// To be called once per step of the depth, whose `step_bytes` begin at `step`.
    ///
    /// # Safety
    /// The processor must have the level of `S`.
    #[inline(always)]
    pub(crate) unsafe fn step<S: Simd>(&mut self, step: *const u8, step_bytes: usize) {
        if self.until_next == 0 {
            for line in (0..step_bytes).step_by(64) {
                // SAFETY: a prefetch may lie anywhere; the caller vouches for the level.
                unsafe { S::prefetch(step.wrapping_add(self.bytes + line)) };
            }
            self.until_next = self.every;
        }
        self.until_next -= 1;
    }
}
