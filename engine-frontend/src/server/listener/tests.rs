//! Clients that the server waits for, over sockets.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Extension, Request, State};
use axum::routing::{get, post};
use clap::Parser;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::*;
use crate::server::body::{BodyLimits, read_json};
use crate::server::client::{Client, Means};
use crate::server::connections::Limits;
use crate::server::error::ApiError;
use crate::server::held_json::held_json;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    args: ServerArgs,
}

/// A server that answers a body of JSON with its value, and with an answer of 8 MiB where it is `"long"`.
struct Server {
    address: SocketAddr,
    means: Arc<Means>,
    _end: watch::Sender<bool>,
}

async fn echo(
    State(means): State<Arc<Means>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Result<Response, ApiError> {
    let client = Client::new(connection, &means);
    let limits = BodyLimits {
        max: 32 << 20,
        patience: PATIENCE,
    };
    let (parts, body) = request.into_parts();
    let (value, share) = read_json(&client, limits, &parts.headers, body, Ok).await?;
    match value == "long" {
        true => held_json(Value::from("x".repeat(8 << 20)), share).await,
        false => held_json(value, share).await,
    }
}

/// Serves `router` until the sender is dropped.
async fn listen(router: Router, flags: &[&str]) -> (SocketAddr, watch::Sender<bool>) {
    let flags = [&["serve", "--host", "127.0.0.1", "--port", "0"], flags].concat();
    let args = Command::parse_from(flags).args;
    let listener = Listener::bind(&args).await.unwrap();
    let address = listener
        .address
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let connections = Connections::new(Limits {
        max: args.max_connections,
        max_per_address: args.max_connections_per_address(),
        has_keys: false,
        max_head: args.h11_max_incomplete_event_size,
    });
    let (end, ending) = watch::channel(false);
    tokio::spawn(async move { listener.run(router, &args, connections, ending).await });
    (address, end)
}

impl Server {
    async fn start(budget: u64, flags: &[&str]) -> Self {
        let means = Arc::new(Means::with_budget(budget));
        let router = Router::new().route("/", post(echo));
        let (address, end) = listen(router.with_state(means.clone()), flags).await;
        Self {
            address,
            means,
            _end: end,
        }
    }

    /// A connection from 127.0.0.`from`.
    async fn connect(&self, from: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, from], 0).into()).unwrap();
        // So that an answer of some MiB is not all in the system's buffers.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Begins a request from 127.0.0.`from` whose body is `len` bytes long.
    async fn begin(&self, from: u8, len: usize, body: &[u8]) -> TcpStream {
        let mut stream = self.connect(from).await;
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }

    async fn post(&self, from: u8, body: &[u8]) -> TcpStream {
        self.begin(from, body.len(), body).await
    }

    fn taken(&self) -> u64 {
        self.means.budget().taken()
    }

    async fn wait_until_taken(&self, is_so: impl Fn(u64) -> bool) {
        let wait = async {
            while !is_so(self.taken()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap();
    }
}

/// The status of the answer, when it comes.
async fn status(stream: &mut TcpStream) -> String {
    let mut status = [0; 12];
    let read = timeout(PATIENCE, stream.read_exact(&mut status)).await;
    read.unwrap().unwrap();
    String::from_utf8(status[9..].to_vec()).unwrap()
}

/// Reads until the server closes.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let _ = read.unwrap();
    bytes
}

#[tokio::test]
async fn half_sent_bodies_keep_nobody_out() {
    let server = Server::start(16 << 20, &[]).await;
    let body = vec![b' '; (2 << 20) - 1];
    let mut half_sent = Vec::new();
    for sent in 1..=7 {
        half_sent.push(server.begin(1, 2 << 20, &body).await);
        server
            .wait_until_taken(|taken| taken >= sent * (2 << 20))
            .await;
    }
    half_sent.push(server.begin(1, 2_000_000, &body[..1_999_999]).await);
    server
        .wait_until_taken(|taken| taken >= (14 << 20) + 2_000_000)
        .await;
    let number = " ".repeat(999_999) + "7";
    let mut stream = server.post(2, number.as_bytes()).await;
    assert_eq!(status(&mut stream).await, "200");
    // It was room of the first that made it.
    assert_eq!(status(&mut half_sent[0]).await, "503");
    for stream in half_sent.drain(1..) {
        drop(stream);
    }
    drop(stream);
    server.wait_until_taken(|taken| taken == 0).await;
}

