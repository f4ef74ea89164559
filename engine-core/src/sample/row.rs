//! A row of logits seen in blocks of 64: what one pass over it can say.

use std::cmp::Ordering;

use super::masked_row::MaskedRow;
use super::noise::BLOCK;
use super::sum_exp::{LANES, sum_exp_of_blocks};
use crate::model_executor::LOGITS_PER_MAXIMUM;

/// What is known of a row before it is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KnownLogits<'a> {
    /// Nothing.
    Nothing,
    /// The largest of each [`LOGITS_PER_MAXIMUM`] logits in order. If one is NaN, they tell nothing.
    Maxima(&'a [f32]),
    /// The grammar's mask leaves these tokens, and all other logits are -inf already.
    Only(&'a [u32]),
}

/// A token and its logit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    /// The logit; never NaN.
    pub(super) logit: f32,
    /// The token.
    pub(super) id: u32,
}

/// The order of tokens everywhere: larger logit first, and the lower id first among equals.
pub(super) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit
        .partial_cmp(&a.logit)
        .unwrap_or(Ordering::Equal)
        .then(a.id.cmp(&b.id))
}

/// The largest logit of each block of 64 tokens, and of the row.
///
/// Made in one pass; lets the later steps skip nearly all of the row.
#[derive(Debug, Default)]
pub(super) struct BlockMaxima {
    /// `[ceil(row.len() / 64)]`
    pub(super) blocks: Vec<f32>,
    /// Largest logit of the row; -inf where there is none but NaN and -inf.
    pub(super) max: f32,
    /// NaN values seen.
    pub(super) num_nans: u32,
}

impl BlockMaxima {
    /// Reads the row. NaN counts as -inf.
    pub(super) fn read(&mut self, row: &[f32]) {
        self.blocks.clear();
        self.max = f32::NEG_INFINITY;
        self.num_nans = 0;
        for block in row.chunks(BLOCK) {
            let (max, num_nans) = max_and_nans(block);
            self.blocks.push(max);
            self.max = larger(max, self.max);
            self.num_nans += num_nans;
        }
    }

    /// As [`Self::read`], from what is known of the row where that is enough.
    pub(super) fn read_known(&mut self, row: &[f32], known: KnownLogits<'_>) {
        let is_told = match known {
            KnownLogits::Nothing => false,
            KnownLogits::Maxima(maxima) => self.join(row, maxima),
            KnownLogits::Only(token_ids) => self.read_only(row, token_ids),
        };
        if !is_told {
            self.read(row);
        }
    }

    /// From the largest of each [`LOGITS_PER_MAXIMUM`] logits; `false` where these don't tell.
    fn join(&mut self, row: &[f32], maxima: &[f32]) -> bool {
        const PER_BLOCK: usize = BLOCK / LOGITS_PER_MAXIMUM;
        // Behind the last whole block there may be logits of no token.
        let (whole, rest) = row.as_chunks::<BLOCK>();
        let Some(maxima) = maxima.as_chunks::<PER_BLOCK>().0.get(..whole.len()) else {
            return false;
        };
        if maxima.as_flattened().iter().any(|maximum| maximum.is_nan()) {
            return false;
        }
        let of_block = |maxima: &[f32; PER_BLOCK]| {
            let least = f32::NEG_INFINITY;
            maxima.iter().fold(least, |max, &of| larger(of, max))
        };
        self.blocks.clear();
        self.blocks.extend(maxima.iter().map(of_block));
        self.num_nans = 0;
        if !rest.is_empty() {
            let (max, num_nans) = max_and_nans(rest);
            self.blocks.push(max);
            self.num_nans = num_nans;
        }
        self.max = largest(&self.blocks);
        true
    }

    /// Of a row in which these alone may be more than -inf, ascending. `false` where one lies outside.
    fn read_only(&mut self, row: &[f32], token_ids: &[u32]) -> bool {
        self.blocks.clear();
        self.blocks
            .resize(row.len().div_ceil(BLOCK), f32::NEG_INFINITY);
        self.num_nans = 0;
        for &token_id in token_ids {
            let token = token_id as usize;
            let (Some(&logit), Some(block)) = (row.get(token), self.blocks.get_mut(token / BLOCK))
            else {
                return false;
            };
            self.num_nans += u32::from(logit.is_nan());
            *block = larger(logit, *block);
        }
        self.max = largest(&self.blocks);
        true
    }

    /// After a bitmask was applied to the row, or set apart from it: reads the blocks again of which it
    /// leaves a part.
    pub(super) fn read_masked(&mut self, row: MaskedRow<'_>) {
        self.read_parts(row, u64::BITS);
    }

    /// The same of blocks of which little is left. The maximum of any other becomes an upper bound; the
    /// row's maximum is exact.
    pub(super) fn bound_masked(&mut self, row: MaskedRow<'_>) {
        /// Tokens of a block from which on a bound tells enough.
        const MANY: u32 = 16;
        /// Bounds that are looked into before all are.
        const MAX_BOUNDS: usize = 32;
        self.read_parts(row, MANY);
        for _ in 0..MAX_BOUNDS {
            let Some(index) = self.blocks.iter().position(|&bound| bound == self.max) else {
                return;
            };
            // The largest bound is the row's maximum as soon as it is its block's.
            let max = row.max_of_block(index);
            if max == self.max {
                return;
            }
            self.blocks[index] = max;
            self.max = largest(&self.blocks);
        }
        self.read_masked(row);
    }

    /// Reads the blocks again of which a bitmask leaves fewer than `many` tokens, but some.
    fn read_parts(&mut self, row: MaskedRow<'_>, many: u32) {
        let Some(bits) = row.blocks_of_bits() else {
            return;
        };
        for ((index, max), bits) in self.blocks.iter_mut().enumerate().zip(bits) {
            match bits {
                0 => *max = f32::NEG_INFINITY,
                bits if bits.count_ones() < many => *max = row.max_of_block(index),
                _ => {}
            }
        }
        self.max = largest(&self.blocks);
    }

