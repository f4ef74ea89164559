//! No request takes more memory than its share, over a corpus of requests for all routes and fields.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;

use integration_tests::workspace;
use serde_json::{Value, json};

use super::corpus::{Case, case, pooling_case};
use super::memory::{MIB, Peak, allowance, limit_growth, status_field, warm_up};
use super::places::{num_places, place_case, whole_requests};
use crate::server::client::start;
use crate::server::support::{Server, formwork};
use crate::support::PATIENCE;

const KEY: &str = "the-tenants-key";

/// Requests in a run of all tests. `FORMWORK_CASES=2000` tries as many as were tried for
/// `docs/security.md`.
const NUM_CASES: u64 = 200;

/// Memory that outlives requests, in bytes: compiled grammars that are kept for the next request
/// (`cache_bytes` of the structured outputs), in the core; what an allocator keeps, in the frontend.
const KEPT: u64 = 256 << 20;

/// The largest request of the corpus, in bytes.
const LARGEST: usize = (4 << 20) + 4096;

fn num_cases() -> u64 {
    std::env::var("FORMWORK_CASES").map_or(NUM_CASES, |cases| cases.parse().unwrap())
}

/// A server that lets requests do all that they can be let do. The cache is small, so that all of it
/// is touched before anything is measured.
fn server() -> Server {
    let server = spawn(&["--num-blocks-override", "512"]);
    warm_up(|path, body| post(&server, path, body));
    server
}

/// A server of a model that makes vectors, warm too.
fn pooling_server() -> Server {
    let model = workspace().join("tests/data/pooling/bert_mean");
    let server = spawn(&["--model", model.to_str().unwrap()]);
    let body = json!({"input": vec!["the river is near the station"; 256]});
    for _ in 0..3 {
        assert_eq!(post(&server, "/v1/embeddings", &body), 200);
    }
    server
}

fn spawn(flags: &[&str]) -> Server {
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    command.args(["--threads", "1", "--api-key", KEY]);
    command.args(["--trust-request-chat-template", "--request-timeout", "10"]);
    Server::spawn(command.args(flags))
}

fn post(server: &Server, path: &str, body: &Value) -> u16 {
    let headers = format!("Content-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n");
    let body = body.to_string();
    let answer = start(&server.address, "POST", path, &headers, body.as_bytes());
    answer.finish().status
}

/// Sends a request and reads its answer to the end: its status, or 0 where the connection broke
/// before there was one.
fn send(address: &str, case: &Case) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses early may close while the client writes.
    let _ = stream.write_all(&case.bytes);
    let mut head = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let missing = 64_usize.saturating_sub(head.len()).min(count);
        head.extend_from_slice(&buffer[..missing]);
    }
    let head = String::from_utf8_lossy(&head);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.unwrap_or(0)
}

/// What the server may answer: it is none of its faults. 503 and 504 say that there is no room, or no
/// time, left.
fn is_answer(status: u16) -> bool {
    (200..500).contains(&status) || status == 503 || status == 504
}

struct Outcome {
    number: u64,
    label: String,
    /// How its body begins.
    body: String,
    sent: usize,
    memory: u64,
    status: u16,
    has_died: bool,
}

impl Outcome {
    fn line(&self) -> String {
        let per_byte = self.memory as f64 / self.sent as f64;
        format!(
            "{:>5} {:>4} MiB {:>9} B {per_byte:>9.1} B/B {} {}{}",
            self.number,
            self.memory / MIB,
            self.sent,
            self.status,
            if self.has_died { "A PROCESS DIED " } else { "" },
            self.label
        )
    }
}

