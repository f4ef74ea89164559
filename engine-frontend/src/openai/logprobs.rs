//! Logprobs in the two shapes of the API. They are kept as they came, and become text one by one: beside those of
//! long answers there is no memory for a second form of them.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::logprobs::{Logprob, PositionLogprobs};
use crate::outputs::RequestOutput;

/// Logprobs below this are reported as this: JSON has no infinity.
const MIN_LOGPROB: f64 = -9999.0;

/// Logprobs of a completion. In JSON four lists with one entry per token: `text_offset`, where it starts in the text, in
/// characters; `token_logprobs`, null for the first token of an echoed prompt; `tokens`, its text; and `top_logprobs`,
/// an object of texts and logprobs of the token and of the most probable ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompletionLogProbs {
    /// Those of an echoed prompt, which all answers share.
    prompt: Option<EchoedLogprobs>,
    positions: Vec<PositionLogprobs>,
    as_token_ids: bool,
    /// Where the first token starts in the text, in characters.
    start: u32,
}

/// Logprobs of an echoed prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EchoedLogprobs {
    pub(super) positions: Arc<[Option<PositionLogprobs>]>,
    /// Texts of the tokens that have none, in their order.
    pub(super) texts_without: Vec<String>,
}

/// The logprobs of a prompt as vLLM's extra field has them: per token null, or an object of token ids with
/// logprob, rank and text each. Answers share them.
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

/// Logprobs of a chat answer. In JSON `content`, a list with one entry per token: `token`, `logprob` and `bytes` of the
/// one that was chosen, and the same of the most probable ones, best first, in its `top_logprobs`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatCompletionLogProbs {
    positions: Vec<PositionLogprobs>,
    /// How many of the most probable tokens each entry has.
    top: usize,
    as_token_ids: bool,
}

/// The token as text, or as `token_id:N`, which tells equal texts apart.
fn token_text(token: &Logprob, as_token_ids: bool) -> Cow<'_, str> {
    match as_token_ids {
        true => format!("token_id:{}", token.token_id).into(),
        false => token.decoded_token(),
    }
}

/// As JSON has it. Wide, as all numbers in a [`Value`](serde_json::Value) are: a token has the same digits wherever it
/// stands.
pub(super) fn number(logprob: f32) -> f64 {
    if logprob.is_nan() {
        MIN_LOGPROB
    } else {
        f64::from(logprob).max(MIN_LOGPROB)
    }
}

fn num_chars(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

impl CompletionLogProbs {
    /// Those of an answer's tokens, or of a piece of it, perhaps behind those of its prompt.
    pub(super) fn new(
        prompt: Option<EchoedLogprobs>,
        positions: Vec<PositionLogprobs>,
        as_token_ids: bool,
    ) -> Self {
        Self {
            prompt,
            positions,
            as_token_ids,
            start: 0,
        }
    }

    /// Moves the tokens of a streamed piece to where the piece starts; returns where it ends.
    pub(super) fn shift_offsets(&mut self, start: u32) -> u32 {
        self.start = start;
        let lengths = self.tokens().map(|(text, _)| num_chars(&text));
        lengths.fold(start, u32::saturating_add)
    }

    /// Of each token its text, and its logprob with those of its rivals, or none.
    fn tokens(&self) -> impl Iterator<Item = (Cow<'_, str>, &[Logprob])> {
        let (prompt, texts) = match &self.prompt {
            Some(prompt) => (&prompt.positions[..], &prompt.texts_without[..]),
            None => Default::default(),
        };
        let mut texts = texts.iter();
        let prompt = prompt.iter().map(move |position| match position {
            Some(position) => (&position[..], ""),
            None => (&[][..], texts.next().map_or("", String::as_str)),
        });
        let own = self.positions.iter().map(|position| (&position[..], ""));
        prompt.chain(own).map(|(position, text_without)| {
            let text = match position.first() {
                Some(chosen) => token_text(chosen, self.as_token_ids),
                None => text_without.into(),
            };
            (text, position)
        })
    }
}

impl Serialize for CompletionLogProbs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut end = self.start;
        let text_offset = self.tokens().map(|(text, _)| {
            let start = end;
            end = end.saturating_add(num_chars(&text));
            start
        });
        let token_logprobs = self.tokens().map(|(_, position)| {
            let chosen = position.first();
            chosen.map(|chosen| number(chosen.logprob))
        });
        let tokens = self.tokens().map(|(text, _)| text);
        let top_logprobs = self.tokens().map(|(_, position)| {
            let as_token_ids = self.as_token_ids;
            (!position.is_empty()).then_some(ByText {
                position,
                as_token_ids,
            })
        });
        let mut lists = serializer.serialize_struct("CompletionLogProbs", 4)?;
        lists.serialize_field("text_offset", &List::new(text_offset))?;
        lists.serialize_field("token_logprobs", &List::new(token_logprobs))?;
        lists.serialize_field("tokens", &List::new(tokens))?;
        lists.serialize_field("top_logprobs", &List::new(top_logprobs))?;
        lists.end()
    }
}

