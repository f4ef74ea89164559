//! Connections: from the socket to a request.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use protocol::transport::bind_unix_listener;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::args::ServerArgs;
use super::client_stream::ClientStream;
use super::connections::{Connection, Connections, Place};
use super::early_refusal::EarlyRefusal;
use super::error::ServeError;
use super::request_record::ClientAddress;
use super::tls;

/// Pause after a connection that could not be accepted: there may be no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Mode of `--uds` where it isn't given, which the socket has from the first moment on.
const OWNER_ONLY: u32 = 0o600;

/// Bytes and headers that hyper takes beyond the limits of a head. [`middleware::limit_head`] refuses
/// these by their exact number, and counts them.
///
/// [`middleware::limit_head`]: super::middleware::limit_head
const HEAD_MARGIN: (usize, usize) = (8 << 10, 256);

/// Where requests come in.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    tls: Option<DebugTlsAcceptor>,
    /// For people and clients: `http://...` or `unix:...`.
    pub(super) address: String,
    /// True if only programs of this machine reach it.
    pub(super) is_loopback: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// The path is removed when the listener ends.
    Unix(
        UnixListener,
        #[allow(dead_code, reason = "kept to be dropped")] UnixPath,
    ),
}

/// Connections that may wait to be accepted; as many as the system allows, if these are fewer. With a short queue
/// a crowd that comes at once makes others come again after a second.
const BACKLOG: u32 = 4096;

/// Listens at the first of a name's addresses that can be had.
async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut last = None;
    for address in tokio::net::lookup_host((host, port)).await? {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let listening = socket.and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        });
        match listening {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

/// A path that is removed when dropped.
#[derive(Debug)]
struct UnixPath(PathBuf);

impl Drop for UnixPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// [`TlsAcceptor`] with a `Debug` form.
#[derive(Clone)]
struct DebugTlsAcceptor(TlsAcceptor);

impl std::fmt::Debug for DebugTlsAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl Listener {
    /// Takes the address.
    pub(super) async fn bind(args: &ServerArgs) -> Result<Self, ServeError> {
        let tls = match (&args.ssl_certfile, &args.ssl_keyfile) {
            (Some(cert), Some(key)) => Some(DebugTlsAcceptor(tls::acceptor(
                cert,
                key,
                args.ssl_ca_certs.as_deref(),
            )?)),
            _ => None,
        };
        if let Some(path) = &args.uds {
            let bound = bind_unix(path, args.uds_mode)?;
            return Ok(Self {
                socket: Socket::Unix(bound, UnixPath(path.clone())),
                tls: None,
                address: format!("unix:{}", path.display()),
                is_loopback: true,
            });
        }
        let (host, port) = (args.host.as_str(), args.port);
        let bind_error = |error| ServeError::Bind {
            address: format!("{host}:{port}"),
            error,
        };
        let socket = bind_tcp(host, port).await.map_err(bind_error)?;
        let local = socket.local_addr().map_err(bind_error)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(Self {
            socket: Socket::Tcp(socket),
            tls,
            address: format!("{scheme}://{local}"),
            is_loopback: local.ip().is_loopback(),
        })
    }

    /// Accepts connections and answers their requests, until `ending` says so. Returns when every
    /// connection is closed.
    pub(super) async fn run(
        self,
        router: Router,
        args: &ServerArgs,
        connections: Arc<Connections>,
        ending: watch::Receiver<bool>,
    ) {
        let settings = Settings::new(args);
        loop {
            let mut stop = ending.clone();
            let accepted = async {
                let (stream, address) = self.accept().await?;
                let place = connections.enter(address).await;
                Ok::<_, io::Error>((place.map(|place| (stream, place)), address))
            };
            let accepted = tokio::select! {
                accepted = accepted => accepted,
                () = told_to_end(&mut stop) => break,
            };
            match accepted {
                Ok((Some((stream, place)), address)) => {
                    let (tls, router) = (self.tls.clone(), router.clone());
                    let ending = ending.clone();
                    let address = address.map(ClientAddress);
                    tokio::spawn(connection(
                        stream, address, place, tls, router, settings, ending,
                    ));
                }
                Ok((None, address)) => {
                    tracing::debug!(
                        ?address,
                        "a connection was closed: see --max-connections-per-address"
                    );
                }
                Err(error) => {
                    tracing::warn!("can't accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // No new ones; the address is free for another server.
        drop(self);
        connections.all_closed().await;
    }

    /// The next connection, and its address where it has one.
    async fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Pieces of a stream are small and must not wait for each other.
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), Some(address.ip())))
            }
            Socket::Unix(listener, _) => Ok((Box::new(listener.accept().await?.0), None)),
        }
    }
}

