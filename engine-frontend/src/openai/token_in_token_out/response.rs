//! Answers of `/inference/v1/generate`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TokenGenerateRequest;
use crate::logprobs::{Logprob, PositionLogprobs};
use crate::openai::logprobs::{PromptLogprobs, number};
use crate::openai::serving::stop_reason;
use crate::openai::usage::UsageInfo;
use crate::outputs::CompletionOutput;

/// The answer to a [`TokenGenerateRequest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenGenerateResponse {
    /// `generate-tokens-...`.
    pub request_id: String,
    /// The model's name.
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The answers.
    pub choices: Vec<TokenGenerateChoice>,
    /// Tokens taken.
    pub usage: UsageInfo,
    /// The prompt's logprobs, with `prompt_logprobs`.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The prompt's tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// One piece of a streamed answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenGenerateStreamResponse {
    /// The same in all pieces.
    pub request_id: String,
    /// What is new; empty in the piece that brings the usage.
    pub choices: Vec<TokenGenerateChoice>,
    /// Tokens taken so far, where asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageInfo>,
    /// The prompt's tokens, with `return_token_ids`; in the first piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// One answer, or what is new of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenGenerateChoice {
    /// Which answer.
    pub index: u32,
    /// Its tokens.
    pub token_ids: Vec<u32>,
    /// Logprobs of these tokens, where asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// `stop`, `length`, `abort`, `error` or `repetition`; of a stream in the last piece.
    pub finish_reason: Option<String>,
    /// The stop string or stop token id.
    pub stop_reason: Option<Value>,
    /// Under a constraint: whether the text is a whole one, not cut off by a limit or a stop string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_output_complete: Option<bool>,
    /// `true` where `max_tokens` led the answer to its end; else absent.
    #[serde(default, skip_serializing_if = "super::super::is_false")]
    pub structured_output_completed_by_budget: bool,
    /// `true` where a string that repeated itself was closed; else absent.
    #[serde(default, skip_serializing_if = "super::super::is_false")]
    pub structured_output_repetition_closed: bool,
}

/// Logprobs by token ids.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// One entry per token.
    pub content: Vec<TokenLogprobsContent>,
}

/// One token and its rivals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobsContent {
    /// The token that was chosen.
    #[serde(flatten)]
    pub chosen: TokenLogprob,
    /// The same token first, then the most probable others, best first.
    pub top_logprobs: Vec<TokenLogprob>,
}

/// One token's logprob.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token.
    pub token_id: u32,
    /// Its logprob.
    pub logprob: f64,
    /// Its place among all tokens, from 1, where known.
    pub rank: Option<u32>,
}

impl TokenGenerateChoice {
    /// An answer to `request`, or a piece of one.
    pub(in super::super) fn new(
        request: &TokenGenerateRequest,
        completion: CompletionOutput,
    ) -> Self {
        // All that were asked for by their ids; else vLLM counts the chosen one among them.
        let top = match (&request.common.logprob_token_ids, request.logprobs) {
            (None, Some(top)) => usize::try_from(top).map_or(usize::MAX, |top| top.max(1)),
            _ => usize::MAX,
        };
        let positions = completion.logprobs.filter(|_| request.logprobs.is_some());
        Self {
            index: completion.index,
            token_ids: completion.token_ids,
            logprobs: positions.map(|positions| TokenLogprobs::new(positions, top)),
            finish_reason: completion.finish_reason.map(|r| r.as_str().to_owned()),
            stop_reason: completion.stop_reason.as_ref().map(stop_reason),
            structured_output_complete: completion.structured_output_complete,
            structured_output_completed_by_budget: completion.structured_output_completed_by_budget,
            structured_output_repetition_closed: completion.structured_output_repetition_closed,
        }
    }
}

impl TokenLogprobs {
    fn new(positions: Vec<PositionLogprobs>, top: usize) -> Self {
        let one = |token: &Logprob| TokenLogprob {
            token_id: token.token_id,
            logprob: number(token.logprob),
            rank: token.rank,
        };
        let content = positions.iter().filter_map(|position| {
            Some(TokenLogprobsContent {
                chosen: one(position.first()?),
                top_logprobs: position.iter().take(top).map(one).collect(),
            })
        });
        Self {
            content: content.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(sampling: Value) -> TokenGenerateRequest {
        let body = json!({"token_ids": [1], "sampling_params": sampling});
        TokenGenerateRequest::from_json(body).unwrap()
    }

    #[test]
    fn logprobs_have_the_chosen_token_first() {
        let token = |token_id, logprob, rank| Logprob {
            token_id,
            logprob,
            rank: Some(rank),
            bytes: Vec::new().into(),
        };
        let position = vec![
            token(7, -2.0, 3),
            token(1, -0.5, 1),
            token(2, f32::NEG_INFINITY, 2),
        ];
        let completion = CompletionOutput {
            token_ids: vec![7],
            logprobs: Some(vec![position]),
            ..CompletionOutput::default()
        };
        let ids = |logprobs: i32| {
            let request = asked(json!({"logprobs": logprobs}));
            let choice = TokenGenerateChoice::new(&request, completion.clone());
            let content = choice.logprobs.unwrap().content.remove(0);
            assert_eq!((content.chosen.token_id, content.chosen.rank), (7, Some(3)));
            let ids = content.top_logprobs.iter().map(|top| top.token_id);
            ids.collect::<Vec<_>>()
        };
        assert_eq!(ids(0), [7]);
        assert_eq!(ids(1), [7]);
        assert_eq!(ids(2), [7, 1]);
        assert_eq!(ids(-1), [7, 1, 2]);
        let request = asked(json!({"logprobs": -1}));
        let choice = TokenGenerateChoice::new(&request, completion.clone());
        let shape = serde_json::to_value(&choice).unwrap();
        assert_eq!(
            shape["logprobs"]["content"][0]["top_logprobs"][2],
            json!({"token_id": 2, "logprob": -9999.0, "rank": 2})
        );
        assert_eq!(shape["stop_reason"], Value::Null);
        let request = asked(json!({}));
        assert_eq!(
            TokenGenerateChoice::new(&request, completion).logprobs,
            None
        );
    }
}
