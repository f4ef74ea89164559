//! From a row of logits to a token, in vLLM V1's order.

use protocol::{LogprobsMode, SamplingParams, TokenTrace};
use structured_output::apply_token_bitmask_inplace;

use super::error::SampleError;
use super::logits_processor;
use super::logprobs::{LogprobsRow, RequestedLogprobs, gather, is_normalised, is_processed};
use super::mask::{MASKED, Masking, RowMask, keep_only};
use super::masked_row::{Apart, MaskedRow};
use super::metadata::{RequestSamplingState, VocabSizes};
use super::noise::Noise;
use super::nucleus::draw_before_filters;
use super::random_sample::random_sample;
use super::row::{BlockMaxima, Candidate, KnownLogits};
use super::topk_topp::{Cutoff, Filters, cutoff};
use super::trace::RowTrace;

/// The token of one row and what was asked for besides.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerOutputRow {
    /// The token.
    pub token_id: u32,
    /// Where asked for.
    pub logprobs: Option<LogprobsRow>,
    /// Where asked for: what the token was chosen from.
    pub trace: Option<Box<TokenTrace>>,
    /// NaN values in the row; they count as -inf.
    pub num_nans: u32,
    /// Whether a mask was left out since it would have emptied the row.
    pub restored: bool,
}

impl SamplerOutputRow {
    /// The token with the largest logit, where nothing else was [asked](Sampler::takes_largest) of the row.
    pub(crate) fn largest(token_id: u32) -> Self {
        Self {
            token_id,
            logprobs: None,
            trace: None,
            num_nans: 0,
            restored: false,
        }
    }

    /// A token that needed no logits, since its mask left no other: the row would have been restored where
    /// a limit of the request masks that one.
    pub(crate) fn given(token_id: u32, state: &RequestSamplingState) -> Self {
        let restored =
            logits_processor::is_masked(state.params(), state.output_token_ids(), token_id);
        Self {
            restored,
            ..Self::largest(token_id)
        }
    }
}

/// Buffers of one thread, reused from row to row: nothing is allocated in a step once they have
/// grown to the vocabulary (but the logprobs that are returned).
#[derive(Debug, Default)]
pub struct SamplerScratch {
    maxima: BlockMaxima,
    raw: Vec<f32>,
    floats: Vec<f32>,
    candidates: Vec<Candidate>,
    saved: Vec<(usize, f32)>,
}

/// Chooses tokens. Holds no state of requests: rows may be sampled in any order, on any thread.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    vocab: VocabSizes,
    logprobs_mode: LogprobsMode,
}

impl Sampler {
    /// A sampler for rows of this vocabulary.
    pub fn new(vocab: VocabSizes, logprobs_mode: LogprobsMode) -> Self {
        Self {
            vocab,
            logprobs_mode,
        }
    }

    /// Whether the next token is the one with the largest logit of those that the grammar allows, and
    /// nothing else is asked of the row: then its logits needn't be there.
    pub(crate) fn takes_largest(state: &RequestSamplingState) -> bool {
        state.filters().is_none()
            && !state.params().include_trace
            && RequestedLogprobs::of_output(state.params()).is_none()
            && !logits_processor::is_needed(state)
    }

    /// Samples one row.
    ///
    /// `logits` is `[vocab.logits]`, and holds no meaning afterwards. `mask` is the grammar's; logits
    /// that it masks need not be the model's (anything but NaN does), and the token is the same. The
    /// token's noise depends on the request's seed and the length of its output alone.
    ///
    /// The order: grammar mask, raw logprobs, `allowed_token_ids`, `bad_words`, `min_tokens`,
    /// `logit_bias`, penalties, thinking budget, then greedy, or temperature, `min_p`, `top_k`,
    /// `top_p` and the draw; processed logprobs. Equal logits go to the lower id everywhere.
    ///
    /// # Errors
    /// See [`SampleError`]; each concerns this request alone.
    pub fn sample_row(
        &self,
        logits: &mut [f32],
        state: &RequestSamplingState,
        mask: Option<RowMask<'_>>,
        scratch: &mut SamplerScratch,
    ) -> Result<SamplerOutputRow, SampleError> {
        self.sample_known_row(logits, KnownLogits::Nothing, state, mask, scratch)
    }

