//! Packed weights that several cores of one machine map: data parallelism takes their memory once.
//!
//! The frontend makes a file in memory (`memfd_create`) and hands it to each core that it starts. The core that
//! may write fills it while it loads, seals it, and maps it as all others do that start after it, or in the
//! place of one that died. After the seal nobody can change it, whatever becomes of one of the cores.
//!
//! The file holds the panels of one matrix after the other, a table of them as JSON, and the table's length. A draft
//! model's follow the target model's, with a table of both at the end. Pages are made huge where the system can, as
//! those of weights that a core has for itself: decoding is a fifth slower without.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::buffer::{Buffer, Element, as_bytes};
use super::weight_cache::{CachedMatrix, fingerprint};
use crate::lock::lock;
use crate::model_executor::checkpoint::Checkpoint;
use crate::model_executor::compute_pool::{ComputePool, PoolError};
use crate::model_executor::error::ModelError;
use crate::model_executor::mapped::{HUGE_PAGE, PrivateMap};
use crate::model_executor::{QuantizationConfig, SharedWeightsFile};

/// Where matrices begin: at a page of any size that is in use but huge ones.
const ALIGN: u64 = 64 << 10;

/// Bytes that are mapped at once while the file is written. It is sparse: they take memory as they are written.
const EXTENT_BYTES: u64 = 1 << 30;

/// Bytes that a thread copies at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// Bytes at the file's end that hold the table's length.
const TRAILER_BYTES: u64 = 8;

/// What the file says of itself.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Table {
    /// The matrices of each model, by the fingerprint of its files.
    models: HashMap<String, HashMap<String, Place>>,
}

/// Where a matrix stands in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    format: String,
    out_features: usize,
    in_features: usize,
    start: u64,
    num_bytes: usize,
}

impl Place {
    fn is_of(&self, matrix: &CachedMatrix<'_>) -> bool {
        self.format == matrix.format
            && self.out_features == matrix.out_features
            && self.in_features == matrix.in_features
            && self.num_bytes == matrix.num_bytes
    }
}

/// The weights that a core shares with others.
pub(crate) struct SharedWeights {
    state: Mutex<State>,
}

enum State {
    /// This core's weights are its own.
    Off,
    /// The file is whole, and these are the model's matrices in it.
    Reading {
        map: Arc<PrivateMap>,
        matrices: HashMap<String, Place>,
    },
    /// This core fills it.
    Writing(NewFile),
}

/// A file on its way.
struct NewFile {
    file: File,
    /// Of the models before this one.
    table: Table,
    fingerprint: String,
    matrices: HashMap<String, Place>,
    /// Whether no other model follows this one into the file.
    is_last: bool,
    /// Of what is written.
    end: u64,
    /// The maps of its parts, and where in the file they begin. The last is being filled.
    extents: Vec<(Arc<PrivateMap>, u64)>,
}

/// The panels of a matrix: this core's own, or in the file that it shares.
pub(crate) enum Weights<T: Element> {
    Own(Buffer<T>),
    Shared(SharedSlice<T>),
}

/// A part of the file. Nobody writes to it any more.
pub(crate) struct SharedSlice<T: Element> {
    map: Arc<PrivateMap>,
    /// In bytes, aligned for the element.
    start: usize,
    /// In elements.
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Deref for Weights<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Own(buffer) => buffer,
            // SAFETY: `SharedSlice::new` has checked that the elements lie within the map and are aligned; any
            // bits are elements. They were written before the slice was made and are not written again: each part of
            // the file belongs to one matrix, one core at a time may write, and after it the file is sealed.
            Self::Shared(slice) => unsafe {
                let start = slice.map.as_ptr().add(slice.start);
                std::slice::from_raw_parts(start.cast(), slice.len)
            },
        }
    }
}

impl<T: Element> SharedSlice<T> {
    /// Bytes of a map as elements; `None` where they are not within it, not aligned, or no whole elements.
    fn new(map: &Arc<PrivateMap>, start: u64, num_bytes: usize) -> Option<Self> {
        let start = usize::try_from(start).ok()?;
        if start.checked_add(num_bytes)? > map.len() {
            return None;
        }
        let is_aligned = (map.as_ptr() as usize + start).is_multiple_of(align_of::<T>());
        let is_whole = num_bytes.is_multiple_of(size_of::<T>());
        (is_aligned && is_whole).then(|| Self {
            map: Arc::clone(map),
            start,
            len: num_bytes / size_of::<T>(),
            element: PhantomData,
        })
    }
}

