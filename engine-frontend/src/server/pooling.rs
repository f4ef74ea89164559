//! The routes of embeddings, scores and reranking.

use axum::extract::{Request, State};
use axum::response::Response;

use super::error::ApiError;
use super::handlers::{App, Call};
use super::parse::take_memory;
use crate::pooling::{EmbeddingRequest, RerankRequest, ScoreRequest};

pub(super) const EMBEDDINGS: &str = "/v1/embeddings";
/// The route of scores and its older name.
pub(super) const SCORES: [&str; 2] = ["/v1/score", "/score"];
/// The routes of rankings: vLLM's, Jina's and Cohere's.
pub(super) const RANKINGS: [&str; 3] = ["/v1/rerank", "/v2/rerank", "/rerank"];

/// `POST /v1/embeddings`.
pub(super) async fn embeddings(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let (mut request, mut share) = call.json(request, EmbeddingRequest::from_json).await?;
    if let Some(refusal) = call.count_answers(request.input.len()) {
        return Ok(refusal);
    }
    let prepared = app.serving.prepare_embeddings(&mut request, &call.context);
    let prepared = call.within_deadline(prepared).await?;
    take_memory(&mut share, prepared.num_bytes())?;
    let answer = (app.serving).create_embeddings(prepared, &request, &call.context);
    call.held_json(answer, share).await
}

/// `POST /v1/score`.
pub(super) async fn scores(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let (request, mut share) = call.json(request, ScoreRequest::from_json).await?;
    if let Some(refusal) = call.count_answers(app.serving.num_score_prompts(&request)) {
        return Ok(refusal);
    }
    let prepared = app.serving.prepare_scores(&request, &call.context);
    let prepared = call.within_deadline(prepared).await?;
    // A query may be repeated before each document, and the body had it once.
    take_memory(&mut share, prepared.num_bytes())?;
    let answer = (app.serving).create_scores(prepared, &request, &call.context);
    call.held_json(answer, share).await
}

/// `POST /v1/rerank`.
pub(super) async fn rankings(State(app): App, request: Request) -> Result<Response, ApiError> {
    let call = Call::begin(&app, &request);
    let (request, mut share) = call.json(request, RerankRequest::from_json).await?;
    if let Some(refusal) = call.count_answers(app.serving.num_score_prompts(&request.score)) {
        return Ok(refusal);
    }
    let prepared = (app.serving).prepare_scores(&request.score, &call.context);
    let prepared = call.within_deadline(prepared).await?;
    take_memory(&mut share, prepared.num_bytes())?;
    let answer = (app.serving).create_ranking(prepared, request, &call.context);
    call.held_json(answer, share).await
}
