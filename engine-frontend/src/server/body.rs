//! Reading a request's body, within limits.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body::Body as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::error::ApiError;
use super::state::{AppState, Share};
use crate::error::{ValidationError, cut_short};
use crate::json_problem::json_problem;
use crate::unique_json::{self, UniqueJsonError};

/// Bytes that buy a client another second.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Bodies above this are parsed where no stream waits for the thread.
const LARGE_BODY: usize = 64 << 10;

/// A JSON body. Its `_share` is of the memory for bodies: to be kept until the value is used up.
#[derive(Debug)]
pub(super) struct JsonBody {
    value: Value,
    is_large: bool,
    _share: Share,
}

impl JsonBody {
    /// The beginning of its text, for the log.
    pub(super) fn text(&self, max_chars: usize) -> String {
        self.value.to_string().chars().take(max_chars).collect()
    }

    /// Reads the value, once: a large one where no stream waits for the thread.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(Value) -> T) -> T {
        let value = std::mem::take(&mut self.value);
        if self.is_large {
            tokio::task::block_in_place(|| read(value))
        } else {
            read(value)
        }
    }
}

/// Reads a JSON body.
pub(super) async fn read_json(
    state: &AppState,
    headers: &HeaderMap,
    body: Body,
) -> Result<JsonBody, ApiError> {
    check_content_type(headers)?;
    check_content_encoding(headers)?;
    let max = state.args.max_request_body_size;
    let mut share = state.body_budget.share();
    let bytes = read(headers, body, max, state.args.client_timeout, &mut share).await?;
    let is_large = bytes.len() > LARGE_BODY;
    let value = if is_large {
        tokio::task::block_in_place(|| parse(&bytes))?
    } else {
        parse(&bytes)?
    };
    Ok(JsonBody {
        value,
        is_large,
        _share: share,
    })
}

/// Only JSON, and what says nothing.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!(
            "the header Content-Type must be application/json, got {:?}",
            cut_short(kind)
        ),
    ))
}

/// Bodies come as they are: a small compressed one may be large.
fn check_content_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else {
        return Ok(());
    };
    if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
        return Ok(());
    }
    let encoding = String::from_utf8_lossy(encoding.as_bytes());
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!(
            "the header Content-Encoding must be absent: bodies are taken uncompressed, got {:?}",
            cut_short(&encoding)
        ),
    ))
}

/// The whole body, at most `max` bytes of it, within `patience` and a second more for every 64 KiB.
async fn read(
    headers: &HeaderMap,
    mut body: Body,
    max: u64,
    patience: Duration,
    share: &mut Share,
) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request's body is larger than the limit of {max} bytes"),
        )
    };
    let length = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    if length.is_some_and(|length| length > max) {
        return Err(too_large());
    }
    let start = Instant::now();
    let mut bytes = Vec::new();
    loop {
        let len = bytes.len() as u64;
        let deadline = start + patience + Duration::from_secs(len / BYTES_PER_SECOND);
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let frame = match timeout_at(deadline, frame).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => {
                return Err(ApiError::bad_request(format!(
                    "the request's body ended early: {error}"
                )));
            }
            Err(_) => {
                return Err(ApiError::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the request's body did not arrive in time",
                ));
            }
        };
        let Ok(data): Result<Bytes, _> = frame.into_data() else {
            continue;
        };
        if len + data.len() as u64 > max {
            return Err(too_large());
        }
        if !share.grow(data.len() as u64) {
            tracing::warn!("a request was turned away: no memory for its body");
            return Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large requests at the same time; try again later",
            ));
        }
        bytes.extend_from_slice(&data);
    }
}

/// JSON, at most 128 levels deep, with no key twice in an object.
fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(ApiError::bad_request(format!(
            "the request's body is not UTF-8: byte {} is wrong",
            error.valid_up_to()
        )));
    }
    unique_json::from_slice(bytes).map_err(|error| match error {
        UniqueJsonError::Syntax(error) => ApiError::bad_request(format!(
            "the request's body is not JSON: line {}: {}",
            error.line(),
            json_problem(&error)
        )),
        UniqueJsonError::DuplicateKey { key, line } => {
            let key = cut_short(&key);
            let message = format!(
                "the request's body has the key {key:?} twice in an object, line {line}: give it once"
            );
            ValidationError {
                message,
                parameter: Some(key),
                value: None,
            }
            .into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::state::Budget;

    fn problem(bytes: &[u8]) -> String {
        parse(bytes).unwrap_err().0.error.message
    }

    #[test]
    fn what_is_no_json_says_where() {
        assert!(problem(b"{\"a\": }").contains("line 1: expected value at column 7"));
        assert!(problem(b"").contains("EOF"));
        assert!(problem(b"{\"a\":\"\xff\"}").contains("not UTF-8: byte 6"));
        assert!(problem(b"{\"a\": 1e999}").contains("number out of range"));
        let twice = problem(b"{\"guided_choice\": [\"a\"],\n\"guided_choice\": [\"b\"]}");
        assert!(twice.contains("\"guided_choice\" twice"), "{twice}");
        assert!(twice.contains("line 2"), "{twice}");
        let deep = "[".repeat(100_000);
        assert!(problem(deep.as_bytes()).contains("recursion limit"));
    }

    #[tokio::test]
    async fn bodies_are_limited_with_and_without_a_length() {
        let budget = Budget::new(1000);
        let read = async |length: Option<&str>, len: usize| {
            let mut headers = HeaderMap::new();
            if let Some(length) = length {
                headers.insert(CONTENT_LENGTH, length.parse().unwrap());
            }
            let body = Body::from(vec![b' '; len]);
            let patience = Duration::from_secs(60);
            let read = read(&headers, body, 100, patience, &mut budget.share()).await;
            read.map(|bytes| bytes.len()).map_err(|e| e.0.error.code)
        };
        assert_eq!(read(None, 100).await, Ok(100));
        assert_eq!(read(None, 101).await, Err(413));
        assert_eq!(read(Some("101"), 0).await, Err(413));
        let mut all = budget.share();
        assert!(all.grow(950));
        assert_eq!(read(None, 60).await, Err(503));
        drop(all);
        assert_eq!(read(None, 60).await, Ok(60));
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_given_up() {
        let (_sender, receiver) = tokio::sync::mpsc::channel(1);
        let body = Body::new(crate::server::sse::ChannelBody::new(receiver));
        let budget = Budget::new(1000);
        let patience = Duration::from_millis(10);
        let headers = HeaderMap::new();
        let read = read(&headers, body, 100, patience, &mut budget.share()).await;
        assert_eq!(read.unwrap_err().0.error.code, 408);
    }

    #[test]
    fn only_json_is_taken() {
        let check = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            check_content_type(&headers)
        };
        assert!(check_content_type(&HeaderMap::new()).is_ok());
        assert!(check("application/json; charset=utf-8").is_ok());
        assert!(check("Application/JSON").is_ok());
        assert_eq!(check("text/plain").unwrap_err().0.error.code, 415);
        let check = |encoding: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
            check_content_encoding(&headers)
        };
        assert!(check_content_encoding(&HeaderMap::new()).is_ok() && check("identity").is_ok());
        assert_eq!(check("gzip").unwrap_err().0.error.code, 415);
    }
}
