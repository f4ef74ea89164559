//! What is known of a request besides its content, and when its answer is over.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::api_keys::ApiKey;
use crate::token_usage::TokenUsage;

/// The address of a connection's other end, in the extensions of its requests; absent of Unix domain
/// sockets.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientAddress(pub(super) IpAddr);

/// Filled while a request passes through the server; in its extensions behind an [`Arc`].
#[derive(Debug, Default)]
pub(super) struct RequestRecord {
    /// The key that the request brought.
    pub(super) key: OnceLock<Arc<ApiKey>>,
    /// Answers that are counted for the key.
    pub(super) num_answers: AtomicU32,
    pub(super) usage: Arc<TokenUsage>,
}

impl RequestRecord {
    /// The record of a request; an empty one outside the server.
    pub(super) fn of(request: &Request) -> Arc<Self> {
        let record = request.extensions().get::<Arc<Self>>();
        record.cloned().unwrap_or_default()
    }
}

/// Keeps `guard` until the answer is sent or its client is gone.
pub(super) fn keep_until_sent<G: Send + Unpin + 'static>(response: Response, guard: G) -> Response {
    response.map(|body| {
        Body::new(GuardedBody {
            body,
            _guard: guard,
        })
    })
}

/// A body that holds something until it is dropped.
struct GuardedBody<G> {
    body: Body,
    _guard: G,
}

impl<G: Unpin> HttpBody for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_lives_as_long_as_the_answer() {
        let guard = Arc::new(());
        let response = Response::new(Body::from("four"));
        let response = keep_until_sent(response, guard.clone());
        // Its length is still known, so that it is sent in one piece.
        assert_eq!(response.body().size_hint().exact(), Some(4));
        assert_eq!(Arc::strong_count(&guard), 2);
        drop(response);
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
