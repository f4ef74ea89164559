//! What each route does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::api_keys::ApiKey;
use super::authenticate::count_answers;
use super::body::{BodyLimits, read_json};
use super::client::{Client, owner};
use super::connections::Busy;
use super::error::{ApiError, json as json_response};
use super::held_json::held_json;
use super::memory::Share;
use super::middleware::RequestId;
use super::parse::no_memory;
use super::request_record::RequestRecord;
use super::sse::{self, SseOptions, StreamGuards};
use super::state::{AppState, LoadGuard, unix_time};
use super::traces::extract_trace_headers;
use crate::error::ValidationError;
use crate::openai::{
    BatchChatCompletionRequest, ChatCompletionRequest, CheckRequest, CommonFields,
    CompletionRequest, DetokenizeRequest, RequestContext, ResponsesRequest, ServingError,
    StreamOptions, TokenGenerateRequest, TokenizeRequest, Warnings,
};
use crate::supervisor::CoreHealth;

pub(super) type App = State<Arc<AppState>>;

/// `POST /v1/completions`.
pub(super) async fn completions(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => CompletionRequest::from_json_strict,
        false => CompletionRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    if let Some(refusal) = call.count_answers(request.num_sequences()) {
        return Ok(refusal);
    }
    call.apply_flags(&mut request.common);
    let warnings = call.warn(&request.common.warnings);
    if request.common.stream {
        let stream = app.serving.stream_completion(request, &call.context);
        let stream = call.within_deadline(stream).await?;
        return Ok(with_warnings(call.stream(stream, share), warnings));
    }
    let context = &call.context;
    let answer = async {
        let answer = app.serving.create_completion(&request, context).await;
        // Before the answer becomes JSON.
        drop(request);
        answer
    };
    let answer = call.held_json(answer, share).await?;
    Ok(with_warnings(answer, warnings))
}

/// `POST /v1/chat/completions`.
pub(super) async fn chat_completions(
    State(app): App,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => ChatCompletionRequest::from_json_strict,
        false => ChatCompletionRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    if let Some(refusal) = call.count_answers(request.common.n.unwrap_or(1) as usize) {
        return Ok(refusal);
    }
    call.apply_flags(&mut request.common);
    let skipped = app.serving.skip_tools(&mut request, &call.context);
    let skipped = call.within_deadline(skipped).await?;
    request.common.warnings.extend(skipped);
    app.serving.warn_of_unread(&mut request);
    let warnings = call.warn(&request.common.warnings);
    if request.common.stream {
        let stream = app.serving.stream_chat_completion(request, &call.context);
        let stream = call.within_deadline(stream).await?;
        return Ok(with_warnings(call.stream(stream, share), warnings));
    }
    let answer = app.serving.create_chat_completion(request, &call.context);
    let answer = call.held_json(answer, share).await?;
    Ok(with_warnings(answer, warnings))
}

/// `POST /v1/chat/completions/batch`.
pub(super) async fn batch_chat_completions(
    State(app): App,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => BatchChatCompletionRequest::from_json_strict,
        false => BatchChatCompletionRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    if let Some(refusal) = call.count_answers(request.conversations.len()) {
        return Ok(refusal);
    }
    call.apply_flags(&mut request.shared.common);
    app.serving.warn_of_unread_in_batch(&mut request);
    let warnings = call.warn(&request.shared.common.warnings);
    let answer = (app.serving).create_batch_chat_completion(request, &call.context);
    let answer = call.held_json(answer, share).await?;
    Ok(with_warnings(answer, warnings))
}

/// `POST /v1/responses`.
pub(super) async fn responses(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => ResponsesRequest::from_json_strict,
        false => ResponsesRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    call.apply_flags(&mut request.chat.common);
    let skipped = app
        .serving
        .skip_tools_of_response(&mut request, &call.context);
    call.within_deadline(skipped).await?;
    app.serving.warn_of_unread_input(&mut request);
    let warnings = call.warn(&request.chat.common.warnings);
    if request.chat.common.stream {
        let stream = app.serving.stream_response(request, &call.context);
        let stream = call.within_deadline(stream).await?;
        return Ok(with_warnings(call.stream(stream, share), warnings));
    }
    let answer = app.serving.create_response(request, &call.context);
    let answer = call.held_json(answer, share).await?;
    Ok(with_warnings(answer, warnings))
}

