//! Sampling parameters that a model brings with it.

use protocol::SamplingParams;
use serde::Deserialize;

/// Sampling parameters that a request without them gets: the model's `generation_config.json`,
/// or vLLM's defaults where a field is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultSamplingParams {
    /// See [`SamplingParams::temperature`].
    pub temperature: Option<f32>,
    /// See [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// See [`SamplingParams::top_k`].
    pub top_k: Option<u32>,
    /// See [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// See [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// `max_new_tokens` of the file: the limit where a request gives none.
    #[serde(rename = "max_new_tokens")]
    pub max_tokens: Option<u32>,
}

impl DefaultSamplingParams {
    /// These, where `over` has none of its own.
    #[must_use]
    pub fn overridden_by(self, over: Self) -> Self {
        Self {
            temperature: over.temperature.or(self.temperature),
            top_p: over.top_p.or(self.top_p),
            top_k: over.top_k.or(self.top_k),
            min_p: over.min_p.or(self.min_p),
            repetition_penalty: over.repetition_penalty.or(self.repetition_penalty),
            max_tokens: over.max_tokens.or(self.max_tokens),
        }
    }

    /// [`SamplingParams::default`] with these fields in place.
    pub fn to_sampling_params(&self) -> SamplingParams {
        let base = SamplingParams::default();
        SamplingParams {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_p: self.top_p.unwrap_or(base.top_p),
            top_k: self.top_k.unwrap_or(base.top_k),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            max_tokens: self.max_tokens.or(base.max_tokens),
            ..base
        }
    }
}
