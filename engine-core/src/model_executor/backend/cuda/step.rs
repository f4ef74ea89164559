//! The batch of a step, on the device.

use std::ops::Range;

use cuda_device::{Buffer, Device};

use super::bytes_of;
use super::graphs::GraphKey;
use crate::model_executor::error::ModelError;
use crate::model_executor::{ForwardInput, ModelLimits};

/// What the operations of a step read, in buffers that exist before the first one.
pub(super) struct Step {
    /// `[num_tokens]` each.
    pub(super) input_ids: Buffer,
    pub(super) positions: Buffer,
    pub(super) slot_mapping: Buffer,
    /// Rows that are written to other slots too, in pieces: the first [`Self::num_shared_pieces`] are of this step.
    shared: Vec<SharedPiece>,
    num_shared_pieces: usize,
    /// `[num_tokens]` the request that a row is of.
    pub(super) requests: Buffer,
    /// `[num_requests, table_stride]`
    pub(super) block_tables: Buffer,
    block_table_stride: usize,
    block_size: usize,
    /// Blocks from a request to the next in this step's tables: no more than its longest request has.
    pub(super) table_stride: usize,
    /// Rows that there is room for in each list.
    max_decode_rows: usize,
    /// `[num_logits_rows]`
    pub(super) logits_indices: Buffer,
    /// Rows chosen from the host, `[max_num_logits_rows]`.
    pub(super) chosen: Buffer,
    pub(super) num_tokens: usize,
    pub(super) num_requests: usize,
    pub(super) num_logits_rows: usize,
    /// Positions up to the last one of any row.
    pub(super) longest: usize,
    /// The rows that a kernel for prefill takes.
    pub(super) prefill_rows: Range<usize>,
    /// Where lists are put together.
    words: Vec<u32>,
}

impl Step {
    /// Room for steps within `limits`.
    pub(super) fn allocate(device: &Device, limits: &ModelLimits) -> Result<Self, ModelError> {
        let list = |len: usize| device.allocate(len * size_of::<u32>());
        let max_num_requests = limits.max_num_seqs.next_power_of_two();
        let block_table_stride = limits.max_model_len.div_ceil(limits.block_size);
        Ok(Self {
            input_ids: list(limits.max_num_batched_tokens)?,
            positions: list(limits.max_num_batched_tokens)?,
            slot_mapping: list(limits.max_num_batched_tokens)?,
            shared: Vec::new(),
            num_shared_pieces: 0,
            requests: list(limits.max_num_batched_tokens)?,
            block_tables: list(max_num_requests * block_table_stride)?,
            block_table_stride,
            block_size: limits.block_size,
            table_stride: 0,
            max_decode_rows: (limits.max_num_batched_tokens)
                .min(limits.max_num_logits_rows)
                .min(max_num_requests),
            logits_indices: list(limits.max_num_logits_rows)?,
            chosen: list(limits.max_num_logits_rows)?,
            num_tokens: 0,
            num_requests: 0,
            num_logits_rows: 0,
            longest: 0,
            prefill_rows: 0..0,
            words: Vec::new(),
        })
    }

