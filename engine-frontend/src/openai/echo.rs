//! `echo`: an answer that starts with its prompt.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use tokenizer::Tokenizer;

use super::completion::{CompletionPrompt, CompletionRequest};
use super::logprobs::{CompletionLogProbs, EchoedLogprobs};
use crate::outputs::{CompletionOutput, RequestOutput};

/// The text of an answer or of a piece of it, which begins with its prompt where `echo` asks for it. All answers to a prompt hold the same
/// one: as JSON both are one string, put together as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EchoedText {
    prompt: Option<Arc<str>>,
    answer: String,
}

impl fmt::Display for EchoedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prompt.as_deref().unwrap_or_default())?;
        f.write_str(&self.answer)
    }
}

impl Serialize for EchoedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text of an answer or of a piece of it, which begins with its prompt's where that is given, and the logprobs of
/// its tokens where the request asks for any. Both are taken out of it.
pub(super) fn text_and_logprobs(
    request: &CompletionRequest,
    tokenizer: &Tokenizer,
    output: &RequestOutput,
    completion: &mut CompletionOutput,
    prompt: Option<Arc<str>>,
) -> (EchoedText, Option<CompletionLogProbs>) {
    let echoes = prompt.is_some();
    let mut answer = std::mem::take(&mut completion.text);
    let positions = completion.logprobs.take();
    let has_logprobs = echoes || positions.is_some();
    let mut positions = positions.unwrap_or_default();
    if request.echo_only() {
        answer.clear();
        positions.clear();
    }
    let wanted = request.logprobs.filter(|_| has_logprobs);
    let logprobs = wanted.map(|_| {
        let prompt = echoes.then(|| prompt_logprobs(tokenizer, output)).flatten();
        CompletionLogProbs::new(prompt, positions, request.common.return_tokens_as_token_ids)
    });
    (EchoedText { prompt, answer }, logprobs)
}

/// The text of a prompt, as `echo` shows it.
pub(super) fn prompt_text(tokenizer: &Tokenizer, output: &RequestOutput) -> Arc<str> {
    match &output.prompt {
        Some(text) => Arc::clone(text),
        None => tokenizer.decode(&output.prompt_token_ids, false).into(),
    }
}

/// Bytes of the JSON of prompts as `echo` shows them, once each.
pub(super) fn json_bytes(prompts: &CompletionPrompt, tokenizer: &Tokenizer) -> usize {
    let of_ids = |ids: &Vec<u32>| in_json(&tokenizer.decode(ids, false));
    match prompts {
        CompletionPrompt::Text(text) => in_json(text),
        CompletionPrompt::TokenIds(ids) => of_ids(ids),
        CompletionPrompt::Texts(texts) => texts.iter().map(|text| in_json(text)).sum(),
        CompletionPrompt::TokenIdLists(lists) => lists.iter().map(of_ids).sum(),
    }
}

/// Bytes of a text in JSON, without quotation marks around it.
fn in_json(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x8 | 0xc => 2,
        ..b' ' => 6,
        _ => 1,
    });
    bytes.sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_behind_its_prompt_is_one_string_of_json() {
        let prompt = "a\"\u{1}\u{8}\u{c}\n\r\t\\\u{7f}\u{e9}\u{1f600}/";
        let text = EchoedText {
            prompt: Some(prompt.into()),
            answer: "\"b".to_owned(),
        };
        let json = serde_json::to_string(&text).unwrap();
        let whole: String = serde_json::from_str(&json).unwrap();
        assert_eq!(whole, format!("{prompt}\"b"));
        assert_eq!(json.len(), 2 + in_json(prompt) + in_json("\"b"));
    }
}
