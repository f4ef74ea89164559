//! `/tokenize` and `/detokenize`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokenizer::Tokenizer;

use super::chat::ChatCompletionRequest;
use super::error::ServingError;
use super::fields::Fields;
use super::serving::OpenAIServing;
use super::tool_choice::ToolChoice;
use crate::error::ValidationError;
use crate::input_processor::Prompt;

/// A request for `/tokenize`: a prompt, or messages with any field of a chat request.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// What to tokenize.
    pub prompt: Prompt,
    /// Of messages: whether their tools may be called.
    pub tool_choice: ToolChoice,
    /// Whether the tokenizer adds its begin-of-text token.
    pub add_special_tokens: bool,
    /// Whether the answer has each token's text.
    pub return_token_strs: bool,
}

impl TokenizeRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown or wrong, by name.
    pub fn from_json(mut body: Value) -> Result<Self, ValidationError> {
        if body.get("messages").is_none_or(Value::is_null) {
            let mut fields = Fields::new(body)?;
            let request = Self {
                model: fields.take("model")?,
                prompt: Prompt::Text(fields.require("prompt")?),
                tool_choice: ToolChoice::None,
                add_special_tokens: fields.take("add_special_tokens")?.unwrap_or(true),
                return_token_strs: fields.take("return_token_strs")?.unwrap_or(false),
            };
            fields.finish()?;
            return Ok(request);
        }
        if body.get("prompt").is_some_and(|prompt| !prompt.is_null()) {
            let message = "prompt and messages are both given: leave out one of the two";
            return Err(ValidationError::about("prompt", message));
        }
        // What is left is a chat request.
        let strs = body
            .as_object_mut()
            .and_then(|map| map.remove("return_token_strs"));
        let mut fields = Fields::new(serde_json::json!({"return_token_strs": strs}))?;
        let return_token_strs = fields.take("return_token_strs")?.unwrap_or(false);
        let mut chat = ChatCompletionRequest::from_json(body)?;
        Ok(Self {
            prompt: chat.take_prompt(),
            tool_choice: chat.tool_choice,
            model: chat.common.model,
            add_special_tokens: chat.add_special_tokens,
            return_token_strs,
        })
    }
}

/// The answer to a [`TokenizeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizeResponse {
    /// How many tokens there are.
    pub count: usize,
    /// The model's context.
    pub max_model_len: u32,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Their texts, where asked for.
    pub token_strs: Option<Vec<String>>,
}

/// A request for `/detokenize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetokenizeRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// The tokens.
    pub tokens: Vec<u32>,
}

impl DetokenizeRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown or wrong, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        let mut fields = Fields::new(body)?;
        let request = Self {
            model: fields.take("model")?,
            tokens: fields.require("tokens")?,
        };
        fields.finish()?;
        Ok(request)
    }
}

/// The answer to a [`DetokenizeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetokenizeResponse {
    /// The text.
    pub prompt: String,
}

impl OpenAIServing {
    /// Tokenizes a prompt as a request with it would.
    ///
    /// # Errors
    /// The request names another model, is longer than what is counted, or the template refuses the messages.
    pub async fn tokenize(
        &self,
        request: TokenizeRequest,
    ) -> Result<TokenizeResponse, ServingError> {
        self.check_model(request.model.as_deref())?;
        let engine = self.engine();
        let mut prompt = request.prompt;
        self.complete_prompt(&mut prompt, &request.tool_choice)?;
        let max_model_len = engine.ready_response().max_model_len;
        let return_token_strs = request.return_token_strs;
        let answer = move |tokens: Vec<u32>, tokenizer: &Tokenizer| {
            let text = |&id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
            TokenizeResponse {
                count: tokens.len(),
                max_model_len,
                token_strs: return_token_strs.then(|| tokens.iter().map(text).collect()),
                tokens,
            }
        };
        let add_special_tokens = request.add_special_tokens;
        Ok(engine.tokenize(prompt, add_special_tokens, answer).await?)
    }

