//! The two sockets of a core's events and their connections: PUB for subscribers, ROUTER for who asks again.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::transport::bind_unix_listener;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::endpoint::Endpoint;
use super::event_log::{EventLog, Payload, Subscription};
use super::zmtp::{FromPeer, SocketType, ZmtpError, command, handshake, message, read};

/// Connections to a socket at a time; one more waits until one ends.
const MAX_CONNECTIONS: usize = 64;
/// How long a peer may take to say what it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a connection that could not be accepted or made.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes that the system keeps for a subscriber that doesn't read. What is beyond waits in the log, where it is one copy
/// for all subscribers and is counted when it is dropped.
const SEND_BUFFER: u32 = 64 << 10;
/// Subscriptions that a peer may have at a time.
const MAX_SUBSCRIPTIONS: usize = 256;
/// The number that ends a replay: -1.
const END_SEQ: [u8; 8] = [0xff; 8];

/// A stream of bytes.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// What a socket does, shared by its connections.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) kind: SocketType,
    pub(super) log: Arc<EventLog>,
    /// The first frame of what subscribers get.
    pub(super) topic: Arc<[u8]>,
}

/// A socket that has its address.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    /// The path is removed when the socket ends.
    Unix(
        UnixListener,
        #[allow(dead_code, reason = "kept to be dropped")] UnixPath,
    ),
    /// Connects, and again whenever the connection ends.
    Connecting {
        host: String,
        port: u16,
    },
}

/// A path that is removed when dropped.
#[derive(Debug)]
pub(super) struct UnixPath(PathBuf);

impl Drop for UnixPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    /// Takes an address.
    ///
    /// # Errors
    /// It can't be had.
    pub(super) async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Bind { host, port } => Ok(Self::Tcp(bind_tcp(host, *port).await?)),
            Endpoint::Ipc(path) => {
                let bound = bind_unix_listener(path).map_err(io::Error::other)?;
                bound.set_nonblocking(true)?;
                let listener = UnixListener::from_std(bound)?;
                Ok(Self::Unix(listener, UnixPath(path.clone())))
            }
            Endpoint::Connect { host, port } => Ok(Self::Connecting {
                host: host.clone(),
                port: *port,
            }),
        }
    }

    /// Serves connections for ever.
    pub(super) async fn run(self, service: Service) {
        if let Self::Connecting { host, port } = &self {
            return connect_for_ever(host, *port, service).await;
        }
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            // It is never closed.
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let service = service.clone();
            let accepted = match &self {
                Self::Tcp(listener) => listener.accept().await.and_then(|(stream, _)| {
                    stream.set_nodelay(true)?;
                    connections.spawn(async move {
                        serve(stream, service).await;
                        drop(place);
                    });
                    Ok(())
                }),
                Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    connections.spawn(async move {
                        serve(stream, service).await;
                        drop(place);
                    });
                }),
                Self::Connecting { .. } => return,
            };
            if let Err(error) = accepted {
                tracing::warn!("KV events: can't accept a connection: {error}");
                sleep(RETRY).await;
            }
        }
    }
}

/// Listens at a name's first address. Connections inherit the short buffer.
async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut addresses = tokio::net::lookup_host((host, port)).await?;
    let Some(address) = addresses.next() else {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(MAX_CONNECTIONS as u32)
}