impl SharedWeights {
    /// Shares nothing.
    pub(crate) fn off() -> Self {
        Self {
            state: Mutex::new(State::Off),
        }
    }

    /// The weights of this checkpoint in a file that others have too. One that isn't sealed is filled by whoever
    /// may write, of whom there is one at a time.
    ///
    /// # Errors
    /// The file has those of another model: requests that go from one core to another would have two.
    pub(crate) fn open(
        file: &SharedWeightsFile,
        checkpoint: &Checkpoint,
        config: Option<&QuantizationConfig>,
    ) -> Result<Self, ModelError> {
        let sources = checkpoint.source_files();
        let fingerprint = match sources.is_empty() {
            // Its files are in the executable.
            true => Some("built-in".to_owned()),
            false => fingerprint(&sources, config),
        };
        match fingerprint {
            Some(fingerprint) => Self::of(file, &fingerprint),
            None => Ok(Self::off()),
        }
    }

    /// The weights of a model with this fingerprint.
    fn of(file: &SharedWeightsFile, fingerprint: &str) -> Result<Self, ModelError> {
        let state = State::of(file, fingerprint).unwrap_or_else(|problem| {
            tracing::warn!("this core has weights of its own: {problem}");
            Some(State::Off)
        });
        let state = state.ok_or_else(|| ModelError::File {
            file: "the model's files".to_owned(),
            problem: "they have changed since the first engine core read them, and all are to serve one model: start \
                      the server anew, or put them back"
                .to_owned(),
        })?;
        Ok(Self {
            state: Mutex::new(state),
        })
    }

    /// The panels of a matrix, as they are in the file, or as `pack` makes them.
    ///
    /// # Errors
    /// Those of `pack`, or [`ModelError::Pool`].
    pub(crate) fn share<T: Element>(
        &self,
        pool: &ComputePool,
        matrix: CachedMatrix<'_>,
        pack: impl FnOnce() -> Result<Buffer<T>, ModelError>,
    ) -> Result<Weights<T>, ModelError> {
        let mut state = lock(&self.state);
        if let State::Reading { map, matrices } = &*state
            && let Some(place) = matrices.get(matrix.name)
            && place.is_of(&matrix)
            && let Some(slice) = SharedSlice::new(map, place.start, place.num_bytes)
        {
            return Ok(Weights::Shared(slice));
        }
        let panels = pack()?;
        if let State::Writing(file) = &mut *state
            && !file.matrices.contains_key(matrix.name)
        {
            match file.add(pool, &matrix, as_bytes(&panels))? {
                Ok(slice) => return Ok(Weights::Shared(slice)),
                Err(problem) => {
                    tracing::warn!("each core has weights of its own: {problem}");
                    *state = State::Off;
                }
            }
        }
        Ok(Weights::Own(panels))
    }

    /// To be called when all weights of the model are loaded: completes what was written, and seals it for others
    /// to map where no other model follows.
    pub(crate) fn finish(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Off);
        if let State::Writing(file) = state {
            match file.finish() {
                Ok(bytes) => tracing::info!("{bytes} bytes of weights for all engine cores"),
                Err(problem) => {
                    tracing::warn!("each core has weights of its own: {problem}");
                }
            }
        }
    }
}

impl State {
    /// `None` where the file is whole and lacks this model.
    fn of(shared: &SharedWeightsFile, fingerprint: &str) -> io::Result<Option<Self>> {
        let file = shared.file.try_clone()?;
        let len = file.metadata()?.len();
        let is_sealed = seal::is_sealed(&file)?;
        if !is_sealed && !shared.may_write {
            return Err(io::Error::other("those of the first core are not there"));
        }
        let mut table = match len {
            0 if !is_sealed => Table::default(),
            _ => Table::read(&file, len)?,
        };
        if !is_sealed {
            return Ok(Some(Self::Writing(NewFile {
                file,
                // A model may draft for itself.
                matrices: table.models.remove(fingerprint).unwrap_or_default(),
                table,
                fingerprint: fingerprint.to_owned(),
                is_last: shared.is_last,
                end: len,
                extents: Vec::new(),
            })));
        }
        let Some(matrices) = table.models.remove(fingerprint) else {
            return Ok(None);
        };
        let map = Arc::new(PrivateMap::new(&file, 0, len)?);
        map.use_huge_pages();
        Ok(Some(Self::Reading { map, matrices }))
    }
}

