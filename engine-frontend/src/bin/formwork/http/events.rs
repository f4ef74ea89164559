//! Server-sent events, as far as the API uses them: one line of data each, `[DONE]` the last.

use anyhow::bail;

use super::Answer;

/// A longer event is an error.
const MAX_EVENT: usize = 64 << 20;

/// The events of an answer.
#[derive(Debug)]
pub(crate) struct Events {
    answer: Answer,
    decoder: Decoder,
}

impl Events {
    pub(super) fn new(answer: Answer) -> Self {
        Self {
            answer,
            decoder: Decoder::default(),
        }
    }

    /// The next event's data; `None` after `[DONE]`. Safe to cancel.
    ///
    /// # Errors
    /// The connection broke, or the stream ended without `[DONE]`.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(data) = self.decoder.next()? {
                return Ok((data != "[DONE]").then_some(data));
            }
            match self.answer.piece().await? {
                Some(piece) => self.decoder.push(&piece),
                None => bail!("the stream ended without [DONE]"),
            }
        }
    }
}

/// Lines out of pieces that end anywhere.
#[derive(Debug, Default)]
struct Decoder {
    bytes: Vec<u8>,
    /// Where the lines that were given out end.
    taken: usize,
    /// How far no end of a line was found.
    searched: usize,
}

impl Decoder {
    fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// The data of the next event that is whole.
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            let rest = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.bytes.len();
                if self.searched - self.taken > MAX_EVENT {
                    bail!("an event is longer than {MAX_EVENT} bytes");
                }
                return Ok(None);
            };
            let end = self.searched + length;
            let line = self.bytes.get(self.taken..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.taken = end + 1;
            self.searched = end + 1;
            // Other lines are comments, fields that say nothing here, and the ends of events.
            if let Some(data) = line.strip_prefix(b"data:") {
                let data = data.strip_prefix(b" ").unwrap_or(data);
                return Ok(Some(String::from_utf8(data.to_vec())?));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_may_end_anywhere() {
        let text =
            ": keep-alive\n\nevent: x\ndata: {\"a\": \"é\"}\r\n\r\ndata:b\n\ndata: [DONE]\n\n";
        for size in 1..text.len() {
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                decoder.push(piece);
                while let Some(data) = decoder.next().unwrap() {
                    events.push(data);
                }
            }
            assert_eq!(events, ["{\"a\": \"é\"}", "b", "[DONE]"], "{size}");
        }
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        let mut decoder = Decoder::default();
        decoder.push(b"data: \xff\n");
        assert!(decoder.next().is_err());
    }
}