    /// The same of a row of which something is known, which is then read less often or not at all.
    ///
    /// # Errors
    /// As there.
    pub fn sample_known_row(
        &self,
        logits: &mut [f32],
        known: KnownLogits<'_>,
        state: &RequestSamplingState,
        mask: Option<RowMask<'_>>,
        scratch: &mut SamplerScratch,
    ) -> Result<SamplerOutputRow, SampleError> {
        let SamplerScratch {
            maxima,
            raw,
            floats,
            candidates,
            saved,
        } = scratch;
        let row = self.tokens_of(logits)?;
        read_models_logits(row, known, maxima)?;
        let num_nans = maxima.num_nans;
        let requested = RequestedLogprobs::of_output(state.params());
        let has_processors = logits_processor::is_needed(state);
        let reads_all = requested.is_some() || has_processors;
        let mut trace = (state.params().include_trace)
            .then(|| RowTrace::before_mask(row, mask, maxima, floats, candidates));
        let apart = match mask {
            Some(mask) => constrain(row, mask, reads_all, state, maxima, saved)?,
            None => Apart::Nothing,
        };
        // Without a mask the row is the same.
        if let Some(trace) = trace.as_mut().filter(|_| mask.is_some()) {
            trace.under_mask(MaskedRow::new(row, apart), maxima);
        }

        let wants_raw = requested.is_some() && !is_processed(self.logprobs_mode);
        let mut masking = Masking::Applied;
        let mut raw_row = None;
        if has_processors {
            if wants_raw || trace.is_some() {
                raw.clear();
                raw.extend_from_slice(row);
                raw_row = Some(raw.as_slice());
            }
            masking = logits_processor::apply(row, state, saved);
            maxima.read(row);
        }

        let (masked_row, mut kept) = (MaskedRow::new(row, apart), Cutoff::NONE);
        let filters = state.filters();
        let token_id = match filters {
            None => maxima.argmax(masked_row),
            Some(filters) => {
                let noise = Noise::new(state.seed(), state.output_token_ids().len() as u64);
                let wants_kept = requested.is_some() && is_processed(self.logprobs_mode);
                let first = match wants_kept {
                    true => None,
                    false => draw_before_filters(masked_row, maxima, filters, &noise),
                };
                first.or_else(|| {
                    maxima.read_masked(masked_row);
                    kept = cutoff(masked_row, maxima, filters, floats, candidates);
                    random_sample(masked_row, maxima, filters, kept, &noise)
                })
            }
        };
        // No stage empties a row; should one have, it is this request's error.
        let num_tokens = row.len();
        let token_id = token_id.ok_or(SampleError::NoFiniteLogits {
            num_nans,
            num_tokens,
        })?;
        let trace = trace.map(|trace| {
            let logits = raw_row.unwrap_or(row);
            Box::new(trace.of_token(logits[token_id as usize]))
        });

        let logprobs = requested.map(|requested| {
            if is_processed(self.logprobs_mode) {
                process(row, filters, kept);
                maxima.read(row);
            }
            let row = match raw_row.filter(|_| wants_raw) {
                Some(raw) => {
                    maxima.read(raw);
                    raw
                }
                None => row,
            };
            let normalised = is_normalised(self.logprobs_mode);
            gather(
                row, maxima, normalised, token_id, requested, floats, candidates,
            )
        });
        Ok(SamplerOutputRow {
            token_id,
            logprobs,
            trace,
            num_nans,
            restored: masking == Masking::Restored,
        })
    }

    /// Logprobs of one prompt position: of `target_token_id`, the prompt's next token, and of
    /// those that `prompt_logprobs` or `prompt_logprob_token_ids` ask for. `logits` is
    /// `[vocab.logits]`. No mask, processor or temperature applies, whatever the mode.
    ///
    /// # Errors
    /// A row of another width, or without any finite value.
    pub fn prompt_logprobs_row(
        &self,
        logits: &mut [f32],
        params: &SamplingParams,
        target_token_id: u32,
        scratch: &mut SamplerScratch,
    ) -> Result<LogprobsRow, SampleError> {
        let SamplerScratch {
            maxima,
            floats,
            candidates,
            ..
        } = scratch;
        let row = self.tokens_of(logits)?;
        read_models_logits(row, KnownLogits::Nothing, maxima)?;
        let requested = RequestedLogprobs::of_prompt(params).unwrap_or(RequestedLogprobs::Top(0));
        let normalised = is_normalised(self.logprobs_mode);
        Ok(gather(
            row,
            maxima,
            normalised,
            target_token_id,
            requested,
            floats,
            candidates,
        ))
    }

