//! Answers Messages requests with the engine of the OpenAI API.

use std::collections::VecDeque;

use structured_output::CancelFlag;

use super::answer::Answer;
use super::error::AnthropicErrorResponse;
use super::protocol::{AnthropicCountTokensResponse, AnthropicMessagesResponse};
use super::request::{AnthropicCountTokensRequest, AnthropicMessagesRequest};
use crate::input_processor::GenerateRequest;
use crate::openai::{
    ErrorResponse, EventStream, OpenAIServing, Openings, Piece, Pieces, RequestContext,
    ServingError, TokenizeRequest,
};
use crate::outputs::RequestOutput;

/// The Messages API on one model.
#[derive(Debug, Clone, Copy)]
pub struct AnthropicServingMessages<'a>(&'a OpenAIServing);

impl<'a> AnthropicServingMessages<'a> {
    /// The same model in this API's words.
    pub fn new(openai: &'a OpenAIServing) -> Self {
        Self(openai)
    }

    /// Answers a request as a whole, whatever its `stream` says.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn create_messages(
        &self,
        request: AnthropicMessagesRequest,
        context: &RequestContext,
    ) -> Result<AnthropicMessagesResponse, ServingError> {
        let (request, generate, openings) = self.generate_request(request, context).await?;
        let mut answer = self.answer(&request, context, openings);
        let outputs = self.0.generate(vec![generate], context).await;
        let outputs = outputs.map_err(|error| request.words.of_serving_error(error))?;
        let size = outputs.iter().map(RequestOutput::num_bytes).sum();
        let tell = move |_: &CancelFlag| {
            for output in outputs {
                answer.push(output);
            }
            answer.into_response()
        };
        self.0.engine().run_by_size(size, tell).await?
    }

    /// Answers a request in events. Returns when the core has taken its constraint, or without one when the first
    /// output is there.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn stream_messages(
        &self,
        request: AnthropicMessagesRequest,
        context: &RequestContext,
    ) -> Result<EventStream, ServingError> {
        let (request, generate, openings) = self.generate_request(request, context).await?;
        let constrained = generate.sampling_params.structured_outputs.is_some();
        let pieces = MessagePieces {
            answer: self.answer(&request, context, openings).in_events(),
            request_id: context.request_id.clone(),
        };
        let of_own = |error| request.words.of_serving_error(error);
        let streams = self
            .0
            .start(vec![generate], context)
            .await
            .map_err(of_own)?;
        EventStream::begin(streams, constrained, Box::new(pieces)).await
    }

    /// Counts the tokens of a request's prompt, as [`create_messages`](Self::create_messages) would have it.
    ///
    /// # Errors
    /// The request names another model, is longer than what is counted, or the template refuses the messages.
    pub async fn count_tokens(
        &self,
        request: AnthropicCountTokensRequest,
    ) -> Result<AnthropicCountTokensResponse, ServingError> {
        let AnthropicMessagesRequest {
            mut chat, words, ..
        } = request.0;
        let request = TokenizeRequest {
            prompt: chat.take_prompt(),
            model: chat.common.model,
            tool_choice: chat.tool_choice,
            add_special_tokens: chat.add_special_tokens,
            return_token_strs: false,
        };
        let tokenized = self.0.tokenize(request).await;
        let tokenized = tokenized.map_err(|error| words.of_serving_error(error))?;
        Ok(AnthropicCountTokensResponse {
            input_tokens: tokenized.count as u64,
        })
    }

    /// Leaves out the tools whose schemas can't be enforced, where the request says so, and warns of each.
    ///
    /// # Errors
    /// The request names another model; no tool is left, and the answer must be a call.
    pub async fn skip_tools(
        &self,
        request: &mut AnthropicMessagesRequest,
        context: &RequestContext,
    ) -> Result<(), ServingError> {
        let words = &request.words;
        self.0
            .skip_tools_in_words(&mut request.chat, words, context)
            .await
    }

    /// Adds warnings about parts of a request that the chat template doesn't read.
    pub fn warn_of_unread(&self, request: &mut AnthropicMessagesRequest) {
        let mut unread = self.0.unread(&request.chat);
        let place = |field: &str| {
            let index = field.strip_prefix("messages[")?.split_once(']')?.0;
            request.places.get(index.parse::<usize>().ok()?).cloned()
        };
        unread.rename(|field| place(field).unwrap_or_else(|| request.words.of_field(field)));
        request.chat.common.warnings.extend(unread);
    }

    /// The engine's request, with this API's names of the fields, and where calls begin in its answer.
    async fn generate_request(
        &self,
        mut request: AnthropicMessagesRequest,
        context: &RequestContext,
    ) -> Result<(AnthropicMessagesRequest, GenerateRequest, Option<Openings>), ServingError> {
        let common = &mut request.chat.common;
        self.0.check_model(common.model.as_deref())?;
        // Where the model doesn't think, that is told by a warning.
        if common.thinking_token_budget.is_none() && self.0.engine().takes_thinking_budget() {
            common.thinking_token_budget = request.thinking.token_budget;
        }
        let id = message_id(&request, context);
        let words = &request.words;
        let (chat, mut generate, openings) = self
            .0
            .chat_generate_request(request.chat, &id)
            .await
            .map_err(|error| words.of_serving_error(error))?;
        request.chat = chat;
        request.words.of_request(&mut generate);
        Ok((request, generate, openings))
    }

    fn answer(
        &self,
        request: &AnthropicMessagesRequest,
        context: &RequestContext,
        openings: Option<Openings>,
    ) -> Answer {
        let response = AnthropicMessagesResponse {
            id: message_id(request, context),
            kind: "message",
            role: "assistant",
            model: self.0.model_name(),
            content: Vec::new(),
            end: Default::default(),
            usage: Default::default(),
            warnings: request.chat.common.told_warnings(),
        };
        Answer::new(response, openings, request.thinking.is_omitted)
            .with_cached_tokens(self.0.tells_cached_tokens())
    }
}

/// The answer's id: `msg_` and the request's id, as the request's body has it or its header.
fn message_id(request: &AnthropicMessagesRequest, context: &RequestContext) -> String {
    let own = request.chat.common.request_id.as_deref();
    format!("msg_{}", own.unwrap_or(&context.request_id))
}

/// The events of an answer.
#[derive(Debug)]
struct MessagePieces {
    answer: Answer,
    request_id: String,
}

impl Pieces for MessagePieces {
    fn add(&mut self, _prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>) {
        self.answer.push(output);
        pieces.extend(self.answer.take_events());
        if let Some(error) = self.answer.failure() {
            pieces.push_back(self.error(&error.to_response()));
        }
    }

    fn end(&mut self, _pieces: &mut VecDeque<Piece>) {}

    fn error(&mut self, error: &ErrorResponse) -> Piece {
        let error = AnthropicErrorResponse::new(&error.error, &self.request_id);
        Piece::named("error", error)
    }

    fn is_done_told(&self) -> bool {
        false
    }
}
