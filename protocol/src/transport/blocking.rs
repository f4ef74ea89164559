//! The socket for threads that wait.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interprocess::local_socket::{self, prelude::*};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TransportError;
use super::address;
use super::frame_buffer::FrameBuffer;
use crate::codec::{self, MAX_FRAME};

/// Waits for connections at an address. Dropping it removes the socket file.
#[derive(Debug)]
pub struct Listener {
    inner: local_socket::Listener,
    address: PathBuf,
}

impl Listener {
    /// Listens on `address`, a path. A socket file that a killed process left there is replaced.
    ///
    /// # Errors
    /// [`TransportError::AddressInUse`], [`TransportError::NotASocket`] and
    /// [`TransportError::Listen`], all of which name the path.
    pub fn bind(address: &Path) -> Result<Self, TransportError> {
        let inner = address::bind(address, |options| options.create_sync())?;
        Ok(Self {
            inner,
            address: address.to_owned(),
        })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`TransportError::Listen`] where the system refuses, such as at too many open files.
    pub fn accept(&self) -> Result<Stream, TransportError> {
        match self.inner.accept() {
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
    pub fn connect(address: &Path) -> Result<Self, TransportError> {
        match address::socket_name(address).and_then(local_socket::Stream::connect) {
            Ok(inner) => Ok(Self { inner }),
            Err(error) => Err(TransportError::Connect {
                address: address.to_owned(),
                error,
            }),
        }
    }

    /// The two directions, for two threads. Frames are at most [`MAX_FRAME`] bytes long.
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
        (
            reader,
            FrameWriter {
                stream,
                buffer: Vec::new(),
                max_frame,
            },
        )
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
    /// frames.
    ///
    /// # Errors
    /// [`TransportError::Codec`] for bytes that are no such message, and [`TransportError::Io`].
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(message) = self.buffer.next_message()? {
                return Ok(Some(message));
            }
            match self.fill()? {
                0 => return Ok(self.buffer.finish().map(|()| None)?),
                _ => continue,
            }
        }
    }

    /// As [`Self::read`], for at most `timeout` in all.
    ///
    /// # Errors
    /// Those of [`Self::read`], and [`TransportError::Timeout`].
    pub fn read_within<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<T>, TransportError> {
        let result = self.read_until(Instant::now() + timeout, timeout);
        self.stream.set_recv_timeout(None)?;
        result
    }

    fn read_until<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(message) = self.buffer.next_message()? {
                return Ok(Some(message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TransportError::Timeout(timeout));
            }
            self.stream.set_recv_timeout(Some(left))?;
            match self.fill() {
                Ok(0) => return Ok(self.buffer.finish().map(|()| None)?),
                Ok(_) => {}
                // The socket's own timeout has either name; the deadline above decides.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One read from the socket; 0 is its end.
    fn fill(&mut self) -> io::Result<usize> {
        loop {
            match (&*self.stream).read(self.buffer.space()) {
                Ok(count) => {
                    self.buffer.filled(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A peer that was killed with our bytes unread: no orderly end, but an end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The sending direction of a [`Stream`].
#[derive(Debug)]
pub struct FrameWriter {
    stream: Arc<local_socket::Stream>,
    /// One frame; reused.
    buffer: Vec<u8>,
    max_frame: usize,
}

impl FrameWriter {
    /// A handle that closes this connection from another thread.
    pub fn closer(&self) -> Closer {
        Closer {
            stream: Arc::clone(&self.stream),
        }
    }

    /// Sends a message: one system call where the socket has room for the frame.
    ///
    /// # Errors
    /// [`TransportError::Codec`] where the message has no frame: nothing was sent, and the
    /// connection is as before. [`TransportError::Io`] where the connection is gone.
    pub fn write<T: Serialize + DeserializeOwned>(
        &mut self,
        message: &T,
    ) -> Result<(), TransportError> {
        self.buffer.clear();
        codec::encode_frame(message, self.max_frame, &mut self.buffer)?;
        (&*self.stream).write_all(&self.buffer)?;
        if self.buffer.capacity() > MAX_KEPT_BUFFER {
            self.buffer = Vec::new();
        }
        Ok(())
    }
}

/// Closes a connection from any thread: reads and writes that wait on it end at once.
#[derive(Debug)]
pub struct Closer {
    stream: Arc<local_socket::Stream>,
}

impl Closer {
    /// Closes both directions, here and for the other side.
    ///
    /// # Errors
    /// [`TransportError::Io`] where the system refuses; a connection that the other side closed
    /// before is no error.
    pub fn close(&self) -> Result<(), TransportError> {
        let local_socket::Stream::UdSocket(socket) = &*self.stream;
        let socket = UnixStream::from(socket.as_fd().try_clone_to_owned()?);
        match socket.shutdown(Shutdown::Both) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// A buffer that one large frame made larger than this is given back.
const MAX_KEPT_BUFFER: usize = 1 << 20;
