//! As much of an HTTP client as the commands need: one request per connection, so that dropping an
//! answer ends its request.

mod connect;
mod events;
mod own_server;
mod trust;
mod verifier;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::Body;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::timeout;

pub(crate) use connect::Server;
pub(crate) use events::Events;
pub(crate) use own_server::wants_certificate;
pub(crate) use trust::TrustArgs;

/// The header in which a server says what has no effect in a request.
const WARNINGS: &str = "x-formwork-warnings";
/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer answer, not streamed, is an error.
const MAX_BODY: usize = 256 << 20;
/// A longer text that explains an error is cut off.
const MAX_MESSAGE: usize = 500;

/// Asks one server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    server: Arc<Server>,
    authorization: Option<HeaderValue>,
}

/// An answer whose body is still to come. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// What has no effect in the request, where the server says so.
    pub(crate) warnings: Option<String>,
    body: Incoming,
    _connection: Connection,
}

/// The task that moves a connection's bytes.
#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer with a status that isn't 200.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field that it is about, where the server says so.
    pub(crate) param: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.message)
    }
}

impl std::error::Error for Refused {}

impl Client {
    /// A client of the server at `url`: `http://...`, `https://...` or `unix:PATH`, with or without
    /// `/v1` at the end.
    ///
    /// # Errors
    /// The URL or the key can't be one, or `trust` names a file that can't be used.
    pub(crate) fn new(url: &str, api_key: Option<&str>, trust: &TrustArgs) -> anyhow::Result<Self> {
        let authorization = match api_key {
            Some(key) => {
                let value = HeaderValue::try_from(format!("Bearer {key}"));
                let mut value = value.context("the key has characters that no header may have")?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let mut server = Server::parse(url)?;
        if let Some(config) = trust.client_config()? {
            server = server.with_tls(config);
        }
        Ok(Self {
            server: Arc::new(server),
            authorization,
        })
    }

    /// A client of a server that this machine runs, whoever its certificate is for.
    ///
    /// # Errors
    /// The URL can't be one.
    pub(crate) fn of_own_server(url: &str) -> anyhow::Result<Self> {
        let config = own_server::client_config()?;
        Ok(Self {
            server: Arc::new(Server::parse(url)?.with_tls(config)),
            authorization: None,
        })
    }

    /// Asks for `path`, which begins with a slash.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, Body::empty()).await
    }

    /// Sends JSON to `path`.
    pub(crate) async fn post(&self, path: &str, body: String) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, Body::from(body)).await
    }

    /// The ids of the server's models.
    pub(crate) async fn models(&self) -> anyhow::Result<Vec<String>> {
        let answer = self.get("/v1/models").await?.checked().await?;
        let answer: Value = serde_json::from_slice(&answer.bytes().await?)
            .context("/v1/models did not answer with JSON")?;
        let models = answer.get("data").and_then(Value::as_array);
        let models = models.into_iter().flatten();
        Ok(models
            .filter_map(|model| model.get("id")?.as_str().map(str::to_owned))
            .collect())
    }

    async fn send(&self, method: Method, path: &str, body: Body) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.prefix))
            .header(HOST, &self.server.host)
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(body)?;
        let stream = match timeout(CONNECT_TIMEOUT, self.server.connect()).await {
            Ok(stream) => stream?,
            Err(_) => bail!("{} does not accept a connection", self.server.host),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = Connection(tokio::spawn(connection).abort_handle());
        let response = sender.send_request(request).await;
        let (head, body) = response.context("the server did not answer")?.into_parts();
        let warnings = head.headers.get(WARNINGS);
        Ok(Answer {
            status: head.status,
            warnings: warnings.and_then(|value| Some(value.to_str().ok()?.to_owned())),
            body,
            _connection: connection,
        })
    }
}

impl Answer {
    /// This answer, where its status is 200.
    ///
    /// # Errors
    /// [`Refused`] with what the server says.
    pub(crate) async fn checked(self) -> anyhow::Result<Self> {
        if self.status == StatusCode::OK {
            return Ok(self);
        }
        let status = self.status;
        let bytes = self.bytes().await.unwrap_or_default();
        Err(Refused {
            status,
            message: message(&bytes),
            param: param(&bytes),
        }
        .into())
    }

    /// The whole body.
    pub(crate) async fn bytes(mut self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            if bytes.len() + piece.len() > MAX_BODY {
                bail!("the answer is longer than {MAX_BODY} bytes");
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The body as server-sent events.
    pub(crate) fn events(self) -> Events {
        Events::new(self)
    }

    /// The next bytes of the body; `None` at its end.
    async fn piece(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            let frame =
                std::future::poll_fn(|cx| std::pin::Pin::new(&mut self.body).poll_frame(cx));
            match frame.await {
                None => return Ok(None),
                Some(frame) => {
                    // Another frame is a trailer.
                    if let Ok(data) = frame.context("the connection broke")?.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// What an error's body says, in the API's form or any other.
fn message(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let message = parsed.as_ref().and_then(|body| {
        let error = body.get("error")?;
        error.get("message").unwrap_or(error).as_str()
    });
    match message {
        Some(message) => cut(message),
        None => cut(String::from_utf8_lossy(body).trim()),
    }
}

/// The field that an error's body in the API's form names.
fn param(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let param = body.get("error")?.get("param")?.as_str()?;
    Some(cut(param))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_every_form_say_something() {
        for (body, says) in [
            (&br#"{"error": {"message": "no", "code": 400}}"#[..], "no"),
            (br#"{"error": "Unauthorized"}"#, "Unauthorized"),
            (b"Bad Gateway\n", "Bad Gateway"),
            (b"", ""),
        ] {
            assert_eq!(message(body), says);
            assert_eq!(param(body), None);
        }
        assert_eq!(
            param(br#"{"error": {"message": "no", "param": "input_tokens"}}"#).as_deref(),
            Some("input_tokens")
        );
        assert_eq!(
            message("x".repeat(10_000).as_bytes()).len(),
            MAX_MESSAGE + 3
        );
    }
}
