//! Repetition, frequency and presence penalties.

use std::collections::HashMap;

use protocol::SamplingParams;

use super::mask::MASKED;

/// How often each token was used, for a request with at least one penalty on.
#[derive(Debug, Clone)]
pub(super) struct Penalties {
    repetition: f32,
    frequency: f32,
    presence: f32,
    /// Occurrences in the output; 0 for a token that only the prompt has.
    output_counts: HashMap<u32, u32>,
}

impl Penalties {
    /// `None` where all penalties are off. Counts the tokens otherwise; those of the prompt only
    /// where there is a repetition penalty, the one that looks at them.
    pub(super) fn new(
        params: &SamplingParams,
        prompt_token_ids: &[u32],
        output_token_ids: &[u32],
    ) -> Option<Self> {
        let (repetition, frequency, presence) = (
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        );
        if repetition == 1.0 && frequency == 0.0 && presence == 0.0 {
            return None;
        }
        let mut output_counts = HashMap::new();
        if repetition != 1.0 {
            output_counts.extend(prompt_token_ids.iter().map(|&id| (id, 0)));
        }
        let mut penalties = Self {
            repetition,
            frequency,
            presence,
            output_counts,
        };
        for &id in output_token_ids {
            penalties.append(id);
        }
        Some(penalties)
    }

    /// Counts one more output token.
    pub(super) fn append(&mut self, token_id: u32) {
        let count = self.output_counts.entry(token_id).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// First repetition (prompt and output: a positive logit is divided, another multiplied),
    /// then frequency (times the occurrences in the output), then presence (once). Touches the
    /// tokens that occur, no other; a finite logit stays finite.
    pub(super) fn apply(&self, row: &mut [f32]) {
        for (&id, &count) in &self.output_counts {
            let Some(logit) = row.get_mut(id as usize).filter(|logit| **logit > MASKED) else {
                continue;
            };
            let repeated = if *logit > 0.0 {
                *logit / self.repetition
            } else {
                *logit * self.repetition
            };
            let frequent = repeated - self.frequency * count as f32;
            let present = frequent - if count > 0 { self.presence } else { 0.0 };
            *logit = present.clamp(f32::MIN, f32::MAX);
        }
    }
}
