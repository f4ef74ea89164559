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
use super::held_json::held_event;
use super::memory::Share;
use super::state::LoadGuard;
use crate::openai::{ErrorResponse, EventStream};

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
            Ok(Some(Ok(piece))) => match held_event(piece, share).await {
                Ok(event) => sender.send(event).await,
                Err(_) => {
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

/// An error in the middle of a stream, and its end.
fn last_event(stream: &mut EventStream, error: &ErrorResponse) -> Bytes {
    let mut bytes = Vec::new();
    // Writing to memory doesn't fail.
    let _ = stream.error(error).write(&mut bytes);
    if stream.is_done_told() {
        bytes.extend_from_slice(DONE);
    }
    bytes.into()
}
