//! What is for whoever runs the server: pausing the engine and emptying its prefix cache, under vLLM's
//! names. The core does it; here it is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::api_keys::Scope;
use super::authenticate::{BEARER, Need, forbidden, key, need, refuse, unauthorized};
use super::browser::{check_host, is_of_page};
use super::client::serve_from;
use super::error::{ApiError, json as json_response};
use super::request_record::RequestRecord;
use super::state::AppState;
use crate::engine_core_client::EngineCoreClientError;
use crate::error::cut_short;

/// How long the core may take to answer: it does so between two steps.
const CORE_PATIENCE: Duration = Duration::from_secs(30);

/// The routes of administration.
pub(super) fn admin_routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/is_paused", get(is_paused))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
}

/// Who may come to the management port. Whoever reaches it may read; what changes something needs a key
/// where there is one for it, or where others than this machine's users may reach it, and is for no web page.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) app: Arc<AppState>,
    pub(super) is_loopback: bool,
}

pub(super) async fn guard(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    // Clients without a key can't use up what a scraper needs.
    serve_from(&mut request, &guard.app.clients);
    if is_of_page(request.headers()) {
        let message = "the management port is for no web page: the header Origin must be absent, and \
                       Sec-Fetch-Site none";
        let error = ApiError::new(StatusCode::FORBIDDEN, message);
        return refuse(&request, error.into_response());
    }
    if let Err(error) = check_host(&guard.app.args, &guard.app.own_names, request.headers()) {
        return refuse(&request, error.into_response());
    }
    let key = key(request.headers()).and_then(|key| guard.app.keys.find(&key));
    if let Some(key) = &key {
        let _ = RequestRecord::of(&request).key.set(key.clone());
    }
    let Need::Key(scope @ Scope::Admin) = need(request.uri().path()) else {
        return next.run(request).await;
    };
    let keys = &guard.app.keys;
    // Where there are no keys the routes are at a loopback address alone.
    let is_open = match guard.is_loopback {
        true => !keys.any_has(scope),
        false => !keys.are_required(),
    };
    match key {
        _ if is_open => next.run(request).await,
        None => refuse(&request, unauthorized(BEARER)),
        Some(key) if !key.has(scope) => refuse(&request, forbidden(scope)),
        Some(_) => next.run(request).await,
    }
}

type App = State<Arc<AppState>>;

/// How requests in flight fare while the engine is paused, as the core names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    mode: &'static str,
    clear_cache: bool,
}

impl Pause {
    /// vLLM's defaults, and what the query says instead.
    fn from_query(query: &str) -> Result<Self, ApiError> {
        let mut pause = Self {
            mode: "abort",
            clear_cache: true,
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("mode", "abort")) => pause.mode = "abort",
                Some(("mode", "wait")) => pause.mode = "wait",
                Some(("mode", "keep")) => pause.mode = "keep",
                Some(("clear_cache", "true")) => pause.clear_cache = true,
                Some(("clear_cache", "false")) => pause.clear_cache = false,
                _ => {
                    return Err(ApiError::bad_request(format!(
                        "the query takes mode=abort, wait or keep, and clear_cache=true or false, got \
                         {:?}",
                        cut_short(parameter)
                    )));
                }
            }
        }
        // Requests in flight hold what the cache has.
        if !query.contains("clear_cache=") {
            pause.clear_cache = pause.mode == "abort";
        }
        Ok(pause)
    }
}

/// `POST /pause?mode=abort&clear_cache=true`.
async fn pause(State(app): App, request: Request) -> Result<Response, ApiError> {
    let pause = Pause::from_query(request.uri().query().unwrap_or_default())?;
    let args = [pause.mode.into(), pause.clear_cache.into()];
    let paused = call(&app, "pause_scheduler", &args).await;
    // A cache in use leaves the engine paused, and is an error.
    if let Ok(is_paused) = is_any_paused(&app).await {
        app.is_paused.store(is_paused, Ordering::Relaxed);
    }
    paused?;
    tracing::info!(mode = pause.mode, "paused");
    Ok(json_response(StatusCode::OK, &json!({"status": "paused"})))
}

/// `POST /resume`.
async fn resume(State(app): App) -> Result<Response, ApiError> {
    call(&app, "resume_scheduler", &[]).await?;
    app.is_paused.store(false, Ordering::Relaxed);
    tracing::info!("resumed");
    Ok(json_response(StatusCode::OK, &json!({"status": "resumed"})))
}

/// `GET /is_paused`.
async fn is_paused(State(app): App) -> Result<Response, ApiError> {
    let answer = json!({"is_paused": is_any_paused(&app).await?});
    Ok(json_response(StatusCode::OK, &answer))
}

/// Whether any of the cores is paused.
async fn is_any_paused(app: &AppState) -> Result<bool, ApiError> {
    let answers = call(app, "is_scheduler_paused", &[]).await?;
    Ok(answers.contains(&json!(true)))
}

/// `POST /reset_prefix_cache`.
async fn reset_prefix_cache(State(app): App) -> Result<Response, ApiError> {
    let answers = call(&app, "reset_prefix_cache", &[]).await?;
    match answers.iter().all(|answer| *answer == json!(true)) {
        true => Ok(json_response(StatusCode::OK, &json!({"status": "reset"}))),
        false => Err(ApiError::new(
            StatusCode::CONFLICT,
            "the prefix cache is in use by requests: pause with mode=abort, or wait for an idle engine",
        )),
    }
}

/// Asks every core; the answers are in the cores' order.
async fn call(
    app: &AppState,
    method: &'static str,
    args: &[Value],
) -> Result<Vec<Value>, ApiError> {
    match timeout(CORE_PATIENCE, app.cores.call_utility(method, args)).await {
        Ok(Ok(answers)) => Ok(answers),
        Ok(Err(EngineCoreClientError::Utility { message, .. })) => {
            Err(ApiError::new(StatusCode::CONFLICT, message))
        }
        Ok(Err(error)) => Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            error.to_string(),
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the engine core does not answer",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_vllms() {
        let pause = |query| Pause::from_query(query).map_err(|error| error.0.error.message);
        let expected = |mode, clear_cache| Ok(Pause { mode, clear_cache });
        assert_eq!(pause(""), expected("abort", true));
        assert_eq!(pause("mode=wait"), expected("wait", false));
        assert_eq!(
            pause("clear_cache=false&mode=abort"),
            expected("abort", false)
        );
        assert_eq!(pause("mode=keep&clear_cache=true"), expected("keep", true));
        for wrong in ["mode=now", "mode", "clear_cache=1", "x=y"] {
            assert!(pause(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
