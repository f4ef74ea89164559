//! Sampling: from a row of logits to a token.
//!
//! Pure functions over `f32` rows: no tensors, no threads, no clock. The caller runs rows in
//! parallel, one [`SamplerScratch`] per thread. A row's token depends on the row, the request's
//! parameters and tokens, and noise that is a function of (seed, output index, token id).
//!
//! ```
//! use std::sync::Arc;
//! use engine_core::sample::{RequestSamplingState, Sampler, SamplerScratch, VocabSizes};
//! use protocol::{LogprobsMode, SamplingParams};
//!
//! let vocab = VocabSizes { logits: 4, tokenizer: 3 };
//! let sampler = Sampler::new(vocab, LogprobsMode::RawLogprobs);
//! let params = SamplingParams { temperature: 0.0, logprobs: Some(1), ..Default::default() };
//! let mut state = RequestSamplingState::new(Arc::new(params), &[0], &[]);
//!
//! let mut logits = [0.5, 2.0, 1.0, 9.0]; // id 3 is padding
//! let row = sampler.sample_row(&mut logits, &state, None, &mut SamplerScratch::default())?;
//! assert_eq!(row.token_id, 1);
//! assert_eq!(row.logprobs.map(|logprobs| logprobs.rank), Some(1));
//! state.append(row.token_id);
//! # Ok::<(), engine_core::sample::SampleError>(())
//! ```

mod bad_words;
mod error;
mod logits_processor;
mod logprobs;
mod mask;
mod masked_row;
mod math;
mod metadata;
mod noise;
mod nucleus;
mod params;
mod penalties;
mod random_sample;
mod row;
mod sampler;
mod scores;
mod sequence_matcher;
mod sum_exp;
mod thinking_budget;
mod topk_topp;
mod trace;
mod vector_width;

#[cfg(test)]
mod tests;

pub use error::SampleError;
pub(crate) use logits_processor::is_masked;
pub use logprobs::LogprobsRow;
pub use mask::RowMask;
pub use metadata::{RequestSamplingState, VocabSizes};
pub use noise::Noise;
pub use params::check_params;
pub use row::KnownLogits;
pub use sampler::{Sampler, SamplerOutputRow, SamplerScratch};
pub(crate) use scores::log_softmax_of;
pub(crate) use sequence_matcher::SequenceMatcher;
