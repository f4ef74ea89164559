//! A server in the background: start, stop, status.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use engine_frontend::server::ServeArgs;
use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::http::{self, Client};
use crate::pid_file;

/// How often a process that ends is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a server may take to end once its requests are over.
const TO_END: Duration = Duration::from_secs(60);

/// Starts this program again in the background, and returns when that is ready or has failed.
pub(crate) fn start(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let pid_path = match &server.pid_file {
        Some(path) => path.clone(),
        None => pid_file::make_default()?,
    };
    let mut log_options = OpenOptions::new();
    log_options.create(true).append(true);
    let log_path = match &server.log_file {
        Some(path) => path.clone(),
        None => {
            // Nobody named it: a link there is somebody else's.
            log_options.custom_flags(libc::O_NOFOLLOW);
            pid_path.with_extension("log")
        }
    };
    for path in [&pid_path, &log_path] {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("can't make the folder {}", folder.display()))?;
        }
    }
    let log = log_options.open(&log_path);
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

/// Tells a server to end, and waits until it has; after `patience` seconds, or long enough for it to
/// finish what it may, kills it.
pub(crate) fn stop(path: &Path, patience: Option<u64>) -> anyhow::Result<ExitCode> {
    let Some(running) = pid_file::running(path)? else {
        println!("no server runs ({})", path.display());
        return Ok(ExitCode::SUCCESS);
    };
    let id = Pid::from_raw(running.process_id);
    let id = id.with_context(|| format!("{} holds no process", path.display()))?;
    if !running.may_be_signalled() {
        bail!(
            "{} belongs to another user than the process {} that it names: nothing is stopped",
            path.display(),
            running.process_id
        );
    }
    kill_process(id, Signal::TERM).context("can't signal the server")?;
    let patience = patience.map_or_else(
        || enough_to_end(running.shutdown_timeout),
        Duration::from_secs,
    );
    // Without one, somebody wants to wait for ever.
    let deadline = Instant::now().checked_add(patience);
    while pid_file::running(path)?.is_some_and(|now| now.process_id == running.process_id) {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            kill_process(id, Signal::KILL).context("can't kill the server")?;
            let seconds = patience.as_secs();
            bail!("the server did not end within {seconds} s and was killed");
        }
        std::thread::sleep(POLL);
    }
    println!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// What a server has for its requests, and then to end.
fn enough_to_end(shutdown_timeout: f64) -> Duration {
    let for_requests = Duration::try_from_secs_f64(shutdown_timeout);
    for_requests.unwrap_or_default().saturating_add(TO_END)
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
    match health(&address) {
        Ok(StatusCode::OK) => {
            println!("healthy");
            return Ok(ExitCode::SUCCESS);
        }
        Ok(_) => println!("unhealthy"),
        // Not healthy for sure, but what asks for more would restart it for nothing.
        Err(error) if http::wants_certificate(&error) => {
            println!("running (with --ssl-ca-certs only a client with a certificate may ask how)");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => println!("it doesn't answer: {}", crate::said_once(&error)),
    }
    Ok(ExitCode::FAILURE)
}

/// What `/health` says.
fn health(address: &str) -> anyhow::Result<StatusCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = Client::of_own_server(address)?;
        let answer = timeout(PATIENCE, client.get("/health")).await;
        Ok(answer.context("not in time")??.status)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_waits_for_requests_and_then_a_while() {
        for (shutdown_timeout, seconds) in [
            (0.0, 60.0),
            (90.5, 150.5),
            // What no server writes.
            (-1.0, 60.0),
            (f64::NAN, 60.0),
            (f64::INFINITY, 60.0),
        ] {
            let enough = enough_to_end(shutdown_timeout).as_secs_f64();
            assert_eq!(enough, seconds, "{shutdown_timeout}");
        }
    }
}
