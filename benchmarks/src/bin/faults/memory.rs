//! Processes that get no more memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Resource;
use serde_json::{Value, json};

use crate::fault::{Fault, Report, Setting};
use crate::load::Load;
use crate::server::{Launch, Server, wait_until};

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "memory-core",
        must_hold: "`RLIMIT_AS` of the running core: a request that it has no memory for ends with an error of its own \
                    or, if the core dies of it, is tried by the next; steady requests are answered as before",
        run: core,
    },
    Fault {
        name: "memory-both",
        must_hold: "`RLIMIT_AS` of both processes and of cores to come: a request that there is no memory for ends with an \
                    error; steady requests are answered as before, and the server stays",
        run: both,
    },
];

const MIB: u64 = 1 << 20;
/// What the core gets beside what it has mapped.
const ROOM_OF_CORE: u64 = 8 * MIB;
/// What the frontend gets: bodies and answers may take 256 MiB (docs/operations.md), and as much again goes for threads.
const ROOM_OF_FRONTEND: u64 = 512 * MIB;

/// Requests that take much memory, each in another way.
fn hungry() -> Vec<(&'static str, Value)> {
    let completion = |mut body: Value, constraint: Value| {
        body["max_tokens"] = json!(30);
        if !constraint.is_null() {
            body["structured_outputs"] = constraint;
        }
        body
    };
    let words = |prefix: &str| -> Vec<String> {
        (0..8000)
            .map(|n| format!("{prefix}{n}x{}", n * 7919))
            .collect()
    };
    let rules: String = (0..2000)
        .map(|n| format!("r{n} ::= \"w{n}\" [a-z]{{1,20}}\n"))
        .collect();
    let names: Vec<String> = (0..2000).map(|n| format!("r{n}")).collect();
    let grammar = format!("root ::= {}\n{rules}", names.join(" | "));
    vec![
        (
            "a choice",
            completion(json!({"prompt": "Pick."}), json!({"choice": words("a")})),
        ),
        (
            "distinct items",
            completion(
                json!({"prompt": "Pick."}),
                json!({"json": {"type": "array", "uniqueItems": true, "items": {"enum": words("b")}}}),
            ),
        ),
        (
            "a grammar",
            completion(json!({"prompt": "Pick."}), json!({"grammar": grammar})),
        ),
        (
            "prompts with logprobs",
            completion(
                json!({"prompt": vec![vec![300; 1500]; 16], "prompt_logprobs": 20}),
                Value::Null,
            ),
        ),
        (
            "many answers",
            completion(
                json!({"prompt": vec![300; 1500], "n": 256, "logprobs": 20}),
                Value::Null,
            ),
        ),
        (
            "a counting pattern",
            completion(
                json!({"prompt": "Pick."}),
                json!({"regex": "(.{0,5000}x){200}", "complete_within_max_tokens": false}),
            ),
        ),
    ]
}

/// Asks all hungry requests at once; they must be answered, whatever the answer is.
fn feed(server: &Server, report: &mut Report) {
    let hungry = hungry();
    let answers: Vec<_> = thread::scope(|scope| {
        let pending: Vec<_> = hungry
            .iter()
            .map(|(_, body)| scope.spawn(|| server.client.post("/v1/completions", body)))
            .collect();
        pending.into_iter().map(|thread| thread.join()).collect()
    });
    for ((name, _), answer) in hungry.iter().zip(answers) {
        match answer {
            Ok(Ok(answer)) if answer.status == 200 => report.saw(format!("{name}: 200")),
            Ok(Ok(answer)) => {
                report.saw(format!("{name}: {} ({})", answer.status, answer.message()))
            }
            Ok(Err(error)) => report.must(false, format!("{name}: no answer, {error:#}")),
            Err(_) => report.must(false, format!("{name}: the client failed")),
        }
    }
}

fn core(setting: &Setting) -> anyhow::Result<Report> {
    let mut server = Server::start(setting, &Launch::default())?;
    let load = Load::learn(&server)?;
    let mut report = Report::default();
    let (result, tally) = load.beside(&server, 2, || {
        let core = server.core()?;
        core.limit(Resource::As, core.bytes("VmSize")? + ROOM_OF_CORE)?;
        feed(&server, &mut report);
        server.restarts()
    });
    report.saw(format!("{} cores replaced", result?));
    report.load(&tally);
    finish(&mut server, report)
}

fn both(setting: &Setting) -> anyhow::Result<Report> {
    let mut server = Server::start(setting, &Launch::default())?;
    let load = Load::learn(&server)?;
    let mut report = Report::default();
    let ended = AtomicBool::new(false);
    let (result, tally) = load.beside(&server, 2, || {
        let (frontend, core) = (server.frontend(), server.core()?);
        let limit = core.bytes("VmSize")? + ROOM_OF_CORE;
        frontend.limit(Resource::As, frontend.bytes("VmSize")? + ROOM_OF_FRONTEND)?;
        thread::scope(|scope| {
            // Each core that comes gets no more than the first one had.
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    for core in server.frontend().children() {
                        // It may just have ended.
                        let _ = core.limit(Resource::As, limit);
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            });
            feed(&server, &mut report);
            ended.store(true, Ordering::Relaxed);
        });
        server.restarts()
    });
    report.saw(format!("{} cores replaced", result?));
    report.load(&tally);
    finish(&mut server, report)
}

fn finish(server: &mut Server, mut report: Report) -> anyhow::Result<Report> {
    report.must(server.is_up(), "the server has ended");
    wait_until("healthy in the end", || Ok(server.is_healthy()))?;
    server.wait_until_idle()?;
    Ok(report)
}