/// `POST /inference/v1/generate`.
pub(super) async fn generate(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let read = match app.args.strict_requests {
        true => TokenGenerateRequest::from_json_strict,
        false => TokenGenerateRequest::from_json,
    };
    let (mut request, share) = call.json(request, read).await?;
    if let Some(refusal) = call.count_answers(request.common.n.unwrap_or(1) as usize) {
        return Ok(refusal);
    }
    call.apply_flags(&mut request.common);
    let warnings = call.warn(&request.common.warnings);
    if request.common.stream {
        let stream = app.serving.stream_tokens(request, &call.context);
        let stream = call.within_deadline(stream).await?;
        return Ok(with_warnings(call.stream(stream, share), warnings));
    }
    let answer = app.serving.create_tokens(request, &call.context);
    let answer = call.held_json(answer, share).await?;
    Ok(with_warnings(answer, warnings))
}

/// `POST /formwork/v1/check`.
pub(super) async fn check(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let (request, share) = call.json(request, CheckRequest::from_json).await?;
    call.held_json(app.serving.check(request), share).await
}

/// `POST /tokenize`.
pub(super) async fn tokenize(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let (request, share) = call.json(request, TokenizeRequest::from_json).await?;
    call.held_json(app.serving.tokenize(request), share).await
}

/// `POST /detokenize`.
pub(super) async fn detokenize(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let (request, share) = call.json(request, DetokenizeRequest::from_json).await?;
    call.held_json(app.serving.detokenize(request), share).await
}

/// Header of warnings about a request: see [`Warnings::to_header`].
const WARNINGS: HeaderName = HeaderName::from_static("x-formwork-warnings");

pub(super) fn with_warnings(mut response: Response, warnings: Option<HeaderValue>) -> Response {
    if let Some(warnings) = warnings {
        response.headers_mut().insert(WARNINGS, warnings);
    }
    response
}

/// A request that is being answered.
pub(super) struct Call<'a> {
    app: &'a AppState,
    pub(super) context: RequestContext,
    deadline: Option<Instant>,
    load: LoadGuard,
    client: Client,
    record: Arc<RequestRecord>,
    /// `None` in tests alone.
    busy: Option<Busy>,
}

impl<'a> Call<'a> {
    pub(super) fn begin(app: &'a AppState, request: &Request) -> Self {
        let id = request.extensions().get::<RequestId>();
        let key = request.extensions().get::<Arc<ApiKey>>();
        let record = RequestRecord::of(request);
        Self {
            app,
            context: RequestContext {
                request_id: id.map(|id| id.0.to_string()).unwrap_or_default(),
                created: unix_time(),
                default_seed: app.default_seed,
                trace_headers: match app.args.otlp_traces_endpoint {
                    Some(_) => extract_trace_headers(request.headers()),
                    None => Vec::new(),
                },
                caller_salt: key.and_then(|key| key.cache_salt.clone()),
                owner: owner(request),
                usage: record.usage.clone(),
            },
            deadline: match app.args.request_timeout {
                std::time::Duration::ZERO => None,
                timeout => Some(Instant::now() + timeout),
            },
            load: app.load.enter(),
            client: Client::of(request, app),
            record,
            busy: request.extensions().get::<Busy>().cloned(),
        }
    }

