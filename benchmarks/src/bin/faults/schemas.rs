//! Thousands of different schemas, each asked once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::fault::{Fault, Report, Setting};
use crate::load::{CLIENTS, Load};
use crate::server::{Launch, Server};

pub(crate) const FAULTS: &[Fault] = &[Fault {
    name: "schemas",
    must_hold: "thousands of different schemas: each is answered with an object of its own schema, steady requests as before, and the core's \
                memory stays below what it had at the start and 1.25 times `cache_bytes`",
    run: schemas,
}];

const MIB: f64 = (1 << 20) as f64;
/// The server's own default.
const DEFAULT_CACHE_BYTES: u64 = 256 << 20;
/// Requests with new schemas at a time.
const AT_A_TIME: usize = 8;

/// A schema of the kind that people send, another for each number. One in ten has a long enumeration, one in fifty many
/// properties.
fn schema(number: usize) -> Value {
    let mut properties = json!({
        "name": {"type": "string", "maxLength": 20 + number % 30},
        format!("field{number}"): {"enum": [format!("a{number}"), format!("b{number}"), null]},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "pattern": format!("^[a-f]{{1,9}}{number}$")}},
    });
    if number.is_multiple_of(10) {
        let words: Vec<String> = (0..300)
            .map(|word| format!("word {word} of {number}"))
            .collect();
        properties["kind"] = json!({"enum": words});
    }
    if number.is_multiple_of(50) {
        for property in 0..60 {
            properties[format!("p{property}x{number}")] = json!({"type": "string", "pattern": format!("^([a-z]{{1,{}}}-){{0,5}}{property}$", 2 + property % 20)});
        }
    }
    json!({
        "type": "object", "additionalProperties": false, "properties": properties,
        "required": ["name", format!("field{number}")],
    })
}

/// What is wrong with the answer to a schema.
fn problem(server: &Server, number: usize) -> Option<String> {
    let body = json!({
        "messages": [{"role": "user", "content": "A record."}], "max_tokens": 150, "seed": number,
        "structured_outputs": {"json": schema(number)},
    });
    let answer = match server.client.post("/v1/chat/completions", &body) {
        Ok(answer) => answer,
        Err(error) => return Some(format!("{error:#}")),
    };
    if answer.status != 200 {
        return Some(format!("{} {}", answer.status, answer.message()));
    }
    let body = answer.json();
    let text = body["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_default();
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let own = value[format!("field{number}")].clone();
    let is_own = own == format!("a{number}") || own == format!("b{number}");
    (!value["name"].is_string()
        || !(is_own || own.is_null() && value.get(format!("field{number}")).is_some()))
    .then(|| format!("schema {number}: {text}"))
}

fn schemas(setting: &Setting) -> anyhow::Result<Report> {
    let mut launch = Launch::default();
    if let Some(bytes) = setting.cache_bytes {
        launch
            .arguments
            .push("--structured-outputs-config".to_owned());
        launch
            .arguments
            .push(json!({"cache_bytes": bytes}).to_string());
    }
    let server = Server::start(setting, &launch)?;
    let load = Load::learn(&server)?;
    // Buffers of full steps are there.
    load.beside(&server, CLIENTS, || ());
    let core = server.core()?;
    let cache_bytes = setting.cache_bytes.unwrap_or(DEFAULT_CACHE_BYTES);
    let start = core.bytes("VmRSS")?;
    let (next, problems) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let started = Instant::now();
    let ((), tally) = load.beside(&server, 2, || {
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= setting.num_schemas {
                            break;
                        }
                        if let Some(problem) = problem(&server, number) {
                            problems
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(problem);
                        }
                    }
                });
            }
        });
    });
    let seconds = started.elapsed().as_secs_f64();
    let (peak, end) = (core.bytes("VmHWM")?, core.bytes("VmRSS")?);
    let bound = start + cache_bytes / 4 * 5;
    let problems = problems
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mib = |bytes: u64| bytes as f64 / MIB;
    let mut report = Report::default();
    report.saw(format!(
        "{} schemas in {seconds:.0} s, `cache_bytes` {:.0} MiB: the core had {:.0} MiB at the start, {:.0} at most, {:.0} in the end (bound {:.0})",
        setting.num_schemas,
        mib(cache_bytes),
        mib(start),
        mib(peak),
        mib(end),
        mib(bound)
    ));
    report.must(peak <= bound, "the core took more than that");
    if let Some(problem) = problems.first() {
        report.must(
            false,
            format!("{} other answers, such as {problem}", problems.len()),
        );
    }
    report.load(&tally);
    let restarts = server.restarts()?;
    report.must(restarts == 0.0, format!("{restarts} cores were replaced"));
    server.wait_until_idle()?;
    Ok(report)
}
