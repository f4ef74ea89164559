//! Everything that changes a request's logits between the grammar's mask and the draw, in order.

use super::bad_words;
use super::mask::{MASKED, Masking, keep_ascending, keep_only, mask_tokens};
use super::metadata::RequestSamplingState;
use protocol::SamplingParams;

/// Whether [`apply`] would change a row of this request.
pub(super) fn is_needed(state: &RequestSamplingState) -> bool {
    let params = state.params();
    params.allowed_token_ids.is_some()
        || !params.bad_words_token_ids.is_empty()
        || is_below_min_tokens(state)
        || !params.logit_bias.is_empty()
        || state.penalties().is_some()
        || state.forced_token().is_some()
}

/// Applies, in this order: `allowed_token_ids`, `bad_words`, `min_tokens`, `logit_bias`,
/// penalties, `thinking_token_budget`. Each mask stands or is left out as [`super::mask`] says;
/// the result is whether any was left out. `saved` is scratch.
pub(super) fn apply(
    row: &mut [f32],
    state: &RequestSamplingState,
    saved: &mut Vec<(usize, f32)>,
) -> Masking {
    let params = state.params();
    let mut restored = false;
    let mut note = |masking| restored |= masking == Masking::Restored;
    if let Some(ids) = &params.allowed_token_ids {
        note(keep_ascending(row, ids));
    }
    if !params.bad_words_token_ids.is_empty() {
        let ids =
            bad_words::about_to_complete(&params.bad_words_token_ids, state.output_token_ids());
        note(mask_tokens(row, ids, saved));
    }
    if is_below_min_tokens(state) {
        note(mask_tokens(row, stop_token_ids(params), saved));
    }
    add_logit_bias(row, &params.logit_bias);
    if let Some(penalties) = state.penalties() {
        penalties.apply(row);
    }
    if let Some(token_id) = state.forced_token() {
        note(keep_only(row, &[token_id], saved));
    }
    if restored {
        Masking::Restored
    } else {
        Masking::Applied
    }
}

/// Whether one of the masks of [`apply`] forbids a token as the next after an output: the one that comes
/// all the same, since a grammar allows no other.
pub(crate) fn is_masked(params: &SamplingParams, output_token_ids: &[u32], token_id: u32) -> bool {
    let is_not_allowed = params
        .allowed_token_ids
        .as_ref()
        .is_some_and(|allowed| allowed.binary_search(&token_id).is_err());
    let mut bad = bad_words::about_to_complete(&params.bad_words_token_ids, output_token_ids);
    is_not_allowed
        || bad.any(|id| id == token_id)
        || output_token_ids.len() < params.min_tokens as usize
            && stop_token_ids(params).any(|id| id == token_id)
}

/// Whether stop tokens, the end-of-text token among them, must not come yet.
fn is_below_min_tokens(state: &RequestSamplingState) -> bool {
    state.output_token_ids().len() < state.params().min_tokens as usize
}

fn stop_token_ids(params: &SamplingParams) -> impl Iterator<Item = u32> + '_ {
    params
        .stop_token_ids
        .iter()
        .copied()
        .chain(params.eos_token_id)
}

/// Adds to the logits named; masked ones stay masked and finite ones finite.
fn add_logit_bias(row: &mut [f32], logit_bias: &[(u32, f32)]) {
    for &(id, bias) in logit_bias {
        if let Some(logit) = row.get_mut(id as usize).filter(|logit| **logit > MASKED) {
            *logit = (*logit + bias).clamp(f32::MIN, f32::MAX);
        }
    }
}
