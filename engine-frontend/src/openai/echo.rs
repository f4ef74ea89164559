//! `echo`: an answer that starts with its prompt.

use tokenizer::Tokenizer;

use super::completion::CompletionRequest;
use super::logprobs::{CompletionLogProbs, EchoedLogprobs};
use crate::outputs::{CompletionOutput, RequestOutput};

/// The text of an answer or of a piece of it, which with `echoes` begins with its prompt, and the
/// logprobs of its tokens where the request asks for any: they are taken out of it.
pub(super) fn text_and_logprobs(
    request: &CompletionRequest,
    tokenizer: &Tokenizer,
    output: &RequestOutput,
    completion: &mut CompletionOutput,
    echoes: bool,
) -> (String, Option<CompletionLogProbs>) {
    let mut text = match echoes {
        true => prompt_text(tokenizer, output),
        false => String::new(),
    };
    let positions = completion.logprobs.take();
    let has_logprobs = echoes || positions.is_some();
    let mut positions = positions.unwrap_or_default();
    match request.echo_only() {
        true => positions.clear(),
        false => text.push_str(&completion.text),
    }
    let wanted = request.logprobs.filter(|_| has_logprobs);
    let logprobs = wanted.map(|_| {
        let prompt = echoes.then(|| prompt_logprobs(tokenizer, output)).flatten();
        CompletionLogProbs::new(prompt, positions, request.common.return_tokens_as_token_ids)
    });
    (text, logprobs)
}

fn prompt_text(tokenizer: &Tokenizer, output: &RequestOutput) -> String {
    match &output.prompt {
        Some(text) => text.to_string(),
        None => tokenizer.decode(&output.prompt_token_ids, false),
    }
}

fn prompt_logprobs(tokenizer: &Tokenizer, output: &RequestOutput) -> Option<EchoedLogprobs> {
    let positions = output.prompt_logprobs.clone()?;
    let tokens = positions.iter().zip(output.prompt_token_ids.iter());
    let without = tokens.filter(|(position, _)| position.is_none());
    let text = |id| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
    let texts_without = without.map(|(_, &id)| text(id)).collect();
    Some(EchoedLogprobs {
        positions,
        texts_without,
    })
}
