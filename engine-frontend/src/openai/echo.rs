//! `echo`: an answer that starts with its prompt.

use tokenizer::Tokenizer;

use super::logprobs::CompletionLogProbs;
use crate::outputs::RequestOutput;

/// The prompt's text; its tokens' logprobs are added to `logprobs`.
pub(super) fn echo_prompt(
    tokenizer: &Tokenizer,
    output: &RequestOutput,
    logprobs: Option<&mut CompletionLogProbs>,
    as_token_ids: bool,
) -> String {
    let positions = output.prompt_logprobs.as_deref().unwrap_or_default();
    if let Some(logprobs) = logprobs {
        for (position, &id) in positions.iter().zip(output.prompt_token_ids.iter()) {
            let fallback = String::from_utf8_lossy(tokenizer.token_bytes(id));
            logprobs.push(position.as_ref(), &fallback, as_token_ids);
        }
    }
    match &output.prompt {
        Some(text) => text.to_string(),
        None => tokenizer.decode(&output.prompt_token_ids, false),
    }
}
