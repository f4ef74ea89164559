//! Lines of the input, one at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::error::BatchError;

/// Longest line that is read; the request in a longer one would not fit into a frame either.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// A line that isn't blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLine {
    /// 1-based, blank lines counted.
    pub number: u64,
    /// The line without its end, or `None` where it is longer than [`MAX_LINE_BYTES`].
    pub bytes: Option<Vec<u8>>,
    /// Bytes of the input up to the end of this line.
    pub end_offset: u64,
}

impl InputLine {
    /// Bytes that it holds.
    pub(super) fn num_bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, Vec::len)
    }
}

/// Reads lines; skips blank ones. Takes the memory of one line.
pub struct InputReader {
    reader: Box<dyn BufRead + Send>,
    number: u64,
    offset: u64,
    max_line_bytes: usize,
}

impl std::fmt::Debug for InputReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputReader")
            .field("number", &self.number)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl InputReader {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    /// The file can't be opened, or is a folder.
    pub fn open(path: &Path) -> Result<Self, BatchError> {
        if path == Path::new("-") {
            return Ok(Self::new(BufReader::new(io::stdin())));
        }
        let open = || {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Self::new(BufReader::new(file))),
            Err(source) => Err(BatchError::Input {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Reads from anywhere.
    pub fn new(reader: impl BufRead + Send + 'static) -> Self {
        Self {
            reader: Box::new(reader),
            number: 0,
            offset: 0,
            max_line_bytes: MAX_LINE_BYTES,
        }
    }

    /// The next line that isn't blank.
    ///
    /// # Errors
    /// Reading failed.
    pub fn next_line(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            let mut bytes = Vec::new();
            let limit = self.max_line_bytes as u64 + 1;
            let read = (&mut self.reader)
                .take(limit)
                .read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.offset += read as u64;
            let too_long = bytes.len() > self.max_line_bytes && bytes.last() != Some(&b'\n');
            if too_long {
                self.skip_line()?;
            }
            while bytes
                .last()
                .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
            {
                bytes.pop();
            }
            if self.number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
                bytes.drain(..3);
            }
            if !too_long && bytes.trim_ascii().is_empty() {
                continue;
            }
            return Ok(Some(InputLine {
                number: self.number,
                bytes: (!too_long).then_some(bytes),
                end_offset: self.offset,
            }));
        }
    }

    /// Counts the lines that are left. Takes the memory of one.
    ///
    /// # Errors
    /// Reading failed.
    pub fn count(mut self) -> io::Result<u64> {
        let mut count = 0;
        while self.next_line()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Skips the rest of a line without holding it.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(used);
            self.offset += used as u64;
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn lines(text: &'static [u8], max_line_bytes: usize) -> Vec<(u64, Option<String>, u64)> {
        let mut reader = InputReader::new(Cursor::new(text));
        reader.max_line_bytes = max_line_bytes;
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            let text = line.bytes.map(|bytes| String::from_utf8(bytes).unwrap());
            lines.push((line.number, text, line.end_offset));
        }
        lines
    }

    #[test]
    fn blank_lines_count_but_are_skipped() {
        assert_eq!(
            lines(b"\xef\xbb\xbfa\r\n\n  \t\nb\nlast", 100),
            [
                (1, Some("a".to_owned()), 6),
                (4, Some("b".to_owned()), 13),
                (5, Some("last".to_owned()), 17),
            ]
        );
    }

    #[test]
    fn long_lines_are_skipped_without_being_held() {
        assert_eq!(
            lines(b"abcde\nabcdef\nabcdefghijk\nx", 5),
            [
                (1, Some("abcde".to_owned()), 6),
                (2, None, 13),
                (3, None, 25),
                (4, Some("x".to_owned()), 26),
            ]
        );
    }

    #[test]
    fn missing_files_and_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("none"), folder.path().to_owned()] {
            let error = InputReader::open(&path).unwrap_err();
            assert!(error.to_string().contains(&path.display().to_string()));
            assert_eq!(error.exit_code(), 1);
        }
    }
}
