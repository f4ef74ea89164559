//! Disks that are full where logs and results go.
//!
//! Quantized weights are kept beside large models alone, so the built-in one can't show what becomes of them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fault::{Fault, Report, Setting};
use crate::http::cut;
use crate::load::Load;
use crate::server::{Launch, Server, wait_until};

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "disk-logs",
        must_hold: "the log and the audit log on a full file system: requests are answered as before, the audit log's lost \
                    lines are counted, and a core that is killed is replaced",
        run: logs,
    },
    Fault {
        name: "file-size",
        must_hold: "`RLIMIT_FSIZE` that the log has reached: as on a full disk",
        run: file_size,
    },
    Fault {
        name: "disk-batch",
        must_hold: "a batch's output on a full file system: it ends with an error that names the file; `--resume` with \
                    more room ends it, each line once and as without the fault",
        run: batch,
    },
];

/// Logs of both kinds in a folder, and as many lines as there can be.
fn logging(folder: &Path) -> Launch {
    let (log, audit) = (folder.join("log"), folder.join("audit"));
    let mut launch = Launch::with(&[
        "--enable-log-requests",
        "--max-log-len",
        "2000",
        "--log-file",
    ]);
    launch.arguments.push(log.display().to_string());
    launch
        .arguments
        .extend(["--audit-log".to_owned(), audit.display().to_string()]);
    launch
}

/// A shell's words that mount a file system of so many KiB at a folder.
fn mount(folder: &Path, kib: u64) -> String {
    format!("mount -t tmpfs -o size={kib}k none '{}'", folder.display())
}

/// True if this machine lets us mount something that nobody else sees.
fn can_mount(folder: &Path) -> bool {
    let mut launch = Launch {
        may_mount: true,
        ..Launch::default()
    };
    launch.setup = Some(mount(folder, 64));
    let output = launch.command(Path::new("true")).output();
    output.is_ok_and(|output| output.status.success())
}

const NO_MOUNT: &str = "`unshare --mount` and a tmpfs can't be had here";

fn logs(setting: &Setting) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    if !can_mount(folder.path()) {
        return Ok(Report::skipped(NO_MOUNT));
    }
    let mut launch = logging(folder.path());
    launch.setup = Some(mount(folder.path(), 64));
    launch.may_mount = true;
    full_logs(setting, &launch)
}

fn file_size(setting: &Setting) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let mut launch = logging(folder.path());
    // Blocks of 512 bytes, or of 1 KiB in some shells.
    launch.setup = Some("ulimit -f 16".to_owned());
    full_logs(setting, &launch)
}

fn full_logs(setting: &Setting, launch: &Launch) -> anyhow::Result<Report> {
    let mut server = Server::start(setting, launch)?;
    let load = Load::learn(&server)?;
    let (result, tally) = load.beside(&server, 2, || {
        wait_until("the audit log is full", || {
            // Refused at once, and a line of both logs each.
            for _ in 0..100 {
                server.client.post(
                    "/v1/completions",
                    &json!({"prompt": "x".repeat(1000), "max_tokens": -1}),
                )?;
            }
            Ok(server.metric("formwork:audit_log_lost_lines_total")? > 0.0)
        })?;
        thread::sleep(setting.seconds(2));
        server.core()?.signal(Signal::KILL);
        wait_until("another core", || {
            Ok(server.restarts()? == 1.0 && server.is_healthy())
        })?;
        server.metric("formwork:audit_log_lost_lines_total")
    });
    let mut report = Report::default();
    report.must(server.is_up(), "the server has ended");
    let lost = result?;
    report.saw(format!(
        "{lost} lines of the audit log lost and counted, core replaced"
    ));
    report.load(&tally);
    server.wait_until_idle()?;
    Ok(report)
}

/// Lines of the batch.
const BATCH_LINES: usize = 400;

fn batch(setting: &Setting) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    if !can_mount(folder.path()) {
        return Ok(Report::skipped(NO_MOUNT));
    }
    let scratch = tempfile::tempdir()?;
    let line = |index: usize| {
        let mut body =
            json!({"prompt": format!("Number {index} is"), "max_tokens": 20, "seed": index});
        if index.is_multiple_of(2) {
            body["structured_outputs"] = json!({"regex": "[a-z ]{5,40}"});
        }
        let line = json!({
            "custom_id": index.to_string(), "method": "POST", "url": "/v1/completions", "body": body,
        });
        format!("{line}\n")
    };
    let input = scratch.path().join("input.jsonl");
    fs::write(&input, (0..BATCH_LINES).map(line).collect::<String>())?;
    let program = setting.executable("formwork-batch");
    let whole = scratch.path().join("whole.jsonl");
    let run = |command: &mut Command, output: &Path| {
        command
            .arg("-i")
            .arg(&input)
            .arg("-o")
            .arg(output)
            .arg("--no-progress")
            .output()
    };
    let output = run(&mut Command::new(&program), &whole)?;
    anyhow::ensure!(
        output.status.success(),
        "without a fault: {}",
        text(&output.stderr)
    );
    // One shell, since what is mounted ends with it: the batch fails, gets room, and is resumed.
    let cut_off = folder.path().join("output.jsonl");
    let saved = scratch.path().join("resumed.jsonl");
    let script = format!(
        "{} && ! \"$0\" \"$@\" && mount -o remount,size=64m '{1}' && \"$0\" \"$@\" --resume && cp '{2}' '{3}' && exec true",
        mount(folder.path(), 32),
        folder.path().display(),
        cut_off.display(),
        saved.display()
    );
    let launch = Launch {
        setup: Some(script),
        may_mount: true,
        ..Launch::default()
    };
    let output = run(&mut launch.command(&program), &cut_off)?;
    let said = text(&output.stderr);
    let mut report = Report::default();
    report.must(
        output.status.success(),
        format!("the batch and its resumption: {said}"),
    );
    let error = said
        .lines()
        .find(|line| line.contains("No space") || line.contains("os error 28"));
    report.saw(format!(
        "it said: {}",
        cut(error.unwrap_or("nothing of the disk"))
    ));
    report.must(
        error.is_some_and(|error| error.contains("output.jsonl")),
        "the file is not named",
    );
    let (whole, resumed) = (answers(&whole)?, answers(&saved)?);
    report.must(whole == resumed, "the resumed results differ");
    report.saw(format!("{} results in the end", resumed.len()));
    Ok(report)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the results say: ids and texts.
fn answers(path: &Path) -> anyhow::Result<Vec<(Value, Value)>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let answer = |line: &str| {
        let mut line: Value = serde_json::from_str(line)?;
        let text = line["response"]["body"]["choices"][0]["text"].take();
        Ok((line["custom_id"].take(), text))
    };
    text.lines().map(answer).collect()
}
