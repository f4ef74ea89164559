//! Errors as HTTP answers, and why there is no server.

use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::api_keys::ApiKeysError;
use crate::error::listen_problem;
use crate::openai::{ErrorResponse, ServingError};
use crate::startup_error::StartupError;

/// Seconds after which a client that was turned away may try again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// An error as the answer to a request.
#[derive(Debug)]
pub(super) struct ApiError(pub(super) ErrorResponse);

impl ApiError {
    /// An error with this status.
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self(ErrorResponse::new(status.as_u16(), message, None))
    }

    /// A body that can't be read.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<ServingError> for ApiError {
    fn from(error: ServingError) -> Self {
        Self(error.to_response())
    }
}

impl From<crate::error::ValidationError> for ApiError {
    fn from(error: crate::error::ValidationError) -> Self {
        ServingError::from(error).into()
    }
}

impl From<crate::error::GenerateError> for ApiError {
    fn from(error: crate::error::GenerateError) -> Self {
        ServingError::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.0.error.code;
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, &self.0);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        // For the log.
        response.extensions_mut().insert(self.0.error);
        response
    }
}

/// A JSON answer. Our own types always have a JSON form.
pub(super) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    json_body(status, Bytes::from(body))
}

pub(super) fn json_body(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An unknown path.
pub(super) async fn not_found() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "there is no such path; /openapi.json lists them",
    )
}

/// A known path with another method. The router adds which it has.
pub(super) async fn method_not_allowed() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path has another method; /openapi.json lists them",
    )
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No engine.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// The address is taken, or not ours.
    #[error("can't listen at {address}: {}", listen_problem(.error))]
    Bind {
        /// Where.
        address: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The socket of `--uds` can't be used.
    #[error("--uds: {0}")]
    Socket(#[from] protocol::transport::TransportError),
    /// The certificate or its key can't be used.
    #[error("can't use {}: {problem}", .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The keys can't be read.
    #[error(transparent)]
    ApiKeys(#[from] ApiKeysError),
    /// The audit log can't be opened.
    #[error("can't write --audit-log {}: {error}", .path.display())]
    AuditLog {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The core is gone for good.
    #[error("{0}")]
    EngineDead(crate::error::EngineDeadError),
    /// Traces can't be sent.
    #[cfg(feature = "opentelemetry")]
    #[error("--otlp-traces-endpoint: {0}")]
    Traces(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The system refuses signals or threads.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
