//! Messages as frames of bytes: the only file that knows which encoding is used.
//!
//! A frame is a `u32` in little-endian order, the length of the body, and then the body, one
//! message in bincode 2's standard configuration. Lengths that a body claims are never trusted:
//! whatever it holds, decoding takes no more memory than [`MAX_FRAME`] and a few MiB.

mod memory_budget;

use std::any::type_name;

use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use memory_budget::WithinBudget;

/// Longest body of a frame in bytes: 64 MiB.
pub const MAX_FRAME: usize = 64 << 20;

/// Bytes of a frame before its body.
pub const FRAME_HEADER: usize = 4;

/// A body up to this length takes less than [`MAX_FRAME`] of memory, whatever it holds: every byte
/// of a message stands for at most 3 * 30 in memory (an empty `EngineCoreOutput`, while its `Vec`
/// grows).
const ALWAYS_DECODABLE: usize = MAX_FRAME / 128;

/// Why bytes are not a message, or a message doesn't become bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The header of an incoming frame claims too much. Nothing of its body was read.
    #[error("frame of {length} bytes is longer than the limit of {max} bytes")]
    FrameTooLarge {
        /// What the header claims.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// The bytes ended inside a frame.
    #[error("connection ended inside a frame: {have} of {need} bytes arrived")]
    Truncated {
        /// Bytes of the frame that arrived, header included.
        have: usize,
        /// Bytes of the frame as far as it is known: the header's, until that is complete.
        need: usize,
    },
    /// A complete body that is not the expected message.
    #[error("frame is no {message_type}: {reason}")]
    Undecodable {
        /// The expected message.
        message_type: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// A message, and then more in the same body.
    #[error("frame goes on for {extra} byte(s) after its {message_type}")]
    TrailingBytes {
        /// The message.
        message_type: &'static str,
        /// Bytes after it.
        extra: usize,
    },
    /// An outgoing message that the other side would refuse. Nothing of it was sent.
    #[error("{message_type} doesn't fit a frame of {max} bytes")]
    MessageTooLarge {
        /// The message.
        message_type: &'static str,
        /// The limit.
        max: usize,
    },
    /// An outgoing message that has no encoding, such as a path that is not UTF-8.
    #[error("{message_type} can't be encoded: {reason}")]
    Unencodable {
        /// The message.
        message_type: &'static str,
        /// What was wrong.
        reason: String,
    },
}

/// Appends the frame of `message` to `buffer`.
///
/// The body is at most `max_frame` bytes long, and never more than [`MAX_FRAME`]. What this returns
/// is also within the limits of [`decode_body`]: a large body (above 512 KiB) is decoded once to
/// make sure, so that the receiver of a frame never has to refuse it.
///
/// # Errors
/// [`CodecError::MessageTooLarge`] and [`CodecError::Unencodable`]; `buffer` is then as before.
pub fn encode_frame<T: Serialize + DeserializeOwned>(
    message: &T,
    max_frame: usize,
    buffer: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let start = buffer.len();
    let result = append_frame(message, max_frame.min(MAX_FRAME), buffer);
    if result.is_err() {
        buffer.truncate(start);
    }
    result
}

fn append_frame<T: Serialize + DeserializeOwned>(
    message: &T,
    max_frame: usize,
    buffer: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let too_large = || CodecError::MessageTooLarge {
        message_type: short_name::<T>(),
        max: max_frame,
    };
    let start = buffer.len();
    buffer.extend_from_slice(&[0; FRAME_HEADER]);
    let body = start + FRAME_HEADER;

    let mut writer = LimitedWriter {
        buffer,
        end: body + max_frame,
        is_full: false,
    };
    let encoded =
        bincode::serde::encode_into_writer(message, &mut writer, bincode::config::standard());
    if writer.is_full {
        return Err(too_large());
    }
    encoded.map_err(|error| CodecError::Unencodable {
        message_type: short_name::<T>(),
        reason: describe_encode_error(&error),
    })?;

    let length = buffer.len() - body;
    if length > ALWAYS_DECODABLE && decode_body::<T>(&buffer[body..]).is_err() {
        return Err(too_large());
    }
    let header = u32::try_from(length)
        .map_err(|_| too_large())?
        .to_le_bytes();
    buffer[start..body].copy_from_slice(&header);
    Ok(())
}

/// Length of the body that a frame's header announces.
///
/// # Errors
/// [`CodecError::FrameTooLarge`] above `max_frame` or [`MAX_FRAME`].
pub fn decode_header(header: [u8; FRAME_HEADER], max_frame: usize) -> Result<usize, CodecError> {
    let max = max_frame.min(MAX_FRAME);
    // A length that is no usize (16-bit machines) is too large as well.
    let length = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length > max {
        Err(CodecError::FrameTooLarge { length, max })
    } else {
        Ok(length)
    }
}

/// The message that a frame's body holds. Takes at most [`MAX_FRAME`] bytes of memory, and a few
/// MiB.
///
/// # Errors
/// [`CodecError::Undecodable`] and [`CodecError::TrailingBytes`].
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    let config = bincode::config::standard().with_limit::<MAX_FRAME>();
    let decoded = bincode::serde::borrow_decode_from_slice(body, config);
    let (WithinBudget::<T, MAX_FRAME>(message), length) =
        decoded.map_err(|error| CodecError::Undecodable {
            message_type: short_name::<T>(),
            reason: describe_decode_error(error),
        })?;
    match body.len() - length {
        0 => Ok(message),
        extra => Err(CodecError::TrailingBytes {
            message_type: short_name::<T>(),
            extra,
        }),
    }
}

/// Appends to a buffer, up to a length.
struct LimitedWriter<'a> {
    buffer: &'a mut Vec<u8>,
    /// Most bytes that `buffer` may hold.
    end: usize,
    /// Whether a write didn't fit.
    is_full: bool,
}

impl Writer for &mut LimitedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        if self.end - self.buffer.len() < bytes.len() {
            self.is_full = true;
            return Err(EncodeError::UnexpectedEnd);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}

/// A type's name without its path.
fn short_name<T>() -> &'static str {
    let name = type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}

fn describe_encode_error(error: &EncodeError) -> String {
    match error {
        EncodeError::Other(reason) => (*reason).to_owned(),
        EncodeError::OtherString(reason) => reason.clone(),
        other => other.to_string(),
    }
}

fn describe_decode_error(error: DecodeError) -> String {
    match error {
        DecodeError::UnexpectedEnd { additional } => {
            format!("it ends too early, at least {additional} more bytes were due")
        }
        DecodeError::LimitExceeded => {
            format!("it claims more than the limit of {MAX_FRAME} bytes")
        }
        DecodeError::Utf8 { inner } => format!("a string in it is not UTF-8: {inner}"),
        DecodeError::InvalidBooleanValue(value) => {
            format!("a flag in it is {value}, neither 0 nor 1")
        }
        DecodeError::UnexpectedVariant {
            type_name, found, ..
        } => {
            format!("a value of {type_name} in it has the unknown variant {found}")
        }
        DecodeError::OtherString(reason) => reason,
        DecodeError::Other(reason) => reason.to_owned(),
        other => other.to_string(),
    }
}
