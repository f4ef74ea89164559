//! Locks on blobs, which are those of `huggingface_hub`: `flock` on an empty file.
//!
//! The files stay: whoever waits for one that was removed would hold a lock that nobody else sees.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::cache::{at, make_folder_of};
use crate::error::HubError;

/// Waits until nobody else has the lock. It is held until the file is dropped.
pub(crate) fn wait_for(path: &Path, what: &str) -> Result<File, HubError> {
    make_folder_of(path)?;
    let (file, is_held) = open_and_try(path)?;
    if !is_held {
        tracing::info!("{what} is already being downloaded; waiting for it");
        file.lock().map_err(at(path))?;
    }
    Ok(file)
}

/// Takes the lock if nobody else has it.
pub(crate) fn try_now(path: &Path) -> Result<Option<File>, HubError> {
    let (file, is_held) = open_and_try(path)?;
    Ok(is_held.then_some(file))
}

fn open_and_try(path: &Path) -> Result<(File, bool), HubError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let file = options.open(path).map_err(at(path))?;
    match file.try_lock() {
        Ok(()) => Ok((file, true)),
        Err(TryLockError::WouldBlock) => Ok((file, false)),
        Err(TryLockError::Error(error)) => Err(at(path)(error)),
    }
}
