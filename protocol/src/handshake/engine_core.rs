//! The core's side of the handshake, over the blocking socket.

use std::time::Duration;

use super::{EngineHandshakeMetadata, HandshakeError, Hello, check_versions, received, sent};
use crate::transport::{FrameReader, FrameWriter};

/// Exchanges [`Hello`]s with a frontend, and receives what it has to say.
///
/// Afterwards the core sends [`super::EngineCoreStartupMessage`]s. `timeout` is the longest wait
/// for each of the frontend's two messages.
///
/// # Errors
/// [`HandshakeError::VersionMismatch`], which the frontend reports too,
/// [`HandshakeError::Closed`] and [`HandshakeError::Transport`].
pub fn startup_handshake(
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    timeout: Duration,
) -> Result<EngineHandshakeMetadata, HandshakeError> {
    let own = Hello::current();
    sent("Hello", writer.write(&own))?;
    let frontend = received("Hello", reader.read_within(timeout))?;
    check_versions(frontend, own)?;
    received("EngineHandshakeMetadata", reader.read_within(timeout))
}
