//! What the tokens of an answer were chosen from, as the API says it: `include_trace`.

use protocol::TokenTrace;
use serde::{Deserialize, Serialize};
use tokenizer::Tokenizer;

use crate::outputs::CompletionOutput;

/// What one token of an answer was chosen from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedToken {
    /// The token.
    pub token_id: u32,
    /// Its text; bytes that aren't whole characters become U+FFFD.
    pub token: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The model's probability of it, before the constraint's mask, at temperature 1 and without penalties.
    /// `None` of a forced token.
    pub probability: Option<f32>,
    /// The same among the tokens that the constraint allowed.
    pub masked_probability: f32,
    /// Tokens that the constraint allowed; all of the vocabulary where nothing constrains.
    pub num_allowed: u32,
    /// True if the constraint was in force.
    pub is_constrained: bool,
    /// True if it was appended without a forward pass, since nothing else could come.
    pub is_forced: bool,
    /// Milliseconds since the token before; of the first, since the engine took the request.
    pub step_ms: f64,
    /// The most probable tokens before the mask, best first. Empty for a forced token.
    pub top: Vec<TracedAlternative>,
}

/// A token that might have been chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedAlternative {
    /// The token.
    pub token_id: u32,
    /// Its text.
    pub token: String,
    /// The model's probability of it, before the mask.
    pub probability: f32,
    /// True if the constraint allowed it.
    pub is_allowed: bool,
}

/// The trace of an answer, or of a piece of it, where asked for. It is taken out of it, as logprobs are.
pub(super) fn take_trace(
    tokenizer: &Tokenizer,
    completion: &mut CompletionOutput,
) -> Option<Vec<TracedToken>> {
    let trace = completion.trace.take()?;
    // Tokens that came with the request have no entry.
    let num_before = completion.token_ids.len().saturating_sub(trace.len());
    let token_ids = completion.token_ids.iter().skip(num_before);
    let tokens = token_ids.zip(trace);
    Some(
        tokens
            .map(|(id, trace)| token(tokenizer, *id, trace))
            .collect(),
    )
}

fn token(tokenizer: &Tokenizer, token_id: u32, trace: TokenTrace) -> TracedToken {
    let bytes = |token_id| tokenizer.token_bytes(token_id);
    let text = |token_id| String::from_utf8_lossy(bytes(token_id)).into_owned();
    let alternatives = trace.top.into_iter().map(|top| TracedAlternative {
        token_id: top.token_id,
        token: text(top.token_id),
        probability: top.probability,
        is_allowed: top.is_allowed,
    });
    TracedToken {
        token_id,
        token: text(token_id),
        bytes: bytes(token_id).to_vec(),
        probability: trace.probability,
        masked_probability: trace.masked_probability,
        num_allowed: trace.num_allowed,
        is_constrained: trace.is_constrained,
        is_forced: trace.is_forced,
        // To the microsecond.
        step_ms: (f64::from(trace.step_seconds) * 1e6).round() / 1e3,
        top: alternatives.collect(),
    }
}
