//! Frames over a local socket: blocking here, for async programs in `transport::tokio`.
//!
//! A socket has an address, which is a path. Only the user who runs the listener (and root) can
//! connect: a spawned core's socket lies in a directory of mode 0700 ([`PrivateAddress`]), and
//! every socket file has mode 0600. Linux's abstract names are not used, since any user of the
//! machine may connect to those.
//!
//! A connection is a [`Stream`], split into a [`FrameReader`] and a [`FrameWriter`] so that two
//! threads can use it; it closes when both halves are dropped.

mod address;
mod blocking;
mod frame_buffer;
#[cfg(feature = "tokio")]
pub mod tokio;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use address::{PrivateAddress, bind_unix_listener};
pub use blocking::{Closer, FrameReader, FrameWriter, Listener, Stream};

use crate::codec::CodecError;

/// Why a socket can't be used, or no longer. Messages hold their causes' text, so that `source()`
/// repeats nothing.
#[derive(Debug, Error)]
pub enum TransportError {
    /// Another process listens there.
    #[error("address {} is in use by another process: end that one, or choose another path", .address.display())]
    AddressInUse {
        /// The path.
        address: PathBuf,
    },
    /// Something that is not a socket has that name. It is left alone.
    #[error("{} exists and is not a socket: choose another path", .address.display())]
    NotASocket {
        /// The path.
        address: PathBuf,
    },
    /// The socket can't be made.
    #[error("can't listen on {}: {error}", .address.display())]
    Listen {
        /// The path.
        address: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Nobody answers there.
    #[error("can't connect to {}: {error}", .address.display())]
    Connect {
        /// The path.
        address: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// No message came in time. What has arrived of one is kept.
    #[error("no message within {0:?}")]
    Timeout(Duration),
    /// Reading or writing failed; the connection is of no use any more.
    #[error("connection failed: {0}")]
    Io(io::Error),
    /// Bytes that are no message, or a message that has no bytes.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
