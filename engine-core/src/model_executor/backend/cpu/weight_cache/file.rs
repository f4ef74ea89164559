//! The file: a mark, the panels of one matrix after the other, a table of them, and a trailer that
//! holds the table's length and checksum. The trailer comes last, so a file that was cut has none.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::CachedMatrix;
use super::trust::{self, Distrust};
use crate::lock::lock;
use crate::model_executor::backend::cpu::buffer::SharedMut;
use crate::model_executor::compute_pool::{ComputePool, PoolError};
use crate::model_executor::mapped::open_plain_file;

/// To be raised with every change of what is written: the panels' layout, the choice of scales, what a
/// fingerprint is, this file's form. A test compares a checksum of packed weights to remind of it.
pub(super) const VERSION: u64 = 4;

/// How a file begins and ends.
const MARK: &[u8; 16] = b"formwork weights";

/// The table's length and checksum, and the mark.
const TRAILER_BYTES: u64 = 8 + 32 + 16;

/// Longest table that is read: some million matrices.
const MOST_TABLE_BYTES: u64 = 256 << 20;

/// Mode of a new file, less what the process's umask takes: nobody else may write to it, whatever the
/// umask is.
const FILE_MODE: u32 = 0o644;

/// Bytes of panels that share a checksum.
pub(super) const CHUNK_BYTES: usize = 2 << 20;

/// Where a matrix stands in a file.
struct Place {
    format: String,
    out_features: u64,
    in_features: u64,
    start: u64,
    num_bytes: u64,
    /// By chunk.
    checksums: Vec<String>,
}

/// Why a file is not read.
pub(super) enum Unusable {
    /// There is none.
    Missing,
    /// Others may have written it, or could exchange it.
    Distrusted(Distrust),
    /// It is not what it should be.
    Wrong(String),
}

/// A file whose table was read.
pub(super) struct CachedWeights {
    path: PathBuf,
    file: File,
    matrices: HashMap<String, Place>,
}

impl CachedWeights {
    /// Opens a file and reads its table.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(super) fn open(path: &Path, fingerprint: &str) -> Result<Self, Unusable> {
        if let Some(distrust) = trust::of_folder(path) {
            return Err(Unusable::Distrusted(distrust));
        }
        let file = match open_plain_file(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
            Err(error) => return Err(Unusable::Wrong(error.to_string())),
        };
        match trust::of_file(&file) {
            Ok(None) => {}
            Ok(Some(distrust)) => return Err(Unusable::Distrusted(distrust)),
            Err(error) => return Err(Unusable::Wrong(error.to_string())),
        }
        Self::read_file(path, file, fingerprint).map_err(Unusable::Wrong)
    }

    fn read_file(path: &Path, file: File, fingerprint: &str) -> Result<Self, String> {
        let table = read_table(&file)
            .map_err(|error| error.to_string())?
            .ok_or_else(|| "not a whole file of weights".to_owned())?;
        let value = |name: &str| table.get(name);
        if value("version").and_then(Value::as_u64) != Some(VERSION)
            || value("byte_order").and_then(Value::as_str) != Some(byte_order())
        {
            return Err("written by another version".to_owned());
        }
        if value("model").and_then(Value::as_str) != Some(fingerprint) {
            return Err("made from other files than the model's".to_owned());
        }
        let matrices = value("matrices")
            .and_then(Value::as_array)
            .and_then(|matrices| matrices.iter().map(place_of).collect::<Option<_>>())
            .ok_or_else(|| "its table can't be read".to_owned())?;
        Ok(Self {
            path: path.to_owned(),
            file,
            matrices,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a matrix into `to`; false where the file doesn't have it, or not as it was written.
    pub(super) fn read(
        &self,
        pool: &ComputePool,
        matrix: CachedMatrix<'_>,
        to: &mut [u8],
    ) -> Result<bool, PoolError> {
        let Some(place) = self.matrices.get(matrix.name) else {
            return Ok(false);
        };
        let as_asked = place.format == matrix.format
            && place.out_features == matrix.out_features as u64
            && place.in_features == matrix.in_features as u64
            && place.num_bytes == to.len() as u64
            && place.checksums.len() == to.len().div_ceil(CHUNK_BYTES);
        if !as_asked {
            return Ok(false);
        }
        let whole = AtomicBool::new(true);
        let len = to.len();
        let to = SharedMut::new(to);
        pool.run(place.checksums.len(), &|chunk, _| {
            let first = chunk * CHUNK_BYTES;
            let count = (len - first).min(CHUNK_BYTES);
            // SAFETY: each chunk belongs to one tile.
            let to = unsafe { std::slice::from_raw_parts_mut(to.ptr(first, count), count) };
            let read = self.file.read_exact_at(to, place.start + first as u64);
            if read.is_err() || checksum(to) != place.checksums[chunk] {
                whole.store(false, Ordering::Relaxed);
            }
        })?;
        Ok(whole.into_inner())
    }
}

/// The table of a file; `None` where it isn't one that was written to its end.
fn read_table(file: &File) -> io::Result<Option<Value>> {
    let len = file.metadata()?.len();
    let Some(table_end) = len
        .checked_sub(TRAILER_BYTES)
        .filter(|end| *end >= MARK.len() as u64)
    else {
        return Ok(None);
    };
    let mut mark = [0; MARK.len()];
    file.read_exact_at(&mut mark, 0)?;
    let mut trailer = [0; TRAILER_BYTES as usize];
    file.read_exact_at(&mut trailer, table_end)?;
    let (table_len, rest) = trailer.split_at(8);
    let (table_checksum, end_mark) = rest.split_at(32);
    let table_len = table_len.try_into().map_or(u64::MAX, u64::from_le_bytes);
    if &mark != MARK || end_mark != MARK || table_len > table_end.min(MOST_TABLE_BYTES) {
        return Ok(None);
    }
    let mut table = vec![0; table_len as usize];
    file.read_exact_at(&mut table, table_end - table_len)?;
    if blake3::hash(&table).as_bytes().as_slice() != table_checksum {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&table).ok())
}

fn place_of(matrix: &Value) -> Option<(String, Place)> {
    let number = |name: &str| matrix.get(name)?.as_u64();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let checksums = matrix.get("checksums")?.as_array()?;
    let place = Place {
        format: text(matrix.get("format")?)?,
        out_features: number("out_features")?,
        in_features: number("in_features")?,
        start: number("start")?,
        num_bytes: number("num_bytes")?,
        checksums: checksums.iter().map(text).collect::<Option<_>>()?,
    };
    Some((text(matrix.get("name")?)?, place))
}

/// A file on its way. It has its name only once it is whole.
pub(super) struct NewFile {
    path: PathBuf,
    fingerprint: String,
    /// From the first matrix on.
    open: Option<Unfinished>,
}

struct Unfinished {
    file: File,
    path: PathBuf,
    num_bytes: u64,
    matrices: Vec<Value>,
}

impl NewFile {
    pub(super) fn new(path: PathBuf, fingerprint: String) -> Self {
        Self {
            path,
            fingerprint,
            open: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a matrix.
    ///
    /// # Errors
    /// Outside, a panic of the pool; inside, what the disk says.
    pub(super) fn add(
        &mut self,
        pool: &ComputePool,
        matrix: CachedMatrix<'_>,
        panels: &[u8],
    ) -> Result<io::Result<()>, PoolError> {
        let checksums = checksums(pool, panels)?;
        Ok(self.write(matrix, panels, &checksums))
    }

    fn write(
        &mut self,
        matrix: CachedMatrix<'_>,
        panels: &[u8],
        checksums: &[String],
    ) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Unfinished::create(&self.path)?),
        };
        open.file.write_all(panels)?;
        open.matrices.push(json!({
            "name": matrix.name,
            "format": matrix.format,
            "out_features": matrix.out_features,
            "in_features": matrix.in_features,
            "start": open.num_bytes,
            "num_bytes": panels.len(),
            "checksums": checksums,
        }));
        open.num_bytes += panels.len() as u64;
        Ok(())
    }

    /// Writes the table and gives the file its name; its bytes, or `None` where nothing was added.
    pub(super) fn finish(&mut self) -> io::Result<Option<u64>> {
        let Some(mut open) = self.open.take() else {
            return Ok(None);
        };
        let table = json!({
            "version": VERSION,
            "byte_order": byte_order(),
            "model": self.fingerprint,
            "matrices": std::mem::take(&mut open.matrices),
        });
        let table = table.to_string();
        let mut end = table.clone().into_bytes();
        end.extend((table.len() as u64).to_le_bytes());
        end.extend(blake3::hash(table.as_bytes()).as_bytes());
        end.extend(MARK);
        open.file.write_all(&end)?;
        // Not synced: after a loss of power the checksums tell.
        std::fs::rename(&open.path, &self.path)?;
        // There is nothing left to remove.
        open.path.clear();
        Ok(Some(open.num_bytes + end.len() as u64))
    }
}

