//! How long a prompt may be, and what is cut off one that is longer.

use protocol::SamplingParams;

use super::{InputProcessor, TruncationSide};
use crate::error::ValidationError;

impl InputProcessor {
    /// Cuts a prompt to `keep` tokens.
    pub(super) fn truncate(
        &self,
        token_ids: &mut Vec<u32>,
        keep: i64,
        side: TruncationSide,
        params: &SamplingParams,
    ) -> Result<(), ValidationError> {
        let max_model_len = self.limits.max_model_len;
        let keep = match keep {
            -1 => max_model_len.saturating_sub(params.max_tokens.unwrap_or(1)),
            _ => u32::try_from(keep)
                .ok()
                .filter(|keep| (1..=max_model_len).contains(keep))
                .ok_or_else(|| {
                    ValidationError::field(
                        "truncate_prompt_tokens",
                        keep,
                        format!(
                            "truncate_prompt_tokens must be between 1 and the model's context \
                             length {max_model_len}, or -1 for what leaves room for the answer"
                        ),
                    )
                })?,
        };
        let excess = token_ids.len().saturating_sub(keep as usize);
        match side {
            TruncationSide::Left => drop(token_ids.drain(..excess)),
            TruncationSide::Right => token_ids.truncate(keep as usize),
        }
        Ok(())
    }

    /// Checks a prompt's length and its ids; returns the length. `field` is what the caller calls it. A prompt to
    /// which nothing is generated may fill the context.
    pub(super) fn verify_prompt(
        &self,
        token_ids: &[u32],
        is_prompt_only: bool,
        field: Option<&str>,
    ) -> Result<u32, ValidationError> {
        if token_ids.is_empty() {
            let message = "the prompt is empty; it must have at least one token";
            return Err(ValidationError::about("prompt", message));
        }
        let max_model_len = self.limits.max_model_len;
        let Some(prompt_len) = u32::try_from(token_ids.len())
            .ok()
            .filter(|&len| len < max_model_len || (is_prompt_only && len == max_model_len))
        else {
            return Err(match is_prompt_only {
                true => self.too_long_to_pool(token_ids.len()),
                false => self.too_long(token_ids.len(), ""),
            });
        };
        let is_unknown = |&id: &u32| id >= self.limits.vocab_size;
        if let Some((i, id)) = (token_ids.iter().enumerate()).find(|(_, id)| is_unknown(id)) {
            let parameter = match field {
                Some(field) => format!("{field}[{i}]"),
                None => "prompt".to_owned(),
            };
            return Err(ValidationError::field(
                parameter,
                id,
                format!(
                    "token id {id} is out of range: the model's ids are below {}",
                    self.limits.vocab_size
                ),
            ));
        }
        Ok(prompt_len)
    }

    /// A prompt of `at_least` so many tokens is too long.
    pub(super) fn too_long(&self, num_tokens: usize, at_least: &str) -> ValidationError {
        let max_model_len = self.limits.max_model_len;
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens, and the answer needs at \
             least one of them. However, your prompt contains {at_least}{num_tokens} input tokens. \
             Shorten it, or set truncate_prompt_tokens"
        );
        ValidationError::about("input_tokens", message)
    }

    /// The error about a prompt that is too long for a model that generates nothing to it.
    pub(super) fn too_long_to_pool(&self, num_tokens: usize) -> ValidationError {
        let message = format!(
            "This model's maximum context length is {} tokens. However, the text has {num_tokens}. Shorten it, or set \
             truncate_prompt_tokens",
            self.limits.max_model_len
        );
        ValidationError::about("input_tokens", message)
    }
}
