//! Logs of both processes.
//!
//! A log line may hold text of a client, of a model's files or of a grammar. Characters of it that a
//! terminal obeys, that end a line or that turn its order around are written as their escapes
//! ([`EscapingWriter`]), in the lines for people and in JSON alike.

mod escape;
mod pace;

use std::fs::File;
use std::io::stderr;
use std::sync::Arc;

use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::{EnvFilter, fmt};

pub use escape::{Escapes, EscapingWriter};
pub use pace::Pace;

/// How a process logs.
#[derive(Debug, Default)]
pub struct LogSettings {
    /// Environment variable that may name another level than `info`.
    pub filter_variable: &'static str,
    /// Makes each line a JSON object.
    pub json: bool,
    /// Says which module a line is from.
    pub with_target: bool,
    /// Where lines go; standard error where absent.
    pub file: Option<File>,
}

/// Sends this process's logs where `settings` say. A second call has no effect.
///
/// What can't be written, on a full disk, is lost, and nothing else comes of it.
pub fn init(settings: LogSettings) {
    let LogSettings {
        filter_variable,
        json,
        with_target,
        file,
    } = settings;
    let filter =
        EnvFilter::try_from_env(filter_variable).unwrap_or_else(|_| EnvFilter::new("info"));
    let escapes = if json { Escapes::Json } else { Escapes::Human };
    let writer = match file.map(Arc::new) {
        Some(file) => BoxMakeWriter::new(move || EscapingWriter::new(file.clone(), escapes)),
        None => BoxMakeWriter::new(move || EscapingWriter::new(stderr(), escapes)),
    };
    let subscriber = fmt()
        .with_env_filter(filter)
        .with_target(with_target)
        // Its colours can't be told from those that a field brings.
        .with_ansi(false)
        // It would be reported by `eprintln!`, which panics where that can't be written either.
        .log_internal_errors(false)
        .with_writer(writer);
    let _ = if json {
        subscriber.json().flatten_event(true).try_init()
    } else {
        subscriber.try_init()
    };
}
