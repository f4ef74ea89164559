//! The download of one file: it goes on where it was cut, and is compared with its checksum.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use ureq::http::StatusCode;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE};

use crate::cache::{RepositoryCache, at, make_folder_of};
use crate::client::{Client, Request, RequestError};
use crate::digest::FileDigest;
use crate::error::HubError;
use crate::fetch::Meter;
use crate::limits::{ATTEMPTS, CHUNK, LONGEST_PAUSE, PROGRESS_BYTES};
use crate::listing::{RemoteFile, refusal, resolve_path};
use crate::name::HubName;
use crate::settings::HubSettings;

/// What the downloads of one repository share.
pub(crate) struct Downloads<'a> {
    pub(crate) client: &'a Client,
    pub(crate) settings: &'a HubSettings,
    pub(crate) name: &'a HubName,
    pub(crate) commit: &'a str,
    pub(crate) cache: &'a RepositoryCache,
    pub(crate) meter: &'a Meter<'a>,
    /// Set when one has failed: the others end, and keep what they have.
    pub(crate) is_stopped: &'a AtomicBool,
}

/// Why an attempt ended early.
enum Failure {
    /// Another attempt may go on from there.
    Cut(String),
    Final(HubError),
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::Cut(error.why)
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        Self::Final(error)
    }
}

/// A blob that grows.
struct Part {
    file: File,
    path: PathBuf,
    digest: FileDigest,
    written: u64,
}

