//! JSON answers, and events of streams, that are charged before they are made.

use std::io;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::error::{ApiError, json_body};
use super::memory::Share;
use super::parse::no_memory;
use crate::openai::Piece;

/// Longest answer, in bytes, that is made by the thread that also serves others: well below a millisecond.
const QUICK_BYTES: usize = 64 << 10;
/// Bytes that an answer has room for when it begins.
const FIRST_BYTES: usize = 512;

/// A JSON answer in place of its request, whose share it takes over until its client has taken it.
///
/// # Errors
/// There is no memory for it; no more of it is made than there was memory for.
pub(super) async fn held_json(
    value: impl Serialize + Send + 'static,
    share: Share,
) -> Result<Response, ApiError> {
    let write = move |to: &mut Answer| Ok(serde_json::to_writer(to, &value)?);
    let mut quick = Answer::new(Some(share), QUICK_BYTES);
    let is_too_long = write(&mut quick).is_err() && quick.lacks.is_none();
    let bytes = match quick.share.take_if(|_| is_too_long) {
        Some(share) => made_aside(write, share).await?,
        None => quick.held()?,
    };
    Ok(json_body(StatusCode::OK, bytes))
}

/// An event of a stream. A long one is counted in `share`'s budget until it is written: what a client that lags gets,
/// and the whole answer at the end.
///
/// # Errors
/// There is no memory for it.
pub(super) async fn held_event(piece: Piece, share: &Share) -> Result<Bytes, ApiError> {
    let mut quick = Answer::new(None, QUICK_BYTES);
    if piece.write(&mut quick).is_ok() {
        return quick.held();
    }
    let write = move |to: &mut Answer| piece.write(to);
    made_aside(write, share.sibling()).await
}

/// What is too long for the thread that serves others.
async fn made_aside(
    write: impl Fn(&mut Answer) -> io::Result<()> + Send + 'static,
    share: Share,
) -> Result<Bytes, ApiError> {
    let turn = share.long_answers().acquire().await;
    let made = spawn_blocking(move || {
        // Held by the thread, since its future may be dropped before.
        let _turn = turn;
        let mut answer = Answer::new(Some(share), usize::MAX);
        // Our own types always have a JSON form, so that nothing but memory can be missing.
        let _ = write(&mut answer);
        answer
    });
    let answer = made.await.map_err(|error| {
        tracing::error!("an answer could not be made: {error}");
        let message = "the answer could not be made";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    answer.held()
}

/// An answer's bytes. Its share, where it is counted, is never smaller than their memory.
struct Answer {
    bytes: Vec<u8>,
    share: Option<Share>,
    max: usize,
    /// Bytes that there was no memory for.
    lacks: Option<u64>,
}

impl Answer {
    fn new(share: Option<Share>, max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            share,
            max,
            lacks: None,
        }
    }

    fn held(mut self) -> Result<Bytes, ApiError> {
        let Some(mut share) = self.share else {
            return Ok(self.bytes.into());
        };
        self.bytes.shrink_to_fit();
        let len = self.bytes.len() as u64;
        match self.lacks {
            None if share.resize_for_answer(len) => Ok(share.hold(self.bytes)),
            lacks => Err(no_memory(&share, lacks.unwrap_or(len))),
        }
    }
}

impl io::Write for Answer {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let len = self.bytes.len() + part.len();
        if len > self.max {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        if len > self.bytes.capacity() {
            // By a quarter: as much as that may be charged in vain.
            let longer = self.bytes.len() + self.bytes.len() / 4;
            let capacity = len.max(longer).max(FIRST_BYTES);
            let bytes = capacity as u64;
            if let Some(share) = &mut self.share
                && bytes > share.amount()
                && !share.resize_for_answer(bytes)
            {
                self.lacks = Some(bytes - share.amount());
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::to_bytes;
    use serde::Serializer;

    use super::*;
    use crate::server::connections::Connection;
    use crate::server::memory::{Budget, Pool};

    /// A text of 1 KiB that counts how often it is written.
    #[derive(Clone)]
    struct Text(Arc<AtomicUsize>);

    impl Serialize for Text {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            serializer.serialize_str(&"x".repeat(1022))
        }
    }

    async fn answer(num_texts: usize, budget: u64) -> (Result<usize, ApiError>, usize) {
        let num_written = Arc::default();
        let texts = vec![Text(Arc::clone(&num_written)); num_texts];
        let budget = Budget::new(Pool::Strangers, budget);
        let answer = held_json(texts, budget.share(&Connection::unregistered())).await;
        let len = match answer {
            Ok(answer) => {
                let charged = budget.taken();
                let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                assert_eq!(charged, body.len() as u64);
                Ok(body.len())
            }
            Err(error) => Err(error),
        };
        assert_eq!(budget.taken(), 0);
        (len, num_written.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn an_answer_is_charged_before_it_is_made() {
        // Each text has two quotation marks and a comma, the list two brackets.
        assert_eq!(answer(63, 1 << 20).await.0.unwrap(), 63 * 1025 + 1);
        let (len, num_written) = answer(700, 1 << 20).await;
        assert_eq!(len.unwrap(), 700 * 1025 + 1);
        // Begun on the thread of others, and made on its own.
        assert_eq!(num_written, 64 + 700);
        let (refused, num_written) = answer(100_000, 1 << 20).await;
        assert_eq!(refused.unwrap_err().0.error.code, 400);
        assert!(num_written < 64 + 1024, "{num_written} KiB were made");
        let (refused, num_written) = answer(60, 10 << 10).await;
        assert_eq!(refused.unwrap_err().0.error.code, 400);
        assert!(num_written < 12, "{num_written} KiB were made");
    }
}