    /// The request that `make` makes of the body, and its share of the memory for requests.
    pub(super) async fn json<T: Send + 'static>(
        &self,
        request: Request,
        make: fn(Value) -> Result<T, ValidationError>,
    ) -> Result<(T, Share), ApiError> {
        if self.app.draining.load(Ordering::Relaxed) {
            return Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is ending; try another one, or later",
            ));
        }
        let (parts, body) = request.into_parts();
        let args = &self.app.args;
        let max_log_len = match args.enable_log_requests {
            true => args.max_log_len,
            false => 0,
        };
        let request_id = self.context.request_id.clone();
        let make = move |value: Value| {
            if max_log_len > 0 {
                let text: String = value.to_string().chars().take(max_log_len).collect();
                tracing::info!(request_id, body = text, "request");
            }
            Ok(make(value)?)
        };
        let limits = BodyLimits {
            max: args.max_request_body_size,
            patience: args.client_timeout,
        };
        read_json(&self.client, limits, &parts.headers, body, make).await
    }

    /// Counts the answers after the first for the request's key, which has counted the request itself.
    pub(super) fn count_answers(&self, num_answers: usize) -> Option<Response> {
        let num_more = u32::try_from(num_answers.saturating_sub(1)).unwrap_or(u32::MAX);
        count_answers(self.app, &self.record, num_more)
    }

    /// What flags of the server decide for all requests.
    pub(super) fn apply_flags(&self, common: &mut CommonFields) {
        let args = &self.app.args;
        common.return_tokens_as_token_ids |= args.return_tokens_as_token_ids;
        if common.stream {
            common.stream_interval.get_or_insert(args.stream_interval);
            if args.enable_force_include_usage {
                common.stream_options = Some(StreamOptions {
                    include_usage: true,
                    continuous_usage_stats: true,
                });
            }
        }
    }

    /// Logs the warnings about the request, and returns them as a header's value.
    pub(super) fn warn(&self, warnings: &Warnings) -> Option<HeaderValue> {
        if warnings.is_empty() {
            return None;
        }
        let texts = warnings.texts().join("; ");
        let request_id = &self.context.request_id;
        tracing::warn!(request_id, "parts of a request have no effect: {texts}");
        HeaderValue::try_from(warnings.to_header()).ok()
    }

    /// The answer as JSON, which holds the request's share until its client has taken it.
    pub(super) async fn held_json<T: Serialize + Send + 'static>(
        &self,
        answer: impl Future<Output = Result<T, ServingError>>,
        share: Share,
    ) -> Result<Response, ApiError> {
        let answer = self.within_deadline(answer).await?;
        self.in_time(held_json(answer, share)).await?
    }

    pub(super) async fn within_deadline<T, E: Into<ServingError>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ApiError> {
        self.in_time(answer).await?.map_err(|error| {
            let error = ApiError::from(error.into());
            if error.0.error.code == 503 {
                self.app.metrics.record_rejection("queue_full");
            }
            error
        })
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, ApiError> {
        let Some(deadline) = self.deadline else {
            return Ok(work.await);
        };
        timeout_at(deadline, work).await.map_err(|_| {
            let message = "the request took too long";
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, message)
        })
    }

    pub(super) fn stream(self, stream: crate::openai::EventStream, mut share: Share) -> Response {
        share.resize_for_stream();
        let options = SseOptions {
            keep_alive: self.app.args.sse_keep_alive_interval,
            deadline: self.deadline,
        };
        let guards = StreamGuards {
            share,
            _load: self.load,
            _busy: self.busy,
        };
        sse::respond(stream, options, guards)
    }
}

/// `GET /v1/models`.
pub(super) async fn models(State(app): App) -> Response {
    let names = app.serving.served_model_names();
    let models: Vec<Value> = names.iter().map(|name| model_card(&app, name)).collect();
    let list = json!({"object": "list", "data": models});
    json_response(StatusCode::OK, &list)
}

/// `GET /v1/models/{model}`.
pub(super) async fn model(
    State(app): App,
    model: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(model) = model.map_err(|error| ApiError::bad_request(error.to_string()))?;
    app.serving.check_model(Some(&model))?;
    Ok(json_response(StatusCode::OK, &model_card(&app, &model)))
}

fn model_card(app: &AppState, name: &str) -> Value {
    let ready = app.cores.ready_response();
    json!({
        "id": name,
        "object": "model",
        "created": app.started,
        "owned_by": "formwork",
        "root": ready.model_name,
        "parent": null,
        "max_model_len": ready.max_model_len,
        "permission": [],
    })
}

/// `GET /health`: 200 while the engine works or has nothing to do, and was not told to pause. It is 200 also while some
/// engine cores are gone for good, and then has a body that says so.
pub(super) async fn health(State(app): App) -> Response {
    let draining = app.draining.load(Ordering::Relaxed);
    let dead = app.serving.engine().errored().is_some();
    let paused = app.is_paused.load(Ordering::Relaxed);
    let healthy = app.cores.health() == CoreHealth::Healthy && !draining && !dead && !paused;
    let status = if healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let (num_gone, size) = (app.cores.num_gone(), app.cores.cores().len());
    if num_gone > 0 {
        let body = format!("engine cores that are gone for good: {num_gone} of {size}\n");
        return (status, body).into_response();
    }
    status.into_response()
}

/// `GET /load`: requests in flight.
pub(super) async fn load(State(app): App) -> Response {
    // Counted always; the flag of vLLM's name only says whether it is told.
    let load = match app.args.enable_server_load_tracking {
        true => app.load.get(),
        false => 0,
    };
    json_response(StatusCode::OK, &json!({"server_load": load}))
}

/// `GET /version`.
pub(super) async fn version() -> Response {
    json_response(StatusCode::OK, &json!({"version": protocol::BUILD_VERSION}))
}

/// `GET /metrics`.
pub(super) async fn metrics(State(app): App, request: Request) -> Result<Response, ApiError> {
    let text = app.metrics.render(&app.serving.engine().engine_metrics());
    let mut share = Client::of(&request, &app).share();
    let num_bytes = text.len() as u64;
    if !share.resize_for_answer(num_bytes) {
        return Err(no_memory(&share, num_bytes));
    }
    let mut response = Response::new(Body::from(share.hold(text.into_bytes())));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}