impl Downloads<'_> {
    /// Puts a file's content where the cache has it, unless it is there.
    pub(crate) fn download(&self, file: &RemoteFile) -> Result<(), HubError> {
        let blob = self.cache.blob(&file.etag);
        make_folder_of(&blob)?;
        let _lock = self.lock(file)?;
        if blob.is_file() {
            // Another process was faster, or another revision has the same file.
            self.meter.add(file.bytes);
            return Ok(());
        }
        let mut part = self.open_part(file)?;
        self.meter.add(part.written);
        self.fill(&mut part, file)?;
        part.file.sync_all().map_err(at(&part.path))?;
        fs::rename(&part.path, &blob).map_err(at(&blob))
    }

    /// Waits until no other process downloads the same blob.
    fn lock(&self, file: &RemoteFile) -> Result<File, HubError> {
        let path = self.cache.lock(&file.etag);
        make_folder_of(&path)?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tracing::info!(
                    "{} is downloaded by another process; waiting for it",
                    file.path
                );
                lock.lock().map_err(at(&path))?;
            }
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
        Ok(lock)
    }

    /// Opens what there is of a blob, and hashes it.
    fn open_part(&self, file: &RemoteFile) -> Result<Part, HubError> {
        let path = self.cache.incomplete(&file.etag);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut part = Part {
            file: options.open(&path).map_err(at(&path))?,
            path: path.clone(),
            digest: FileDigest::new(&file.etag, file.bytes),
            written: 0,
        };
        let hashed = part.hash_what_is_there(file.bytes);
        hashed.map_err(at(&path))?;
        if part.written > file.bytes {
            part.restart(file).map_err(at(&path))?;
        }
        Ok(part)
    }

    /// Downloads until the part is whole and what it should be.
    fn fill(&self, part: &mut Part, file: &RemoteFile) -> Result<(), HubError> {
        let mut was_begun_before = part.written > 0;
        let mut failures = 0;
        let mut pause = self.settings.retry_pause;
        loop {
            if part.written == file.bytes {
                match self.verify(part, file) {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        self.restart(part, file)?;
                        if !was_begun_before {
                            // An empty file would be taken for a beginning.
                            let _ = fs::remove_file(&part.path);
                            return Err(error);
                        }
                        // What an earlier process left may be the fault.
                        was_begun_before = false;
                    }
                }
            }
            let before = part.written;
            let why = match self.transfer(part, file) {
                Ok(()) => continue,
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Cut(why)) => why,
            };
            if part.written.saturating_sub(before) >= PROGRESS_BYTES {
                failures = 0;
                pause = self.settings.retry_pause;
            }
            failures += 1;
            if failures >= ATTEMPTS {
                return Err(HubError::Interrupted {
                    repository: self.name.repository.clone(),
                    file: file.path.clone(),
                    attempts: failures,
                    why,
                });
            }
            tracing::debug!("{}: {why}; trying again", file.path);
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    fn verify(&self, part: &Part, file: &RemoteFile) -> Result<(), HubError> {
        match part.digest.finish() {
            Some((kind, found)) if !found.eq_ignore_ascii_case(&file.etag) => {
                Err(HubError::Checksum {
                    repository: self.name.repository.clone(),
                    file: file.path.clone(),
                    kind,
                    announced: file.etag.clone(),
                    found,
                })
            }
            _ => Ok(()),
        }
    }

    fn restart(&self, part: &mut Part, file: &RemoteFile) -> Result<(), HubError> {
        self.meter.take_back(part.written);
        part.restart(file).map_err(at(&part.path))
    }

    /// One request for what is missing. `Ok` once the part has its length.
    fn transfer(&self, part: &mut Part, file: &RemoteFile) -> Result<(), Failure> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(HubError::Stopped.into());
        }
        let path = resolve_path(&self.name.repository, self.commit, &file.path);
        let response = self
            .client
            .send(&path, Request::Get { from: part.written })?;
        let (head, body) = response.into_parts();
        let number = |name| -> Option<u64> { head.headers.get(name)?.to_str().ok()?.parse().ok() };
        let mut length = number(CONTENT_LENGTH);
        match head.status {
            StatusCode::OK => self.restart(part, file)?,
            StatusCode::PARTIAL_CONTENT => {
                let range = head
                    .headers
                    .get(CONTENT_RANGE)
                    .and_then(|range| range.to_str().ok());
                let (start, total) = range.and_then(content_range).ok_or_else(|| {
                    Failure::Cut("a part of the file came without its place in it".to_owned())
                })?;
                if start != part.written {
                    return Err(Failure::Cut(
                        "another part of the file came than was asked for".to_owned(),
                    ));
                }
                length = total.or(length.map(|length| length.saturating_add(start)));
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.restart(part, file)?;
                return Err(Failure::Cut(
                    "the server has no such part of the file".to_owned(),
                ));
            }
            // An address of a storage that is good for some minutes, among others.
            status if status.is_server_error() || matches!(status.as_u16(), 403 | 408 | 429) => {
                return Err(Failure::Cut(format!("the server answers {status}")));
            }
            status => {
                return Err(
                    refusal(self.client, self.settings, self.name, status, &head.headers).into(),
                );
            }
        }
        if let Some(length) = length.filter(|length| *length != file.bytes) {
            return Err(self.wrong_length(file, length).into());
        }
        self.copy(&mut body.into_reader(), part, file)
    }

    /// Writes what arrives until the part has its length.
    fn copy(
        &self,
        body: &mut impl Read,
        part: &mut Part,
        file: &RemoteFile,
    ) -> Result<(), Failure> {
        let mut chunk = vec![0; CHUNK];
        loop {
            if self.is_stopped.load(Ordering::Relaxed) {
                return Err(HubError::Stopped.into());
            }
            let read = match body.read(&mut chunk) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Cut(error.to_string())),
            };
            let bytes = chunk.get(..read).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            let total = part.written.saturating_add(read as u64);
            if total > file.bytes {
                return Err(self.wrong_length(file, total).into());
            }
            part.append(bytes)
                .map_err(|error| self.unwritten(part, file, error))?;
            self.meter.add(read as u64);
        }
        match part.written == file.bytes {
            true => Ok(()),
            false => Err(Failure::Cut(format!(
                "the connection ended after {} of {} bytes",
                part.written, file.bytes
            ))),
        }
    }

    fn wrong_length(&self, file: &RemoteFile, found: u64) -> HubError {
        HubError::Length {
            repository: self.name.repository.clone(),
            file: file.path.clone(),
            announced: file.bytes,
            found,
        }
    }

    fn unwritten(&self, part: &Part, file: &RemoteFile, error: io::Error) -> HubError {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                HubError::DiskFull {
                    repository: self.name.repository.clone(),
                    file: file.path.clone(),
                    missing: file.bytes.saturating_sub(part.written),
                    cache: self.settings.cache.clone(),
                }
            }
            _ => at(&part.path)(error),
        }
    }
}

impl Part {
    /// Reads what an earlier process left, and goes on behind it.
    fn hash_what_is_there(&mut self, most: u64) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        while self.written <= most {
            match self.file.read(&mut chunk)? {
                0 => break,
                read => {
                    self.digest.update(chunk.get(..read).unwrap_or_default());
                    self.written += read as u64;
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // After a failed write there may be a piece of a chunk.
        self.file.seek(SeekFrom::Start(self.written))?;
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Throws away what there is.
    fn restart(&mut self, file: &RemoteFile) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.digest = FileDigest::new(&file.etag, file.bytes);
        self.written = 0;
        Ok(())
    }
}

/// The first byte of a `Content-Range`, and the file's length where it is said.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    let total = match total {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    Some((start.parse().ok()?, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_says_where_it_begins() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 0-9/*"), Some((0, None)));
        for nonsense in ["", "bytes */10", "bytes -9/10", "bytes 5-9/x", "5-9/10"] {
            assert_eq!(content_range(nonsense), None, "{nonsense}");
        }
    }
}