    /// The part of the row that belongs to tokens; the padding behind it plays no part.
    fn tokens_of<'a>(&self, logits: &'a mut [f32]) -> Result<&'a mut [f32], SampleError> {
        let (expected, found) = (self.vocab.logits, logits.len());
        if found != expected {
            return Err(SampleError::LogitsWidth { expected, found });
        }
        Ok(&mut logits[..self.vocab.num_tokens()])
    }
}

/// Makes the row ordered (see [`BlockMaxima::make_ordered`]); an error where nothing is finite.
fn read_models_logits(
    row: &mut [f32],
    known: KnownLogits<'_>,
    maxima: &mut BlockMaxima,
) -> Result<(), SampleError> {
    maxima.read_known(row, known);
    maxima.make_ordered(row);
    if maxima.max == MASKED {
        let (num_nans, num_tokens) = (maxima.num_nans, row.len());
        return Err(SampleError::NoFiniteLogits {
            num_nans,
            num_tokens,
        });
    }
    Ok(())
}

/// Applies the grammar's mask. Where not all logits are read after it, what leaves some tokens stays apart
/// from the row and is returned (see [`MaskedRow`]), and with a bitmask maxima of blocks may be bounds. An error where it leaves
/// nothing. `saved` is scratch.
fn constrain<'a>(
    row: &mut [f32],
    mask: RowMask<'a>,
    reads_all: bool,
    state: &RequestSamplingState,
    maxima: &mut BlockMaxima,
    saved: &mut Vec<(usize, f32)>,
) -> Result<Apart<'a>, SampleError> {
    let num_tokens = row.len();
    let mut apart = Apart::Nothing;
    let masking = match mask {
        RowMask::Bitmask(bitmask) => {
            let (expected, found) = (num_tokens.div_ceil(32), bitmask.len());
            if found < expected {
                return Err(SampleError::BitmaskWidth { expected, found });
            }
            let bits = Apart::Bitmask(bitmask);
            if reads_all {
                apply_token_bitmask_inplace(row, bitmask);
                maxima.read_masked(MaskedRow::new(row, bits));
            } else {
                apart = bits;
                maxima.bound_masked(MaskedRow::new(row, bits));
            }
            Masking::Applied
        }
        RowMask::Only(ids) if !reads_all && are_ascending_below(ids, num_tokens) => {
            apart = Apart::Only(ids);
            maxima.read_known(row, KnownLogits::Only(ids));
            Masking::Applied
        }
        RowMask::Only(ids) => {
            let masking = keep_only(row, ids, saved);
            maxima.read_known(row, KnownLogits::Only(ids));
            masking
        }
        RowMask::Without(ids) => {
            for &id in ids {
                if let Some(logit) = row.get_mut(id as usize) {
                    *logit = MASKED;
                }
            }
            maxima.read_again(row, ids);
            Masking::Applied
        }
    };
    if masking == Masking::Restored || maxima.max == MASKED {
        let output_index = state.output_token_ids().len();
        return Err(SampleError::GrammarMaskEmpty {
            num_tokens,
            output_index,
        });
    }
    Ok(apart)
}

/// Whether these are what [`Apart::Only`] takes, as a mask's tokens are.
fn are_ascending_below(ids: &[u32], num_tokens: usize) -> bool {
    ids.is_sorted() && ids.last().is_none_or(|&id| (id as usize) < num_tokens)
}

/// The row as the draw saw it: divided by temperature, and masked where a filter drops. As it is
/// for greedy decoding.
fn process(row: &mut [f32], filters: Option<Filters>, cutoff: Cutoff) {
    let Some(Filters {
        inverse_temperature,
        ..
    }) = filters
    else {
        return;
    };
    for (id, logit) in (0..).zip(row) {
        *logit = if cutoff.keeps(*logit, id) {
            let scaled = f64::from(*logit) * inverse_temperature;
            scaled.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
        } else {
            MASKED
        };
    }
}
