//! `echo`: an answer that starts with its prompt.

use tokenizer::Tokenizer;

use super::completion::CompletionRequest;
use super::logprobs::CompletionLogProbs;
use crate::outputs::{CompletionOutput, RequestOutput};

/// The text of an answer or of a piece of it, which with `echoes` begins with its prompt, and the
/// logprobs of its tokens where the request asks for any.
pub(super) fn text_and_logprobs(
    request: &CompletionRequest,
    tokenizer: &Tokenizer,
    output: &RequestOutput,
    completion: &CompletionOutput,
    echoes: bool,
) -> (String, Option<CompletionLogProbs>) {
    let as_token_ids = request.common.return_tokens_as_token_ids;
    let mut text = String::new();
    let mut logprobs = request.logprobs.map(|_| CompletionLogProbs::default());
    if echoes {
        text = echo_prompt(tokenizer, output, logprobs.as_mut(), as_token_ids);
    }
    if !request.echo_only() {
        text.push_str(&completion.text);
        if let (Some(logprobs), Some(positions)) = (&mut logprobs, &completion.logprobs) {
            for position in positions {
                logprobs.push(Some(position), "", as_token_ids);
            }
        }
    }
    (text, logprobs)
}

/// The prompt's text; its tokens' logprobs are added to `logprobs`.
fn echo_prompt(
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
