//! Logprobs in the two shapes of the API.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::logprobs::{Logprob, PositionLogprobs};
use crate::outputs::RequestOutput;

/// Logprobs below this are reported as this: JSON has no infinity.
const MIN_LOGPROB: f64 = -9999.0;

/// Logprobs of a completion: four lists with one entry per token.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CompletionLogProbs {
    /// Where each token starts in the text, in characters.
    pub text_offset: Vec<u32>,
    /// The token's logprob; `None` for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f64>>,
    /// The token's text.
    pub tokens: Vec<String>,
    /// Text and logprob of the token and of the most probable ones.
    pub top_logprobs: Vec<Option<TopLogprobs>>,
}

/// Text and logprob of some tokens, no text twice: in JSON an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopLogprobs(Vec<(String, f64)>);

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(text, logprob)| (text, logprob)))
    }
}

/// The logprobs of a prompt as vLLM's extra field has them: per token null, or an object of token ids with
/// logprob, rank and text each. Answers share them, and they become text one by one: as values of JSON they
/// would take twenty times as much.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptLogprobs(Arc<[Option<PositionLogprobs>]>);

impl PromptLogprobs {
    /// Those of an output, if it has some.
    pub(super) fn of(output: &RequestOutput) -> Option<Self> {
        output.prompt_logprobs.clone().map(Self)
    }
}

impl Serialize for PromptLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let positions = self.0.iter();
        serializer.collect_seq(positions.map(|position| position.as_deref().map(ById)))
    }
}

/// The tokens of one position.
struct ById<'a>(&'a [Logprob]);

impl Serialize for ById<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            logprob: f64,
            rank: Option<u32>,
            decoded_token: Cow<'a, str>,
        }
        serializer.collect_map(self.0.iter().map(|token| {
            let entry = Entry {
                logprob: number(token.logprob),
                rank: token.rank,
                decoded_token: token.decoded_token(),
            };
            (token.token_id, entry)
        }))
    }
}

/// Logprobs of a chat answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChatCompletionLogProbs {
    /// One entry per token.
    pub content: Vec<ChatCompletionLogProbsContent>,
}

/// One token and its rivals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatCompletionLogProbsContent {
    /// The token that was chosen.
    #[serde(flatten)]
    pub chosen: ChatCompletionLogProb,
    /// The most probable tokens, best first.
    pub top_logprobs: Vec<ChatCompletionLogProb>,
}

/// One token's logprob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatCompletionLogProb {
    /// Its text.
    pub token: String,
    /// Its logprob.
    pub logprob: f64,
    /// Its bytes: the text of several tokens may be one character.
    pub bytes: Vec<u8>,
}

/// The token as text, or as `token_id:N`, which tells equal texts apart.
fn token_text(token: &Logprob, as_token_ids: bool) -> String {
    if as_token_ids {
        format!("token_id:{}", token.token_id)
    } else {
        token.decoded_token().into_owned()
    }
}

/// As JSON has it. Wide, as all numbers in a [`Value`] are: a token has the same digits wherever it
/// stands.
pub(super) fn number(logprob: f32) -> f64 {
    if logprob.is_nan() {
        MIN_LOGPROB
    } else {
        f64::from(logprob).max(MIN_LOGPROB)
    }
}

impl CompletionLogProbs {
    /// Appends one position; `None` where the token has no logprob.
    pub(super) fn push(
        &mut self,
        position: Option<&PositionLogprobs>,
        fallback_text: &str,
        as_token_ids: bool,
    ) {
        let offset = match (self.text_offset.last(), self.tokens.last()) {
            (Some(offset), Some(token)) => {
                offset + u32::try_from(token.chars().count()).unwrap_or(u32::MAX - offset)
            }
            _ => 0,
        };
        self.text_offset.push(offset);
        let Some(chosen) = position.and_then(|position| position.first()) else {
            self.tokens.push(fallback_text.to_owned());
            self.token_logprobs.push(None);
            self.top_logprobs.push(None);
            return;
        };
        self.tokens.push(token_text(chosen, as_token_ids));
        self.token_logprobs.push(Some(number(chosen.logprob)));
        let position = position.map_or(&[][..], Vec::as_slice);
        let mut texts = HashSet::with_capacity(position.len());
        let mut top = Vec::with_capacity(position.len());
        for token in position {
            let text = token_text(token, as_token_ids);
            // Of two tokens with one text the more probable stays: the first of them.
            if texts.insert(text.clone()) {
                top.push((text, number(token.logprob)));
            }
        }
        self.top_logprobs.push(Some(TopLogprobs(top)));
    }
}

