//! The LM head where only the largest logit of each row is asked for: no logits are written.
//!
//! At 32 rows the logits of a vocabulary of 150,000 are 20 MB, which would be written to memory beside the
//! 140 MB of weights that are read from there, and read again by the sampler.

use std::mem::MaybeUninit;

use super::buffer::SharedMut;
use super::elementwise::largest_allowed;
use super::panels::{PANEL_BLOCK, PANEL_WIDTH, PanelKernel, Rows, Tiling, multiply_panel};
use super::simd::SimdLevel;
use crate::model_executor::Bitmask;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// Most rows that pass over some panels at once.
const ROWS_AT_ONCE: usize = 64;

/// Outputs of these panels, and from a row of their results to the next.
const WIDTH: usize = PANEL_BLOCK * PANEL_WIDTH;

/// Results of some rows and panels.
#[repr(C, align(64))]
struct Results([[f32; WIDTH]; ROWS_AT_ONCE]);

/// The largest logit of a row so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Largest {
    /// -inf where there is none yet, NaN where one was not finite.
    logit: f32,
    token_id: u32,
}

impl Largest {
    const NONE: Self = Self {
        logit: f32::NEG_INFINITY,
        token_id: u32::MAX,
    };

    /// The larger one, the lower token among equals.
    fn or(self, other: Self) -> Self {
        if self.logit.is_nan() || other.logit.is_nan() {
            return Self {
                logit: f32::NAN,
                ..self
            };
        }
        match self.logit.partial_cmp(&other.logit) {
            Some(std::cmp::Ordering::Less) => other,
            Some(std::cmp::Ordering::Equal) if other.token_id < self.token_id => other,
            _ => self,
        }
    }

    /// Takes the logits of `len` tokens from `first_token` on, of which `words` allow some.
    ///
    /// # Safety
    /// The processor must have `level`. `logits` must be valid for `len` values, rounded up to 32, and there must be
    /// a word for 32 of them.
    unsafe fn take(
        &mut self,
        level: SimdLevel,
        first_token: usize,
        logits: *const f32,
        len: usize,
        words: Option<&[u32]>,
    ) {
        let mut logit = 0.0;
        // SAFETY: passed on to the caller.
        let logits = unsafe {
            let words = words.map_or(std::ptr::null(), <[u32]>::as_ptr);
            largest_allowed(level, logits, len, words, &raw mut logit);
            std::slice::from_raw_parts(logits, len)
        };
        // Mostly it is smaller; what is equal has a larger id if threads' tiles ascend, which those that it
        // took over from another one needn't.
        if logit < self.logit {
            return;
        }
        let is_allowed =
            |at: &usize| words.is_none_or(|words| words[at / 32] >> (at % 32) & 1 == 1);
        let at = (0..len).filter(is_allowed).find(|&at| logits[at] == logit);
        let token_id = at.map_or(u32::MAX, |at| (first_token + at) as u32);
        *self = self.or(Self { logit, token_id });
    }
}

/// What is asked of each row, and where it goes.
pub(crate) struct Argmax<'a> {
    /// Of the first rows.
    pub(crate) bitmasks: &'a [Option<Bitmask<'a>>],
    pub(crate) num_tokens: usize,
    /// Scratch.
    pub(crate) largest: &'a mut Vec<Largest>,
    /// A row's token, see [`Self::of`].
    pub(crate) token_ids: &'a mut Vec<Option<u32>>,
}

impl Argmax<'_> {
    /// The token with the largest output of each row of `x * matrix^T + bias`, the lower one among equals, of
    /// those below `num_tokens` that the row's bitmask allows. `None` where there is none, or an output of the
    /// row is not finite.
    pub(crate) fn of<K: PanelKernel>(
        self,
        kernel: &K,
        level: SimdLevel,
        pool: &ComputePool,
        x: &Rows<'_, K::Input>,
    ) -> Result<(), ModelError> {
        let Self {
            bitmasks,
            num_tokens,
            largest: found,
            token_ids,
        } = self;
        x.check(kernel.depth());
        let num_tokens = num_tokens.min(kernel.out_features());
        // Those behind the last token are padding.
        let num_panels = num_tokens.div_ceil(PANEL_WIDTH);
        for bitmask in bitmasks.iter().flatten() {
            assert!(bitmask.words.len() >= num_panels, "a word for each panel");
        }
        let num_threads = pool.num_threads();
        found.clear();
        found.resize(num_threads * x.count, Largest::NONE);
        let to = SharedMut::new(found.as_mut_slice());
        let tiling = Tiling::of(kernel, num_panels, num_threads, x.count);
        pool.run(tiling.num_tiles(), &|tile, thread| {
            let (rows, panels) = tiling.tile(tile, x.count);
            let mut results = MaybeUninit::<Results>::uninit();
            let results = results.as_mut_ptr().cast::<f32>();
            for first_panel in panels.clone().step_by(PANEL_BLOCK) {
                let panels = first_panel..panels.end.min(first_panel + PANEL_BLOCK);
                for first_row in rows.clone().step_by(ROWS_AT_ONCE) {
                    let rows = first_row..rows.end.min(first_row + ROWS_AT_ONCE);
                    for (index, panel) in panels.clone().enumerate() {
                        // SAFETY: `x` holds the rows, the matrix the panel, padded like its biases; `results`
                        // have room for 32 of each row.
                        unsafe {
                            let to = results.add(index * PANEL_WIDTH);
                            multiply_panel(kernel, x, rows.clone(), panel, PANEL_WIDTH, to, WIDTH);
                        }
                    }
                    let first_token = panels.start * PANEL_WIDTH;
                    let len = num_tokens.min(panels.end * PANEL_WIDTH) - first_token;
                    for (index, row) in rows.enumerate() {
                        let bitmask = bitmasks.get(row).copied().flatten();
                        let words = bitmask.map(|bitmask| &bitmask.words[panels.clone()]);
                        // SAFETY: so many results of the row were just written, up to whole panels, and its place
                        // in `found` is this thread's alone.
                        unsafe {
                            let results = results.add(index * WIDTH);
                            let largest = &mut *to.ptr(thread * x.count + row, 1);
                            largest.take(level, first_token, results, len, words);
                        }
                    }
                }
            }
        })?;
        let of_row = |row: usize| {
            let of_threads = found.iter().skip(row).step_by(x.count);
            let largest = of_threads.fold(Largest::NONE, |largest, &of| largest.or(of));
            let is_found = largest.logit.is_finite() && largest.token_id != u32::MAX;
            is_found.then_some(largest.token_id)
        };
        token_ids.clear();
        token_ids.extend((0..x.count).map(of_row));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_one_is_kept_and_the_lower_token_among_equals() {
        let of = |logit, token_id| Largest { logit, token_id };
        assert_eq!(Largest::NONE.or(of(-3.0, 7)), of(-3.0, 7));
        assert_eq!(of(1.0, 9).or(of(2.0, 3)), of(2.0, 3));
        assert_eq!(of(2.0, 9).or(of(1.0, 3)), of(2.0, 9));
        assert_eq!(of(2.0, 9).or(of(2.0, 3)), of(2.0, 3));
        assert_eq!(of(0.0, 3).or(of(-0.0, 9)), of(0.0, 3));
        assert!(of(2.0, 9).or(of(f32::NAN, 3)).logit.is_nan());
        assert!(of(f32::NAN, 9).or(of(5.0, 3)).logit.is_nan());
    }
}
