//! Reading numbers and strings from bytes that may end at any place.

use crate::error::{GgufError, cut};

/// Most bytes of a header. A vocabulary of 256,000 tokens makes one of 20 MiB.
///
/// Numbers are kept as the file has them, and what takes more memory than it takes bytes is counted:
/// strings of arrays here, entries and tensors where they are read. So a file of any size takes at most
/// half a gigabyte to read.
const MAX_HEADER_LEN: usize = 128 << 20;

/// Most strings of all arrays: five times a vocabulary of 256,000 tokens with its merges.
const MAX_STRINGS: usize = 1 << 22;

/// A place in a file. Every read names what it reads, for the error where the file ends.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether the file goes on after `bytes`.
    limited: bool,
    /// Strings of arrays that may yet come.
    strings_left: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of a file.
    pub(crate) fn new(file: &'a [u8]) -> Self {
        Self {
            bytes: &file[..file.len().min(MAX_HEADER_LEN)],
            at: 0,
            limited: file.len() > MAX_HEADER_LEN,
            strings_left: MAX_STRINGS,
        }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn truncated(&self, what: &str) -> GgufError {
        if self.limited {
            let problem = format!("the header is longer than {} MiB", MAX_HEADER_LEN >> 20);
            return GgufError::invalid(what, problem);
        }
        GgufError::Truncated {
            len: self.bytes.len(),
            what: what.to_owned(),
        }
    }

    pub(crate) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], GgufError> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.truncated(what))?;
        self.at += len;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let bytes = self.take(N, what)?;
        <[u8; N]>::try_from(bytes).map_err(|_| self.truncated(what))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number of things that take at least `least_bytes` each: more than the rest of the file
    /// can hold are an error, so that memory for them may be taken at once.
    pub(crate) fn count(&mut self, least_bytes: usize, what: &str) -> Result<usize, GgufError> {
        let count = self.u64(what)?;
        match usize::try_from(count) {
            Ok(count) if count <= self.remaining() / least_bytes.max(1) => Ok(count),
            _ => Err(GgufError::invalid(
                what,
                format!(
                    "{count} is more than the {} bytes that follow can hold",
                    self.remaining()
                ),
            )),
        }
    }

    /// A number of things as above that must be at most `most`.
    pub(crate) fn count_up_to(
        &mut self,
        most: usize,
        least_bytes: usize,
        what: &str,
    ) -> Result<usize, GgufError> {
        let count = self.count(least_bytes, what)?;
        if count > most {
            let problem = format!("{count} must be at most {most}");
            return Err(GgufError::invalid(what, problem));
        }
        Ok(count)
    }

    /// An array's strings, of which there are `len`.
    pub(crate) fn strings(&mut self, len: usize, what: &str) -> Result<Vec<String>, GgufError> {
        self.strings_left = self.strings_left.checked_sub(len).ok_or_else(|| {
            let problem = format!("all arrays must have at most {MAX_STRINGS} strings");
            GgufError::invalid(what, problem)
        })?;
        let mut strings = Vec::with_capacity(len);
        for _ in 0..len {
            strings.push(self.string(what)?.to_owned());
        }
        Ok(strings)
    }

    pub(crate) fn string(&mut self, what: &str) -> Result<&'a str, GgufError> {
        let len = self.count(1, &format!("the length of {what}"))?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|error| {
            let shown = cut(&String::from_utf8_lossy(bytes));
            let at = error.valid_up_to();
            GgufError::invalid(what, format!("\"{shown}\" is no UTF-8 from byte {at} on"))
        })
    }
}
