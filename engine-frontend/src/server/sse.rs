//! Streams as server-sent events.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::connections::Busy;
use super::memory::Share;
use super::state::LoadGuard;
use crate::openai::{ErrorResponse, EventStream, Piece};

const DONE: &[u8] = b"data: [DONE]\n\n";
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A body whose pieces come by a channel.
#[derive(Debug)]
pub(super) struct ChannelBody(mpsc::Receiver<Bytes>);

impl ChannelBody {
    pub(super) fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self(pieces)
    }
}

impl http_body::Body for ChannelBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// How a stream is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct SseOptions {
    /// Between comments while nothing else comes; zero is never.
    pub(super) keep_alive: Duration,
    /// When the request's time is over.
    pub(super) deadline: Option<Instant>,
}

/// Pieces of more bytes are counted until they are written: those for a client that lags.
const LARGE_PIECE: usize = 64 << 10;

/// What is kept while a stream lives.
#[derive(Debug)]
pub(super) struct StreamGuards {
    /// The request's.
    pub(super) share: Share,
    pub(super) _load: LoadGuard,
    pub(super) _busy: Option<Busy>,
}

/// An answer that sends the stream's pieces as they come. When the client goes the stream is
/// dropped, which aborts the request.
pub(super) fn respond(stream: EventStream, options: SseOptions, guards: StreamGuards) -> Response {
    // One piece on the way: a client that lags gets merged ones.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        pump(stream, options, sender, &guards.share).await;
        drop(guards);
    });
    let mut response = Response::new(Body::new(ChannelBody::new(receiver)));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Or nginx holds pieces back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn pump(
    mut stream: EventStream,
    options: SseOptions,
    sender: mpsc::Sender<Bytes>,
    share: &Share,
) {
    let deadline = async {
        match options.deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    loop {
        let next = async {
            match options.keep_alive {
                Duration::ZERO => Ok(stream.next().await),
                interval => timeout(interval, stream.next()).await,
            }
        };
        let piece = tokio::select! {
            () = sender.closed() => return,
            () = &mut deadline => {
                let error = ErrorResponse::new(504, "the request took too long", None);
                let _ = sender.send(last_event(&mut stream, &error)).await;
                return;
            }
            piece = next => piece,
        };
        let sent = match piece {
            Err(_) => sender.send(Bytes::from_static(KEEP_ALIVE)).await,
            Ok(Some(Ok(piece))) => match counted(event(&piece), share) {
                Some(event) => sender.send(event).await,
                None => {
                    let message = "there is no memory for what you have not read";
                    let error = ErrorResponse::new(503, message, None);
                    let _ = sender.send(last_event(&mut stream, &error)).await;
                    return;
                }
            },
            Ok(Some(Err(error))) => {
                let error = error.to_response();
                let _ = sender.send(last_event(&mut stream, &error)).await;
                return;
            }
            Ok(None) => {
                if stream.is_done_told() {
                    let _ = sender.send(Bytes::from_static(DONE)).await;
                }
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// An event that is counted where it is large; `None` where there is no memory for it.
fn counted(event: Bytes, share: &Share) -> Option<Bytes> {
    if event.len() <= LARGE_PIECE {
        return Some(event);
    }
    let mut share = share.sibling();
    let has_memory = share.resize_for_answer(event.len() as u64);
    has_memory.then(|| share.hold(event.into()))
}

/// One event. JSON has no raw line ends, so it is one line.
fn event(piece: &Piece) -> Bytes {
    let data = &piece.data;
    Bytes::from(match piece.event {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    })
}

/// An error in the middle of a stream, and its end.
fn last_event(stream: &mut EventStream, error: &ErrorResponse) -> Bytes {
    let mut bytes = event(&stream.error(error)).to_vec();
    if stream.is_done_told() {
        bytes.extend_from_slice(DONE);
    }
    bytes.into()
}