    /// Takes over a batch that was validated. Returns what a graph of its launches depends on, where it is one of decode alone,
    /// which is then filled up with rows that nobody reads.
    pub(super) fn begin(
        &mut self,
        device: &Device,
        input: &ForwardInput<'_>,
    ) -> Result<Option<GraphKey>, ModelError> {
        self.num_tokens = input.input_ids.len();
        self.num_requests = input.seq_lens.len();
        self.num_logits_rows = input.logits_indices.len();
        self.longest = input.seq_lens.iter().copied().max().unwrap_or(0) as usize;
        self.prefill_rows = prefill_rows(input.query_start_loc);
        let rows = self.num_tokens.next_power_of_two();
        self.num_shared_pieces = input.shared_rows.len().div_ceil(SHARED_PIECE);
        // A graph has no launch that writes shared rows.
        let is_decode = self.num_shared_pieces == 0
            && self.num_requests == self.num_tokens
            && self.num_logits_rows == self.num_tokens
            && rows <= self.max_decode_rows;
        if is_decode {
            self.num_tokens = rows;
            self.num_requests = rows;
            self.num_logits_rows = rows;
            self.longest = self.longest.next_power_of_two().max(LEAST_LONGEST);
        }
        let mut requests = Vec::with_capacity(self.num_tokens);
        for (request, rows) in input.query_start_loc.windows(2).enumerate() {
            requests.resize(rows[1] as usize, request as u32);
        }
        let (rows, logits_rows) = (self.num_tokens, self.num_logits_rows);
        for (to, values, len, filling) in [
            (&mut self.input_ids, input.input_ids, rows, 0),
            (&mut self.positions, input.positions, rows, 0),
            // No cache has such a slot: nothing is written.
            (&mut self.slot_mapping, input.slot_mapping, rows, u32::MAX),
            (&mut self.requests, &requests, rows, 0),
            (
                &mut self.logits_indices,
                input.logits_indices,
                logits_rows,
                0,
            ),
        ] {
            self.words.clear();
            self.words.extend_from_slice(values);
            self.words.resize(len, filling);
            device.upload(to, 0, bytes_of(&self.words))?;
        }
        self.upload_shared(device, input)?;
        self.words.clear();
        let blocks = self.longest.div_ceil(self.block_size);
        self.table_stride = blocks.clamp(1, self.block_table_stride.max(1));
        let stride = input.block_table_stride.max(1);
        for (request, row) in input.block_tables.chunks_exact(stride).enumerate() {
            self.words.extend(row.iter().take(self.table_stride));
            self.words.resize((request + 1) * self.table_stride, 0);
        }
        self.words.resize(self.num_requests * self.table_stride, 0);
        device.upload(&mut self.block_tables, 0, bytes_of(&self.words))?;
        Ok(is_decode.then_some(GraphKey {
            rows: self.num_tokens,
            longest: self.longest,
        }))
    }

    fn upload_shared(
        &mut self,
        device: &Device,
        input: &ForwardInput<'_>,
    ) -> Result<(), ModelError> {
        let rows = input.shared_rows.chunks(SHARED_PIECE);
        let slots = input.shared_slots.chunks(SHARED_PIECE);
        for (index, (rows, slots)) in rows.zip(slots).enumerate() {
            if index == self.shared.len() {
                let num_bytes = SHARED_PIECE * size_of::<u32>();
                self.shared.push(SharedPiece {
                    rows: device.allocate(num_bytes)?,
                    slots: device.allocate(num_bytes)?,
                    num_rows: 0,
                });
            }
            let piece = &mut self.shared[index];
            piece.num_rows = rows.len();
            device.upload(&mut piece.rows, 0, bytes_of(rows))?;
            device.upload(&mut piece.slots, 0, bytes_of(slots))?;
        }
        Ok(())
    }

    /// Rows of this step that are written to other slots too.
    pub(super) fn shared(&self) -> &[SharedPiece] {
        self.shared
            .get(..self.num_shared_pieces)
            .unwrap_or_default()
    }

    /// Uploads rows that the host chose.
    pub(super) fn choose(
        &mut self,
        device: &Device,
        rows: impl Iterator<Item = u32>,
    ) -> Result<(), ModelError> {
        self.words.clear();
        self.words.extend(rows);
        Ok(device.upload(&mut self.chosen, 0, bytes_of(&self.words))?)
    }
}

/// Most rows of a [`SharedPiece`].
pub(super) const SHARED_PIECE: usize = 256;

/// Rows that are written to other slots too, and these, `[num_rows]` each.
pub(super) struct SharedPiece {
    pub(super) rows: Buffer,
    pub(super) slots: Buffer,
    pub(super) num_rows: usize,
}

/// Positions that a graph counts with at least, so that there are few.
const LEAST_LONGEST: usize = 256;

/// Rows of one request from which on they are worth a kernel that treats many at once.
const MIN_PREFILL_ROWS: u32 = 16;

/// The most rows in a row that are of requests with many.
fn prefill_rows(query_start_loc: &[u32]) -> Range<usize> {
    let (mut longest, mut run) = (0..0, 0..0);
    for rows in query_start_loc.windows(2) {
        let (first, end) = (rows[0], rows[1]);
        if end.saturating_sub(first) < MIN_PREFILL_ROWS {
            run = end..end;
            continue;
        }
        run = run.start..end;
        if run.len() > longest.len() {
            longest = run.clone();
        }
    }
    longest.start as usize..longest.end as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefills_that_stand_together_are_one_range() {
        for (starts, expected) in [
            (&[0][..], 0..0),
            (&[0, 1, 2], 0..0),
            (&[0, 1, 31, 61], 1..61),
            (&[0, 40, 41, 141], 41..141),
            (&[0, 20, 36, 51], 0..36),
        ] {
            assert_eq!(prefill_rows(starts), expected, "{starts:?}");
        }
    }
}
