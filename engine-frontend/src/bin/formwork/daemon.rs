//! A server in the background: start, stop, status.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use engine_frontend::server::ServeArgs;
use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::http::Client;
use crate::pid_file;

/// How often a process that ends is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts this program again in the background, and returns when that is ready or has failed.
pub(crate) fn start(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let pid_path = server
        .pid_file
        .clone()
        .unwrap_or_else(pid_file::default_path);
    let log_path = server.log_file.clone();
    let log_path = log_path.unwrap_or_else(|| pid_path.with_extension("log"));
    for path in [&pid_path, &log_path] {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("can't make the folder {}", folder.display()))?;
        }
    }
    let log = OpenOptions::new().create(true).append(true).open(&log_path);
    let log = log.with_context(|| format!("can't write --log-file {}", log_path.display()))?;
    let log_begin = log.metadata().map_or(0, |metadata| metadata.len());
    let own = std::env::current_exe().context("can't find this program")?;
    let mut child = Command::new(own)
        .args(std::env::args_os().skip(1))
        .arg("--pid-file")
        .arg(&pid_path)
        .arg("--log-file")
        .arg(&log_path)
        .arg("--daemonized")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("can't start the server")?;
    let stdout = child.stdout.take().context("the server has no output")?;
    let mut address = String::new();
    BufReader::new(stdout).read_line(&mut address)?;
    if address.is_empty() {
        let status = child.wait()?;
        let log = log_path.display();
        match last_line(&log_path, log_begin) {
            Ok(Some(line)) => bail!("the server ended ({status}): {line} (more in {log})"),
            _ => bail!("the server ended ({status}); {log} says why"),
        }
    }
    println!("ready at {}", address.trim_end());
    println!("process  {}", child.id());
    println!("log      {}", log_path.display());
    Ok(ExitCode::SUCCESS)
}

/// The last line in a log that says something, from a byte of it on.
fn last_line(path: &Path, begin: u64) -> std::io::Result<Option<String>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().map(str::trim).find(|l| !l.is_empty());
    Ok(last.map(str::to_owned))
}

/// Tells a server to end, and waits until it has.
pub(crate) fn stop(path: &Path, patience: u64) -> anyhow::Result<ExitCode> {
    let Some(running) = pid_file::running(path)? else {
        println!("no server runs ({})", path.display());
        return Ok(ExitCode::SUCCESS);
    };
    let id = Pid::from_raw(running.process_id);
    let id = id.with_context(|| format!("{} holds no process", path.display()))?;
    kill_process(id, Signal::TERM).context("can't signal the server")?;
    let deadline = Instant::now() + Duration::from_secs(patience);
    while pid_file::running(path)?.is_some_and(|now| now.process_id == running.process_id) {
        if Instant::now() > deadline {
            kill_process(id, Signal::KILL).context("can't kill the server")?;
            bail!("the server did not end within {patience} s and was killed");
        }
        std::thread::sleep(POLL);
    }
    println!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Says whether a server runs and how it is. Exit code 0 is healthy, 1 is not, 3 is not there.
pub(crate) fn status(path: &Path) -> anyhow::Result<ExitCode> {
    let Some(running) = pid_file::running(path)? else {
        println!("no server runs ({})", path.display());
        return Ok(ExitCode::from(3));
    };
    println!("process  {}", running.process_id);
    let Some(address) = running.address else {
        println!("starting");
        return Ok(ExitCode::FAILURE);
    };
    println!("address  {address}");
    if address.starts_with("https:") {
        // Its certificate names a host, and is for those outside to trust.
        println!("running (its health can't be asked for over HTTPS here)");
        return Ok(ExitCode::SUCCESS);
    }
    match health(&address) {
        Ok(StatusCode::OK) => {
            println!("healthy");
            return Ok(ExitCode::SUCCESS);
        }
        Ok(_) => println!("unhealthy"),
        Err(error) => println!("it doesn't answer: {error:#}"),
    }
    Ok(ExitCode::FAILURE)
}

/// What `/health` says.
fn health(address: &str) -> anyhow::Result<StatusCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = Client::new(address, None)?;
        let answer = timeout(PATIENCE, client.get("/health")).await;
        Ok(answer.context("not in time")??.status)
    })
}
