//! What can go wrong with a core.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::{error, io};

use protocol::codec::CodecError;
use protocol::handshake::HandshakeError;
use protocol::transport::TransportError;
use thiserror::Error;

/// The core is gone. Every pending call ends with this, and every later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDeadError {
    /// For people: the core's own words where it had any.
    pub reason: String,
    /// How its process ended, where this frontend started it.
    pub exit_status: Option<ExitStatus>,
}

impl fmt::Display for EngineDeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the engine core died: {}{}",
            self.reason,
            in_parentheses(&self.exit_status)
        )
    }
}

impl error::Error for EngineDeadError {}

/// " (signal: 9 (SIGKILL))" and the like; nothing for a process that ended well, which would only
/// confuse after the reason.
fn in_parentheses(exit_status: &Option<ExitStatus>) -> String {
    match exit_status {
        Some(status) if !status.success() => format!(" ({status})"),
        _ => String::new(),
    }
}

/// Why a call didn't work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineCoreClientError {
    /// The core is gone, or was shut down.
    #[error(transparent)]
    EngineDead(#[from] EngineDeadError),
    /// This request or call can't be sent, such as one that is too large; others can.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The core refused this utility call, or its method failed.
    #[error("call to {method} failed: {message}")]
    Utility {
        /// The method.
        method: String,
        /// The core's words.
        message: String,
    },
}

/// Why there is no connection to a core. Messages hold their causes' text.
#[derive(Debug, Error)]
pub enum EngineCoreStartupError {
    /// The core's executable is missing.
    #[error(
        "no engine core at {}: build it with `cargo build --release -p engine-core`, or name it with --engine-core PATH",
        .path.display()
    )]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The core's executable doesn't run.
    #[error("can't start {}: {error}", .path.display())]
    Spawn {
        /// The executable.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The socket can't be made, or nobody answers there.
    #[error("no connection to the engine core: {0}")]
    Transport(TransportError),
    /// The core's process ended without a word of this kind. What it wrote to standard error, which
    /// is this process's as well, says more.
    #[error("the engine core ended while it started{}: what it wrote above may say why", in_parentheses(.exit_status))]
    Exited {
        /// How it ended, as far as the system tells.
        exit_status: Option<ExitStatus>,
    },
    /// The two don't work together, or the core says that it can't start.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl From<TransportError> for EngineCoreStartupError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_a_bad_exit_status_is_told() {
        let dead = |status| {
            let error = EngineDeadError {
                reason: "it was told to end by a signal".to_owned(),
                exit_status: Some(ExitStatus::from_raw(status)),
            };
            error.to_string()
        };
        let ended = "the engine core died: it was told to end by a signal";
        assert_eq!(dead(0), ended);
        assert_eq!(dead(9), format!("{ended} (signal: 9 (SIGKILL))"));
    }
}