    /// The text of tokens, special ones included.
    ///
    /// # Errors
    /// The request names another model, too many tokens, or one that the model doesn't have.
    pub async fn detokenize(
        &self,
        request: DetokenizeRequest,
    ) -> Result<DetokenizeResponse, ServingError> {
        self.check_model(request.model.as_deref())?;
        let prompt = self.engine().detokenize(request.tokens).await?;
        Ok(DetokenizeResponse { prompt })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::openai::DefaultSamplingParams;
    use crate::test_support::{fake_engine, ids};

    fn serving() -> OpenAIServing {
        let (engine, _core) = fake_engine(64);
        let names = vec!["m".to_owned()];
        OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default())
    }

    #[tokio::test]
    async fn prompts_and_conversations_become_tokens() {
        let serving = serving();
        let tokenize = async |body| {
            let request = TokenizeRequest::from_json(body).unwrap();
            serving.tokenize(request).await
        };
        let answer = tokenize(json!({"prompt": "hi", "return_token_strs": true})).await;
        let answer = answer.unwrap();
        assert_eq!((answer.count, answer.max_model_len), (2, 64));
        assert_eq!(answer.tokens, ids("hi"));
        assert_eq!(answer.token_strs.unwrap(), ["h", "i"]);
        let messages = json!([{"role": "user", "content": "hi"}]);
        let answer = tokenize(json!({"messages": messages, "add_generation_prompt": false})).await;
        assert_eq!(answer.unwrap().tokens, ids("[user]hi"));
        let other = tokenize(json!({"prompt": "hi", "model": "x"})).await;
        assert!(matches!(other, Err(ServingError::ModelNotFound { .. })));
    }

    #[tokio::test]
    async fn tokens_become_text() {
        let serving = serving();
        let request = DetokenizeRequest::from_json(json!({"tokens": [104, 105]})).unwrap();
        assert_eq!(serving.detokenize(request).await.unwrap().prompt, "hi");
        let request = DetokenizeRequest::from_json(json!({"tokens": [999]})).unwrap();
        assert!(serving.detokenize(request).await.is_err());
    }

    /// Both ways have the bound of prompts that are cut: no text takes memory for hundreds of its bytes.
    #[tokio::test]
    async fn what_is_too_long_is_refused() {
        let serving = serving();
        let text = "a ".repeat(1 << 20);
        let messages = json!([{"role": "user", "content": text}]);
        for body in [
            json!({"prompt": text}),
            json!({"prompt": text, "return_token_strs": true}),
            json!({"messages": messages}),
        ] {
            let request = TokenizeRequest::from_json(body).unwrap();
            let error = serving.tokenize(request).await.unwrap_err().to_response();
            assert_eq!(
                (error.error.code, error.error.param.as_deref()),
                (400, Some("prompt"))
            );
            assert!(error.error.message.contains("at most 131072"), "{error:?}");
        }
        let tokens = vec![104; 131_073];
        let request = DetokenizeRequest::from_json(json!({"tokens": tokens})).unwrap();
        let error = serving.detokenize(request).await.unwrap_err().to_response();
        assert_eq!(error.error.param.as_deref(), Some("tokens"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |body| {
            TokenizeRequest::from_json(body)
                .unwrap_err()
                .parameter
                .unwrap()
        };
        assert_eq!(wrong(json!({})), "prompt");
        assert_eq!(wrong(json!({"prompt": "a", "x": 1})), "x");
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"messages": messages, "return_token_strs": 1});
        assert_eq!(wrong(body), "return_token_strs");
        let both = json!({"prompt": "a", "messages": messages});
        let error = TokenizeRequest::from_json(both).unwrap_err();
        assert!(error.message.contains("one of the two"), "{error}");
        for half in [
            json!({"prompt": "a", "messages": null}),
            json!({"prompt": null, "messages": messages}),
        ] {
            assert!(TokenizeRequest::from_json(half).is_ok());
        }
    }
}
