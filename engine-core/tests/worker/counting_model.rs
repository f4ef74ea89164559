//! A model whose answers are known.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender};
use engine_core::model_executor::{Bitmask, CausalLm, ForwardInput, ModelError};

pub(crate) const VOCAB_SIZE: usize = 40;

/// What one forward pass was given.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SeenInput {
    pub(crate) input_ids: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) slot_mapping: Vec<u32>,
    pub(crate) seq_lens: Vec<u32>,
    pub(crate) logits_indices: Vec<u32>,
}

/// After token `t` at position `p` comes token `(t + p) % 37`, whose logit is 10; the next ids
/// have 9, 8, ... ; ids 37 to 39 are padding, and have 100.
#[derive(Default)]
pub(crate) struct CountingModel {
    pub(crate) seen: Arc<Mutex<Vec<SeenInput>>>,
    pub(crate) rows: Vec<(u32, u32)>,
    /// Fails, panics or waits where the token is in the batch.
    pub(crate) poison: Option<(u32, Poison)>,
    pub(crate) all_nan_after: Option<u32>,
    /// Rows of which only the largest logit was asked; `None` is that the model has no such way.
    pub(crate) largest_of: Option<Arc<Mutex<Vec<Vec<usize>>>>>,
    /// Rows of which all logits were.
    pub(crate) logits_of: Arc<Mutex<Vec<usize>>>,
}

pub(crate) enum Poison {
    Error,
    Panic,
    /// Says that it is in the forward pass, then waits for leave to go on.
    Wait {
        entered: Sender<()>,
        leave: Receiver<()>,
    },
}

pub(crate) fn next_token(token: u32, position: u32) -> u32 {
    (token + position) % 37
}

impl CausalLm for CountingModel {
    fn forward(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        self.seen.lock().unwrap().push(SeenInput {
            input_ids: input.input_ids.to_vec(),
            positions: input.positions.to_vec(),
            slot_mapping: input.slot_mapping.to_vec(),
            seq_lens: input.seq_lens.to_vec(),
            logits_indices: input.logits_indices.to_vec(),
        });
        let row = |index: &u32| {
            let index = *index as usize;
            (input.input_ids[index], input.positions[index])
        };
        self.rows = input.logits_indices.iter().map(row).collect();
        match &self.poison {
            Some((token, poison)) if input.input_ids.contains(token) => match poison {
                Poison::Error => Err(ModelError::Input {
                    field: "input_ids",
                    problem: "poisoned".to_owned(),
                }),
                Poison::Panic => panic!("poisoned"),
                Poison::Wait { entered, leave } => {
                    entered.send(()).unwrap();
                    leave.recv().unwrap();
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }

    fn compute_argmax(
        &mut self,
        rows: &[usize],
        bitmasks: &[Option<Bitmask<'_>>],
        num_tokens: usize,
        token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        let Some(largest_of) = &self.largest_of else {
            return Ok(false);
        };
        largest_of.lock().unwrap().push(rows.to_vec());
        let of_row = |(&row, bitmask): (&usize, &Option<Bitmask<'_>>)| {
            let (token, position) = self.rows[row];
            if self.all_nan_after == Some(token) {
                return None;
            }
            let best = next_token(token, position) as usize;
            // In the order of their logits.
            let mut tokens = (0..num_tokens.min(37)).map(|distance| (best + distance) % 37);
            let is_allowed =
                |id: &usize| bitmask.is_none_or(|mask| mask.words[id / 32] >> (id % 32) & 1 == 1);
            tokens.find(is_allowed).map(|id| id as u32)
        };
        *token_ids = rows.iter().zip(bitmasks).map(of_row).collect();
        Ok(true)
    }

    fn compute_logits(&mut self, rows: Range<usize>, logits: &mut [f32]) -> Result<(), ModelError> {
        self.logits_of.lock().unwrap().extend(rows.clone());
        for (row, logits) in self.rows[rows]
            .iter()
            .zip(logits.chunks_exact_mut(VOCAB_SIZE))
        {
            let best = next_token(row.0, row.1) as usize;
            for (id, logit) in logits.iter_mut().enumerate() {
                let distance = (id + 37 - best) % 37;
                *logit = if id >= 37 {
                    100.0
                } else {
                    10.0 - distance as f32
                };
                if self.all_nan_after == Some(row.0) {
                    *logit = f32::NAN;
                }
            }
        }
        Ok(())
    }

    fn compute_logits_for(
        &mut self,
        few: &[(usize, &[u32])],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let mut logits = logits.iter_mut();
        for &(row, token_ids) in few {
            let mut full = [0.0; VOCAB_SIZE];
            self.compute_logits(row..row + 1, &mut full)?;
            for (&token_id, logit) in token_ids.iter().zip(&mut logits) {
                *logit = full[token_id as usize];
            }
        }
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        VOCAB_SIZE
    }

    fn hidden_size(&self) -> usize {
        1
    }
}
