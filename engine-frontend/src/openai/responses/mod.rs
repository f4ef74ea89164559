//! `/v1/responses`: the stateless part of OpenAI's Responses API. Nothing is stored, so a request
//! brings its whole conversation, and what needs a store is refused by name.

mod answer;
mod event;
mod input;
mod namespaces;
mod request;
mod response;

use std::collections::VecDeque;

use structured_output::CancelFlag;

#[cfg(test)]
pub(super) use request::OWN_NAMES;
pub use request::ResponsesRequest;

pub(crate) use input::{input_messages, text_parts};

use super::chat::ChatCompletionRequest;
use super::default_sampling_params::DefaultSamplingParams;
use super::error::{ErrorResponse, ServingError};
use super::serving::{OpenAIServing, RequestContext, chat_logprobs};
use super::streaming::{EventStream, Piece, Pieces};
use super::tool_format::Openings;
use crate::input_processor::GenerateRequest;
use crate::outputs::RequestOutput;
use answer::Answer;
use response::{ResponsesResponse, Told};

impl OpenAIServing {
    /// Answers a request as a whole, whatever its `stream` says.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn create_response(
        &self,
        request: ResponsesRequest,
        context: &RequestContext,
    ) -> Result<ResponsesResponse, ServingError> {
        self.check_model(request.chat.common.model.as_deref())?;
        let (mut request, generate, openings) = self.generate_request(request, context).await?;
        let mut answer = self.answer(&mut request, context, openings);
        let outputs = self.generate(vec![generate], context).await?;
        if let Some(output) = outputs.last() {
            answer.set_input(output, self.tells_cached_tokens());
        }
        let size = outputs.iter().map(RequestOutput::num_bytes).sum();
        let tell = move |_: &CancelFlag| {
            let completions = outputs.into_iter().filter_map(|mut o| o.outputs.pop());
            for mut completion in completions {
                let reason = completion.finish_reason;
                let logprobs = chat_logprobs(&request.chat, &mut completion);
                answer.push(completion, logprobs, &mut VecDeque::new());
                if let Some(reason) = reason {
                    return answer.last_response(reason);
                }
            }
            answer.response("failed")
        };
        Ok(self.engine().run_by_size(size, tell).await?)
    }

    /// Answers a request in events. Returns when the core has taken its constraint, or without one
    /// when the first output is there.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn stream_response(
        &self,
        request: ResponsesRequest,
        context: &RequestContext,
    ) -> Result<EventStream, ServingError> {
        self.check_model(request.chat.common.model.as_deref())?;
        let (mut request, mut generate, openings) = self.generate_request(request, context).await?;
        // The last event has the whole answer.
        generate.keeps_answer = true;
        let constrained = generate.sampling_params.structured_outputs.is_some();
        let answer = self.answer(&mut request, context, openings);
        let streams = self.start(vec![generate], context).await?;
        let pieces = ResponsePieces {
            answer,
            chat: request.chat,
            tells_cached_tokens: self.tells_cached_tokens(),
        };
        EventStream::begin(streams, constrained, Box::new(pieces)).await
    }

    /// Leaves out tools as [`skip_tools`](Self::skip_tools) does.
    ///
    /// # Errors
    /// As there.
    pub async fn skip_tools_of_response(
        &self,
        request: &mut ResponsesRequest,
        context: &RequestContext,
    ) -> Result<(), ServingError> {
        self.skip_tools_in_words(&mut request.chat, &request.words, context)
            .await
    }

    /// Adds warnings about parts of a request that the chat template doesn't read.
    pub fn warn_of_unread_input(&self, request: &mut ResponsesRequest) {
        let mut unread = self.unread(&request.chat);
        unread.rename(|field| match field.starts_with("messages[") {
            // Which item a message was is not kept.
            true => "input".to_owned(),
            false => request.words.of_field(field),
        });
        request.chat.common.warnings.extend(unread);
    }

    /// The engine's request, with this API's names of the fields, and where calls begin in its answer.
    async fn generate_request(
        &self,
        mut request: ResponsesRequest,
        context: &RequestContext,
    ) -> Result<(ResponsesRequest, GenerateRequest, Option<Openings>), ServingError> {
        let id = response_id(&request, context);
        let (chat, mut generate, openings) = self
            .chat_generate_request(request.chat, &id)
            .await
            .map_err(|error| request.words.of_serving_error(error))?;
        request.chat = chat;
        request.words.of_request(&mut generate);
        Ok((request, generate, openings))
    }

    fn answer(
        &self,
        request: &mut ResponsesRequest,
        context: &RequestContext,
        openings: Option<Openings>,
    ) -> Answer {
        let told = self.told(request, context);
        let id = own_id(request, context).to_owned();
        let namespaces = std::mem::take(&mut request.namespaces);
        Answer::new(
            id,
            told,
            openings,
            request.chat.include_reasoning,
            namespaces,
        )
    }

    /// What a response says of its request. The request's own part of it is moved, not copied.
    fn told(&self, request: &mut ResponsesRequest, context: &RequestContext) -> Told {
        let common = &request.chat.common;
        let DefaultSamplingParams {
            temperature, top_p, ..
        } = *self.default_sampling_params();
        let or_one = |own: Option<f32>, default: Option<f32>| own.or(default).unwrap_or(1.0);
        let mut told = Told::default();
        told.tell("id", &response_id(request, context));
        told.tell("object", "response");
        told.tell("created_at", &context.created);
        told.tell("model", &self.model_name());
        told.tell("background", &false);
        told.tell("store", &false);
        told.tell("previous_response_id", &());
        told.tell("truncation", "disabled");
        told.tell("temperature", &or_one(common.temperature, temperature));
        told.tell("top_p", &or_one(common.top_p, top_p));
        let warnings = common.told_warnings();
        told.extend(std::mem::take(&mut request.told));
        if let Some(warnings) = warnings {
            told.tell("warnings", &warnings);
        }
        told
    }
}

/// The response's id without prefix: as the request's body has it, or the request's.
fn own_id<'a>(request: &'a ResponsesRequest, context: &'a RequestContext) -> &'a str {
    let own = request.chat.common.request_id.as_deref();
    own.unwrap_or(&context.request_id)
}

fn response_id(request: &ResponsesRequest, context: &RequestContext) -> String {
    format!("resp_{}", own_id(request, context))
}

/// The events of a response.
#[derive(Debug)]
struct ResponsePieces {
    answer: Answer,
    chat: ChatCompletionRequest,
    tells_cached_tokens: bool,
}

impl Pieces for ResponsePieces {
    fn add(&mut self, _prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>) {
        self.answer.set_input(&output, self.tells_cached_tokens);
        for mut completion in output.outputs {
            let logprobs = chat_logprobs(&self.chat, &mut completion);
            self.answer.push(completion, logprobs, pieces);
        }
    }

    fn end(&mut self, _pieces: &mut VecDeque<Piece>) {}

    fn error(&mut self, error: &ErrorResponse) -> Piece {
        self.answer.error(&error.error)
    }

    fn is_done_told(&self) -> bool {
        false
    }
}
