//! Asking for keys and values before they are needed.
//!
//! In a decode step those of a layer come from memory: all weights have passed through the caches since the
//! last step. A span's lie in blocks of few kilobytes that stand anywhere, so the processor sees what comes next
//! too late. While one span is worked on, that of the next is asked for, into the second cache.

use std::ops::Range;

use super::attention_tile::{Context, PART};
use super::format::Format;
use super::online_softmax::SPAN;
use super::simd::{Simd, SimdLevel, dispatch};

/// Bytes of the cache's line.
const LINE: usize = 64;

/// A span that is worked on next.
pub(crate) struct Ahead<'a, F: Format> {
    pub(crate) context: &'a Context<'a, F>,
    pub(crate) positions: Range<usize>,
}

impl<'a, F: Format> Ahead<'a, F> {
    /// The first span of a context, or of a part of it that is not its first.
    pub(crate) fn first_span(context: &'a Context<'a, F>, part: usize) -> Self {
        let first = context.first_span().max(part * PART);
        Self {
            context,
            positions: first..context.end().min(first + SPAN),
        }
    }

    /// Asks for the keys.
    pub(crate) fn ask_for_keys(&self, level: SimdLevel) {
        self.each_block(|block, _| {
            let keys = self.context.cache.keys(block, self.context.head);
            let (scales, _) = self.context.cache.scales(block, self.context.head);
            // SAFETY: nothing is read or written.
            unsafe {
                ask_for(level, keys.as_ptr().cast(), size_of_val(keys));
                // Those of the values follow.
                ask_for(level, scales.as_ptr().cast(), 2 * size_of_val(scales));
            }
        });
    }

    /// Asks for the values.
    pub(crate) fn ask_for_values(&self, level: SimdLevel) {
        self.each_block(|block, tokens| {
            let values = self.context.cache.values(block, self.context.head);
            let tokens = tokens.next_multiple_of(2);
            let len = F::index(tokens, 0, self.context.cache.shape.value_width());
            let bytes = size_of_val(values).min(len * size_of::<F::Element>());
            // SAFETY: nothing is read or written.
            unsafe { ask_for(level, values.as_ptr().cast(), bytes) };
        });
    }

    /// Calls `ask` with the blocks that begin in the span and with how many tokens each has of it. Of blocks
    /// longer than a span much would not be needed yet: none are asked for.
    fn each_block(&self, ask: impl Fn(usize, usize)) {
        let block_size = self.context.cache.shape.block_size;
        if block_size > SPAN {
            return;
        }
        for first in self.positions.clone().step_by(block_size) {
            let (block, _) = self.context.block_of(first);
            ask(block, block_size.min(self.positions.end - first));
        }
    }
}

/// Asks for lines.
#[inline(always)]
unsafe fn ask_for_body<S: Simd>(from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: what is asked for may lie anywhere; the caller vouches for the level.
        unsafe { S::prefetch_far(from.wrapping_add(at)) };
    }
}

dispatch! {
    /// Asks for the lines of `bytes` bytes from `from` on.
    ///
    /// # Safety
    /// The processor must have `level`. Nothing is read: `from` may be any address.
    unsafe fn ask_for(from: *const u8, bytes: usize) = ask_for_body
}
