//! Clients that are slow, never read, leave, or send nonsense.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::fault::{Fault, Report, Setting};
use crate::load::{Load, Tally};
use crate::server::{Launch, Server, wait_until};

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "clients",
        must_hold: "one kind of bad client after another, eight at a time: requests of others are answered as before; \
                    afterwards nothing runs, all blocks are free and all connections are closed",
        run: one_kind_after_another,
    },
    Fault {
        name: "clients-at-once",
        must_hold: "all kinds of bad clients together: the same",
        run: all_at_once,
    },
];

/// Clients of a kind at the same time.
const CROWD: usize = 8;
/// How long a slow client waits between two bytes.
const PAUSE: Duration = Duration::from_millis(50);
const CHAT: &str = "/v1/chat/completions";

/// What a bad client does on one connection, until it is done, refused, or told to end.
type Behaviour = fn(&mut TcpStream, &AtomicBool) -> std::io::Result<()>;

const KINDS: &[(&str, Behaviour)] = &[
    ("slow head", |stream, ended| {
        slowly(stream, ended, whole_request(10).as_bytes())
    }),
    ("slow body", |stream, ended| {
        let request = whole_request(10);
        let head = request.find("\r\n\r\n").map_or(0, |at| at + 4);
        stream.write_all(&request.as_bytes()[..head])?;
        slowly(stream, ended, &request.as_bytes()[head..])
    }),
    ("slow reader", |stream, ended| {
        stream.write_all(large_stream().as_bytes())?;
        while !ended.load(Ordering::Relaxed) && stream.read(&mut [0])? > 0 {
            thread::sleep(PAUSE);
        }
        Ok(())
    }),
    ("never reads", |stream, ended| {
        stream.write_all(large_stream().as_bytes())?;
        while !ended.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        Ok(())
    }),
    ("leaves in its head", |stream, _| {
        let request = whole_request(10);
        stream.write_all(&request.as_bytes()[..30])
    }),
    ("leaves in its body", |stream, _| {
        let request = whole_request(10);
        stream.write_all(&request.as_bytes()[..request.len() - 10])
    }),
    ("half-closes in its body", |stream, _| {
        let request = whole_request(10);
        stream.write_all(&request.as_bytes()[..request.len() - 10])?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }),
    ("leaves mid-stream", |stream, _| {
        stream.write_all(whole_request(100_000).as_bytes())?;
        // The head and a first piece. What isn't read makes the system reset the connection.
        stream.read_exact(&mut [0; 300])
    }),
    ("sends garbage", |stream, _| {
        // Bytes of a linear congruence: as good as any.
        let mut state = 1_u32;
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        stream.write_all(&bytes.take(4096).collect::<Vec<u8>>())?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }),
    ("speaks TLS", |stream, _| {
        stream.write_all(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03")?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }),
    ("sends a head without end", |stream, ended| {
        stream.write_all(b"GET / HTTP/1.1\r\n")?;
        while !ended.load(Ordering::Relaxed) {
            stream.write_all(format!("x-{}: y\r\n", "a".repeat(1000)).as_bytes())?;
        }
        Ok(())
    }),
    ("sends a body that is no JSON", |stream, _| {
        stream.write_all(post(&"{\"a\": [".repeat(10_000)).as_bytes())?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }),
    ("promises a body that never comes", |stream, ended| {
        stream.write_all(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n{",
        )?;
        while !ended.load(Ordering::Relaxed) && stream.read(&mut [0; 512])? > 0 {}
        Ok(())
    }),
    ("asks for many things at once", |stream, _| {
        stream.write_all(whole_request(5).repeat(50).as_bytes())?;
        stream.read_exact(&mut [0; 300])
    }),
];

fn post(body: &str) -> String {
    format!(
        "POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A streamed request of so many tokens.
fn whole_request(max_tokens: u32) -> String {
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me about rope."}], "stream": true,
        "max_tokens": max_tokens, "ignore_eos": true,
    });
    post(&body.to_string())
}

/// A stream that no buffer on the way holds.
fn large_stream() -> String {
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me about rope."}], "stream": true, "n": 8,
        "max_tokens": 100_000, "ignore_eos": true, "logprobs": true, "top_logprobs": 20,
    });
    post(&body.to_string())
}

fn slowly(stream: &mut TcpStream, ended: &AtomicBool, bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        stream.write_all(&[*byte])?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Lets [`CROWD`] clients of each of these kinds connect again and again for a while. The number of connections.
fn misbehave(server: &Server, kinds: &[(&str, Behaviour)], time: Duration) -> usize {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD)
            .flat_map(|_| kinds)
            .map(|(_, behaviour)| {
                let ended = &ended;
                scope.spawn(move || {
                    let mut connections = 0;
                    while !ended.load(Ordering::Relaxed) {
                        if let Ok(mut stream) = TcpStream::connect(&server.address) {
                            // Nobody is waited for longer than this once `ended` is set.
                            let _ = stream.set_read_timeout(Some(Duration::from_secs(3)));
                            let _ = stream.set_write_timeout(Some(Duration::from_secs(3)));
                            // Being refused or cut off is what such a client gets.
                            let _ = behaviour(&mut stream, ended);
                            connections += 1;
                        }
                        thread::sleep(Duration::from_millis(10));
                    }
                    connections
                })
            })
            .collect();
        thread::sleep(time);
        ended.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_default())
            .sum()
    })
}

fn start(setting: &Setting) -> anyhow::Result<(Server, Load)> {
    let launch = Launch::with(&["--client-timeout", "2"]);
    let server = Server::start(setting, &launch)?;
    let load = Load::learn(&server)?;
    Ok((server, load))
}

/// Nothing may be left of the bad clients.
fn finish(
    server: &mut Server,
    mut report: Report,
    files: usize,
    tally: &Tally,
) -> anyhow::Result<Report> {
    report.load(tally);
    report.must(server.is_up(), "the server has ended");
    server.wait_until_idle()?;
    let mut left = 0;
    wait_until("all connections closed", || {
        left = server.frontend().num_files()?;
        Ok(left <= files)
    })?;
    let restarts = server.restarts()?;
    report.saw(format!(
        "nothing runs, {left} files open as before, {restarts} cores replaced"
    ));
    report.must(restarts == 0.0, "a core was replaced");
    Ok(report)
}

fn one_kind_after_another(setting: &Setting) -> anyhow::Result<Report> {
    let (mut server, load) = start(setting)?;
    let files = server.frontend().num_files()?;
    let mut report = Report::default();
    let (connections, tally) = load.beside(&server, 2, || {
        KINDS
            .iter()
            .map(|kind| misbehave(&server, std::slice::from_ref(kind), setting.seconds(1)))
            .sum::<usize>()
    });
    report.saw(format!("{} kinds, {connections} connections", KINDS.len()));
    finish(&mut server, report, files, &tally)
}

fn all_at_once(setting: &Setting) -> anyhow::Result<Report> {
    let (mut server, load) = start(setting)?;
    let files = server.frontend().num_files()?;
    let mut report = Report::default();
    let (connections, tally) = load.beside(&server, 2, || {
        misbehave(&server, KINDS, setting.seconds(10))
    });
    report.saw(format!(
        "{} clients, {connections} connections",
        CROWD * KINDS.len()
    ));
    finish(&mut server, report, files, &tally)
}
