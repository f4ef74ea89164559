//! A row of logits under a mask that stays apart from it.
//!
//! Few blocks of a row are ever looked into, and a row of a large vocabulary lies in memory, not in the
//! caches. To write a mask into it would cost more than all the rest of sampling.

use super::noise::{BLOCK, GROUP};
use super::row::larger;

/// Tokens of a bitmask's word.
const WORD: usize = u32::BITS as usize;

/// The mask, as [`RowMask`](super::RowMask) has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Apart<'a> {
    /// None.
    Nothing,
    Bitmask(&'a [u32]),
    /// Ascending.
    Only(&'a [u32]),
}

/// Ordered logits `[num_tokens]`, of which the mask rules some out.
#[derive(Debug, Clone, Copy)]
pub(super) struct MaskedRow<'a> {
    logits: &'a [f32],
    mask: Apart<'a>,
}

impl<'a> From<&'a [f32]> for MaskedRow<'a> {
    fn from(logits: &'a [f32]) -> Self {
        Self::new(logits, Apart::Nothing)
    }
}

impl<'a> MaskedRow<'a> {
    pub(super) fn new(logits: &'a [f32], mask: Apart<'a>) -> Self {
        Self { logits, mask }
    }

    /// Tokens of the row.
    pub(super) fn len(self) -> usize {
        self.logits.len()
    }

    /// The bits of each block, the first token's lowest, where the mask is a bitmask.
    #[inline(always)]
    pub(super) fn blocks_of_bits(self) -> Option<impl Iterator<Item = u64>> {
        const { assert!(BLOCK == u64::BITS as usize) };
        let Apart::Bitmask(bitmask) = self.mask else {
            return None;
        };
        let words = bitmask.chunks(2);
        Some(words.map(|words| match *words {
            [low, high] => u64::from(low) | u64::from(high) << WORD,
            [low] => u64::from(low),
            _ => 0,
        }))
    }

    /// The logit of a token.
    pub(super) fn logit(self, token_id: u32) -> f32 {
        let lane = token_id as usize % GROUP;
        self.group(token_id - lane as u32)[lane]
    }

    /// The logits of the tokens `first_id ..`, [`GROUP`] of them; -inf where the mask rules one out and
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
        let bits = match self.mask {
            Apart::Nothing => return group,
            Apart::Bitmask(bitmask) => {
                let word = bitmask.get(first / WORD).copied().unwrap_or_default();
                word >> (first % WORD)
            }
            Apart::Only(ids) => {
                let from = ids.partition_point(|&id| id < first_id);
                let own = ids.get(from..).unwrap_or_default().iter();
                let lanes = own
                    .map(|id| id - first_id)
                    .take_while(|&lane| lane < GROUP as u32);
                lanes.fold(0, |bits, lane| bits | 1 << lane)
            }
        };
        for (lane, logit) in group.iter_mut().enumerate() {
            let is_left = bits >> lane & 1 == 1;
            *logit = if is_left { *logit } else { f32::NEG_INFINITY };
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
        let mut maxima = [f32::NEG_INFINITY; GROUP];
        for (_, group) in self.groups_of_block(index) {
            for (max, logit) in maxima.iter_mut().zip(group) {
                *max = larger(logit, *max);
            }
        }
        maxima.into_iter().fold(f32::NEG_INFINITY, larger)
    }
}
