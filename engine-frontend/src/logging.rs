//! Logs of the frontend's executables.

use std::fs::File;

use logging::LogSettings;

/// Sends logs to standard error: level `info`, or what `RUST_LOG` says. A second call has no
/// effect.
pub fn init_logging() {
    init_logging_as(false, None);
}

/// The same as JSON, one object per line, or to a file. What can't be written, on a full disk, is
/// lost, and nothing else comes of it.
pub fn init_logging_as(json: bool, file: Option<File>) {
    logging::init(LogSettings {
        filter_variable: "RUST_LOG",
        json,
        with_target: false,
        file,
    });
}
