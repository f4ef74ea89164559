//! What happens to every request before and after its handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    CONNECTION, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::args::ServerArgs;
use super::authenticate::{Need, need};
use super::client_stream::FREE_HEAD;
use super::error::ApiError;
use super::request_end::RequestEnd;
use super::request_record::{ClientAddress, RequestRecord, keep_until_sent};
use super::state::AppState;
use crate::metrics::method_label;
use crate::openai::ErrorInfo;
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

/// A route as it is called without `--root-path`.
fn without_root<'a>(route: &'a str, root: &str) -> &'a str {
    route.strip_prefix(root).unwrap_or(route)
}

/// True for a question how the server is, which comes every few seconds.
fn is_probe(request: &Request) -> bool {
    need(request.uri().path()) == Need::Nothing
}

/// Id, counts and logs. Outermost, so that it sees every answer.
pub(super) async fn observe(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let id = RequestId::of(request.headers());
    let method = method_label(request.method().as_str());
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map(|path| without_root(path.as_str(), &app.args.root_path).to_owned());
    let record = Arc::<RequestRecord>::default();
    let audit_log = app.audit_log.clone().filter(|_| !is_probe(&request));
    let is_logged = app.args.enable_log_requests;
    // Its lines are written also where the client goes before it is answered.
    let mut end = (is_logged || audit_log.is_some()).then(|| RequestEnd {
        audit_log,
        is_logged,
        request_id: id.0.clone(),
        client: request
            .extensions()
            .get()
            .map(|client: &ClientAddress| client.0),
        method,
        route: route.clone().unwrap_or_else(|| "none".to_owned()),
        status: None,
        error: None,
        record: record.clone(),
        start,
    });
    request.extensions_mut().insert(record);
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    app.metrics
        .record_http(route.as_deref(), method, status, start.elapsed());
    let handler = route.as_deref().unwrap_or("none");
    let error = response.extensions().get::<ErrorInfo>();
    if status >= 500 && status != 503 {
        let error = error.map_or("", |error| &error.message);
        tracing::error!(
            request_id = &*id.0,
            method,
            handler,
            status,
            error,
            "request failed"
        );
    }
    if let Some(mut end) = end.take() {
        end.answered(status, error);
        response = keep_until_sent(response, end);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
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