/// A list whose values are made as they are written, once.
struct List<I>(Cell<Option<I>>);

impl<I> List<I> {
    fn new(values: I) -> Self {
        Self(Cell::new(Some(values)))
    }
}

impl<I: Iterator<Item: Serialize>> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.take().into_iter().flatten())
    }
}

/// The tokens of one position as an object of texts, none twice.
struct ByText<'a> {
    position: &'a [Logprob],
    as_token_ids: bool,
}

impl Serialize for ByText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut texts = HashSet::with_capacity(self.position.len());
        serializer.collect_map(self.position.iter().filter_map(|token| {
            let text = token_text(token, self.as_token_ids);
            // Of two tokens with one text the more probable stays: the first of them.
            (texts.insert(text.clone())).then(|| (text, number(token.logprob)))
        }))
    }
}

impl ChatCompletionLogProbs {
    /// The positions of an answer, each with its `top` most probable tokens (-1 is all there are).
    pub(super) fn new(positions: Vec<PositionLogprobs>, top: i32, as_token_ids: bool) -> Self {
        Self {
            positions,
            top: usize::try_from(top).unwrap_or(usize::MAX),
            as_token_ids,
        }
    }

    /// The entries, one for each token.
    pub(super) fn entries(&self) -> impl Iterator<Item: Serialize> {
        let positions = self.positions.iter();
        positions.filter_map(|position| {
            Some(ChatEntry {
                chosen: position.first()?,
                position,
                of: self,
            })
        })
    }
}

impl Serialize for ChatCompletionLogProbs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("ChatCompletionLogProbs", 1)?;
        object.serialize_field("content", &List::new(self.entries()))?;
        object.end()
    }
}

/// One token of a chat answer and its rivals.
struct ChatEntry<'a> {
    chosen: &'a Logprob,
    position: &'a [Logprob],
    of: &'a ChatCompletionLogProbs,
}

impl Serialize for ChatEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Token<'a> {
            token: Cow<'a, str>,
            logprob: f64,
            /// The text of several tokens may be one character.
            bytes: &'a [u8],
        }
        #[derive(Serialize)]
        #[serde(bound = "")]
        struct Entry<'a, I: Iterator<Item: Serialize>> {
            #[serde(flatten)]
            chosen: Token<'a>,
            top_logprobs: List<I>,
        }
        fn one(token: &Logprob, as_token_ids: bool) -> Token<'_> {
            Token {
                token: token_text(token, as_token_ids),
                logprob: number(token.logprob),
                bytes: &token.bytes,
            }
        }
        let as_token_ids = self.of.as_token_ids;
        let mut tokens: Vec<&Logprob> = self.position.iter().collect();
        tokens.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        let best = tokens.into_iter().take(self.of.top);
        let entry = Entry {
            chosen: one(self.chosen, as_token_ids),
            top_logprobs: List::new(best.map(|token| one(token, as_token_ids))),
        };
        entry.serialize(serializer)
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
            bytes: text.as_bytes().into(),
        }
    }

    #[test]
    fn completion_shape() {
        let prompt = EchoedLogprobs {
            positions: vec![None, Some(vec![token(1, "ö", -3.0)])].into(),
            texts_without: vec!["né".to_owned()],
        };
        let own = vec![
            vec![
                token(3, "ab", -0.5),
                token(4, "c", f32::NEG_INFINITY),
                token(6, "ab", -7.0),
            ],
            // A token that was replayed.
            Vec::new(),
            vec![token(5, "d", -2.0)],
        ];
        let mut logprobs = CompletionLogProbs::new(Some(prompt), own, false);
        assert_eq!(
            serde_json::to_value(&logprobs).unwrap(),
            json!({
                "text_offset": [0, 2, 3, 5, 5],
                "token_logprobs": [null, -3.0, -0.5, null, -2.0],
                "tokens": ["né", "ö", "ab", "", "d"],
                "top_logprobs": [null, {"ö": -3.0}, {"ab": -0.5, "c": -9999.0}, null, {"d": -2.0}],
            })
        );
        assert_eq!(logprobs.shift_offsets(10), 16);
        logprobs.as_token_ids = true;
        let value = serde_json::to_value(&logprobs).unwrap();
        assert_eq!(value["text_offset"], json!([10, 12, 22, 32, 32]));
        let texts = json!({"token_id:3": -0.5, "token_id:4": -9999.0, "token_id:6": -7.0});
        assert_eq!(value["top_logprobs"][2], texts);
    }

    #[test]
    fn a_token_has_the_same_digits_everywhere() {
        let logprobs = CompletionLogProbs::new(None, vec![vec![token(3, "a", -0.1)]], false);
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
