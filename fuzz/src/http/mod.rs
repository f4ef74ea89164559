//! The server: bytes of a connection, from the socket to the answer.

mod answers;
mod fake_core;
mod generate;
mod server;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::memory::{self, Meter};
use server::{Server, servers};

pub(crate) use generate::generate;

/// A connection on which nothing comes for so long, from a server that does nothing, is waiting for more
/// of a request.
const SILENCE: Duration = Duration::from_millis(30);
/// A server that does nothing takes memory so often at most, in [`SILENCE`], for its timers.
const MAX_IDLE_ALLOCATIONS: usize = 100;
/// The longest that a connection may go on after its client has ended it.
const PATIENCE: Duration = Duration::from_secs(15);
/// Promise: `/metrics` has less, whatever was asked before.
const MAX_METRICS_BYTES: usize = 100_000;

/// Sends the input to every server and judges what comes back.
pub(crate) fn run(data: &[u8]) -> String {
    let outcomes = servers().iter().map(|server| run_one(server, data));
    outcomes.collect::<Vec<_>>().join("; ")
}

fn run_one(server: &Server, data: &[u8]) -> String {
    let meter = Meter::start();
    let (answer, cut_off) = exchange(server, data, true);
    meter.check(data.len());
    // A proxy's health check would see this.
    let (probe, _) = exchange(server, server.probe.as_bytes(), false);
    let probes = answers::parse(&probe, server.probe.as_bytes(), false);
    let [health, metrics] = &probes[..] else {
        panic!("{} answers to two probes", probes.len());
    };
    assert_eq!((health.status, metrics.status), (200, 200));
    let metrics_bytes = metrics.body.len();
    assert!(
        metrics_bytes < MAX_METRICS_BYTES,
        "/metrics has {metrics_bytes} bytes"
    );
    let answers = answers::parse(&answer, data, cut_off);
    for answer in &answers {
        let by_design = [501, 503, 504, 505].contains(&answer.status);
        assert!(
            answer.status < 500 || by_design,
            "status {}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
    }
    let statuses = answers.iter().take(3).map(|answer| {
        let body = String::from_utf8_lossy(&answer.body);
        let message = match answer.status {
            200 => String::new(),
            _ => crate::sketch(&body).chars().take(90).collect(),
        };
        format!("{} {message}", answer.status)
    });
    statuses.collect::<Vec<_>>().join(", ")
}

/// All that a server sends for some bytes, and true if its client ended the connection, which it does
/// where `may_lack` says that the server may wait for more.
fn exchange(server: &Server, data: &[u8], may_lack: bool) -> (Vec<u8>, bool) {
    let stream = UnixStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let mut answer = Vec::new();
    let mut cut_off = false;
    std::thread::scope(|scope| {
        // A server that doesn't read while it answers must not hold up who reads.
        let mut writer = &stream;
        let writing = scope.spawn(move || writer.write_all(data).is_ok());
        let mut reader = &stream;
        let mut buffer = vec![0; 64 << 10];
        let mut deadline = Instant::now() + PATIENCE;
        let mut allocations = memory::count();
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => answer.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let before = std::mem::replace(&mut allocations, memory::count());
                    let is_idle = may_lack && allocations - before < MAX_IDLE_ALLOCATIONS;
                    if is_idle && writing.is_finished() && !cut_off {
                        cut_off = true;
                        deadline = Instant::now() + PATIENCE;
                        let _ = stream.shutdown(Shutdown::Write);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It was closed with bytes of ours unread.
                Err(_) => break,
            }
            assert!(Instant::now() < deadline, "the connection doesn't end");
        }
        // Ends a write for which nobody is left.
        let _ = stream.shutdown(Shutdown::Both);
    });
    (answer, cut_off)
}
