//! The flat batch of one step, in buffers that are reused from step to step.

use crate::core::sched::output::MAX_SHARED_TOKENS;
use crate::model_executor::{ForwardInput, MAX_SHARED_ROWS};

// A step's shared tokens are rows of its batch.
const _: () = assert!(MAX_SHARED_TOKENS <= MAX_SHARED_ROWS);

/// Buffers behind a [`ForwardInput`].
pub(crate) struct InputBatch {
    block_size: usize,
    block_table_stride: usize,
    input_ids: Vec<u32>,
    positions: Vec<u32>,
    slot_mapping: Vec<u32>,
    shared_rows: Vec<u32>,
    shared_slots: Vec<u32>,
    /// The rows that have the keys and values of the last request in this batch, from a position on.
    last_rows: (usize, Vec<u32>),
    query_start_loc: Vec<u32>,
    seq_lens: Vec<u32>,
    block_tables: Vec<u32>,
    token_type_ids: Vec<u32>,
    logits_indices: Vec<u32>,
}

impl InputBatch {
    /// Buffers for sequences of at most `max_model_len` tokens in blocks of `block_size`.
    pub(crate) fn new(block_size: usize, max_model_len: usize) -> Self {
        Self {
            block_size,
            block_table_stride: max_model_len.div_ceil(block_size),
            input_ids: Vec::new(),
            positions: Vec::new(),
            slot_mapping: Vec::new(),
            shared_rows: Vec::new(),
            shared_slots: Vec::new(),
            last_rows: (0, Vec::new()),
            query_start_loc: vec![0],
            seq_lens: Vec::new(),
            block_tables: Vec::new(),
            token_type_ids: Vec::new(),
            logits_indices: Vec::new(),
        }
    }