impl CompletionLogProbs {
    /// Moves the tokens of a streamed piece to where the piece starts; returns where it ends.
    pub(super) fn shift_offsets(&mut self, start: u32) -> u32 {
        for offset in &mut self.text_offset {
            *offset = offset.saturating_add(start);
        }
        match (self.text_offset.last(), self.tokens.last()) {
            (Some(offset), Some(token)) => {
                let len = u32::try_from(token.chars().count()).unwrap_or(u32::MAX);
                offset.saturating_add(len)
            }
            _ => start,
        }
    }
}

impl ChatCompletionLogProbs {
    /// The positions of an answer, each with its `top` most probable tokens (-1 is all there are).
    pub(super) fn new(positions: Vec<PositionLogprobs>, top: i32, as_token_ids: bool) -> Self {
        let one = |token: Logprob| ChatCompletionLogProb {
            token: token_text(&token, as_token_ids),
            logprob: number(token.logprob),
            bytes: token.bytes,
        };
        let content = positions
            .into_iter()
            .filter_map(|mut position| {
                let chosen = position.first()?.clone();
                position.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
                let top = usize::try_from(top).unwrap_or(usize::MAX);
                Some(ChatCompletionLogProbsContent {
                    chosen: one(chosen),
                    top_logprobs: position.into_iter().take(top).map(one).collect(),
                })
            })
            .collect();
        Self { content }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(id: u32, text: &str, logprob: f32) -> Logprob {
        Logprob {
            token_id: id,
            logprob,
            rank: None,
            bytes: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn completion_shape() {
        let mut logprobs = CompletionLogProbs::default();
        logprobs.push(None, "né", false);
        logprobs.push(
            Some(&vec![
                token(3, "ab", -0.5),
                token(4, "c", f32::NEG_INFINITY),
            ]),
            "",
            false,
        );
        logprobs.push(Some(&vec![token(5, "d", -2.0)]), "", true);
        assert_eq!(
            serde_json::to_value(&logprobs).unwrap(),
            json!({
                "text_offset": [0, 2, 4],
                "token_logprobs": [null, -0.5, -2.0],
                "tokens": ["né", "ab", "token_id:5"],
                "top_logprobs": [null, {"ab": -0.5, "c": -9999.0}, {"token_id:5": -2.0}],
            })
        );
    }

    #[test]
    fn a_token_has_the_same_digits_everywhere() {
        let mut logprobs = CompletionLogProbs::default();
        logprobs.push(Some(&vec![token(3, "a", -0.1)]), "", false);
        let text = serde_json::to_string(&logprobs).unwrap();
        let digits = f64::from(-0.1_f32).to_string();
        assert_eq!(text.matches(&digits).count(), 2, "{text}");
        let chat = ChatCompletionLogProbs::new(vec![vec![token(3, "a", -0.1)]], 1, false);
        let text = serde_json::to_string(&chat).unwrap();
        assert_eq!(text.matches(&digits).count(), 2, "{text}");
    }

    #[test]
    fn chat_shape_ranks_the_rivals() {
        let positions = vec![vec![
            token(3, "x", -3.0),
            token(4, "y", -0.5),
            token(5, "z", -1.0),
        ]];
        let logprobs = ChatCompletionLogProbs::new(positions, 2, false);
        assert_eq!(
            serde_json::to_value(&logprobs).unwrap(),
            json!({"content": [{
                "token": "x", "logprob": -3.0, "bytes": [120],
                "top_logprobs": [
                    {"token": "y", "logprob": -0.5, "bytes": [121]},
                    {"token": "z", "logprob": -1.0, "bytes": [122]},
                ],
            }]})
        );
    }

    #[test]
    fn prompt_shape() {
        let positions = vec![None, Some(vec![token(3, "x", -0.5)])];
        assert_eq!(
            serde_json::to_value(PromptLogprobs(positions.into())).unwrap(),
            json!([null, {"3": {"logprob": -0.5, "rank": null, "decoded_token": "x"}}])
        );
    }
}
