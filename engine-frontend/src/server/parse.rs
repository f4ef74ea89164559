//! From a body's bytes to a request.

use axum::http::StatusCode;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::error::ApiError;
use super::memory::Share;
use crate::client_turns::ClientTurns;
use crate::error::{ValidationError, cut_short};
use crate::freed_memory::give_memory_back;
use crate::json_problem::json_problem;
use crate::tokenizer_threads::{LARGE, LONG};
use crate::unique_json::{self, UniqueJsonError};

/// Makes requests of bodies. All but short ones are parsed away from the threads that serve streams, two at a time and one
/// of a client's, and two more of large ones: what a body's values take is known, and counted, when they are made.
#[derive(Debug, Clone)]
pub(super) struct BodyParser {
    for_medium: ClientTurns,
    for_large: ClientTurns,
    max_value_bytes: usize,
}

impl BodyParser {
    /// A parser of bodies whose values take at most so many bytes of memory.
    pub(super) fn new(max_value_bytes: usize) -> Self {
        Self {
            for_medium: ClientTurns::new(2, 1),
            for_large: ClientTurns::new(2, 1),
            max_value_bytes,
        }
    }

    /// Parses and reads a body. A dropped future that waits for its turn does nothing.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: Vec<u8>,
        share: Share,
        read: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Share), ApiError> {
        let max_value_bytes = self.max_value_bytes;
        let read = move |bytes: Vec<u8>, mut share: Share| {
            let (value, value_bytes) = parse(&bytes, max_value_bytes)?;
            let bytes_len = bytes.len();
            drop(bytes);
            // Beside these stands what is made of them, for which the bytes' share is kept.
            share.body_bytes = bytes_len as u64;
            take_memory(&mut share, value_bytes)?;
            Ok((read(value)?, share))
        };
        if bytes.len() <= LONG {
            return read(bytes, share);
        }
        let turns = match bytes.len() > LARGE {
            true => &self.for_large,
            false => &self.for_medium,
        };
        let turn = turns.acquire().await;
        let parsed = spawn_blocking(move || {
            // Given back by the thread, as the share is: its future may be dropped before.
            let _turn = turn;
            let num_bytes = bytes.len();
            let parsed = read(bytes, share);
            give_memory_back(num_bytes);
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

/// Takes more memory into a request's share.
///
/// # Errors
/// There is not so much.
pub(super) fn take_memory(share: &mut Share, bytes: usize) -> Result<(), ApiError> {
    match share.grow(bytes as u64) {
        true => Ok(()),
        false => Err(no_memory(share, bytes as u64)),
    }
}

/// A request that there is no memory for: so many bytes more than its share has. Where the server has as
/// much for all requests together, they may be had later.
pub(super) fn no_memory(share: &Share, bytes: u64) -> ApiError {
    tracing::warn!("a request was turned away: no memory for it");
    let size = share.budget().size();
    let needed = share.amount().saturating_add(bytes);
    if needed > size {
        return ApiError::bad_request(format!(
            "the request takes {} MiB of memory, but the server has {} MiB for all requests together \
             (--max-request-memory): send less at once",
            needed.div_ceil(1 << 20),
            size >> 20
        ));
    }
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(
            "requests under way and answers that wait for their clients take {} MiB together, which is \
             all that the server has for them (see --max-request-memory); try again later",
            size >> 20
        ),
    )
}

/// JSON, at most 128 levels deep, with no key twice in an object; and the bytes of memory that it takes.
fn parse(bytes: &[u8], max_value_bytes: usize) -> Result<(Value, usize), ApiError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(ApiError::bad_request(format!(
            "the request's body is not UTF-8: byte {} is wrong",
            error.valid_up_to()
        )));
    }
    let read = unique_json::from_slice_within(bytes, max_value_bytes);
    read.map_err(|error| match error {
        UniqueJsonError::Syntax { error, key } => syntax_error(&error, key),
        UniqueJsonError::DuplicateKey { key, line } => {
            let key = cut_short(&key);
            let message = format!(
                "the request's body has the key {key:?} twice in an object, line {line}: give it once"
            );
            ValidationError::about(key, message).into()
        }
        UniqueJsonError::TooLarge(mebibytes) => ApiError::bad_request(format!(
            "the JSON values of the request's body would take more than {mebibytes} MiB of memory: send \
             fewer, counted with those in lists and objects, in one request"
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::server::connections::Connection;
    use crate::server::memory::{Budget, Pool};

    fn problem(bytes: &[u8]) -> String {
        parse(bytes, usize::MAX).unwrap_err().0.error.message
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
            let error = parse(bytes, usize::MAX).unwrap_err().0.error;
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
        let many = format!("[{}0]", "[{}],".repeat(400_000));
        assert!(problem(many.as_bytes()).contains("more than 43 MiB of memory"));
    }

    #[test]
    fn small_bodies_pass_by_large_ones_of_which_one_of_a_client_is_parsed_at_a_time() {
        let runtime = crate::tokenizer_threads::frontend_runtime().unwrap();
        let parser = BodyParser::new(usize::MAX);
        let budget = Budget::new(Pool::Requests, 100 << 20);
        let connection = Connection::unregistered();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        // (parsed now, most at once)
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let large = format!("\"{}\"", "a".repeat(LARGE)).into_bytes();
        runtime.block_on(async {
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let (parser, share, large) =
                    (parser.clone(), budget.share(&connection), large.clone());
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
                let share = budget.share(&connection);
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
    async fn a_request_is_as_large_as_its_body_and_its_values() {
        let parser = BodyParser::new(usize::MAX);
        let connection = Connection::unregistered();
        let budget = Budget::new(Pool::Requests, 8000);
        let run = async |body: &str| {
            let mut share = budget.share(&connection);
            assert!(share.grow(body.len() as u64));
            let run = parser.run(body.as_bytes().to_vec(), share, Ok).await;
            run.map(|(_, share)| share.amount())
                .map_err(|e| e.0.error.code)
        };
        // A list and two values with what the allocator adds, and a text.
        let value = size_of::<Value>() as u64;
        assert_eq!(run("[1, 2]").await, Ok(6 + 3 * value + 16));
        assert_eq!(run(&format!("{:900}", 1)).await, Ok(900 + value));
        assert_eq!(run("\"abc\"").await, Ok(5 + value + 32));
        // Beyond all that there is, and beyond what others leave.
        assert_eq!(run(&format!("[0{}]", ",0".repeat(199))).await, Err(400));
        let mut others = budget.share(&connection);
        assert!(others.grow(7900));
        assert_eq!(run("[1, 2]").await, Err(503));
        drop(others);
        assert_eq!(run("[1, 2]").await, Ok(6 + 3 * value + 16));
    }

    #[test]
    fn a_parser_for_strangers_takes_fewer_values() {
        let list = format!("[0{}]", ",0".repeat(999));
        assert!(parse(list.as_bytes(), 1 << 20).is_ok());
        assert_eq!(
            parse(list.as_bytes(), 1 << 10).unwrap_err().0.error.code,
            400
        );
    }
}
