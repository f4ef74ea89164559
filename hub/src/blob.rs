//! The download of one file: it goes on where it was cut, and is compared with its checksum.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use ureq::http::{HeaderMap, StatusCode};

use crate::cache::{RepositoryCache, at, make_folder_of};
use crate::client::{Client, Request};
use crate::digest::FileDigest;
use crate::error::HubError;
use crate::fetch::Meter;
use crate::limits::{ATTEMPTS, CHUNK, PROGRESS_BYTES, READ_TIMEOUT};
use crate::listing::{RemoteFile, resolve_path};
use crate::lock;
use crate::name::HubName;
use crate::refusal::refusal;
use crate::retry::{RequestError, Retry};
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
    /// Another attempt may go on from there, if the error is transient.
    Request(RequestError),
    Final(HubError),
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
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
    /// Puts a file's content where the cache has it, unless it is there. Content of another length is damaged.
    pub(crate) fn download(&self, file: &RemoteFile) -> Result<(), HubError> {
        let blob = self.cache.blob(&file.blob);
        let _lock = lock::wait_for(&self.cache.lock(&file.blob), &file.path)?;
        // A removal may have held the lock.
        make_folder_of(&blob)?;
        if self.cache.has_blob(file) {
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

    /// Opens what there is of a blob, and hashes it.
    fn open_part(&self, file: &RemoteFile) -> Result<Part, HubError> {
        let path = self.cache.incomplete(&file.blob);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut part = Part {
            file: options.open(&path).map_err(at(&path))?,
            path: path.clone(),
            digest: FileDigest::new(&file.blob, file.bytes),
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
        let mut retry = Retry::new(ATTEMPTS, self.settings.retry_pause);
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
            let error = match self.transfer(part, file) {
                Ok(()) => continue,
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Request(error)) => error,
            };
            if part.written.saturating_sub(before) >= PROGRESS_BYTES {
                retry.reset();
            }
            if !retry.wait(&file.path, &error) {
                return Err(HubError::Interrupted {
                    repository: self.name.repository.clone(),
                    file: file.path.clone(),
                    attempts: retry.failures(),
                    why: error.why,
                });
            }
        }
    }

    fn verify(&self, part: &Part, file: &RemoteFile) -> Result<(), HubError> {
        match part.digest.finish() {
            Some((kind, found)) if !found.eq_ignore_ascii_case(&file.blob) => {
                Err(HubError::Checksum {
                    repository: self.name.repository.clone(),
                    file: file.path.clone(),
                    kind,
                    announced: file.blob.clone(),
                    found,
                })
            }
            Some(_) => Ok(()),
            None => {
                tracing::warn!(
                    "{} of {} is not verified: the server has no checksum of it, as some mirrors haven't",
                    file.path,
                    self.name.repository
                );
                Ok(())
            }
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
        let response =
            self.client
                .send(&path, Request::Get { from: part.written }, READ_TIMEOUT)?;
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
                    RequestError::transient("a part of the file came without its place in it")
                })?;
                if start != part.written {
                    let why = "another part of the file came than was asked for";
                    return Err(RequestError::transient(why).into());
                }
                length = total.or(length.map(|length| length.saturating_add(start)));
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.restart(part, file)?;
                let why = "the server has no such part of the file";
                return Err(RequestError::transient(why).into());
            }
            status => return Err(self.refused(file, status, &head.headers)),
        }
        if let Some(length) = length.filter(|length| *length != file.bytes) {
            return Err(self.wrong_length(file, length).into());
        }
        self.copy(&mut body.into_reader(), part, file)
    }

    /// The failure that a status is, which is neither of content nor of a redirect.
    fn refused(&self, file: &RemoteFile, status: StatusCode, headers: &HeaderMap) -> Failure {
        if let Some(busy) = RequestError::of_busy(status, headers) {
            return busy.into();
        }
        // The address of a storage is good for some minutes. The Hub itself says why it refuses.
        if status == StatusCode::FORBIDDEN && !headers.contains_key("x-error-code") {
            return RequestError::transient(format!("the server answers {status}")).into();
        }
        refusal(self.client, self.name, Some(&file.path), status, headers).into()
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
                Err(error) => return Err(RequestError::transient(error.to_string()).into()),
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
            false => {
                let (written, whole) = (part.written, file.bytes);
                let why = format!("the connection ended after {written} of {whole} bytes");
                Err(RequestError::transient(why).into())
            }
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
                    what: format!("{} of {}", file.path, self.name.repository),
                    missing: file.bytes.saturating_sub(part.written),
                    free: None,
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
        self.digest = FileDigest::new(&file.blob, file.bytes);
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
