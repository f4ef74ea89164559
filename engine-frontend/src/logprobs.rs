//! Logprobs as callers read them: with the token's text and bytes, and the sum of the chosen ones.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use protocol::{EngineCoreRequest, LogprobsLists};
use tokenizer::Tokenizer;

/// One token's logprob.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token_id: u32,
    /// Natural logarithm of its probability (or a logit, by `--logprobs-mode`).
    pub logprob: f32,
    /// 1-based rank in the vocabulary where known: for the chosen token and the top ones.
    pub rank: Option<u32>,
    /// Its bytes, which all logprobs of the token share.
    pub bytes: Arc<[u8]>,
}

impl Logprob {
    /// The token's text by itself; bytes that aren't whole characters become U+FFFD.
    pub fn decoded_token(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// The logprobs of one position: the chosen token first, then the others that were asked for,
/// most probable first; no token twice. Empty for a token that was replayed.
pub type PositionLogprobs = Vec<Logprob>;

/// The bytes of the tokens that a request was told of, each kept once.
#[derive(Debug)]
struct TokenBytes {
    tokenizer: Arc<Tokenizer>,
    known: HashMap<u32, Arc<[u8]>>,
}

impl TokenBytes {
    fn of(&mut self, token_id: u32) -> Arc<[u8]> {
        let tokenizer = &self.tokenizer;
        let bytes = || tokenizer.token_bytes(token_id).into();
        Arc::clone(self.known.entry(token_id).or_insert_with(bytes))
    }
}

/// Collects the logprobs of one request.
#[derive(Debug)]
pub struct LogprobsProcessor {
    tokens: TokenBytes,
    /// Top logprobs asked for per generated token; `None` where only chosen ids are reported.
    num_logprobs: Option<i32>,
    num_prompt_logprobs: Option<i32>,
    cumulative_logprob: Option<f64>,
    /// Behind the first `num_given_out` positions.
    logprobs: Option<Vec<PositionLogprobs>>,
    /// Positions that were taken, and are forgotten.
    num_given_out: usize,
    prompt_logprobs: Option<Vec<Option<PositionLogprobs>>>,
}

impl LogprobsProcessor {
    /// The processor of a new request. Tokens in `output_token_ids` are output whose logprobs
    /// were given out before: their positions are empty and add nothing to the sum.
    pub fn new(tokenizer: Arc<Tokenizer>, request: &EngineCoreRequest) -> Self {
        let params = &request.sampling_params;
        let wanted = params.logprobs.is_some() || params.logprob_token_ids.is_some();
        Self {
            tokens: TokenBytes {
                tokenizer,
                known: HashMap::new(),
            },
            num_logprobs: params.logprobs,
            num_prompt_logprobs: params.prompt_logprobs,
            cumulative_logprob: wanted.then_some(0.0),
            logprobs: wanted.then(|| vec![Vec::new(); request.output_token_ids.len()]),
            num_given_out: 0,
            prompt_logprobs: None,
        }
    }

    /// Takes the rows of newly generated tokens.
    pub fn update(&mut self, rows: &LogprobsLists) {
        let Some(logprobs) = &mut self.logprobs else {
            return;
        };
        for row in positions(rows) {
            let position = position_logprobs(&mut self.tokens, row, self.num_logprobs);
            if let (Some(sum), Some(chosen)) = (&mut self.cumulative_logprob, position.first()) {
                *sum += f64::from(chosen.logprob);
            }
            logprobs.push(position);
        }
    }

    /// Takes the rows of the prompt, which arrive at once. They end at the prompt's last token;
    /// positions before the first row have none.
    pub fn update_prompt(&mut self, rows: &LogprobsLists, prompt_len: usize) {
        let without = prompt_len.saturating_sub(rows.logprob_token_ids.len());
        let mut all = vec![None; without];
        all.extend(
            positions(rows)
                .map(|row| position_logprobs(&mut self.tokens, row, self.num_prompt_logprobs))
                .map(Some),
        );
        self.prompt_logprobs = Some(all);
    }

    /// Forgets the rows of tokens that turned out to lie behind a stop string.
    pub fn truncate(&mut self, num_tokens: usize) {
        let Some(logprobs) = &mut self.logprobs else {
            return;
        };
        let num_left = num_tokens.saturating_sub(self.num_given_out);
        for dropped in logprobs.drain(num_left.min(logprobs.len())..) {
            if let (Some(sum), Some(chosen)) = (&mut self.cumulative_logprob, dropped.first()) {
                *sum -= f64::from(chosen.logprob);
            }
        }
    }

    /// The positions from `start` on.
    pub fn logprobs_from(&self, start: usize) -> Option<Vec<PositionLogprobs>> {
        let logprobs = self.logprobs.as_ref()?;
        let start = start.saturating_sub(self.num_given_out);
        Some(logprobs.get(start..).unwrap_or_default().to_vec())
    }

    /// The same, and forgets them and all before them.
    pub fn take_logprobs_from(&mut self, start: usize) -> Option<Vec<PositionLogprobs>> {
        let logprobs = self.logprobs.as_mut()?;
        let start = start.saturating_sub(self.num_given_out);
        let mut taken = std::mem::take(logprobs);
        self.num_given_out += taken.len();
        taken.drain(..start.min(taken.len()));
        Some(taken)
    }

    /// The sum of the chosen tokens' logprobs.
    pub fn cumulative_logprob(&self) -> Option<f64> {
        self.cumulative_logprob
    }

    /// The prompt's logprobs, once.
    pub fn take_prompt_logprobs(&mut self) -> Option<Vec<Option<PositionLogprobs>>> {
        self.prompt_logprobs.take()
    }
}

/// One position as it travels: ids, logprobs beside them, rank of the first.
type Row<'a> = (&'a [u32], &'a [f32], Option<u32>);

fn positions(rows: &LogprobsLists) -> impl Iterator<Item = Row<'_>> {
    rows.logprob_token_ids
        .iter()
        .zip(&rows.logprobs)
        .enumerate()
        .map(|(i, (ids, values))| {
            (
                ids.as_slice(),
                values.as_slice(),
                rows.sampled_token_ranks.get(i).copied(),
            )
        })
}

/// `top` is the number of top tokens asked for: where given, what follows the chosen token is in
/// order of rank.
fn position_logprobs(tokens: &mut TokenBytes, row: Row<'_>, top: Option<i32>) -> PositionLogprobs {
    let (ids, values, chosen_rank) = row;
    let mut position = PositionLogprobs::with_capacity(ids.len());
    for (i, (&token_id, &logprob)) in ids.iter().zip(values).enumerate() {
        if position
            .first()
            .is_some_and(|chosen| chosen.token_id == token_id)
        {
            continue;
        }
        position.push(Logprob {
            token_id,
            logprob,
            rank: match i {
                0 => chosen_rank,
                _ => top.and_then(|_| u32::try_from(i).ok()),
            },
            bytes: tokens.of(token_id),
        });
    }
    position
}
