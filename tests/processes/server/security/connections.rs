//! Connections and heads, with and without a key: findings 2, 3, 4 and 15.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::memory::{MIB, Peak};
use crate::server::client::{send, start};
use crate::server::support::{Server, formwork};
use crate::support::PATIENCE;

const KEY: &str = "the-tenants-key";
const COMPLETIONS: &str = "/v1/completions";

/// What all clients without a key may take together.
const WITHOUT_KEY: u64 = 64 * MIB;

/// Requests and answers in flight may take together 256 MiB, answers half of it more, and what is made
/// of one large request at a time 64 MiB.
const MOST_IN_FLIGHT: u64 = (256 + 128 + 64) * MIB;

fn completion() -> String {
    json!({"prompt": "Hi", "max_tokens": 1}).to_string()
}

fn with_key() -> String {
    format!("Content-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n")
}

/// The status of a small request with a key.
fn keyed_status(server: &Server) -> u16 {
    let body = completion();
    let answer = start(
        &server.address,
        "POST",
        COMPLETIONS,
        &with_key(),
        body.as_bytes(),
    );
    answer.finish().status
}

/// Sends as much of it as the server takes, and keeps the connection.
fn hold(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let _ = stream.write_all(bytes);
    stream
}

/// Finding 2: eight bodies without a key kept everybody with one out.
#[test]
fn half_sent_bodies_without_a_key_keep_nobody_out() {
    let server = Server::start(&["--api-key", KEY]);
    let length = 32 * MIB as usize;
    let peak = Peak::begin(&server);
    let streams: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut bytes = format!(
                "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n"
            )
            .into_bytes();
            bytes.resize(bytes.len() + length - 1, b' ');
            hold(&server, &bytes)
        })
        .collect();
    assert_eq!(keyed_status(&server), 200);
    let taken = peak.bytes();
    assert!(taken <= 2 * WITHOUT_KEY, "{} MiB are held", taken / MIB);
    drop(streams);
}

/// Finding 3: a made-up method was a label of a metric for good.
#[test]
fn made_up_methods_are_one_label() {
    let server = Server::start(&[]);
    let before = server.get("/metrics").body.len();
    for number in 0..300 {
        let answer = start(
            &server.address,
            &format!("MADEUP{number}"),
            "/health",
            "",
            b"",
        );
        assert_eq!(answer.finish().status, 405);
    }
    let long = "M".repeat(60_000);
    for number in 0..10 {
        let request =
            format!("{long}{number} /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut pending = send(&server.address, request.as_bytes());
        let mut answer = Vec::new();
        // It may be refused as a method, or as a head that is too long.
        let _ = pending.stream().read_to_end(&mut answer);
    }
    let metrics = server.get("/metrics").body;
    assert!(!metrics.contains("MADEUP") && !metrics.contains("MMMM"));
    assert!(metrics.contains("method=\"other\""));
    assert!(
        metrics.len() < before + 10_000 && metrics.len() < 100_000,
        "{}",
        metrics.len()
    );
}

/// Finding 4: an answer that repeats the request was kept outside any budget until it was read.
#[test]
fn answers_that_nobody_reads_are_counted() {
    let server = Server::start(&["--api-key", KEY]);
    let body = json!({"model": "m".repeat(16 << 20), "prompt": "Hi"}).to_string();
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{body}",
        with_key(),
        body.len()
    );
    let peak = Peak::begin(&server);
    // More than all bodies may take together.
    let streams: Vec<TcpStream> = (0..24).map(|_| hold(&server, request.as_bytes())).collect();
    // Each was answered, so no body is under way, and none is read.
    for stream in &streams {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.peek(&mut [0]);
    }
    let taken = peak.bytes();
    assert!(taken <= MOST_IN_FLIGHT, "{} MiB", taken / MIB);
    drop(streams);
    assert_eq!(keyed_status(&server), 200);
}

/// Finding 4: half a head of 4 MiB was kept on each of 16,384 connections.
#[test]
fn heads_without_a_key_are_small() {
    let server = Server::start(&["--api-key", KEY]);
    let mut head = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ".to_vec();
    head.resize(4 << 20, b'x');
    let peak = Peak::begin(&server);
    let streams: Vec<TcpStream> = (0..64).map(|_| hold(&server, &head)).collect();
    let taken = peak.bytes();
    assert!(taken <= WITHOUT_KEY, "{} MiB", taken / MIB);
    drop(streams);
    assert_eq!(keyed_status(&server), 200);
}

/// Finding 4: twenty silent sockets of one address delayed `/health` by 60 s.
#[test]
fn one_address_has_an_eighth_of_the_connections() {
    use std::os::fd::FromRawFd;

    let server = Server::start(&["--max-connections", "16"]);
    let silent: Vec<TcpStream> = (0..16)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    // SAFETY: `socket` has no memory effects, and the descriptor is nobody else's.
    let mut stream = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(socket >= 0);
        TcpStream::from_raw_fd(socket)
    };
    connect_from([127, 0, 0, 2], &stream, &server.address);
    // Far less than the time for which a silent client may stay.
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("another address is served");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(silent);
}

/// Binds a socket to an address of this machine, and connects it.
fn connect_from(from: [u8; 4], stream: &TcpStream, to: &str) {
    use std::os::fd::AsRawFd;

    let address = |ip: [u8; 4], port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(ip),
        },
        sin_zero: [0; 8],
    };
    let port = to.rsplit(':').next().unwrap().parse().unwrap();
    let (from, to) = (address(from, 0), address([127, 0, 0, 1], port));
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: both addresses are valid for `size` bytes while the calls last.
    let results = unsafe {
        [
            libc::bind(stream.as_raw_fd(), (&raw const from).cast(), size),
            libc::connect(stream.as_raw_fd(), (&raw const to).cast(), size),
        ]
    };
    assert_eq!(results, [0, 0]);
}

/// Finding 15: a web page of anybody could post to a server without a key.
#[test]
fn web_pages_of_others_are_refused_without_a_key() {
    let mut command = formwork();
    command.args([
        "serve",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--threads",
        "1",
        "--allowed-origins",
        "[\"http://page.example\"]",
    ]);
    let server = Server::spawn(&mut command);
    let port = server.address.rsplit(':').next().unwrap();
    let address = format!("127.0.0.1:{port}");
    let json = "Content-Type: application/json\r\n";
    let body = completion();
    let status = |host: &str, headers: &str| {
        let request = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        send(&address, request.as_bytes()).finish().status
    };
    assert_eq!(status(&address, json), 200);
    assert_eq!(status("localhost", json), 200);
    assert_eq!(status(&address, ""), 415);
    assert_eq!(status(&address, "Content-Type: text/plain\r\n"), 415);
    let foreign = format!("{json}Origin: http://evil.example\r\n");
    assert_eq!(status(&address, &foreign), 403);
    let own = format!("{json}Origin: http://{address}\r\n");
    assert_eq!(status(&address, &own), 200);
    let allowed = format!("{json}Origin: http://page.example\r\n");
    assert_eq!(status(&address, &allowed), 200);
    // A page whose own name is made to lead here: its browser says so, and sends no origin.
    let browser = format!("{json}Sec-Fetch-Site: same-origin\r\n");
    assert_eq!(status("evil.example", &browser), 403);
    assert_eq!(status(&address, &browser), 200);
    let rebound = format!("{browser}Origin: http://evil.example\r\n");
    assert_eq!(status("evil.example", &rebound), 403);
}