    /// Empties the batch, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.input_ids.clear();
        self.positions.clear();
        self.slot_mapping.clear();
        self.shared_rows.clear();
        self.shared_slots.clear();
        self.last_rows.1.clear();
        self.query_start_loc.clear();
        self.query_start_loc.push(0);
        self.seq_lens.clear();
        self.block_tables.clear();
        self.token_type_ids.clear();
        self.logits_indices.clear();
    }

    /// Appends tokens of one request from `first_position` on, the last of them a draft. With `num_shared` the request
    /// that was pushed last has the same tokens up to there, and so many before are shared: the keys and values of its
    /// rows are written for this one too.
    ///
    /// Returns false, and leaves the batch as it was, where `block_ids` doesn't cover them, or the rows of the last
    /// request not those that are shared.
    pub(crate) fn push_request(
        &mut self,
        token_ids: &[u32],
        draft_token_ids: &[u32],
        first_position: usize,
        num_shared: Option<usize>,
        block_ids: &[u32],
    ) -> bool {
        let end = first_position + token_ids.len() + draft_token_ids.len();
        let num_blocks = end.div_ceil(self.block_size);
        if num_blocks > block_ids.len() || num_blocks > self.block_table_stride {
            return false;
        }
        let slot = |position: usize| {
            let block_id = block_ids[position / self.block_size] as usize;
            (block_id * self.block_size + position % self.block_size) as u32
        };
        let (start, rows) = &mut self.last_rows;
        match num_shared {
            None => {
                rows.clear();
                *start = first_position;
            }
            Some(num_shared) => {
                let num_rows = first_position.checked_sub(*start);
                let num_rows = num_rows.filter(|num| (num_shared..=rows.len()).contains(num));
                let Some(num_rows) = num_rows else {
                    return false;
                };
                rows.truncate(num_rows);
                self.shared_rows
                    .extend_from_slice(&rows[num_rows - num_shared..]);
                let positions = first_position - num_shared..first_position;
                self.shared_slots.extend(positions.map(slot));
            }
        }
        let first_row = self.input_ids.len() as u32;
        rows.extend(first_row..first_row + (end - first_position) as u32);
        self.input_ids.extend_from_slice(token_ids);
        self.input_ids.extend_from_slice(draft_token_ids);
        for position in first_position..end {
            self.positions.push(position as u32);
            self.slot_mapping.push(slot(position));
        }
        self.query_start_loc.push(self.input_ids.len() as u32);
        self.seq_lens.push(end as u32);
        self.block_tables
            .extend_from_slice(&block_ids[..num_blocks]);
        let row_end = self.seq_lens.len() * self.block_table_stride;
        self.block_tables.resize(row_end, 0);
        self.token_type_ids.resize(self.input_ids.len(), 0);
        true
    }

    /// Keeps the hidden state of `row` of the batch for the LM head.
    pub(crate) fn keep_row(&mut self, row: usize) {
        self.logits_indices.push(row as u32);
    }

    /// Gives the rows from `row` on, of the request that was pushed last, the type of a second text.
    pub(crate) fn mark_second_text(&mut self, row: usize) {
        if let Some(types) = self.token_type_ids.get_mut(row..) {
            types.fill(1);
        }
    }

    /// Rows in the batch.
    pub(crate) fn num_tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// The batch as the model takes it.
    pub(crate) fn forward_input(&self) -> ForwardInput<'_> {
        ForwardInput {
            input_ids: &self.input_ids,
            positions: &self.positions,
            slot_mapping: &self.slot_mapping,
            shared_rows: &self.shared_rows,
            shared_slots: &self.shared_slots,
            query_start_loc: &self.query_start_loc,
            seq_lens: &self.seq_lens,
            block_tables: &self.block_tables,
            block_table_stride: self.block_table_stride,
            token_type_ids: &self.token_type_ids,
            logits_indices: &self.logits_indices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_block_table() {
        let mut batch = InputBatch::new(4, 12);
        assert!(batch.push_request(&[10, 11], &[12], 3, None, &[7, 2]));
        assert!(batch.push_request(&[20], &[], 0, None, &[5]));
        batch.mark_second_text(3);
        batch.keep_row(2);
        batch.keep_row(3);
        let input = batch.forward_input();
        assert_eq!(input.input_ids, [10, 11, 12, 20]);
        assert_eq!(input.positions, [3, 4, 5, 0]);
        assert_eq!(input.slot_mapping, [7 * 4 + 3, 2 * 4, 2 * 4 + 1, 5 * 4]);
        assert_eq!(input.query_start_loc, [0, 3, 4]);
        assert_eq!(input.seq_lens, [6, 1]);
        assert_eq!(input.block_tables, [7, 2, 0, 5, 0, 0]);
        assert_eq!(input.logits_indices, [2, 3]);
        assert_eq!(input.token_type_ids, [0, 0, 0, 1]);
    }

    #[test]
    fn shared_tokens_have_the_rows_of_the_request_before() {
        let mut batch = InputBatch::new(4, 12);
        assert!(batch.push_request(&[1, 2, 3], &[], 4, None, &[7, 2]));
        // Two of its tokens are the first one's, and of the next its own and one of these.
        assert!(batch.push_request(&[9], &[], 6, Some(2), &[7, 3]));
        assert!(batch.push_request(&[8], &[], 7, Some(2), &[7, 5]));
        // All before are in a full block: what the first one computed is still known.
        assert!(batch.push_request(&[7], &[], 8, Some(0), &[7, 5, 6]));
        assert!(batch.push_request(&[6], &[], 5, Some(1), &[7, 4]));
        let input = batch.forward_input();
        assert_eq!(input.positions, [4, 5, 6, 6, 7, 8, 5]);
        assert_eq!(input.slot_mapping, [8, 9, 10, 14, 23, 24, 17]);
        assert_eq!(input.shared_rows, [0, 1, 1, 3, 0]);
        assert_eq!(input.shared_slots, [12, 13, 21, 22, 16]);
        // Tokens whose keys and values are in no row of the batch can't be shared.
        for (first_position, num_shared) in [(9, 1), (6, 3), (3, 0)] {
            let shared = Some(num_shared);
            assert!(!batch.push_request(&[8], &[], first_position, shared, &[7, 5, 6]));
        }
        assert_eq!(batch.num_tokens(), 7);
        batch.clear();
        assert!(!batch.push_request(&[8], &[], 7, Some(1), &[7, 5]));
    }

    #[test]
    fn a_table_that_is_too_short_changes_nothing() {
        let mut batch = InputBatch::new(4, 12);
        assert!(!batch.push_request(&[1, 2], &[], 3, None, &[7]));
        assert_eq!(batch.num_tokens(), 0);
        assert_eq!(batch.forward_input().query_start_loc, [0]);
    }
}
