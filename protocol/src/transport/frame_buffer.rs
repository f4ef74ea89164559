//! Bytes on their way in, cut into frames: what the blocking and the async reader share.

use serde::de::DeserializeOwned;

use crate::codec::{self, CodecError, FRAME_HEADER, MAX_FRAME};

/// Room for one read: most frames fit, so that most reads bring whole frames.
const READ_SIZE: usize = 64 << 10;

/// A buffer that grew beyond this for one large frame is given back after it.
const KEEP_SIZE: usize = 1 << 20;

/// Bytes that arrived and are not decoded yet.
#[derive(Debug)]
pub(super) struct FrameBuffer {
    /// Initialised memory; `start..end` of it is in use.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    max_frame: usize,
}

impl FrameBuffer {
    pub(super) fn new(max_frame: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            max_frame: max_frame.min(MAX_FRAME),
        }
    }

    /// Takes the next message out, or `None` if its frame is not complete.
    pub(super) fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CodecError> {
        let Some(length) = self.frame_length()? else {
            return Ok(None);
        };
        let pending = &self.bytes[self.start..self.end];
        let Some(frame) = pending.get(..length) else {
            return Ok(None);
        };
        let message = codec::decode_body(&frame[FRAME_HEADER..]);
        self.start += length;
        self.shrink();
        message.map(Some)
    }

    /// Where the next read puts its bytes; never empty. [`Self::filled`] says how many came.
    ///
    /// Memory follows what has arrived, not what a header claims: it at most doubles per call.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let used = self.end - self.start;
        if self.bytes.len() - self.end < READ_SIZE / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = used;
            let most = (FRAME_HEADER + self.max_frame).max(READ_SIZE);
            let wanted = (2 * used).clamp(READ_SIZE, most);
            // At the most, a frame that is not complete leaves room for the rest of it.
            if self.bytes.len() < wanted {
                self.bytes.resize(wanted, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// The last [`Self::space`] received `count` bytes.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// No more bytes will come: an error if they ended inside a frame.
    pub(super) fn finish(&self) -> Result<(), CodecError> {
        match self.end - self.start {
            0 => Ok(()),
            have => {
                let need = self.frame_length()?.unwrap_or(FRAME_HEADER);
                Err(CodecError::Truncated { have, need })
            }
        }
    }

    /// Length of the next frame, header included, once the header is complete.
    fn frame_length(&self) -> Result<Option<usize>, CodecError> {
        match self.bytes[self.start..self.end].first_chunk() {
            None => Ok(None),
            Some(header) => Ok(Some(
                FRAME_HEADER + codec::decode_header(*header, self.max_frame)?,
            )),
        }
    }

    /// Forgets the consumed part where that costs nothing.
    fn shrink(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > KEEP_SIZE {
                self.bytes = Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UtilityResult;

    fn frame(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::encode_frame(
            &UtilityResult::Success(text.to_owned()),
            MAX_FRAME,
            &mut bytes,
        )
        .unwrap();
        bytes
    }

    /// Feeds `bytes` in pieces of at most `piece` bytes and collects the messages.
    fn feed(buffer: &mut FrameBuffer, mut bytes: &[u8], piece: usize) -> Vec<UtilityResult> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let space = buffer.space();
            let count = bytes.len().min(piece).min(space.len());
            assert!(count > 0, "no room for the next read");
            space[..count].copy_from_slice(&bytes[..count]);
            buffer.filled(count);
            bytes = &bytes[count..];
            while let Some(message) = buffer.next_message().unwrap() {
                messages.push(message);
            }
        }
        messages
    }

    #[test]
    fn frames_come_out_whole_whatever_the_pieces() {
        let texts = [
            String::new(),
            "a".repeat(3),
            "b".repeat(70_000),
            "c".repeat(3_000_000),
            "d".into(),
        ];
        let bytes: Vec<u8> = texts.iter().flat_map(|text| frame(text)).collect();
        let expected: Vec<_> = texts.iter().cloned().map(UtilityResult::Success).collect();
        for piece in [1000, 4096, 65_536, usize::MAX] {
            let mut buffer = FrameBuffer::new(MAX_FRAME);
            assert_eq!(
                feed(&mut buffer, &bytes, piece),
                expected,
                "pieces of {piece}"
            );
            assert_eq!(buffer.finish(), Ok(()));
        }
        let mut buffer = FrameBuffer::new(MAX_FRAME);
        assert_eq!(feed(&mut buffer, &bytes[..70_000], 1), expected[..2]);
    }

    #[test]
    fn a_frame_of_exactly_the_limit_fits_and_one_more_byte_does_not() {
        let bytes = frame(&"x".repeat(200_000));
        let body = bytes.len() - FRAME_HEADER;
        assert_eq!(
            feed(&mut FrameBuffer::new(body), &bytes, usize::MAX).len(),
            1
        );

        let mut buffer = FrameBuffer::new(body - 1);
        buffer.space()[..FRAME_HEADER].copy_from_slice(&bytes[..FRAME_HEADER]);
        buffer.filled(FRAME_HEADER);
        assert_eq!(
            buffer.next_message::<UtilityResult>(),
            Err(CodecError::FrameTooLarge {
                length: body,
                max: body - 1
            })
        );
    }

    #[test]
    fn an_end_inside_a_frame_says_how_much_is_missing() {
        let bytes = frame("hello");
        for have in 1..bytes.len() {
            let mut buffer = FrameBuffer::new(MAX_FRAME);
            assert!(feed(&mut buffer, &bytes[..have], usize::MAX).is_empty());
            let need = if have < FRAME_HEADER {
                FRAME_HEADER
            } else {
                bytes.len()
            };
            assert_eq!(buffer.finish(), Err(CodecError::Truncated { have, need }));
        }
    }

    #[test]
    fn a_large_frame_leaves_no_large_buffer() {
        let mut buffer = FrameBuffer::new(MAX_FRAME);
        feed(&mut buffer, &frame(&"x".repeat(5_000_000)), usize::MAX);
        assert!(buffer.bytes.capacity() <= KEEP_SIZE);
    }
}