/// Sends the corpus, each request after the answer to the one before, and measures each. A server of
/// which a process died is replaced by another.
fn run(
    start: impl Fn() -> Server,
    count: u64,
    case: fn(number: u64, key: &str) -> Case,
) -> Vec<Outcome> {
    let mut server = start();
    let mut processes = Peak::processes(&server);
    let mut outcomes = Vec::new();
    for number in 0..count {
        let case = case(number, KEY);
        let (sent, label) = (case.bytes.len(), case.label.clone());
        let peak = Peak::begin(&server);
        let status = send(&server.address, &case);
        let memory = peak.try_bytes();
        let has_died = memory.is_none() || Peak::processes(&server) != processes;
        let memory = memory.unwrap_or_default();
        if number % 100 == 99 {
            report_level(number, &processes);
        }
        outcomes.push(Outcome {
            number,
            label,
            body: beginning(&case.bytes),
            sent,
            memory,
            status,
            has_died,
        });
        if has_died {
            server = start();
            processes = Peak::processes(&server);
        }
    }
    outcomes
}

/// Prints what core and frontend have.
fn report_level(number: u64, processes: &[i32]) {
    for process in processes {
        let mib = |field| status_field(*process, field).unwrap_or_default() / MIB;
        let (rss, data, size) = (mib("VmRSS"), mib("VmData"), mib("VmSize"));
        eprintln!(
            "after {number}: process {process}: VmRSS {rss}, VmData {data}, VmSize {size} MiB"
        );
    }
}

/// Characters of a wrong request's body that are shown.
const NUM_SHOWN: usize = 400;

fn beginning(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let body = text.split_once("\r\n\r\n").unwrap_or_default().1;
    body.chars().take(NUM_SHOWN).collect()
}

/// Fails with all that hold for `is_wrong`, and how their bodies begin.
fn none(outcomes: &[Outcome], what: &str, is_wrong: impl Fn(&Outcome) -> bool) {
    let wrong = outcomes.iter().filter(|outcome| is_wrong(outcome));
    let shown = |outcome: &Outcome| format!("{}\n    {}", outcome.line(), outcome.body);
    let wrong: Vec<String> = wrong.map(shown).collect();
    let all = outcomes.len();
    assert!(
        wrong.is_empty(),
        "{} of {all} {what}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The twenty that took the most of what they may, as lines of text.
fn worst(outcomes: &[Outcome]) -> String {
    let mut ordered: Vec<&Outcome> = outcomes.iter().collect();
    ordered
        .sort_by_key(|outcome| std::cmp::Reverse(1000 * outcome.memory / allowance(outcome.sent)));
    let mut text = String::new();
    for outcome in ordered.iter().take(20) {
        let _ = writeln!(text, "{}", outcome.line());
    }
    text
}

#[test]
fn no_request_takes_more_memory_than_64_mib_and_16_times_its_size() {
    all_take_their_share(&run(server, num_cases(), case));
}

#[test]
fn no_request_for_vectors_does_either() {
    let outcomes = run(pooling_server, num_cases() / 5, pooling_case);
    all_take_their_share(&outcomes);
    // They aren't all refused.
    assert!(outcomes.iter().any(|outcome| outcome.status == 200));
}

/// What is copied as it is read, checked or refused shows where a large value stands in an otherwise good request.
#[test]
fn no_place_of_a_request_takes_more_either() {
    let server = server();
    for (path, body) in whole_requests() {
        assert_eq!(post(&server, path, &body), 200, "{path}: {body}");
    }
    drop(server);
    let count = match num_cases() {
        NUM_CASES => 60,
        _ => num_places(),
    };
    all_take_their_share(&run(self::server, count, place_case));
}

fn all_take_their_share(outcomes: &[Outcome]) {
    eprintln!("{}", worst(outcomes));
    let is_too_much = |outcome: &Outcome| outcome.memory > allowance(outcome.sent);
    let wrong = |outcome: &Outcome| outcome.has_died || !is_answer(outcome.status);
    none(
        outcomes,
        "took too much memory, killed a process or got no answer",
        |outcome| is_too_much(outcome) || wrong(outcome),
    );
}

#[test]
fn all_requests_pass_where_neither_process_may_take_more() {
    let limited = || {
        let server = server();
        for process in Peak::processes(&server) {
            limit_growth(process, allowance(LARGEST) + KEPT);
        }
        server
    };
    let outcomes = run(limited, num_cases(), case);
    let wrong = |outcome: &Outcome| outcome.has_died || !is_answer(outcome.status);
    none(&outcomes, "killed a process or got no answer", wrong);
}
