//! Requests that hyper refuses before they are requests: it answers these with a status alone, and they
//! get the body that every other error has.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::openai::ErrorResponse;

/// How long a client that still sends what was refused is listened to. A connection that is closed
/// over unread bytes is reset, and the client may lose the answer with it.
const LINGER: Duration = Duration::from_secs(2);

/// Longest path that hyper reads, in bytes.
const MAX_PATH: usize = 65_534;

/// A connection on which such an answer gets its body.
#[derive(Debug)]
pub(super) struct EarlyRefusal<S> {
    stream: S,
    /// What is written in place of hyper's answer, and how much of it was.
    instead: Option<(Vec<u8>, usize)>,
    /// Whether something was refused that the client may still send.
    refused: bool,
    /// Runs while the client is listened to after the last answer.
    linger: Option<Pin<Box<Sleep>>>,
}

impl<S> EarlyRefusal<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            instead: None,
            refused: false,
            linger: None,
        }
    }
}

/// The status of an answer that begins here.
fn status(head: &[u8]) -> Option<u16> {
    let status = head.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}

/// hyper's own answer, with a body; `None` for every other. Our own errors all have one.
fn with_body(head: &[u8]) -> Option<Vec<u8>> {
    const EMPTY: &str = "content-length: 0\r\n";
    let message = match status(head)? {
        400 => "this is no request of HTTP/1.1".to_owned(),
        414 => format!("the request's path is longer than {MAX_PATH} bytes"),
        431 => "the request's head is larger than --h11-max-incomplete-event-size, or has more \
                headers than --h11-max-header-count"
            .to_owned(),
        _ => return None,
    };
    let head = std::str::from_utf8(head).ok()?;
    if !head.contains(EMPTY) || !head.ends_with("\r\n\r\n") {
        return None;
    }
    let error = ErrorResponse::new(status(head.as_bytes())?, message, None);
    let body = serde_json::to_string(&error).ok()?;
    let headers = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    Some((head.replacen(EMPTY, &headers, 1) + &body).into_bytes())
}

impl<S: AsyncRead + Unpin> AsyncRead for EarlyRefusal<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EarlyRefusal<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.instead.is_none() {
            this.instead = with_body(bytes).map(|answer| (answer, 0));
            // Most errors are answered before the body is read.
            if let Some(status) = status(bytes) {
                this.refused = status >= 400;
            }
        }
        while let Some((answer, written)) = &mut this.instead {
            let rest = answer.get(*written..).unwrap_or_default();
            if rest.is_empty() {
                this.instead = None;
                return Poll::Ready(Ok(bytes.len()));
            }
            match ready!(Pin::new(&mut this.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                more => *written += more,
            }
        }
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.refused {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = this.linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut unread = [0; 16 << 10];
        loop {
            if linger.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut unread);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                // The client has read its answer and closed, or is gone.
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // An answer's head is in one piece, and only heads are of interest.
        match buffers.iter().find(|buffer| !buffer.is_empty()) {
            Some(first) if self.instead.is_some() || status(first).is_some_and(|s| s >= 400) => {
                self.poll_write(cx, first)
            }
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                        content-length: 0\r\ndate: today\r\n\r\n";

    #[tokio::test]
    async fn a_bare_refusal_gets_a_body_however_slowly_it_is_taken() {
        for room in [1, 7, 4096] {
            let (mut client, server) = duplex(room);
            let mut server = EarlyRefusal::new(server);
            let write = tokio::spawn(async move {
                server.write_all(BARE.as_bytes()).await.unwrap();
                server.shutdown().await.unwrap();
            });
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            drop(client);
            write.await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
            assert!(
                head.contains(&format!("content-length: {}", body.len())),
                "{head}"
            );
            assert!(head.contains("date: today"), "{head}");
            let error: ErrorResponse = serde_json::from_str(body).unwrap();
            assert_eq!(error.error.code, 431);
            assert_eq!(error.error.error_type, "RequestHeaderFieldsTooLargeError");
        }
    }

    #[tokio::test]
    async fn every_other_answer_passes_as_it_is() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "data: HTTP/1.1 431 content-length: 0\r\n\r\n",
        ] {
            let (mut client, server) = duplex(4096);
            let mut server = EarlyRefusal::new(server);
            server.write_all(answer.as_bytes()).await.unwrap();
            server.shutdown().await.unwrap();
            let mut taken = String::new();
            client.read_to_string(&mut taken).await.unwrap();
            assert_eq!(taken, answer);
        }
    }

    #[tokio::test]
    async fn who_still_sends_is_listened_to_until_it_has_closed() {
        let (mut client, server) = duplex(4096);
        let mut server = EarlyRefusal::new(server);
        let serve = tokio::spawn(async move {
            server.write_all(BARE.as_bytes()).await.unwrap();
            server.shutdown().await.unwrap();
        });
        // Far more than the connection holds.
        client.write_all(&[b'x'; 100_000]).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        drop(client);
        serve.await.unwrap();
        assert!(answer.contains("RequestHeaderFieldsTooLargeError"));
    }
}