#[tokio::test]
async fn an_answer_is_counted_until_it_is_read() {
    let server = Server::start(64 << 20, &[]).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut stream = server.post(1, b"\"long\"").await;
        assert_eq!(status(&mut stream).await, "200");
        unread.push(stream);
    }
    server
        .wait_until_taken(|taken| taken >= 4 * (8 << 20))
        .await;
    let mut read = unread.pop().unwrap();
    read.read_exact(&mut vec![0; 8 << 20]).await.unwrap();
    server.wait_until_taken(|taken| taken < 4 * (8 << 20)).await;
    drop(unread);
    server.wait_until_taken(|taken| taken == 0).await;
}

#[tokio::test]
async fn silent_clients_of_an_address_keep_others_out_of_nothing() {
    let server = Server::start(16 << 20, &["--max-connections", "20"]).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(server.connect(1).await);
    }
    // An eighth of the places was theirs.
    let mut stream = server.post(2, b"7").await;
    assert_eq!(status(&mut stream).await, "200");
    for stream in silent.drain(..18) {
        let mut stream = stream;
        assert!(rest(&mut stream).await.is_empty());
    }
}

#[tokio::test]
async fn silent_clients_give_their_places_to_others() {
    let flags = ["--max-connections=8", "--max-connections-per-address=8"];
    let server = Server::start(16 << 20, &flags).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(server.connect(1).await);
    }
    let mut stream = server.post(2, b"7").await;
    assert_eq!(status(&mut stream).await, "200");
    assert!(rest(&mut silent[0]).await.is_empty());
}

#[tokio::test]
async fn heads_that_never_end_are_bounded_in_total() {
    let server = Server::start(16 << 20, &[]).await;
    let head = format!("POST / HTTP/1.1\r\nX: {}", "x".repeat(60 << 10));
    let mut endless = Vec::new();
    // Half as many again as there is memory for.
    for _ in 0..150 {
        let mut stream = server.connect(1).await;
        let _ = stream.write_all(head.as_bytes()).await;
        endless.push(stream);
    }
    assert!(rest(&mut endless[0]).await.is_empty());
    let mut stream = server.post(2, b"7").await;
    assert_eq!(status(&mut stream).await, "200");
}

/// Answers that a client gets before another one sends its request.
const NUM_BEFORE: usize = 100;

/// Two clients, of which the first sends many requests in one go.
#[derive(Default)]
struct Clients {
    num_answered: AtomicUsize,
    other: OnceLock<std::net::TcpStream>,
}

/// Answers the first client. After [`NUM_BEFORE`] of its requests the other one sends its own.
async fn answer_first(State(clients): State<Arc<Clients>>) {
    if clients.num_answered.fetch_add(1, Ordering::Relaxed) + 1 == NUM_BEFORE {
        let request = b"GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let mut other: &std::net::TcpStream = clients.other.get().unwrap();
        other.write_all(request).unwrap();
    }
}

/// Answers the other client with the number of answers that the first has had.
async fn answer_other(State(clients): State<Arc<Clients>>) -> String {
    clients.num_answered.load(Ordering::Relaxed).to_string()
}

#[tokio::test]
async fn a_client_waits_for_one_of_the_requests_that_another_sends_in_one_go() {
    let clients = Arc::<Clients>::default();
    let router = Router::new()
        .route("/", get(answer_first))
        .route("/other", get(answer_other))
        .with_state(clients.clone());
    let (address, _end) = listen(router, &[]).await;
    let other = TcpStream::connect(address).await.unwrap().into_std();
    let other = other.unwrap();
    clients.other.set(other.try_clone().unwrap()).unwrap();
    let mut other = TcpStream::from_std(other).unwrap();
    let mut first = TcpStream::connect(address).await.unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20 * NUM_BEFORE);
    first.write_all(requests.as_bytes()).await.unwrap();
    let answer = String::from_utf8(rest(&mut other).await).unwrap();
    let num_answered = answer.rsplit("\r\n").next().unwrap();
    let num_answered: usize = num_answered.parse().unwrap();
    assert!(num_answered <= NUM_BEFORE + 10, "{num_answered}");
}
