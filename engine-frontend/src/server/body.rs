//! Reading a request's body, within limits.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body::Body as _;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::error::ApiError;
use super::state::{AppState, Share};
use crate::error::{ValidationError, cut_short};
use crate::json_problem::json_problem;
use crate::tokenizer_threads::LARGE;
use crate::unique_json::{self, MAX_VALUES, UniqueJsonError};

/// What a parsed value takes in memory, with its key and its place among others, about.
const VALUE_BYTES: u64 = 128;

/// Bytes that buy a client another second.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Makes requests of bodies. Large ones are parsed away from the threads that serve streams, and one
/// at a time: a body may take some hundreds of MiB while it is parsed.
#[derive(Debug, Clone)]
pub(super) struct BodyParser {
    for_large: Arc<Semaphore>,
}

impl Default for BodyParser {
    fn default() -> Self {
        Self {
            for_large: Arc::new(Semaphore::new(1)),
        }
    }
}

impl BodyParser {
    /// Parses and reads a body. A dropped future that waits for its turn does nothing.
    async fn run<T: Send + 'static>(
        &self,
        bytes: Vec<u8>,
        share: Share,
        read: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Share), ApiError> {
        let read = move |bytes: Vec<u8>, mut share: Share| {
            let (value, num_values) = parse(&bytes)?;
            drop(bytes);
            // Until the prompt is made of it, the request is as large as its values are.
            if !share.grow_to(num_values as u64 * VALUE_BYTES) {
                return Err(no_memory(&share));
            }
            Ok((read(value)?, share))
        };
        if bytes.len() <= LARGE {
            return read(bytes, share);
        }
        // This fails only where the semaphore is closed, which it never is.
        let permit = self.for_large.clone().acquire_owned().await.ok();
        let parsed = spawn_blocking(move || {
            // Given back by the thread, as the share is: its future may be dropped before.
            let _permit = permit;
            let parsed = read(bytes, share);
            give_memory_back();
            parsed
        });
        parsed.await.unwrap_or_else(|error| {
            tracing::error!("a request's body could not be parsed: {error}");
            Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request's body could not be parsed",
            ))
        })
    }
}

/// Returns freed memory to the system: the allocator would keep a large body's for each thread that
/// ever parsed one.
fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number only, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Reads a JSON body and makes a request of it. The share is of the memory for bodies: to be kept
/// until the request is used up.
pub(super) async fn read_json<T: Send + 'static>(
    state: &AppState,
    headers: &HeaderMap,
    body: Body,
    make: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, Share), ApiError> {
    check_content_type(headers)?;
    check_content_encoding(headers)?;
    let max = state.args.max_request_body_size;
    let mut share = state.body_budget.share();
    let bytes = read(headers, body, max, state.args.client_timeout, &mut share).await?;
    state.body_parser.run(bytes, share, make).await
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
            return Err(no_memory(share));
        }
        bytes.extend_from_slice(&data);
    }
}

fn no_memory(share: &Share) -> ApiError {
    tracing::warn!("a request was turned away: no memory for its body");
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(
            "the bodies of requests under way take {} MiB together, which is all that the server has for \
             them (8 of the largest, see --max-request-body-size; a JSON value counts {VALUE_BYTES} bytes \
             at least); try again later",
            share.budget_size() >> 20
        ),
    )
}

/// JSON, at most 128 levels deep, with no key twice in an object; and how many values it holds.
fn parse(bytes: &[u8]) -> Result<(Value, usize), ApiError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(ApiError::bad_request(format!(
            "the request's body is not UTF-8: byte {} is wrong",
            error.valid_up_to()
        )));
    }
    unique_json::from_slice(bytes).map_err(|error| match error {
        UniqueJsonError::Syntax { error, key } => syntax_error(&error, key),
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
        UniqueJsonError::TooManyValues => ApiError::bad_request(format!(
            "the request's body must hold at most {MAX_VALUES} JSON values, counted with those in \
             lists and objects; it holds more"
        )),
    })
}

