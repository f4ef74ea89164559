//! A wall clock that is set while requests run.
//!
//! The machine's own clock is left alone: `clock.c` is compiled and loaded before the C library of both processes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::json;

use crate::fault::{Fault, Report, Setting};
use crate::load::{CLIENTS, Load};
use crate::server::{Launch, Server};

pub(crate) const FAULTS: &[Fault] = &[Fault {
    name: "clock",
    must_hold: "the wall clock of both processes is set back by a day, forward by two, and back again: requests are answered as \
                before, no timeout ends one, and no core is replaced",
    run: clock,
}];

const SOURCE: &str = include_str!("clock.c");
const DAY: i64 = 24 * 60 * 60;

/// Compiles the clock into `folder`; false where there is no C compiler.
fn compile(folder: &Path, clock_file: &Path) -> anyhow::Result<bool> {
    let source = folder.join("clock.c");
    fs::write(&source, SOURCE)?;
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC"]);
    command.arg(format!("-DCLOCK_FILE=\"{}\"", clock_file.display()));
    command.arg("-o").arg(folder.join("clock.so")).arg(&source);
    let Ok(output) = command.output() else {
        return Ok(false);
    };
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(true)
}

/// Seconds that the server's clock is ahead of this program's.
fn ahead(server: &Server) -> anyhow::Result<i64> {
    let body = json!({"prompt": "Hi", "max_tokens": 1});
    let answer = server.client.post("/v1/completions", &body)?;
    let created = answer.json()["created"]
        .as_i64()
        .context("an answer without `created`")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(created - i64::try_from(now)?)
}

fn clock(setting: &Setting) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let clock_file = folder.path().join("clock");
    fs::write(&clock_file, 0_i64.to_ne_bytes())?;
    if !compile(folder.path(), &clock_file)? {
        return Ok(Report::skipped("no C compiler `cc`"));
    }
    // A request is given up after ten seconds, on whatever clock that is.
    let mut launch = Launch::with(&[
        "--request-timeout",
        "10",
        "--client-timeout",
        "5",
        "--health-stall-seconds",
        "5",
    ]);
    let path = folder.path().display().to_string();
    // Both processes may read what lies in folders of libraries, and the core's environment has these two.
    launch
        .variables
        .push(("LD_LIBRARY_PATH".to_owned(), path.clone()));
    launch
        .variables
        .push(("LD_PRELOAD".to_owned(), format!("{path}/clock.so")));
    let server = Server::start(setting, &launch)?;
    let load = Load::learn(&server)?;
    let core = server.core()?;
    for process in [server.frontend(), core] {
        let maps = fs::read_to_string(format!("/proc/{}/maps", process.0))?;
        anyhow::ensure!(
            maps.contains("clock.so"),
            "a process has not loaded the clock"
        );
    }
    let (result, tally) = load.beside(&server, CLIENTS, || {
        let mut seen = Vec::new();
        for offset in [0, -DAY, DAY, -3600, 0] {
            // In place: both processes have mapped the file.
            let mut file = File::options().write(true).open(&clock_file)?;
            file.write_all(&offset.to_ne_bytes())?;
            thread::sleep(setting.seconds(2));
            seen.push((offset, ahead(&server)?));
        }
        anyhow::Ok((seen, server.restarts()?))
    });
    let (seen, restarts) = result?;
    let mut report = Report::default();
    let offsets: Vec<String> = seen.iter().map(|(_, ahead)| ahead.to_string()).collect();
    report.saw(format!(
        "the server's clock ahead by {} s, {restarts} cores replaced",
        offsets.join(", ")
    ));
    // Between the answer and a look at the clock a second may pass.
    let is_off = seen
        .iter()
        .all(|(offset, ahead)| (offset - ahead).abs() <= 2);
    report.must(is_off, "the server's clock was not that of the fault");
    report.must(restarts == 0.0, "a core was replaced");
    report.load(&tally);
    report.must(server.is_healthy(), "not healthy in the end");
    server.wait_until_idle()?;
    Ok(report)
}
