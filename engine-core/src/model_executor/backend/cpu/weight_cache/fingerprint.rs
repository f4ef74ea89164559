//! What a model's files are, without reading all of them.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Bytes of a file's beginning that count: the header, which names all tensors.
const HEAD_BYTES: u64 = 1 << 20;

/// A hash of the files' names, sizes, times of change and beginnings; `None` where there are no
/// files, or one can't be read.
pub(super) fn fingerprint(paths: &[PathBuf]) -> Option<String> {
    if paths.is_empty() {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    for path in paths {
        let file = File::open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let name = path.file_name()?.to_string_lossy();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&metadata.len().to_le_bytes());
        hasher.update(&changed.as_nanos().to_le_bytes());
        let mut head = Vec::new();
        file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
        hasher.update(&head);
    }
    Some(hasher.finalize().to_hex().to_string())
}