/// What is wrong with a text; a number or a character that can't be held is its field's fault.
fn syntax_error(error: &serde_json::Error, key: Option<String>) -> ApiError {
    let problem = json_problem(error);
    let line = error.line();
    let message = if problem.starts_with("number out of range") {
        "a number is too large: its absolute value must be below 1.8e308"
    } else if problem.starts_with("lone ") || problem.starts_with("unexpected end of hex escape") {
        "\\ud800 to \\udfff are halves of a character: two of them, high and low, make one"
    } else {
        return ApiError::bad_request(format!(
            "the request's body is not JSON: line {line}: {problem}"
        ));
    };
    let place = format!("line {line} column {}", error.column());
    match key {
        Some(key) => {
            let key = cut_short(&key);
            ValidationError::about(key.clone(), format!("{key}: {message}, {place}")).into()
        }
        None => ApiError::bad_request(format!("the request's body: {message}, {place}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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
        let digits = format!("{{\"b\": {{}}, \"a\": [{}]}}", "7".repeat(400));
        for (bytes, wanted) in [
            (&b"{\"a\": 1e999}"[..], "a: a number is too large"),
            (digits.as_bytes(), "a: a number is too large"),
            (br#"{"a": "x\ud800"}"#, "a: \\ud800 to \\udfff are halves"),
            (
                br#"{"a": {"b": "\ud800\u0041"}}"#,
                "a: \\ud800 to \\udfff are halves",
            ),
            (br#"{"a": "\udc00"}"#, "a: \\ud800 to \\udfff are halves"),
        ] {
            let error = parse(bytes).unwrap_err().0.error;
            assert!(error.message.starts_with(wanted), "{}", error.message);
            assert!(
                error.message.contains("line 1 column "),
                "{}",
                error.message
            );
            assert_eq!(error.param.as_deref(), Some("a"));
        }
        assert!(problem(b"1e999").starts_with("the request's body: a number"));
        let twice = problem(b"{\"guided_choice\": [\"a\"],\n\"guided_choice\": [\"b\"]}");
        assert!(twice.contains("\"guided_choice\" twice"), "{twice}");
        assert!(twice.contains("line 2"), "{twice}");
        let deep = "[".repeat(100_000);
        assert!(problem(deep.as_bytes()).contains("nested deeper than 128 at column"));
        let many = format!("[{}0]", "[{}],".repeat(MAX_VALUES / 2));
        assert!(problem(many.as_bytes()).contains("at most 1000000 JSON values"));
    }

    #[test]
    fn small_bodies_pass_by_large_ones_which_are_parsed_one_at_a_time() {
        let runtime = crate::tokenizer_threads::frontend_runtime().unwrap();
        let parser = BodyParser::default();
        let budget = Budget::new(1000);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        // (parsed now, most at once)
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let large = format!("\"{}\"", "a".repeat(LARGE)).into_bytes();
        runtime.block_on(async {
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let (parser, share, large) = (parser.clone(), budget.share(), large.clone());
                let (held, counts) = (held.clone(), counts.clone());
                let read = move |_: Value| {
                    let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                    counts.1.fetch_max(now, Ordering::SeqCst);
                    let _ = held.lock().unwrap().recv();
                    counts.0.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                };
                callers.spawn(async move { parser.run(large, share, read).await.map(drop) });
            }
            // The parser is held, and neither workers nor small bodies wait for it.
            while counts.0.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            for _ in 0..100 {
                let parser = parser.clone();
                let share = budget.share();
                let small = tokio::spawn(async move {
                    let (value, _share) = parser.run(b"7".to_vec(), share, Ok).await?;
                    Ok::<_, ApiError>(value)
                });
                assert_eq!(small.await.unwrap().unwrap(), 7);
            }
            drop(release);
            for result in callers.join_all().await {
                result.unwrap();
            }
        });
        assert_eq!(counts.1.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_request_is_as_large_as_its_values_or_its_body() {
        let parser = BodyParser::default();
        let run = async |budget: &Budget, body: &str| {
            let mut share = budget.share();
            assert!(share.grow(body.len() as u64));
            let run = parser.run(body.as_bytes().to_vec(), share, Ok).await;
            run.map(|(_, share)| share.amount())
                .map_err(|e| e.0.error.code)
        };
        let budget = Budget::new(8 * 1000);
        // A list and its values.
        assert_eq!(run(&budget, "[1, 2]").await, Ok(3 * VALUE_BYTES));
        assert_eq!(run(&budget, &format!("{:900}", 1)).await, Ok(900));
        // Never more than an eighth, or it could never be served.
        assert_eq!(
            run(&budget, &format!("[0{}]", ",0".repeat(99))).await,
            Ok(1000)
        );
        let mut others = budget.share();
        assert!(others.grow(7700));
        assert_eq!(run(&budget, "[1, 2]").await, Err(503));
        drop(others);
        assert_eq!(run(&budget, "[1, 2]").await, Ok(3 * VALUE_BYTES));
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
