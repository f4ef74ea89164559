//! The routes of decisions.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::error::ApiError;
use super::handlers::{App, Call};
use super::parse::take_memory;
use super::state::AppState;
use crate::decisions::{self, DecisionApi};

pub(super) const DECISIONS: &str = "/v1/decisions";
pub(super) const SYSTEM_ONE: &str = "/v1/systemone";

/// `POST /v1/decisions`.
pub(super) async fn decisions(State(app): App, request: Request) -> Result<Response, ApiError> {
    decide(&app, request, decisions::OPENAI).await
}

/// `POST /v1/systemone`.
pub(super) async fn system_one(State(app): App, request: Request) -> Result<Response, ApiError> {
    decide(&app, request, decisions::SYSTEM_ONE).await
}

async fn decide(app: &AppState, request: Request, api: DecisionApi) -> Result<Response, ApiError> {
    let call = Call::begin(app, &request);
    let (questions, mut share) = call.json(request, api.read).await?;
    let questions = Arc::new(questions);
    if let Some(refusal) = call.count_answers(questions.num_questions()) {
        return Ok(refusal);
    }
    let prepared = app.serving.prepare_decision(&questions, &call.context);
    let prepared = call.within_deadline(prepared).await?;
    // A question each may repeat a long text, which the body had once.
    take_memory(&mut share, prepared.num_bytes())?;
    let answer = async {
        let decided = app.serving.decide(prepared, &call.context).await?;
        Ok(api.response(questions, decided, app.serving.model_name()))
    };
    call.held_json(answer, share).await
}
