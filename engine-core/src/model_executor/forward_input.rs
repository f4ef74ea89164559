//! The check of a batch before kernels rely on it.

use super::{ForwardInput, MAX_SHARED_ROWS, ModelError, ModelLimits};

/// Which slots of the KV cache a batch writes: rows are written by several threads at once.
pub(crate) struct WrittenSlots {
    /// A bit per slot, all 0 between checks.
    bits: Vec<u64>,
}

impl WrittenSlots {
    /// For the caches of a model with these limits.
    pub(crate) fn new(limits: &ModelLimits) -> Self {
        let slots = limits.num_blocks.saturating_mul(limits.block_size);
        Self {
            bits: vec![0; slots.div_ceil(64)],
        }
    }

    /// Whether the slot was not yet written. Slots are below those of the limits.
    fn write(&mut self, slot: u32) -> bool {
        let Some(word) = self.bits.get_mut(slot as usize / 64) else {
            return false;
        };
        let bit = 1 << (slot % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Checks that nothing is written twice to one slot. Takes steps by the number of slots.
    fn check(&mut self, slot_mapping: &[u32], shared_slots: &[u32]) -> Result<(), ModelError> {
        let mut result = Ok(());
        for (field, slots) in [
            ("slot_mapping", slot_mapping),
            ("shared_slots", shared_slots),
        ] {
            let second = slots.iter().position(|slot| !self.write(*slot));
            if let (Some(row), Ok(())) = (second, &result) {
                let problem = format!("row {row}: slot {} must not be written twice", slots[row]);
                result = Err(ModelError::Input { field, problem });
            }
        }
        for slot in slot_mapping.iter().chain(shared_slots) {
            if let Some(word) = self.bits.get_mut(*slot as usize / 64) {
                *word = 0;
            }
        }
        result
    }
}

impl ForwardInput<'_> {
    /// Checks that lengths agree, that nothing exceeds `limits`, that each request's rows end
    /// its sequence and are written where its block table says, and that nothing is written twice to one
    /// slot.
    pub(crate) fn validate(
        &self,
        limits: &ModelLimits,
        vocab_size: usize,
        written: &mut WrittenSlots,
    ) -> Result<(), ModelError> {
        let num_tokens = self.input_ids.len();
        let num_reqs = self.seq_lens.len();
        at_most("input_ids", num_tokens, limits.max_num_batched_tokens)?;
        at_most("seq_lens", num_reqs, limits.max_num_seqs)?;
        at_most(
            "logits_indices",
            self.logits_indices.len(),
            limits.max_num_logits_rows,
        )?;
        length("positions", self.positions.len(), num_tokens)?;
        length("slot_mapping", self.slot_mapping.len(), num_tokens)?;
        let num_shared_rows = self.shared_rows.len();
        at_most("shared_rows", num_shared_rows, MAX_SHARED_ROWS)?;
        length("shared_slots", self.shared_slots.len(), num_shared_rows)?;
        length("query_start_loc", self.query_start_loc.len(), num_reqs + 1)?;
        length(
            "block_tables",
            self.block_tables.len(),
            num_reqs * self.block_table_stride,
        )?;
        if !self.token_type_ids.is_empty() {
            length("token_type_ids", self.token_type_ids.len(), num_tokens)?;
        }
        below("input_ids", self.input_ids, vocab_size)?;
        below("logits_indices", self.logits_indices, num_tokens)?;
        below("shared_rows", self.shared_rows, num_tokens)?;
        let num_slots = limits.num_blocks * limits.block_size;
        below("shared_slots", self.shared_slots, num_slots)?;
        if let Some(pair) = self
            .logits_indices
            .windows(2)
            .find(|pair| pair[0] >= pair[1])
        {
            return Err(ModelError::Input {
                field: "logits_indices",
                problem: format!("{} after {} must ascend", pair[1], pair[0]),
            });
        }
        let (first, last) = (self.query_start_loc.first(), self.query_start_loc.last());
        if first != Some(&0) || last.map(|last| *last as usize) != Some(num_tokens) {
            return Err(ModelError::Input {
                field: "query_start_loc",
                problem: format!("must begin with 0 and end with the {num_tokens} rows"),
            });
        }
        (0..num_reqs).try_for_each(|request| self.validate_request(request, limits))?;
        // Each is below the number of slots, as its request's blocks are.
        written.check(self.slot_mapping, self.shared_slots)
    }

    fn validate_request(&self, request: usize, limits: &ModelLimits) -> Result<(), ModelError> {
        let start = self.query_start_loc[request] as usize;
        let end = self.query_start_loc[request + 1] as usize;
        let seq_len = self.seq_lens[request] as usize;
        if start > end || end > self.input_ids.len() {
            return Err(ModelError::Input {
                field: "query_start_loc",
                problem: format!("request {request}: rows {start}..{end} must ascend"),
            });
        }
        at_most("seq_lens", seq_len, limits.max_model_len)?;
        let computed = seq_len
            .checked_sub(end - start)
            .ok_or_else(|| ModelError::Input {
                field: "seq_lens",
                problem: format!(
                    "request {request}: {seq_len} must be at least its {} rows",
                    end - start
                ),
            })?;
        let row = request * self.block_table_stride;
        let table = &self.block_tables[row..row + self.block_table_stride];
        let num_blocks = seq_len.div_ceil(limits.block_size);
        let table = table.get(..num_blocks).ok_or_else(|| ModelError::Input {
            field: "block_tables",
            problem: format!(
                "request {request}: {num_blocks} blocks are needed, the stride is {}",
                self.block_table_stride
            ),
        })?;
        below("block_tables", table, limits.num_blocks)?;
        for (row, position) in (start..end).zip(computed..) {
            let slot = table[position / limits.block_size] as usize * limits.block_size
                + position % limits.block_size;
            for (field, found, expected) in [
                ("positions", self.positions[row], position),
                ("slot_mapping", self.slot_mapping[row], slot),
            ] {
                if found as usize != expected {
                    return Err(ModelError::Input {
                        field,
                        problem: format!("row {row}: {found} must be {expected}"),
                    });
                }
            }
        }
        Ok(())
    }
}

fn at_most(field: &'static str, found: usize, most: usize) -> Result<(), ModelError> {
    if found <= most {
        return Ok(());
    }
    Err(ModelError::Input {
        field,
        problem: format!("{found} must be at most {most}"),
    })
}

fn length(field: &'static str, found: usize, expected: usize) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Input {
        field,
        problem: format!("length {found} must be {expected}"),
    })
}

