//! `/openapi.json`: what every route takes and gives.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

const OPENAPI: &str = include_str!("openapi.json");

/// `GET /openapi.json`.
pub(super) async fn openapi() -> Response {
    let mut response = Response::new(Body::from(OPENAPI));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
