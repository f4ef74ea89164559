//! Who asks, and whether they may.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;

use super::api_keys::{ApiKey, Scope};
use super::client::owner;
use super::connections::Connection;
use super::error::ApiError;
use super::rate_limit::Refusal;
use super::request_record::{RequestRecord, keep_until_sent};
use super::state::AppState;
use super::ui_files::is_page;
use crate::client_turns::CLIENT;

/// What a route needs, where the server has keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// No key: probes don't have one.
    Nothing,
    /// Any key: what is there tells nothing, or there is nothing.
    AnyKey,
    /// A key with this scope.
    Key(Scope),
}

/// What a path needs. The router compares paths in the same way, byte by byte; a path that isn't here
/// needs a key.
pub(super) fn need(path: &str) -> Need {
    match path {
        "/health" | "/ping" | "/version" => Need::Nothing,
        "/tokenize" | "/detokenize" => Need::Key(Scope::Tokenize),
        "/metrics" | "/load" => Need::Key(Scope::Metrics),
        "/pause" | "/resume" | "/is_paused" | "/reset_prefix_cache" => Need::Key(Scope::Admin),
        "/formwork/v1/check" | "/inference/v1/generate" | "/score" | "/rerank" | "/v2/rerank" => {
            Need::Key(Scope::Inference)
        }
        path if path == "/v1" || path.starts_with("/v1/") => Need::Key(Scope::Inference),
        _ => Need::AnyKey,
    }
}

/// What a path needs with `--open-routes`: vLLM asks for a key under `/v1` alone. Administration
/// always needs one.
fn need_of_open_routes(path: &str, method: &Method) -> Need {
    match need(path) {
        need @ Need::Key(Scope::Admin) => need,
        need @ Need::Key(Scope::Inference) if method != Method::OPTIONS => need,
        _ => Need::Nothing,
    }
}

/// Finds the key that a request brings, for [`authenticate`]. Where keys are asked for, requests without one begin one
/// by one, and their clients take turns: however many they send, a client with a key waits for one of them at a time.
/// Outermost, since every refusal is work.
pub(super) async fn find_key(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    if app.keys.are_required() {
        match key(request.headers()).and_then(|key| app.keys.find(&key)) {
            Some(key) => {
                request.extensions_mut().insert(key);
            }
            None => {
                let connection = request.extensions().get::<Arc<Connection>>();
                let waits = connection.map(|connection| connection.wait_for_turn());
                CLIENT
                    .scope(owner(&request), app.strangers_turns.pass())
                    .await;
                drop(waits);
            }
        }
    }
    next.run(request).await
}

/// Refuses requests without a key, where keys are asked for, and those beyond a key's limits. None of
/// their bodies is read.
pub(super) async fn authenticate(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    if !app.keys.are_required() {
        return next.run(request).await;
    }
    let path = request.uri().path();
    let need = match app.args.access.open_routes {
        true => need_of_open_routes(path, request.method()),
        false => need(path),
    };
    let key = request.extensions().get::<Arc<ApiKey>>().cloned();
    let record = RequestRecord::of(&request);
    if let Some(key) = &key {
        let _ = record.key.set(key.clone());
    }
    let key = match (need, key) {
        (Need::Nothing, _) => return next.run(request).await,
        (_, None) => {
            let is_page = is_page(&app, request.uri().path(), request.headers());
            let challenge = if is_page { BASIC } else { BEARER };
            return refuse(&request, unauthorized(challenge));
        }
        (Need::Key(scope), Some(key)) if !key.has(scope) => {
            return refuse(&request, forbidden(scope));
        }
        (Need::Key(_) | Need::AnyKey, Some(key)) => key,
    };
    if let Some(refusal) = count_answers(&app, &record, 1) {
        return refuse(&request, refusal);
    }
    let running = RunningRequest { key, record };
    let response = next.run(request).await;
    keep_until_sent(response, running)
}

