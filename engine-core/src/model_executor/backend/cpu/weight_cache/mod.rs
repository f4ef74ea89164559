//! Quantized weights in a file beside the model, so that a model is quantized once.
//!
//! Only what takes arithmetic to make is kept: matrices that `--quantization` rounds, or whose
//! format in a GGUF file has no kernel. Others are put in order while they are read, which is as
//! fast as reading them in order from a second file, and needs no second gigabyte.
//!
//! A file is used where nobody but this user or root can have written it (`trust.rs`), where it says that it was made from exactly these files by this layout, and where
//! what it holds has the checksums it names. Anything else is made again from the model. A folder
//! that can't be written to is reported once and otherwise makes no difference.

mod file;
mod fingerprint;
#[cfg(test)]
mod tests;
mod trust;

use std::path::PathBuf;
use std::sync::Mutex;

use protocol::Quantization;

use self::file::{CachedWeights, NewFile, Unusable};
pub(super) use self::fingerprint::fingerprint;
use self::trust::Distrust;
use super::buffer::Buffer;
use crate::lock::lock;
use crate::model_executor::QuantizationConfig;
use crate::model_executor::checkpoint::{Checkpoint, CheckpointFiles};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// What identifies a packed matrix within a model's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedMatrix<'a> {
    /// The name of the first of its tensors.
    pub(crate) name: &'a str,
    /// The format's name.
    pub(crate) format: &'static str,
    pub(crate) out_features: usize,
    pub(crate) in_features: usize,
    /// Bytes of its panels.
    pub(crate) num_bytes: usize,
}

/// The quantized weights of one model, read from its file or on their way into it.
pub(crate) struct WeightCache {
    state: Mutex<State>,
}

enum State {
    /// Nothing is kept.
    Off,
    /// There is a file of these weights.
    Reading(CachedWeights),
    /// There was a file of these weights that turned out to be broken.
    Broken(PathBuf),
    /// There is none that can be used.
    Writing(NewFile),
}

impl WeightCache {
    /// Keeps nothing.
    pub(crate) fn off() -> Self {
        Self {
            state: Mutex::new(State::Off),
        }
    }

    /// The cache of a model whose files lie on a disk.
    pub(crate) fn open(
        files: &CheckpointFiles,
        checkpoint: &Checkpoint,
        config: Option<&QuantizationConfig>,
        quantization: Quantization,
    ) -> Self {
        let fingerprint = fingerprint(&checkpoint.source_files(), config);
        match (files.weight_cache_path(quantization), fingerprint) {
            (Some(path), Some(fingerprint)) => Self::at(path, fingerprint),
            _ => Self::off(),
        }
    }

    /// The cache at a path for a model with this fingerprint.
    fn at(path: PathBuf, fingerprint: String) -> Self {
        let state = match CachedWeights::open(&path, &fingerprint) {
            Ok(cached) => State::Reading(cached),
            Err(Unusable::Missing) => State::Writing(NewFile::new(path, fingerprint)),
            Err(Unusable::Wrong(problem)) => {
                tracing::info!(
                    "{}: {problem}; quantized weights are made again",
                    path.display()
                );
                State::Writing(NewFile::new(path, fingerprint))
            }
            Err(Unusable::Distrusted(distrust)) => {
                tracing::warn!("{}: {}", path.display(), distrust.in_words());
                match distrust {
                    // It is not written to: a new file takes its name.
                    Distrust::WritableFile => State::Writing(NewFile::new(path, fingerprint)),
                    Distrust::ForeignFile | Distrust::WritableFolder => State::Off,
                }
            }
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// The panels of a matrix, where the file has them whole.
    ///
    /// # Errors
    /// [`ModelError::OutOfMemory`], [`ModelError::Pool`].
    pub(crate) fn read(
        &self,
        pool: &ComputePool,
        matrix: CachedMatrix<'_>,
    ) -> Result<Option<Buffer<u8>>, ModelError> {
        let mut state = lock(&self.state);
        let State::Reading(cached) = &*state else {
            return Ok(None);
        };
        let mut panels = Buffer::zeroed("weights", matrix.num_bytes)?;
        if cached.read(pool, matrix, &mut panels)? {
            return Ok(Some(panels));
        }
        tracing::warn!(
            "{}: {} is not as it was written; the file is removed, and the weights are \
             quantized from the model",
            cached.path().display(),
            matrix.name
        );
        *state = State::Broken(cached.path().to_owned());
        Ok(None)
    }

    /// Keeps the panels of a matrix that was just made, where there is no file to read from.
    ///
    /// # Errors
    /// [`ModelError::Pool`]. A file that can't be written is reported, and then there is none.
    pub(crate) fn add(
        &self,
        pool: &ComputePool,
        matrix: CachedMatrix<'_>,
        panels: &[u8],
    ) -> Result<(), ModelError> {
        let mut state = lock(&self.state);
        if let State::Writing(file) = &mut *state
            && let Err(problem) = file.add(pool, matrix, panels)?
        {
            not_kept(file, &problem);
            *state = State::Off;
        }
        Ok(())
    }

    /// To be called when all weights are loaded: names the new file, or removes a broken one.
    pub(crate) fn finish(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Off);
        match state {
            State::Off | State::Reading(_) => {}
            State::Broken(path) => {
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::warn!("{}: {error}", path.display());
                }
            }
            State::Writing(mut file) => match file.finish() {
                Ok(Some(bytes)) => tracing::info!(
                    "{}: {bytes} bytes of quantized weights for the next start",
                    file.path().display()
                ),
                Ok(None) => {}
                Err(problem) => not_kept(&file, &problem),
            },
        }
    }
}

fn not_kept(file: &NewFile, problem: &std::io::Error) {
    let path = file.path().display();
    if problem.kind() == std::io::ErrorKind::ResourceBusy {
        tracing::info!("{path}: {problem}, for the next start");
        return;
    }
    tracing::warn!(
        "{path}: {problem}; the weights are quantized at each start (--no-weight-cache to not try)"
    );
}
