//! A folder for sockets and files of this process.

use std::path::PathBuf;
use std::sync::Mutex;

use tempfile::TempDir;

static FOLDER: Mutex<Option<TempDir>> = Mutex::new(None);

/// The path of a file in it.
pub(crate) fn file(name: &str) -> PathBuf {
    let mut folder = FOLDER.lock().unwrap();
    let folder = folder.get_or_insert_with(|| tempfile::tempdir().unwrap());
    folder.path().join(name)
}

/// Removes what targets have written. They can't be used afterwards.
pub fn remove_scratch() {
    FOLDER.lock().unwrap().take();
}