/// How programs bring a key.
pub(super) const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
/// How browsers bring a key, for which they ask their user: as a password.
const BASIC: HeaderValue =
    HeaderValue::from_static("Basic realm=\"Formwork: the password is a key\", charset=\"UTF-8\"");

/// Anthropic's clients bring their key in this header.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key that a request brings: behind `Bearer`, as a password behind `Basic`, or else in `x-api-key`. None where
/// one of these headers stands twice: a proxy in front may have looked at the other one.
pub(super) fn key(headers: &HeaderMap) -> Option<Cow<'_, [u8]>> {
    let is_twice = |name| headers.get_all(name).iter().nth(1).is_some();
    if is_twice(AUTHORIZATION) || is_twice(X_API_KEY) {
        return None;
    }
    let other = || headers.get(X_API_KEY).map(|key| key.as_bytes().into());
    authorization(headers).or_else(other)
}

fn authorization(headers: &HeaderMap) -> Option<Cow<'_, [u8]>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    if let Some(key) = behind_scheme(value, b"bearer ") {
        return Some(key.into());
    }
    let credentials = base64::decode(behind_scheme(value, b"basic ")?).ok()?;
    let colon = credentials.iter().position(|&byte| byte == b':')?;
    Some(credentials[colon + 1..].to_vec().into())
}

/// True if a request brings a key as a browser does, which adds it by itself, whoever's page asks.
pub(super) fn is_basic(headers: &HeaderMap) -> bool {
    let value = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    value.is_some_and(|value| behind_scheme(value, b"basic ").is_some())
}

fn behind_scheme<'a>(value: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    found.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Counts `num_more` answers to a request for its key. All of its answers are refused together, and then none
/// counts.
pub(super) fn count_answers(
    app: &AppState,
    record: &RequestRecord,
    num_more: u32,
) -> Option<Response> {
    let key = record.key.get().filter(|_| num_more > 0)?;
    match key.usage.begin(&key.limits, num_more, Instant::now()) {
        Ok(()) => {
            record.num_answers.fetch_add(num_more, Ordering::Relaxed);
            None
        }
        Err(refusal) => {
            app.metrics.record_rejection(refusal.limit);
            let num_answers = record.num_answers.swap(0, Ordering::Relaxed);
            key.usage.take_back(num_answers);
            Some(too_many(refusal, num_answers.saturating_add(num_more)))
        }
    }
}

/// A request that counts for its key until its answer is over.
#[derive(Debug)]
struct RunningRequest {
    key: Arc<ApiKey>,
    record: Arc<RequestRecord>,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let usage = &self.record.usage;
        let tokens = usage.prompt_tokens() + usage.completion_tokens();
        let num_answers = self.record.num_answers.load(Ordering::Relaxed);
        let (key, now) = (&self.key, Instant::now());
        key.usage.end(&key.limits, num_answers, tokens, now);
    }
}

