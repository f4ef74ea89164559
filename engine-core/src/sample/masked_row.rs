//! A row of logits under a bitmask that stays apart from it.
//!
//! Few blocks of a row are ever looked into, and a row of a large vocabulary lies in memory, not in the
//! caches. To write a mask into it would cost more than all the rest of sampling.

use super::noise::{BLOCK, GROUP};

/// Tokens of a bitmask's word.
const WORD: usize = u32::BITS as usize;

/// Ordered logits `[num_tokens]`, of which the bitmask rules some out.
#[derive(Debug, Clone, Copy)]
pub(super) struct MaskedRow<'a> {
    logits: &'a [f32],
    /// As [`RowMask::Bitmask`](super::RowMask::Bitmask); `None` rules nothing out.
    bitmask: Option<&'a [u32]>,
}

impl<'a> From<&'a [f32]> for MaskedRow<'a> {
    fn from(logits: &'a [f32]) -> Self {
        let bitmask = None;
        Self { logits, bitmask }
    }
}

impl<'a> MaskedRow<'a> {
    pub(super) fn new(logits: &'a [f32], bitmask: Option<&'a [u32]>) -> Self {
        Self { logits, bitmask }
    }

    /// Tokens of the row.
    pub(super) fn len(self) -> usize {
        self.logits.len()
    }

    /// The bits of a block, the first token's lowest.
    #[inline(always)]
    pub(super) fn bits_of_block(self, index: usize) -> u64 {
        const { assert!(BLOCK == u64::BITS as usize) };
        let Some(bitmask) = self.bitmask else {
            return u64::MAX;
        };
        let word = |index: usize| bitmask.get(index).copied().map_or(0, u64::from);
        word(2 * index) | word(2 * index + 1) << WORD
    }

    /// The logit of a token.
    pub(super) fn logit(self, token_id: u32) -> f32 {
        let lane = token_id as usize % GROUP;
        self.group(token_id - lane as u32)[lane]
    }

    /// The logits of the tokens `first_id ..`, [`GROUP`] of them; -inf where the bitmask rules one out and
    /// behind the row's end. `first_id` is a multiple of [`GROUP`].
    #[inline(always)]
    pub(super) fn group(self, first_id: u32) -> [f32; GROUP] {
        const { assert!(WORD.is_multiple_of(GROUP)) };
        let first = first_id as usize;
        let logits = self.logits.get(first..).unwrap_or_default();
        let mut group = match logits.first_chunk() {
            Some(whole) => *whole,
            None => {
                let mut group = [f32::NEG_INFINITY; GROUP];
                group.iter_mut().zip(logits).for_each(|(to, of)| *to = *of);
                group
            }
        };
        if let Some(bitmask) = self.bitmask {
            let word = bitmask.get(first / WORD).copied().unwrap_or_default();
            let bits = word >> (first % WORD);
            for (lane, logit) in group.iter_mut().enumerate() {
                let is_left = bits >> lane & 1 == 1;
                *logit = if is_left { *logit } else { f32::NEG_INFINITY };
            }
        }
        group
    }

    /// The groups of a block with the first id of each.
    #[inline(always)]
    pub(super) fn groups_of_block(
        self,
        index: usize,
    ) -> impl Iterator<Item = (u32, [f32; GROUP])> + use<'a> {
        let first_id = (index * BLOCK) as u32;
        let first_ids = (first_id..).step_by(GROUP).take(BLOCK / GROUP);
        first_ids.map(move |first_id| (first_id, self.group(first_id)))
    }

    /// The largest logit of a block; -inf where there is none.
    #[inline(always)]
    pub(super) fn max_of_block(self, index: usize) -> f32 {
        let larger = |a: f32, b: f32| if a > b { a } else { b };
        let mut maxima = [f32::NEG_INFINITY; GROUP];
        for (_, group) in self.groups_of_block(index) {
            for (max, logit) in maxima.iter_mut().zip(group) {
                *max = larger(logit, *max);
            }
        }
        maxima.into_iter().fold(f32::NEG_INFINITY, larger)
    }
}
