//! The frontend's side of the handshake, over the async socket.

use std::time::Duration;

use super::{
    EngineCoreReadyResponse, EngineCoreStartupMessage, EngineHandshakeMetadata, HandshakeError,
    Hello, LoadProgress, check_versions, received, sent,
};
use crate::transport::tokio::{FrameReader, FrameWriter};

/// Exchanges [`Hello`]s with a core, sends `metadata`, and waits until the core is ready.
///
/// `on_progress` hears of the model's loading. `timeout` is the longest silence of the core: a
/// model that takes long to load is no failure as long as its progress comes in.
///
/// # Errors
/// [`HandshakeError::VersionMismatch`], which the core reports too,
/// [`HandshakeError::StartupFailure`] with the core's own words, [`HandshakeError::Closed`] where
/// it ended without any, and [`HandshakeError::Transport`].
pub async fn wait_for_engine_startup(
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    metadata: &EngineHandshakeMetadata,
    timeout: Duration,
    mut on_progress: impl FnMut(LoadProgress),
) -> Result<EngineCoreReadyResponse, HandshakeError> {
    let own = Hello::current();
    sent("Hello", writer.write(&own).await)?;
    let engine_core = received("Hello", reader.read_within(timeout).await)?;
    check_versions(own, engine_core)?;
    sent("EngineHandshakeMetadata", writer.write(metadata).await)?;
    loop {
        let message = reader.read_within(timeout).await;
        match received("EngineCoreReadyResponse", message)? {
            EngineCoreStartupMessage::LoadProgress(progress) => on_progress(progress),
            EngineCoreStartupMessage::Ready(response) => return Ok(response),
            EngineCoreStartupMessage::Failure(failure) => {
                return Err(HandshakeError::StartupFailure(failure));
            }
        }
    }
}