/// Publishes to a subscriber that listens.
async fn connect_for_ever(host: &str, port: u16, service: Service) {
    let mut was_told = false;
    loop {
        match timeout(HANDSHAKE, TcpStream::connect((host, port))).await {
            Ok(Ok(stream)) => {
                was_told = false;
                let _ = stream.set_nodelay(true);
                serve(stream, service.clone()).await;
            }
            Ok(Err(error)) if !was_told => {
                was_told = true;
                tracing::warn!("KV events: can't connect to tcp://{host}:{port} yet: {error}");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

/// One connection, until the peer is gone or says something wrong.
async fn serve(mut stream: impl Stream, service: Service) {
    let greeted = timeout(HANDSHAKE, handshake(&mut stream, service.kind)).await;
    let ended = match greeted {
        Err(_) => Err(ZmtpError::Protocol("it didn't say what it is".to_owned())),
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) => match service.kind {
            SocketType::Pub => publish(stream, service).await,
            SocketType::Router => replay(stream, &service.log).await,
        },
    };
    match ended {
        Err(ZmtpError::Protocol(why)) => tracing::warn!("KV events: a peer was left: {why}"),
        Err(ZmtpError::Io(error)) => tracing::debug!("KV events: a peer is gone: {error}"),
        Ok(()) => {}
    }
}

/// Sends a subscriber what it subscribed to.
async fn publish(stream: impl Stream, service: Service) -> Result<(), ZmtpError> {
    let (reader, writer) = split(stream);
    let (subscribed, is_subscribed) = watch::channel(false);
    // A peer that asks for more signs of life than it takes gets fewer.
    let (pongs, pongs_due) = mpsc::channel(1);
    tokio::select! {
        ended = hear_subscriber(reader, &service.topic, &subscribed, &pongs) => ended,
        ended = send_events(writer, &service, is_subscribed, pongs_due) => ended,
    }
}

/// Reads a subscriber's wishes: whether any of its prefixes is one of the topic.
async fn hear_subscriber<S: Stream>(
    mut reader: ReadHalf<S>,
    topic: &[u8],
    subscribed: &watch::Sender<bool>,
    pongs: &mpsc::Sender<Vec<u8>>,
) -> Result<(), ZmtpError> {
    let mut prefixes: Vec<Vec<u8>> = Vec::new();
    loop {
        let (adds, prefix) = match read(&mut reader).await? {
            FromPeer::Command(name, body) => match name.as_str() {
                "SUBSCRIBE" => (true, body),
                "CANCEL" => (false, body),
                "PING" => {
                    let _ = pongs.try_send(pong(&body));
                    continue;
                }
                _ => continue,
            },
            FromPeer::Message(mut frames) => match frames.pop().filter(|_| frames.is_empty()) {
                Some(frame) => match frame.split_first() {
                    Some((1, prefix)) => (true, prefix.to_vec()),
                    Some((0, prefix)) => (false, prefix.to_vec()),
                    _ => continue,
                },
                None => continue,
            },
        };
        match (adds, prefixes.iter().position(|own| *own == prefix)) {
            (true, _) if prefixes.len() == MAX_SUBSCRIPTIONS => {
                let most = format!("it has more than {MAX_SUBSCRIPTIONS} subscriptions");
                return Err(ZmtpError::Protocol(most));
            }
            (true, _) => prefixes.push(prefix),
            (false, Some(index)) => {
                prefixes.swap_remove(index);
            }
            (false, None) => {}
        }
        subscribed.send_replace(prefixes.iter().any(|prefix| topic.starts_with(prefix)));
    }
}

/// The answer to a PING: what follows its time to live.
fn pong(ping: &[u8]) -> Vec<u8> {
    const MAX_CONTEXT: usize = 16;
    let context = ping.get(2..).unwrap_or(&[]);
    command("PONG", &context[..context.len().min(MAX_CONTEXT)])
}

/// Writes events for as long as the peer is subscribed.
async fn send_events<S: Stream>(
    mut writer: WriteHalf<S>,
    service: &Service,
    mut is_subscribed: watch::Receiver<bool>,
    mut pongs: mpsc::Receiver<Vec<u8>>,
) -> Result<(), ZmtpError> {
    let mut subscription: Option<Subscription> = None;
    loop {
        match *is_subscribed.borrow_and_update() {
            true => {
                subscription.get_or_insert_with(|| service.log.subscribe());
            }
            false => subscription = None,
        }
        let bytes = tokio::select! {
            (number, payload) = next_of(&mut subscription) => {
                message(&[&service.topic, &number.to_be_bytes(), &payload])
            }
            Some(pong) = pongs.recv() => pong,
            changed = is_subscribed.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return Ok(()),
            },
        };
        writer.write_all(&bytes).await?;
    }
}

/// The next batch, or never.
async fn next_of(subscription: &mut Option<Subscription>) -> (u64, Payload) {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}

/// Answers a peer that asks for batches again: an empty frame and the first number, 8 bytes. It gets each batch that is
/// kept from there on, and the number -1 at the end.
async fn replay(mut stream: impl Stream, log: &EventLog) -> Result<(), ZmtpError> {
    loop {
        let frames = match read(&mut stream).await? {
            FromPeer::Message(frames) => frames,
            FromPeer::Command(name, body) if name == "PING" => {
                stream.write_all(&pong(&body)).await?;
                continue;
            }
            FromPeer::Command(..) => continue,
        };
        let start = match frames.as_slice() {
            [empty, number] if empty.is_empty() => <[u8; 8]>::try_from(number.as_slice()).ok(),
            _ => None,
        };
        let Some(start) = start else {
            tracing::debug!(
                "KV events: a request for a replay must be an empty frame and a number of 8 bytes"
            );
            continue;
        };
        let mut from = u64::from_be_bytes(start);
        let end = log.next();
        while from < end
            && let Some((number, payload)) = log.kept(from)
        {
            let batch = message(&[&[], &number.to_be_bytes(), &payload]);
            stream.write_all(&batch).await?;
            from = number + 1;
        }
        stream.write_all(&message(&[&[], &END_SEQ, &[]])).await?;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    fn service(kind: SocketType, log: &Arc<EventLog>) -> Service {
        Service {
            kind,
            log: log.clone(),
            topic: b"kv@a@m"[..].into(),
        }
    }

    /// A peer's end of a connection that has room for so many bytes.
    async fn peer(kind: SocketType, log: &Arc<EventLog>, room: usize) -> tokio::io::DuplexStream {
        let (ours, mut theirs) = duplex(room);
        let name = match kind {
            SocketType::Pub => "SUB",
            SocketType::Router => "DEALER",
        };
        tokio::spawn(serve(ours, service(kind, log)));
        let mut greeting = [0; 64];
        theirs.read_exact(&mut greeting).await.unwrap();
        // The same greeting, and who it is.
        theirs.write_all(&greeting).await.unwrap();
        let mut ready = b"\x0bSocket-Type\0\0\0".to_vec();
        ready.push(name.len() as u8);
        ready.extend_from_slice(name.as_bytes());
        theirs.write_all(&command("READY", &ready)).await.unwrap();
        let FromPeer::Command(name, _) = read(&mut theirs).await.unwrap() else {
            panic!("no READY");
        };
        assert_eq!(name, "READY");
        theirs
    }

    async fn frames(peer: &mut tokio::io::DuplexStream) -> Vec<Vec<u8>> {
        match read(peer).await.unwrap() {
            FromPeer::Message(frames) => frames,
            FromPeer::Command(name, _) => panic!("a command: {name}"),
        }
    }

    fn published(log: &EventLog, payload: &[u8]) {
        log.publish(payload.into());
    }

    /// Waits until a connection's task has done what it can.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_subscriber_gets_what_begins_as_it_wishes() {
        let log = Arc::new(EventLog::new(100, 0));
        let mut peer = peer(SocketType::Pub, &log, 1 << 16).await;
        published(&log, b"before");
        peer.write_all(&message(&[b"\x01other"])).await.unwrap();
        settle().await;
        published(&log, b"not subscribed");
        peer.write_all(&message(&[b"\x01kv@"])).await.unwrap();
        // As newer versions say it.
        peer.write_all(&command("SUBSCRIBE", b"")).await.unwrap();
        peer.write_all(&command("PING", b"\0\x0aabc"))
            .await
            .unwrap();
        settle().await;
        let answer = FromPeer::Command("PONG".to_owned(), b"abc".to_vec());
        assert_eq!(read(&mut peer).await.unwrap(), answer);
        published(&log, b"one");
        let expected = [
            b"kv@a@m".to_vec(),
            2_u64.to_be_bytes().to_vec(),
            b"one".to_vec(),
        ];
        assert_eq!(frames(&mut peer).await, expected);
        // One of the two wishes is left.
        peer.write_all(&message(&[b"\0kv@"])).await.unwrap();
        settle().await;
        published(&log, b"two");
        assert_eq!(frames(&mut peer).await[2], b"two");
        peer.write_all(&command("CANCEL", b"")).await.unwrap();
        settle().await;
        published(&log, b"three");
        peer.write_all(&message(&[b"\x01kv@"])).await.unwrap();
        settle().await;
        published(&log, b"four");
        assert_eq!(frames(&mut peer).await[1], 5_u64.to_be_bytes());
        assert_eq!(log.num_dropped(), 0);
    }

    #[tokio::test]
    async fn what_a_stuck_subscriber_misses_is_counted_and_the_others_miss_nothing() {
        let log = Arc::new(EventLog::new(4, 0));
        let mut stuck = peer(SocketType::Pub, &log, 256).await;
        let mut reads = peer(SocketType::Pub, &log, 256).await;
        for peer in [&mut stuck, &mut reads] {
            peer.write_all(&message(&[b"\x01"])).await.unwrap();
        }
        settle().await;
        for number in 0..100_u64 {
            published(&log, &[0; 100]);
            assert_eq!(frames(&mut reads).await[1], number.to_be_bytes());
        }
        let mut numbers = Vec::new();
        while numbers.last() != Some(&99) {
            let frames = frames(&mut stuck).await;
            numbers.push(u64::from_be_bytes(frames[1].as_slice().try_into().unwrap()));
        }
        // The first were on their way, the last ones waited in the log.
        assert!(numbers.len() < 10, "{numbers:?}");
        assert_eq!(numbers[numbers.len() - 4..], [96, 97, 98, 99]);
        assert_eq!(log.num_dropped(), 100 - numbers.len() as u64);
    }

    #[tokio::test]
    async fn a_replay_has_what_is_kept_and_an_end() {
        let log = Arc::new(EventLog::new(1, 2));
        for payload in [b"0", b"1", b"2"] {
            published(&log, payload);
        }
        let mut peer = peer(SocketType::Router, &log, 1 << 16).await;
        let number = |number: u64| number.to_be_bytes();
        for (from, expected) in [
            (0, &[1_u64, 2][..]),
            (2, &[2][..]),
            (3, &[][..]),
            (u64::MAX, &[][..]),
        ] {
            // What is no request is passed over.
            peer.write_all(&message(&[b"x", &number(0)])).await.unwrap();
            peer.write_all(&message(&[b"", b"short"])).await.unwrap();
            peer.write_all(&message(&[b"", &number(from)]))
                .await
                .unwrap();
            for &sequence in expected {
                let payload = sequence.to_string().into_bytes();
                let expected = [Vec::new(), number(sequence).to_vec(), payload];
                assert_eq!(frames(&mut peer).await, expected);
            }
            let end = [Vec::new(), vec![0xff; 8], Vec::new()];
            assert_eq!(frames(&mut peer).await, end);
        }
    }
}