impl Table {
    /// From the end of a file of `len` bytes.
    fn read(file: &File, len: u64) -> io::Result<Self> {
        let wrong = || io::Error::other("those of the first core can't be read");
        let table_end = len.checked_sub(TRAILER_BYTES).ok_or_else(wrong)?;
        let mut trailer = [0; TRAILER_BYTES as usize];
        file.read_exact_at(&mut trailer, table_end)?;
        let table_start = table_end
            .checked_sub(u64::from_le_bytes(trailer))
            .ok_or_else(wrong)?;
        let mut table = vec![0; usize::try_from(table_end - table_start).map_err(|_| wrong())?];
        file.read_exact_at(&mut table, table_start)?;
        serde_json::from_slice(&table).map_err(|_| wrong())
    }
}

impl NewFile {
    /// Writes a matrix.
    ///
    /// # Errors
    /// Outside, a panic of the pool; inside, what the system says, such as that there is no memory.
    fn add<T: Element>(
        &mut self,
        pool: &ComputePool,
        matrix: &CachedMatrix<'_>,
        panels: &[u8],
    ) -> Result<io::Result<SharedSlice<T>>, PoolError> {
        let (map, map_start, start) = match self.room_for(panels.len() as u64) {
            Ok(room) => room,
            Err(error) => return Ok(Err(error)),
        };
        let is_written = AtomicBool::new(true);
        pool.run(panels.len().div_ceil(CHUNK_BYTES), &|chunk, _| {
            let first = chunk * CHUNK_BYTES;
            let bytes = &panels[first..panels.len().min(first + CHUNK_BYTES)];
            if self.file.write_all_at(bytes, start + first as u64).is_err() {
                is_written.store(false, Ordering::Relaxed);
            }
        })?;
        if !is_written.into_inner() {
            return Ok(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let Some(slice) = SharedSlice::new(&map, start - map_start, panels.len()) else {
            return Ok(Err(io::ErrorKind::InvalidInput.into()));
        };
        self.end = start + panels.len() as u64;
        let place = Place {
            format: matrix.format.to_owned(),
            out_features: matrix.out_features,
            in_features: matrix.in_features,
            start,
            num_bytes: panels.len(),
        };
        self.matrices.insert(matrix.name.to_owned(), place);
        Ok(Ok(slice))
    }

    /// A map with room for so many bytes, where in the file it begins, and where they do.
    fn room_for(&mut self, num_bytes: u64) -> io::Result<(Arc<PrivateMap>, u64, u64)> {
        let start = self.end.next_multiple_of(ALIGN);
        if let Some((map, map_start)) = self.extents.last()
            && start + num_bytes <= map_start + map.len() as u64
        {
            return Ok((Arc::clone(map), *map_start, start));
        }
        let start = self.end.next_multiple_of(HUGE_PAGE);
        let len = num_bytes.max(EXTENT_BYTES).next_multiple_of(HUGE_PAGE);
        self.file.set_len(start + len)?;
        let map = Arc::new(PrivateMap::new(&self.file, start, len)?);
        self.extents.push((Arc::clone(&map), start));
        Ok((map, start, start))
    }

    /// Writes the table, and seals the file behind the last model. Returns its bytes.
    fn finish(mut self) -> io::Result<u64> {
        self.table.models.insert(self.fingerprint, self.matrices);
        let table = serde_json::to_vec(&self.table)?;
        let len = (self.end + table.len() as u64 + TRAILER_BYTES).next_multiple_of(HUGE_PAGE);
        let table_end = len - TRAILER_BYTES;
        self.file.set_len(len)?;
        self.file
            .write_all_at(&table, table_end - table.len() as u64)?;
        self.file
            .write_all_at(&(table.len() as u64).to_le_bytes(), table_end)?;
        if self.is_last {
            seal::seal(&self.file)?;
        }
        for (map, _) in &self.extents {
            map.use_huge_pages();
        }
        Ok(len)
    }
}

/// Whether a process has completed the file: weights that are read from it take no memory of their own.
pub(crate) fn is_complete(file: &File) -> bool {
    seal::is_sealed(file).unwrap_or(false)
}

#[cfg(target_os = "linux")]
mod seal {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    /// Neither its content nor its length changes, and no seal is taken back.
    const SEALS: libc::c_int =
        libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

    /// Seals a file in memory for good.
    pub(super) fn seal(file: &File) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the call takes a number.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn is_sealed(file: &File) -> io::Result<bool> {
        // SAFETY: the descriptor is open.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } {
            -1 => Err(io::Error::last_os_error()),
            seals => Ok(seals & SEALS == SEALS),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod seal {
    use std::fs::File;
    use std::io;

    pub(super) fn seal(_file: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_sealed(_file: &File) -> io::Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
