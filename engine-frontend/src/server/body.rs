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

use super::client::Client;
use super::connections::Wait;
use super::error::ApiError;
use super::memory::Share;
use super::parse::{no_memory, take_memory};
use crate::error::cut_short;

/// Bytes that buy a client another second.
const BYTES_PER_SECOND: u64 = 64 << 10;
/// Bytes that a body has room for from the first one on.
const FIRST_ROOM: usize = 8 << 10;
/// Bytes of a header in the table of its request, beside its name and value.
const HEADER_BYTES: usize = 128;

/// What a client may take for a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits {
    /// Largest body in bytes.
    pub(super) max: u64,
    /// Time for the body, and a second more for every 64 KiB.
    pub(super) patience: Duration,
}

/// Reads a JSON body and makes a request of it. The share is of the memory for requests: to be kept
/// until the request is used up, and then for its answer.
pub(super) async fn read_json<T: Send + 'static>(
    client: &Client,
    limits: BodyLimits,
    headers: &HeaderMap,
    body: Body,
    make: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, Share), ApiError> {
    check_content_type(headers)?;
    check_content_encoding(headers)?;
    let mut share = client.share();
    take_memory(&mut share, headers.len() * HEADER_BYTES)?;
    let bytes = {
        let wait = client.connection.wait_for_body();
        read(headers, body, limits, &wait, &mut share).await?
    };
    client.parser.run(bytes, share, make).await
}

/// Only JSON, and only by name: a web page may send other types, and none, to any server unasked.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the header Content-Type is missing; it must be application/json",
        ));
    };
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_json = |essence: &str| essence == "application/json" || essence.ends_with("+json");
    if is_json(&essence.to_ascii_lowercase()) {
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

/// The whole body, within its limits, or until others need its memory more.
async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limits: BodyLimits,
    wait: &Wait<'_>,
    share: &mut Share,
) -> Result<Vec<u8>, ApiError> {
    let max = limits.max;
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
        let more_time = Duration::from_secs(len / BYTES_PER_SECOND);
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let frame = tokio::select! {
            biased;
            frame = timeout_at(start + limits.patience + more_time, frame) => frame,
            () = wait.refused() => return Err(given_up()),
        };
        let frame = match frame {
            Ok(Some(Ok(frame))) => frame,
            // It may have been given up while it came.
            Ok(None) if wait.is_refused() => return Err(given_up()),
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
        if !make_room(&mut bytes, data.len(), length, share) {
            return Err(no_memory(share, data.len() as u64));
        }
        bytes.extend_from_slice(&data);
    }
}

/// Makes room for bytes that have come: twice what there was, and never more than the body's length
/// where it is known. So no client has memory for what it only promises to send.
fn make_room(bytes: &mut Vec<u8>, more: usize, length: Option<u64>, share: &mut Share) -> bool {
    let needed = bytes.len().saturating_add(more);
    let capacity = bytes.capacity();
    if needed <= capacity {
        return true;
    }
    let length = length.and_then(|length| usize::try_from(length).ok());
    let room = capacity.saturating_mul(2).max(FIRST_ROOM);
    let room = room.min(length.unwrap_or(usize::MAX)).max(needed);
    let has_memory = share.grow((room - capacity) as u64);
    if has_memory {
        bytes.reserve_exact(room - bytes.len());
    }
    has_memory
}

/// A body whose memory others need: see [`connections`](super::connections).
fn given_up() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the server ran short of memory for bodies, and this one was incomplete; send it again later",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::connections::Connection;
    use crate::server::memory::{Budget, Pool};

    #[tokio::test]
    async fn bodies_are_limited_with_and_without_a_length() {
        let budget = Budget::new(Pool::Requests, 1000);
        let connection = Connection::unregistered();
        let read = async |length: Option<&str>, len: usize| {
            let mut headers = HeaderMap::new();
            if let Some(length) = length {
                headers.insert(CONTENT_LENGTH, length.parse().unwrap());
            }
            let body = Body::from(vec![b' '; len]);
            let limits = BodyLimits {
                max: 100,
                patience: Duration::from_secs(60),
            };
            let (wait, mut share) = (connection.wait_for_body(), budget.share(&connection));
            let read = read(&headers, body, limits, &wait, &mut share).await;
            read.map(|bytes| bytes.len()).map_err(|e| e.0.error.code)
        };
        assert_eq!(read(Some("100"), 100).await, Ok(100));
        assert_eq!(read(Some("100"), 101).await, Err(413));
        assert_eq!(read(Some("101"), 0).await, Err(413));
        let mut all = budget.share(&connection);
        assert!(all.grow(950));
        assert_eq!(read(Some("60"), 60).await, Err(503));
        drop(all);
        assert_eq!(read(Some("60"), 60).await, Ok(60));
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_given_up() {
        let (_sender, receiver) = tokio::sync::mpsc::channel(1);
        let body = Body::new(crate::server::sse::ChannelBody::new(receiver));
        let budget = Budget::new(Pool::Requests, 1000);
        let connection = Connection::unregistered();
        let (wait, mut share) = (connection.wait_for_body(), budget.share(&connection));
        let limits = BodyLimits {
            max: 100,
            patience: Duration::from_millis(10),
        };
        let headers = HeaderMap::new();
        let read = read(&headers, body, limits, &wait, &mut share).await;
        assert_eq!(read.unwrap_err().0.error.code, 408);
    }

    #[test]
    fn only_json_is_taken() {
        let check = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            check_content_type(&headers)
        };
        let missing = check_content_type(&HeaderMap::new()).unwrap_err().0.error;
        assert_eq!(missing.code, 415);
        assert!(missing.message.contains("must be application/json"));
        assert!(check("application/json; charset=utf-8").is_ok());
        assert!(check("application/problem+JSON").is_ok());
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

    #[test]
    fn a_body_has_room_for_what_has_come() {
        let budget = Budget::new(Pool::Requests, 1 << 30);
        let connection = Connection::unregistered();
        let receive = |length: Option<u64>, len: usize| {
            let mut share = budget.share(&connection);
            let mut bytes = Vec::new();
            while bytes.len() < len {
                let more = (len - bytes.len()).min(8000);
                assert!(make_room(&mut bytes, more, length, &mut share));
                bytes.resize(bytes.len() + more, b' ');
                assert!(bytes.capacity() <= 2 * bytes.len().max(FIRST_ROOM));
                assert_eq!(share.amount(), bytes.capacity() as u64);
            }
            bytes.capacity()
        };
        assert_eq!(receive(Some(100), 100), 100);
        assert_eq!(receive(Some(1_000_000), 1_000_000), 1_000_000);
        // What is only promised costs nothing.
        assert_eq!(receive(Some(32 << 20), 100), FIRST_ROOM);
        assert!(receive(None, 1_000_000) < 2_000_000);
    }
}
