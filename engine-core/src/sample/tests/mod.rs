//! The sampler against a plain reference: sorted, in f64, one obvious step after the other.

mod distribution;
mod filters;
mod guards;
mod logprobs;
mod masked_rows;
mod noise;
mod order;
mod reference;
mod sampler;
mod trace;

use std::sync::Arc;

use proptest::prelude::*;
use protocol::{LogprobsMode, SamplingParams};

use super::{
    RequestSamplingState, RowMask, SampleError, Sampler, SamplerOutputRow, SamplerScratch,
    VocabSizes,
};

/// Greedy unless changed.
fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        seed: Some(1),
        ..SamplingParams::default()
    }
}

/// State after this prompt and output.
fn state_of(params: SamplingParams, prompt: &[u32], output: &[u32]) -> RequestSamplingState {
    RequestSamplingState::new(Arc::new(params), prompt, output)
}

/// Samples a row whose vocabulary has no padding.
fn sample_in_mode(
    mode: LogprobsMode,
    logits: &[f32],
    state: &RequestSamplingState,
    bitmask: Option<&[u32]>,
) -> Result<SamplerOutputRow, SampleError> {
    let vocab = VocabSizes {
        logits: logits.len(),
        tokenizer: logits.len(),
    };
    Sampler::new(vocab, mode).sample_row(
        &mut logits.to_vec(),
        state,
        bitmask.map(RowMask::Bitmask),
        &mut SamplerScratch::default(),
    )
}

/// The same in the default mode, where it has to succeed.
fn sample(
    logits: &[f32],
    state: &RequestSamplingState,
    bitmask: Option<&[u32]>,
) -> SamplerOutputRow {
    sample_in_mode(LogprobsMode::RawLogprobs, logits, state, bitmask).unwrap()
}

/// The logits after every processor and filter, by id.
fn processed_logits(
    logits: &[f32],
    mut params: SamplingParams,
    prompt: &[u32],
    output: &[u32],
) -> Vec<f32> {
    params.logprobs = None;
    params.logprob_token_ids = Some((0..logits.len() as u32).collect());
    let state = state_of(params, prompt, output);
    let row = sample_in_mode(LogprobsMode::ProcessedLogits, logits, &state, None).unwrap();
    row.logprobs.unwrap().logprobs[1..].to_vec()
}

/// One logit: ordinary, from a coarse grid (ties), masked, or huge.
fn any_logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -30.0..30.0f32,
        6 => (-8..8i8).prop_map(|step| f32::from(step) * 0.5),
        2 => Just(f32::NEG_INFINITY),
        1 => prop_oneof![Just(f32::MAX), Just(f32::MIN), Just(-0.0), Just(1e30), Just(-1e30)],
    ]
}

/// A row of up to a few blocks with at least one finite logit. One kind has neither huge values
/// nor a peak, so that many tokens matter.
fn any_row() -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![
        prop::collection::vec(any_logit(), 1..300),
        prop::collection::vec(-2.0..2.0f32, 1..300),
        prop::collection::vec((-3..3i8).prop_map(f32::from), 1..300),
    ]
    .prop_filter("a finite logit", |row| {
        row.iter().any(|logit| logit.is_finite())
    })
}
