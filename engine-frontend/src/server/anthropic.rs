//! The routes of the Messages API, and errors in its shape on them.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use super::error::ApiError;
use super::handlers::{App, Call, with_warnings};
use super::middleware::RequestId;
use crate::anthropic::{
    AnthropicCountTokensRequest, AnthropicErrorResponse, AnthropicMessagesRequest,
    AnthropicServingMessages,
};
use crate::openai::ErrorInfo;

pub(super) const MESSAGES: &str = "/v1/messages";
pub(super) const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// The request's id, as Anthropic's clients look for it.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// `POST /v1/messages`.
pub(super) async fn messages(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => AnthropicMessagesRequest::from_json_strict,
        false => AnthropicMessagesRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    let serving = AnthropicServingMessages::new(&app.serving);
    call.apply_flags(&mut request.chat.common);
    let skipped = serving.skip_tools(&mut request, &call.context);
    call.within_deadline(skipped).await?;
    serving.warn_of_unread(&mut request);
    let warnings = call.warn(&request.chat.common.warnings);
    if request.chat.common.stream {
        let stream = serving.stream_messages(request, &call.context);
        let stream = call.within_deadline(stream).await?;
        return Ok(with_warnings(call.stream(stream, share), warnings));
    }
    let answer = serving.create_messages(request, &call.context);
    let answer = call.held_json(answer, share).await?;
    Ok(with_warnings(answer, warnings))
}

/// `POST /v1/messages/count_tokens`.
pub(super) async fn count_tokens(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => AnthropicCountTokensRequest::from_json_strict,
        false => AnthropicCountTokensRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    let serving = AnthropicServingMessages::new(&app.serving);
    let skipped = serving.skip_tools(&mut request.0, &call.context);
    call.within_deadline(skipped).await?;
    serving.warn_of_unread(&mut request.0);
    let warnings = call.warn(&request.0.chat.common.warnings);
    let answer = call.held_json(serving.count_tokens(request), share).await?;
    Ok(with_warnings(answer, warnings))
}

/// Gives answers on the routes of the Messages API its header, and errors its shape, wherever they come from.
pub(super) async fn in_its_words(request: Request, next: Next) -> Response {
    let rest = request.uri().path().strip_prefix(MESSAGES);
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return next.run(request).await;
    }
    let id = request.extensions().get::<RequestId>().cloned();
    let mut response = next.run(request).await;
    let Some(RequestId(id)) = id else {
        return response;
    };
    if let Some(error) = response.extensions().get::<ErrorInfo>() {
        let error = AnthropicErrorResponse::new(error, &id);
        let body = serde_json::to_vec(&error).unwrap_or_default();
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
