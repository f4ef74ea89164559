//! A connection's bytes: what the client sends is counted while it is a head, and what it asked for it
//! must take in.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::time::{Sleep, sleep};

use super::connections::Connection;
use super::memory::{Budget, HEAD_BYTES_PER_BYTE, Share};

/// Bytes that one read brings, at most. hyper makes its buffer larger where a read fills it, and keeps
/// it for as long as the connection lives: less than its first 8 KiB never do.
const MAX_READ: usize = (8 << 10) - 1;

/// Bytes of a head that every connection has room for; more are taken from the budget for heads.
pub(super) const FREE_HEAD: u64 = 8 << 10;

/// Fails a read whose head there is no memory for, and a write that makes no progress for some time.
#[derive(Debug)]
pub(super) struct ClientStream<S> {
    /// Its limit is that of one read.
    stream: Take<S>,
    connection: Arc<Connection>,
    /// The head's, until the connection ends: hyper keeps the buffer.
    head: Share,
    patience: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead> ClientStream<S> {
    pub(super) fn new(
        stream: S,
        connection: Arc<Connection>,
        heads: &Budget,
        patience: Duration,
    ) -> Self {
        Self {
            stream: stream.take(MAX_READ as u64),
            head: heads.share(&connection),
            connection,
            patience,
            timer: None,
        }
    }

    /// What a write's outcome means.
    fn outcome<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.timer.take().is_some() {
                self.connection.set_write_waits(false);
            }
            return written;
        }
        let timer = match &mut self.timer {
            Some(timer) => timer,
            timer @ None => {
                self.connection.set_write_waits(true);
                timer.insert(Box::pin(sleep(self.patience)))
            }
        };
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes nothing in",
        )))
    }

    /// Counts bytes that were read.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        let head = self.connection.count_read(bytes);
        let wanted = head.saturating_sub(FREE_HEAD) * HEAD_BYTES_PER_BYTE;
        let more = wanted.saturating_sub(self.head.amount());
        if more > 0 && !self.head.grow(more) {
            let error = "there is no memory for the request's head";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, error));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        self.stream.set_limit(MAX_READ as u64);
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_pending() {
            self.connection.wait_for_bytes();
        }
        ready!(read)?;
        let read = buffer.filled().len() - before;
        Poll::Ready(self.count(read))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.get_mut()).poll_write(cx, bytes);
        self.outcome(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(self.stream.get_mut()).poll_flush(cx);
        self.outcome(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(self.stream.get_mut()).poll_shutdown(cx);
        self.outcome(cx, shut_down)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.get_mut()).poll_write_vectored(cx, buffers);
        self.outcome(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::server::memory::Pool;

    fn stream<S: AsyncRead>(stream: S, patience: Duration) -> ClientStream<S> {
        let heads = Budget::new(Pool::Heads, 60_000);
        ClientStream::new(stream, Connection::unregistered(), &heads, patience)
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_in_is_given_up() {
        let (_client, server) = duplex(4);
        let mut server = stream(server, Duration::from_millis(10));
        let error = server.write_all(b"more than fits").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn the_time_begins_anew_with_every_piece() {
        let (mut client, server) = duplex(4);
        let mut server = stream(server, Duration::from_secs(600));
        let mut bytes = [0; 4];
        for _ in 0..3 {
            server.write_all(b"full").await.unwrap();
            assert!(server.timer.is_none());
            let mut context = Context::from_waker(std::task::Waker::noop());
            let waiting = Pin::new(&mut server).poll_write(&mut context, b"more");
            assert!(waiting.is_pending() && server.timer.is_some());
            client.read_exact(&mut bytes).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_large_head_is_counted_until_there_is_no_memory_for_it() {
        let (mut client, server) = duplex(1 << 20);
        let mut server = stream(server, Duration::from_secs(600));
        client.write_all(&[b'x'; 40_000]).await.unwrap();
        let mut bytes = vec![0; FREE_HEAD as usize];
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(server.head.amount(), 0);
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(server.head.amount(), 3 * FREE_HEAD);
        // What comes while a request is worked on is no head, and the next one begins anew.
        let busy = server.connection.begin_request();
        server.read_exact(&mut bytes).await.unwrap();
        drop(busy);
        server.read_exact(&mut bytes[..1000]).await.unwrap();
        assert_eq!(server.head.amount(), 3 * FREE_HEAD);
        client.write_all(&[b'x'; 40_000]).await.unwrap();
        let mut bytes = vec![0; 48_000];
        let error = server.read_exact(&mut bytes).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[tokio::test]
    async fn one_read_does_not_fill_hypers_first_buffer() {
        let (mut client, server) = duplex(1 << 20);
        let mut server = stream(server, Duration::from_secs(600));
        client.write_all(&[b'x'; 40_000]).await.unwrap();
        assert_eq!(server.read(&mut [0; 40_000]).await.unwrap(), MAX_READ);
    }
}
