//! `formwork serve` in the foreground.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use engine_frontend::server::{
    LogFormat, Ready, ServeArgs, ServerArgs, confine, serve as serve_http,
};
use engine_frontend::{
    StartupError, draft_hub_name_of, fetch_model, frontend_runtime, hub_name_of, init_logging_as,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Signal, getpid, getrlimit, kill_process, setrlimit};

use crate::first_steps::first_steps;
use crate::pid_file::PidFile;

/// How long the end of standard input may go unnoticed while a model is downloaded.
const STDIN_POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Serves until it is told to end.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    if server.daemonized {
        // Its starter's terminal is none of its business. It fails where that is so already.
        let _ = rustix::process::setsid();
    }
    let mut pid_file = match &server.pid_file {
        Some(path) => Some(PidFile::create(path, args.engine_args().shutdown_timeout)?),
        None => None,
    };
    let log_file = match &server.log_file {
        // Its standard error is that file already.
        Some(_) if server.daemonized => None,
        Some(path) => Some(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("can't write --log-file {}", path.display()))?,
        ),
        None => None,
    };
    let json = server.log_format == LogFormat::Json;
    init_logging_as(json, log_file);
    // A download needs the network, which the confined process has no more.
    let args = &with_local_model(args)?;
    confine(args);
    let on_ready = |ready: &Ready| {
        if let Some(pid_file) = &mut pid_file
            && let Err(error) = pid_file.set_address(&ready.address)
        {
            tracing::warn!("can't write the address to --pid-file: {error:#}");
        }
        say_ready(ready, server, json);
    };
    if server.end_with_stdin {
        std::thread::spawn(end_with_stdin);
    }
    raise_file_limit();
    let runtime = frontend_runtime().context("can't start the async runtime")?;
    let served = runtime.block_on(serve_http(args, on_ready));
    // The process ends next, and clients that don't read would hold it.
    std::mem::forget(runtime);
    served?;
    Ok(ExitCode::SUCCESS)
}

/// The command line with a model that is on this machine, downloaded where it is a name on the Hub.
fn with_local_model(args: &ServeArgs) -> Result<ServeArgs, StartupError> {
    let engine = args.engine_args();
    let is_on_hub = hub_name_of(&engine)?.is_some() || draft_hub_name_of(&engine)?.is_some();
    let fetched = match is_on_hub && args.server.end_with_stdin {
        true => while_stdin_is_open(|| fetch_model(&engine)),
        false => fetch_model(&engine),
    };
    Ok(args.with_engine_args(fetched?))
}

/// Does something that takes long, and ends the process as a signal would if standard input ends
/// meanwhile. Its thread has ended when this returns.
fn while_stdin_is_open<T>(work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if stdin_ended_within(STDIN_POLL) {
                    let _ = kill_process(getpid(), Signal::TERM);
                }
            }
        });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        done
    })
}

/// Waits for something on standard input, which is thrown away. True if it is the end.
fn stdin_ended_within(time: Timespec) -> bool {
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut polled, Some(&time)) {
        Ok(1..) => matches!(rustix::io::read(&stdin, &mut [0_u8; 4096]), Ok(0)),
        _ => false,
    }
}

/// Ends the server as a signal would, when whoever holds its standard input is gone.
fn end_with_stdin() {
    // An error is an end as well.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    let _ = kill_process(getpid(), Signal::TERM);
}

/// Lets the process have as many open files, one per connection, as it may give itself.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("can't raise the limit of open files: {error}");
    }
}

/// Says what is served, for people on standard error; and where, on standard output, for programs
/// that wait for it.
fn say_ready(ready: &Ready, server: &ServerArgs, json: bool) {
    let is_for_programs = json || server.daemonized || server.end_with_stdin;
    if is_for_programs {
        for line in ready.summary.lines() {
            tracing::info!("{line}");
        }
    } else {
        let _ = writeln!(std::io::stderr(), "{}", ready.summary);
    }
    tracing::info!("ready at {}", ready.address);
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{}", ready.address).and_then(|()| stdout.flush());
    if !is_for_programs && std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "{}", first_steps(&ready.address, server));
    }
}