fn below(field: &'static str, values: &[u32], bound: usize) -> Result<(), ModelError> {
    match values.iter().find(|value| **value as usize >= bound) {
        None => Ok(()),
        Some(value) => Err(ModelError::Input {
            field,
            problem: format!("{value} must be below {bound}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ModelLimits = ModelLimits {
        num_blocks: 8,
        block_size: 4,
        max_num_batched_tokens: 6,
        max_num_logits_rows: 2,
        max_num_seqs: 2,
        max_model_len: 10,
    };

    /// Two requests: three tokens from position 3 on in blocks 5 and 2, one token in block 7.
    fn good() -> ForwardInput<'static> {
        ForwardInput {
            input_ids: &[1, 2, 3, 4],
            positions: &[3, 4, 5, 0],
            slot_mapping: &[23, 8, 9, 28],
            shared_rows: &[],
            shared_slots: &[],
            query_start_loc: &[0, 3, 4],
            seq_lens: &[6, 1],
            block_tables: &[5, 2, 0, 7, 0, 0],
            block_table_stride: 3,
            token_type_ids: &[],
            logits_indices: &[2, 3],
        }
    }

    fn check(input: &ForwardInput<'_>) -> Result<(), String> {
        let mut written = WrittenSlots::new(&LIMITS);
        let result = input.validate(&LIMITS, 100, &mut written);
        assert!(written.bits.iter().all(|word| *word == 0));
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn a_consistent_batch_passes() {
        let mut written = WrittenSlots::new(&LIMITS);
        for _ in 0..2 {
            good().validate(&LIMITS, 100, &mut written).unwrap();
        }
        // Requests may read one block, and write to different slots of one.
        let shared = ForwardInput {
            positions: &[3, 4, 5, 6],
            slot_mapping: &[23, 8, 9, 10],
            seq_lens: &[6, 7],
            block_tables: &[5, 2, 0, 5, 2, 0],
            ..good()
        };
        check(&shared).unwrap();
        // A row may be written to slots of several requests.
        let copied = ForwardInput {
            shared_rows: &[0, 0],
            shared_slots: &[0, 4],
            ..good()
        };
        check(&copied).unwrap();
    }

    #[test]
    fn two_requests_cannot_write_one_slot() {
        // Each alone is right.
        let both = ForwardInput {
            positions: &[3, 4, 5, 5],
            slot_mapping: &[23, 8, 9, 9],
            seq_lens: &[6, 6],
            block_tables: &[5, 2, 0, 7, 2, 0],
            ..good()
        };
        assert_eq!(
            check(&both).unwrap_err(),
            "forward pass: slot_mapping: row 3: slot 9 must not be written twice"
        );
        // Nor one request two, through a table that names a block twice.
        let twice = ForwardInput {
            input_ids: &[1, 2, 3, 4, 5],
            positions: &[0, 1, 2, 3, 4],
            slot_mapping: &[20, 21, 22, 23, 20],
            shared_rows: &[],
            shared_slots: &[],
            query_start_loc: &[0, 5],
            seq_lens: &[5],
            block_tables: &[5, 5],
            block_table_stride: 2,
            token_type_ids: &[],
            logits_indices: &[],
        };
        assert_eq!(
            check(&twice).unwrap_err(),
            "forward pass: slot_mapping: row 4: slot 20 must not be written twice"
        );
        // Nor a row one that is another's.
        let shared = ForwardInput {
            shared_rows: &[0, 1, 0],
            shared_slots: &[0, 1, 9],
            ..good()
        };
        assert_eq!(
            check(&shared).unwrap_err(),
            "forward pass: shared_slots: row 2: slot 9 must not be written twice"
        );
    }

    #[test]
    fn every_contradiction_is_named() {
        let cases: [(&str, ForwardInput<'static>); 16] = [
            (
                "input_ids",
                ForwardInput {
                    input_ids: &[1, 2, 3, 100],
                    ..good()
                },
            ),
            (
                "positions",
                ForwardInput {
                    positions: &[3, 4, 6, 0],
                    ..good()
                },
            ),
            (
                "positions",
                ForwardInput {
                    positions: &[3, 4, 5],
                    ..good()
                },
            ),
            (
                "slot_mapping",
                ForwardInput {
                    slot_mapping: &[23, 8, 9, 29],
                    ..good()
                },
            ),
            (
                "shared_rows",
                ForwardInput {
                    shared_rows: &[4],
                    shared_slots: &[0],
                    ..good()
                },
            ),
            (
                "shared_slots",
                ForwardInput {
                    shared_rows: &[0],
                    ..good()
                },
            ),
            (
                "shared_slots",
                ForwardInput {
                    shared_rows: &[0],
                    shared_slots: &[32],
                    ..good()
                },
            ),
            (
                "query_start_loc",
                ForwardInput {
                    query_start_loc: &[0, 3, 3],
                    ..good()
                },
            ),
            (
                "query_start_loc",
                ForwardInput {
                    query_start_loc: &[0, 5, 4],
                    ..good()
                },
            ),
            (
                "seq_lens",
                ForwardInput {
                    seq_lens: &[2, 1],
                    ..good()
                },
            ),
            (
                "seq_lens",
                ForwardInput {
                    seq_lens: &[11, 1],
                    ..good()
                },
            ),
            (
                "block_tables",
                ForwardInput {
                    block_tables: &[5, 8, 0, 7, 0, 0],
                    ..good()
                },
            ),
            (
                "block_tables",
                ForwardInput {
                    block_tables: &[5, 7],
                    block_table_stride: 1,
                    ..good()
                },
            ),
            (
                "logits_indices",
                ForwardInput {
                    logits_indices: &[3, 3],
                    ..good()
                },
            ),
            (
                "logits_indices",
                ForwardInput {
                    logits_indices: &[4],
                    ..good()
                },
            ),
            (
                "logits_indices",
                ForwardInput {
                    logits_indices: &[1, 2, 3],
                    ..good()
                },
            ),
        ];
        for (field, input) in cases {
            let message = check(&input).unwrap_err();
            assert!(message.contains(field), "{field}: {message}");
        }
    }
}
