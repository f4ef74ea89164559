//! Logs of the frontend's executables.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Sends logs to standard error: level `info`, or what `RUST_LOG` says. A second call has no
/// effect.
pub fn init_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
}
