//! A core that is killed, stopped, or gets no processor.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use benchmarks::machine;
use rustix::process::Signal;
use serde_json::json;

use crate::fault::{Fault, Report, Setting};
use crate::load::{CLIENTS, Load};
use crate::server::{Launch, Server, wait_until};

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "core-killed",
        must_hold: "SIGKILL beneath streams, again and again: each stream goes on and ends with the same text; as many \
                    cores are started as were killed",
        run: killed,
    },
    Fault {
        name: "core-stopped",
        must_hold: "SIGSTOP, then SIGCONT: `/health` is 503 meanwhile, then all go on; no core is replaced",
        run: stopped,
    },
    Fault {
        name: "core-hangs",
        must_hold: "SIGSTOP for good: the core is replaced, and each stream ends with the same text",
        run: hangs,
    },
    Fault {
        name: "starved",
        must_hold: "four spinning programs for each processor: no core is replaced, answers are the same, and a new \
                    choice of 5,000 strings is served",
        run: starved,
    },
];

/// Seconds without a sign of life after which a core counts as hanging; it is replaced after twice that.
const STALL_SECONDS: u64 = 2;

fn quick_to_notice() -> Launch {
    Launch::with(&["--health-stall-seconds", &STALL_SECONDS.to_string()])
}

fn killed(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &Launch::default())?;
    let load = Load::learn(&server)?;
    let kills: u32 = if setting.is_long { 50 } else { 5 };
    let (result, tally) = load.beside(&server, CLIENTS, || {
        for kill in 1..=kills {
            server.core()?.signal(Signal::KILL);
            wait_until("another core", || {
                Ok(server.restarts()? >= f64::from(kill) && server.is_healthy())
            })?;
            thread::sleep(Duration::from_secs(1));
        }
        server.restarts()
    });
    let restarts = result?;
    let mut report = Report::default();
    report.saw(format!("{kills} cores killed, {restarts} started"));
    report.must(restarts == f64::from(kills), "the counts differ");
    report.load(&tally);
    server.wait_until_idle()?;
    Ok(report)
}

fn stopped(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &quick_to_notice())?;
    let load = Load::learn(&server)?;
    let core = server.core()?;
    let rounds = if setting.is_long { 20 } else { 2 };
    let (result, tally) = load.beside(&server, CLIENTS, || {
        for _ in 0..rounds {
            core.signal(Signal::STOP);
            let unhealthy = wait_until("unhealthy", || Ok(!server.is_healthy()));
            // Less than what makes it be replaced, whatever comes.
            thread::sleep(Duration::from_millis(500 * STALL_SECONDS));
            core.signal(Signal::CONT);
            unhealthy?;
            wait_until("healthy again", || Ok(server.is_healthy()))?;
            thread::sleep(Duration::from_secs(1));
        }
        server.restarts()
    });
    let restarts = result?;
    let mut report = Report::default();
    report.saw(format!(
        "stopped {rounds} times, unhealthy and healthy again, {restarts} cores replaced"
    ));
    report.must(restarts == 0.0, "a core was replaced");
    report.load(&tally);
    server.wait_until_idle()?;
    Ok(report)
}

fn hangs(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &quick_to_notice())?;
    let load = Load::learn(&server)?;
    let (result, tally) = load.beside(&server, CLIENTS, || {
        server.core()?.signal(Signal::STOP);
        wait_until("another core", || {
            Ok(server.restarts()? >= 1.0 && server.is_healthy())
        })?;
        thread::sleep(Duration::from_secs(2));
        server.restarts()
    });
    let restarts = result?;
    let mut report = Report::default();
    report.saw(format!("{restarts} core replaced"));
    report.must(restarts == 1.0, "not one core was replaced");
    report.load(&tally);
    server.wait_until_idle()?;
    Ok(report)
}

/// Programs that only spin. They end with this value, and by themselves.
struct Spinning(Vec<Child>);

impl Spinning {
    fn start(setting: &Setting, count: usize, time: Duration) -> anyhow::Result<Self> {
        let mut spinning = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(&setting.program);
            command.arg("--spin").arg(time.as_secs().to_string());
            spinning.0.push(command.stdin(Stdio::null()).spawn()?);
        }
        Ok(spinning)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn starved(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &quick_to_notice())?;
    let load = Load::learn(&server)?;
    let ((), alone) = load.beside(&server, CLIENTS, || thread::sleep(Duration::from_secs(2)));
    let time = setting.seconds(20);
    let count = 4 * machine::num_cores();
    let (result, tally) = load.beside(&server, CLIENTS, || {
        let started = Instant::now();
        let _spinning = Spinning::start(setting, count, 2 * time)?;
        thread::sleep(time / 4);
        let words: Vec<String> = (0..5000_u64)
            // Words that share no beginnings.
            .map(|number| format!("{:x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let asked = Instant::now();
        let answer = server.ask_constrained(&json!({"choice": words}))?;
        let took = asked.elapsed();
        thread::sleep(time.saturating_sub(started.elapsed()));
        anyhow::Ok((answer, took, server.restarts()?))
    });
    let (answer, took, restarts) = result?;
    let mut report = Report::default();
    report.saw(format!(
        "{count} programs spin for {} s: {restarts} cores replaced, the choice answered after {:.1} s; before them at most {:.2} s \
         between two pieces",
        time.as_secs(),
        took.as_secs_f64(),
        alone.longest_wait.as_secs_f64()
    ));
    report.must(restarts == 0.0, "a core was replaced");
    report.must(
        answer.status == 200,
        format!("the choice: {} {}", answer.status, answer.message()),
    );
    report.load(&tally);
    server.wait_until_idle()?;
    Ok(report)
}