    /// After some logits of the row, which has no NaN, were masked: reads their blocks again.
    pub(super) fn read_again(&mut self, row: &[f32], token_ids: &[u32]) {
        for &token_id in token_ids {
            let index = token_id as usize / BLOCK;
            if let Some(block) = row.chunks(BLOCK).nth(index)
                && let Some(max) = self.blocks.get_mut(index)
            {
                *max = max_and_nans(block).0;
            }
        }
        self.max = largest(&self.blocks);
    }

    /// Replaces NaN by -inf and +inf by the largest finite number, where the row has any, so
    /// that arithmetic on it stays defined. `self` must have read this row, and stays true of it.
    pub(super) fn make_ordered(&mut self, row: &mut [f32]) {
        if self.num_nans == 0 && self.max < f32::INFINITY {
            return;
        }
        for logit in row.iter_mut() {
            *logit = if logit.is_nan() {
                f32::NEG_INFINITY
            } else {
                logit.min(f32::MAX)
            };
        }
        let num_nans = self.num_nans;
        self.read(row);
        self.num_nans = num_nans;
    }

    /// The token with the largest logit, the lowest id among equals; `None` where all are -inf.
    pub(super) fn argmax(&self, row: MaskedRow<'_>) -> Option<u32> {
        if self.max == f32::NEG_INFINITY {
            return None;
        }
        let blocks = self.blocks.iter().enumerate();
        // What is a bound may be more than any token of the block has.
        let mut largest = blocks.filter(|&(_, &bound)| bound >= self.max);
        largest.find_map(|(index, _)| {
            let mut groups = row.groups_of_block(index);
            groups.find_map(|(first_id, group)| {
                let lane = group.iter().position(|&logit| logit == self.max)?;
                Some(first_id + lane as u32)
            })
        })
    }

    /// Puts all tokens with a logit of at least `floor` into `candidates`, ids rising.
    pub(super) fn collect(&self, row: MaskedRow<'_>, floor: f32, candidates: &mut Vec<Candidate>) {
        candidates.clear();
        for (index, &max) in self.blocks.iter().enumerate() {
            if max < floor {
                continue;
            }
            for (first_id, group) in row.groups_of_block(index) {
                for (id, logit) in (first_id..row.len() as u32).zip(group) {
                    if logit >= floor {
                        candidates.push(Candidate { logit, id });
                    }
                }
            }
        }
    }

    /// Puts the `k` first tokens by rank into `candidates`, in any order but with the last of
    /// them at the end. Fewer where the row has fewer logits of at least `floor`.
    ///
    /// The k-th largest block maximum is a lower bound of the k-th largest logit, so only about
    /// `k` blocks are looked into; none may be an upper bound alone. `floats` is scratch.
    pub(super) fn collect_top(
        &self,
        row: MaskedRow<'_>,
        k: usize,
        floor: f32,
        floats: &mut Vec<f32>,
        candidates: &mut Vec<Candidate>,
    ) {
        let mut floor = floor;
        if k == 0 {
            candidates.clear();
            return;
        }
        if k < self.blocks.len() {
            floats.clear();
            floats.extend_from_slice(&self.blocks);
            let (_, kth, _) = floats.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
            floor = larger(*kth, floor);
        }
        self.collect(row, floor, candidates);
        let last = k.min(candidates.len());
        if last > 0 {
            candidates.select_nth_unstable_by(last - 1, by_rank);
            candidates.truncate(last);
        }
    }

    /// The sum of `exp((logit - max) * inverse_temperature)` over all logits of at least `floor`.
    pub(super) fn sum_exp(&self, row: MaskedRow<'_>, floor: f32, inverse_temperature: f64) -> f64 {
        sum_exp_of_blocks(
            row,
            &self.blocks,
            floor,
            f64::from(self.max),
            inverse_temperature,
        )
    }
}

/// How many logits are at least `logit`.
pub(super) fn count_at_least(row: &[f32], logit: f32) -> u32 {
    row.iter().map(|&other| u32::from(other >= logit)).sum()
}

/// Largest value (-inf where there is none) and number of NaN values.
#[inline(always)]
fn max_and_nans(block: &[f32]) -> (f32, u32) {
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let mut nans = [0u32; LANES];
    let chunks = block.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            maxima[lane] = larger(chunk[lane], maxima[lane]);
            nans[lane] += u32::from(chunk[lane].is_nan());
        }
    }
    for (lane, &logit) in rest.iter().enumerate() {
        maxima[lane] = larger(logit, maxima[lane]);
        nans[lane] += u32::from(logit.is_nan());
    }
    (
        maxima
            .into_iter()
            .fold(f32::NEG_INFINITY, |a, b| larger(b, a)),
        nans.iter().sum(),
    )
}

/// The largest of some that are no NaN; -inf where there are none.
fn largest(values: &[f32]) -> f32 {
    const SIDE_BY_SIDE: usize = 4 * LANES;
    let (chunks, rest) = values.as_chunks::<SIDE_BY_SIDE>();
    let mut maxima = [f32::NEG_INFINITY; SIDE_BY_SIDE];
    for chunk in chunks {
        for (max, &value) in maxima.iter_mut().zip(chunk) {
            *max = larger(value, *max);
        }
    }
    maxima
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |max, &value| larger(value, max))
}

/// The larger one, `otherwise` where `value` is NaN. One instruction, unlike `f32::max`.
#[inline(always)]
pub(super) fn larger(value: f32, otherwise: f32) -> f32 {
    if value > otherwise { value } else { otherwise }
}