/// An answer to a request whose body is left unread. A connection on which it is still to come is of no
/// use for another request.
pub(super) fn refuse(request: &Request, mut response: Response) -> Response {
    if !request.body().is_end_stream() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// An answer to a request without a key, which says how to bring one.
pub(super) fn unauthorized(challenge: HeaderValue) -> Response {
    let error = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "the header Authorization must be \"Bearer KEY\" with one of the server's keys, or x-api-key one of them, each header once",
    );
    let mut response = error.into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

pub(super) fn forbidden(scope: Scope) -> Response {
    let message = format!(
        "the key lacks the scope {:?}, which this route needs",
        scope.as_str()
    );
    ApiError::new(StatusCode::FORBIDDEN, message).into_response()
}

fn too_many(refusal: Refusal, num_answers: u32) -> Response {
    let Refusal {
        limit,
        value,
        retry_after,
    } = refusal;
    let message = match num_answers {
        1 => format!(
            "the key has reached its limit {limit} of {value}; try again in {retry_after} s"
        ),
        _ => format!(
            "the key has reached its limit {limit} of {value}, for which the request's {num_answers} \
             answers count one by one; ask for fewer, or try again in {retry_after} s"
        ),
    };
    let mut response = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).into_response();
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(retry_after));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_behind_its_scheme() {
        let key_of = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
            key(&headers).map(Cow::into_owned)
        };
        assert_eq!(key_of("Bearer one"), Some(b"one".to_vec()));
        assert_eq!(key_of("bearer one"), Some(b"one".to_vec()));
        assert_eq!(key_of("Bearer  one"), Some(b" one".to_vec()));
        assert_eq!(key_of("Bearer "), Some(Vec::new()));
        // `user:a:key`, `:one`, `one`.
        assert_eq!(key_of("Basic dXNlcjphOmtleQ=="), Some(b"a:key".to_vec()));
        assert_eq!(key_of("basic Om9uZQ=="), Some(b"one".to_vec()));
        for none in ["one", "Basic one", "Basic b25l", "Basic ", "Bearer", ""] {
            assert_eq!(key_of(none), None, "{none:?}");
        }
        assert_eq!(key(&HeaderMap::new()), None);
    }

    #[test]
    fn a_key_may_stand_in_a_header_of_its_own() {
        let key_of = |authorization: &'static str| {
            let pairs = [(AUTHORIZATION, authorization), (X_API_KEY, "two")];
            let pairs = pairs.map(|(name, value)| (name, HeaderValue::from_static(value)));
            key(&HeaderMap::from_iter(pairs)).map(Cow::into_owned)
        };
        assert_eq!(key_of("Bearer one"), Some(b"one".to_vec()));
        for none in ["one", "Basic b25l", ""] {
            assert_eq!(key_of(none), Some(b"two".to_vec()), "{none:?}");
        }
    }

    #[test]
    fn a_header_that_stands_twice_brings_no_key() {
        for name in [AUTHORIZATION, X_API_KEY] {
            let mut headers = HeaderMap::new();
            for header in [AUTHORIZATION, X_API_KEY] {
                headers.insert(header, HeaderValue::from_static("Bearer one"));
            }
            assert!(key(&headers).is_some());
            headers.append(&name, HeaderValue::from_static("Bearer one"));
            assert_eq!(key(&headers), None, "{name}");
        }
    }

    #[test]
    fn only_probes_are_open() {
        for open in ["/health", "/ping", "/version"] {
            assert_eq!(need(open), Need::Nothing);
        }
        for (path, scope) in [
            ("/v1", Scope::Inference),
            ("/v1/chat/completions", Scope::Inference),
            ("/inference/v1/generate", Scope::Inference),
            ("/score", Scope::Inference),
            ("/rerank", Scope::Inference),
            ("/v2/rerank", Scope::Inference),
            ("/v1/../health", Scope::Inference),
            ("/tokenize", Scope::Tokenize),
            ("/detokenize", Scope::Tokenize),
            ("/metrics", Scope::Metrics),
            ("/load", Scope::Metrics),
            ("/pause", Scope::Admin),
            ("/reset_prefix_cache", Scope::Admin),
        ] {
            assert_eq!(need(path), Need::Key(scope), "{path}");
        }
        for other in [
            "/openapi.json",
            "/",
            "",
            "*",
            "/health/",
            "/HEALTH",
            "/%68ealth",
            "//health",
        ] {
            assert_eq!(need(other), Need::AnyKey, "{other}");
        }
    }

    #[test]
    fn open_routes_are_those_of_vllm() {
        let post = |path| need_of_open_routes(path, &Method::POST);
        assert_eq!(post("/v1/completions"), Need::Key(Scope::Inference));
        assert_eq!(post("/pause"), Need::Key(Scope::Admin));
        for open in ["/tokenize", "/metrics", "/openapi.json", "/nothing"] {
            assert_eq!(post(open), Need::Nothing, "{open}");
        }
        let options = need_of_open_routes("/v1/completions", &Method::OPTIONS);
        assert_eq!(options, Need::Nothing);
    }
}
