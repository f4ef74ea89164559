//! What happens to every request before and after its handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    AUTHORIZATION, CONNECTION, ORIGIN, VARY, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::args::ServerArgs;
use super::client_stream::FREE_HEAD;
use super::error::{ApiError, FailureMessage};
use super::state::AppState;
use crate::random::random_u64;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that a client may choose.
const MAX_REQUEST_ID: usize = 128;

/// A request's id: the client's, or a random one.
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub(super) Arc<str>);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let own = headers.get(X_REQUEST_ID).and_then(|id| id.to_str().ok());
        let own = own.filter(|id| !id.is_empty() && id.len() <= MAX_REQUEST_ID);
        Self(match own {
            Some(id) => id.into(),
            None => format!("{:016x}{:016x}", random_u64(), random_u64()).into(),
        })
    }
}

/// Id, counts and log. Outermost, so that it sees every answer.
pub(super) async fn observe(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let id = RequestId::of(request.headers());
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>();
    // Unknown paths share a label: anybody can make them up.
    let handler = path.map_or("none", MatchedPath::as_str).to_owned();
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    app.metrics
        .record_http(&handler, method.as_str(), status, start.elapsed());
    if app.args.enable_log_requests {
        tracing::info!(request_id = &*id.0, %method, handler, status, "request");
    }
    if status >= 500 && status != 503 {
        let why = response.extensions().get::<FailureMessage>();
        let error = why.map_or("", |why| &why.0);
        tracing::error!(request_id = &*id.0, %method, handler, status, error, "request failed");
    }
    if app.args.enable_request_id_headers
        && let Ok(value) = HeaderValue::from_str(&id.0)
    {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    if app.draining.load(Ordering::Relaxed) {
        // The client's next request belongs to another server.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// Refuses requests whose head is too large.
pub(super) async fn limit_head(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let (bytes, count) = (head_bytes(&request), request.headers().len());
    let (max_bytes, max_count) = (
        app.args.h11_max_incomplete_event_size,
        app.args.h11_max_header_count,
    );
    let message = if bytes as u64 > max_bytes {
        format!("the request's head has {bytes} bytes, more than the limit of {max_bytes}")
    } else if count as u64 > max_count {
        format!("the request has {count} headers, more than the limit of {max_count}")
    } else {
        let mut response = next.run(request).await;
        if bytes as u64 > FREE_HEAD {
            close_after(&mut response);
        }
        return response;
    };
    let error = ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message);
    let mut response = error.into_response();
    close_after(&mut response);
    response
}

/// Ends a connection that had a large head: it would keep the room for another one.
fn close_after(response: &mut Response) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
}

/// The bytes of a request's first line and headers, each `name: value`, up to the empty line.
fn head_bytes(request: &Request) -> usize {
    const LINE_END: usize = "\r\n".len();
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    // A proxy's form names the server as well.
    let server = match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) => scheme.len() + "://".len() + authority.as_str().len(),
        _ => 0,
    };
    let first = request.method().as_str().len() + server + path + "  HTTP/1.1".len() + LINE_END;
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + ": ".len() + value.len() + LINE_END
    };
    first + request.headers().iter().map(header).sum::<usize>() + LINE_END
}

/// Answers web pages of other origins, where they are allowed.
pub(super) async fn cors(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let args = &app.args;
    let Some(origin) = request.headers().get(ORIGIN).cloned() else {
        return next.run(request).await;
    };
    if !is_allowed_origin(args, &origin) {
        return next.run(request).await;
    }
    let wanted = request.headers().clone();
    let preflight =
        request.method() == Method::OPTIONS && wanted.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if preflight {
        preflight_response(args, &wanted)
    } else {
        next.run(request).await
    };
    let any = args.allowed_origins.iter().any(|o| o == "*") && !args.allow_credentials;
    let headers = response.headers_mut();
    let allowed = if any {
        HeaderValue::from_static("*")
    } else {
        headers.append(VARY, HeaderValue::from_static("Origin"));
        origin
    };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    if args.allow_credentials {
        let yes = HeaderValue::from_static("true");
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
    }
    response
}

pub(super) fn is_allowed_origin(args: &ServerArgs, origin: &HeaderValue) -> bool {
    let allowed = args.allowed_origins.iter();
    allowed
        .into_iter()
        .any(|o| o == "*" || o.as_bytes() == origin.as_bytes())
}

fn preflight_response(args: &ServerArgs, wanted: &HeaderMap) -> Response {
    let mut response = StatusCode::OK.into_response();
    for (asked, allowed, header) in [
        (
            ACCESS_CONTROL_REQUEST_METHOD,
            &args.allowed_methods,
            ACCESS_CONTROL_ALLOW_METHODS,
        ),
        (
            ACCESS_CONTROL_REQUEST_HEADERS,
            &args.allowed_headers,
            ACCESS_CONTROL_ALLOW_HEADERS,
        ),
    ] {
        let value = if allowed.iter().any(|a| a == "*") {
            wanted.get(asked).cloned()
        } else {
            HeaderValue::from_str(&allowed.join(", ")).ok()
        };
        if let Some(value) = value {
            response.headers_mut().insert(header, value);
        }
    }
    response
}

/// Refuses requests without a key, where keys are asked for.
pub(super) async fn authenticate(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let needs_key = path == "/v1" || path.starts_with("/v1/");
    let needs_key = needs_key && app.has_keys() && request.method() != Method::OPTIONS;
    let has_key = has_key(request.headers(), &app.api_key_hashes);
    if has_key {
        request.extensions_mut().insert(app.api_key.clone());
    }
    if has_key || !needs_key {
        return next.run(request).await;
    }
    let error = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "the header Authorization must be \"Bearer KEY\" with one of the server's keys",
    );
    let mut response = error.into_response();
    let bearer = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    response
}

/// Compares hashes, in constant time, and all of them: nothing about a key is in the time taken.
fn has_key(headers: &HeaderMap, keys: &[blake3::Hash]) -> bool {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return false;
    };
    let value = value.as_bytes();
    let Some((scheme, key)) = value.split_at_checked(7) else {
        return false;
    };
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return false;
    }
    let given = blake3::hash(key);
    keys.iter()
        .fold(false, |found, key| found | (*key == given))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn any_of_the_keys_will_do() {
        let keys = [blake3::hash(b"one"), blake3::hash(b"two")];
        let check = |value: &str| has_key(&headers(AUTHORIZATION, value), &keys);
        assert!(check("Bearer one") && check("bearer two"));
        for wrong in [
            "Bearer three",
            "Bearer on",
            "Bearer ",
            "one",
            "Basic one",
            "Bearer  one",
            "",
        ] {
            assert!(!check(wrong), "{wrong:?}");
        }
        assert!(!has_key(&HeaderMap::new(), &keys));
    }

    #[test]
    fn an_id_of_the_client_is_kept_where_it_will_do() {
        let id = |value: &str| RequestId::of(&headers(X_REQUEST_ID, value)).0;
        assert_eq!(&*id("abc"), "abc");
        let long = "x".repeat(129);
        for other in [&*id(""), &*id(&long), &*RequestId::of(&HeaderMap::new()).0] {
            assert_eq!(other.len(), 32);
        }
    }
}
