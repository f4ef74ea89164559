//! The socket for async programs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use interprocess::local_socket::tokio as local_socket;
use interprocess::local_socket::traits::tokio::{Listener as _, Stream as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TransportError;
use super::address;
use super::frame_buffer::FrameBuffer;
use crate::codec::{self, MAX_FRAME};

/// Waits for connections at an address. Dropping it removes the socket file.
pub struct Listener {
    inner: local_socket::Listener,
    address: PathBuf,
}

impl Listener {
    /// As [`super::Listener::bind`], inside a tokio runtime.
    ///
    /// # Errors
    /// [`TransportError::AddressInUse`], [`TransportError::NotASocket`] and
    /// [`TransportError::Listen`], all of which name the path.
    pub fn bind(address: &Path) -> Result<Self, TransportError> {
        let inner = address::bind(address, |options| options.create_tokio())?;
        Ok(Self {
            inner,
            address: address.to_owned(),
        })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`TransportError::Listen`] where the system refuses, such as at too many open files.
    pub async fn accept(&self) -> Result<Stream, TransportError> {
        match self.inner.accept().await {
            Ok(inner) => Ok(Stream { inner }),
            Err(error) => Err(TransportError::Listen {
                address: self.address.clone(),
                error,
            }),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    inner: local_socket::Stream,
}

impl Stream {
    /// Connects to the listener at `address`, a path.
    ///
    /// # Errors
    /// [`TransportError::Connect`], which names the path.
    pub async fn connect(address: &Path) -> Result<Self, TransportError> {
        let connect_error = |error| TransportError::Connect {
            address: address.to_owned(),
            error,
        };
        let name = address::socket_name(address).map_err(connect_error)?;
        let inner = local_socket::Stream::connect(name)
            .await
            .map_err(connect_error)?;
        Ok(Self { inner })
    }

    /// The two directions, for two tasks. Frames are at most [`MAX_FRAME`] bytes long.
    pub fn split(self) -> (FrameReader, FrameWriter) {
        self.split_with_max_frame(MAX_FRAME)
    }

    /// As [`Self::split`], with a lower limit on the length of frames in both directions.
    pub fn split_with_max_frame(self, max_frame: usize) -> (FrameReader, FrameWriter) {
        let stream = Arc::new(self.inner);
        let reader = FrameReader {
            stream: Arc::clone(&stream),
            buffer: FrameBuffer::new(max_frame),
        };
        (reader, FrameWriter { stream, max_frame })
    }
}

/// The receiving direction of a [`Stream`].
///
/// After an error other than [`TransportError::Timeout`] the connection is of no use: drop it.
#[derive(Debug)]
pub struct FrameReader {
    stream: Arc<local_socket::Stream>,
    buffer: FrameBuffer,
}

impl FrameReader {
    /// Waits for the next message; `None` where the other side closed the connection between two
    /// frames. Dropping the future loses nothing: the next call goes on where it was.
    ///
    /// # Errors
    /// [`TransportError::Codec`] for bytes that are no such message, and [`TransportError::Io`].
    pub async fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(message) = self.buffer.next_message()? {
                return Ok(Some(message));
            }
            let count = match (&*self.stream).read(self.buffer.space()).await {
                // A peer that was killed with our bytes unread: no orderly end, but an end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                other => other?,
            };
            if count == 0 {
                return Ok(self.buffer.finish().map(|()| None)?);
            }
            self.buffer.filled(count);
        }
    }

    /// As [`Self::read`], for at most `timeout`.
    ///
    /// # Errors
    /// Those of [`Self::read`], and [`TransportError::Timeout`].
    pub async fn read_within<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<T>, TransportError> {
        match ::tokio::time::timeout(timeout, self.read()).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::Timeout(timeout)),
        }
    }
}

/// The sending direction of a [`Stream`].
#[derive(Debug)]
pub struct FrameWriter {
    stream: Arc<local_socket::Stream>,
    max_frame: usize,
}

impl FrameWriter {
    /// Sends a message. A future that is dropped half-way leaves half a frame on the connection:
    /// give the writer to a task that runs to its end.
    ///
    /// # Errors
    /// [`TransportError::Codec`] where the message has no frame: nothing was sent, and the
    /// connection is as before. [`TransportError::Io`] where the connection is gone.
    pub async fn write<T: Serialize + DeserializeOwned>(
        &mut self,
        message: &T,
    ) -> Result<(), TransportError> {
        let mut frame = Vec::new();
        codec::encode_frame(message, self.max_frame, &mut frame)?;
        self.write_frames(&frame).await
    }

    /// Sends frames that [`codec::encode_frame`] made, one after the other in `frames`. What
    /// [`Self::write`] says about dropped futures holds here.
    ///
    /// # Errors
    /// [`TransportError::Io`] where the connection is gone.
    pub async fn write_frames(&mut self, frames: &[u8]) -> Result<(), TransportError> {
        Ok((&*self.stream).write_all(frames).await?)
    }
}
