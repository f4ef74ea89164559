//! How exports reach the collector: each on a connection of its own, on the server's runtime.

use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Most of an answer; collectors answer with a few bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Sends requests from threads that have no runtime.
#[derive(Debug)]
pub(super) struct CollectorClient {
    runtime: Handle,
    timeout: Duration,
}

impl CollectorClient {
    /// A client on this runtime whose requests take no longer than `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            runtime: Handle::current(),
            timeout,
        }
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let patience = self.timeout;
        // The calling thread has no runtime, and so no timer.
        let sent = async move { timeout(patience, send(request)).await };
        match self.runtime.spawn(sent).await? {
            Ok(response) => response,
            Err(_) => Err("the collector does not answer".into()),
        }
    }
}

/// Sends a request and takes in its whole answer.
async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().cloned().ok_or("the URL has no host")?;
    // An IPv6 address stands in brackets.
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse()?;
    let host = HeaderValue::from_str(authority.as_str())?;
    head.headers.insert(HOST, host);
    head.uri = path;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let request = Request::from_parts(head, Body::from(body));
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = to_bytes(Body::new(body), MAX_ANSWER).await?;
        Ok::<_, HttpError>(Response::from_parts(head, body))
    };
    let mut exchange = std::pin::pin!(exchange);
    // The connection may end before the answer has been taken out of it.
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await,
    }
}
