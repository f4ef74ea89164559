//! Rows in blocks that fit the registers, and asking for weights before they are needed.
//!
//! A block of rows that fits the registers passes over a part of a panel. With one such block the
//! part comes from memory while it is used, and what is asked for lies a little ahead. With several,
//! the first brings the part into the cache and the others find it there; so that memory doesn't
//! rest meanwhile, each of them asks for its share of the part that follows.

use super::simd::Simd;

/// Bytes ahead of the only block of rows.
///
/// Within the page of 4 KiB that is read: the processor's own prefetching goes by pages, and what is asked
/// for in another one disturbs it (one core of a machine with AMX read 19 to 20 GB/s with 1 to 3 KiB, 16.5
/// with 4 or 8, 16.4 where nothing was asked for).
pub(super) const DISTANCE: usize = 2048;

/// The same where lines are asked for one by one as others are read: into the first cache ...
const NEAR: usize = 2048;

/// ... and, some of them of the next page, into the second.
const FAR: usize = 5120;

/// Blocks of rows that still wait for memory.
const MOST_BLOCKS: usize = 6;

/// Some of the rows that pass over a part of a panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowBlock {
    /// Their first.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// What they ask for meanwhile.
    pub(crate) prefetch: Prefetch,
}

/// Blocks of at most `most` rows, as even as possible: 9 rows of at most 8 are 5 and 4. Each passes
/// over the same `part_bytes`, which are followed by what is read next; `None` is that they are not.
pub(crate) fn row_blocks(
    rows: usize,
    most: usize,
    part_bytes: Option<usize>,
) -> impl Iterator<Item = RowBlock> {
    let num_blocks = rows.div_ceil(most);
    let mut first = 0;
    (0..num_blocks).map(move |index| {
        let block = RowBlock {
            first,
            count: (rows - first).div_ceil(num_blocks - index),
            prefetch: match part_bytes {
                Some(bytes) => Prefetch::of_block(index, num_blocks, bytes),
                None => Prefetch::NONE,
            },
        };
        first += block.count;
        block
    })
}

impl RowBlock {
    /// The same, asking for some lines in each step rather than for all of some steps, and no nearer than
    /// the second cache: where steps are many lines, those of one step at once keep all places busy in
    /// which lines are waited for.
    pub(crate) fn asking_evenly(mut self) -> Self {
        self.prefetch.is_even = true;
        self
    }
}

/// What one block of rows asks for: one step of the depth in `every`, this far ahead, or a share of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prefetch {
    every: usize,
    until_next: usize,
    bytes: usize,
    /// The block's place among `every`.
    index: usize,
    is_even: bool,
}

impl Prefetch {
    /// Nothing.
    const NONE: Self = Self {
        every: usize::MAX,
        until_next: usize::MAX,
        bytes: 0,
        index: 0,
        is_even: false,
    };

    /// The share of block `index` of `count`, which pass over `part_bytes` each.
    fn of_block(index: usize, count: usize, part_bytes: usize) -> Self {
        // Where many blocks pass, the products take longer than the memory.
        if count > MOST_BLOCKS {
            return Self::NONE;
        }
        Self {
            every: count,
            until_next: index,
            bytes: if count == 1 { DISTANCE } else { part_bytes },
            index,
            is_even: false,
        }
    }

    /// Whether there is one block only: it asks by [`Self::line`] with each line that it reads, where its
    /// format does that, and else by [`Self::step`].
    #[inline(always)]
    pub(crate) fn is_by_line(&self) -> bool {
        self.every == 1
    }

    /// Asks for the lines that follow this one: near ahead and far ahead. Evenly, since lines that are asked
    /// for at once wait for one another, and the products for them.
    ///
    /// # Safety
    /// The processor must have the level of `S`.
    #[inline(always)]
    pub(crate) unsafe fn line<S: Simd>(line: *const u8) {
        // SAFETY: a prefetch may lie anywhere; the caller vouches for the level.
        unsafe {
            S::prefetch(line.wrapping_add(NEAR));
            S::prefetch_far(line.wrapping_add(FAR));
        }
    }

    /// To be called once per step of the depth, whose `step_bytes` begin at `step`.
    ///
    /// # Safety
    /// The processor must have the level of `S`.
    #[inline(always)]
    pub(crate) unsafe fn step<S: Simd>(&mut self, step: *const u8, step_bytes: usize) {
        // One block asks near ahead for what it needs next; none asks where there are too many.
        if step_bytes >= 512 && self.is_even && (2..=MOST_BLOCKS).contains(&self.every) {
            for line in share(step_bytes.div_ceil(64), self.index, self.every) {
                // SAFETY: a prefetch may lie anywhere; the caller vouches for the level.
                unsafe { S::prefetch_far(step.wrapping_add(self.bytes + line * 64)) };
            }
            return;
        }
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

/// The lines of a step that block `index` of `count` asks for: each is asked for once.
#[inline(always)]
fn share(lines: usize, index: usize, count: usize) -> std::ops::Range<usize> {
    lines * index / count..lines * (index + 1) / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_lines_of_a_step_once() {
        for lines in 0..40 {
            for count in 1..=MOST_BLOCKS {
                let all = (0..count).flat_map(|index| share(lines, index, count));
                assert!(all.eq(0..lines), "{lines} {count}");
            }
        }
    }

    #[test]
    fn blocks_are_even_and_cover_the_rows() {
        for rows in 0..40 {
            for most in 1..13 {
                let blocks: Vec<RowBlock> = row_blocks(rows, most, None).collect();
                assert_eq!(blocks.len(), rows.div_ceil(most));
                let mut next = 0;
                for block in &blocks {
                    assert_eq!(block.first, next);
                    next += block.count;
                    assert!((rows / blocks.len()..=most).contains(&block.count));
                }
                assert_eq!(next, rows);
            }
        }
    }
}
