//! Logs of the frontend's executables.

use std::fs::File;
use std::io::{IsTerminal, stderr};

use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::{EnvFilter, fmt};

/// Sends logs to standard error: level `info`, or what `RUST_LOG` says. A second call has no
/// effect.
pub fn init_logging() {
    init_logging_as(false, None);
}

/// The same as JSON, one object per line, or to a file. What can't be written, on a full disk, is
/// lost, and nothing else comes of it.
pub fn init_logging_as(json: bool, file: Option<File>) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = file.is_none() && stderr().is_terminal();
    let writer = match file {
        Some(file) => BoxMakeWriter::new(file),
        None => BoxMakeWriter::new(stderr),
    };
    let subscriber = fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(is_terminal)
        // It would be reported by `eprintln!`, which panics where that can't be written either.
        .log_internal_errors(false)
        .with_writer(writer);
    let _ = if json {
        subscriber.json().flatten_event(true).try_init()
    } else {
        subscriber.try_init()
    };
}