/// Takes a path, from a server that is gone too. A socket that more than its owner may use has mode
/// 0600 until it is made so.
fn bind_unix(path: &std::path::Path, mode: u32) -> Result<UnixListener, ServeError> {
    let bound = bind_unix_listener(path)?;
    let ready = || {
        if mode != OWNER_ONLY {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        bound.set_nonblocking(true)?;
        UnixListener::from_std(bound)
    };
    ready().map_err(|error| ServeError::Bind {
        address: path.display().to_string(),
        error,
    })
}

/// TCP or Unix, secure or not.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

type Stream = Box<dyn ByteStream>;

/// What every connection needs to know.
#[derive(Debug, Clone, Copy)]
struct Settings {
    patience: Duration,
    max_head: usize,
    max_headers: usize,
}

impl Settings {
    fn new(args: &ServerArgs) -> Self {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            patience: args.client_timeout,
            max_head: size(args.h11_max_incomplete_event_size) + HEAD_MARGIN.0,
            max_headers: size(args.h11_max_header_count) + HEAD_MARGIN.1,
        }
    }
}

/// Waits until connections are to end.
async fn told_to_end(ending: &mut watch::Receiver<bool>) {
    // An error says that the server is gone.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// Serves one connection until its end, or until it is given up.
async fn connection(
    stream: Stream,
    address: Option<ClientAddress>,
    place: Place,
    tls: Option<DebugTlsAcceptor>,
    router: Router,
    settings: Settings,
    ending: watch::Receiver<bool>,
) {
    tokio::select! {
        () = serve(stream, address, &place, tls, router, settings, ending) => {}
        () = place.connection.closed() => {
            tracing::debug!("a connection was given up: others need its place or its memory");
        }
    }
}

/// Serves one connection to its end. What is wrong with it is the client's business.
async fn serve(
    stream: Stream,
    address: Option<ClientAddress>,
    place: &Place,
    tls: Option<DebugTlsAcceptor>,
    router: Router,
    settings: Settings,
    mut ending: watch::Receiver<bool>,
) {
    let stream: Stream = match tls {
        None => stream,
        Some(tls) => match timeout(settings.patience, tls.0.accept(stream)).await {
            Ok(Ok(stream)) => Box::new(stream),
            Ok(Err(error)) => return tracing::debug!("no TLS connection: {error}"),
            Err(_) => return tracing::debug!("no TLS connection in time"),
        },
    };
    let client = place.connection.clone();
    let stream = ClientStream::new(stream, client.clone(), place.heads(), settings.patience);
    let stream = EarlyRefusal::new(stream);
    let stream = TokioIo::new(stream);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        if let Some(address) = address {
            request.extensions_mut().insert(address);
        }
        answer(request, client.clone(), router.clone())
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.patience)
        .max_buf_size(settings.max_head)
        // The buffer's size alone is soft: one read may bring more.
        .max_header_size(settings.max_head)
        .max_headers(settings.max_headers)
        // An answer's bytes are counted until they are written, and not copied before.
        .writev(true)
        .serve_connection(stream, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told_to_end(&mut ending) => {
            // Finishes the request that it is at.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection broke: {error}");
    }
}

/// Answers a request of this client.
async fn answer(
    mut request: hyper::Request<Incoming>,
    client: Arc<Connection>,
    router: Router,
) -> Result<Response, Infallible> {
    let is_pipelined = client.is_pipelined();
    let busy = client.begin_request();
    request.extensions_mut().insert(client);
    // A stream goes on after its head.
    request.extensions_mut().insert(busy.clone());
    if is_pipelined {
        // hyper answers up to 16 of them before others have a turn, and a worker looks for what came in after 61 turns:
        // this way it does after each request.
        yield_now().await;
    }
    let response = TowerToHyperService::new(router).call(request).await;
    drop(busy);
    response
}

#[cfg(test)]
mod tests;