impl Unfinished {
    /// A file beside `path` that no other process writes to, and that is nothing else: what has its
    /// name already is removed and never written to, since it may be a link to another file.
    fn create(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".unfinished");
        let path = PathBuf::from(name);
        remove_abandoned(&path)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path)?;
        lock_named(&file, &path)?;
        let mut open = Self {
            file,
            path,
            num_bytes: MARK.len() as u64,
            matrices: Vec::new(),
        };
        open.file.write_all(MARK)?;
        Ok(open)
    }
}

/// Removes what a process has left that was ended, or who knows who has put there.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] where another process is writing it.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let file = metadata.is_file().then(|| open_plain_file(path));
    let file = file.transpose()?;
    if let Some(file) = &file {
        // Held until the name is gone, so that nobody else takes the next file for this one.
        lock_named(file, path)?;
    }
    std::fs::remove_file(path)
}

/// Takes the lock of a file that has this name.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] where another process has the lock, or has given the name to another
/// file before.
fn lock_named(file: &File, path: &Path) -> io::Result<()> {
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another process writes it");
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (ours, named) = (file.metadata()?, std::fs::symlink_metadata(path));
    if named.is_ok_and(|named| named.ino() == ours.ino() && named.dev() == ours.dev()) {
        return Ok(());
    }
    Err(busy())
}

#[cfg(test)]
impl NewFile {
    /// Lets what is written from here on go to another file.
    pub(super) fn write_to(&mut self, file: File) {
        if let Some(open) = &mut self.open {
            open.file = file;
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What can't be removed is written over by the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn checksums(pool: &ComputePool, panels: &[u8]) -> Result<Vec<String>, PoolError> {
    let chunks: Vec<&[u8]> = panels.chunks(CHUNK_BYTES).collect();
    let checksums = Mutex::new(vec![String::new(); chunks.len()]);
    pool.run(chunks.len(), &|chunk, _| {
        let checksum = checksum(chunks[chunk]);
        lock(&checksums)[chunk] = checksum;
    })?;
    Ok(std::mem::take(&mut *lock(&checksums)))
}

fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Scales of two bytes stand as the machine has them.
fn byte_order() -> &'static str {
    if cfg!(target_endian = "little") {
        "little"
    } else {
        "big"
    }
}
